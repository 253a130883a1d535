//! A restarted run is handed the children that the failed step had joined.

use abide_core::model::{
    BarrierNumber, Committed, HistoryEvent, InstanceId, Operated, Outcome, ResumeKind, Status,
    WorkerId,
};

use super::build::{
    MINUTE, SECOND, continue_as_new, done, join, key, keyed, name, next, plain, retry, spawn, stop,
    urgent,
};
use super::lab::Lab;
use super::sweeping::sweep;
use crate::Op;

/// Starts a parent, whose two children end, and whose step that joins them fails.
async fn failed_join(lab: &Lab, worker: WorkerId) -> InstanceId {
    let parent = lab.start(keyed("parent")).await;
    lab.step(worker, spawn(vec![keyed("c1"), keyed("c2")]))
        .await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    lab.step(worker, stop("a child failed")).await;
    assert_eq!(lab.status(parent).await, Status::Failed);
    parent
}

/// Runs the next step, and returns the number of children that it was handed.
async fn joining(lab: &Lab, worker: WorkerId, outcome: Outcome) -> usize {
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, outcome).await;
    claimed.children.len()
}

async fn children(lab: &Lab, parent: InstanceId) -> Vec<InstanceId> {
    let children = lab.children(parent).await;
    children.iter().map(|child| child.id).collect()
}

pub async fn the_children_that_the_failed_step_joined_are_handed_again(lab: Lab) {
    // rules 11.2 and 10.2: the step was handed no children, and `done(ctx.children().len())` gave 0.
    let worker = lab.worker("w").await;
    let mut run = failed_join(&lab, worker).await;
    let joined = children(&lab, run).await;
    assert_eq!(joined.len(), 2);
    for round in 0..3 {
        let last = run;
        run = lab.restarted(last).await;
        assert_eq!(children(&lab, run).await, joined, "round {round}");
        assert!(
            children(&lab, last).await.is_empty(),
            "they have one parent"
        );
        let found = lab.get(run).await;
        assert_eq!(
            (found.status, found.family.pending, found.family.needed),
            (Status::Runnable, 0, 0)
        );
        let source = found.resume_source().map(|source| source.kind);
        assert_eq!(source, Some(ResumeKind::Children));
        let handed = lab
            .events(run)
            .await
            .into_iter()
            .find_map(|one| match one.what {
                HistoryEvent::HandedAgain {
                    run_id, children, ..
                } => Some((run_id, children)),
                _ => None,
            });
        assert_eq!(handed, Some((last, 2)));
        let claimed = lab.claim(worker).await;
        let ids: Vec<InstanceId> = claimed.children.iter().map(|child| child.id).collect();
        assert_eq!((claimed.claim.id(), ids), (run, joined.clone()));
        assert_eq!(claimed.joins, Some(BarrierNumber(1)));
        // A retry and another cause change nothing.
        lab.commit(claimed.claim, retry(0)).await;
        assert_eq!(joining(&lab, worker, stop("no")).await, 2, "round {round}");
        let found = lab.get(run).await;
        assert_eq!(
            (found.resume_source(), found.status),
            (None, Status::Failed)
        );
    }
    // It goes on, and its next barrier has children of its own.
    run = lab.restarted(run).await;
    lab.step(worker, spawn(vec![plain()])).await;
    lab.step(worker, done()).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.joins),
        (run, Some(BarrierNumber(2)))
    );
    assert_eq!(claimed.children.len(), 1);
    lab.commit(claimed.claim, done()).await;
    assert_eq!(children(&lab, run).await, joined, "on request");
}

pub async fn children_are_kept_for_a_run_that_may_be_handed_them(lab: Lab) {
    // rules 11.2 and 16.2
    let worker = lab.worker("w").await;
    let parent = lab.start(keyed("parent")).await;
    lab.step(worker, spawn(vec![keyed("c1"), keyed("c2")]))
        .await;
    lab.step(worker, done()).await;
    lab.step(worker, done()).await;
    lab.pass(MINUTE);
    lab.step(worker, stop("no")).await;
    // The children ended long before their parent failed.
    let before = lab.now() - SECOND;
    assert_eq!(sweep(&lab, before, None, 10).await.0, 0);
    assert_eq!(children(&lab, parent).await.len(), 2);
    let second = lab.restarted(parent).await;
    lab.pass(MINUTE);
    assert_eq!(
        sweep(&lab, lab.now(), None, 10).await.0,
        1,
        "the failed run"
    );
    assert!(lab.find(parent).await.is_none());
    assert_eq!(joining(&lab, worker, stop("no")).await, 2);
    let third = lab.restarted(second).await;
    lab.pass(MINUTE);
    assert_eq!(sweep(&lab, lab.now(), None, 10).await.0, 1);
    assert_eq!(joining(&lab, worker, done()).await, 2);
    assert_eq!(lab.status(third).await, Status::Done);
    lab.pass(MINUTE);
    assert_eq!(sweep(&lab, lab.now(), None, 10).await.0, 3, "all of them");
}

