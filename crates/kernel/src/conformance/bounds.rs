//! Limits on what is stored and waited for, at every entrance.

use abide_core::model::{Operator, Outcome, Refusal, Start};

use super::build::{done, json, key, keyed, next, paying, plain};
use super::eventing::{any, awaits, publishing, that};
use super::lab::Lab;
use crate::Op;

/// A document of so many levels.
fn nested(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1))
}

fn is_too_deep(refusal: &Refusal, met: usize) -> bool {
    matches!(refusal, Refusal::LimitExceeded { limit, most: 128, met: found } if limit == "json_depth" && *found == met)
}

pub async fn a_document_that_is_nested_too_deeply_is_refused_at_every_entrance(lab: Lab) {
    // rule 16.3: a worker in another language could not read it, and would stop.
    let worker = lab.worker("w").await;
    let of = |levels| Start {
        state: json(&nested(levels)),
        ..plain()
    };
    let started = lab.starts(vec![of(128), of(129), plain()]).await;
    assert!(started[0].is_ok() && started[2].is_ok());
    assert!(is_too_deep(started[1].as_ref().unwrap_err(), 129));
    let id = started[2].as_ref().unwrap().id();
    // Arguments are stored in a list or an object.
    let refused = lab
        .run(Op::Deliver(vec![
            paying(id, "a", &nested(127)),
            paying(id, "a", &nested(128)),
            paying(key("nobody"), "a", &nested(5_000)),
        ]))
        .await;
    let crate::Answer::Delivered(each) = refused else {
        panic!("{refused:?}")
    };
    assert!(each[0].is_ok());
    assert!(is_too_deep(each[1].as_ref().unwrap_err(), 129));
    assert!(is_too_deep(each[2].as_ref().unwrap_err(), 5_001));
    let published = lab.publish_all(vec![publishing("e", &nested(129))]).await;
    assert!(is_too_deep(published[0].as_ref().unwrap_err(), 129));
    // An outcome that cannot be stored leaves the claim as it was (rule 4.2).
    let claim = lab.claim(worker).await.claim;
    let state = json(&nested(129));
    let result = state.clone();
    let mut deep = next("b");
    if let Outcome::Next { state: to, .. } = &mut deep {
        *to = state;
    }
    for outcome in [deep, Outcome::Done { result }] {
        let refusal = lab.refused(claim.again(), outcome).await;
        assert!(is_too_deep(&refusal, 129), "{refusal}");
    }
    lab.commit(claim, done()).await;
}

pub async fn conditions_that_are_too_large_are_refused(lab: Lab) {
    // rule 16.3: every event of the type would be checked against them.
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    let claim = lab.claim(worker).await.claim;
    let of = |bytes: usize| {
        let text = format!("\"{}\"", "x".repeat(bytes));
        that(any("e"), "a.b", Operator::Eq, &text)
    };
    let two = awaits(vec![of(40_000), of(40_000)], &[]);
    let told = lab.refused(claim.again(), two).await.to_string();
    assert!(
        told.contains("conditions_bytes") && told.contains("65536"),
        "{told}"
    );
    lab.commit(claim, awaits(vec![of(60_000)], &[])).await;
    lab.publish_all(vec![publishing("e", "{}")]).await;
}
