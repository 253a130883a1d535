//! The parameters that a type is sent as.

use super::*;

#[test]
fn a_struct_is_sent_field_by_field_in_order() {
    // rule 8.1
    assert_eq!(
        normalised(&order()).as_str(),
        r#"{"zebra":-1,"apple":"é\u0000\"","note":null,"inner":{"x":1.0,"on":true},"tags":[{"x":1.0,"on":true},{"x":1.0,"on":true}]}"#
    );
    let parameters = parameters::<Order>();
    assert_eq!(parameters[0], json!({"name": "zebra", "type": "int"}));
    assert_eq!(parameters[1], json!({"name": "apple", "type": "string"}));
    assert_eq!(
        parameters[2],
        json!({"name": "note", "type": "string", "nullable": true})
    );
    // Each stands alone.
    for parameter in &parameters.as_array().unwrap()[3..] {
        assert!(
            parameter["type"]["$defs"]["Inner"].is_object(),
            "{parameter}"
        );
    }
}

#[test]
fn nothing_a_value_and_anything_have_their_parameters() {
    // rule 8.1
    assert_eq!(parameters::<()>(), json!([]));
    assert_eq!(parameters::<Unit>(), json!([]));
    assert_eq!(
        parameters::<bool>(),
        json!([{"name": "value", "type": "bool"}])
    );
    assert_eq!(
        parameters::<Value>(),
        json!([{"name": "value", "type": "any"}])
    );
    assert_eq!(
        parameters::<Option<f64>>(),
        json!([{"name": "value", "type": "float", "nullable": true}])
    );
    let whole = [
        parameters::<Vec<u8>>(),
        parameters::<BTreeMap<String, u8>>(),
        parameters::<External>(),
        parameters::<Tagged>(),
        parameters::<Pair>(),
        parameters::<FlatMap>(),
        parameters::<FlatEnum>(),
        parameters::<Option<Inner>>(),
        parameters::<Odd>(),
        parameters::<HashMap<String, Value>>(),
        parameters::<Plain>(),
    ];
    for parameters in whole {
        assert_eq!(parameters.as_array().unwrap().len(), 1, "{parameters}");
        assert_eq!(parameters[0]["name"], "value", "{parameters}");
    }
}

#[test]
fn what_serde_lets_be_left_out_may_be_left_out() {
    // rules 8.1 and 8.3
    let plain = Defaulted {
        count: 0,
        seven: 7,
        list: vec![],
        skipped: vec![],
        maybe: None,
        inner: None,
    };
    assert_eq!(taken::<Defaulted>("{}"), Some(plain.clone()));
    assert_eq!(
        taken::<Defaulted>(r#"{"payload":{"skipped":null}}"#),
        Some(plain.clone())
    );
    assert_eq!(
        taken::<Defaulted>(r#"{"arguments":[1]}"#),
        Some(Defaulted {
            count: 1,
            ..plain.clone()
        })
    );
    assert_eq!(taken::<Defaulted>(r#"{"arguments":{"count":null}}"#), None);
    returns(plain.clone());
    returns(Defaulted {
        seven: 0,
        skipped: vec![1],
        maybe: Some(1),
        inner: Some(inner()),
        ..plain
    });
    assert_eq!(taken::<AllDefault>("{}"), Some(AllDefault::default()));
    let parameters = parameters::<Defaulted>();
    assert_eq!(parameters[1]["default"], 7);
    assert_eq!(parameters[3]["nullable"], true);
    assert_eq!(taken::<Option<Inner>>("{}"), Some(None));
    assert_eq!(taken::<Order>("{}"), None);
    assert_eq!(taken::<Value>("{}"), None);
}

#[test]
fn what_a_type_does_not_take_is_refused() {
    // rules 8.1 and 8.3
    assert_eq!(taken::<u8>(r#"{"payload":256}"#), None);
    assert_eq!(taken::<u8>(r#"{"payload":"1"}"#), None);
    assert_eq!(taken::<Plain>(r#"{"payload":"Blue"}"#), None);
    assert_eq!(taken::<Strict>(r#"{"payload":{"a":1,"c":1}}"#), None);
    assert_eq!(taken::<()>(r#"{"payload":1}"#), None);
    assert_eq!(taken::<u8>(r#"{"payload":255}"#), Some(255));
    assert_eq!(
        taken::<Strict>(r#"{"arguments":[1]}"#),
        Some(Strict { a: 1, b: None })
    );
}

#[test]
fn the_shape_of_a_type_is_worked_out_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static WORKED_OUT: AtomicUsize = AtomicUsize::new(0);
    #[derive(Serialize)]
    struct Counted(u8);
    impl JsonSchema for Counted {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Counted".into()
        }
        fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            WORKED_OUT.fetch_add(1, Ordering::Relaxed);
            schemars::json_schema!({"type": "integer", "$id": "urn:x"})
        }
    }
    for count in 0..1000 {
        arguments_of(&Counted(count as u8)).unwrap();
    }
    assert_eq!(WORKED_OUT.load(Ordering::Relaxed), 1);
}

#[test]
fn a_bad_name_is_refused_and_a_constant_is_copied() {
    const BAD: Signal<()> = Signal::new("");
    assert_eq!(BAD.accepts().unwrap_err().reason(), "bad_name");
    const ADD: Update<u8, String> = Update::new("add");
    let copy = ADD;
    assert_eq!(
        (copy.name(), format!("{ADD:?}")),
        ("add", "Update(\"add\")".into())
    );
    let is_shared = |_: &(dyn Send + Sync)| {};
    is_shared(&Signal::<std::rc::Rc<u8>>::new("x"));
    assert_eq!(ADD.read(&normalised(&4u8)).unwrap(), 4);
    assert!(matches!(
        ADD.accepts().unwrap().parameters.unwrap()[0].type_,
        TypeSpec::Schema(_)
    ));
}
