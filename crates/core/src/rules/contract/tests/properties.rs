//! Properties of all arguments, with a JSON Schema validator as the second opinion.

use super::*;

/// The schemas that the short forms stand for.
fn schema_of(short: &str) -> Value {
    match short {
        "string" => json!({"type": "string"}),
        "int" => json!({"type": "integer"}),
        "float" => json!({"type": "number"}),
        "bool" => json!({"type": "boolean"}),
        "array" => json!({"type": "array"}),
        "object" => json!({"type": "object"}),
        _ => json!(true),
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|it| json!(it)),
        any::<i64>().prop_map(|it| json!(it)),
        any::<u64>().prop_map(|it| json!(it)),
        any::<i32>().prop_map(|it| json!(f64::from(it))),
        any::<f64>().prop_map(|it| json!(it)),
        any::<String>().prop_map(|it| json!(it)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|it| json!(it)),
            prop::collection::hash_map(any::<String>(), inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

proptest! {
    // rule 8.1
    #[test]
    fn short_forms_and_unions_are_what_their_schemas_are(
        forms in prop::collection::vec(
            prop::sample::select(vec!["string", "int", "float", "bool", "array", "object", "any"]), 1..4),
        value in values(),
    ) {
        let schema = json!({"anyOf": forms.iter().map(|it| schema_of(it)).collect::<Vec<_>>()});
        let fits = jsonschema::is_valid(&schema, &value);
        let arguments = Arguments::from(vec![Json::of(&value).unwrap()]);
        for type_ in [TypeSpec::from(forms.join("|").as_str()), TypeSpec::from(schema)] {
            let terms = Terms::new(&contract(vec![Parameter::new("x", type_)])).unwrap();
            prop_assert_eq!(terms.signal(&name("s"), &arguments, &mut Steps::default()).is_ok(), fits);
        }
    }

    // rules 8.3 and 8.4
    #[test]
    fn arguments_by_position_and_by_name_are_the_same(given in prop::collection::vec(values(), 0..5), text in ".{1,8}") {
        let names: Vec<String> = (0..given.len()).map(|at| format!("{}{at}", text.replace(char::is_control, "-"))).collect();
        let parameters = names.iter().map(|name| Parameter::new(name, "any")).collect();
        let terms = Terms::new(&contract(parameters)).unwrap();
        let list: Vec<Json> = given.iter().map(|value| Json::of(value).unwrap()).collect();
        let mut pairs: Vec<(String, Json)> = names.into_iter().zip(list.clone()).collect();
        let by_position = terms.signal(&name("s"), &list.clone().into(), &mut Steps::default()).unwrap();
        pairs.reverse();
        prop_assert_eq!(&terms.signal(&name("s"), &pairs.into(), &mut Steps::default()).unwrap(), &by_position);
        prop_assert_eq!(yields(&by_position), yields(&free(&list.into())));
    }

    #[test]
    fn sameness_is_that_of_values(a in values(), b in values()) {
        let (one, two) = (Json::of(&a).unwrap(), Json::of(&b).unwrap());
        let pretty = Json::parse(serde_json::to_string_pretty(&a).unwrap()).unwrap();
        prop_assert!(same(&one, &pretty));
        prop_assert!(same(&one, &two) == (canonical(&one) == canonical(&two)));
        prop_assert!(a != b || same(&one, &two));
        let read: Value = serde_json::from_str(&canonical(&one)).unwrap();
        prop_assert!(same(&Json::of(&read).unwrap(), &one));
    }

    #[test]
    fn nothing_that_is_sent_breaks_anything(text in r#"[\[\]{}",:0-9.eE\\a-z -]{0,40}"#) {
        if let Ok(json) = Json::parse(text) {
            let terms = Terms::new(&contract(order())).unwrap();
            let _ = terms.signal(&name("s"), &Arguments::Payload(json.clone()), &mut Steps::default());
            prop_assert!(same(&json, &json.clone()));
            prop_assert!(canonical(&json).len() < 200);
            let _ = yields(&json);
        }
    }
}
