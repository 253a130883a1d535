//! Matching of events, over every pair of kinds of JSON. The index finds exactly those that match.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::model::{Name, Operator::*};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn at(left: &str, op: Operator, right: &str) -> Condition {
    condition(left, op, json(right)).unwrap()
}

fn wait(conditions: Vec<Condition>) -> EventWait {
    EventWait {
        event_type: Name::stored("order"),
        conditions,
        lookback_ms: None,
    }
}

/// `true` if a payload satisfies one condition; the index must agree.
fn meets(payload: &str, left: &str, op: Operator, right: &str) -> bool {
    let (payload, conditions) = (json(payload), vec![at(left, op, right)]);
    let payload = Payload::of(&payload);
    let meets = payload.satisfies(&conditions);
    assert!(!meets || is_found(&payload, &wait(conditions)));
    meets
}

/// `true` if an event with that payload finds that wait in the index.
fn is_found(payload: &Payload<'_>, wait: &EventWait) -> bool {
    let (path, values) = index_of(wait);
    match path.is_empty() {
        true => values.contains(&String::new()),
        false => payload
            .index_value(&path)
            .is_some_and(|value| values.contains(&value)),
    }
}

/// The kind of a value, with its rank or its text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Null,
    Bool,
    /// Its rank among the numbers below.
    Number(i32),
    /// Its text.
    Text(&'static str),
    Nested,
}
use Kind::{Bool, Nested, Null, Number, Text};

