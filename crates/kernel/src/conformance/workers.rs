//! Workers: they come, live, die and sign off, and what they held goes back.

use abide_core::model::{
    Cause, Committed, Heartbeat, HistoryEvent, InstanceId, Status, Timestamp, WorkerId,
};

use super::build::{MINUTE, SECOND, done, lane, many, name, next, plain, urgent};
use super::lab::{LEASE, Lab, OVER_LEASE};
use crate::{Answer, Op};

async fn renew(lab: &Lab, worker: WorkerId) -> Heartbeat {
    match lab
        .run(Op::Renew {
            workers: vec![worker],
            lease: LEASE,
        })
        .await
    {
        Answer::Renewed { lost } if lost.is_empty() => Heartbeat::Renewed,
        Answer::Renewed { lost } => {
            assert_eq!(lost, [worker]);
            Heartbeat::Lost
        }
        other => panic!("a heartbeat is not answered with {other:?}"),
    }
}

async fn living(lab: &Lab) -> Vec<WorkerId> {
    let mut ids: Vec<_> = lab
        .store
        .workers()
        .await
        .unwrap()
        .iter()
        .map(|worker| worker.id)
        .collect();
    ids.sort();
    ids
}

pub async fn a_worker_is_known_as_it_registered(lab: Lab) {
    let worker = lab.register("w").await;
    assert_eq!((worker.name.as_str(), worker.started_at), ("w", lab.now()));
    assert_eq!(worker.lease_until, lab.now() + LEASE);
    assert_eq!(
        (&worker.queues, &worker.lanes),
        (&vec![name("default")], &vec![lane("m", 1)])
    );
    assert_eq!(lab.store.workers().await.unwrap(), [worker]);
}

pub async fn what_a_dead_worker_held_is_runnable_again_one_attempt_on(lab: Lab) {
    // rule 5.3
    let (dead, heir) = (lab.worker("dead").await, lab.worker("heir").await);
    let id = lab.start(urgent(3)).await;
    lab.step(dead, next("b")).await;
    let due_at = lab.get(id).await.due_at;
    lab.claim(dead).await;
    lab.pass(LEASE - SECOND);
    renew(&lab, heir).await;
    assert_eq!(lab.reclaim().await, 0);
    lab.pass(SECOND);
    assert_eq!(lab.reclaim().await, 1);
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.attempt, found.worker),
        (Status::Runnable, 1, None)
    );
    assert_eq!(
        (found.step.as_str(), found.step_seq, found.cause),
        ("b", 2, Cause::Reclaim)
    );
    assert_eq!(found.due_at, due_at, "it has its old position in the queue");
    assert_eq!(lab.reclaim().await, 0);
    let claimed = lab.claim(heir).await;
    assert_eq!(
        (claimed.claim.id(), claimed.attempt, claimed.step_seq),
        (id, 1, 2)
    );
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_worker_that_renews_keeps_what_it_holds(lab: Lab) {
    // rule 6.4
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(3)).await;
    lab.claim_some(worker, 3).await;
    for _ in 0..5 {
        lab.pass(LEASE - SECOND);
        assert_eq!(renew(&lab, worker).await, Heartbeat::Renewed);
        assert_eq!(lab.reclaim().await, 0);
    }
    for id in ids {
        assert_eq!(
            (lab.status(id).await, lab.get(id).await.attempt),
            (Status::Executing, 0)
        );
    }
}

pub async fn a_worker_whose_lease_ran_out_is_lost(lab: Lab) {
    // rule 5.3
    let worker = lab.worker("w").await;
    lab.pass(LEASE);
    assert_eq!(renew(&lab, worker).await, Heartbeat::Lost);
    assert!(living(&lab).await.is_empty());
    assert_eq!(
        renew(&lab, WorkerId(worker.0 + 1000)).await,
        Heartbeat::Lost
    );
}

pub async fn a_worker_that_comes_back_under_its_name_takes_up_its_claims_at_once(lab: Lab) {
    // rule 5.3
    let old = lab.worker("w").await;
    let other = lab.worker("other").await;
    let ids = lab.start_all(many(2)).await;
    let lost = lab.claim(old).await;
    lab.claim(other).await;
    let new = lab.worker("w").await;
    assert_ne!(old, new);
    assert_eq!(living(&lab).await, [other, new]);
    assert_eq!(renew(&lab, old).await, Heartbeat::Lost);
    assert_eq!(lab.reclaim().await, 1);
    let claimed = lab.claim(new).await;
    assert_eq!((claimed.claim.id(), claimed.attempt), (ids[0], 1));
    assert_eq!(lab.commit(lost.claim, done()).await, Committed::Stale);
    assert_eq!(
        lab.status(ids[1]).await,
        Status::Executing,
        "what others hold is left to them"
    );
}

