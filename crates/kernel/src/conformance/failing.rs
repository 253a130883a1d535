//! Steps that fail: what the policy of their machine makes of it, and time limits.

use abide_core::model::{
    Cause, Claim, Committed, Declared, Heartbeat, HistoryEvent, Outcome, Refusal, RetrySpec, Status,
};

use super::build::{
    MINUTE, SECOND, answer, done, join, json, keyed, next, plain, spawn, under, updates, wait,
    within,
};
use super::lab::Lab;
use super::remote_claims::{enlist, extend, lease_one};
use super::sweeping::sweep;
use crate::{Error, Op};

pub(super) fn fail(error: &str) -> Outcome {
    Outcome::Fail {
        error: error.to_owned(),
    }
}

/// A policy of that many attempts in all: the delay is a second, then twice as long each time, at most three seconds.
fn often(max_attempts: u32) -> RetrySpec {
    RetrySpec {
        max_attempts,
        delay_ms: 1000,
        factor: Some(200),
        max_delay_ms: Some(3000),
    }
}

/// The machine `m` with that policy.
fn machine(retry: Option<RetrySpec>, step_timeout_ms: Option<u64>) -> Declared {
    Declared {
        contract: None,
        retry,
        step_timeout_ms,
        ..under(&updates())
    }
}

const TOO_LONG: &str = "the step ran longer than its time limit of 15000 ms";

pub async fn a_step_that_fails_is_tried_again_as_its_machine_declares(lab: Lab) {
    // rules 5.1 and 5.2
    lab.declare(vec![machine(Some(often(5)), None)]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, next("b")).await;
    for (attempt, delay) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        assert_eq!(lab.step(worker, fail("no luck")).await, Status::Scheduled);
        let found = lab.get(id).await;
        assert_eq!((found.attempt, found.cause), (attempt, Cause::Retry));
        assert_eq!(found.due_at, Some(lab.now() + SECOND * delay));
        assert_eq!((found.step.as_str(), found.step_seq), ("b", 2));
        assert_eq!(found.state, json("{\"to\":1}"), "the state that it had");
        assert_eq!(found.last_error.as_deref(), Some("no luck"));
        let events: Vec<HistoryEvent> = lab.events(id).await.into_iter().map(|e| e.what).collect();
        let [.., HistoryEvent::StepFailed { error, outcome, .. }, retried] = events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!((error.as_str(), outcome.as_str()), ("no luck", "retry"));
        assert!(
            matches!(retried, HistoryEvent::Retried { attempt: recorded, .. } if *recorded == attempt)
        );
        lab.pass(SECOND * delay);
        assert_eq!(lab.fire().await, 1);
    }
    assert_eq!(lab.step(worker, fail("for good")).await, Status::Failed);
    let found = lab.get(id).await;
    assert_eq!(found.last_error.as_deref(), Some("for good"));
    let kinds = lab.kinds(id).await;
    assert_eq!(kinds[kinds.len() - 2..], ["step_failed", "failed"]);
}

pub async fn the_attempts_of_a_step_are_counted_anew(lab: Lab) {
    // rule 5.1
    lab.declare(vec![machine(Some(often(2)), None)]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    for _ in 0..3 {
        assert_eq!(lab.step(worker, fail("no")).await, Status::Scheduled);
        lab.pass(MINUTE);
        lab.fire().await;
        assert_eq!(lab.step(worker, next("b")).await, Status::Runnable);
        assert_eq!(lab.get(id).await.last_error, None);
    }
}

pub async fn a_step_that_fails_without_a_policy_ends_its_instance(lab: Lab) {
    // rule 5.2
    let worker = lab.worker("w").await;
    let undeclared = lab.start(plain()).await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Failed);
    lab.declare(vec![machine(None, Some(1000))]).await;
    let without = lab.start(plain()).await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Failed);
    for id in [undeclared, without] {
        assert_eq!(lab.get(id).await.last_error.as_deref(), Some("no"));
        assert_eq!(lab.kinds(id).await, ["step_failed", "failed"]);
    }
}

