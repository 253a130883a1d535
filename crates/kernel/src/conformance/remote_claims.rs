//! Claims that have a lease of their own: of workers that name what they hold.

use std::time::Duration;

use abide_core::model::{
    Cause, Claim, Claimed, Committed, Heartbeat, HistoryEvent, InstanceId, Operated, ParentRef,
    Start, Status, Timestamp, WorkerId,
};

use super::build::{
    MINUTE, SECOND, answer, cancelling, done, keep, key, keyed, lane, later, many, name, next,
    plain, spawn, updates, wait, within,
};
use super::lab::{Lab, ids};
use crate::{Answer, ClaimRequest, Extension, NewWorker, Op};

/// The lease of the claims of these tests.
const SHORT: Duration = Duration::from_secs(10);

/// Claims under leases.
pub(super) async fn lease(
    lab: &Lab,
    worker: WorkerId,
    limit: usize,
    lease: Duration,
) -> Vec<Claimed> {
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane("m", 1)],
        limit,
        lease: Some(lease),
    };
    match lab.run(Op::Claim(request)).await {
        Answer::Claimed(claimed) => claimed,
        other => panic!("a claim is not answered with {other:?}"),
    }
}

/// Claims the first there is.
pub(super) async fn lease_one(lab: &Lab, worker: WorkerId) -> Claimed {
    let mut claimed = lease(lab, worker, 1, SHORT).await;
    claimed.pop().expect("something is runnable")
}

/// Says of claims that they are still held.
pub(super) async fn extend(lab: &Lab, claims: &[&Claim]) -> Vec<Heartbeat> {
    let claims = claims.iter().map(|claim| Extension {
        claim: claim.again(),
        lease: SHORT,
    });
    match lab.run(Op::Extend(claims.collect())).await {
        Answer::Extended(beats) => beats,
        other => panic!("a heartbeat is not answered with {other:?}"),
    }
}

/// Makes a worker known that may be known already.
pub(super) async fn enlist(lab: &Lab, text: &str, lease: Duration) -> WorkerId {
    let worker = NewWorker {
        name: name(text),
        lease,
        queues: vec![name("default")],
        lanes: vec![lane("m", 1)],
        build: None,
    };
    match lab.run(Op::Enlist(worker)).await {
        Answer::Registered(worker) => worker.id,
        other => panic!("a worker is not enlisted with {other:?}"),
    }
}

async fn next_due(lab: &Lab) -> Option<Timestamp> {
    lab.store.next_due().await.unwrap()
}

async fn believed_until(lab: &Lab, worker: WorkerId) -> Timestamp {
    let workers = lab.store.workers().await.unwrap();
    let worker = workers.iter().find(|one| one.id == worker);
    worker.expect("the worker lives").lease_until
}

pub async fn a_claim_whose_lease_runs_out_is_taken_back_once(lab: Lab) {
    // rule 5.3
    let (lost, heir) = (enlist(&lab, "lost", SHORT).await, lab.worker("heir").await);
    let id = lab.start(plain()).await;
    let claimed = lease_one(&lab, lost).await;
    lab.pass(SHORT - SECOND);
    assert_eq!(lab.fire().await, 0);
    assert_eq!(lab.status(id).await, Status::Executing);
    lab.pass(SECOND);
    assert_eq!((lab.fire().await, lab.fire().await), (1, 0));
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.attempt, found.cause, found.worker),
        (Status::Runnable, 1, Cause::Reclaim, None)
    );
    let events = lab.events(id).await;
    assert_eq!(
        events.last().unwrap().what,
        HistoryEvent::Reclaimed {
            step: name("start"),
            attempt: 1,
            worker: name("lost"),
            deaths: 1,
            due_at: None,
            folded: None,
        }
    );
    assert_eq!(lab.commit(claimed.claim, done()).await, Committed::Stale);
    assert_eq!(lab.step(heir, done()).await, Status::Done);
    assert_eq!((lab.fire().await, lab.reclaim().await), (0, 0));
}

