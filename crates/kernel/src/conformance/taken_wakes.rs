//! Taken keys: what wakes an instance, when that would take a key which another holds.

use abide_core::model::{CommandStatus, Committed, Operated, Status};

use super::build::{
    MINUTE, answer, cancelling, done, key, keyed, later, name, plain, signal, spawn, updates, wait,
};
use super::coding::{Coded, awaiting, unfit, workflow};
use super::eventing::{any, awaits, ordered};
use super::lab::Lab;
use super::taken_keys::{failed_of, holding, taken, under};

/// Only one of a key waits for a worker.
const RUNNABLE: &[Status] = &[Status::Runnable];

pub async fn of_two_timers_with_one_key_the_first_to_be_due_fires_and_all_others_do(lab: Lab) {
    // rule 2.8: two instances with one key that is held while runnable, and a delay, made the transaction that fires
    // timers fail each time: no timer of the store fired any more.
    let second = lab.start(holding("k", RUNNABLE, later(2 * MINUTE))).await;
    let first = lab.start(holding("k", RUNNABLE, later(MINUTE))).await;
    let others = lab.start_all(vec![later(MINUTE); 3]).await;
    lab.pass(3 * MINUTE);
    assert_eq!(lab.fire().await, 5);
    failed_of(&lab, second, "k", first).await;
    assert_eq!(lab.status(first).await, Status::Runnable);
    for other in others {
        assert_eq!(lab.status(other).await, Status::Runnable);
    }
    assert_eq!(lab.fire().await, 0);
    assert_eq!(lab.kinds(second).await, ["failed"]);
}

pub async fn a_timer_that_would_take_a_key_fails_its_instance_whole(lab: Lab) {
    // rule 2.8: its parent is notified, and its inbox closed.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let holder = lab.start(under(RUNNABLE)).await;
    lab.commit(claim, spawn(vec![holding("k", RUNNABLE, later(MINUTE))]))
        .await;
    let children = lab.children(parent).await;
    let child = children[0].id;
    let buffered = lab.signal(child, "s").await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    failed_of(&lab, child, "k", holder).await;
    assert_eq!(
        lab.kinds(child).await,
        ["signal_received", "signal_discarded", "failed"]
    );
    let record = lab.record(buffered.id).await;
    assert_eq!(record.status, CommandStatus::Discarded);
    assert_eq!(lab.status(parent).await, Status::Runnable);
    let kinds = lab.kinds(parent).await;
    assert_eq!(kinds[2..], ["child_ended", "children_joined"]);
}

pub async fn a_deadline_that_would_take_a_key_fails_its_instance(lab: Lab) {
    // rules 2.8 and 14.7: none of its waiters remain, and it does not hold the key as failed either.
    let worker = lab.worker("w").await;
    let waits = awaits(vec![any("order")], &["s"]);
    let scope = &[Status::Runnable, Status::Failed];
    let first = lab.awaiting(worker, under(scope), waits).await;
    let holder = lab.start(under(scope)).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    failed_of(&lab, first, "k", holder).await;
    let kinds = lab.kinds(first).await;
    assert_eq!(kinds[2..], ["timed_out", "key_given_up", "failed"]);
    assert!(lab.waiters().await.is_empty());
}

pub async fn a_signal_that_would_take_a_key_is_received_and_its_target_fails(lab: Lab) {
    // rules 2.8 and 7.1: its sender was answered 503 after ten seconds.
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, under(RUNNABLE), &["s"], None).await;
    let neighbour = lab.parked(worker, plain(), &["s"], None).await;
    let holder = lab.start(under(RUNNABLE)).await;
    let both = vec![signal(first, "s"), signal(neighbour, "s")];
    let delivered = lab.deliver_all(both).await;
    let records = delivered
        .into_iter()
        .map(|one| one.unwrap().record.unwrap());
    let records: Vec<_> = records.collect();
    assert_eq!(records[0].status, CommandStatus::Received, "as ever");
    failed_of(&lab, first, "k", holder).await;
    let record = lab.record(records[0].id).await;
    assert_eq!(record.status, CommandStatus::Discarded);
    assert_eq!(lab.status(neighbour).await, Status::Runnable);
    assert_eq!(lab.inbox(neighbour).await, [records[1].id]);
}

pub async fn an_event_that_would_take_a_key_fails_who_waits_and_reaches_the_others(lab: Lab) {
    // rules 2.8 and 14.1
    let worker = lab.worker("w").await;
    let waits = || awaits(vec![any("order")], &[]);
    let first = lab.awaiting(worker, under(RUNNABLE), waits()).await;
    let neighbour = lab.awaiting(worker, plain(), waits()).await;
    let holder = lab.start(under(RUNNABLE)).await;
    assert_eq!(lab.tell(ordered(1)).await, 2);
    failed_of(&lab, first, "k", holder).await;
    assert_eq!(lab.status(neighbour).await, Status::Runnable);
    assert!(lab.waiters().await.is_empty());
}

