//! A validation is bounded, whatever is checked against whatever was declared (rule 8.5).

use std::time::{Duration, Instant};

use serde_json::Map;

use super::*;

/// Validates one argument against a schema. Returns the result, and the time that it took.
fn checked(schema: &Value, argument: &Value) -> (Result<Json, Unfit>, Duration) {
    let terms = Terms::new(&contract(vec![Parameter::new("x", schema.clone())])).unwrap();
    let arguments = Arguments::Positional(vec![Json::of(argument).unwrap()]);
    let begun = Instant::now();
    let fits = terms.signal(&name("s"), &arguments, &mut Steps::default());
    (fits, begun.elapsed())
}

/// A test's build is slow; a release is ten times as quick.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_pattern_that_is_slow_on_a_long_text_is_given_up() {
    // rule 8.5: one argument of 1 MiB against a pattern kept a thread busy for a minute.
    let long = "ab".repeat(1 << 19);
    for schema in [
        json!({"pattern": "[ab]*a[ab]{900}c"}),
        json!({"not": {"pattern": "[ab]*a[ab]{900}c"}}),
        json!({"anyOf": [{"pattern": "(a*)*(b*)*(a?){900}c"}, {"type": "integer"}]}),
    ] {
        let (fits, took) = checked(&schema, &json!(&long));
        let most = VALIDATION_STEPS_MAX;
        assert_eq!(fits, Err(Unfit::TooLong { most }), "{schema}");
        assert!(took < SOON, "{schema} took {took:?}");
    }
    // What it may take it takes, and ends.
    let (fits, took) = checked(
        &json!({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}),
        &json!(&long[..1 << 16]),
    );
    assert!(fits.is_err() && took < SOON, "{took:?}");
}

#[test]
fn long_texts_are_checked_against_plain_patterns() {
    // rule 8.5: what is refused is work, not size.
    let long = "QUJD".repeat(1 << 16);
    let base64 =
        json!({"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$", "maxLength": 2_000_000});
    assert!(checked(&base64, &json!(long)).0.is_ok());
    assert!(matches!(
        checked(&base64, &json!(format!("{long}-"))).0,
        Err(Unfit::Invalid(_))
    ));
    let rows = json!(vec![json!({"id": "ABC-123", "n": 1}); 5_000]);
    let table = json!({"type": "array", "uniqueItems": false, "items": {
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{1,9}$"}, "n": {"type": "integer"}},
    }});
    assert!(checked(&table, &rows).0.is_ok());
}