pub async fn a_heartbeat_keeps_the_claims_that_it_names_and_no_others(lab: Lab) {
    // rule 6.4: a claim whose answer got lost is not named by any heartbeat, and expires.
    let worker = enlist(&lab, "w", SHORT).await;
    let started = lab.start_all(many(3)).await;
    let claimed = lease(&lab, worker, 3, SHORT).await;
    for _ in 0..4 {
        lab.pass(SHORT / 2);
        let named = [&claimed[0].claim, &claimed[2].claim];
        assert_eq!(extend(&lab, &named).await, [Heartbeat::Renewed; 2]);
        lab.fire().await;
        assert_eq!(lab.reclaim().await, 0, "the worker lives");
    }
    let mut attempts = Vec::new();
    for id in &started {
        let found = lab.get(*id).await;
        attempts.push((found.status, found.attempt));
    }
    let kept = (Status::Executing, 0);
    assert_eq!(attempts, [kept, (Status::Runnable, 1), kept]);
    for one in claimed {
        let status = match one.claim.id() == started[1] {
            true => Committed::Stale,
            false => Committed::Moved(Status::Done),
        };
        assert_eq!(lab.commit(one.claim, done()).await, status);
    }
}

pub async fn a_claim_that_has_run_out_is_not_extended(lab: Lab) {
    // rules 1.3 and 6.4
    let worker = enlist(&lab, "w", MINUTE).await;
    lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    lab.pass(SHORT);
    assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Lost]);
    lab.fire().await;
    assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Lost]);
    let anew = lease_one(&lab, worker).await;
    let both = [&claimed.claim, &anew.claim];
    assert_eq!(
        extend(&lab, &both).await,
        [Heartbeat::Lost, Heartbeat::Renewed],
        "each is answered for itself"
    );
    lab.commit(anew.claim.again(), done()).await;
    assert_eq!(extend(&lab, &[&anew.claim]).await, [Heartbeat::Lost]);
}

pub async fn a_claim_that_was_not_taken_back_may_still_be_committed(lab: Lab) {
    // rule 1.1: the step has begun nowhere else, so its outcome is as good as ever.
    let worker = enlist(&lab, "w", SHORT).await;
    lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    lab.pass(MINUTE);
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
    assert_eq!((lab.fire().await, next_due(&lab).await), (0, None));
}

pub async fn the_next_due_time_knows_of_leases(lab: Lab) {
    // rule 6.5
    let worker = enlist(&lab, "w", SHORT).await;
    let begin = lab.now();
    lab.start_all(many(2)).await;
    lab.claim(worker).await;
    assert_eq!(next_due(&lab).await, None, "this one is the worker's");
    let claimed = lease_one(&lab, worker).await;
    assert_eq!(next_due(&lab).await, Some(begin + SHORT));
    lab.start(later(SECOND)).await;
    assert_eq!(next_due(&lab).await, Some(begin + SECOND));
    lab.pass(SECOND * 2);
    assert_eq!(lab.fire().await, 1);
    extend(&lab, &[&claimed.claim]).await;
    assert_eq!(next_due(&lab).await, Some(lab.now() + SHORT));
    lab.commit(claimed.claim, wait(&["s"], None)).await;
    assert_eq!(next_due(&lab).await, None);
}

pub async fn listeners_are_notified_when_a_lease_will_expire(lab: Lab) {
    // rule 6.5
    let worker = enlist(&lab, "w", MINUTE).await;
    lab.start(plain()).await;
    let mut listener = lab.store.listen();
    lease_one(&lab, worker).await;
    let until = lab.now() + SHORT;
    loop {
        let effects = listener.next().await.expect("the store is open");
        if effects.anything || effects.due.is_some_and(|due| due <= until) {
            break;
        }
    }
}

pub async fn a_worker_is_believed_in_as_long_as_what_it_holds(lab: Lab) {
    // rule 6.4
    let worker = enlist(&lab, "w", SECOND).await;
    lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    assert_eq!(believed_until(&lab, worker).await, lab.now() + SHORT);
    lab.pass(SHORT - SECOND);
    extend(&lab, &[&claimed.claim]).await;
    assert_eq!(believed_until(&lab, worker).await, lab.now() + SHORT);
    lab.pass(SHORT - SECOND);
    assert_eq!(lab.reclaim().await, 0);
    let long = enlist(&lab, "long", MINUTE).await;
    lab.start(plain()).await;
    let claimed = lease_one(&lab, long).await;
    extend(&lab, &[&claimed.claim]).await;
    assert_eq!(
        believed_until(&lab, long).await,
        lab.now() + MINUTE,
        "no lease gets shorter"
    );
}

