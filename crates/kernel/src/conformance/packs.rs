//! Packs: what a woken step is handed, what it consumes, and how signals accumulate until all have come.

use abide_core::model::{Cause, Command, CommandStatus, InstanceId, Sequence, Status, WorkerId};

use super::build::{
    MINUTE, continue_as_new, done, name, next, plain, retry, signal, spawn, stop, urgent, wait,
};
use super::lab::{Lab, command_ids};

/// One that waits for `a` and `b`, woken by `a`, with an `x` that it does not wait for.
async fn woken(lab: &Lab, worker: WorkerId) -> (InstanceId, Command, Command) {
    let id = lab.parked(worker, plain(), &["a", "b"], None).await;
    let x = lab.signal(id, "x").await;
    let a = lab.signal(id, "a").await;
    (id, a, x)
}

pub async fn a_woken_step_is_handed_all_that_it_waited_for_in_order(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], None).await;
    let b = lab.signal(id, "b").await;
    let x = lab.signal(id, "x").await;
    let a = lab.signal(id, "a").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [b.id, a.id]);
    assert_eq!(lab.inbox(id).await, [b.id, x.id, a.id]);
    assert_eq!(claimed.awaits, [name("a"), name("b")]);
}

pub async fn next_consumes_exactly_what_was_handed(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let (id, a, x) = woken(&lab, worker).await;
    let claimed = lab.claim(worker).await;
    let second_a = lab.signal(id, "a").await;
    lab.commit(claimed.claim, next("after")).await;
    assert_eq!(lab.inbox(id).await, [x.id, second_a.id], "never by name");
    let record = lab.record(a.id).await;
    assert_eq!(
        (record.status, record.step_sequence, record.closed_at),
        (CommandStatus::Applied, Some(2), Some(lab.now()))
    );
    assert_eq!(lab.get(id).await.inbox.signals, 2);
}

pub async fn spawn_consumes_what_was_handed(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let (id, a, x) = woken(&lab, worker).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    assert_eq!(lab.inbox(id).await, [x.id]);
    assert_eq!(lab.record(a.id).await.status, CommandStatus::Applied);
}

pub async fn continue_as_new_consumes_what_was_handed(lab: Lab) {
    // rules 2.4 and 4.1
    let worker = lab.worker("w").await;
    let (id, a, x) = woken(&lab, worker).await;
    lab.step(worker, continue_as_new("again")).await;
    let record = lab.record(a.id).await;
    assert_eq!(
        (record.status, record.instance),
        (CommandStatus::Applied, Some(id))
    );
    let moved = lab.record(x.id).await;
    assert_eq!(moved.status, CommandStatus::Received);
    assert_eq!(lab.inbox(moved.instance.unwrap()).await, [x.id]);
}

pub async fn retry_and_wait_consume_nothing(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let (id, a, x) = woken(&lab, worker).await;
    lab.step(worker, retry(0)).await;
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [a.id]);
    let claim = {
        lab.pass(super::lab::OVER_LEASE);
        lab.reclaim().await;
        let worker = lab.worker("v").await;
        lab.claim(worker).await.claim
    };
    lab.commit(claim, wait(&["never"], None)).await;
    assert_eq!(lab.inbox(id).await, [x.id, a.id]);
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(0));
}

pub async fn a_terminal_outcome_applies_what_was_handed_and_discards_the_rest(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    for outcome in [done(), stop("no")] {
        let (id, a, x) = woken(&lab, worker).await;
        let claimed = lab.claim(worker).await;
        let late = lab.signal(id, "a").await;
        lab.commit(claimed.claim, outcome).await;
        let statuses = [
            lab.record(a.id).await.status,
            lab.record(x.id).await.status,
            lab.record(late.id).await.status,
        ];
        use CommandStatus::{Applied, Discarded};
        assert_eq!(statuses, [Applied, Discarded, Discarded]);
        let gone = lab.record(x.id).await;
        assert_eq!(
            (gone.step_sequence, gone.closed_at),
            (None, Some(lab.now()))
        );
        assert!(lab.inbox(id).await.is_empty());
        let found = lab.get(id).await;
        assert_eq!((found.inbox.signals, found.inbox.updates), (0, 0));
    }
}

pub async fn a_step_that_was_handed_nothing_consumes_nothing(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let early = lab.signal(id, "a").await;
    lab.step(worker, next("b")).await;
    lab.step(worker, next("c")).await;
    assert_eq!(lab.inbox(id).await, [early.id]);
}

pub async fn what_was_handed_is_handed_once(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let (_, _, _) = woken(&lab, worker).await;
    lab.step(worker, next("after")).await;
    assert!(lab.claim(worker).await.awaited.is_empty());
}

pub async fn a_pack_accumulates_until_all_have_come(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b", "c"], None).await;
    let mut pack = Vec::new();
    for text in ["b", "c"] {
        pack.push(lab.signal(id, text).await.id);
        let claimed = lab.claim(worker).await;
        assert_eq!(command_ids(&claimed.awaited), pack);
        lab.commit(claimed.claim, wait(&["a", "b", "c"], None))
            .await;
        assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    }
    pack.push(lab.signal(id, "a").await.id);
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), pack);
    lab.commit(claimed.claim, next("all")).await;
    assert!(lab.inbox(id).await.is_empty());
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(3));
}

pub async fn waiting_again_on_what_was_handed_parks_quietly(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let (id, a, _) = woken(&lab, worker).await;
    assert_eq!(
        lab.step(worker, wait(&["a", "b"], None)).await,
        Status::AwaitingSignal
    );
    assert_eq!(lab.get(id).await.inbox.signals, 2);
    let b = lab.signal(id, "b").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [a.id, b.id]);
}