pub async fn reclaiming_is_bounded(lab: Lab) {
    // rule 16.3
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    lab.start_all(many(25)).await;
    lab.claim_some(one, 15).await;
    lab.claim_some(two, 10).await;
    lab.pass(OVER_LEASE);
    let mut counts = Vec::new();
    loop {
        let (count, more) = lab.touch(Op::Reclaim { limit: 10 }).await;
        counts.push(count);
        if !more {
            break;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 25);
    assert!(counts.iter().all(|count| *count <= 10), "{counts:?}");
    let depths = lab.store.depths().await.unwrap();
    assert_eq!(
        depths
            .iter()
            .map(|depth| (depth.status, depth.count))
            .collect::<Vec<_>>(),
        [(Status::Runnable, 25)]
    );
}

pub async fn what_a_dead_worker_claims_afterwards_is_taken_back_too(lab: Lab) {
    // rule 5.3: a process that slept through its lease may still send a claim that it had prepared.
    let worker = lab.worker("w").await;
    lab.pass(OVER_LEASE);
    lab.reclaim().await;
    let id = lab.start(plain()).await;
    lab.claim(worker).await;
    lab.pass(MINUTE);
    assert_eq!(lab.reclaim().await, 1);
    assert_eq!(lab.status(id).await, Status::Runnable);
    lab.pass(MINUTE * 60 * 2);
    lab.run(Op::Sweep(crate::SweepRequest {
        before: Timestamp::MIN,
        after: None,
        limit: 10,
    }))
    .await;
    lab.claim(worker).await;
    assert_eq!(lab.reclaim().await, 1, "also when it is forgotten");
    let last = lab.events(id).await.pop().map(|entry| entry.what);
    let nameless = |event: &HistoryEvent| matches!(event, HistoryEvent::Reclaimed { worker, .. } if worker.as_str() == "?");
    assert!(last.as_ref().is_some_and(nameless), "{last:?}");
    assert_eq!(lab.reclaim().await, 0);
}

pub async fn the_dead_are_taken_from_all_at_once(lab: Lab) {
    // rule 5.3
    let heir = lab.worker("heir").await;
    let ids = lab.start_all(many(30)).await;
    for at in 0..30 {
        let worker = lab.worker(&format!("dead{at}")).await;
        lab.claim(worker).await;
    }
    lab.pass(LEASE - SECOND);
    renew(&lab, heir).await;
    lab.pass(SECOND);
    assert_eq!(lab.touch(Op::Reclaim { limit: 20 }).await, (20, true));
    assert_eq!(lab.touch(Op::Reclaim { limit: 20 }).await, (10, false));
    assert_eq!(lab.claim_ids(heir, 50).await, ids);
    assert_eq!(lab.reclaim().await, 0, "what the living hold is theirs");
}

pub async fn a_claim_that_is_given_back_does_not_raise_the_attempt(lab: Lab) {
    // rule 5.4
    let worker = lab.worker("w").await;
    let ids = lab.start_all(vec![urgent(1), urgent(2)]).await;
    let before = lab.get(ids[0]).await;
    let claims: Vec<_> = lab
        .claim_some(worker, 2)
        .await
        .into_iter()
        .map(|one| one.claim)
        .collect();
    let stale = claims[0].again();
    assert_eq!(lab.touch(Op::GiveBack(claims)).await.0, 2);
    let after = lab.get(ids[0]).await;
    assert_eq!(
        (after.status, after.attempt, after.worker),
        (Status::Runnable, 0, None)
    );
    assert_eq!(
        (after.due_at, after.cause, after.step_seq),
        (before.due_at, before.cause, before.step_seq)
    );
    assert_eq!(lab.commit(stale.again(), done()).await, Committed::Stale);
    assert_eq!(
        lab.touch(Op::GiveBack(vec![stale.again()])).await.0,
        0,
        "it is given back once"
    );
    assert_eq!(lab.claim_ids(worker, 2).await, ids, "in its old position");
    assert_eq!(
        lab.touch(Op::GiveBack(vec![stale])).await.0,
        0,
        "and not from the worker that holds it now"
    );
    assert!(lab.kinds(ids[0]).await.is_empty());
}

pub async fn a_claim_whose_answer_got_lost_is_given_back(lab: Lab) {
    // rule 6.4
    let (worker, other) = (lab.worker("w").await, lab.worker("other").await);
    let ids = lab.start_all(many(7)).await;
    lab.claim_some(worker, 6).await;
    lab.claim(other).await;
    let known = vec![ids[1], ids[3], ids[6], InstanceId(ids[6].0 + 1000)];
    let except = |limit| Op::GiveBackExcept {
        worker,
        known: known.clone(),
        limit,
    };
    let mut count = 0;
    loop {
        let (touched, more) = lab.touch(except(2)).await;
        count += touched;
        if !more {
            break;
        }
    }
    assert_eq!(count, 4);
    let mut held = Vec::new();
    for id in &ids {
        let found = lab.get(*id).await;
        assert_eq!(found.attempt, 0);
        held.extend(found.worker.map(|_| *id));
    }
    assert_eq!(held, [ids[1], ids[3], ids[6]]);
}

pub async fn a_worker_that_signs_off_leaves_nothing_behind(lab: Lab) {
    // rules 5.4 and 6.7
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(5)).await;
    let lost = lab.claim_some(worker, 5).await.pop().unwrap();
    let sign_off = |limit| Op::SignOff { worker, limit };
    assert_eq!(lab.touch(sign_off(3)).await, (3, true));
    assert_eq!(living(&lab).await, [worker]);
    assert_eq!(lab.touch(sign_off(3)).await, (2, false));
    assert!(living(&lab).await.is_empty());
    assert_eq!(renew(&lab, worker).await, Heartbeat::Lost);
    assert_eq!(lab.commit(lost.claim, done()).await, Committed::Stale);
    assert_eq!(lab.reclaim().await, 0, "no lease has to expire first");
    let heir = lab.worker("heir").await;
    let claimed = lab.claim_some(heir, 10).await;
    assert_eq!(super::lab::ids(&claimed), ids);
    assert!(claimed.iter().all(|one| one.attempt == 0));
}
