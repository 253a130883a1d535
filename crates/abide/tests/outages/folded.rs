//! Outcomes and heartbeats of workers that are not engines, folded on their way into a store that loses requests and
//! answers.

use std::sync::Arc;

use abide::model::{Json, Name};
use abide::time::{hours, secs};
use abide::{InstanceId, Status};
use abide_kernel::committer::{Commits, Committer, Extensions, Folded, Submit};
use abide_kernel::model::{Claim, Commit, Committed, Heartbeat, Lane, Outcome, WorkerId};
use abide_kernel::{Answer, ClaimRequest, Error, Extension, NewWorker, Op, Store};
use futures_util::future::join_all;
use serde_json::json;

use crate::common::{Faulty, Lab, Script, Trouble, eventually};
use crate::outages::faulty::once;

const EVERY: [Trouble; 4] = [
    Trouble::AnswerLost,
    Trouble::Lost,
    Trouble::Away,
    Trouble::Conflict,
];

async fn one(store: &Arc<dyn Store>, op: Op) -> Answer {
    let answers = store.run(Arc::from([op])).await.unwrap();
    answers.into_iter().next().unwrap()
}

/// A worker that names what it holds, and claims on these many new instances.
pub async fn held(lab: &Lab, count: usize) -> Vec<Claim> {
    let store = lab.store().await;
    let lane = Lane {
        machine: Name::new("script").unwrap(),
        version: 1,
    };
    let queue = Name::new("default").unwrap();
    let starts = (0..count).map(|_| abide::client::new_start(Script::any(), json!(0)));
    lab.start_all(starts).await.unwrap();
    let worker = NewWorker {
        name: Name::new("w").unwrap(),
        lease: hours(1),
        queues: vec![queue.clone()],
        lanes: vec![lane.clone()],
        build: None,
    };
    let Answer::Registered(worker) = one(&store, Op::Enlist(worker)).await else {
        panic!("a worker is made known")
    };
    let request = ClaimRequest {
        worker: worker.id,
        queue,
        lanes: vec![lane],
        limit: count,
        lease: Some(hours(1)),
    };
    match one(&store, Op::Claim(request)).await {
        Answer::Claimed(claimed) if claimed.len() == count => {
            claimed.into_iter().map(|one| one.claim).collect()
        }
        other => panic!("{count} were to be claimed: {other:?}"),
    }
}

pub fn ends(claim: &Claim) -> Commit {
    Commit {
        claim: claim.again(),
        outcome: Outcome::Done {
            result: Json::of(&7).unwrap(),
        },
        keep: false,
        took: secs(0),
        error: None,
    }
}

async fn troubled<K: Folded + Default>(
    lab: &Lab,
    trouble: Trouble,
    meant: impl Fn(&Op) -> bool + Send + Sync + 'static,
) -> Submit<K> {
    let store = Faulty::new(lab.store().await, once(trouble, meant));
    Submit::begin(&Committer::new(store), secs(60))
}

on_every_store! {
    async fn an_outcome_whose_answer_got_lost_is_sent_again_and_counts_once(lab: Lab) {
        // rules 1.1, 1.3: each has its own answer, also when many share a transaction.
        for trouble in EVERY {
            let commits = troubled::<Commits>(&lab, trouble, |op| matches!(op, Op::Commit { .. })).await;
            let claims = held(&lab, 3).await;
            let answers = join_all(claims.iter().map(|claim| commits.ask_one(ends(claim)))).await;
            // rule 1.7: those of the transaction whose answer got lost. A busy computer may put some into another one.
            let mut repeated = 0;
            for (claim, answer) in claims.iter().zip(answers) {
                match answer.unwrap() {
                    Committed::Moved(Status::Done) => {}
                    Committed::Repeated(Status::Done) => repeated += 1,
                    other => panic!("{trouble:?}: {other:?}"),
                }
                assert_eq!(lab.committed(claim.id()).await.len(), 1, "{trouble:?}");
            }
            assert_eq!(repeated > 0, trouble == Trouble::AnswerLost, "{trouble:?}");
        }
    }
}

on_every_store! {
    async fn a_heartbeat_whose_answer_got_lost_is_sent_again(lab: Lab) {
        // rule 6.4: a claim that is still held is not reported as lost, and one that is not held is.
        for trouble in EVERY {
            let beats = troubled::<Extensions>(&lab, trouble, |op| matches!(op, Op::Extend(_))).await;
            let claim = held(&lab, 1).await.remove(0);
            let unheld = Claim::granted(InstanceId(9_999), claim.epoch(), WorkerId(9_999), None, None);
            let names = [(claim.again(), secs(60)), (unheld, secs(90))];
            let names = names.map(|(claim, lease)| Extension { claim, lease });
            let answers = beats.ask(names.into()).await.unwrap();
            assert_eq!(answers, [Heartbeat::Renewed, Heartbeat::Lost], "{trouble:?}");
            let commits = Submit::<Commits>::begin(&Committer::new(lab.store().await), secs(60));
            assert_eq!(commits.ask_one(ends(&claim)).await.unwrap(), Committed::Moved(Status::Done));
        }
    }
}

on_every_store! {
    async fn a_caller_that_does_not_wait_for_an_unavailable_database_gets_an_error(lab: Lab) {
        // rule 1.1: nothing was written, and the claim is as it was.
        let away = Faulty::new(lab.store().await, |_| Some(Trouble::Away));
        let commits = Submit::<Commits>::begin(&Committer::new(away), secs(0));
        let claim = held(&lab, 1).await.remove(0);
        let error = commits.ask_one(ends(&claim)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        let commits = Submit::<Commits>::begin(&Committer::new(lab.store().await), secs(0));
        assert_eq!(commits.ask_one(ends(&claim)).await.unwrap(), Committed::Moved(Status::Done));
    }
}

on_every_store! {
    async fn a_caller_that_never_waits_finds_that_the_database_is_back(lab: Lab) {
        // rule 1.4. The bug: callers without any patience got the error that the database was away until another call was made.
        let commits = Faulty::new(lab.store().await, once(Trouble::Away, |op| matches!(op, Op::Commit { .. })));
        let commits = Submit::<Commits>::begin(&Committer::new(commits), secs(0));
        let claim = held(&lab, 1).await.remove(0);
        let first = commits.ask_one(ends(&claim)).await;
        assert!(matches!(first, Err(Error::Unavailable(_))), "{first:?}");
        eventually("an attempt", async || commits.ask_one(ends(&claim)).await.is_ok()).await;
    }
}
