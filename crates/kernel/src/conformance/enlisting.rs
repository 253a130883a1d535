//! Workers that outlive the process which speaks for them: enlisted, renewed together, signed off by name.

use std::time::Duration;

use abide_core::model::{Committed, Status, Worker, WorkerId};

use super::build::{MINUTE, SECOND, done, lane, many, name, within};
use super::lab::Lab;
use super::remote_claims::{enlist, lease, lease_one};
use crate::{Answer, NewWorker, Op};

async fn living(lab: &Lab) -> Vec<Worker> {
    let mut workers = lab.store.workers().await.unwrap();
    workers.sort_by_key(|worker| worker.id);
    workers
}

async fn renew(lab: &Lab, workers: &[WorkerId], lease: Duration) -> Vec<WorkerId> {
    let workers = workers.to_vec();
    match lab.run(Op::Renew { workers, lease }).await {
        Answer::Renewed { lost } => lost,
        other => panic!("it is not answered with {other:?}"),
    }
}

async fn sign_off(lab: &Lab, text: &str, limit: usize) -> (usize, bool) {
    let name = name(text);
    lab.touch(Op::SignOffNamed { name, limit }).await
}

pub async fn a_worker_that_is_enlisted_twice_is_one(lab: Lab) {
    // rule 5.3: nothing is taken back, as when it registers.
    let first = enlist(&lab, "w", MINUTE).await;
    lab.start_all(many(1)).await;
    let claimed = lease_one(&lab, first).await;
    lab.pass(SECOND);
    let more = NewWorker {
        name: name("w"),
        lease: SECOND,
        queues: vec![name("slow"), name("default")],
        lanes: vec![lane("n", 2), lane("m", 1)],
        build: None,
    };
    let Answer::Registered(again) = lab.run(Op::Enlist(more)).await else {
        panic!("it should be enlisted")
    };
    assert_eq!(again.id, first);
    assert_eq!(
        again.lease_until,
        lab.now() + MINUTE - SECOND,
        "no lease gets shorter"
    );
    assert_eq!(again.queues, [name("default"), name("slow")]);
    assert_eq!(again.lanes, [lane("m", 1), lane("n", 2)]);
    assert_eq!(living(&lab).await, [again]);
    enlist(&lab, "w", MINUTE).await;
    assert_eq!(living(&lab).await[0].lease_until, lab.now() + MINUTE);
    assert_eq!((lab.reclaim().await, lab.fire().await), (0, 0));
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_worker_that_has_died_is_enlisted_as_another(lab: Lab) {
    // rule 1.3
    let first = enlist(&lab, "w", MINUTE).await;
    lab.pass(MINUTE);
    let second = enlist(&lab, "w", MINUTE).await;
    assert_ne!(first, second);
    assert_eq!(living(&lab).await.len(), 1);
    assert_ne!(enlist(&lab, "other", MINUTE).await, second);
}

pub async fn a_worker_that_is_enlisted_by_many_at_once_is_one(lab: Lab) {
    // rule 1.3
    let each = (0..8).map(|_| enlist(&lab, "w", MINUTE));
    let ids = futures_util::future::join_all(each).await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(living(&lab).await.len(), 1);
}

pub async fn many_workers_are_renewed_together(lab: Lab) {
    // rule 6.4
    let short = enlist(&lab, "short", SECOND).await;
    let one = enlist(&lab, "one", SECOND * 10).await;
    let long = enlist(&lab, "long", MINUTE * 10).await;
    lab.pass(SECOND);
    let unknown = WorkerId(long.0 + 99);
    let lost = renew(&lab, &[long, unknown, short, one, one], MINUTE).await;
    assert_eq!(lost, [short, unknown]);
    let leases: Vec<_> = living(&lab).await.iter().map(|w| w.lease_until).collect();
    let began = lab.now() - SECOND;
    assert_eq!(leases, [lab.now() + MINUTE, began + MINUTE * 10]);
    assert!(renew(&lab, &[], MINUTE).await.is_empty());
}

pub async fn a_worker_is_signed_off_by_its_name(lab: Lab) {
    // rules 5.4 and 6.7
    let (worker, other) = (
        enlist(&lab, "w", MINUTE).await,
        enlist(&lab, "other", MINUTE).await,
    );
    lab.start_all(vec![within("p"), within("q"), within("r"), within("s")])
        .await;
    let mut claimed = lease(&lab, worker, 3, MINUTE).await;
    let kept = lease_one(&lab, other).await;
    assert_eq!(sign_off(&lab, "w", 2).await, (2, true));
    assert_eq!(living(&lab).await.len(), 2, "it still holds something");
    assert_eq!(sign_off(&lab, "w", 2).await, (1, false));
    assert_eq!(sign_off(&lab, "w", 2).await, (0, false));
    assert_eq!(sign_off(&lab, "missing", 2).await, (0, false));
    let left: Vec<WorkerId> = living(&lab).await.iter().map(|one| one.id).collect();
    assert_eq!(left, [other]);
    let lost = claimed.remove(0);
    let found = lab.get(lost.claim.id()).await;
    assert_eq!((found.status, found.attempt), (Status::Runnable, 0));
    assert_eq!(lab.commit(lost.claim, done()).await, Committed::Stale);
    assert_eq!(
        lab.commit(kept.claim, done()).await,
        Committed::Moved(Status::Done)
    );
    assert_ne!(enlist(&lab, "w", MINUTE).await, worker);
    assert_eq!(lab.claim_some(other, 9).await.len(), 3);
}
