//! Validations that take long: outside of the transaction, in bounded time, in order (rule 8.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use abide_core::model::{
    Accepts, Arguments, Contract, Delivered, NewCommand, Parameter, Refusal, Rejection, Sequence,
    Verdict,
};
use serde_json::{Value, json};

use super::build::{MINUTE, key, keyed, name, paying, plain, signal};
use super::lab::Lab;
use crate::committer::{Committer, Deliveries, Submit};
use crate::{Answer, CommandFilter, Op, judge};

/// A contract whose signals and updates take a text that is slow to match.
fn slow(pattern: &str) -> Contract {
    let text = json!({"type": "string", "pattern": pattern});
    let accepts = |text_name: &str, schema: Value| Accepts {
        name: name(text_name),
        parameters: Some(vec![Parameter::new("text", schema)]),
    };
    Contract {
        signals: vec![accepts("slow", text.clone()), accepts("quick", json!(true))],
        updates: vec![accepts("slow", text)],
    }
}

/// The longest wait for something that a busy machine may be slow at.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes more steps than a transaction has, and fewer than a validation has.
const PATTERN: &str = "^[ab]*a[ab]{9}$";

fn long(end: &str) -> String {
    format!("\"{}{end}\"", "ab".repeat(100_000))
}

/// Delivers messages that take long to validate; the answer to each.
async fn send(lab: &Lab, deliveries: Vec<NewCommand>) -> Vec<Result<Delivered, Refusal>> {
    let ops = [Op::Deliver(deliveries)].into();
    match judge::run(&*lab.store, ops).await.unwrap().pop() {
        Some(Answer::Delivered(each)) => each,
        other => panic!("a delivery is not answered with {other:?}"),
    }
}

fn verdicts(each: &[Result<Delivered, Refusal>]) -> Vec<Verdict> {
    each.iter()
        .map(|one| one.as_ref().unwrap().verdict)
        .collect()
}

pub async fn a_message_that_takes_long_to_validate_is_judged_all_the_same(lab: Lab) {
    // rule 8.5
    lab.under(slow(PATTERN)).await;
    let id = lab.start(plain()).await;
    let each = send(
        &lab,
        vec![
            paying(id, "slow", &long("")),
            paying(id, "slow", &long("c")),
            NewCommand {
                arguments: Arguments::Payload(super::build::json(&long(""))),
                ..NewCommand::update(id, name("slow"))
            },
        ],
    )
    .await;
    let invalid = Verdict::Rejected(Rejection::InvalidSignal);
    assert_eq!(
        verdicts(&each),
        [Verdict::Received, invalid, Verdict::Accepted]
    );
    let refused = each[1].as_ref().unwrap().record.as_ref().unwrap();
    assert!(refused.validation_errors.is_some());
    assert_eq!(lab.get(id).await.inbox.signals, 1);
}

pub async fn a_validation_that_takes_too_long_is_refused_and_says_so(lab: Lab) {
    // rule 8.5: one argument of 1 MiB against a pattern stalled every write for 58 seconds.
    lab.under(slow("^[ab]*a[ab]{2000}c$")).await;
    let id = lab.start(plain()).await;
    let text = format!("\"{}\"", "ab".repeat(500_000));
    let each = send(&lab, vec![paying(id, "slow", &text)]).await;
    assert_eq!(
        verdicts(&each),
        [Verdict::Rejected(Rejection::InvalidSignal)]
    );
    let record = each[0].as_ref().unwrap().record.clone().unwrap();
    let errors = record.validation_errors.unwrap().to_string();
    assert!(
        errors.contains("validation took too long") && errors.contains("100000"),
        "{errors}"
    );
    // It is sent once more: the same contract and the same message are the same verdict.
    let each = send(&lab, vec![paying(id, "slow", &text)]).await;
    assert_eq!(
        verdicts(&each),
        [Verdict::Rejected(Rejection::InvalidSignal)]
    );
    lab.accept(paying(id, "quick", "1")).await;
}

