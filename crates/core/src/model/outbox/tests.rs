//! Requests of the outbox, as they are read and written.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::model::{InstanceId, Key};

fn read(text: &str) -> Result<OutboxRequest, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn start(text: &str) -> Result<Wanted, Refusal> {
    match read(&format!(r#"{{"start": {text}}}"#)) {
        Ok(OutboxRequest::Start(request)) => request.wanted(None),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_request_is_read_as_it_is_written() {
    // rule 17.3
    for text in [
        r#"{"start":{"machine":"checkout","key":"order:42","state":null}}"#,
        r#"{"start":{"graph":"trip","input":{"to":"Ōsaka \u0000"},"priority":-3}}"#,
        r#"{"signal":{"target":"order:42","name":"paid","payload":[1,2]}}"#,
        r#"{"signal":{"target":7,"name":"paid","arguments":{"amount":1e2},"dedup_key":"x","hold_for_ms":5}}"#,
        r#"{"signal_with_start":{"start":{"machine":"m","key":"k"},"name":"go"}}"#,
        r#"{"publish":{"type":"paid","payload":{"a":1.50},"event_id":null}}"#,
        r#"{"cancel":{"target":"order:42","reason":"gone","children":"leave","force":true}}"#,
    ] {
        let request = read(text).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
    }
}

#[test]
fn a_target_is_an_id_when_it_is_digits_and_a_key_otherwise() {
    let target = |text: &str| match read(&format!(r#"{{"cancel": {{"target": {text}}}}}"#)) {
        Ok(OutboxRequest::Cancel(cancel)) => Ok(cancel.target),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    assert_eq!(target("42"), Ok(Target::Id(InstanceId(42))));
    assert_eq!(target("\"42\""), Ok(Target::Id(InstanceId(42))));
    assert_eq!(
        target("\"order:42\""),
        Ok(Target::Key(Key::stored("order:42")))
    );
    for bad in ["\"99999999999999999999\"", "18446744073709551615"] {
        assert!(target(bad).unwrap_err().contains("no id is as large"));
    }
    for bad in ["null", "1.5", "[]", "\"\"", r#""a\u0000b""#] {
        assert!(target(bad).is_err(), "{bad}");
    }
}

#[test]
fn contradictions_and_unknown_fields_are_refused() {
    for (text, problem) in [
        ("{}", "neither a machine nor a graph"),
        (
            r#"{"machine":"m","graph":"g"}"#,
            "names a machine and a graph",
        ),
        (r#"{"machine":"graph/g"}"#, "started as graphs"),
        (r#"{"machine":"m","input":1}"#, "`input` is a graph's"),
        (
            r#"{"graph":"g","state":null,"step":"s"}"#,
            "`state` is a machine's",
        ),
        (
            r#"{"machine":"m","delay_ms":1,"due_at":"2026-01-01T00:00:00Z"}"#,
            "`due_at` or `delay_ms`",
        ),
        (r#"{"machine":"m","reserve":true}"#, "needs a `key`"),
        (
            r#"{"machine":"m","key":"k","reserve":true,"state":null}"#,
            "alone",
        ),
        (r#"{"machine":"m","delay_ms":3153600000001}"#, "`delay_ms`"),
    ] {
        let refusal = start(text).unwrap_err().to_string();
        assert!(refusal.contains(problem), "{text}: {refusal}");
    }
    for bad in [
        r#"{"start":{"machine":"m","stat":1}}"#,
        r#"{"begin":{}}"#,
        r#"{"start":{"machine":"m"},"signal":{"target":"k","name":"n"}}"#,
        "[]",
        "null",
        "\"start\"",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    let both = r#"{"signal":{"target":"k","name":"n","payload":1,"arguments":[1]}}"#;
    let Ok(OutboxRequest::Signal(signal)) = read(both) else {
        panic!()
    };
    assert!(
        signal
            .delivery()
            .unwrap_err()
            .to_string()
            .contains("not both")
    );
}