pub async fn a_heartbeat_makes_no_lease_shorter(lab: Lab) {
    // rule 6.4
    let worker = enlist(&lab, "w", MINUTE).await;
    lab.start(plain()).await;
    let claimed = lease(&lab, worker, 1, MINUTE).await.remove(0);
    extend(&lab, &[&claimed.claim]).await;
    assert_eq!(next_due(&lab).await, Some(lab.now() + MINUTE));
    lab.pass(MINUTE - SECOND);
    assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Renewed]);
    assert_eq!(next_due(&lab).await, Some(lab.now() + SHORT));
}

pub async fn the_end_of_a_hold_ends_its_lease(lab: Lab) {
    // rules 4 and 5.4: whatever ends it; what is claimed next by an engine has none.
    let (remote, engine) = (enlist(&lab, "r", MINUTE).await, lab.worker("e").await);
    let outcomes = [
        next("b"),
        super::build::retry(0),
        spawn(vec![keyed("child")]),
    ];
    for outcome in outcomes {
        lab.start(plain()).await;
        let claimed = lease_one(&lab, remote).await;
        lab.commit(claimed.claim, outcome).await;
        assert_eq!(next_due(&lab).await, None);
        while let Some(left) = lab.claim_some(engine, 1).await.pop() {
            assert_eq!(next_due(&lab).await, None);
            lab.commit(left.claim, done()).await;
        }
    }
    lab.start(plain()).await;
    let claimed = lease_one(&lab, remote).await;
    assert_eq!(lab.touch(Op::GiveBack(vec![claimed.claim])).await.0, 1);
    assert_eq!(next_due(&lab).await, None);
    let found = lab.claim(engine).await;
    assert_eq!((found.attempt, next_due(&lab).await), (0, None));
}

pub async fn a_hold_that_is_kept_keeps_its_lease(lab: Lab) {
    // rule 4.3
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    let until = lab.now() + SHORT;
    lab.pass(SECOND);
    let mut kept = lab.commit_all(vec![keep(claimed.claim, next("b"))]).await;
    let Some(Committed::Kept(claim, _)) = kept.pop() else {
        panic!("it should be kept")
    };
    assert_eq!(next_due(&lab).await, Some(until));
    assert_eq!(extend(&lab, &[&claim]).await, [Heartbeat::Renewed]);
    lab.pass(SHORT);
    assert_eq!(lab.fire().await, 1);
    let found = lab.get(id).await;
    assert_eq!((found.step.as_str(), found.attempt), ("b", 1));
    assert_eq!(lab.commit(claim, done()).await, Committed::Stale);
}

pub async fn what_comes_while_a_claim_is_held_leaves_its_lease(lab: Lab) {
    // rules 6.4 and 9.1
    lab.under(updates()).await;
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    let until = lab.now() + SHORT;
    lab.signal(id, "s").await;
    assert_eq!(next_due(&lab).await, Some(until));
    let update = lab.update(id).await;
    assert_eq!(next_due(&lab).await, Some(until));
    lab.commit(claimed.claim, wait(&["t"], None)).await;
    let aside = lease_one(&lab, worker).await;
    assert!(aside.aside && next_due(&lab).await == Some(until));
    lab.pass(SHORT);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(lab.get(id).await.attempt, 0, "the step was not tried");
    let aside = lease_one(&lab, worker).await;
    lab.commit(aside.claim, answer(&[update.id], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert_eq!(next_due(&lab).await, None);
}

pub async fn a_cancelled_instance_is_lost_to_its_remote_worker(lab: Lab) {
    // rule 11.1
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    let cancelled = lab.cancel(cancelling(id)).await;
    assert!(matches!(cancelled, Operated::Cancelled { .. }));
    assert_eq!(next_due(&lab).await, None);
    assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Lost]);
    assert_eq!(lab.commit(claimed.claim, done()).await, Committed::Stale);
    lab.pass(MINUTE);
    assert_eq!((lab.fire().await, lab.reclaim().await), (0, 0));
    assert_eq!(lab.status(id).await, Status::Cancelled);
}

pub async fn a_partition_is_freed_with_the_lease(lab: Lab) {
    // rule 6.3
    let worker = enlist(&lab, "w", MINUTE).await;
    let urgent = |priority| Start {
        priority: super::build::urgent(priority).priority,
        ..within("p")
    };
    let first = lab.start(urgent(5)).await;
    lease_one(&lab, worker).await;
    let second = lab.start(urgent(1)).await;
    assert!(lab.claim_ids(worker, 9).await.is_empty());
    lab.pass(SHORT);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(lab.claim_ids(worker, 9).await, [second], "in order");
    assert_eq!(lab.status(first).await, Status::Runnable);
}

