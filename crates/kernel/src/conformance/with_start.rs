//! A signal that starts what it is for when no instance lives under its key.

use abide_core::model::{
    CommandStatus, Delivered, NewCommand, Refusal, Rejection, Sequence, Start, Status, UniqueKey,
    Verdict,
};

use super::build::{
    MINUTE, SECOND, done, held, json, key, keyed, name, once, paying, plain, signal, starting,
    strict, wait,
};
use super::lab::{Lab, command_ids};
use crate::{CommandFilter, Filter, Op};

/// The same with one value.
fn starting_paying(start: Start, payload: &str) -> NewCommand {
    let key = start.key.clone().unwrap();
    NewCommand {
        start: Some(Box::new(start)),
        ..paying(key, "paid", payload)
    }
}

async fn count(lab: &Lab) -> usize {
    let page = lab.store.list(&Filter::default(), None, 100).await;
    page.unwrap().items.len()
}

pub async fn it_starts_one_with_the_signal_in_its_inbox(lab: Lab) {
    // rule 7.9
    let worker = lab.worker("w").await;
    let answer = lab.deliver(starting(keyed("k"), "paid")).await;
    assert_eq!((answer.verdict, answer.started), (Verdict::Received, true));
    let record = answer.record.unwrap();
    let found = lab.find(key("k")).await.unwrap();
    assert_eq!(
        (record.instance, record.sequence, found.status),
        (Some(found.id), Some(Sequence(1)), Status::Runnable)
    );
    lab.step(worker, wait(&["paid"], None)).await;
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [record.id]);
}

pub async fn it_is_delivered_to_the_one_that_lives(lab: Lab) {
    // rule 7.9
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, keyed("k"), &["paid"], None).await;
    let answer = lab.deliver(starting(keyed("k"), "paid")).await;
    assert!(!answer.started);
    assert_eq!(answer.record.unwrap().instance, Some(id));
    assert_eq!(
        (lab.status(id).await, count(&lab).await),
        (Status::Runnable, 1)
    );
}

pub async fn it_starts_anew_when_the_last_one_has_ended(lab: Lab) {
    // rule 7.9
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.accept(once("d", paying(first, "paid", "1"))).await;
    lab.step(worker, done()).await;
    // Only the live chain's dedup keys count.
    let answer = lab
        .deliver(once("d", starting_paying(keyed("k"), "2")))
        .await;
    assert!(answer.started && !answer.duplicate);
    let second = answer.record.unwrap().instance.unwrap();
    assert_ne!(second, first);
    let again = lab
        .deliver(once("d", starting_paying(keyed("k"), "2")))
        .await;
    assert!(again.duplicate && !again.started);
    assert_eq!(count(&lab).await, 2);
}

pub async fn it_opens_what_was_reserved(lab: Lab) {
    // rules 2.7 and 7.9
    lab.run(Op::Reserve(vec![(name("m"), key("k"))])).await;
    let reserved = lab.find(key("k")).await.unwrap().id;
    let answer = lab.deliver(starting(keyed("k"), "paid")).await;
    assert!(answer.started);
    assert_eq!(answer.record.unwrap().instance, Some(reserved));
    assert_eq!(lab.status(reserved).await, Status::Runnable);
}

pub async fn if_the_signal_would_be_refused_nothing_starts(lab: Lab) {
    // rule 7.9
    lab.under(strict()).await;
    for (delivery, rejection) in [
        (starting(keyed("k"), "unknown"), Rejection::UnknownSignal),
        (starting(keyed("k"), "paid"), Rejection::InvalidSignal),
    ] {
        let answer = lab.deliver(delivery).await;
        assert_eq!(
            (answer.verdict, answer.started),
            (Verdict::Rejected(rejection), false)
        );
        let is_unknown = rejection == Rejection::UnknownSignal;
        assert_eq!(answer.offer.is_some(), is_unknown);
        let record = answer.record.unwrap();
        assert_eq!(
            (record.status, record.key.clone(), record.instance),
            (CommandStatus::Rejected, Some(key("k")), None)
        );
        assert_eq!(lab.record(record.id).await, *record);
    }
    assert_eq!(count(&lab).await, 0);
}