#[test]
fn a_value_that_is_checked_again_on_every_level_is_given_up() {
    // rule 8.5: each level of the value doubles the work.
    let schema = json!({"$defs": {"n": {"anyOf": [
        {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#/$defs/n"}, "y": false}},
        {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/n"}]}, "z": false}},
        {"properties": {"x": {"not": {"not": {"$ref": "#/$defs/n"}}}}, "required": ["w"]},
    ]}}, "$ref": "#/$defs/n"});
    let mut value = json!("leaf");
    for _ in 0..100 {
        value = json!({"x": value, "y": 1, "z": 2});
    }
    let (fits, took) = checked(&schema, &value);
    assert!(fits.is_err() && took < SOON, "{took:?}");
}

#[test]
fn problems_of_a_large_value_are_reported_without_keeping_all_of_them() {
    // rule 8.5
    let (fits, took) = checked(
        &json!({"items": {"type": "string"}}),
        &json!(vec![1; 400_000]),
    );
    let Err(Unfit::Invalid(errors)) = fits else {
        panic!("{fits:?}")
    };
    assert!(took < SOON);
    let message = errors.to_string();
    assert!(
        message.contains("/0") && message.len() < 10_000,
        "{message}"
    );
}

#[test]
fn all_keywords_give_the_same_verdict_when_the_work_is_counted() {
    // rule 8.5: counting changes no verdict.
    let cases = [
        (
            json!({"const": {"a": [1, 2.0]}}),
            json!({"a": [1.0, 2]}),
            true,
        ),
        (json!({"enum": [1, "a", [true]]}), json!([true]), true),
        (json!({"enum": [1, "a", [true]]}), json!([false]), false),
        (
            json!({"uniqueItems": true}),
            json!([1, "1", [1], {"a": 1}]),
            true,
        ),
        (
            json!({"uniqueItems": true}),
            json!([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}]),
            false,
        ),
        (
            json!({"uniqueItems": true}),
            json!((0..500).collect::<Vec<_>>()),
            true,
        ),
        (
            json!({"propertyNames": {"pattern": "^[a-z]+$"}}),
            json!({"abc": 1}),
            true,
        ),
        (
            json!({"propertyNames": {"pattern": "^[a-z]+$"}}),
            json!({"Abc": 1}),
            false,
        ),
        (
            json!({"patternProperties": {"^x": {"type": "integer"}}}),
            json!({"x1": 1, "y": "a"}),
            true,
        ),
        (
            json!({"patternProperties": {"^x": {"type": "integer"}}}),
            json!({"x1": "a"}),
            false,
        ),
        (json!({"minLength": 2, "maxLength": 2}), json!("éé"), true),
        (json!({"multipleOf": 0.5}), json!(2.25), false),
        (
            json!({"contains": {"const": 3}, "minContains": 2}),
            json!([3, 1, 3]),
            true,
        ),
        (
            json!({"unevaluatedProperties": false, "allOf": [{"properties": {"a": true}}]}),
            json!({"a": 1, "b": 2}),
            false,
        ),
        (
            json!({"dependentRequired": {"a": ["b"]}}),
            json!({"a": 1}),
            false,
        ),
        (
            json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
            json!(["a", 1, 2]),
            true,
        ),
        (
            json!({"if": {"type": "string"}, "then": {"minLength": 3}, "else": {"type": "integer"}}),
            json!("ab"),
            false,
        ),
    ];
    for (schema, value, valid) in cases {
        assert_eq!(
            checked(&schema, &value).0.is_ok(),
            valid,
            "{schema} {value}"
        );
    }
}

#[test]
fn a_schema_whose_work_cannot_be_bounded_is_refused_when_it_is_declared() {
    // rule 8.5
    let refused = |schema: Value| match Terms::new(&contract(vec![Parameter::new("x", schema)])) {
        Ok(_) => panic!("it was taken"),
        Err(Refusal::BadContract { problems }) => problems.join("\n"),
        Err(other) => panic!("{other}"),
    };
    for pattern in ["^(?=.*[A-Z]).+$", "(a+)\\1", "(?<!x)y", "[^a]{1000}{1000}"] {
        let problems = refused(json!({"pattern": pattern}));
        assert!(
            problems.contains("bounded time") && problems.contains("look-around"),
            "{problems}"
        );
        let problems = refused(json!({"properties": {"p": {"patternProperties": {pattern: {}}}}}));
        assert!(problems.contains("bounded time"), "{problems}");
    }
    // References that double on each of sixty levels: 2^60 for one value.
    let levels = (0..18).map(|level| {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        (format!("l{level}"), json!({"anyOf": [next.clone(), next]}))
    });
    let mut defs: Map<String, Value> = levels.collect();
    defs.insert("l18".into(), json!({"type": "string"}));
    let problems = refused(json!({"$defs": defs, "$ref": "#/$defs/l0"}));
    assert!(problems.contains("subschemas"), "{problems}");
    // A long chain of references, each inside the one before.
    let mut chain: Map<String, Value> = (0..5_000)
        .map(|at| {
            (
                format!("c{at}"),
                json!({"$ref": format!("#/$defs/c{}", at + 1)}),
            )
        })
        .collect();
    chain.insert("c5000".into(), json!(true));
    let problems = refused(json!({"$defs": chain, "$ref": "#/$defs/c0"}));
    assert!(problems.contains("inside one another"), "{problems}");
}

#[test]
fn a_contract_of_an_earlier_release_refuses_only_the_argument_that_cannot_be_checked() {
    // rule 8.5
    let parameters = vec![
        Parameter::new("code", json!({"pattern": "^(?!x)"})).nullable(),
        Parameter::new("n", "int"),
    ];
    let terms = Terms::stored(&contract(parameters));
    let send = |text: &str| {
        let arguments: Arguments = serde_json::from_str(text).unwrap();
        terms.signal(&name("s"), &arguments, &mut Steps::default())
    };
    assert!(send(r#"{"arguments": [null, 1]}"#).is_ok());
    let Err(Unfit::Invalid(errors)) = send(r#"{"arguments": ["y", 1]}"#) else {
        panic!("it was taken")
    };
    assert!(errors.to_string().contains("look-around"), "{errors}");
}

#[test]
fn deep_values_under_schemas_that_refer_to_themselves_fit_on_a_small_stack() {
    // rule 8.5: a worker's thread has 2 MiB.
    let mut inner = json!({"$ref": "#/$defs/n"});
    for _ in 0..7 {
        inner = json!({"allOf": [{"anyOf": [inner]}]});
    }
    let schema = json!({"$defs": {"n": {"type": ["object", "integer"], "properties": {"x": inner}}}, "$ref": "#/$defs/n"});
    let mut value = json!(1);
    for _ in 0..120 {
        value = json!({"x": value});
    }
    let run = move || assert!(checked(&schema, &value).0.is_ok());
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run);
    thread.unwrap().join().unwrap();
}