pub async fn a_partial_pack_is_well(lab: Lab) {
    // rules 7.4, 11.3 and 13.1
    let worker = lab.worker("w").await;
    let (id, _, _) = woken(&lab, worker).await;
    lab.step(worker, wait(&["a", "b"], None)).await;
    let repaired = lab.repair(id).await;
    assert_eq!(repaired, abide_core::model::Operated::RepairNotNeeded);
}

pub async fn a_signal_that_came_while_the_step_ran_wakes_it_when_it_waits_again(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let (id, a, _) = woken(&lab, worker).await;
    let claimed = lab.claim(worker).await;
    let meanwhile = lab.signal(id, "a").await;
    lab.commit(claimed.claim, wait(&["a", "b"], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Signal);
    assert_eq!(command_ids(&claimed.awaited), [a.id, meanwhile.id]);
    assert_eq!(
        lab.commit(claimed.claim, wait(&["a", "b"], None)).await,
        abide_core::model::Committed::Moved(Status::AwaitingSignal)
    );
}

pub async fn a_signal_that_came_between_the_wake_and_the_claim_is_handed_too(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let (id, a, _) = woken(&lab, worker).await;
    let b = lab.signal(id, "b").await;
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [a.id, b.id]);
}

pub async fn waiting_for_another_name_is_woken_by_what_was_buffered(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let (_, _, x) = woken(&lab, worker).await;
    assert_eq!(
        lab.step(worker, wait(&["x", "a"], None)).await,
        Status::Runnable
    );
    let claimed = lab.claim(worker).await;
    assert!(command_ids(&claimed.awaited).contains(&x.id));
    assert_eq!(
        claimed.awaited.len(),
        2,
        "what it was handed stays in the pack"
    );
}

pub async fn what_was_handed_for_one_name_wakes_a_later_wait_for_it(lab: Lab) {
    // rules 7.2 and 7.4
    let worker = lab.worker("w").await;
    let (id, a, _) = woken(&lab, worker).await;
    lab.step(worker, wait(&["b"], None)).await;
    lab.signal(id, "b").await;
    // The step for `b` was not handed the `a`, so it is new to it.
    assert_eq!(lab.step(worker, wait(&["a"], None)).await, Status::Runnable);
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [a.id]);
}

pub async fn a_worker_that_dies_with_a_pack_leaves_it_whole(lab: Lab) {
    // rules 1.1 and 7.4
    let worker = lab.worker("w").await;
    let (_, a, _) = woken(&lab, worker).await;
    lab.claim(worker).await;
    lab.pass(MINUTE);
    lab.reclaim().await;
    let worker = lab.worker("v").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (command_ids(&claimed.awaited), claimed.attempt),
        (vec![a.id], 1)
    );
}

pub async fn a_kept_step_is_handed_nothing_of_the_one_before(lab: Lab) {
    // rules 4.1 and 4.3
    let worker = lab.worker("w").await;
    let (id, _, x) = woken(&lab, worker).await;
    let claimed = lab.claim(worker).await;
    let kept = lab
        .commit_all(vec![super::build::keep(claimed.claim, next("b"))])
        .await
        .pop();
    let Some(abide_core::model::Committed::Kept(claim, _)) = kept else {
        panic!("{kept:?}")
    };
    let late = lab.signal(id, "a").await;
    lab.commit(claim, next("c")).await;
    assert_eq!(lab.inbox(id).await, [x.id, late.id]);
}

pub async fn a_stale_commit_beside_the_good_one_does_not_consume_twice(lab: Lab) {
    // rules 1.3 and 4.1
    // Found by random programs: each of the two read the inbox, and what both saw was consumed, and counted, twice.
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let a = lab.signal(id, "a").await;
    let stale = lab.claim(worker).await.claim;
    lab.run(crate::Op::GiveBack(vec![stale.again()])).await;
    let claim = lab.claim(worker).await.claim;
    let late = lab.signal(id, "a").await;
    let committed = lab
        .commit_all(vec![
            super::build::commit(stale, next("x")),
            super::build::commit(claim, next("x")),
        ])
        .await;
    assert_eq!(committed[0], abide_core::model::Committed::Stale);
    assert_eq!(lab.inbox(id).await, [late.id]);
    assert_eq!(lab.get(id).await.inbox.signals, 1);
    assert_eq!(lab.record(a.id).await.status, CommandStatus::Applied);
}

pub async fn a_wait_that_names_a_signal_twice_is_handed_it_once(lab: Lab) {
    // rule 7.4
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "a"], None).await;
    let a = lab.signal(id, "a").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [a.id]);
    lab.commit(claimed.claim, next("x")).await;
    assert_eq!(lab.get(id).await.inbox.signals, 0);
}

pub async fn each_of_a_batch_consumes_its_own(lab: Lab) {
    // rule 4.1
    let worker = lab.worker("w").await;
    let one = lab.parked(worker, plain(), &["a"], None).await;
    let two = lab.parked(worker, plain(), &["a"], None).await;
    lab.deliver_all(vec![signal(one, "a"), signal(two, "a"), signal(two, "b")])
        .await;
    let claimed = lab.claim_some(worker, 2).await;
    assert!(claimed.iter().all(|each| each.awaited.len() == 1));
    let commits = claimed
        .into_iter()
        .map(|each| super::build::commit(each.claim, next("x")))
        .collect();
    lab.commit_all(commits).await;
    assert_eq!(lab.inbox(one).await.len(), 0);
    assert_eq!(lab.inbox(two).await.len(), 1);
}
