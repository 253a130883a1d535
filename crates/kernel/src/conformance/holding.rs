//! Holding: signals for a key that no instance holds yet.

use abide_core::model::{
    CommandStatus, InstanceId, NewCommand, Rejection, Sequence, Start, Status, Verdict,
};

use super::build::{
    MINUTE, SECOND, done, held, json, key, keyed, later, name, once, paying, plain, spawn, strict,
};
use super::lab::{Lab, command_ids};
use crate::{Op, SweepRequest};

/// A signal with one value, held.
fn held_paying(key_text: &str, payload: &str) -> NewCommand {
    NewCommand {
        hold_for: Some(MINUTE),
        ..paying(key(key_text), "paid", payload)
    }
}

pub async fn a_signal_for_a_free_key_is_held_for_the_instance_that_starts(lab: Lab) {
    // rule 7.8
    let worker = lab.worker("w").await;
    let answer = lab.deliver(held("k", "paid", MINUTE)).await;
    assert_eq!(answer.verdict, Verdict::Held);
    assert_eq!(answer.verdict.outcome(), "signal_held");
    let record = answer.record.unwrap();
    assert_eq!(
        (record.status, record.instance, record.sequence),
        (CommandStatus::Held, None, None)
    );
    assert_eq!(
        (record.key.clone(), record.hold_until),
        (Some(key("k")), Some(lab.now() + MINUTE))
    );
    lab.pass(SECOND);
    let id = lab.start(keyed("k")).await;
    let taken = lab.record(record.id).await;
    assert_eq!(
        (taken.status, taken.instance, taken.sequence),
        (CommandStatus::Received, Some(id), Some(Sequence(1)))
    );
    assert_eq!(taken.received_at, record.received_at);
    assert_eq!(lab.get(id).await.inbox.signals, 1);
    lab.step(worker, super::build::wait(&["paid"], None)).await;
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [record.id]);
}

pub async fn held_signals_are_handed_over_in_order(lab: Lab) {
    // rule 7.8
    let mut sent = Vec::new();
    for (at, text) in ["a", "b", "a"].into_iter().enumerate() {
        // Which of them may wait longest has nothing to do with it.
        let hold_for = MINUTE * (5 - at as u32);
        sent.push(
            lab.deliver(held("k", text, hold_for))
                .await
                .record
                .unwrap()
                .id,
        );
        lab.pass(SECOND);
    }
    let other = lab
        .deliver(held("other", "a", MINUTE))
        .await
        .record
        .unwrap();
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.inbox(id).await, sent);
    assert_eq!(lab.record(other.id).await.status, CommandStatus::Held);
    assert_eq!(lab.kinds(id).await, ["signal_received"; 3]);
}

pub async fn a_held_signal_is_checked_by_the_contract_when_somebody_starts(lab: Lab) {
    // rules 7.8 and 8.2
    lab.under(strict()).await;
    let good = lab.deliver(held_paying("k", "5")).await.record.unwrap();
    let bad = lab
        .deliver(held_paying("k", "\"five\""))
        .await
        .record
        .unwrap();
    let unknown = lab
        .deliver(held("k", "shipped", MINUTE))
        .await
        .record
        .unwrap();
    let id = lab.start(keyed("k")).await;
    let good = lab.record(good.id).await;
    assert_eq!(good.status, CommandStatus::Received);
    assert_eq!(good.arguments, json("{\"amount\":5,\"note\":null}"));
    let bad = lab.record(bad.id).await;
    assert_eq!(
        (bad.status, bad.rejection, bad.instance),
        (
            CommandStatus::Rejected,
            Some(Rejection::InvalidSignal),
            Some(id)
        )
    );
    assert!(bad.validation_errors.is_some());
    let unknown = lab.record(unknown.id).await;
    assert_eq!(unknown.rejection, Some(Rejection::UnknownSignal));
    assert_eq!(lab.get(id).await.inbox.sequence, Sequence(1));
}

pub async fn what_was_held_too_long_is_judged_by_the_clock_when_it_is_used(lab: Lab) {
    // rule 7.8
    let short = lab.deliver(held("k", "a", SECOND)).await.record.unwrap();
    let long = lab
        .deliver(held("k", "b", SECOND * 2))
        .await
        .record
        .unwrap();
    lab.pass(SECOND);
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.inbox(id).await, [long.id]);
    let short = lab.record(short.id).await;
    assert_eq!(
        (short.status, short.closed_at, short.instance),
        (CommandStatus::Expired, Some(lab.now()), None)
    );
}

pub async fn sweeping_marks_what_was_held_too_long(lab: Lab) {
    // rule 7.8
    let short = lab.deliver(held("k", "a", SECOND)).await.record.unwrap();
    let long = lab.deliver(held("k", "b", MINUTE)).await.record.unwrap();
    lab.pass(SECOND);
    let sweep = |before| {
        Op::Sweep(SweepRequest {
            before,
            after: None,
            limit: 100,
        })
    };
    lab.run(sweep(lab.now() - MINUTE)).await;
    let status = async |id| lab.record(id).await.status;
    assert_eq!(status(short.id).await, CommandStatus::Expired);
    assert_eq!(status(long.id).await, CommandStatus::Held);
    // What was never taken goes like what has finished; what is held stays.
    lab.run(sweep(lab.now())).await;
    assert!(lab.store.records(&[short.id]).await.unwrap().is_empty());
    assert_eq!(status(long.id).await, CommandStatus::Held);
}

