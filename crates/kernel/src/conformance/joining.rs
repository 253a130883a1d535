//! Barriers: early opening, deadlines, and children that end late.

use abide_core::model::{BarrierNumber, Cause, Committed, HistoryEvent, Start, Status};

use super::build::{
    MINUTE, commit, done, join, keep, keyed, many, next, plain, spawn, stop, urgent, within,
};
use super::lab::Lab;

/// Children that come after whatever else there is.
fn slow(count: usize) -> Vec<Start> {
    vec![urgent(9); count]
}

pub async fn a_barrier_opens_early_when_at_least_k_have_ended(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(3), Some(2), None)).await;
    lab.step(worker, stop("no")).await;
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    lab.step(worker, done()).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.cause, found.family.pending),
        (Status::Runnable, Cause::Children, 1)
    );
    let joined = lab.claim(worker).await;
    let mut statuses: Vec<Status> = joined.children.iter().map(|child| child.status).collect();
    statuses.sort();
    assert_eq!(statuses, [Status::Runnable, Status::Done, Status::Failed]);
    assert!(!joined.timed_out);
}

pub async fn at_least_more_than_there_are_is_refused_and_changes_nothing(lab: Lab) {
    // rule 10.3: no number of ends could open such a barrier.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let before = lab.get(parent).await;
    for (children, wanted) in [(2, 60), (2, 3), (0, 1), (1, u32::MAX)] {
        let spawned = join(slow(children), Some(wanted), None);
        let refused = lab.commit(claimed.claim.again(), spawned).await;
        let Committed::Refused(refusal) = refused else {
            panic!("{wanted} of {children}: {refused:?}");
        };
        let text = refusal.to_string();
        let expected = format!("at least {wanted} of {children} children");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(lab.get(parent).await, before);
    }
    // The claim is as it was.
    let spawned = join(slow(2), Some(2), None);
    lab.commit(claimed.claim, spawned).await;
    lab.step(worker, done()).await;
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    lab.step(worker, done()).await;
    assert_eq!(lab.status(parent).await, Status::Runnable);
}

pub async fn at_least_as_many_as_were_inserted_is_enough_where_keys_were_taken(lab: Lab) {
    // rules 10.1 and 10.3
    let worker = lab.worker("w").await;
    let holder = lab.start(keyed("taken")).await;
    let parent = lab.start(urgent(-9)).await;
    let children = vec![keyed("taken"), keyed("free")];
    lab.step(worker, join(children, Some(2), None)).await;
    let found = lab.get(parent).await;
    assert_eq!((found.family.pending, found.family.needed), (1, 1));
    lab.step(worker, done()).await;
    assert_eq!(lab.status(holder).await, Status::Done);
    lab.step(worker, done()).await;
    assert_eq!(lab.status(parent).await, Status::Runnable);
}

pub async fn at_least_none_goes_straight_on_with_its_children_running(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    assert_eq!(
        lab.step(worker, join(slow(2), Some(0), None)).await,
        Status::Runnable
    );
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.children.len()), (parent, 2));
    assert_eq!(lab.get(parent).await.family.pending, 2);
}

pub async fn a_barrier_with_a_deadline_wakes_its_parent_with_what_there_is(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(2), None, Some(60_000))).await;
    assert_eq!(lab.get(parent).await.due_at, Some(lab.now() + MINUTE));
    assert_eq!(
        lab.store.next_due().await.unwrap(),
        Some(lab.now() + MINUTE)
    );
    lab.step(worker, done()).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let joined = lab.claim(worker).await;
    assert_eq!(
        (joined.claim.id(), joined.timed_out, joined.cause),
        (parent, true, Cause::Timeout)
    );
    assert_eq!((joined.joins, joined.attempt), (Some(BarrierNumber(1)), 0));
    let missing = joined
        .children
        .iter()
        .filter(|child| !child.status.is_terminal())
        .count();
    assert_eq!((joined.children.len(), missing), (2, 1));
    let timed_out = lab.events(parent).await.pop().unwrap().what;
    assert!(
        matches!(timed_out, HistoryEvent::TimedOut { deadline, .. } if deadline == lab.now()),
        "{timed_out:?}"
    );
}

