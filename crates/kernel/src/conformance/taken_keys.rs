//! Taken keys: outcomes, claims that are returned, ends and new runs that would take a key which another holds.

use abide_core::model::{
    AnyKey, Claim, Committed, HistoryEvent, InstanceId, Key, Operated, Outcome, Refusal, RetrySpec,
    Scope, Start, Started, Status, UniqueKey,
};

use super::build::{
    MINUTE, cancelling, commit, continue_as_new, done, key, keyed, later, next, next_after, plain,
    retry, returning, stop, under as declared, updates, wait,
};
use super::coding::{Coded, ended, workflow};
use super::lab::{Lab, OVER_LEASE};
use super::remote_claims::{enlist, lease_one};
use crate::Op;

pub(super) const WAITING: &[Status] = &[Status::Scheduled, Status::Runnable];

/// A start under the key `k`, which it holds in these statuses.
pub(super) fn under(scope: &[Status]) -> Start {
    holding("k", scope, plain())
}

pub(super) fn holding(text: &str, scope: &[Status], start: Start) -> Start {
    Start {
        key: Some(key(text)),
        scope: scope.iter().copied().collect(),
        ..start
    }
}

pub(super) fn taken(text: &str, holder: InstanceId) -> Refusal {
    Refusal::KeyTaken {
        holder,
        key: Some(AnyKey::Key(Key::stored(text))),
    }
}

/// Looks at an instance that has failed because another holds its key, which it does not occupy.
pub(super) async fn failed_of(lab: &Lab, id: InstanceId, text: &str, holder: InstanceId) {
    let found = lab.get(id).await;
    assert_eq!(found.status, Status::Failed, "{found:?}");
    let error = taken(text, holder).to_string();
    assert_eq!(
        error,
        format!("key \"{text}\" is taken by instance {holder}")
    );
    assert_eq!(found.last_error.as_ref(), Some(&error));
    assert!(!found.scope.holds(Status::Failed));
    let last = lab.events(id).await.pop().map(|entry| entry.what);
    assert_eq!(last, Some(HistoryEvent::Failed { error }));
}

async fn start(lab: &Lab, start: Start) -> Started {
    lab.starts(vec![start]).await.pop().unwrap().unwrap()
}

/// One that executes, outside its scope, and one that waits under the same key.
async fn with_successor(lab: &Lab, scope: &[Status]) -> (Claim, InstanceId) {
    let worker = lab.worker("w").await;
    lab.start(under(scope)).await;
    let claimed = lab.claim(worker).await;
    (claimed.claim, lab.start(under(scope)).await)
}

pub async fn an_outcome_that_would_take_a_key_is_refused_with_its_holder(lab: Lab) {
    // rules 2.8 and 4.2: such a commit was a conflict, and was tried again for ever.
    let (claim, successor) = with_successor(&lab, WAITING).await;
    let first = claim.id();
    for outcome in [
        retry(0),
        retry(1000),
        next_after("b", 1000),
        wait(&[], Some(1000)),
        continue_as_new("b"),
    ] {
        let answer = lab.commit(claim.again(), outcome.clone()).await;
        let refused = Committed::Refused(taken("k", successor));
        assert_eq!(answer, refused, "{}", outcome.name());
        assert_eq!(lab.status(first).await, Status::Executing);
        assert!(lab.kinds(first).await.is_empty());
    }
    // Where it does not come into its scope, it does as it likes.
    let answer = lab.commit(claim, wait(&["s"], None)).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(
        lab.get(first).await.scope,
        WAITING.iter().copied().collect()
    );
}

pub async fn of_three_that_would_end_under_one_key_the_first_does(lab: Lab) {
    // rule 2.8: three runs of a graph were started under one key that is held when done. The last commits of the second
    // and the third were tried again for ever, and whatever came after them waited.
    let worker = lab.worker("w").await;
    let runs = lab.start_all(vec![under(&[Status::Done]); 3]).await;
    let healthy = lab.start(plain()).await;
    let claims = lab.claim_some(worker, 4).await;
    let commits = claims.iter().map(|one| commit(one.claim.again(), done()));
    let refused = || Committed::Refused(taken("k", runs[0]));
    let ended = Committed::Moved(Status::Done);
    let expected = [ended, refused(), refused(), Committed::Moved(Status::Done)];
    assert_eq!(lab.commit_all(commits.collect()).await, expected);
    assert_eq!(lab.status(healthy).await, Status::Done);
    let second = claims[1].claim.again();
    assert_eq!(lab.commit(second.again(), done()).await, refused());
    let stopped = lab.commit(second, stop("what else")).await;
    assert_eq!(stopped, Committed::Moved(Status::Failed));
}

