//! Instances that were started with a policy of their own: how often their steps are tried, and how long each attempt
//! may take.

use abide_core::model::{
    Cause, Committed, Declared, Heartbeat, HistoryEvent, Kind, Outcome, Policy, Refusal, RetrySpec,
    Start, Started, Status,
};

use super::build::{
    MINUTE, SECOND, cancelling, continue_as_new, done, json, key, keyed, next, plain, spawn, stop,
    under, updates, within,
};
use super::failing::{fail, use_up};
use super::lab::{Lab, OVER_LEASE};
use super::remote_claims::{enlist, extend, lease_one};
use super::reserving::reserved;

/// A policy of that many attempts in all: the delay is a second, then twice as long each time.
fn often(max_attempts: u32) -> RetrySpec {
    RetrySpec::doubling(max_attempts, 1000)
}

fn policy(retry: Option<RetrySpec>, step_timeout_ms: Option<u64>) -> Policy {
    Policy {
        retry,
        step_timeout_ms,
        max_deaths: None,
    }
}

/// The start with that policy.
fn with(policy: Policy, start: Start) -> Start {
    Start {
        policy: Some(policy),
        ..start
    }
}

/// The machine `m` with that policy.
fn machine(policy: Policy) -> Declared {
    Declared {
        contract: None,
        ..under(&updates())
    }
    .with_policy(Some(policy))
}

pub async fn a_step_that_fails_is_tried_again_as_its_instance_was_started_with(lab: Lab) {
    // rules 1.2 and 5.2: it is the same instance, and its token is the same.
    let worker = lab.worker("w").await;
    let id = lab.start(with(policy(Some(often(3)), None), plain())).await;
    lab.step(worker, next("b")).await;
    for (attempt, delay) in [(0, 1), (1, 2)] {
        let claimed = lab.claim(worker).await;
        assert_eq!((claimed.claim.id(), claimed.step_seq), (id, 2));
        assert_eq!(claimed.attempt, attempt);
        let moved = Committed::Moved(Status::Scheduled);
        assert_eq!(lab.commit(claimed.claim, fail("no luck")).await, moved);
        let found = lab.get(id).await;
        assert_eq!((found.attempt, found.cause), (attempt + 1, Cause::Retry));
        assert_eq!(found.due_at, Some(lab.now() + SECOND * delay));
        assert_eq!(found.last_error.as_deref(), Some("no luck"));
        lab.pass(SECOND * delay);
        assert_eq!(lab.fire().await, 1);
    }
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.step_seq, claimed.attempt), (2, 2));
    lab.commit(claimed.claim, fail("for good")).await;
    let found = lab.get(id).await;
    assert_eq!(found.status, Status::Failed);
    assert_eq!(found.last_error.as_deref(), Some("for good"));
    let kinds = lab.kinds(id).await;
    let again = ["step_failed", "retried"];
    assert_eq!(
        kinds,
        [
            &["step_completed"],
            &again[..],
            &again[..],
            &["step_failed", "failed"]
        ]
        .concat()
    );
}

pub async fn each_part_of_an_instances_policy_takes_the_place_of_its_machines(lab: Lab) {
    // rules 5.2 and 5.4
    lab.declare(vec![machine(policy(Some(often(9)), Some(15_000)))])
        .await;
    let worker = enlist(&lab, "w", MINUTE * 9).await;
    let limit = async |start: Start| {
        lab.start(start).await;
        let claimed = lease_one(&lab, worker).await;
        let now = lab.now();
        // What is held the longest runs out when its limit has passed.
        let mut limit = None;
        while limit.is_none() {
            lab.pass(SECOND * 5);
            if extend(&lab, &[&claimed.claim]).await == [Heartbeat::Lost] {
                limit = Some(lab.now().since(now));
            }
        }
        assert_eq!(lab.fire().await, 1);
        let found = lab.get(claimed.claim.id()).await;
        let again = (found.status, found.attempt);
        // So that it is out of the way.
        lab.cancel(cancelling(found.id)).await;
        (limit, again)
    };
    let scheduled = (Status::Scheduled, 1);
    let machines = limit(plain()).await;
    assert_eq!(machines, (Some(SECOND * 15), scheduled));
    let shorter = limit(with(policy(None, Some(5000)), plain())).await;
    assert_eq!(
        shorter,
        (Some(SECOND * 5), scheduled),
        "the machine's attempts"
    );
    let once = limit(with(policy(Some(often(1)), None), plain())).await;
    assert_eq!(
        once,
        (Some(SECOND * 15), (Status::Failed, 0)),
        "the machine's time"
    );
    let longer = limit(with(policy(Some(often(2)), Some(40_000)), plain())).await;
    assert_eq!(longer, (Some(SECOND * 40), scheduled));
    let nothing = limit(with(Policy::default(), plain())).await;
    assert_eq!(nothing, (Some(SECOND * 15), scheduled));
}