pub async fn a_start_that_cannot_be_made_is_refused_and_leaves_nothing(lab: Lab) {
    // rule 7.9
    let bad = Start {
        version: Some(0),
        ..keyed("k")
    };
    let keyless = NewCommand {
        start: Some(Box::new(plain())),
        ..signal(key("k"), "paid")
    };
    let each = lab.deliver_all(vec![starting(bad, "paid"), keyless]).await;
    let reasons: Vec<&str> = each
        .iter()
        .map(|one| one.as_ref().unwrap_err().reason())
        .collect();
    assert_eq!(reasons, ["bad_version", "bad_start"]);
    assert_eq!(count(&lab).await, 0);
    assert!(lab.records(CommandFilter::default()).await.is_empty());
}

pub async fn two_of_one_batch_start_one(lab: Lab) {
    // rule 7.9
    let each = lab
        .deliver_all(vec![
            starting(keyed("k"), "a"),
            starting(keyed("k"), "b"),
            starting(keyed("j"), "a"),
        ])
        .await;
    let each: Vec<Delivered> = each.into_iter().map(Result::unwrap).collect();
    let started: Vec<bool> = each.iter().map(|one| one.started).collect();
    assert_eq!(started, [true, false, true]);
    let of = |at: usize| each[at].record.as_ref().unwrap();
    assert_eq!(of(0).instance, of(1).instance);
    assert_eq!(
        (of(0).sequence, of(1).sequence),
        (Some(Sequence(1)), Some(Sequence(2)))
    );
    assert_eq!(count(&lab).await, 2);
}

pub async fn what_one_of_a_batch_could_not_start_another_may(lab: Lab) {
    // rule 7.9
    lab.under(strict()).await;
    let each = lab
        .deliver_all(vec![
            starting(keyed("k"), "unknown"),
            starting(keyed("k"), "stop"),
        ])
        .await;
    let each: Vec<Delivered> = each.into_iter().map(Result::unwrap).collect();
    assert_eq!(each[0].verdict, Verdict::Rejected(Rejection::UnknownSignal));
    assert!(!each[0].started && each[1].started);
}

pub async fn a_unique_key_that_is_taken_is_reported(lab: Lab) {
    // rules 2.2 and 7.9
    let unique = |text: &str| Start {
        unique_key: Some(UniqueKey::new(*b"u").unwrap()),
        ..keyed(text)
    };
    let holder = lab.start(unique("j")).await;
    let each = lab
        .deliver_all(vec![
            starting(unique("k"), "paid"),
            starting(keyed("k"), "paid"),
        ])
        .await;
    assert_eq!(each[0], Err(Refusal::KeyTaken { holder, key: None }));
    let second = each[1].as_ref().unwrap();
    assert!(
        second.started,
        "one entry's refusal touches no other: {second:?}"
    );
    assert_eq!(count(&lab).await, 2);
}

pub async fn it_comes_after_what_was_held(lab: Lab) {
    // rules 7.8 and 7.9
    let before = lab.deliver(held("k", "a", MINUTE)).await.record.unwrap();
    lab.pass(SECOND);
    let answer = lab.deliver(starting(keyed("k"), "b")).await;
    let record = answer.record.unwrap();
    assert_eq!(
        lab.inbox(record.instance.unwrap()).await,
        [before.id, record.id]
    );
    assert_eq!(record.arguments, json("[]"));
}

pub async fn it_starts_a_machine_in_its_partition(lab: Lab) {
    // rules 6.3 and 7.9
    let worker = lab.worker("w").await;
    let start = |text: &str| Start {
        partition_key: Some(key("p")),
        ..keyed(text)
    };
    lab.deliver_all(vec![starting(start("k"), "a"), starting(start("j"), "a")])
        .await;
    assert_eq!(lab.claim_some(worker, 9).await.len(), 1);
}