pub async fn an_update_that_would_take_a_key_fails_its_target(lab: Lab) {
    // rules 2.8 and 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, under(RUNNABLE), &["s"], None).await;
    let holder = lab.start(under(RUNNABLE)).await;
    let update = lab.update(first).await;
    assert_eq!(update.status, CommandStatus::Accepted, "as ever");
    failed_of(&lab, first, "k", holder).await;
    let record = lab.record(update.id).await;
    assert_eq!(record.status, CommandStatus::Failed);
    assert!(record.error.is_some());
}

pub async fn who_comes_back_from_its_updates_into_a_taken_key_fails(lab: Lab) {
    // rules 2.8 and 9.1: another began to wait under the key while the updates were answered.
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let parks = || under(&[Status::AwaitingSignal]);
    let first = lab.parked(worker, parks(), &["s"], None).await;
    let update = lab.update(first).await;
    let second = lab.start(parks()).await;
    let claims = lab.claim_some(worker, 2).await;
    assert_eq!(claims[0].claim.id(), first);
    let answered = lab
        .commit(claims[1].claim.again(), wait(&["s"], None))
        .await;
    assert_eq!(answered, Committed::Moved(Status::AwaitingSignal));
    let back = answer(&[update.id], None);
    let answered = lab.commit(claims[0].claim.again(), back.clone()).await;
    assert_eq!(answered, Committed::Moved(Status::Failed));
    failed_of(&lab, first, "k", second).await;
    let record = lab.record(update.id).await;
    assert_eq!(record.status, CommandStatus::Completed, "it was answered");
    // Sent again, because the answer got lost.
    let again = lab.commit(claims[0].claim.again(), back).await;
    assert_eq!(again, Committed::Repeated(Status::Failed));
}

pub async fn a_child_that_ends_fails_a_parent_that_would_take_a_key(lab: Lab) {
    // rules 2.8 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(under(RUNNABLE)).await;
    lab.step(worker, spawn(vec![plain()])).await;
    let holder = lab.start(under(RUNNABLE)).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    failed_of(&lab, parent, "k", holder).await;
    let kinds = lab.kinds(parent).await;
    assert_eq!(kinds[2..], ["child_ended", "children_joined", "failed"]);
}

pub async fn a_barrier_that_opens_at_once_into_a_taken_key_fails_its_parent(lab: Lab) {
    // rules 2.8 and 10.1
    let worker = lab.worker("w").await;
    let parent = lab.start(under(RUNNABLE)).await;
    let claim = lab.claim(worker).await.claim;
    let holder = lab.start(under(RUNNABLE)).await;
    lab.start(keyed("child")).await;
    let answer = lab.commit(claim, spawn(vec![keyed("child")])).await;
    assert_eq!(answer, Committed::Moved(Status::Failed));
    failed_of(&lab, parent, "k", holder).await;
}

pub async fn failures_are_reported_to_parents_at_any_depth(lab: Lab) {
    // rules 2.8 and 10.2: the parent that the failure wakes finds its own key taken, and so does that one's.
    let worker = lab.worker("w").await;
    let scoped = |text| holding(text, RUNNABLE, plain());
    let top = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    lab.commit(claim, spawn(vec![scoped("a")])).await;
    let mut family = vec![lab.find(key("a")).await.unwrap().id];
    lab.step(worker, spawn(vec![scoped("b")])).await;
    family.push(lab.find(key("b")).await.unwrap().id);
    lab.step(worker, spawn(vec![plain()])).await;
    let holders = lab.start_all(vec![scoped("a"), scoped("b")]).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    failed_of(&lab, family[1], "b", holders[1]).await;
    failed_of(&lab, family[0], "a", holders[0]).await;
    assert_eq!(lab.status(top).await, Status::Runnable);
}

pub async fn a_cancelled_workflow_that_cannot_be_woken_is_cancelled(lab: Lab) {
    // rules 2.8 and 11.1: its code cannot be notified first.
    let worker = lab.worker("w").await;
    let start = holding("k", RUNNABLE, workflow());
    let waits = Coded::parks(awaiting(1, &["s"]));
    let id = lab.coded(worker, start, waits).await;
    let holder = lab.start(under(RUNNABLE)).await;
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelling { id, children: 0 });
    let found = lab.get(id).await;
    let error = taken("k", holder).to_string();
    assert_eq!(
        (found.row.status, found.row.last_error),
        (Status::Cancelled, Some(error))
    );
    assert_eq!(lab.kinds(id).await.last(), Some(&"cancelled"));
}

pub async fn a_workflow_that_is_released_into_a_taken_key_fails(lab: Lab) {
    // rules 2.8 and 12.4
    let worker = lab.worker("w").await;
    let start = holding("k", RUNNABLE, workflow());
    let blocked = lab.coded(worker, start, Coded::then(unfit())).await;
    let holder = lab.start(under(RUNNABLE)).await;
    assert_eq!(lab.repair(blocked).await, Operated::RepairDispatched);
    failed_of(&lab, blocked, "k", holder).await;
    let found = lab.get(blocked).await;
    assert_eq!(found.step, name("start"));
}
