//! Waiting: an instance that parks, and what wakes it.

use abide_core::model::{Cause, Committed, Status, WaitKind};

use super::build::{MINUTE, SECOND, commit, name, next, plain, retry, wait};
use super::lab::{Lab, OVER_LEASE};

pub async fn a_wait_for_time_alone_is_scheduled_and_then_times_out(lab: Lab) {
    // rules 3.1 and 6.5
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(
        lab.step(worker, wait(&[], Some(60_000))).await,
        Status::Scheduled
    );
    let (since, due) = (lab.now(), lab.now() + MINUTE);
    let found = lab.get(id).await;
    assert_eq!(
        (found.wait_kind(), found.wait_since(), found.due_at),
        (Some(WaitKind::Timer), Some(since), Some(due))
    );
    assert_eq!(
        (found.step.as_str(), found.step_seq, found.attempt),
        ("woken", 2, 0)
    );
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.cause, claimed.timed_out, claimed.due_at),
        (Cause::Timeout, true, due)
    );
    assert_eq!(
        (
            claimed.step.as_str(),
            claimed.attempt,
            claimed.state.as_str()
        ),
        ("woken", 0, "{\"waits\":1}")
    );
}

pub async fn a_wait_for_signals_is_parked_until_its_deadline(lab: Lab) {
    // rule 3.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(
        lab.step(worker, wait(&["paid", "cancelled"], Some(60_000)))
            .await,
        Status::AwaitingSignal
    );
    let found = lab.get(id).await;
    assert_eq!(
        (found.wait_kind(), found.wait_since()),
        (Some(WaitKind::Signal), Some(lab.now()))
    );
    assert_eq!(
        (found.awaited().to_vec(), found.due_at),
        (
            vec![name("paid"), name("cancelled")],
            Some(lab.now() + MINUTE)
        )
    );
    assert!(lab.claim_some(worker, 1).await.is_empty());
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.step.as_str(), claimed.timed_out, claimed.attempt),
        ("woken", true, 0)
    );
    lab.commit(claimed.claim, next("after")).await;
    let after = lab.get(id).await;
    assert_eq!(
        (after.timed_out, after.wait_kind(), after.wait_since()),
        (false, None, None)
    );
    assert!(after.awaited().is_empty());
}

pub async fn a_wait_without_a_deadline_is_due_never(lab: Lab) {
    // rule 3.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, wait(&["paid"], None)).await;
    lab.pass(MINUTE * 60 * 24 * 365);
    assert_eq!(
        (lab.fire().await, lab.status(id).await),
        (0, Status::AwaitingSignal)
    );
    assert_eq!(lab.store.next_due().await.unwrap(), None);
}

pub async fn a_step_that_timed_out_and_is_tried_again_still_knows_it(lab: Lab) {
    // rule 1.2
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, wait(&[], Some(1000))).await;
    lab.pass(SECOND);
    lab.fire().await;
    lab.step(worker, retry(1000)).await;
    lab.pass(SECOND);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.timed_out, claimed.cause, claimed.attempt),
        (true, Cause::Retry, 1)
    );
    let timed_out = lab
        .kinds(id)
        .await
        .into_iter()
        .filter(|kind| *kind == "timed_out")
        .count();
    assert_eq!(
        timed_out, 1,
        "its wait ended once, however often the step is tried"
    );
}

pub async fn a_late_wait_for_a_signal_beside_it_in_a_batch_ends_no_other_wait(lab: Lab) {
    // rules 1.3 and 7.2: what is pending is read for both of them at once.
    let dead = lab.worker("dead").await;
    let id = lab.start(plain()).await;
    let late = lab.claim(dead).await.claim;
    lab.pass(OVER_LEASE);
    let worker = lab.worker("w").await;
    assert_eq!(lab.reclaim().await, 1);
    let claim = lab.claim(worker).await.claim;
    lab.signal(id, "b").await;
    let waits = vec![
        commit(late, wait(&["b"], None)),
        commit(claim, wait(&["a"], None)),
    ];
    let answers = lab.commit_all(waits).await;
    let parked = Committed::Moved(Status::AwaitingSignal);
    assert_eq!(answers, [Committed::Stale, parked]);
    lab.signal(id, "a").await;
    let awaited = lab.claim(worker).await.awaited;
    assert_eq!(awaited.len(), 1);
    assert_eq!(awaited[0].name, name("a"));
}
