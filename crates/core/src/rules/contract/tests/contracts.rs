//! The declarations that a contract may contain, and what is known without a contract.

use super::*;

fn refused(parameters: Vec<Parameter>) -> Vec<String> {
    let contract = Contract {
        updates: vec![],
        ..contract(parameters)
    };
    match Terms::new(&contract).map(|_| ()) {
        Err(Refusal::BadContract { problems }) => problems,
        other => panic!("{other:?}: {contract:?}"),
    }
}

#[test]
fn what_is_not_declared_is_not_known() {
    // rule 8.1
    let terms = Terms::new(&contract(vec![])).unwrap();
    let none = Arguments::default();
    assert_eq!(
        terms.signal(&name("other"), &none, &mut Steps::default()),
        Err(Unfit::Unknown)
    );
    assert_eq!(
        terms.update(&name("other"), &none, &mut Steps::default()),
        Err(Unfit::Unknown)
    );
    let empty = Terms::new(&Contract::default()).unwrap();
    assert_eq!(
        empty.signal(&name("other"), &none, &mut Steps::default()),
        Ok(text("[]"))
    );
    assert_eq!(
        empty.update(&name("other"), &none, &mut Steps::default()),
        Err(Unfit::Unknown)
    );
    let open = Accepts {
        name: name("open"),
        parameters: None,
    };
    let open = Terms::new(&Contract {
        signals: vec![open],
        updates: vec![],
    })
    .unwrap();
    let payload = Arguments::Payload(text(r#"{"a":1}"#));
    assert_eq!(
        open.signal(&name("open"), &payload, &mut Steps::default()),
        Ok(text(r#"[{"a":1}]"#))
    );
}

#[test]
fn without_a_contract_an_object_is_one_value() {
    // rule 8.4
    let object = text(r#"{"b":1.0,"a":2}"#);
    assert_eq!(
        free(&Arguments::Payload(object.clone())).as_str(),
        r#"[{"b":1.0,"a":2}]"#
    );
    let named = Arguments::from_json(&object).unwrap();
    assert_eq!(free(&named).as_str(), r#"[{"b":1.0,"a":2}]"#);
    assert_eq!(
        free(&vec![object, Json::null()].into()).as_str(),
        r#"[{"b":1.0,"a":2},null]"#
    );
    assert_eq!(free(&Arguments::default()).as_str(), "[]");
    assert_eq!(free(&Arguments::Payload(text("[1,2]"))).as_str(), "[[1,2]]");
}

#[test]
fn a_wait_yields_true_the_value_or_the_list() {
    // rule 8.4
    for (normalised, yielded) in [
        ("[]", "true"),
        ("{}", "true"),
        ("[null]", "null"),
        (r#"{"a":{"b":1.0}}"#, r#"{"b":1.0}"#),
        (r#"[[1,2]]"#, "[1,2]"),
        (r#"{"rest":[]}"#, "[]"),
        (r#"[1,{"a":2}]"#, r#"[1,{"a":2}]"#),
        (r#"{"z":1e2,"a":null}"#, "[1e2,null]"),
    ] {
        assert_eq!(yields(&text(normalised)).as_str(), yielded);
    }
}

#[test]
fn arguments_are_the_same_by_value() {
    assert!(same(
        &text(r#"{"a":1,"b":["é"]}"#),
        &text(r#"{ "b":["\u00e9"],"a":1.0 }"#)
    ));
    assert!(!same(&text("[1,2]"), &text("[2,1]")));
    assert!(!same(
        &text("18446744073709551617"),
        &text("18446744073709551618")
    ));
    assert!(!same(&text("[]"), &text("{}")) && !same(&text("\"1\""), &text("1")));
}

#[test]
fn a_contract_that_makes_no_sense_is_refused_with_all_its_faults() {
    // rule 8.1
    let problems = refused(vec![
        Parameter::new("", "int"),
        Parameter::new("a\nb", "int"),
        Parameter::new("rest", "any").variadic(),
        Parameter::new("x", "integer"),
        Parameter::new("x", "int|"),
        Parameter::new("null", "string|null"),
        Parameter::new("d", "string").default_to(Json::null()),
        Parameter::new("e", json!({"type": "string"})).default_to(text("1")),
        Parameter::new("f", json!({"type": "text"})),
        Parameter::new("g", json!([1])),
        Parameter::new("h", json!({"pattern": "("})),
        Parameter::new("big", "any").default_to(text("18446744073709551617")),
        Parameter::new("vast", "any").default_to(text("1e400")),
        Parameter::new("last", "any")
            .variadic()
            .default_to(text("[]")),
    ]);
    for part in [
        "empty",
        "control",
        "rest",
        "integer",
        "two of this name",
        "int|",
        "nullable",
        "\"d\"",
        "\"e\"",
        "\"f\"",
        "\"g\"",
        "\"h\"",
        "\"big\"",
        "\"vast\"",
        "\"last\"",
    ] {
        assert!(
            problems.iter().any(|problem| problem.contains(part)),
            "{part}: {problems:#?}"
        );
    }
    let twice = Accepts {
        name: name("s"),
        parameters: None,
    };
    let twice = Contract {
        updates: vec![twice.clone(), twice],
        ..Contract::default()
    };
    let refusal = Terms::new(&twice).map(|_| ()).unwrap_err();
    assert_eq!(refusal.reason(), "bad_contract");
    assert!(refusal.to_string().contains("declared twice"), "{refusal}");
}

#[test]
fn a_schema_refers_to_nothing_outside_itself() {
    // rule 8.1
    for outside in [
        json!({"$ref": "https://example.com/a.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"$ref": "other.json"}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$schema": "https://example.com/mine"}),
        json!({"properties": {"a": {"items": {"$dynamicRef": "https://example.com/a"}}}}),
    ] {
        assert_eq!(
            refused(vec![Parameter::new("x", outside.clone())]).len(),
            1,
            "{outside}"
        );
    }
}

#[test]
fn nothing_that_is_sent_is_too_deep_or_too_long() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let arguments = format!(r#"{{"arguments":[{deep}]}}"#);
    let bound = sent(&[Parameter::new("a", "array")], &arguments).unwrap();
    assert!(yields(&text(&bound)).as_str() == deep);
    let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}});
    let tree = [Parameter::new("a", tree)];
    assert_eq!(
        sent(&tree, &arguments).unwrap_err(),
        json!({"a": ["unreadable"]})
    );
    let fair = format!(
        r#"{{"arguments":[{}{}]}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    assert!(sent(&tree, &fair).is_ok());
    // Neither in what is kept of the errors.
    let many: String = (0..10_000).map(|at| format!(r#","{at}":0"#)).collect();
    let unknown = sent(
        &[Parameter::new("a", "any")],
        &format!(r#"{{"payload":{{"a":1{many}}}}}"#),
    );
    assert_eq!(unknown.unwrap_err().as_object().unwrap().len(), 101);
}

#[test]
fn a_schema_that_only_leads_to_itself_ends_nothing() {
    for looped in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"not": {"$ref": "#"}}),
        json!({"if": {"$ref": "#"}}),
        json!({"$dynamicRef": "#a", "$dynamicAnchor": "a"}),
        json!({"$recursiveRef": "#", "$schema": "https://json-schema.org/draft/2019-09/schema"}),
        json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
    ] {
        if let Ok(terms) = Terms::new(&contract(vec![Parameter::new("x", looped)])) {
            let _ = terms.signal(
                &name("s"),
                &vec![text(r#"{"a":1}"#)].into(),
                &mut Steps::default(),
            );
            let _ = terms.signal(&name("s"), &vec![text("1")].into(), &mut Steps::default());
        }
    }
}
