//! Values that are sent and read back.

use super::*;

#[test]
fn every_type_returns() {
    // rule 8.1
    returns(order());
    returns(Order {
        note: Some("n".into()),
        ..order()
    });
    returns(Renamed {
        first_name: "a".into(),
        name: "b".into(),
        kind: 3,
    });
    returns(Flat {
        a: 1,
        inner: inner(),
    });
    returns(FlatMap {
        a: 1,
        rest: [("b".into(), 2)].into(),
    });
    returns(FlatEnum {
        a: 1,
        kind: Tagged::Struct { s: 2 },
    });
    returns(FlatOption {
        a: 1,
        inner: Some(inner()),
    });
    returns(FlatOption { a: 1, inner: None });
    returns(Strict { a: 1, b: None });
    returns(AllDefault {
        a: 1,
        b: String::new(),
    });
    returns(Unit);
    returns(());
    returns(Empty {});
    returns(Newtype(u64::MAX));
    returns(NewtypeOfStruct(inner()));
    returns(Pair(1, "x".into()));
    returns(Generic {
        value: 1u8,
        others: vec![2],
    });
    returns(Generic {
        value: Some(inner()),
        others: vec![None],
    });
    returns(Generic {
        value: Value::Null,
        others: vec![json!({"a": 1})],
    });
    let leaf = Tree {
        label: "l".into(),
        children: vec![],
        left: None,
    };
    returns(Tree {
        label: "t".into(),
        children: vec![leaf.clone()],
        left: Some(Box::new(leaf)),
    });
    returns(Odd { empty: 1 });
    returns(Free {
        any: json!([1, null]),
        map: [("a".into(), json!({}))].into(),
    });
    returns(Only::One { a: 1 });
    for value in [
        External::Unit,
        External::New(1),
        External::Tuple(1, "x".into()),
        External::Struct { a: inner() },
    ] {
        returns(value);
    }
    for value in [Tagged::Unit, Tagged::New(inner()), Tagged::Struct { s: 1 }] {
        returns(value.clone());
        returns(Some(value.clone()));
        returns(vec![value]);
    }
    for value in [
        Adjacent::Unit,
        Adjacent::New(1),
        Adjacent::Tuple(1, 2),
        Adjacent::Struct { a: 1 },
    ] {
        returns(value);
    }
    for value in [
        Untagged::Number(1),
        Untagged::Text("x".into()),
        Untagged::Struct { a: 1 },
    ] {
        returns(value);
    }
    returns(Plain::Green);
    returns((1u8, "x".to_string(), None::<u8>));
    returns((1u8,));
    returns([1u8, 2, 3]);
    returns(Vec::<u8>::new());
    returns(vec![Vec::<u8>::new()]);
    returns(vec![Some(1), None]);
    returns(None::<u8>);
    returns(None::<Inner>);
    returns(Some(inner()));
    returns(BTreeMap::from([("a".to_string(), inner())]));
    returns(HashMap::<String, u8>::new());
    returns(BTreeMap::from([(1u8, 2u8)]));
    returns("text".to_string());
    returns('x');
    returns(true);
    returns(1.5f64);
    returns(u128::MAX);
    returns(i128::MIN);
    returns(Box::new(1u8));
    for value in [
        json!(null),
        json!(1),
        json!([]),
        json!([1, 2]),
        json!({}),
        json!({"value": 1}),
        json!({"a": 1, "b": 2}),
    ] {
        returns(value);
    }
}

#[test]
fn what_was_sent_without_a_contract_is_read_as_far_as_it_goes() {
    // rule 8.4
    let json = |text: &str| Json::parse(text.into()).unwrap();
    let strict = Strict { a: 1, b: Some(2) };
    assert_eq!(read::<Strict>(&json("[1,2]")).unwrap(), strict);
    assert_eq!(read::<Strict>(&json(r#"[{"b":2,"a":1}]"#)).unwrap(), strict);
    assert_eq!(
        read::<Generic<Inner>>(&json(r#"[{"x":1,"on":true},[]]"#))
            .unwrap()
            .value,
        inner()
    );
    assert!(read::<Strict>(&json("[1,2,3]")).is_err());
    assert!(read::<Strict>(&json("3")).is_err());
    assert!(read::<bool>(&json("[]")).unwrap());
    assert_eq!(read::<Option<u8>>(&json("[]")).unwrap(), None);
    // By a contract that was written by hand.
    assert_eq!(read::<u8>(&json(r#"{"amount":5}"#)).unwrap(), 5);
    assert_eq!(
        read::<(u8, String)>(&json(r#"{"a":5,"b":"x"}"#)).unwrap(),
        (5, "x".into())
    );
    let map = BTreeMap::from([("a".to_string(), 5), ("b".to_string(), 6)]);
    assert_eq!(
        read::<BTreeMap<String, u8>>(&json(r#"{"a":5,"b":6}"#)).unwrap(),
        map
    );
    read::<()>(&json("[1,2]")).unwrap();
}

#[test]
fn what_is_written_and_not_read_is_not_sent() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Signed {
        a: u8,
        #[serde(skip_deserializing)]
        shown: u8,
    }
    returns(Signed { a: 1, shown: 0 });
    assert_eq!(
        arguments_of(&Signed { a: 1, shown: 3 }).unwrap(),
        vec![("a".to_string(), Json::of(&1).unwrap())].into()
    );
}

#[test]
fn a_type_may_have_any_name() {
    data! {
        #[schemars(rename = "Ça~/ %25")]
        struct Named { inside: Inside, more: Vec<Inside> }
        #[schemars(rename = "é/~1 %")]
        struct Inside { a: u8 }
    }
    let value = Named {
        inside: Inside { a: 1 },
        more: vec![Inside { a: 2 }],
    };
    assert_eq!(parameters::<Named>().as_array().unwrap().len(), 2);
    returns(value);
}

fn inners() -> impl Strategy<Value = Inner> {
    let finite = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    (finite, any::<bool>()).prop_map(|(x, on)| Inner { x, on })
}

proptest! {
    // rule 8.1
    #[test]
    fn whatever_is_in_a_struct_returns(
        zebra in any::<i64>(), apple in any::<String>(), note in any::<Option<String>>(), inner in inners(),
        tags in prop::collection::vec(inners(), 0..4),
    ) {
        returns(Order { zebra, apple, note, inner, tags });
    }

    // rule 8.1
    #[test]
    fn whatever_has_defaults_returns(
        count in any::<u32>(), seven in any::<u32>(), list in any::<Vec<u8>>(), skipped in any::<Vec<u8>>(),
        maybe in any::<Option<u8>>(), inner in prop::option::of(inners()),
    ) {
        returns(Defaulted { count, seven, list, skipped, maybe, inner });
    }

    // rule 8.1
    #[test]
    fn whatever_is_in_an_enum_returns(a in any::<u8>(), text in any::<String>(), inner in inners(), number in any::<i64>()) {
        returns(External::Tuple(a, text.clone()));
        returns(External::Struct { a: inner.clone() });
        returns(Tagged::New(inner));
        returns(Adjacent::Tuple(a, a));
        returns(Untagged::Number(number));
        returns(Untagged::Text(text.clone()));
        returns(BTreeMap::from([(text.clone(), number)]));
        returns((a, text, number));
    }
}
