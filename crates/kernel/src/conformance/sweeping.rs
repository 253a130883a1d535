//! Sweeping: what has ended is deleted when its time is over, a batch at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::{InstanceId, Rejection, Scope, Start, Started, Status, Timestamp, Verdict};

use super::build::{
    MINUTE, SECOND, continue_as_new, done, held, join, key, keyed, many, next, once, paying, plain,
    signal, spawn, stop, urgent, wait,
};
use super::coding::{Coded, awaiting_children, child_starts, workflow};
use super::eventing::{known_as, ordered};
use super::lab::Lab;
use crate::{Answer, CommandFilter, Cursor, EventFilter, Op, Store, SweepPass, SweepRequest};

pub(super) async fn sweep(
    lab: &Lab,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> (usize, Option<Cursor>) {
    let swept = swept(lab, before, after, limit).await;
    (swept.0, swept.2.filter(|_| swept.3))
}

/// Sweeps a hundred thousand old events, while instances are started one after the other: each batch is bounded, so no start
/// waits for long, and no event is left.
pub async fn sweep_beside_starts(store: Arc<dyn Store>) {
    let sweeping = tokio::spawn({
        let store = store.clone();
        async move {
            let mut pass = SweepPass::new(store.clock().now() - MINUTE * 60, None);
            let mut batches = 0;
            loop {
                let sent = Instant::now();
                let answers = store.run([pass.batch()].into()).await.unwrap();
                batches += 1;
                let took = sent.elapsed();
                if !pass.note(&answers, took).unwrap() {
                    return batches;
                }
                tokio::time::sleep(took).await;
            }
        }
    });
    let mut longest = Duration::ZERO;
    while !sweeping.is_finished() {
        let sent = Instant::now();
        let start = Op::Start(many(1));
        store.run([start].into()).await.unwrap();
        longest = longest.max(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let batches = sweeping.await.unwrap();
    assert!(batches >= 200, "each batch is bounded: {batches}");
    assert!(longest < SECOND * 2, "a start took {longest:?}");
    let left = store.events(&EventFilter::default(), None, 10).await;
    assert!(left.unwrap().items.is_empty());
    store.close().await;
}

/// The number of deleted and of spared instances, the cursor, and true if there may be more.
async fn swept(
    lab: &Lab,
    before: Timestamp,
    after: Option<Cursor>,
    limit: usize,
) -> (usize, usize, Option<Cursor>, bool) {
    let request = SweepRequest {
        before,
        after,
        limit,
    };
    match lab.run(Op::Sweep(request)).await {
        Answer::Swept {
            deleted,
            spared,
            next,
            more,
        } => (deleted, spared, next, more),
        other => panic!("a sweep is not answered with {other:?}"),
    }
}

/// Sweeps to the end of the pass; how many were deleted by each batch.
async fn sweep_all(lab: &Lab, limit: usize) -> Vec<usize> {
    sweep_after(lab, None, limit).await.0
}

/// Sweeps from a cursor to the end of the pass; how many were deleted by each batch, and how far it came.
async fn sweep_after(
    lab: &Lab,
    after: Option<Cursor>,
    limit: usize,
) -> (Vec<usize>, Option<Cursor>) {
    let (mut counts, mut cursor) = (Vec::new(), after);
    loop {
        let (deleted, _, next, more) = swept(lab, lab.now(), cursor, limit).await;
        counts.push(deleted);
        cursor = next;
        assert!(counts.len() < 1_000, "a pass has an end: {counts:?}");
        if !more {
            return (counts, cursor);
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
        "the barrier is open, but was not read"
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

pub async fn a_child_of_an_earlier_barrier_is_spared_while_its_parent_lives(lab: Lab) {
    // rules 10.2 and 16.2: the children of earlier barriers are available on request.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("early")])).await;
    lab.step(worker, done()).await;
    lab.step(worker, spawn(vec![keyed("late")])).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [0]);
    let early = lab.children(parent).await;
    assert_eq!(early.len(), 1);
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [3]);
}

pub async fn the_children_of_a_workflow_are_spared_while_it_lives(lab: Lab) {
    // rules 15.3 and 16.2: a sweep deleted the finished tasks of a graph that was still waiting, and the run got the
    // answer that their keys had been taken.
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(2))
        .starts(1, child_starts(2), 2)
        .starts(2, child_starts(1), 1);
    let run = lab.coded(worker, workflow(), turn).await;
    lab.end_children(worker, 2).await;
    lab.pass(MINUTE);
    assert_eq!(sweep_all(&lab, 10).await, [0]);
    let first = lab.children(run).await;
    assert_eq!(first.len(), 2);
}

pub async fn a_grandchild_is_spared_while_anybody_above_it_lives(lab: Lab) {
    // rule 16.2: at any depth.
    let worker = lab.worker("w").await;
    lab.start(urgent(9)).await;
    lab.step(worker, spawn(vec![urgent(8), urgent(9)])).await;
    for priority in [7, 6, 5] {
        lab.step(worker, spawn(vec![urgent(priority)])).await;
    }
    for _ in 0..4 {
        lab.step(worker, done()).await;
        lab.pass(SECOND);
    }
    assert_eq!(sweep_all(&lab, 10).await, [0], "the head of them all lives");
    let (_, spared, ..) = swept(&lab, lab.now(), None, 10).await;
    assert_eq!(spared, 4);
    lab.step(worker, done()).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(sweep_all(&lab, 10).await, [6]);
}

pub async fn runs_that_others_follow_are_not_spared(lab: Lab) {
    // rules 2.4 and 16.2: a child that goes on for ever under a parent that lives leaves nothing behind.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("child")])).await;
    let first = lab.find(key("child")).await.unwrap().id;
    lab.step(worker, spawn(vec![urgent(-1)])).await;
    lab.step(worker, done()).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    assert_eq!(
        sweep_all(&lab, 10).await,
        [3],
        "two runs, and the child of one"
    );
    assert!(lab.find(first).await.is_none());
    let children = lab.children(parent).await;
    assert_eq!(children.len(), 1, "the last one is what the parent joins");
}

pub async fn a_family_goes_when_its_head_does_and_in_batches(lab: Lab) {
    // rule 16.2: what was spared is not read again by each pass, and goes all the same.
    let worker = lab.worker("w").await;
    let parent = lab.start(urgent(9)).await;
    lab.step(worker, spawn(vec![urgent(1); 25])).await;
    for one in lab.claim_some(worker, 25).await {
        lab.commit(one.claim, done()).await;
    }
    lab.pass(SECOND);
    let (counts, reached) = sweep_after(&lab, None, 10).await;
    assert_eq!(counts, [0, 0, 0]);
    let (_, spared, ..) = swept(&lab, lab.now(), reached, 10).await;
    assert_eq!(spared, 0, "they are behind");
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    let (counts, _) = sweep_after(&lab, reached, 10).await;
    assert_eq!(counts.iter().sum::<usize>(), 26);
    assert!(counts.iter().all(|count| *count <= 20), "{counts:?}");
    assert!(lab.find(parent).await.is_none());
}

pub async fn a_deep_family_goes_in_batches(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    let (depths, mut count) = (12, 1);
    let mut generation = lab.claim_some(worker, 1).await;
    for depth in 1..=depths {
        let below = if depth % 3 == 0 { 4 } else { 1 };
        let heir = generation.remove(0);
        for other in generation {
            lab.commit(other.claim, done()).await;
        }
        lab.commit(heir.claim, spawn(vec![urgent(-depth); below]))
            .await;
        generation = lab.claim_some(worker, below).await;
        assert_eq!(generation.len(), below);
        count += below;
    }
    for one in generation {
        lab.commit(one.claim, done()).await;
    }
    for _ in 1..depths {
        lab.step(worker, done()).await;
    }
    lab.pass(SECOND);
    let (counts, reached) = sweep_after(&lab, None, 3).await;
    assert_eq!(
        counts.iter().sum::<usize>(),
        0,
        "the head of them all lives"
    );
    lab.step(worker, done()).await;
    lab.pass(SECOND);
    let (counts, _) = sweep_after(&lab, reached, 3).await;
    assert_eq!(counts.iter().sum::<usize>(), count);
    assert!(counts.iter().all(|count| *count <= 6), "{counts:?}");
}

pub async fn dedup_keys_outlive_the_runs_of_their_chain(lab: Lab) {
    // rules 2.4, 7.3 and 16.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let paid = lab.accept(once("d", paying(key("k"), "a", "1"))).await;
    let loose = lab.accept(paying(key("k"), "a", "2")).await;
    lab.step(worker, wait(&["a"], None)).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.pass(MINUTE);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
    assert!(lab.find(first).await.is_none());
    assert!(lab.store.records(&[loose.id]).await.unwrap().is_empty());
    let again = lab.deliver(once("d", paying(key("k"), "a", "1"))).await;
    assert!(again.duplicate, "{again:?}");
    assert_eq!(again.record.map(|record| record.id), Some(paid.id));
    let other = lab.deliver(once("d", paying(key("k"), "a", "3"))).await;
    assert_eq!(
        other.verdict,
        Verdict::Rejected(Rejection::ConflictingDuplicate)
    );
    let of_chain = CommandFilter {
        chain: Some(first),
        ..CommandFilter::default()
    };
    let of_key = CommandFilter {
        key: Some(key("k")),
        ..CommandFilter::default()
    };
    for filter in [of_chain, of_key] {
        let listed = lab.records(filter).await;
        assert!(
            listed.iter().all(|one| one.id != paid.id),
            "what is kept of a deleted run is in no list: {listed:?}"
        );
    }
    assert_eq!(lab.record(paid.id).await.id, paid.id);
    lab.step(worker, done()).await;
    lab.pass(MINUTE);
    assert_eq!(sweep_all(&lab, 10).await, [1]);
    assert!(lab.records(CommandFilter::default()).await.is_empty());
}

pub async fn a_long_life_is_deleted_in_several_batches(lab: Lab) {
    // rule 16.2
    let worker = lab.worker("w").await;
    let long = lab.start(urgent(1)).await;
    let short = lab.start(urgent(2)).await;
    lab.step(worker, done()).await;
    lab.step(worker, done()).await;
    for _ in 0..5 {
        lab.deliver_all(vec![signal(long, "late"); 250]).await;
    }
    lab.pass(SECOND);
    let counts = sweep_all(&lab, 10).await;
    assert_eq!(counts, [0, 2], "what belongs to it comes first");
    assert_eq!(there(&lab, &[long, short]).await, [false, false]);
    assert!(lab.records(CommandFilter::default()).await.is_empty());
}

pub async fn a_pass_goes_on_until_nothing_that_has_expired_is_left(lab: Lab) {
    // rule 16.2: at most 500 events were deleted in a minute, and the table grew for ever.
    let worker = lab.worker("w").await;
    for at in 0..4 {
        let events = (0..300).map(|n| known_as(&format!("e{at}-{n}"), ordered(n)));
        lab.publish_all(events.collect()).await;
        let signals = (0..300).map(|n| held(&format!("k{at}-{n}"), "s", SECOND));
        lab.deliver_all(signals.collect()).await;
    }
    lab.start_all(many(3)).await;
    for _ in 0..3 {
        lab.step(worker, done()).await;
    }
    lab.pass(MINUTE);
    let mut pass = SweepPass::new(lab.now(), None);
    let mut batches = 0;
    loop {
        let answer = lab.run(pass.batch()).await;
        batches += 1;
        if !pass.note(&[answer], SECOND / 40).unwrap() {
            break;
        }
    }
    assert_eq!(pass.deleted(), 3);
    assert!(lab.published().await.is_empty());
    assert!(lab.records(CommandFilter::default()).await.is_empty());
    assert!((3..=6).contains(&batches), "{batches} batches");
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
