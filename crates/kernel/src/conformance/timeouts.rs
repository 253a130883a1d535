//! Timeouts of waits for signals: what was committed first decides, and never both.

use std::sync::Arc;

use abide_core::model::{Cause, CommandStatus, Sequence, Status};

use super::build::{MINUTE, SECOND, done, lane, name, next, plain, retry, signal, wait};
use super::lab::{Lab, command_ids};
use crate::{Answer, ClaimRequest, Op};

pub async fn a_wait_that_nothing_matched_times_out(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    lab.signal(id, "other").await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.timed_out, claimed.cause, claimed.attempt),
        (true, Cause::Timeout, 0)
    );
    assert!(claimed.awaited.is_empty());
}

pub async fn a_timeout_hands_over_the_partial_pack(lab: Lab) {
    // rules 7.4 and 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], Some(60_000)).await;
    let a = lab.signal(id, "a").await;
    lab.step(worker, wait(&["a", "b"], Some(60_000))).await;
    lab.pass(MINUTE);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.timed_out);
    assert_eq!(command_ids(&claimed.awaited), [a.id]);
    lab.commit(claimed.claim, next("gave-up")).await;
    assert_eq!(lab.record(a.id).await.status, CommandStatus::Applied);
}

pub async fn a_signal_before_the_deadline_fires_wins(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    // The time is up, and the timer has not fired yet.
    lab.pass(MINUTE * 2);
    let paid = lab.signal(id, "paid").await;
    assert_eq!(lab.fire().await, 0);
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.cause), (false, Cause::Signal));
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    assert!(!lab.kinds(id).await.contains(&"timed_out"));
}

pub async fn a_signal_after_the_deadline_stays_in_the_inbox(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    lab.pass(MINUTE);
    lab.fire().await;
    let late = lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.awaited.len()), (true, 0));
    lab.commit(claimed.claim, next("gave-up")).await;
    assert_eq!(lab.inbox(id).await, [late.id]);
    assert_eq!(
        lab.step(worker, wait(&["paid"], None)).await,
        Status::Runnable
    );
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [late.id]);
}

pub async fn a_late_signal_is_not_handed_to_a_retry_of_the_step_that_timed_out(lab: Lab) {
    // rules 4.1 and 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(1000)).await;
    lab.pass(SECOND);
    lab.fire().await;
    lab.step(worker, retry(1000)).await;
    let late = lab.signal(id, "paid").await;
    lab.pass(SECOND);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.awaited.len()), (true, 0));
    lab.commit(claimed.claim, retry(0)).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.awaited.is_empty());
    lab.commit(claimed.claim, done()).await;
    assert_eq!(lab.record(late.id).await.status, CommandStatus::Discarded);
}

pub async fn a_late_signal_is_not_handed_to_a_claim_in_its_own_transaction(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane("m", 1)],
        limit: 1,
        lease: None,
    };
    let delivers = Op::Deliver(vec![signal(id, "paid")]);
    let ops = Arc::new([delivers, Op::Claim(request)]);
    let mut answers = lab.store.run(ops).await.unwrap();
    let Some(Answer::Claimed(claimed)) = answers.pop() else {
        panic!("it is claimed")
    };
    assert_eq!((claimed[0].timed_out, claimed[0].awaited.len()), (true, 0));
    assert_eq!(lab.get(id).await.inbox.signals, 1);
}

pub async fn a_late_signal_wakes_a_step_that_waits_again(lab: Lab) {
    // rules 7.4 and 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(1000)).await;
    lab.pass(SECOND);
    lab.fire().await;
    let late = lab.signal(id, "paid").await;
    assert_eq!(
        lab.step(worker, wait(&["paid"], Some(1000))).await,
        Status::Runnable
    );
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.cause), (false, Cause::Signal));
    assert_eq!(command_ids(&claimed.awaited), [late.id]);
}

pub async fn a_signal_and_the_deadline_in_one_transaction_are_judged_in_their_order(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    for signal_first in [true, false] {
        let id = lab.parked(worker, plain(), &["paid"], Some(1000)).await;
        lab.pass(SECOND);
        let deliver = Op::Deliver(vec![signal(id, "paid")]);
        let fire = Op::Fire { limit: 9 };
        let ops = match signal_first {
            true => vec![deliver, fire],
            false => vec![fire, deliver],
        };
        lab.try_run(ops).await.unwrap();
        let claimed = lab.claim(worker).await;
        assert_eq!(
            (claimed.timed_out, claimed.awaited.len()),
            match signal_first {
                true => (false, 1),
                false => (true, 0),
            }
        );
        lab.commit(claimed.claim, done()).await;
    }
}

pub async fn what_was_buffered_before_the_wait_needs_no_deadline(lab: Lab) {
    // rules 7.1 and 7.5
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.signal(id, "paid").await;
    lab.step(worker, wait(&["paid"], Some(1000))).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 0);
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.awaited.len()), (false, 1));
}

pub async fn a_signal_does_not_wake_what_only_sleeps(lab: Lab) {
    // rules 3.1 and 7.2
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &[], Some(1000)).await;
    lab.signal(id, "paid").await;
    assert_eq!(lab.status(id).await, Status::Scheduled);
    lab.pass(SECOND);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.awaited.len()), (true, 0));
    lab.commit(claimed.claim, next("x")).await;
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(0));
}

pub async fn a_wait_that_a_signal_ended_has_no_deadline_left(lab: Lab) {
    // rule 7.5
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    lab.signal(id, "paid").await;
    assert_eq!(lab.store.next_due().await.unwrap(), None);
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 0);
    assert!(!lab.claim(worker).await.timed_out);
}
