//! Answers to updates: what they change, what may follow them, and what becomes of those that get none.

use abide_core::model::{
    Answered, Cause, CommandStatus, Committed, Outcome, Rejection, Sequence, Status, Verdict,
};

use super::build::{
    MINUTE, adding, answer, answer_failed, cancelling, continue_as_new, done, json, later, next,
    plain, retry, stop, updates, urgent, wait,
};
use super::lab::{Lab, OVER_LEASE, command_ids};

pub async fn an_answer_can_go_on_to_something_else(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    for (then, status) in [
        (next("b"), Status::Runnable),
        (wait(&["other"], None), Status::AwaitingSignal),
        (retry(60_000), Status::Scheduled),
        (done(), Status::Done),
        (stop("no"), Status::Failed),
        (continue_as_new("again"), Status::Continued),
    ] {
        let id = lab.parked(worker, urgent(-9), &["paid"], Some(1000)).await;
        let update = lab.update(id).await;
        let outcome = answer(&[update.id], Some(then));
        assert_eq!(lab.step(worker, outcome).await, status);
        let record = lab.record(update.id).await;
        assert_eq!(record.status, CommandStatus::Completed);
        let found = lab.get(id).await;
        assert_eq!((found.aside, found.inbox.updates), (None, 0));
        let chain = lab.find(id).await.unwrap();
        if !chain.status.is_terminal() {
            lab.cancel(cancelling(id)).await;
        }
    }
}

pub async fn what_follows_an_answer_consumes_no_signal(lab: Lab) {
    // rules 4.1 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let paid = lab.signal(id, "paid").await;
    // It was claimed for the update, and handed nothing.
    lab.commit(claimed.claim, answer(&[update.id], Some(next("b"))))
        .await;
    assert_eq!(lab.inbox(id).await, [paid.id]);
    assert_eq!(
        lab.step(worker, wait(&["paid"], None)).await,
        Status::Runnable
    );
}

pub async fn an_update_does_not_consume_a_partial_pack(lab: Lab) {
    // rules 4.1, 7.4 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], None).await;
    let a = lab.signal(id, "a").await;
    lab.step(worker, wait(&["a", "b"], None)).await;
    let update = lab.update(id).await;
    assert_eq!(
        lab.step(worker, answer(&[update.id], None)).await,
        Status::AwaitingSignal,
        "what the step has seen does not wake it"
    );
    let second = lab.update(id).await;
    lab.step(worker, answer(&[second.id], Some(next("x"))))
        .await;
    assert_eq!(lab.inbox(id).await, [a.id]);
}

pub async fn a_failing_handler_changes_nothing(lab: Lab) {
    // rule 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let before = lab.get(id).await;
    let update = lab.update(id).await;
    assert_eq!(
        lab.step(worker, answer_failed(update.id, "not now")).await,
        Status::AwaitingSignal
    );
    let record = lab.record(update.id).await;
    assert_eq!(
        (record.status, record.error.as_deref(), record.result),
        (CommandStatus::Failed, Some("not now"), None)
    );
    let after = lab.get(id).await;
    assert_eq!((after.state, after.row.last_error), (before.state, None));
    assert_eq!(after.row.due_at, before.row.due_at);
}

pub async fn several_are_answered_in_one_commit_each_for_itself(lab: Lab) {
    // rules 9.2 and 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let (one, two) = (lab.update(id).await, lab.update(id).await);
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [one.id, two.id]);
    let answered = |update_id, error: Option<&str>| Answered {
        update_id,
        result: json("1"),
        error: error.map(str::to_owned),
    };
    let outcome = Outcome::Answer {
        updates: vec![answered(one.id, Some("no")), answered(two.id, None)],
        state: Some(json("2")),
        then: None,
    };
    lab.commit(claimed.claim, outcome).await;
    assert_eq!(lab.record(one.id).await.status, CommandStatus::Failed);
    assert_eq!(lab.record(two.id).await.status, CommandStatus::Completed);
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(2));
}

pub async fn what_is_not_answered_comes_again(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let (one, two) = (lab.update(id).await, lab.update(id).await);
    let status = lab.step(worker, answer(&[one.id], None)).await;
    assert_eq!(status, Status::Runnable);
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    assert_eq!(command_ids(&claimed.updates), [two.id]);
    let committed = lab.commit(claimed.claim, answer(&[two.id], None)).await;
    assert_eq!(committed, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.get(id).await.due_at, Some(lab.now() + MINUTE));
}