pub async fn a_failure_goes_by_the_newest_declaration_of_its_version(lab: Lab) {
    // rule 5.2
    lab.declare(vec![machine(Some(often(9)), None)]).await;
    let second = Declared {
        version: 2,
        ..machine(Some(often(9)), None)
    };
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.declare(vec![second]).await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Scheduled);
    lab.declare(vec![machine(None, None)]).await;
    lab.pass(MINUTE);
    lab.fire().await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Failed);
    assert_eq!(lab.get(id).await.version, 1);
}

pub async fn a_policy_is_kept_as_it_was_declared(lab: Lab) {
    let declared = vec![
        machine(Some(often(3)), Some(5000)),
        Declared {
            version: 2,
            ..machine(None, None)
        },
    ];
    lab.declare(declared.clone()).await;
    assert_eq!(lab.store.machines().await.unwrap(), declared);
}

pub async fn a_policy_that_cannot_be_followed_is_refused(lab: Lab) {
    // rule 16.3
    let bad = [
        machine(Some(often(0)), None),
        machine(
            Some(RetrySpec {
                factor: Some(99),
                ..often(3)
            }),
            None,
        ),
        machine(
            Some(RetrySpec {
                delay_ms: u64::MAX,
                ..often(3)
            }),
            None,
        ),
        machine(
            Some(RetrySpec {
                max_delay_ms: Some(u64::MAX),
                ..often(3)
            }),
            None,
        ),
        machine(None, Some(0)),
        machine(None, Some(u64::MAX)),
    ];
    for machine in bad {
        let declare = Op::Declare {
            machines: vec![machine.clone()],
            contracts: Vec::new(),
        };
        let refused = lab.try_run(vec![declare]).await;
        let refused = matches!(
            &refused,
            Err(Error::Refused(Refusal::BadDeclaration { problems, .. })) if problems.len() == 1
        );
        assert!(refused, "{machine:?}");
    }
    assert!(lab.store.machines().await.unwrap().is_empty());
}

pub async fn a_step_that_fails_is_handed_its_signals_again(lab: Lab) {
    // rule 4.1: a retry consumes nothing, and a stop closes the inbox.
    lab.declare(vec![machine(Some(often(2)), None)]).await;
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.parked(worker, plain(), &["s"], None).await;
    let handed = lab.signal(id, "s").await;
    let claimed = lease_one(&lab, worker).await;
    assert_eq!(claimed.awaited.len(), 1);
    let later = lab.signal(id, "s").await;
    lab.commit(claimed.claim, fail("no")).await;
    assert_eq!(lab.inbox(id).await, [handed.id, later.id]);
    lab.pass(MINUTE);
    lab.fire().await;
    let claimed = lease_one(&lab, worker).await;
    assert_eq!((claimed.step.as_str(), claimed.attempt), ("woken", 1));
    let awaited: Vec<_> = claimed.awaited.iter().map(|one| one.id).collect();
    assert_eq!(awaited, [handed.id]);
    lab.commit(claimed.claim, fail("no")).await;
    assert_eq!(lab.status(id).await, Status::Failed);
    assert!(lab.inbox(id).await.is_empty());
    let status = async |id| lab.record(id).await.status.name();
    let ends = [status(handed.id).await, status(later.id).await];
    assert_eq!(ends, ["applied", "discarded"]);
}