pub async fn a_stop_is_never_refused_and_gives_the_key_up(lab: Lab) {
    // rule 2.8: an instance that is refused is stopped in the end, so that must be accepted.
    let worker = lab.worker("w").await;
    let both = lab.start_all(vec![under(&[Status::Failed]); 2]).await;
    for _ in &both {
        assert_eq!(lab.step(worker, stop("no")).await, Status::Failed);
    }
    let found = lab.get(both[1]).await;
    assert_eq!(
        (found.scope, found.row.last_error),
        (Scope::NEVER, Some("no".into()))
    );
    let kinds = lab.kinds(both[1]).await;
    assert_eq!(kinds, ["step_completed", "key_given_up", "failed"]);
    let given_up = HistoryEvent::KeyGivenUp {
        key: AnyKey::Key(key("k")),
        holder: both[0],
    };
    assert_eq!(lab.events(both[1]).await[1].what, given_up);
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(both[0]));
}

pub async fn a_failure_that_may_not_be_tried_again_ends_with_both_reasons(lab: Lab) {
    // rules 2.8 and 5.2: a worker in another language has no error handler to ask.
    let mut machine = declared(&updates());
    machine.retry = Some(RetrySpec {
        max_attempts: 3,
        delay_ms: 1000,
        factor: None,
        max_delay_ms: None,
    });
    lab.declare(vec![machine]).await;
    let worker = lab.worker("w").await;
    let fail = || Outcome::Fail {
        error: "no".to_owned(),
    };
    let scope = &[Status::Scheduled];
    let holder = lab.start(holding("k", scope, later(MINUTE))).await;
    let first = lab.start(under(scope)).await;
    assert_eq!(lab.step(worker, fail()).await, Status::Failed);
    let error = format!("no; not retried: key \"k\" is taken by instance {holder}");
    assert_eq!(lab.get(first).await.last_error, Some(error));
    lab.cancel(cancelling(holder)).await;
    lab.start(under(scope)).await;
    assert_eq!(lab.step(worker, fail()).await, Status::Scheduled);
}

pub async fn two_commits_of_one_batch_take_a_key_once(lab: Lab) {
    // rule 2.8
    let worker = lab.worker("w").await;
    lab.start_all(vec![under(&[Status::Done]); 2]).await;
    let claims = lab.claim_some(worker, 2).await;
    // The order of the batch counts, not that of the ids.
    let commits = claims
        .iter()
        .rev()
        .map(|one| commit(one.claim.again(), done()));
    let answers = lab.commit_all(commits.collect()).await;
    let refused = Committed::Refused(taken("k", claims[1].claim.id()));
    assert_eq!(answers, [Committed::Moved(Status::Done), refused]);
}

pub async fn who_leaves_a_key_makes_room_for_who_takes_it_in_the_same_batch(lab: Lab) {
    // rule 2.8: the databases check each row as it is written, and the one that takes the key has the lower id.
    let worker = lab.worker("w").await;
    lab.start(under(&[Status::Done])).await;
    lab.start(keyed("k")).await;
    let claims = lab.claim_some(worker, 2).await;
    let [takes, leaves] = claims.as_slice() else {
        panic!("{claims:?}")
    };
    let refused = lab.commit(takes.claim.again(), done()).await;
    assert_eq!(refused, Committed::Refused(taken("k", leaves.claim.id())));
    let commits = [leaves, takes].map(|one| commit(one.claim.again(), done()));
    let both = [
        Committed::Moved(Status::Done),
        Committed::Moved(Status::Done),
    ];
    assert_eq!(lab.commit_all(commits.into()).await, both);
    let duplicate = Started::Duplicate(takes.claim.id());
    assert_eq!(start(&lab, keyed("k")).await, duplicate);
}

pub async fn a_next_step_that_is_due_goes_on_without_its_key(lab: Lab) {
    // rules 2.8 and 4.3: whether its worker could keep it is nothing to fail of.
    let (claim, successor) = with_successor(&lab, WAITING).await;
    let first = claim.id();
    let answer = lab.commit(claim, next("b")).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let kinds = lab.kinds(first).await;
    assert_eq!(kinds, ["step_completed", "key_given_up"]);
    assert_eq!(lab.get(first).await.scope, Scope::NEVER);
    assert_eq!(
        start(&lab, under(WAITING)).await,
        Started::Duplicate(successor)
    );
    // It is given up for good: nothing that it does later finds the key taken.
    let worker = lab.worker("w").await;
    let claims = lab.claim_some(worker, 2).await;
    let again = claims.into_iter().find(|one| one.claim.id() == first);
    let answer = lab.commit(again.unwrap().claim, retry(1000)).await;
    assert_eq!(answer, Committed::Moved(Status::Scheduled));
}