pub async fn taking_leases_back_is_bounded_and_goes_before_what_is_due(lab: Lab) {
    // rule 16.3
    let worker = enlist(&lab, "w", MINUTE).await;
    let started = lab.start_all(many(5)).await;
    assert_eq!(ids(&lease(&lab, worker, 5, SHORT).await), started);
    lab.start_all(vec![later(SECOND); 3]).await;
    lab.pass(SHORT);
    assert_eq!(lab.touch(Op::Fire { limit: 3 }).await, (3, true));
    let runnable = async |id: InstanceId| lab.status(id).await == Status::Runnable;
    assert!(runnable(started[0]).await && runnable(started[2]).await);
    assert!(!runnable(started[3]).await);
    assert_eq!(lab.touch(Op::Fire { limit: 3 }).await, (3, true));
    assert_eq!(lab.touch(Op::Fire { limit: 3 }).await, (2, false));
}

pub async fn the_death_of_an_engine_takes_nothing_from_a_remote_worker(lab: Lab) {
    // rule 5.3
    let (remote, engine) = (enlist(&lab, "r", SHORT).await, lab.worker("e").await);
    lab.start_all(many(2)).await;
    lab.claim(engine).await;
    let claimed = lease(&lab, remote, 1, MINUTE * 5).await.remove(0);
    lab.pass(MINUTE * 2);
    assert_eq!((lab.fire().await, lab.reclaim().await), (0, 1));
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_claim_that_was_never_granted_is_lost_and_harms_nothing(lab: Lab) {
    // rule 1.3: claims come from outside, and may contain anything.
    let worker = enlist(&lab, "w", MINUTE).await;
    let other = lab.start(within("other")).await;
    let parent = lab.start(within("p")).await;
    lab.start(plain()).await;
    let claimed = lease(&lab, worker, 9, MINUTE).await;
    let mut claims = claimed.into_iter().map(|one| one.claim);
    let (held, spawning) = (claims.next().unwrap(), claims.next().unwrap());
    let lone = claims.next().unwrap();
    let child = within("c");
    lab.commit(spawning, spawn(vec![child])).await;
    let child = lease_one(&lab, worker).await.claim;
    let forge =
        |of: &Claim, partition: Option<&str>, parent: Option<(InstanceId, Option<&str>)>| {
            let partition = partition.map(key);
            let parent = parent.map(|(id, partition)| ParentRef {
                id,
                partition: partition.map(key),
            });
            Claim::granted(of.id(), of.epoch(), of.worker(), partition, parent)
        };
    let forged = [
        forge(&lone, Some("p"), None),
        forge(&lone, None, Some((parent, Some("p")))),
        forge(&held, None, None),
        forge(&held, Some("p"), None),
        forge(&child, Some("c"), None),
        forge(&child, Some("c"), Some((other, Some("other")))),
        forge(&child, None, Some((parent, Some("p")))),
        Claim::granted(lone.id(), lone.epoch(), WorkerId(99), None, None),
        Claim::granted(InstanceId(999), lone.epoch(), worker, None, None),
    ];
    let parents = [
        forge(&child, Some("c"), Some((parent, None))),
        forge(&child, Some("c"), Some((parent, Some("other")))),
    ];
    let all = [other, parent, lone.id(), child.id()];
    let mut before = Vec::new();
    for id in all {
        before.push((lab.get(id).await, lab.events(id).await));
    }
    let beats = extend(&lab, &forged.each_ref()).await;
    assert_eq!(beats, [Heartbeat::Lost; 9]);
    let back = forged.iter().map(Claim::again).collect();
    assert_eq!(lab.touch(Op::GiveBack(back)).await.0, 0);
    for claim in &forged {
        for outcome in [next("b"), done(), super::failing::fail("no")] {
            assert_eq!(lab.commit(claim.again(), outcome).await, Committed::Stale);
        }
    }
    for claim in &parents {
        assert_eq!(lab.commit(claim.again(), done()).await, Committed::Stale);
    }
    for (id, before) in all.into_iter().zip(before) {
        assert_eq!((lab.get(id).await, lab.events(id).await), before);
    }
    let good = [&held, &lone, &child];
    assert_eq!(extend(&lab, &good).await, [Heartbeat::Renewed; 3]);
    for claim in [held, lone, child] {
        assert_eq!(
            lab.commit(claim, done()).await,
            Committed::Moved(Status::Done)
        );
    }
    assert_eq!(lab.status(parent).await, Status::Runnable);
}