pub async fn a_failure_may_follow_the_answers_to_updates(lab: Lab) {
    // rules 5.2 and 9.1
    lab.under(updates()).await;
    let mut declared = under(&updates());
    declared.retry = Some(often(2));
    lab.declare(vec![declared]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    for status in [Status::Scheduled, Status::Failed] {
        let update = lab.update(id).await;
        let claimed = lab.claim(worker).await;
        let outcome = answer(&[update.id], Some(fail("no")));
        let committed = lab.commit(claimed.claim, outcome).await;
        assert_eq!(committed, Committed::Moved(status));
        assert_eq!(lab.get(id).await.state, json("{\"updated\":1}"));
        assert_eq!(lab.record(update.id).await.status.name(), "completed");
        lab.pass(MINUTE);
        lab.fire().await;
    }
}

pub async fn a_failure_over_updates_alone_fails_the_first_of_them(lab: Lab) {
    // rule 9.2: a failing handler changes nothing and does not fail the instance.
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["s"], Some(90_000)).await;
    let before = lab.get(id).await;
    let (one, two) = (lab.update(id).await, lab.update(id).await);
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside && claimed.updates.len() == 2);
    lab.commit(claimed.claim, fail("cannot add")).await;
    let failed = lab.record(one.id).await;
    assert_eq!(
        (failed.status.name(), failed.error.as_deref()),
        ("failed", Some("cannot add"))
    );
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside && claimed.updates.len() == 1);
    lab.commit(claimed.claim, answer(&[two.id], None)).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.due_at, found.attempt, &found.step),
        (before.status, before.due_at, 0, &before.step)
    );
    assert_eq!(found.last_error, None);
}

pub async fn a_failure_that_is_sent_again_changes_nothing(lab: Lab) {
    // rule 1.3
    lab.declare(vec![machine(Some(often(2)), None)]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let moved = Committed::Moved(Status::Scheduled);
    assert_eq!(lab.commit(claim.again(), fail("no")).await, moved);
    let before = (lab.get(id).await, lab.events(id).await);
    let again = Committed::Repeated(Status::Scheduled);
    assert_eq!(lab.commit(claim, fail("no")).await, again);
    assert_eq!((lab.get(id).await, lab.events(id).await), before);
}

/// Renews a claim until the 15 seconds of its attempt are used up.
pub(super) async fn use_up(lab: &Lab, claim: &Claim) {
    let limit = lab.now() + SECOND * 15;
    for _ in 0..2 {
        lab.pass(SECOND * 7);
        assert_eq!(extend(lab, &[claim]).await, [Heartbeat::Renewed]);
        assert_eq!(lab.fire().await, 0);
    }
    assert_eq!(lab.store.next_due().await.unwrap(), Some(limit));
    lab.pass(SECOND);
}

pub async fn a_step_that_passes_its_time_limit_fails_though_it_is_still_named(lab: Lab) {
    // rule 5.4
    lab.declare(vec![machine(Some(often(2)), Some(15_000))])
        .await;
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    for (attempt, status) in [(1, Status::Scheduled), (1, Status::Failed)] {
        let claimed = lease_one(&lab, worker).await;
        use_up(&lab, &claimed.claim).await;
        assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Lost]);
        assert_eq!((lab.reclaim().await, lab.fire().await), (0, 1));
        assert_eq!(lab.commit(claimed.claim, done()).await, Committed::Stale);
        let found = lab.get(id).await;
        assert_eq!((found.status, found.attempt), (status, attempt));
        assert_eq!(found.last_error.as_deref(), Some(TOO_LONG));
        lab.pass(MINUTE / 2);
        lab.fire().await;
    }
    let kinds = lab.kinds(id).await;
    assert_eq!(kinds, ["step_failed", "retried", "step_failed", "failed"]);
}

pub async fn a_step_that_passes_its_time_limit_without_a_policy_ends_its_instance(lab: Lab) {
    // rules 5.4 and 10.2
    lab.declare(vec![machine(None, Some(15_000))]).await;
    let worker = enlist(&lab, "w", MINUTE * 9).await;
    let parent = lab.start(within("p")).await;
    let children = vec![within("c"), keyed("k")];
    lab.step(worker, spawn(children)).await;
    let one = lease_one(&lab, worker).await;
    let two = lease_one(&lab, worker).await;
    for _ in 0..2 {
        lab.pass(SECOND * 7);
        extend(&lab, &[&one.claim, &two.claim]).await;
    }
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 2);
    for child in [one.claim.id(), two.claim.id()] {
        let found = lab.get(child).await;
        assert_eq!(found.status, Status::Failed);
        assert_eq!(found.last_error.as_deref(), Some(TOO_LONG));
    }
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.cause), (parent, Cause::Children));
    assert_eq!(joined.children.len(), 2);
}