/// Looks at an instance that is back in its queue, and holds its key no more.
async fn is_back(lab: &Lab, id: InstanceId, successor: InstanceId, attempt: u32) {
    let found = lab.get(id).await;
    assert_eq!((found.status, found.attempt), (Status::Runnable, attempt));
    assert_eq!(found.scope, Scope::NEVER);
    let last = lab.events(id).await.pop().map(|entry| entry.what);
    let given_up = HistoryEvent::KeyGivenUp {
        key: AnyKey::Key(key("k")),
        holder: successor,
    };
    assert_eq!(last, Some(given_up));
    assert_eq!(start(lab, keyed("k")).await, Started::Duplicate(successor));
    let worker = lab.worker("heir").await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    assert_eq!(lab.status(id).await, Status::Done);
}

pub async fn a_claim_that_is_returned_goes_back_without_the_key(lab: Lab) {
    // rules 2.8, 5.4 and 6.7: a rolling deploy must not fail what was running while a successor waited.
    for way in 0..3 {
        let (claim, successor) = with_successor(&lab, WAITING).await;
        let id = claim.id();
        assert_eq!(lab.touch(returning(claim, way)).await.0, 1);
        is_back(&lab, id, successor, 0).await;
    }
}

pub async fn a_claim_of_a_dead_worker_goes_back_without_the_key(lab: Lab) {
    // rules 2.8 and 5.3: nothing that any dead worker held was taken back any more.
    let (claim, successor) = with_successor(&lab, WAITING).await;
    let dead = lab.worker("dead").await;
    let neighbour = lab.start(keyed("other")).await;
    let theirs = lab.claim_some(dead, 2).await;
    lab.run(Op::GiveBack(vec![theirs[0].claim.again()])).await;
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 2);
    assert_eq!(lab.status(neighbour).await, Status::Runnable);
    lab.cancel(cancelling(neighbour)).await;
    is_back(&lab, claim.id(), successor, 1).await;
}

pub async fn a_claim_whose_lease_lapsed_goes_back_without_the_key(lab: Lab) {
    // rules 2.8 and 5.3: such a lease is a timer, and no timer of the store fired any more.
    let remote = enlist(&lab, "remote", MINUTE).await;
    let first = lab.start(under(WAITING)).await;
    lease_one(&lab, remote).await;
    let successor = lab.start(under(WAITING)).await;
    let timer = lab.start(holding("t", WAITING, later(MINUTE))).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 2);
    assert_eq!(lab.status(timer).await, Status::Runnable);
    lab.cancel(cancelling(timer)).await;
    is_back(&lab, first, successor, 1).await;
}

pub async fn what_gave_its_key_up_is_still_judged_at_its_end(lab: Lab) {
    // rule 2.8: it lets go of its key while it lives; that only one is done under it still holds.
    let (claim, successor) = with_successor(&lab, &[Status::Runnable, Status::Done]).await;
    let first = claim.id();
    lab.run(Op::GiveBack(vec![claim])).await;
    assert_eq!(lab.get(first).await.scope, Scope::NEVER.and(Status::Done));
    let worker = lab.worker("heir").await;
    let claims = lab.claim_some(worker, 2).await;
    assert_eq!(claims[0].claim.id(), first);
    lab.commit(claims[1].claim.again(), done()).await;
    let answer = lab.commit(claims[0].claim.again(), done()).await;
    assert_eq!(answer, Committed::Refused(taken("k", successor)));
}

pub async fn a_cancel_always_succeeds(lab: Lab) {
    // rules 2.8 and 11.1: it was answered 503 after ten seconds.
    let worker = lab.worker("w").await;
    let scope = &[Status::Cancelled];
    let runs = lab.start_all(vec![under(scope); 3]).await;
    let claim = lab.claim(worker).await.claim;
    assert_eq!(claim.id(), runs[0]);
    for id in [runs[1], runs[0], runs[2]] {
        let answer = lab.cancel(cancelling(id)).await;
        assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    }
    for id in [runs[0], runs[2]] {
        let found = lab.get(id).await;
        assert_eq!(
            (found.status, found.scope),
            (Status::Cancelled, Scope::NEVER)
        );
        assert_eq!(lab.kinds(id).await, ["key_given_up", "cancelled"]);
    }
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(runs[1]));
    assert_eq!(lab.commit(claim, done()).await, Committed::Stale);
}

pub async fn a_restart_into_a_taken_key_is_refused(lab: Lab) {
    // rules 2.8 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(under(WAITING)).await;
    lab.step(worker, stop("no")).await;
    let second = lab.start(under(WAITING)).await;
    assert_eq!(lab.restart(first).await, Operated::KeyTaken(second));
    assert_eq!(lab.status(first).await, Status::Failed);
    lab.cancel(cancelling(second)).await;
    let run = lab.restarted(first).await;
    assert_eq!(start(&lab, under(WAITING)).await, Started::Duplicate(run));
}

