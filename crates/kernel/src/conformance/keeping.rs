//! Kept claims: a worker that goes on with the next step of what it holds.

use abide_core::model::{Cause, Claim, Commit, Committed, Lane, Name, Start, Status};

use super::build::{
    MINUTE, done, join, keep, lane, later, many, name, next, next_after, retry, stop, urgent, wait,
    within,
};
use super::lab::Lab;
use crate::{Answer, ClaimRequest, Op};

fn serves(queue: &str) -> Vec<(Name, Vec<Lane>)> {
    vec![(name(queue), vec![lane("m", 1)])]
}

async fn keep_on(lab: &Lab, commit: Commit) -> Committed {
    lab.commit_serving(vec![commit], serves("default"))
        .await
        .pop()
        .unwrap()
}

fn kept(answer: Committed) -> Claim {
    match answer {
        Committed::Kept(claim, _) => claim,
        other => panic!("the claim should be kept, and is {other:?}"),
    }
}

pub async fn a_next_that_is_due_at_once_keeps_the_claim(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    let id = lab.start(urgent(0)).await;
    let claimed = lab.claim(worker).await;
    let first = claimed.claim.again();
    let claim = kept(keep_on(&lab, keep(claimed.claim, next("b"))).await);
    assert!(claim.epoch() > first.epoch());
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.worker),
        (Status::Executing, Some(worker))
    );
    assert_eq!(
        (found.step.as_str(), found.step_seq, found.cause),
        ("b", 2, Cause::Next)
    );
    assert_eq!(
        found.state.as_str(),
        "{\"to\":1}",
        "each outcome is committed before the following step begins"
    );
    let claim = kept(keep_on(&lab, keep(claim, next("c"))).await);
    // rule 1.7: an outcome was committed under it.
    assert_eq!(
        lab.commit(first.again(), done()).await,
        Committed::Repeated(Status::Executing)
    );
    assert_eq!(
        lab.commit(claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn no_other_outcome_keeps_the_claim(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    let outcomes = [
        (next_after("b", 1), Status::Scheduled),
        (retry(0), Status::Runnable),
        (wait(&["s"], None), Status::AwaitingSignal),
        (join(many(0), None, None), Status::Runnable),
        (done(), Status::Done),
        (stop("no"), Status::Failed),
    ];
    for (outcome, status) in outcomes {
        lab.start(urgent(-1)).await;
        let claimed = lab.claim(worker).await;
        let answer = keep_on(&lab, keep(claimed.claim, outcome)).await;
        assert_eq!(answer, Committed::Moved(status));
        while let Some(left) = lab.claim_some(worker, 1).await.pop() {
            lab.commit(left.claim, done()).await;
        }
    }
}

pub async fn a_kept_claim_yields_to_more_urgent_work(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    let id = lab.start(urgent(5)).await;
    let claimed = lab.claim(worker).await;
    let rival = lab.start(urgent(4)).await;
    let answer = keep_on(&lab, keep(claimed.claim, next("b"))).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    assert_eq!(lab.claim_ids(worker, 10).await, [rival, id]);
}

pub async fn a_kept_claim_does_not_yield_to_other_work(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    lab.start(urgent(5)).await;
    let claimed = lab.claim(worker).await;
    let unfit = Start {
        version: Some(2),
        ..urgent(0)
    };
    let elsewhere = Start {
        queue: Some(name("slow")),
        ..urgent(0)
    };
    let scheduled = Start {
        when: later(MINUTE).when,
        ..urgent(0)
    };
    lab.start_all(vec![urgent(5), urgent(6), unfit, elsewhere, scheduled])
        .await;
    let mut claim = claimed.claim;
    for step in ["b", "c", "d"] {
        claim = kept(keep_on(&lab, keep(claim, next(step))).await);
    }
    lab.commit(claim, done()).await;
}

pub async fn a_kept_claim_does_not_yield_to_what_its_transaction_has_claimed(lab: Lab) {
    // rule 4.3: the queue was read when the transaction began, and what was claimed since was still seen in it.
    let worker = lab.worker("w").await;
    lab.start(urgent(5)).await;
    let claimed = lab.claim(worker).await;
    lab.start(urgent(0)).await;
    let claim = Op::Claim(ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane("m", 1)],
        limit: 1,
        lease: None,
    });
    let commit = Op::Commit {
        commits: vec![keep(claimed.claim, next("b"))],
        serves: serves("default"),
    };
    let answers = lab.try_run(vec![claim, commit]).await.unwrap();
    let [Answer::Claimed(_), Answer::Committed(each)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert!(matches!(each[0], Committed::Kept(_, _)), "{each:?}");
}

pub async fn a_kept_claim_keeps_its_partition(lab: Lab) {
    // rules 4.3 and 6.3
    let worker = lab.worker("w").await;
    let first = lab.start(within("p")).await;
    let claimed = lab.claim(worker).await;
    let second = lab
        .start(Start {
            priority: urgent(-9).priority,
            ..within("p")
        })
        .await;
    let claim = kept(keep_on(&lab, keep(claimed.claim, next("b"))).await);
    assert!(
        lab.claim_some(worker, 10).await.is_empty(),
        "{second} waits for {first}"
    );
    lab.commit(claim, done()).await;
    assert_eq!(lab.claim_ids(worker, 10).await, [second]);
}

pub async fn a_kept_claim_that_is_lost_ends_as_any_other(lab: Lab) {
    // rules 1.3 and 5.3
    let worker = lab.worker("w").await;
    let id = lab.start(urgent(0)).await;
    let claimed = lab.claim(worker).await;
    let claim = kept(keep_on(&lab, keep(claimed.claim, next("b"))).await);
    lab.pass(super::lab::OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    assert_eq!(lab.commit(claim, done()).await, Committed::Stale);
    let found = lab.get(id).await;
    assert_eq!(
        (found.step.as_str(), found.step_seq, found.attempt),
        ("b", 2, 1)
    );
}
