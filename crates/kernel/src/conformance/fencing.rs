//! Fencing: what a commit is worth that comes twice, or too late.

use abide_core::model::{Committed, Start, Status};

use super::build::{
    commit, continue_as_new, done, json, keep, key, keyed, many, next, plain, retry, spawn, stop,
    wait,
};
use super::lab::{LEASE, Lab, OVER_LEASE};
use crate::{Filter, Op};

pub async fn a_commit_that_is_sent_again_changes_nothing_and_is_answered_as_before(lab: Lab) {
    // rules 1.1 and 1.3
    let worker = lab.worker("w").await;
    let outcomes = [
        (next("b"), Status::Runnable),
        (retry(60_000), Status::Scheduled),
        (wait(&["s"], None), Status::AwaitingSignal),
        (spawn(many(2)), Status::AwaitingChildren),
        (done(), Status::Done),
        (stop("no"), Status::Failed),
    ];
    for (outcome, status) in outcomes {
        let id = lab
            .start(Start {
                priority: super::build::urgent(-9).priority,
                ..plain()
            })
            .await;
        let claimed = lab.claim(worker).await;
        let twice = claimed.claim.again();
        assert_eq!(
            lab.commit(claimed.claim, outcome.clone()).await,
            Committed::Moved(status)
        );
        let (before, events) = (lab.get(id).await, lab.events(id).await);
        lab.pass(super::build::SECOND);
        assert_eq!(
            lab.commit(twice, outcome).await,
            Committed::Repeated(status)
        );
        assert_eq!((lab.get(id).await, lab.events(id).await), (before, events));
        while let Some(left) = lab.claim_some(worker, 1).await.pop() {
            lab.commit(left.claim, done()).await;
        }
    }
}

pub async fn a_commit_that_kept_its_claim_and_is_sent_again_is_handed_the_same_claim(lab: Lab) {
    // rules 1.3 and 4.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let twice = claimed.claim.again();
    let first = lab.commit_all(vec![keep(claimed.claim, next("b"))]).await;
    let second = lab.commit_all(vec![keep(twice, next("b"))]).await;
    assert_eq!(first, second);
    assert!(
        matches!(first.as_slice(), [Committed::Kept(_, _)]),
        "{first:?}"
    );
    assert_eq!(lab.get(id).await.step_seq, 2);
}