pub async fn a_run_that_goes_on_into_a_taken_key_is_refused(lab: Lab) {
    // rules 2.4 and 2.8: two runs of a batch go on under one key that neither of them holds while it executes.
    let worker = lab.worker("w").await;
    let mut claims = Vec::new();
    for _ in 0..2 {
        lab.start(under(WAITING)).await;
        claims.push(lab.claim(worker).await.claim);
    }
    let commits = claims
        .iter()
        .map(|claim| commit(claim.again(), continue_as_new("b")));
    let answers = lab.commit_all(commits.collect()).await;
    let refused = Committed::Refused(taken("k", claims[0].id()));
    assert_eq!(answers, [Committed::Moved(Status::Continued), refused]);
    let run = lab.find(key("k")).await.unwrap().id;
    let answer = lab.commit(claims[1].again(), continue_as_new("b")).await;
    assert_eq!(answer, Committed::Refused(taken("k", run)));
}

pub async fn a_run_that_went_on_holds_no_key_whatever_its_scope(lab: Lab) {
    // rules 2.4 and 2.8
    let worker = lab.worker("w").await;
    for (at, scope) in [
        Scope::ALWAYS,
        Scope::NEVER.and(Status::Continued),
        [Status::Runnable, Status::Continued].into_iter().collect(),
    ]
    .into_iter()
    .enumerate()
    {
        let text = format!("c{at}");
        let start = Start {
            scope,
            ..keyed(&text)
        };
        let mut runs = vec![lab.start(start).await];
        for _ in 0..2 {
            assert_eq!(
                lab.step(worker, continue_as_new("b")).await,
                Status::Continued
            );
            runs.push(lab.find(key(&text)).await.unwrap().id);
        }
        assert_eq!(lab.get(runs[1]).await.scope, Scope::NEVER);
        assert_eq!(lab.get(runs[2]).await.scope, scope);
        lab.step(worker, done()).await;
    }
}

pub async fn a_unique_key_is_taken_as_a_key_is(lab: Lab) {
    // rule 2.8
    let worker = lab.worker("w").await;
    let unique = |bytes: &[u8]| UniqueKey::new(bytes).unwrap();
    let start = Start {
        unique_key: Some(unique(b"\x00\xffu")),
        unique_scope: Scope::NEVER.and(Status::Done),
        ..plain()
    };
    let runs = lab.start_all(vec![start; 2]).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    let claim = lab.claim(worker).await.claim;
    let refusal = lab.refused(claim.again(), done()).await;
    let key = Some(AnyKey::UniqueKey(unique(b"\x00\xffu")));
    let holder = runs[0];
    assert_eq!(refusal, Refusal::KeyTaken { holder, key });
    let text = format!("unique key \"\\x00\\xffu\" is taken by instance {holder}");
    assert_eq!(refusal.to_string(), text);
    assert_eq!(
        lab.commit(claim, stop("no")).await,
        Committed::Moved(Status::Failed)
    );
}

pub async fn who_may_not_have_one_key_does_not_take_the_other(lab: Lab) {
    // rule 2.8
    let unique_key = Some(UniqueKey::new(*b"u").unwrap());
    let holder = lab.start(under(&[Status::Runnable])).await;
    let both = Start {
        unique_key: unique_key.clone(),
        unique_scope: [Status::Runnable, Status::Failed].into_iter().collect(),
        ..holding("k", &[Status::Runnable], later(MINUTE))
    };
    let first = lab.start(both.clone()).await;
    let second = lab.start(both).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 2);
    failed_of(&lab, first, "k", holder).await;
    failed_of(&lab, second, "k", holder).await;
    // The first ends under its unique key, the second gives that up as well.
    let kinds = lab.kinds(second).await;
    assert_eq!(kinds, ["key_given_up", "failed"]);
    let other = Start {
        unique_key,
        ..plain()
    };
    assert_eq!(start(&lab, other).await, Started::Duplicate(first));
}

pub async fn a_workflow_that_would_end_under_a_taken_key_is_refused(lab: Lab) {
    // rules 2.8 and 4.2
    let worker = lab.worker("w").await;
    let start = || holding("k", &[Status::Done], workflow());
    let first = lab.coded(worker, start(), Coded::then(ended())).await;
    lab.start(start()).await;
    let claim = lab.claim(worker).await.claim;
    let refusal = lab
        .refused(claim.again(), Coded::then(ended()).into())
        .await;
    assert_eq!(refusal, taken("k", first));
    assert_eq!(
        lab.commit(claim, stop("no")).await,
        Committed::Moved(Status::Failed)
    );
}