pub async fn a_barrier_that_opened_in_time_does_not_time_out(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(1), None, Some(60_000))).await;
    lab.step(worker, done()).await;
    lab.pass(MINUTE * 2);
    assert_eq!(lab.fire().await, 0);
    assert!(!lab.claim(worker).await.timed_out);
    assert_eq!(lab.status(parent).await, Status::Executing);
}

pub async fn a_child_that_ends_late_is_recorded_and_opens_nothing(lab: Lab) {
    // rules 10.2 and 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(2), Some(1), None)).await;
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    let late = lab.claim(worker).await;
    lab.commit(late.claim, done()).await;
    let found = lab.get(parent).await;
    assert_eq!((found.status, found.family.pending), (Status::Executing, 0));
    assert_eq!(lab.kinds(parent).await.last(), Some(&"child_ended"));
    assert_eq!(
        lab.commit(joined.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_child_of_an_earlier_barrier_does_not_count_for_a_later_one(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(2), Some(1), None)).await;
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    let late = lab.claim(worker).await;
    lab.commit(joined.claim, spawn(slow(1))).await;
    lab.commit(late.claim, done()).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
    assert_eq!(found.family.barrier, BarrierNumber(2));
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    assert_eq!(
        (joined.joins, joined.children.len()),
        (Some(BarrierNumber(2)), 1)
    );
    assert_eq!(lab.children(parent).await.len(), 2);
}

pub async fn a_late_child_and_its_parent_can_commit_together(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let outcomes = [next("b"), spawn(slow(1)), done()];
    for outcome in outcomes {
        let parent = lab.start(plain()).await;
        lab.step(worker, join(slow(2), Some(1), None)).await;
        lab.step(worker, done()).await;
        let joined = lab.claim(worker).await.claim;
        // A step in between, so that nothing but the count of children would change in the row.
        let answer = lab
            .commit_all(vec![keep(joined, next("between"))])
            .await
            .pop();
        let Some(Committed::Kept(held, _)) = answer else {
            panic!("{answer:?}")
        };
        let late = lab.claim(worker).await.claim;
        let is_next = outcome == next("b");
        let pending = u32::from(outcome == spawn(slow(1)));
        lab.commit_all(vec![keep(held, outcome.clone()), commit(late, done())])
            .await;
        let found = lab.get(parent).await;
        assert_eq!(found.status == Status::Executing, is_next);
        if !found.status.is_terminal() {
            assert_eq!(found.family.pending, pending, "{outcome:?}");
        }
        while let Some(left) = lab.claim_some(worker, 1).await.pop() {
            lab.commit(left.claim, done()).await;
        }
    }
}

pub async fn a_child_may_outlive_its_parent(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(slow(1), Some(0), None)).await;
    let joined = lab.claim(worker).await;
    lab.commit(joined.claim, done()).await;
    let before = (lab.get(parent).await, lab.kinds(parent).await);
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    assert_eq!((lab.get(parent).await, lab.kinds(parent).await), before);
}

pub async fn a_parent_waits_for_its_partition_when_its_barrier_opens(lab: Lab) {
    // rules 6.3 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(within("p")).await;
    lab.step(worker, spawn(many(1))).await;
    let rival = lab
        .start(Start {
            priority: urgent(5).priority,
            ..within("p")
        })
        .await;
    let claimed = lab.claim_some(worker, 2).await;
    let [child, held] = claimed.as_slice() else {
        panic!("a parked parent holds no partition: {claimed:?}")
    };
    assert_eq!(
        (held.claim.id(), child.claim.parent().unwrap().id),
        (rival, parent)
    );
    assert_eq!(
        child.claim.parent().unwrap().partition,
        Some(super::build::key("p"))
    );
    lab.commit(child.claim.again(), done()).await;
    assert!(
        lab.claim_some(worker, 2).await.is_empty(),
        "its rival executes"
    );
    lab.commit(held.claim.again(), done()).await;
    assert_eq!(lab.claim_ids(worker, 2).await, [parent]);
}