pub async fn a_child_that_was_restarted_first_is_waited_for(lab: Lab) {
    // rules 11.2 and 10.2: an operator restarts the child that failed, and then the parent that failed of it.
    let worker = lab.worker("w").await;
    let parent = failed_join(&lab, worker).await;
    let child = lab.restarted(key("c2")).await;
    // Its claim names the run that spawned it, and is good after that has given it to the next one.
    let held = lab.claim(worker).await;
    assert_eq!(held.claim.id(), child);
    let second = lab.restarted(parent).await;
    let found = lab.get(second).await;
    assert_eq!(
        (found.status, found.family.pending, found.family.needed),
        (Status::AwaitingChildren, 1, 1)
    );
    assert!(
        lab.claim_ids(worker, 1).await.is_empty(),
        "it waits for the child"
    );
    assert_eq!(
        lab.commit(held.claim.again(), continue_as_new("more"))
            .await,
        Committed::Moved(Status::Continued)
    );
    assert_eq!(
        lab.commit(held.claim, done()).await,
        Committed::Repeated(Status::Continued)
    );
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    let claimed = lab.claim(worker).await;
    let mut statuses: Vec<Status> = claimed.children.iter().map(|one| one.status).collect();
    statuses.sort_unstable();
    assert_eq!(
        (claimed.claim.id(), statuses),
        (second, vec![Status::Done, Status::Done])
    );
    lab.commit(claimed.claim, stop("no")).await;
    // One that has ended by then is not waited for.
    let third = lab.restarted(second).await;
    assert_eq!(joining(&lab, worker, done()).await, 2);
    assert_eq!(lab.status(third).await, Status::Done);
}

pub async fn children_that_were_missing_are_handed_as_they_are(lab: Lab) {
    // rules 11.2 and 10.3: the barrier had opened without them.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(
        worker,
        join(vec![urgent(1), urgent(9), urgent(9)], Some(1), None),
    )
    .await;
    lab.step(worker, done()).await;
    assert_eq!(joining(&lab, worker, stop("no")).await, 3);
    let second = lab.restarted(parent).await;
    let found = lab.get(second).await;
    assert_eq!((found.status, found.family.pending), (Status::Runnable, 2));
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.children.len()), (second, 3));
    // Their ends are counted there, and open nothing.
    lab.step(worker, done()).await;
    assert_eq!(lab.get(second).await.family.pending, 1);
    lab.commit(joined.claim, stop("no")).await;
    // One ended while no parent counted its end.
    lab.step(worker, done()).await;
    let third = lab.restarted(second).await;
    assert_eq!(lab.get(third).await.family.pending, 0);
    assert_eq!(joining(&lab, worker, done()).await, 3);
}

pub async fn a_deadline_at_a_barrier_is_reported_again(lab: Lab) {
    // rules 11.2 and 10.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, join(vec![urgent(9)], None, Some(1_000)))
        .await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(joining(&lab, worker, stop("late")).await, 1);
    let second = lab.restarted(parent).await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.children.len()), (second, 1));
    assert!(claimed.timed_out);
}

pub async fn a_step_that_joined_nothing_is_handed_no_children(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(-1)])).await;
    lab.step(worker, done()).await;
    lab.step(worker, next("later")).await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(parent).await;
    assert!(!lab.kinds(second).await.contains(&"handed_again"));
    assert_eq!(joining(&lab, worker, stop("no")).await, 0);
    assert_eq!(children(&lab, parent).await.len(), 1, "they stay");
    // Neither is another step than the one that failed.
    let parent = failed_join(&lab, worker).await;
    let op = Op::Restart(vec![(parent.into(), Some(name("elsewhere")))]);
    assert!(matches!(lab.operate(op).await, Operated::Restarted { .. }));
    assert_eq!(joining(&lab, worker, done()).await, 0);
    assert_eq!(children(&lab, parent).await.len(), 2);
}
