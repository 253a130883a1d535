//! The parameter that each argument goes to, and the problems that are reported when one does not fit.

use super::*;

#[test]
fn arguments_come_by_position_by_name_or_as_a_payload() {
    // rule 8.3
    let all = r#"{"сумма":5,"note":"a","rate":2}"#;
    assert_eq!(sent(&order(), r#"{"arguments":[5,"a",2]}"#).unwrap(), all);
    let named = r#"{"arguments":{"rate":2,"note":"a","сумма":5}}"#;
    assert_eq!(sent(&order(), named).unwrap(), all);
    let payload = r#"{"payload": {"note":"a","rate":2,"сумма":5}}"#;
    assert_eq!(sent(&order(), payload).unwrap(), all);
    let short = r#"{"сумма":5,"note":null,"rate":1.50}"#;
    for arguments in [
        r#"{"payload":5}"#,
        r#"{"arguments":[5]}"#,
        r#"{"arguments":[5,null]}"#,
    ] {
        assert_eq!(sent(&order(), arguments).unwrap(), short);
    }
    // A list is one payload, not a list of arguments.
    let list = [Parameter::new("items", "array")];
    assert_eq!(
        sent(&list, r#"{"payload":[1,2]}"#).unwrap(),
        r#"{"items":[1,2]}"#
    );
    assert_eq!(sent(&[], "{}").unwrap(), "{}");
}

#[test]
fn all_problems_are_reported_at_once() {
    // rule 8.3
    let by_name = r#"{"arguments":{"note":7,"rate":null,"colour":1,"size":2}}"#;
    assert_eq!(
        sent(&order(), by_name).unwrap_err(),
        json!({"сумма": ["missing"], "note": ["wrong_type"], "rate": ["null_not_allowed"],
            "colour": ["unknown"], "size": ["unknown"]})
    );
    assert_eq!(
        sent(&order(), r#"{"arguments":["5",true,1,2,3]}"#).unwrap_err(),
        json!({"сумма": ["wrong_type"], "note": ["wrong_type"], "arguments": ["too_many"]})
    );
    let twice = r#"{"arguments":{"сумма":1,"сумма":2}}"#;
    assert_eq!(
        sent(&order(), twice).unwrap_err(),
        json!({"сумма": ["given_twice"]})
    );
    let broken = r#"{"payload":{"\ud800":2}}"#;
    assert_eq!(
        sent(&order(), broken).unwrap_err(),
        json!({"arguments": ["unreadable"]})
    );
    assert_eq!(
        sent(&[], r#"{"payload":{}}"#).unwrap_err(),
        json!({"arguments": ["too_many"]})
    );
}

#[test]
fn errors_are_read_and_written_and_shown_as_messages() {
    // rule 8.3
    let terms = Terms::new(&contract(order())).unwrap();
    let Err(Unfit::Invalid(errors)) = terms.signal(
        &name("s"),
        &vec![text("true")].into(),
        &mut Steps::default(),
    ) else {
        panic!("a bool is no int");
    };
    assert_eq!(
        serde_json::to_value(errors.messages()).unwrap(),
        json!({"сумма": ["must be int, not a bool"]})
    );
    let written = serde_json::to_string(&errors).unwrap();
    assert_eq!(
        written,
        r#"{"сумма":[{"code":"wrong_type","message":"must be int, not a bool"}]}"#
    );
    assert_eq!(
        serde_json::from_str::<ValidationErrors>(&written).unwrap(),
        errors
    );
    assert_eq!(errors.to_string(), "сумма must be int, not a bool");
}

#[test]
fn a_variadic_parameter_takes_the_rest() {
    // rule 8.3
    let many = [
        Parameter::new("first", "int"),
        Parameter::new("rest", "int|string").variadic(),
    ];
    for (arguments, bound) in [
        (r#"{"arguments":[1]}"#, r#"{"first":1,"rest":[]}"#),
        (
            r#"{"arguments":[1,2,"x"]}"#,
            r#"{"first":1,"rest":[2,"x"]}"#,
        ),
        (
            r#"{"arguments":{"rest":[2],"first":1}}"#,
            r#"{"first":1,"rest":[2]}"#,
        ),
        (r#"{"payload":{"first":1}}"#, r#"{"first":1,"rest":[]}"#),
    ] {
        assert_eq!(sent(&many, arguments).unwrap(), bound);
    }
    assert_eq!(
        sent(&many, r#"{"arguments":[1,null,2,[]]}"#).unwrap_err(),
        json!({"rest": ["null_not_allowed", "wrong_type"]})
    );
    let not_a_list = r#"{"arguments":{"first":1,"rest":2}}"#;
    assert_eq!(
        sent(&many, not_a_list).unwrap_err(),
        json!({"rest": ["wrong_type"]})
    );
    let some = [Parameter::new("rest", "int").nullable().variadic()];
    assert_eq!(
        sent(&some, r#"{"arguments":[null,1]}"#).unwrap(),
        r#"{"rest":[null,1]}"#
    );
}

#[test]
fn null_is_taken_where_it_is_declared() {
    // rules 8.1 and 8.3
    let schema = json!({"type": ["string", "null"]});
    for (parameter, takes, may_be_left_out) in [
        (Parameter::new("x", "string"), false, false),
        (Parameter::new("x", "string").nullable(), true, true),
        (Parameter::new("x", json!({"type": "string"})), false, false),
        (
            Parameter::new("x", json!({"type": "string"})).nullable(),
            true,
            true,
        ),
        (Parameter::new("x", schema.clone()), true, false),
        (Parameter::new("x", "any"), true, false),
        (Parameter::new("x", json!(true)), true, false),
        (
            Parameter::new("x", "string").default_to(text("\"a\"")),
            false,
            true,
        ),
        (
            Parameter::new("x", "string")
                .nullable()
                .default_to(text("\"a\"")),
            true,
            true,
        ),
        (
            Parameter::new("x", "string")
                .nullable()
                .default_to(Json::null()),
            true,
            true,
        ),
    ] {
        let given = sent(std::slice::from_ref(&parameter), r#"{"arguments":[null]}"#);
        match takes {
            true => assert_eq!(given.unwrap(), r#"{"x":null}"#, "{parameter:?}"),
            false => assert_eq!(given.unwrap_err(), json!({"x": ["null_not_allowed"]})),
        }
        let left_out = sent(std::slice::from_ref(&parameter), r#"{"arguments":{}}"#);
        assert_eq!(left_out.is_ok(), may_be_left_out, "{parameter:?}");
    }
}

#[test]
fn values_keep_the_text_they_were_given_as() {
    // rule 8.1
    let any = [
        Parameter::new("b", "int"),
        Parameter::new("a", "any"),
        Parameter::new("c", json!({"type": "number"})),
    ];
    let given = r#"{"arguments":[123456789012345678901234567890,{"z" : 1.0e2, "a":[ ]},100000000000000000000000.0]}"#;
    assert_eq!(
        sent(&any, given).unwrap(),
        r#"{"b":123456789012345678901234567890,"a":{"z" : 1.0e2, "a":[ ]},"c":100000000000000000000000.0}"#
    );
}

#[test]
fn a_schema_says_what_is_wrong_and_where() {
    // rule 8.1
    let point = json!({"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer", "minimum": 3}}});
    let parameters = [Parameter::new("at", point)];
    assert_eq!(
        sent(&parameters, r#"{"arguments":[{"x":3}]}"#).unwrap(),
        r#"{"at":{"x":3}}"#
    );
    assert_eq!(
        sent(&parameters, r#"{"arguments":[3]}"#).unwrap_err(),
        json!({"at": ["wrong_type"]})
    );
    let terms = Terms::new(&contract(parameters.to_vec())).unwrap();
    let error = terms
        .signal(
            &name("s"),
            &vec![text(r#"{"x":1}"#)].into(),
            &mut Steps::default(),
        )
        .unwrap_err()
        .to_string();
    assert!(error.contains("/x") && error.contains('3'), "{error}");
}

#[test]
fn ten_thousand_arguments_are_bound() {
    // rule 8.3
    let numbers: Vec<String> = (0..10_000).map(|at| at.to_string()).collect();
    let list = numbers.join(",");
    let many = [Parameter::new("all", "int").variadic()];
    assert_eq!(
        sent(&many, &format!(r#"{{"arguments":[{list}]}}"#)).unwrap(),
        format!(r#"{{"all":[{list}]}}"#)
    );
    let one = sent(
        &[Parameter::new("one", "int")],
        &format!(r#"{{"arguments":[{list}]}}"#),
    );
    assert_eq!(one.unwrap_err(), json!({"arguments": ["too_many"]}));
}