pub async fn the_time_of_an_attempt_counts_from_its_claim(lab: Lab) {
    // rule 5.4: what an instance waits in its queue is not part of it, however long that is.
    let own = policy(Some(often(2)), Some(15_000));
    let id = lab.start(with(own, plain())).await;
    for attempt in [0, 1] {
        lab.pass(MINUTE * 60);
        lab.fire().await;
        assert_eq!(lab.status(id).await, Status::Runnable);
        let worker = enlist(&lab, "w", MINUTE).await;
        let claimed = lease_one(&lab, worker).await;
        assert_eq!((claimed.attempt, claimed.step_seq), (attempt, 1));
        use_up(&lab, &claimed.claim).await;
        assert_eq!(lab.fire().await, 1);
        assert_eq!(lab.commit(claimed.claim, done()).await, Committed::Stale);
    }
    let found = lab.get(id).await;
    assert_eq!(found.status, Status::Failed);
    let text = "the step ran longer than its time limit of 15000 ms";
    assert_eq!(found.last_error.as_deref(), Some(text));
}

pub async fn a_worker_that_dies_is_not_a_failure_of_the_step(lab: Lab) {
    // rules 5.2 and 5.3: one attempt is allowed, and the death of a worker ends nothing; but it has been an attempt.
    let own = policy(Some(often(1)), Some(15_000));
    let ids = lab
        .start_all(vec![with(own.clone(), plain()), with(own, plain())])
        .await;
    let (engine, remote) = (lab.worker("e").await, enlist(&lab, "r", SECOND).await);
    lab.claim(engine).await;
    lease_one(&lab, remote).await;
    lab.pass(OVER_LEASE);
    // What a remote worker held up to its limit has failed; it died before that.
    assert_eq!(lab.reclaim().await + lab.fire().await, 2);
    let again = lab.worker("again").await;
    for id in ids {
        let found = lab.get(id).await;
        assert_eq!(
            (found.row.status, found.row.attempt, found.row.last_error),
            (Status::Runnable, 1, None)
        );
        assert_eq!(lab.kinds(id).await, ["reclaimed"]);
    }
    assert_eq!(lab.step(again, done()).await, Status::Done);
    assert_eq!(lab.step(again, fail("no")).await, Status::Failed);
}

pub async fn a_stop_ends_an_instance_whatever_its_policy(lab: Lab) {
    // rule 5.2
    let worker = lab.worker("w").await;
    lab.start(with(policy(Some(often(9)), None), plain())).await;
    assert_eq!(lab.step(worker, stop("never")).await, Status::Failed);
}

pub async fn a_child_goes_by_the_policy_that_it_was_spawned_with(lab: Lab) {
    // rules 5.2 and 10.2: its parent is notified of its end, and not of its attempts.
    let worker = lab.worker("w").await;
    let parent = lab.start(within("p")).await;
    let own = policy(Some(often(2)), None);
    lab.step(worker, spawn(vec![with(own, keyed("c"))])).await;
    let child = lab.find(key("c")).await.unwrap();
    assert_eq!(lab.step(worker, fail("once")).await, Status::Scheduled);
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    assert_eq!(lab.get(parent).await.family.pending, 1);
    lab.pass(SECOND);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.attempt), (child.id, 1));
    lab.commit(claimed.claim, fail("twice")).await;
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.cause), (parent, Cause::Children));
    assert_eq!(joined.children[0].last_error.as_deref(), Some("twice"));
    let failures = lab.events(child.id).await;
    let failures = failures
        .iter()
        .filter(|entry| matches!(entry.what, HistoryEvent::StepFailed { .. }));
    assert_eq!(failures.count(), 2);
}

