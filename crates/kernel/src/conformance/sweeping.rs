//! Sweeping: what has ended is deleted when its time is over, a batch at a time.

use abide_core::model::{BarrierNumber, InstanceId, Scope, Start, Started, Status, Timestamp};

use super::build::{
    MINUTE, SECOND, done, join, key, keyed, many, next, plain, spawn, stop, urgent,
};
use super::lab::Lab;
use crate::{Answer, Cursor, Op, SweepRequest};

async fn sweep(
    lab: &Lab,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> (usize, Option<Cursor>) {
    match lab
        .run(Op::Sweep(SweepRequest {
            before,
            after,
            limit,
        }))
        .await
    {
        Answer::Swept { deleted, next } => (deleted, next),
        other => panic!("a sweep is not answered with {other:?}"),
    }
}

/// Sweeps to the end of the pass; how many were deleted by each batch.
async fn sweep_all(lab: &Lab, limit: usize) -> Vec<usize> {
    let (mut counts, mut cursor) = (Vec::new(), None);
    loop {
        let (deleted, next) = sweep(lab, lab.now(), cursor, limit).await;
        counts.push(deleted);
        match next {
            Some(_) => cursor = next,
            None => return counts,
        }
    }
}

async fn there(lab: &Lab, ids: &[InstanceId]) -> Vec<bool> {
    let mut found = Vec::new();
    for id in ids {
        found.push(lab.find(*id).await.is_some());
    }
    found
}

pub async fn what_ended_before_that_moment_is_deleted_with_its_history(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    let started = lab.start_all(many(4)).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    lab.step(worker, stop("no")).await;
    lab.pass(SECOND);
    let before = lab.now();
    lab.step(worker, done()).await;
    lab.pass(MINUTE);
    assert_eq!(sweep(&lab, before, None, 100).await, (2, None));
    assert_eq!(there(&lab, &started).await, [false, false, true, true]);
    assert!(
        lab.store
            .history(started[0], 0, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(lab.kinds(started[2]).await, ["step_completed", "done"]);
    assert_eq!(sweep(&lab, before, None, 100).await, (0, None));
}

pub async fn what_has_not_ended_is_never_deleted(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    let started = lab.start_all(many(3)).await;
    lab.step(worker, super::build::wait(&["s"], None)).await;
    lab.claim(worker).await;
    lab.pass(MINUTE * 60 * 24 * 3650);
    assert_eq!(sweep_all(&lab, 10).await, [0]);
    assert_eq!(there(&lab, &started).await, [true; 3]);
}

pub async fn sweeping_is_bounded_and_goes_on_where_it_stopped(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    lab.start_all(many(25)).await;
    for one in lab.claim_some(worker, 25).await {
        lab.commit(one.claim, done()).await;
    }
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [10, 10, 5]);
}

pub async fn a_child_is_spared_while_its_parent_is_waiting_to_join_it(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("a"), keyed("b"), keyed("c")]))
        .await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    lab.pass(MINUTE);
    assert_eq!(sweep_all(&lab, 10).await, [0]);
    lab.step(worker, done()).await;
    lab.pass(MINUTE);
    assert_eq!(
        sweep_all(&lab, 10).await,
        [0],
        "the barrier is open, but nobody has read it"
    );
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.children.len()), (parent, 3));
    lab.commit(joined.claim, done()).await;
    assert_eq!(
        sweep_all(&lab, 10).await,
        [3],
        "the parent has ended only now"
    );
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
}

pub async fn those_that_are_spared_do_not_hold_up_the_pass(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    lab.start(urgent(9)).await;
    lab.step(worker, join(vec![urgent(1); 6], None, None)).await;
    for one in lab.claim_some(worker, 5).await {
        lab.commit(one.claim, done()).await;
    }
    lab.pass(SECOND);
    let last = lab.start(plain()).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 2).await.iter().sum::<usize>(), 1);
    assert!(lab.find(last).await.is_none());
}

pub async fn a_child_of_an_earlier_barrier_is_not_spared(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("early")])).await;
    lab.step(worker, done()).await;
    lab.step(worker, spawn(vec![keyed("late")])).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
    assert!(lab.find(key("early")).await.is_none() && lab.find(key("late")).await.is_some());
    assert!(
        lab.store
            .children(parent, BarrierNumber(1))
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn a_child_whose_parent_was_deleted_ends_quietly(lab: Lab) {
    // rules 10.3 and 16.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(vec![urgent(5)], Some(0), None)).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
    assert!(lab.find(parent).await.is_none());
    let child = lab.claim(worker).await;
    assert_eq!(child.claim.parent().map(|parent| parent.id), Some(parent));
    lab.commit(child.claim, next("b")).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
}

pub async fn deleting_frees_a_key_that_was_held_for_good(lab: Lab) {
    // rules 2.2 and 16.2
    let worker = lab.worker("w").await;
    let always = Start {
        scope: Scope::ALWAYS,
        ..keyed("k")
    };
    let holder = lab.start(always.clone()).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(
        lab.starts(vec![always.clone()]).await,
        [Ok(Started::Duplicate(holder))]
    );
    sweep_all(&lab, 10).await;
    assert!(lab.find(key("k")).await.is_none());
    let heir = lab.start(always).await;
    assert!(heir > holder, "an id is never given twice");
}