/// Every kind of JSON, each as it may be written. Those with the same second text are equal by `eq`.
const VALUES: &[(&str, &str, Kind)] = &[
    ("null", "null", Null),
    ("\"null\"", "text null", Text("null")),
    ("true", "true", Bool),
    ("\"true\"", "true", Text("true")),
    ("false", "false", Bool),
    ("\"false\"", "false", Text("false")),
    ("0", "0", Number(0)),
    ("-0", "0", Number(0)),
    ("0.00", "0", Number(0)),
    ("0e9", "0", Number(0)),
    ("-0.0E-7", "0", Number(0)),
    ("\"0\"", "0", Text("0")),
    ("\"-0\"", "text -0", Text("-0")),
    ("\"00\"", "text 00", Text("00")),
    ("42", "42", Number(20)),
    ("42.0", "42", Number(20)),
    ("4.2e1", "42", Number(20)),
    ("420E-1", "42", Number(20)),
    ("\"42\"", "42", Text("42")),
    ("\"\\u0034\\u0032\"", "42", Text("42")),
    ("\"42.0\"", "text 42.0", Text("42.0")),
    ("\" 42\"", "text  42", Text(" 42")),
    ("\"+42\"", "text +42", Text("+42")),
    ("-42", "-42", Number(-20)),
    ("-42.000", "-42", Number(-20)),
    ("\"-42\"", "-42", Text("-42")),
    ("41.999", "41.999", Number(19)),
    ("\"41.999\"", "41.999", Text("41.999")),
    ("1e6", "million", Number(30)),
    ("1000000", "million", Number(30)),
    ("1000000.0", "million", Number(30)),
    ("\"1000000\"", "million", Text("1000000")),
    ("\"1e6\"", "text 1e6", Text("1e6")),
    ("0.05", "0.05", Number(10)),
    ("5e-2", "0.05", Number(10)),
    ("\"0.05\"", "0.05", Text("0.05")),
    ("\".05\"", "text .05", Text(".05")),
    ("\"0.050\"", "text 0.050", Text("0.050")),
    ("0.0500001", "0.0500001", Number(11)),
    ("-0.05", "-0.05", Number(-10)),
    // Beyond 64 bits, and unlike in the last digit alone.
    ("184467440737095516169", "u64x10+9", Number(50)),
    ("184467440737095516160", "u64x10", Number(49)),
    (
        "\"184467440737095516169\"",
        "u64x10+9",
        Text("184467440737095516169"),
    ),
    ("-184467440737095516169", "-u64", Number(-50)),
    ("-184467440737095516168", "-u64+1", Number(-49)),
    // More zeros than anybody counts.
    ("1e30", "1e30", Number(60)),
    ("1000000000000000000000000000000", "1e30", Number(60)),
    (
        "\"1000000000000000000000000000000\"",
        "1e30",
        Text("1000000000000000000000000000000"),
    ),
    ("1000000000000000000000000000001", "1e30+1", Number(61)),
    (
        "\"1000000000000000000000000000001\"",
        "1e30+1",
        Text("1000000000000000000000000000001"),
    ),
    ("\"1e30\"", "text 1e30", Text("1e30")),
    ("1e-30", "1e-30", Number(5)),
    (
        "\"0.000000000000000000000000000001\"",
        "1e-30",
        Text("0.000000000000000000000000000001"),
    ),
    ("1e400", "1e400", Number(70)),
    ("1e401", "1e401", Number(71)),
    ("\"\"", "empty", Text("")),
    ("\"a\"", "a", Text("a")),
    ("\"A\"", "A", Text("A")),
    ("\"\\u0061\"", "a", Text("a")),
    ("\"b\"", "b", Text("b")),
    ("\"é\"", "é", Text("é")),
    ("\"\\u00E9\"", "é", Text("é")),
    // The same to the eye, and other characters.
    ("\"e\\u0301\"", "é of two", Text("e\u{301}")),
    ("\"😀\"", "smile", Text("😀")),
    ("\"\\ud83d\\uDE00\"", "smile", Text("😀")),
    ("\"\\u0000\"", "nul", Text("\0")),
    ("\"/\"", "slash", Text("/")),
    ("\"\\/\"", "slash", Text("/")),
    ("\"\\\"\"", "quote", Text("\"")),
    ("\"\\\\ud800\"", "backslash", Text("\\ud800")),
    ("\"tab\\there\"", "tab", Text("tab\there")),
    ("\"tab\\u0009here\"", "tab", Text("tab\there")),
    ("\"[]\"", "text []", Text("[]")),
    ("[]", "[]", Nested),
    ("[ ]", "[]", Nested),
    ("[42]", "[42]", Nested),
    ("[42.0]", "[42]", Nested),
    ("[\"42\"]", "['42']", Nested),
    ("[null]", "[null]", Nested),
    ("[1,2]", "[1,2]", Nested),
    ("[2,1]", "[2,1]", Nested),
    ("{}", "{}", Nested),
    ("{\"a\":1,\"b\":[true,{}]}", "object", Nested),
    (
        "{ \"b\" : [ true , { } ] , \"\\u0061\" : 1.0 }",
        "object",
        Nested,
    ),
    ("{\"a\":0,\"b\":[true,{}],\"a\":1}", "object", Nested),
    (
        "{\"a\":\"1\",\"b\":[true,{}]}",
        "object with a text",
        Nested,
    ),
    ("{\"x\":{\"b\":2,\"a\":1}}", "nested", Nested),
    ("{\"x\":{\"a\":1,\"b\":2}}", "nested", Nested),
];