pub async fn a_policy_is_shown_and_goes_with_the_chain(lab: Lab) {
    // rules 2.4, 2.7, 5.2 and 11.2
    let own = policy(
        Some(RetrySpec {
            factor: Some(150),
            max_delay_ms: Some(7000),
            ..often(4)
        }),
        Some(3000),
    );
    let worker = lab.worker("w").await;
    let of = async |target: &str| lab.find(key(target)).await.unwrap().policy;

    let plain = lab.start(with(Policy::default(), keyed("none"))).await;
    assert_eq!(of("none").await, None, "an empty policy is none");
    assert_eq!(lab.claim(worker).await.policy, None);
    lab.cancel(cancelling(plain)).await;

    lab.start(with(own.clone(), keyed("k"))).await;
    assert_eq!(of("k").await.as_ref(), Some(&own));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.policy.as_ref(), Some(&own));
    lab.commit(claimed.claim, continue_as_new("again")).await;
    assert_eq!(of("k").await.as_ref(), Some(&own));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.policy.as_ref(), Some(&own));
    let run = claimed.claim.id();
    lab.commit(claimed.claim, stop("enough")).await;
    lab.restarted(run).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.policy.as_ref(), Some(&own));
    assert_eq!(
        lab.commit(claimed.claim, fail("no")).await,
        Committed::Moved(Status::Scheduled)
    );

    reserved(&lab, "r").await;
    assert_eq!(of("r").await, None);
    lab.start(with(own.clone(), keyed("r"))).await;
    assert_eq!(of("r").await.as_ref(), Some(&own));
    let listed = lab.store.list(&crate::Filter::default(), None, 9).await;
    let listed = listed.unwrap().items;
    let shown = listed
        .iter()
        .filter(|one| one.policy.as_ref() == Some(&own));
    assert_eq!(
        shown.count(),
        4,
        "three runs of one chain, and the one that was reserved"
    );
}

pub async fn a_start_with_a_policy_that_cannot_be_followed_is_refused(lab: Lab) {
    // rules 1.4 and 5.2: and touches no other.
    let long = |delay_ms, max_delay_ms| RetrySpec {
        delay_ms,
        max_delay_ms,
        ..often(3)
    };
    let bad = [
        (policy(Some(often(0)), None), 1),
        (policy(None, Some(0)), 1),
        (policy(None, Some(u64::MAX)), 1),
        (policy(Some(long(u64::MAX, None)), None), 1),
        (policy(Some(long(1, Some(u64::MAX))), Some(0)), 2),
        (
            policy(
                Some(RetrySpec {
                    factor: Some(99),
                    ..often(3)
                }),
                None,
            ),
            1,
        ),
    ];
    for (bad, count) in bad {
        let each = lab
            .starts(vec![plain(), with(bad.clone(), plain()), plain()])
            .await;
        assert!(matches!(each[0], Ok(Started::New(_))) && matches!(each[2], Ok(Started::New(_))));
        let problems = match &each[1] {
            Err(refusal @ Refusal::BadPolicy { problems }) => {
                assert_eq!(refusal.reason(), "bad_policy");
                problems.len()
            }
            other => panic!("{bad:?} is taken: {other:?}"),
        };
        assert_eq!(problems, count, "{bad:?}");
    }
    let workflow = Start {
        kind: Some(Kind::Workflow),
        ..with(policy(Some(often(2)), None), plain())
    };
    let each = lab.starts(vec![workflow]).await;
    assert!(
        matches!(&each[0], Err(Refusal::BadPolicy { .. })),
        "{each:?}"
    );
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    let spawned = spawn(vec![with(policy(Some(often(0)), None), plain())]);
    let refused = lab.commit(claimed.claim, spawned).await;
    assert!(
        matches!(refused, Committed::Refused(Refusal::BadPolicy { .. })),
        "{refused:?}"
    );
}

pub async fn a_policy_of_a_machine_that_is_declared_later_fills_what_is_left_out(lab: Lab) {
    // rule 5.2: what an instance was not started with is looked up when it is needed.
    let worker = lab.worker("w").await;
    let id = lab.start(with(policy(None, Some(60_000)), plain())).await;
    lab.declare(vec![machine(policy(Some(often(2)), Some(1)))])
        .await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Scheduled);
    lab.declare(vec![machine(Policy::default())]).await;
    lab.pass(MINUTE);
    lab.fire().await;
    assert_eq!(lab.step(worker, fail("no")).await, Status::Failed);
    assert_eq!(lab.get(id).await.attempt, 1);
}

pub async fn an_outcome_that_says_retry_is_not_counted_against_the_policy_by_itself(lab: Lab) {
    // rule 5.1: it is the step's own decision, without a maximum.
    let worker = lab.worker("w").await;
    let id = lab.start(with(policy(Some(often(2)), None), plain())).await;
    for attempt in 1..5 {
        let again = Outcome::Retry {
            state: json("1"),
            delay_ms: 0,
        };
        assert_eq!(lab.step(worker, again).await, Status::Runnable);
        assert_eq!(lab.get(id).await.attempt, attempt);
    }
    assert_eq!(lab.step(worker, fail("no")).await, Status::Failed);
}