pub async fn a_commit_that_is_sent_again_does_not_take_what_was_claimed_anew(lab: Lab) {
    // rule 1.3: the answer to a commit was lost, and the same worker has claimed the next step since. Were the old
    // commit answered that it kept the claim, two tasks would hold the same one.
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let twice = claimed.claim.again();
    lab.commit(claimed.claim, next("b")).await;
    let anew = lab.claim(worker).await;
    let answer = lab.commit_all(vec![keep(twice, next("b"))]).await;
    assert_eq!(answer, [Committed::Repeated(Status::Executing)]);
    assert_eq!(
        lab.commit(anew.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_commit_is_known_after_others_were_made_on_top_of_it(lab: Lab) {
    // rule 1.7: its answer was lost, and the run went on before it was sent again. It was once answered `stale`, which
    // means that nothing of it was committed.
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    let id = lab.start(plain()).await;
    let mut sent = Vec::new();
    for outcome in [next("b"), retry(0), next("c"), wait(&["s"], None)] {
        let claimed = lab.claim(one).await;
        sent.push((claimed.claim.again(), outcome.clone()));
        lab.commit(claimed.claim, outcome).await;
    }
    lab.signal(id, "s").await;
    // A step that its worker keeps is written by a statement of its own.
    let claimed = lab.claim(two).await;
    sent.push((claimed.claim.again(), next("d")));
    let kept = lab.commit_all(vec![keep(claimed.claim, next("d"))]).await;
    let [Committed::Kept(kept, _)] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    sent.push((kept.again(), next("e")));
    lab.commit(kept.again(), next("e")).await;
    for (status, end) in [(Status::Runnable, false), (Status::Done, true)] {
        if end {
            let claimed = lab.claim(two).await;
            sent.push((claimed.claim.again(), done()));
            lab.commit(claimed.claim, done()).await;
        }
        let (before, events) = (lab.get(id).await, lab.events(id).await);
        for (claim, outcome) in &sent {
            let again = lab.commit(claim.again(), outcome.clone()).await;
            assert_eq!(again, Committed::Repeated(status), "{claim:?}");
        }
        assert_eq!((lab.get(id).await, lab.events(id).await), (before, events));
    }
}

pub async fn a_claim_that_was_taken_back_between_two_commits_stays_stale(lab: Lab) {
    // rules 1.3 and 1.7: what was committed around it does not make it look committed.
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let (mut committed, mut lost) = (Vec::new(), Vec::new());
    for step in ["b", "c", "d"] {
        let claimed = lab.claim(worker).await;
        committed.push(claimed.claim.again());
        lab.commit(claimed.claim, next(step)).await;
        let returned = lab.claim(worker).await.claim;
        lost.push(returned.again());
        lab.run(Op::GiveBack(vec![returned])).await;
    }
    let ended = lab.claim(worker).await.claim;
    lab.commit(ended, done()).await;
    let before = (lab.get(id).await, lab.events(id).await);
    for claim in &committed {
        let again = lab.commit(claim.again(), next("x")).await;
        assert_eq!(again, Committed::Repeated(Status::Done), "{claim:?}");
    }
    for claim in &lost {
        let late = lab.commit(claim.again(), next("x")).await;
        assert_eq!(late, Committed::Stale, "{claim:?}");
    }
    assert_eq!((lab.get(id).await, lab.events(id).await), before);
}

pub async fn a_run_knows_its_last_commits_and_older_ones_are_stale(lab: Lab) {
    // rule 1.7: 20 at least; here 32, for a claim and its end are two epochs, and a row knows the 64 before its last commit.
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    let mut claims = Vec::new();
    for _ in 0..70 {
        let claimed = lab.claim(worker).await;
        claims.push(claimed.claim.again());
        lab.commit(claimed.claim, next("b")).await;
    }
    let mut known = Vec::new();
    for claim in claims {
        known.push(match lab.commit(claim, next("b")).await {
            Committed::Repeated(Status::Runnable) => true,
            Committed::Stale => false,
            other => panic!("{other:?}"),
        });
    }
    let expected: Vec<bool> = (0..70).map(|position| position >= 37).collect();
    assert_eq!(known, expected, "the last one, and 32 before it");
}

pub async fn a_commit_is_known_after_its_run_was_continued_and_restarted(lab: Lab) {
    // rules 1.7, 2.4 and 11.2: the claims of a run stay with its row, and those of the next begin anew.
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("chain")).await;
    let mut sent = Vec::new();
    for outcome in [next("b"), continue_as_new("c"), next("d"), stop("no")] {
        let claimed = lab.claim(worker).await;
        sent.push((claimed.claim.again(), outcome.clone()));
        lab.commit(claimed.claim, outcome).await;
    }
    let second = sent.last().map(|(claim, _)| claim.id());
    let second = second.unwrap_or(first);
    lab.restart(second).await;
    for (claim, outcome) in &sent {
        let status = match claim.id() == first {
            true => Status::Continued,
            false => Status::Failed,
        };
        let again = lab.commit(claim.again(), outcome.clone()).await;
        assert_eq!(again, Committed::Repeated(status), "{claim:?}");
    }
    let third = lab.claim(worker).await;
    assert!(third.claim.id() != first && third.claim.id() != second);
    assert_eq!(
        lab.commit(third.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_commit_twice_in_one_batch_counts_once(lab: Lab) {
    // rules 1.3, 1.7 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(many(2))).await;
    let claimed = lab.claim(worker).await;
    let twice = claimed.claim.again();
    let answers = lab
        .commit_all(vec![commit(claimed.claim, done()), commit(twice, done())])
        .await;
    assert_eq!(
        answers,
        [
            Committed::Moved(Status::Done),
            Committed::Repeated(Status::Done)
        ]
    );
    assert_eq!(lab.get(parent).await.family.pending, 1);
}

pub async fn a_stale_commit_changes_nothing(lab: Lab) {
    // rule 1.3
    let old = lab.worker("old").await;
    let id = lab
        .start(Start {
            state: json("1"),
            ..plain()
        })
        .await;
    let lost = lab.claim(old).await.claim;
    lab.pass(OVER_LEASE);
    let new = lab.worker("new").await;
    assert_eq!(lab.reclaim().await, 1);
    let taken = lab.claim(new).await;
    let (before, events) = (lab.get(id).await, lab.events(id).await);
    for outcome in [
        next("b"),
        retry(0),
        wait(&["s"], None),
        spawn(vec![keyed("child")]),
        done(),
        stop("no"),
    ] {
        assert_eq!(lab.commit(lost.again(), outcome).await, Committed::Stale);
    }
    assert_eq!((lab.get(id).await, lab.events(id).await), (before, events));
    assert!(
        lab.find(key("child")).await.is_none(),
        "its children are not started"
    );
    assert_eq!(
        lab.store
            .list(&Filter::default(), None, 10)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    assert_eq!(
        lab.commit(taken.claim, done()).await,
        Committed::Moved(Status::Done)
    );
    assert_eq!(
        lab.commit(lost, done()).await,
        Committed::Stale,
        "also when the other one has ended it"
    );
}

pub async fn the_end_of_a_child_under_a_lost_claim_does_not_move_its_parent(lab: Lab) {
    // rules 1.3 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(many(1))).await;
    let lost = lab.claim(worker).await.claim;
    lab.run(Op::GiveBack(vec![lost.again()])).await;
    assert_eq!(lab.commit(lost, done()).await, Committed::Stale);
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
    assert_eq!(
        lab.kinds(parent).await,
        ["step_completed", "children_spawned"]
    );
}

pub async fn an_expired_claim_that_was_not_taken_over_can_still_be_committed(lab: Lab) {
    // rule 1.3: the claim is lost when another has taken over, not when the lease has run out.
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    lab.pass(OVER_LEASE);
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
    assert_eq!(lab.reclaim().await, 0);
}

pub async fn a_claim_of_another_worker_is_worth_nothing(lab: Lab) {
    // rule 1.3
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    let id = lab.start(plain()).await;
    let claim = lab.claim(one).await.claim;
    let forged = abide_core::model::Claim::granted(id, claim.epoch(), two, None, None);
    assert_eq!(lab.commit(forged, done()).await, Committed::Stale);
    let absent = abide_core::model::InstanceId(id.0 + 1000);
    let forged = abide_core::model::Claim::granted(absent, claim.epoch(), one, None, None);
    assert_eq!(lab.commit(forged, done()).await, Committed::Stale);
    assert_eq!(lab.status(id).await, Status::Executing);
}

pub async fn a_transaction_that_fails_leaves_nothing(lab: Lab) {
    // rule 1.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let twice = claimed.claim.again();
    let before = lab.get(id).await;
    let ops = vec![
        Op::Commit {
            commits: vec![commit(claimed.claim, spawn(vec![keyed("child")]))],
            serves: Vec::new(),
        },
        Op::Start(vec![keyed("a")]),
        Op::Renew {
            workers: vec![worker],
            lease: LEASE * 10,
        },
        Op::Start(many(100_001)),
    ];
    assert!(lab.try_run(ops).await.is_err());
    assert_eq!(lab.get(id).await, before);
    assert!(lab.kinds(id).await.is_empty());
    assert!(lab.find(key("a")).await.is_none() && lab.find(key("child")).await.is_none());
    assert_eq!(
        lab.store.workers().await.unwrap()[0].lease_until,
        lab.now() + LEASE
    );
    assert_eq!(
        lab.commit(twice, done()).await,
        Committed::Moved(Status::Done)
    );
}