fn order(left: Kind, right: Kind) -> Option<Ordering> {
    match (left, right) {
        (Number(left), Number(right)) => Some(left.cmp(&right)),
        (Text(left), Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        _ => None,
    }
}

fn same_kind(left: Kind, right: Kind) -> bool {
    std::mem::discriminant(&left) == std::mem::discriminant(&right)
}

#[test]
fn every_operator_over_every_pair() {
    // rules 14.2 and 14.3
    for (left, one, kind) in VALUES {
        for (right, two, other) in VALUES {
            let payload = format!("{{\"deep\":{{\"a\":{left}}},\"z\":1}}");
            let is = |op| meets(&payload, "deep.a", op, right);
            let pair = format!("{left} and {right}");
            let same = one == two;
            assert_eq!(is(Eq), same, "eq {pair}");
            assert_eq!(is(Ne), !same, "ne {pair}");
            assert_eq!(
                is(EqTyped),
                same && same_kind(*kind, *other),
                "eq_typed {pair}"
            );
            let list = format!("[[\"other\"],{right},{{\"c\":1}}]");
            let is_in = meets(&payload, "deep.a", In, &list);
            assert_eq!(is_in, same, "in {pair}");
            let order = order(*kind, *other);
            assert_eq!(is(Gt), order == Some(Ordering::Greater), "gt {pair}");
            assert_eq!(is(Lt), order == Some(Ordering::Less), "lt {pair}");
            let or_same = |than: Ordering| order == Some(than) || order == Some(Ordering::Equal);
            assert_eq!(is(Gte), or_same(Ordering::Greater), "gte {pair}");
            assert_eq!(is(Lte), or_same(Ordering::Less), "lte {pair}");
        }
    }
}

#[test]
fn what_is_there_exists_and_what_is_missing_satisfies_nothing_else() {
    // rule 14.3
    for (value, _, _) in VALUES {
        let payload = format!("{{\"a\":{value}}}");
        assert!(meets(&payload, "a", Exists, "true"), "{value}");
        assert!(!meets(&payload, "a", Exists, "false"), "{value}");
        for op in Operator::ALL {
            let right = match op {
                In => format!("[{value}]"),
                Exists => "true".to_owned(),
                _ => (*value).to_owned(),
            };
            assert!(!meets(&payload, "b", op, &right), "{op} {value}");
            assert!(!meets(value, "b.c", op, &right), "{op} {value}");
        }
        assert!(meets(&payload, "b", Exists, "false"), "{value}");
        assert!(meets(value, "missing", Exists, "false"), "{value}");
    }
    assert!(!meets("{}", "a", Ne, "1"), "a missing field is not unlike");
    assert!(meets("{\"a\":null}", "a", Ne, "1"));
}

#[test]
fn a_path_leads_through_objects_and_lists() {
    // rule 14.2
    let payload = r#"{"é":{"0":["x",{"k":7}]},"\u0061 b":1,"q\"":2,"d":1,"d":{"d":2},"":3}"#;
    for (path, value) in [
        ("é.0.1.k", "7"),
        ("é.0.0", "\"x\""),
        ("a b", "1"),
        ("q\"", "2"),
        ("d.d", "2"),
        ("é.0", "[\"x\",{\"k\":7}]"),
    ] {
        assert!(meets(payload, path, Eq, value), "{path}");
    }
    for path in [
        "é.0.2",
        "é.0.k",
        "é.0.-1",
        "d.d.d",
        "A b",
        "e\u{301}",
        "é.0.1.k.0",
    ] {
        assert!(!meets(payload, path, Exists, "true"), "{path}");
    }
    for bad in ["", ".", "a.", ".a", "a..b", "a\nb", &"x".repeat(256)] {
        let refusal = Path::new(bad).unwrap_err();
        assert_eq!(refusal.reason(), "bad_event", "{bad:?}");
    }
    assert!(Path::new("x".repeat(255)).is_ok());
}

#[test]
fn conditions_are_a_conjunction() {
    // rule 14.2
    let payload = json("{\"a\":1,\"b\":\"x\"}");
    let payload = Payload::of(&payload);
    let (good, bad) = (at("a", Eq, "1"), at("b", Eq, "\"y\""));
    assert!(payload.satisfies(&[]));
    assert!(payload.satisfies(&[good.clone(), at("b", Gt, "\"w\"")]));
    assert!(!payload.satisfies(&[good.clone(), bad.clone()]));
    assert!(!payload.satisfies(&[bad, good]));
}

#[test]
fn a_list_of_values_is_met_by_one_of_them() {
    // rule 14.2
    assert!(meets("{\"a\":2.0}", "a", In, "[1,\"2\",null]"));
    assert!(meets("{\"a\":null}", "a", In, "[1,null]"));
    assert!(!meets("{\"a\":3}", "a", In, "[1,2]"));
    assert!(!meets("{\"a\":3}", "a", In, "[]"));
    assert!(!meets("{}", "a", In, "[null]"));
    assert!(!meets("{\"a\":[1]}", "a", In, "[1]"));
    assert!(meets("{\"a\":[1]}", "a", In, "[[1.0]]"));
}

#[test]
fn bad_conditions_are_refused_all_at_once() {
    // rules 14.1 and 14.2
    let long = format!("[{}]", vec!["1"; MOST + 1].join(","));
    let bad = [
        at("one", Exists, "1"),
        at("two", In, "\"x\""),
        at("three", Gt, "null"),
        at("four", Lte, "[1]"),
        at("fine", Eq, "{\"any\":[]}"),
        at("five", Gte, "true"),
        at("six", In, &long),
        at("seven", Lt, "{}"),
    ];
    let crowd = vec![at("many", Ne, "1"); MOST + 1];
    let refusal = check(&[wait(bad.to_vec()), wait(Vec::new()), wait(crowd)]).unwrap_err();
    assert_eq!(refusal.reason(), "bad_event");
    let message = refusal.to_string();
    for part in [
        "one exists",
        "two in",
        "three gt",
        "four lte",
        "five gte",
        "six in",
        "seven lt",
        "101",
    ] {
        assert!(message.contains(part), "{part} in: {message}");
    }
    assert!(!message.contains("fine"), "{message}");
    let fits = format!("[{}]", vec!["1"; MOST].join(","));
    let good = vec![at("a", In, &fits); MOST];
    assert_eq!(check(&[wait(good)]), Ok(()));
    assert_eq!(check(&[]), Ok(()));
}

#[test]
fn a_type_must_fit_into_the_name_of_its_events() {
    // rule 14.1
    let of = |length: usize| EventWait {
        event_type: Name::new("x".repeat(length)).unwrap(),
        ..wait(Vec::new())
    };
    assert_eq!(check(&[of(249)]), Ok(()));
    assert!(check(&[of(250)]).is_err() && check_type(&of(255).event_type).is_err());
}

#[test]
fn half_a_surrogate_pair_stops_nothing() {
    // rule 14.1
    let payload = r#"{"a":"\ud800","b":"\ud800\"","c":"\\ud800"}"#;
    assert!(meets(payload, "a", Eq, r#""\ud800""#));
    assert!(!meets(payload, "a", Eq, r#""\\ud800""#));
    assert!(!meets(payload, "a", Eq, r#""\"\\ud800\"""#));
    assert!(!meets(payload, "b", Eq, r#""\ud800""#));
    assert!(!meets(payload, "a", Gt, "\"\""));
    assert!(!meets(payload, "a", Eq, "1"));
    assert!(meets(payload, "c", Eq, r#""\\ud800""#));
}

#[test]
fn depth_and_size_stop_nothing() {
    // rule 14.1
    const DEEP: usize = 100_000;
    let deep = format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let objects = format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP));
    let payload = format!("{{\"deep\":{deep},\"objects\":{objects}}}");
    assert!(meets(&payload, "deep", Eq, &deep));
    assert!(meets(&payload, "objects", EqTyped, &objects));
    assert!(!meets(&payload, "deep", Eq, "[]"));
    assert!(meets(&payload, "objects.a.a.a", Exists, "true"));
    assert!(meets(&payload, "deep.0.0.0", Ne, "1"));
    let long = "é".repeat(1 << 19);
    let payload = format!("{{\"long\":\"{long}\",\"digits\":{}}}", "7".repeat(1 << 20));
    assert!(meets(&payload, "long", Eq, &format!("\"{long}\"")));
    assert!(!meets(&payload, "long", Eq, &format!("\"{long}é\"")));
    assert!(meets(&payload, "long", Gt, "\"a\""));
    let digits = "7".repeat(1 << 20);
    assert!(meets(&payload, "digits", Eq, &format!("\"{digits}\"")));
    assert!(meets(&payload, "digits", Lt, &format!("{digits}0")));
    assert!(!meets(&payload, "digits", Eq, &format!("{digits}8")));
}

#[test]
fn what_the_index_has_is_short_and_has_no_nul() {
    // rule 14.4
    for (value, _, _) in VALUES {
        let parsed = json(value);
        let value = index_value(&Parsed::of(&parsed), Parsed::WHOLE);
        assert!(!value.is_empty() && value.len() <= LONG && !value.contains('\0'));
    }
    let long = json(&format!("\"{}\"", "x".repeat(5000)));
    assert!(index_value(&Parsed::of(&long), Parsed::WHOLE).len() <= LONG);
}

#[test]
fn the_first_condition_for_equality_is_in_the_index() {
    // rule 14.4
    let (path, values) = index_of(&wait(vec![
        at("a", Gt, "1"),
        at("b", Ne, "1"),
        at("c", In, "[1,1.0,\"1\",2]"),
        at("d", Eq, "1"),
    ]));
    assert_eq!((path.as_str(), values.len()), ("c", 2));
    let (path, values) = index_of(&wait(vec![at("a", Exists, "true")]));
    assert_eq!((path.as_str(), values), ("", vec![String::new()]));
}

/// A value out of the table, or a random number or text.
fn some_value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0..VALUES.len()).prop_map(|at| VALUES[at].0.to_owned()),
        1 => (-3_i64..3).prop_map(|number| number.to_string()),
        1 => (-3_i64..3, -2_i32..3).prop_map(|(number, power)| format!("{number}e{power}")),
        1 => (-3_i64..30, -1_i32..2).prop_map(|(n, p)| format!("\"{}\"", n as f64 * 10_f64.powi(p))),
        1 => "[a-b]{0,2}".prop_map(|text| format!("\"{text}\"")),
    ]
}

fn some_payload() -> impl Strategy<Value = String> {
    let field = prop_oneof![Just("a"), Just("b"), Just("c")];
    let members = proptest::collection::vec((field, some_value()), 0..4);
    let object = |members: Vec<(&str, String)>| {
        let members = members
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    prop_oneof![
        8 => members.prop_map(object),
        1 => some_value(),
        1 => some_value().prop_map(|value| format!("{{\"a\":{{\"b\":[{value}]}}}}")),
    ]
}

fn some_condition() -> impl Strategy<Value = Condition> {
    let path = prop_oneof![Just("a"), Just("b"), Just("c"), Just("a.b"), Just("a.b.0")];
    let values = proptest::collection::vec(some_value(), 1..4);
    let op = (0..Operator::ALL.len()).prop_map(|at| Operator::ALL[at]);
    (path, op, values, any::<bool>()).prop_map(|(path, op, values, is)| {
        let right = match op {
            In => format!("[{}]", values.join(",")),
            Exists => is.to_string(),
            _ => values.into_iter().next().unwrap_or_default(),
        };
        at(path, op, &right)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // rule 14.4
    #[test]
    fn the_index_finds_exactly_those_that_match(
        payload in some_payload(),
        waits in proptest::collection::vec(proptest::collection::vec(some_condition(), 0..4), 1..12),
    ) {
        let payload = json(&payload);
        let payload = Payload::of(&payload);
        let waits: Vec<EventWait> = waits.into_iter().map(wait).collect();
        let all: Vec<usize> = (0..waits.len())
            .filter(|at| payload.satisfies(&waits[*at].conditions))
            .collect();
        let found: Vec<usize> = (0..waits.len())
            .filter(|at| is_found(&payload, &waits[*at]))
            .filter(|at| payload.satisfies(&waits[*at].conditions))
            .collect();
        prop_assert_eq!(all, found);
    }

    // rule 14.3
    #[test]
    fn equal_values_have_the_same_index_value(one in some_value(), two in some_value()) {
        let (one, two) = (json(&one), json(&two));
        let (left, right) = (Parsed::of(&one), Parsed::of(&two));
        let indexed = |parsed: &Parsed<'_>| index_value(parsed, Parsed::WHOLE);
        let same = equal(&left, Parsed::WHOLE, &right, Parsed::WHOLE);
        prop_assert_eq!(same, indexed(&left) == indexed(&right));
        prop_assert_eq!(same, equal(&right, Parsed::WHOLE, &left, Parsed::WHOLE));
    }
}