pub async fn a_held_signal_sent_again_is_the_same(lab: Lab) {
    // rules 7.3 and 7.8
    let first = lab.deliver(once("d", held("k", "a", MINUTE))).await;
    let again = lab.deliver(once("d", held("k", "a", MINUTE))).await;
    assert_eq!((again.verdict, again.duplicate), (Verdict::Held, true));
    assert_eq!(again.record, first.record);
    let other = lab.deliver(once("d", held("k", "b", MINUTE))).await;
    assert_eq!(
        other.verdict,
        Verdict::Rejected(Rejection::ConflictingDuplicate)
    );
    let elsewhere = lab.deliver(once("d", held("j", "b", MINUTE))).await;
    assert_eq!(
        (elsewhere.verdict, elsewhere.duplicate),
        (Verdict::Held, false)
    );
    let id = lab.start(keyed("k")).await;
    let after = lab.deliver(once("d", held("k", "a", MINUTE))).await;
    assert_eq!((after.verdict, after.duplicate), (Verdict::Received, true));
    assert_eq!(lab.inbox(id).await.len(), 1);
}

pub async fn held_duplicates_in_one_batch_are_one(lab: Lab) {
    // rules 7.3 and 7.8
    let each = lab
        .deliver_all(vec![
            once("d", held("k", "a", MINUTE)),
            once("d", held("k", "a", MINUTE)),
            held("k", "a", MINUTE),
        ])
        .await;
    let duplicates: Vec<bool> = each
        .iter()
        .map(|one| one.as_ref().unwrap().duplicate)
        .collect();
    assert_eq!(duplicates, [false, true, false]);
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.inbox(id).await.len(), 2);
}

pub async fn an_expired_one_does_not_stand_for_the_same_sent_again(lab: Lab) {
    // rule 7.8
    let first = lab
        .deliver(once("d", held("k", "a", SECOND)))
        .await
        .record
        .unwrap();
    lab.pass(SECOND);
    let again = lab.deliver(once("d", held("k", "a", MINUTE))).await;
    assert!(!again.duplicate);
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.inbox(id).await, [again.record.unwrap().id]);
    assert_eq!(lab.record(first.id).await.status, CommandStatus::Expired);
}

pub async fn a_signal_for_a_key_whose_last_run_has_ended_is_held(lab: Lab) {
    // rules 7.3 and 7.8
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, done()).await;
    let answer = lab.deliver(held("k", "a", MINUTE)).await;
    assert_eq!(answer.verdict, Verdict::Held);
    let second = lab.start(keyed("k")).await;
    assert_ne!(first, second);
    assert_eq!(lab.inbox(second).await, [answer.record.unwrap().id]);
}

pub async fn a_signal_to_somebody_who_is_there_is_not_held(lab: Lab) {
    // rule 7.8
    let id = lab.start(keyed("k")).await;
    let record = lab.accept(held("k", "a", MINUTE)).await;
    assert_eq!((record.instance, record.hold_until), (Some(id), None));
}

pub async fn nothing_is_held_for_an_id_or_as_an_update(lab: Lab) {
    // rules 7.3 and 7.8
    let by_id = NewCommand {
        hold_for: Some(MINUTE),
        ..super::build::signal(InstanceId(i64::MAX - 1), "a")
    };
    let update = NewCommand {
        hold_for: Some(MINUTE),
        ..super::build::adding(key("k"), 1)
    };
    for delivery in [by_id, update] {
        assert_eq!(lab.deliver(delivery).await.verdict, Verdict::NoTarget);
    }
}

pub async fn a_held_payload_over_the_limit_is_refused(lab: Lab) {
    // rules 7.8 and 16.3
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    let answer = lab.deliver(held_paying("k", &huge)).await;
    assert_eq!(
        answer.verdict,
        Verdict::Rejected(Rejection::PayloadTooLarge)
    );
    assert_eq!(answer.record.unwrap().arguments, json("null"));
}

pub async fn a_child_and_what_starts_later_take_what_is_held_too(lab: Lab) {
    // rule 7.8
    let worker = lab.worker("w").await;
    lab.deliver(held("child", "a", MINUTE)).await;
    lab.deliver(held("later", "a", MINUTE)).await;
    lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("child")])).await;
    let child = lab.find(key("child")).await.unwrap();
    assert_eq!(child.inbox.signals, 1);
    let id = lab
        .start(Start {
            key: Some(key("later")),
            ..later(MINUTE)
        })
        .await;
    let found = lab.get(id).await;
    assert_eq!((found.status, found.inbox.signals), (Status::Scheduled, 1));
}

pub async fn a_start_that_is_a_duplicate_takes_nothing(lab: Lab) {
    // rules 2.2 and 7.8
    let worker = lab.worker("w").await;
    let always = Start {
        scope: abide_core::model::Scope::ALWAYS,
        ..keyed("k")
    };
    lab.start(always.clone()).await;
    lab.step(worker, done()).await;
    let record = lab.deliver(held("k", "a", MINUTE)).await.record.unwrap();
    assert!(matches!(
        lab.starts(vec![always]).await[0],
        Ok(abide_core::model::Started::Duplicate(_))
    ));
    assert_eq!(lab.record(record.id).await.status, CommandStatus::Held);
}

pub async fn more_than_fits_into_the_inbox_is_refused_when_it_is_handed_over(lab: Lab) {
    // rules 7.8 and 16.3
    lab.deliver_all(vec![held("k", "a", MINUTE); 101]).await;
    let id = lab.start(keyed("k")).await;
    assert_eq!(lab.inbox(id).await.len(), 100);
    let filter = crate::CommandFilter {
        status: Some(CommandStatus::Rejected),
        name: Some(name("a")),
        ..Default::default()
    };
    let refused = lab.records(filter).await;
    assert_eq!(
        refused.iter().map(|one| one.rejection).collect::<Vec<_>>(),
        [Some(Rejection::InboxFull)]
    );
}