pub async fn what_follows_a_message_that_is_judged_outside_stays_behind_it(lab: Lab) {
    // rules 7.1 and 8.5
    lab.under(slow(PATTERN)).await;
    let (id, other) = (lab.start(plain()).await, lab.start(plain()).await);
    let each = send(
        &lab,
        vec![
            paying(id, "quick", "1"),
            paying(id, "slow", &long("")),
            paying(other, "quick", "2"),
            paying(id, "quick", "3"),
        ],
    )
    .await;
    let sequence = |one: &Result<Delivered, Refusal>| {
        let record = one.as_ref().unwrap().record.as_ref().unwrap();
        record.sequence.unwrap()
    };
    let sequences: Vec<Sequence> = each.iter().map(sequence).collect();
    assert_eq!(sequences, [1, 2, 1, 3].map(Sequence));
}

pub async fn held_signals_that_take_long_to_validate_are_judged_before_the_start(lab: Lab) {
    // rules 7.8 and 8.5
    lab.under(slow(PATTERN)).await;
    for text in [long(""), long("c"), "\"aaaaaaaaaa\"".to_owned()] {
        let held = NewCommand {
            hold_for: Some(MINUTE),
            ..paying(key("k"), "slow", &text)
        };
        assert_eq!(lab.deliver(held).await.verdict, Verdict::Held);
    }
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.get(id).await.inbox.signals, 2);
    let filter = CommandFilter::default();
    let records = lab.store.commands(&filter, None, 10).await.unwrap().items;
    let refused = records.iter().filter(|one| one.validation_errors.is_some());
    assert_eq!(refused.count(), 1);
}

pub async fn a_signal_that_starts_is_judged_outside_too(lab: Lab) {
    // rules 7.9 and 8.5
    lab.under(slow(PATTERN)).await;
    let starting = |key_text: &str, text: &str| NewCommand {
        start: Some(Box::new(keyed(key_text))),
        ..paying(key(key_text), "slow", text)
    };
    let each = send(
        &lab,
        vec![starting("a", &long("")), starting("b", &long("c"))],
    )
    .await;
    let invalid = Verdict::Rejected(Rejection::InvalidSignal);
    assert_eq!(verdicts(&each), [Verdict::Received, invalid]);
    assert!(each[0].as_ref().unwrap().started);
    assert!(lab.find(key("b")).await.is_none());
}

pub async fn a_slow_validation_does_not_block_other_writes(lab: Lab) {
    // rule 8.5: it ran on the thread that writes, and every other write waited for it.
    lab.under(slow("^[ab]*a[ab]{60}$")).await;
    let (busy, free) = (lab.start(plain()).await, lab.start(plain()).await);
    let deliveries =
        Submit::<Deliveries>::begin(&Committer::new(lab.store.clone()), Duration::from_secs(60));
    // Without a period, or the engine that matches it would soon have seen all there is to see.
    let mut random: u32 = 1;
    let characters: String = (0..1_000_000)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random >> 31 == 0 { 'a' } else { 'b' }
        })
        .collect();
    let text = format!("\"{characters}\"");
    // One after the other is judged for as long as this test lasts.
    let judged = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let slow = tokio::spawn({
        let (deliveries, judged, over) = (deliveries.clone(), judged.clone(), over.clone());
        async move {
            while !over.load(Ordering::SeqCst) {
                let answer = deliveries
                    .ask_one(paying(busy, "slow", &text))
                    .await
                    .unwrap();
                // On a machine that is very busy there may be no slot for it in time.
                assert!(
                    matches!(answer, Ok(_) | Err(Refusal::Unjudged { .. })),
                    "{answer:?}"
                );
                judged.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let (mut beside, began) = (0, Instant::now());
    while beside < 3 {
        let before = judged.load(Ordering::SeqCst);
        let other = deliveries.ask_one(signal(free, "quick")).await.unwrap();
        let invalid = Verdict::Rejected(Rejection::InvalidSignal);
        assert_eq!(other.unwrap().verdict, invalid);
        beside += usize::from(judged.load(Ordering::SeqCst) == before);
        // On a machine that is very busy a quick one may take longer than a slow one, but not always.
        assert!(
            began.elapsed() < PATIENCE && !slow.is_finished(),
            "nothing was written beside them"
        );
    }
    // Nothing may be on its way when the invariants of the store are checked.
    over.store(true, Ordering::SeqCst);
    slow.await.unwrap();
}
