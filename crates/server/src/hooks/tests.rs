//! Tests of signatures that were computed elsewhere, including those that the senders publish, and of the mapping.

use abide::model::{Key, Name, Target};
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::{Action, Hook, Unproven, read};

const NOW: i64 = 1_700_000_000;
const BODY: &str = r#"{"type":"paid","id":"evt_1","data":{"order":"42"}}"#;

fn hook(toml: &str) -> Hook {
    try_hook(toml).unwrap()
}

fn try_hook(toml: &str) -> Result<Hook, String> {
    let table: toml::Table = format!("[[hooks]]\nsource = \"s\"\n{toml}")
        .parse()
        .unwrap();
    Ok(read(&table["hooks"])?.remove(0))
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (
            name.parse::<HeaderName>().unwrap(),
            HeaderValue::from_str(value).unwrap(),
        )
    };
    pairs.iter().map(pair).collect()
}

const SIGNAL: &str = "signal = \"paid\"\ntarget = {from = \"data.order\", prefix = \"order:\"}\n";

/// A scheme, the body that its signature is of, when it was signed, and the headers.
struct Sample {
    toml: &'static str,
    body: &'static str,
    now: i64,
    headers: Vec<(&'static str, &'static str)>,
    /// `true` if the time is signed too.
    timed: bool,
}