pub async fn a_child_whose_parent_was_deleted_keeps_its_time_limit(lab: Lab) {
    // rules 5.4 and 16.2: the failure was taken for that of a stranger, and the step ran on for ever.
    lab.declare(vec![machine(None, Some(15_000))]).await;
    let worker = enlist(&lab, "w", MINUTE * 9).await;
    let parent = lab.start(plain()).await;
    let barrier = join(vec![plain()], None, Some(1000));
    lab.step(worker, barrier).await;
    let child = lease_one(&lab, worker).await.claim;
    lab.pass(SECOND * 2);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    lab.pass(SECOND * 6);
    assert_eq!(extend(&lab, &[&child]).await, [Heartbeat::Renewed]);
    assert_eq!(sweep(&lab, lab.now(), None, 10).await.0, 1);
    assert!(lab.find(parent).await.is_none());
    lab.pass(SECOND * 7);
    assert_eq!(lab.fire().await, 1);
    let found = lab.get(child.id()).await;
    assert_eq!(found.status, Status::Failed);
    assert_eq!(found.last_error.as_deref(), Some(TOO_LONG));
}

pub async fn a_worker_that_dies_before_the_time_limit_has_not_passed_it(lab: Lab) {
    // rules 5.3 and 5.4: causes are never mixed, however late it is noticed.
    lab.declare(vec![machine(Some(often(2)), Some(15_000))])
        .await;
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    lease_one(&lab, worker).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let found = lab.get(id).await;
    assert_eq!(
        (found.row.status, found.row.attempt, found.row.last_error),
        (Status::Runnable, 1, None)
    );
    assert_eq!(lab.kinds(id).await, ["reclaimed"]);
}

pub async fn what_a_dead_worker_held_to_its_time_limit_has_failed(lab: Lab) {
    // rule 5.4: no matter which operation notices it first.
    lab.declare(vec![machine(Some(often(2)), Some(5000))]).await;
    let worker = enlist(&lab, "w", SECOND).await;
    let id = lab.start(plain()).await;
    lease_one(&lab, worker).await;
    lab.pass(MINUTE);
    assert_eq!((lab.reclaim().await, lab.fire().await), (0, 1));
    assert_eq!(lab.kinds(id).await, ["step_failed", "retried"]);
}

pub async fn a_time_limit_is_that_of_one_step(lab: Lab) {
    // rule 5.4
    lab.declare(vec![machine(None, Some(15_000))]).await;
    let worker = enlist(&lab, "w", MINUTE).await;
    let id = lab.start(plain()).await;
    let claimed = lease_one(&lab, worker).await;
    lab.pass(SECOND * 9);
    let commit = super::build::keep(claimed.claim, next("b"));
    let answers = lab.commit_all(vec![commit]).await;
    assert_eq!(answers, [Committed::Moved(Status::Runnable)]);
    let claimed = lease_one(&lab, worker).await;
    lab.pass(SECOND * 9);
    assert_eq!(extend(&lab, &[&claimed.claim]).await, [Heartbeat::Renewed]);
    lab.commit(claimed.claim, wait(&["s"], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
}

pub async fn an_engine_keeps_its_own_time_limits(lab: Lab) {
    // rule 5.4: a claim without a lease has none here.
    lab.declare(vec![machine(None, Some(1000))]).await;
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    lab.pass(SECOND * 20);
    assert_eq!(lab.fire().await, 0);
    assert_eq!(
        lab.commit(claimed.claim, done()).await,
        Committed::Moved(Status::Done)
    );
}
