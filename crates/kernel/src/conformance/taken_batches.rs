//! Taken keys: the commits of one batch that take and leave the same key.

use abide_core::model::{Claim, Committed, Outcome, Start, Status, WorkerId};

use super::build::{commit, continue_as_new, done, next, plain, retry, spawn, wait};
use super::lab::Lab;
use super::taken_keys::{WAITING, failed_of, holding, taken, under};

/// Starts it and claims it.
async fn executing(lab: &Lab, worker: WorkerId, start: Start) -> Claim {
    let id = lab.start(start).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    claimed.claim
}

async fn both(lab: &Lab, one: (&Claim, Outcome), two: (&Claim, Outcome)) -> Vec<Committed> {
    let commits = [one, two].map(|(claim, outcome)| commit(claim.again(), outcome));
    lab.commit_all(commits.into()).await
}

pub async fn a_run_goes_on_after_the_batch_in_which_another_leaves_its_key(lab: Lab) {
    // rules 2.4 and 2.8: the new run was written before the other's row, met the key, and the whole batch failed each time.
    let worker = lab.worker("w").await;
    for first in [true, false] {
        let goes_on = executing(&lab, worker, under(&[Status::Runnable])).await;
        let leaves = executing(&lab, worker, under(&[Status::Runnable, Status::Executing])).await;
        let pair = ((&goes_on, continue_as_new("b")), (&leaves, done()));
        let refused = Committed::Refused(taken("k", leaves.id()));
        let left = Committed::Moved(Status::Done);
        if first {
            let answers = both(&lab, pair.0, pair.1).await;
            assert_eq!(answers, [refused, left]);
        } else {
            let answers = both(&lab, pair.1, pair.0).await;
            assert_eq!(answers, [left, refused]);
        }
        let answer = lab.commit(goes_on, continue_as_new("b")).await;
        assert_eq!(answer, Committed::Moved(Status::Continued));
        assert_eq!(lab.step(worker, done()).await, Status::Done);
    }
}

pub async fn a_child_finds_a_key_taken_that_another_of_its_batch_was_granted(lab: Lab) {
    // rule 2.8: the child was written first, and the other then failed although its commit was answered, or the whole
    // batch failed each time.
    let worker = lab.worker("w").await;
    for first in [true, false] {
        for (outcome, status) in [
            (retry(0), Status::Runnable),
            (continue_as_new("b"), Status::Continued),
        ] {
            let takes = executing(&lab, worker, under(WAITING)).await;
            let parent = executing(&lab, worker, plain()).await;
            let spawns = (&parent, spawn(vec![under(WAITING)]));
            let (one, two) = match first {
                true => ((&takes, outcome), spawns),
                false => (spawns, (&takes, outcome)),
            };
            let answers = both(&lab, one, two).await;
            let moved = answers.contains(&Committed::Moved(status));
            assert!(moved, "{answers:?}");
            assert_eq!(lab.status(takes.id()).await, status);
            let waits_for_none = lab.get(parent.id()).await;
            assert_eq!(waits_for_none.status, Status::Runnable);
            for _ in 0..2 {
                assert_eq!(lab.step(worker, done()).await, Status::Done);
            }
        }
    }
}

pub async fn a_child_that_ends_under_its_key_is_reported_to_its_parent_once(lab: Lab) {
    // rules 2.8 and 10.2: another commit of the batch started a child under the key. The one that had ended was failed
    // after its parent had been notified that it was done, and its end was counted twice.
    let worker = lab.worker("w").await;
    for first in [true, false] {
        let text = format!("k{first}");
        let parent = executing(&lab, worker, plain()).await;
        let child = holding(&text, &[Status::Done], plain());
        let spawned = lab.commit(parent.again(), spawn(vec![child])).await;
        assert_eq!(spawned, Committed::Moved(Status::AwaitingChildren));
        let ends = lab.claim(worker).await.claim;
        let other = executing(&lab, worker, plain()).await;
        let start = holding(&text, &[Status::Runnable], plain());
        let spawns = (&other, spawn(vec![start]));
        let answers = match first {
            true => both(&lab, (&ends, done()), spawns).await,
            false => both(&lab, spawns, (&ends, done())).await,
        };
        assert!(answers.contains(&Committed::Moved(Status::Done)));
        assert_eq!(lab.status(ends.id()).await, Status::Done);
        let kinds = lab.kinds(parent.id()).await;
        let recorded = kinds.iter().filter(|kind| **kind == "child_ended").count();
        assert_eq!(recorded, 1, "{kinds:?}");
        for _ in 0..2 {
            assert_eq!(lab.step(worker, done()).await, Status::Done);
        }
    }
}

pub async fn a_parent_that_wakes_into_the_key_of_the_child_that_woke_it_fails(lab: Lab) {
    // rule 2.8: the child's commit was granted the key, and was answered so.
    let worker = lab.worker("w").await;
    let parent = executing(&lab, worker, under(&[Status::Runnable])).await;
    let child = under(&[Status::Done]);
    lab.commit(parent.again(), spawn(vec![child])).await;
    let ends = lab.claim(worker).await.claim;
    let answer = lab.commit(ends.again(), done()).await;
    assert_eq!(answer, Committed::Moved(Status::Done));
    failed_of(&lab, parent.id(), "k", ends.id()).await;
}

pub async fn who_gives_its_key_up_leaves_it_to_its_holder(lab: Lab) {
    // rule 2.8: one of the batch that gave the key up was taken for its holder by those after it.
    let worker = lab.worker("w").await;
    let gives_up = executing(&lab, worker, under(&[Status::Runnable])).await;
    let wants = executing(&lab, worker, under(WAITING)).await;
    let holder = lab.start(under(WAITING)).await;
    let answers = both(
        &lab,
        (&gives_up, next("b")),
        (&wants, wait(&[], Some(1000))),
    )
    .await;
    assert_eq!(answers[0], Committed::Moved(Status::Runnable));
    assert_eq!(answers[1], Committed::Refused(taken("k", holder)));
}

pub async fn a_run_that_goes_on_keeps_the_key_that_it_holds(lab: Lab) {
    // rules 2.4 and 2.8: another of the batch was granted the key as if it had been left, and the new run had it already.
    let worker = lab.worker("w").await;
    for first in [true, false] {
        let wants = executing(&lab, worker, under(&[Status::AwaitingSignal])).await;
        let holder = executing(&lab, worker, under(&[Status::Runnable, Status::Executing])).await;
        let (goes_on, waits) = (
            (&holder, continue_as_new("b")),
            (&wants, wait(&["s"], None)),
        );
        let answers = match first {
            true => both(&lab, goes_on, waits).await,
            false => both(&lab, waits, goes_on).await,
        };
        assert!(answers.contains(&Committed::Refused(taken("k", holder.id()))));
        assert!(answers.contains(&Committed::Moved(Status::Continued)));
        lab.commit(wants, done()).await;
        assert_eq!(lab.step(worker, done()).await, Status::Done);
    }
}