fn samples() -> Vec<Sample> {
    let slack = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    vec![
        // The sample of the Standard Webhooks libraries.
        Sample {
            toml: "scheme = \"standard\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
            body: r#"{"test": 2432232314}"#,
            now: 1_614_265_330,
            headers: vec![
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                ("webhook-timestamp", "1614265330"),
                (
                    "webhook-signature",
                    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                ),
            ],
            timed: true,
        },
        // One of several signatures, including one of an unknown version.
        Sample {
            toml: "scheme = \"standard\"\nsecret = \"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\"",
            body: BODY,
            now: NOW,
            headers: vec![
                ("webhook-id", "msg_1"),
                ("webhook-timestamp", "1700000000"),
                (
                    "webhook-signature",
                    "v1a,AAAA v1,Zm9v v1,eJXlfZw9RD1xEFRlUqxvIImWW58T52O5LkR9AX48MlM=",
                ),
            ],
            timed: true,
        },
        Sample {
            toml: "scheme = \"stripe\"\nsecret = \"whsec_test\"",
            body: BODY,
            now: NOW,
            headers: vec![(
                "stripe-signature",
                "t=1700000000,v1=00,v1=594594349703d1b852805badb6723f3f600eeade6f490b3567bb1c9ea91c78da,v0=1234",
            )],
            timed: true,
        },
        // The sample of GitHub's manual.
        Sample {
            toml: "scheme = \"github\"\nsecret = \"It's a Secret to Everybody\"",
            body: "Hello, World!",
            now: NOW,
            headers: vec![(
                "x-hub-signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            )],
            timed: false,
        },
        // The sample of Slack's manual.
        Sample {
            toml: "scheme = \"slack\"\nsecret = \"8f742231b10e8888abcd99yyyzzz85a5\"",
            body: slack,
            now: 1_531_420_618,
            headers: vec![
                ("x-slack-request-timestamp", "1531420618"),
                (
                    "x-slack-signature",
                    "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
                ),
            ],
            timed: true,
        },
        Sample {
            toml: "scheme = \"hmac\"\nsecret = \"k\"\nheader = \"X-Signature\"\nprefix = \"sha256=\"\ntimestamp_header = \"X-Time\"",
            body: BODY,
            now: NOW,
            headers: vec![
                ("x-time", "1700000000"),
                (
                    "x-signature",
                    "sha256=4271ae74f928ae1b0b38549d50e0dc9f1c00c3b250ecc46740c3a70a62bd7f41",
                ),
            ],
            timed: true,
        },
        Sample {
            toml: "scheme = \"hmac\"\nsecret = \"k\"\nheader = \"X-Signature\"\nencoding = \"base64\"",
            body: BODY,
            now: NOW,
            headers: vec![(
                "x-signature",
                "VR21NUnoMj7r2quUv4xxuF9oAj4rLILc5s5YEezLmqE=",
            )],
            timed: false,
        },
    ]
}

#[test]
fn each_scheme_takes_what_its_sender_signs() {
    for sample in samples() {
        let hook = hook(&format!("{}\n{SIGNAL}", sample.toml));
        let headers = headers(&sample.headers);
        assert_eq!(
            hook.verify(&headers, sample.body.as_bytes(), sample.now),
            Ok(()),
            "{}",
            sample.toml
        );
        // Within the window, on both sides.
        assert_eq!(
            hook.verify(&headers, sample.body.as_bytes(), sample.now + 300),
            Ok(()),
            "{}",
            sample.toml
        );
        assert_eq!(
            hook.verify(&headers, sample.body.as_bytes(), sample.now - 300),
            Ok(()),
            "{}",
            sample.toml
        );
    }
}

#[test]
fn a_body_that_was_changed_by_one_bit_is_not_believed() {
    for sample in samples() {
        let hook = hook(&format!("{}\n{SIGNAL}", sample.toml));
        let headers = headers(&sample.headers);
        for index in [0, sample.body.len() / 2, sample.body.len() - 1] {
            let mut body = sample.body.as_bytes().to_vec();
            body[index] ^= 1;
            assert_eq!(
                hook.verify(&headers, &body, sample.now),
                Err(Unproven::Wrong),
                "{}",
                sample.toml
            );
        }
        let longer = format!("{} ", sample.body);
        assert_eq!(
            hook.verify(&headers, longer.as_bytes(), sample.now),
            Err(Unproven::Wrong),
            "{}",
            sample.toml
        );
    }
}

#[test]
fn what_was_signed_too_long_ago_is_not_believed() {
    for sample in samples().into_iter().filter(|sample| sample.timed) {
        let strict = hook(&format!("{}\n{SIGNAL}", sample.toml));
        let lenient = hook(&format!("{}\ntolerance_s = 1000\n{SIGNAL}", sample.toml));
        let headers = headers(&sample.headers);
        for away in [301, -301] {
            let verified = strict.verify(&headers, sample.body.as_bytes(), sample.now + away);
            assert_eq!(verified, Err(Unproven::Old(301)), "{}", sample.toml);
            assert_eq!(
                lenient.verify(&headers, sample.body.as_bytes(), sample.now + away),
                Ok(()),
                "{}",
                sample.toml
            );
        }
    }
}

#[test]
fn a_header_that_is_missing_doubled_or_nonsense_is_not_believed() {
    for sample in samples() {
        let hook = hook(&format!("{}\n{SIGNAL}", sample.toml));
        for (index, (name, value)) in sample.headers.iter().enumerate() {
            let mut without = sample.headers.clone();
            without.remove(index);
            let verified = hook.verify(&headers(&without), sample.body.as_bytes(), sample.now);
            assert_eq!(
                verified,
                Err(Unproven::Missing((*name).to_owned())),
                "{}",
                sample.toml
            );
            let mut doubled = headers(&sample.headers);
            doubled.append(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
            assert!(
                hook.verify(&doubled, sample.body.as_bytes(), sample.now)
                    .is_err(),
                "{}",
                sample.toml
            );
            let mut nonsense = headers(&sample.headers);
            for text in ["", "v1,", "t=,v1=", "sha256=zz", "\u{e9}"] {
                nonsense.insert(
                    name.parse::<HeaderName>().unwrap(),
                    HeaderValue::from_bytes(text.as_bytes()).unwrap(),
                );
                assert!(
                    hook.verify(&nonsense, sample.body.as_bytes(), sample.now)
                        .is_err(),
                    "{} {text}",
                    sample.toml
                );
            }
        }
    }
}

#[test]
fn two_secrets_are_both_taken_while_they_are_rotated() {
    for sample in samples() {
        let own = sample
            .toml
            .split("secret = ")
            .nth(1)
            .unwrap()
            .split('\n')
            .next()
            .unwrap();
        let other = if sample.toml.contains("standard") {
            "\"whsec_Zm9v\""
        } else {
            "\"other\""
        };
        let verify = |secrets: &str| {
            let toml = sample.toml.replace(
                &format!("secret = {own}"),
                &format!("secrets = [{secrets}]"),
            );
            hook(&format!("{toml}\n{SIGNAL}")).verify(
                &headers(&sample.headers),
                sample.body.as_bytes(),
                sample.now,
            )
        };
        assert_eq!(verify(&format!("{other}, {own}")), Ok(()));
        assert_eq!(verify(&format!("{own}, {other}")), Ok(()));
        assert_eq!(verify(other), Err(Unproven::Wrong));
    }
}

#[test]
fn a_secret_is_never_shown() {
    let hook = hook(&format!(
        "scheme = \"stripe\"\nsecret = \"whsec_hidden\"\n{SIGNAL}"
    ));
    assert!(!format!("{hook:?}").contains("hidden"));
}

fn action(rules: &str, body: &str) -> Result<Option<Action>, String> {
    let hook = hook(&format!("scheme = \"stripe\"\nsecret = \"x\"\n{rules}"));
    let headers = headers(&[("x-kind", "invoice")]);
    hook.action(&headers, body)
        .map_err(|unmapped| unmapped.to_string())
}

#[test]
fn a_rule_takes_target_name_dedup_and_payload_from_the_body_as_they_were_written() {
    let body = r#"{"id":"evt_1","kind":"paid","n":[{"big":12345678901234567890123,"order":7}]}"#;
    let rule = "signal = {from = \"kind\"}\ntarget = {from = \"n.0.order\", prefix = \"order:\"}\npayload = \"n.0\"";
    let Some(Action::Signal {
        name,
        target,
        dedup,
        payload,
        hold_for: None,
    }) = action(rule, body).unwrap()
    else {
        panic!("expected a signal");
    };
    assert_eq!(name, Name::new("paid").unwrap());
    assert_eq!(target, Target::Key(Key::new("order:7").unwrap()));
    // The sender's own id of the delivery.
    assert_eq!(dedup, Some(Name::new("evt_1").unwrap()));
    assert_eq!(
        payload.as_str(),
        r#"{"big":12345678901234567890123,"order":7}"#
    );
}

/// The dedup key of a delivery.
fn dedup(scheme: &str, given: &[(&str, &str)], body: &str) -> Option<String> {
    let rule = "signal = \"s\"\ntarget = \"k\"";
    let hook = hook(&format!("scheme = \"{scheme}\"\nsecret = \"x\"\n{rule}"));
    match hook.action(&headers(given), body).unwrap() {
        Some(Action::Signal { dedup, .. }) => dedup.map(|name| name.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delivery_id_that_is_too_long_is_hashed_and_not_dropped() {
    // Such deliveries were once never deduplicated.
    let (long, other) = ("x".repeat(256), format!("{}y", "x".repeat(255)));
    let of = |id: &str| dedup("github", &[("x-github-delivery", id)], "{}").unwrap();
    assert!(of(&long).starts_with("sha256:") && of(&long).len() < 256);
    assert_eq!(of(&long), of(&long));
    assert_ne!(of(&long), of(&other));
    assert_eq!(of(&"x".repeat(255)), "x".repeat(255));
    let stripe = |id: &str| dedup("stripe", &[], &format!("{{\"id\":\"{id}\"}}")).unwrap();
    assert!(stripe(&long).starts_with("sha256:"));
    assert!(
        stripe("two\\nlines").starts_with("sha256:"),
        "what no name can have"
    );
    let given = action(
        "signal = \"s\"\ntarget = \"k\"\ndedup = {from = \"n\"}",
        &format!("{{\"n\":\"{long}\"}}"),
    );
    assert!(
        matches!(given, Ok(Some(Action::Signal { dedup: Some(_), .. }))),
        "{given:?}"
    );
}

#[test]
fn a_delivery_without_an_id_is_identified_by_its_signature_and_body() {
    for (scheme, header) in [
        ("github", "x-hub-signature-256"),
        ("stripe", "stripe-signature"),
        ("slack", "x-slack-signature"),
    ] {
        let of = |signature: &str, body: &str| dedup(scheme, &[(header, signature)], body);
        let one = of("a", r#"{"n":1}"#).unwrap();
        assert!(one.starts_with("signature:"), "{one}");
        assert_eq!(of("a", r#"{"n":1}"#), Some(one.clone()));
        assert_ne!(of("b", r#"{"n":1}"#), Some(one.clone()));
        assert_ne!(of("a", r#"{"n":2}"#), Some(one.clone()));
        assert!(of("a", r#"{"n":1,"id":"","event_id":""}"#).is_some());
    }
}

#[test]
fn digits_name_an_instance_only_where_the_rule_says_that_they_are_an_id() {
    let of = |target: &str| {
        action(
            &format!("signal = \"s\"\ntarget = {target}"),
            r#"{"n":42,"s":"x"}"#,
        )
    };
    let error = of("{from = \"n\"}").unwrap_err();
    assert!(error.contains("prefix"), "{error}");
    let Ok(Some(Action::Signal { target, .. })) = of("{from = \"n\", id = true}") else {
        panic!("expected a signal")
    };
    assert_eq!(target, Target::Id(abide::InstanceId(42)));
    let error = of("{from = \"s\", id = true}").unwrap_err();
    assert!(error.contains("instance id"), "{error}");
}

#[test]
fn the_first_rule_that_matches_is_applied() {
    let rules = r#"
        [[hooks.rules]]
        when = {path = "type", equals = "paid"}
        signal = "paid"
        target = "till"
        [[hooks.rules]]
        when = [{header = "x-kind", equals = "invoice"}, {path = "live", equals = true}]
        event = {from = "type"}
        event_id = {from = "uid"}
        payload = "data"
    "#;
    let first = action(rules, r#"{"type":"paid","live":true}"#).unwrap();
    assert!(
        matches!(first, Some(Action::Signal { dedup: None, .. })),
        "{first:?}"
    );
    let second = action(
        rules,
        r#"{"type":"sent","live":true,"uid":"u1","data":null}"#,
    )
    .unwrap();
    let Some(Action::Event {
        event_type,
        id,
        payload,
    }) = second
    else {
        panic!("{second:?}")
    };
    assert_eq!(
        (event_type.as_str(), id.unwrap().as_str(), payload.as_str()),
        ("sent", "u1", "null")
    );
    assert_eq!(action(rules, r#"{"type":"sent","live":false}"#), Ok(None));
    assert_eq!(action(rules, "[]"), Ok(None));
}

#[test]
fn a_value_that_the_request_lacks_is_reported_with_its_path() {
    let rule = "signal = \"paid\"\ntarget = {from = \"data.order\"}";
    for body in [
        r#"{}"#,
        r#"{"data":null}"#,
        r#"{"data":{"order":{}}}"#,
        r#"{"data":{"order":null}}"#,
        "7",
    ] {
        let error = action(rule, body).unwrap_err();
        assert!(
            error.contains("target") && error.contains("data.order"),
            "{body}: {error}"
        );
    }
    assert!(action(rule, "{").unwrap_err().contains("not JSON"));
    let error = action(rule, r#"{"data":{"order":""}}"#).unwrap_err();
    assert!(error.contains("cannot be the target"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_what_to_write() {
    let refused = |toml: &str| try_hook(toml).unwrap_err();
    let secret = "scheme = \"stripe\"\nsecret = \"x\"";
    for (toml, expected) in [
        (
            format!("scheme = \"nope\"\n{SIGNAL}"),
            "unknown variant `nope`",
        ),
        (format!("scheme = \"stripe\"\n{SIGNAL}"), "secret"),
        (
            format!("scheme = \"none\"\nsecret = \"x\"\n{SIGNAL}"),
            "secret",
        ),
        (
            format!("scheme = \"hmac\"\nsecret = \"x\"\n{SIGNAL}"),
            "header",
        ),
        (
            format!("{secret}\nheader = \"x\"\n{SIGNAL}"),
            "for the scheme hmac",
        ),
        (
            format!("scheme = \"standard\"\nsecret = \"whsec_ü\"\n{SIGNAL}"),
            "base64",
        ),
        (secret.to_owned(), "it has no action"),
        (format!("{secret}\nsignal = \"x\""), "target"),
        (
            format!("{secret}\nevent = \"x\"\ntarget = \"y\""),
            "event_id",
        ),
        (
            format!("{secret}\nevent = \"x\"\nsignal = \"y\""),
            "not both",
        ),
        (
            format!("{secret}\nsignal = {{form = \"x\"}}\ntarget = \"y\""),
            "dot.path",
        ),
        (format!("{secret}\ntarged = \"y\"\n{SIGNAL}"), "targed"),
        (
            format!("{secret}\nsignal = {{from = \"a..b\"}}\ntarget = \"y\""),
            "dot.path",
        ),
    ] {
        let problem = refused(&toml);
        assert!(
            problem.contains(expected) && problem.contains("\"s\""),
            "{toml}\n→ {problem}"
        );
    }
}

#[test]
fn a_secret_that_cannot_be_fetched_fails_the_server_but_not_the_parsing() {
    for (reference, expected) in [
        ("env:ABSENT_FOR_SURE", "ABSENT_FOR_SURE"),
        ("file:/absent", "/absent"),
    ] {
        let mut hook = try_hook(&format!(
            "scheme = \"github\"\nsecret = \"{reference}\"\n{SIGNAL}"
        ))
        .unwrap_or_else(|problem| panic!("{problem}"));
        let signed = headers(&[("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)))]);
        assert!(hook.verify(&signed, b"{}", 0).is_err());
        let problem = hook.fetch().unwrap_err();
        assert!(
            problem.contains(expected) && problem.contains("\"s\""),
            "{problem}"
        );
    }
}