pub async fn an_answer_to_an_unknown_update_is_refused_and_the_claim_stays(lab: Lab) {
    // rules 4.2 and 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let other = lab.start(later(MINUTE)).await;
    let earlier = lab.update(id).await;
    lab.step(worker, answer(&[earlier.id], None)).await;
    let update = lab.update(id).await;
    let signal = lab.signal(id, "x").await;
    let foreign = lab.update(other).await;
    let claimed = lab.claim_some(worker, 9).await;
    let mut claims = claimed.into_iter().map(|one| one.claim);
    let claim = claims.find(|claim| claim.id() == id).unwrap();
    for astray in [
        vec![foreign.id],
        vec![signal.id],
        vec![earlier.id],
        vec![update.id, foreign.id, signal.id],
    ] {
        for then in [None, Some(next("b"))] {
            let refused = lab.commit(claim.again(), answer(&astray, then)).await;
            let Committed::Refused(refusal) = refused else {
                panic!("{astray:?}: {refused:?}");
            };
            let text = refusal.to_string();
            let ids = astray.iter().filter(|id| **id != update.id);
            let ids: Vec<String> = ids.map(ToString::to_string).collect();
            let expected = format!("it answers {}, and", ids.join(", "));
            assert!(text.contains(&expected), "{text}");
        }
    }
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Accepted);
    assert_eq!(lab.record(foreign.id).await.status, CommandStatus::Accepted);
    assert_eq!(lab.record(signal.id).await.status, CommandStatus::Received);
    // Named twice it is answered once.
    let committed = lab
        .commit(claim, answer(&[update.id, update.id], None))
        .await;
    assert_eq!(committed, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Completed);
    let found = lab.get(id).await.inbox;
    assert_eq!((found.updates, found.signals), (0, 1));
}

pub async fn what_came_after_the_claim_can_be_answered_under_it(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let first = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let second = lab.update(id).await;
    let committed = lab
        .commit(claim, answer(&[first.id, second.id], None))
        .await;
    assert_eq!(committed, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.record(second.id).await.status, CommandStatus::Completed);
}

pub async fn an_answer_over_the_limit_is_refused_and_the_claim_stays(lab: Lab) {
    // rules 4.2 and 16.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let huge = Outcome::Answer {
        updates: vec![Answered {
            update_id: update.id,
            result: json(&format!("\"{}\"", "x".repeat(1 << 20))),
            error: None,
        }],
        state: None,
        then: None,
    };
    let claim = claimed.claim;
    let refused = lab.commit(claim.again(), huge).await;
    assert!(matches!(refused, Committed::Refused(_)), "{refused:?}");
    let nested = answer(&[update.id], Some(answer(&[], None)));
    let refused = lab.commit(claim.again(), nested).await;
    assert!(matches!(refused, Committed::Refused(_)), "{refused:?}");
    lab.commit(claim, answer(&[update.id], None)).await;
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Completed);
}

pub async fn a_run_that_ends_fails_its_pending_updates(lab: Lab) {
    // rule 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    for (outcome, status) in [(done(), "done"), (stop("no"), "failed")] {
        let id = lab.start(plain()).await;
        let claimed = lab.claim(worker).await;
        let update = lab.update(id).await;
        lab.commit(claimed.claim, outcome).await;
        let record = lab.record(update.id).await;
        assert_eq!(
            (record.status, record.closed_at),
            (CommandStatus::Failed, Some(lab.now()))
        );
        let error = record.error.unwrap();
        assert!(error.contains("ended") && error.contains(status), "{error}");
        let again = lab.deliver(adding(id, 2)).await;
        assert_eq!(again.verdict, Verdict::Rejected(Rejection::NotActive));
    }
}

pub async fn a_worker_that_dies_in_the_middle_leaves_the_update_to_the_next(lab: Lab) {
    // rules 5.3 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(600_000)).await;
    let due_at = lab.get(id).await.due_at;
    let update = lab.update(id).await;
    let lost = lab.claim(worker).await.claim;
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    let stale = lab.commit(lost, answer(&[update.id], None)).await;
    assert_eq!(stale, Committed::Stale);
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Accepted);
    let worker = lab.worker("v").await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.due_at, found.attempt, found.cause),
        (Status::AwaitingSignal, due_at, 0, Cause::Timeout)
    );
}

pub async fn a_claim_that_is_given_back_in_the_middle_leaves_it_too(lab: Lab) {
    // rules 5.4 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    lab.run(crate::Op::GiveBack(vec![claim])).await;
    lab.step(worker, answer(&[update.id], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
}

pub async fn an_answer_that_is_sent_again_counts_once(lab: Lab) {
    // rules 1.3 and 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let first = lab.commit(claim.again(), answer(&[update.id], None)).await;
    let again = lab.commit(claim, answer(&[update.id], None)).await;
    let Committed::Moved(status) = first else {
        panic!("{first:?}")
    };
    assert_eq!(again, Committed::Repeated(status));
    let completed = lab.kinds(id).await;
    let completed = completed.iter().filter(|kind| **kind == "update_completed");
    assert_eq!(completed.count(), 1);
}

pub async fn the_caller_that_waits_for_an_answer_is_notified(lab: Lab) {
    // rules 6.6 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    let mut listener = lab.store.listen();
    lab.step(worker, answer(&[update.id], None)).await;
    let notified =
        |effects: &crate::Effects| effects.answered.contains(&update.id) || effects.ended_elsewhere;
    assert!(super::waking::heard(&mut listener, notified).await);
}
