//! Updates: handled under the claim, answered, and then the instance goes back to where it stood.

use abide_core::model::{
    Answered, Cause, CommandStatus, Committed, Delivery, Outcome, Rejection, Sequence, Status,
    Verdict,
};

use super::build::{
    MINUTE, SECOND, adding, answer, answer_failed, cancelling, continue_as_new, done, json, keep,
    key, keyed, later, many, name, next, next_after, once, plain, retry, spawn, stop, updates,
    urgent, wait, within,
};
use super::lab::{Lab, OVER_LEASE, command_ids};

pub async fn an_update_is_recorded_like_a_signal(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let id = lab.start(keyed("k")).await;
    lab.signal(id, "s").await;
    let answer = lab.deliver(adding(key("k"), 5)).await;
    assert_eq!(answer.verdict, Verdict::Accepted);
    assert_eq!(answer.verdict.outcome(), "update_accepted");
    let record = answer.record.unwrap();
    assert_eq!(
        (record.status, record.sequence, record.instance),
        (CommandStatus::Accepted, Some(Sequence(2)), Some(id))
    );
    assert_eq!(record.arguments, json("{\"n\":5}"));
    assert_eq!(lab.record(record.id).await, record);
    let found = lab.get(id).await.inbox;
    assert_eq!((found.signals, found.updates), (1, 1));
    assert_eq!(lab.inbox(id).await.len(), 1, "an inbox holds signals");
}

pub async fn only_declared_updates_are_taken(lab: Lab) {
    // rule 9.1
    let free = lab.start(urgent(5)).await;
    lab.under(updates()).await;
    let id = lab.start(plain()).await;
    let unknown = Delivery::update(id, name("remove"));
    for delivery in [unknown, adding(free, 1)] {
        let answer = lab.deliver(delivery).await;
        assert_eq!(answer.verdict, Verdict::Rejected(Rejection::UnknownUpdate));
        assert_eq!(answer.verdict.outcome(), "rejected_unknown_update");
        assert_eq!(answer.record.unwrap().status, CommandStatus::Rejected);
    }
    let bad = Delivery::update(id, name("add"));
    let answer = lab.deliver(bad).await;
    assert_eq!(answer.verdict, Verdict::Rejected(Rejection::InvalidUpdate));
    assert_eq!(answer.verdict.outcome(), "rejected_invalid_arguments");
    assert_eq!(
        Rejection::InvalidUpdate.reason(),
        "invalid_update_arguments"
    );
    assert!(answer.record.unwrap().validation_errors.is_some());
}

pub async fn a_parked_instance_handles_it_and_goes_back_to_its_wait(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let before = lab.get(id).await;
    lab.pass(SECOND);
    let update = lab.update(id).await;
    let aside = lab.get(id).await;
    assert_eq!(aside.status, Status::Runnable);
    assert_eq!(aside.aside.unwrap().status, Status::AwaitingSignal);
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside && claimed.awaited.is_empty() && !claimed.timed_out);
    assert_eq!(
        (claimed.cause, command_ids(&claimed.updates)),
        (Cause::Update, vec![update.id])
    );
    let committed = lab.commit(claimed.claim, answer(&[update.id], None)).await;
    assert_eq!(committed, Committed::Moved(Status::AwaitingSignal));
    let after = lab.get(id).await;
    assert_eq!(
        (after.due_at, after.wait_id, after.wait_since, after.awaits),
        (
            before.due_at,
            before.wait_id,
            before.wait_since,
            before.awaits
        )
    );
    assert_eq!(
        (after.step, after.step_seq, after.cause, after.attempt),
        (before.step, before.step_seq, before.cause, 0)
    );
    assert_eq!(after.state, json("{\"updated\":1}"));
    assert_eq!((after.aside, after.inbox.updates), (None, 0));
    let record = lab.record(update.id).await;
    assert_eq!(
        (record.status, record.result, record.closed_at),
        (
            CommandStatus::Completed,
            Some(json("{\"ok\":1}")),
            Some(lab.now())
        )
    );
}

pub async fn its_deadline_still_stands_afterwards(lab: Lab) {
    // rules 7.5 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    lab.pass(MINUTE * 2);
    assert_eq!(lab.fire().await, 0, "it is aside");
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.timed_out, claimed.cause), (true, Cause::Timeout));
}

pub async fn a_scheduled_instance_handles_it_and_is_due_when_it_was(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let starts = lab.start(later(MINUTE)).await;
    let goes_on = lab.start(plain()).await;
    lab.step(worker, next_after("b", 60_000)).await;
    let tries_again = lab.start(plain()).await;
    lab.step(worker, retry(60_000)).await;
    let sleeps = lab.parked(worker, plain(), &[], Some(60_000)).await;
    let due = lab.now() + MINUTE;
    for (id, cause) in [
        (starts, Cause::Start),
        (goes_on, Cause::Next),
        (tries_again, Cause::Retry),
        (sleeps, Cause::Timeout),
    ] {
        let update = lab.update(id).await;
        assert_eq!(
            lab.step(worker, answer(&[update.id], None)).await,
            Status::Scheduled
        );
        let found = lab.get(id).await;
        assert_eq!((found.due_at, found.cause), (Some(due), cause));
    }
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 4);
    let claimed = lab.claim_some(worker, 9).await;
    let attempts: Vec<u32> = claimed.iter().map(|one| one.attempt).collect();
    assert_eq!(attempts, [0, 0, 1, 0]);
    let timed_out: Vec<bool> = claimed.iter().map(|one| one.timed_out).collect();
    assert_eq!(timed_out, [false, false, false, true]);
}

pub async fn a_parent_handles_it_and_waits_on_for_its_children(lab: Lab) {
    // rules 9.1 and 10.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9), urgent(9)])).await;
    let update = lab.update(parent).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside && claimed.children.is_empty());
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.children_pending),
        (Status::AwaitingChildren, 2)
    );
    lab.step(worker, done()).await;
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    assert_eq!((joined.cause, joined.children.len()), (Cause::Children, 2));
}

pub async fn children_that_end_while_it_is_aside_are_counted(lab: Lab) {
    // rules 9.1 and 10.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    for while_it_runs in [false, true] {
        let parent = lab.start(plain()).await;
        lab.step(worker, spawn(vec![urgent(-9)])).await;
        let update = lab.update(parent).await;
        let mut both = lab.claim_some(worker, 2).await;
        let aside = both.pop().unwrap();
        let child = both.pop().unwrap();
        let claim = match while_it_runs {
            true => {
                lab.commit(child.claim, done()).await;
                aside.claim
            }
            false => {
                lab.run(crate::Op::GiveBack(vec![aside.claim])).await;
                lab.commit(child.claim, done()).await;
                let claimed = lab.claim(worker).await;
                assert!(!claimed.aside, "there is a step to run after the update");
                assert_eq!((claimed.updates.len(), claimed.children.len()), (1, 1));
                claimed.claim
            }
        };
        lab.commit(claim, answer(&[update.id], None)).await;
        let joined = lab.claim(worker).await;
        assert_eq!(
            (joined.claim.id(), joined.cause, joined.children.len()),
            (parent, Cause::Children, 1)
        );
        assert!(joined.updates.is_empty());
        lab.commit(joined.claim, done()).await;
    }
}

pub async fn a_signal_that_comes_while_it_is_aside_wakes_it_afterwards(lab: Lab) {
    // rules 7.1 and 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let paid = lab.signal(id, "paid").await;
    let other = lab.signal(id, "other").await;
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.cause, claimed.aside), (Cause::Signal, false));
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    lab.commit(claimed.claim, next("x")).await;
    assert_eq!(lab.inbox(id).await, [other.id]);
}

pub async fn a_signal_of_another_name_lets_it_go_back(lab: Lab) {
    // rules 7.2 and 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    lab.signal(id, "other").await;
    assert_eq!(
        lab.step(worker, answer(&[update.id], None)).await,
        Status::AwaitingSignal
    );
}

pub async fn an_instance_that_runs_handles_it_when_its_step_is_done(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let parked = |status| Committed::Moved(status);
    for (outcome, committed) in [
        (next("b"), parked(Status::Runnable)),
        (retry(60_000), parked(Status::Runnable)),
        (wait(&["paid"], None), parked(Status::Runnable)),
        (spawn(many(1)), parked(Status::Runnable)),
    ] {
        let id = lab.start(urgent(-9)).await;
        let claimed = lab.claim(worker).await;
        let update = lab.update(id).await;
        assert_eq!(lab.status(id).await, Status::Executing);
        assert_eq!(lab.commit(claimed.claim, outcome).await, committed);
        let claimed = lab.claim(worker).await;
        assert_eq!(
            (claimed.claim.id(), command_ids(&claimed.updates)),
            (id, vec![update.id])
        );
        lab.commit(claimed.claim, answer(&[update.id], None)).await;
        lab.cancel(cancelling(id)).await;
    }
}

pub async fn a_runnable_instance_handles_it_before_its_step(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    assert!(!claimed.aside, "there is a step to run");
    assert_eq!(
        (claimed.cause, command_ids(&claimed.updates)),
        (Cause::Start, vec![update.id])
    );
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.step.as_str(), claimed.cause, claimed.attempt),
        ("start", Cause::Start, 0)
    );
    assert!(claimed.updates.is_empty());
    assert_eq!(claimed.state, json("{\"updated\":1}"));
}

pub async fn a_worker_may_keep_its_claim_and_go_on_with_the_step(lab: Lab) {
    // rules 4.3 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let commit = keep(claimed.claim, answer(&[update.id], None));
    let Some(Committed::Kept(claim)) = lab.commit_all(vec![commit]).await.pop() else {
        panic!("it is kept")
    };
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Completed);
    assert_eq!(
        lab.commit(claim, done()).await,
        Committed::Moved(Status::Done)
    );
    assert_eq!(lab.get(id).await.step_seq, 1);
}

pub async fn a_kept_claim_yields_to_an_update_that_came_meanwhile(lab: Lab) {
    // rules 4.3 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let update = lab.update(id).await;
    let committed = lab.commit_all(vec![keep(claimed.claim, next("b"))]).await;
    assert_eq!(committed, [Committed::Moved(Status::Runnable)]);
    let claimed = lab.claim(worker).await;
    let second = lab.update(id).await;
    let commit = keep(claimed.claim, answer(&[update.id], None));
    assert_eq!(
        lab.commit_all(vec![commit]).await,
        [Committed::Moved(Status::Runnable)]
    );
    assert_eq!(command_ids(&lab.claim(worker).await.updates), [second.id]);
}

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
    assert_eq!((after.state, after.last_error), (before.state, None));
    assert_eq!(after.due_at, before.due_at);
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

pub async fn an_answer_to_what_is_not_pending_is_passed_over(lab: Lab) {
    // rule 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let other = lab.start(later(MINUTE)).await;
    let update = lab.update(id).await;
    let paid = lab.signal(id, "x").await;
    let foreign = lab.update(other).await;
    let claimed = lab.claim_some(worker, 9).await;
    let claim = claimed
        .into_iter()
        .find(|one| one.claim.id() == id)
        .unwrap()
        .claim;
    let outcome = answer(&[update.id, update.id, paid.id, foreign.id], None);
    lab.commit(claim, outcome).await;
    assert_eq!(lab.record(foreign.id).await.status, CommandStatus::Accepted);
    assert_eq!(lab.record(paid.id).await.status, CommandStatus::Received);
    let found = lab.get(id).await.inbox;
    assert_eq!((found.updates, found.signals), (0, 1));
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
    let refused = lab.commit(super::build::again(&claim), huge).await;
    assert!(matches!(refused, Committed::Refused(_)), "{refused:?}");
    let nested = answer(&[update.id], Some(answer(&[], None)));
    let refused = lab.commit(super::build::again(&claim), nested).await;
    assert!(matches!(refused, Committed::Refused(_)), "{refused:?}");
    lab.commit(claim, answer(&[update.id], None)).await;
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Completed);
}

pub async fn a_run_that_ends_fails_its_pending_updates(lab: Lab) {
    // rule 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    for (outcome, word) in [(done(), "done"), (stop("no"), "failed")] {
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
        assert!(error.contains("ended") && error.contains(word), "{error}");
        let again = lab.deliver(adding(id, 2)).await;
        assert_eq!(again.verdict, Verdict::Rejected(Rejection::NotActive));
    }
}

pub async fn a_request_id_makes_it_one_update(lab: Lab) {
    // rule 9.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let first = lab.accept(once("r", adding(id, 1))).await;
    let again = lab.deliver(once("r", adding(id, 1))).await;
    assert_eq!((again.verdict, again.duplicate), (Verdict::Accepted, true));
    assert_eq!(again.record.as_ref(), Some(&first));
    let other = lab.deliver(once("r", adding(id, 2))).await;
    assert_eq!(
        other.verdict,
        Verdict::Rejected(Rejection::ConflictingDuplicate)
    );
    lab.step(worker, answer(&[first.id], None)).await;
    let after = lab.deliver(once("r", adding(id, 1))).await;
    assert!(after.duplicate);
    assert_eq!(after.record.unwrap().status, CommandStatus::Completed);
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
}

pub async fn updates_and_signals_apply_in_the_order_in_which_they_came(lab: Lab) {
    // rule 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let before = lab.update(id).await;
    let paid = lab.signal(id, "paid").await;
    let after = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [before.id]);
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    lab.commit(claimed.claim, answer(&[before.id], None)).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.updates.is_empty(), "the signal came first");
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    lab.commit(claimed.claim, wait(&["more"], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [after.id]);
    lab.commit(claimed.claim, answer(&[after.id], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
}

pub async fn a_buffered_signal_that_nobody_waits_for_holds_no_update_up(lab: Lab) {
    // rule 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let buffered = lab.signal(id, "other").await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    assert_eq!(lab.inbox(id).await, [buffered.id]);
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
    let first = lab
        .commit(super::build::again(&claim), answer(&[update.id], None))
        .await;
    let again = lab.commit(claim, answer(&[update.id], None)).await;
    assert_eq!(first, again);
    let completed = lab.kinds(id).await;
    let completed = completed.iter().filter(|kind| **kind == "update_completed");
    assert_eq!(completed.count(), 1);
}

pub async fn an_update_waits_for_its_partition(lab: Lab) {
    // rules 6.3 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, within("p"), &["paid"], None).await;
    lab.start(within("p")).await;
    let front = lab.claim(worker).await.claim;
    let update = lab.update(id).await;
    assert!(lab.claim_some(worker, 9).await.is_empty());
    lab.commit(front, done()).await;
    lab.step(worker, answer(&[update.id], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert!(!lab.get(id).await.behind);
}

pub async fn a_step_that_timed_out_handles_an_update_and_still_knows_it(lab: Lab) {
    // rules 7.5 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(1000)).await;
    lab.pass(SECOND);
    lab.fire().await;
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    assert!(!claimed.aside);
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.timed_out, claimed.cause, claimed.step.as_str()),
        (true, Cause::Timeout, "woken")
    );
}

pub async fn an_answer_is_told_to_who_waits_for_it(lab: Lab) {
    // rules 6.6 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    let mut listener = lab.store.listen();
    lab.step(worker, answer(&[update.id], None)).await;
    let told =
        |effects: &crate::Effects| effects.answered.contains(&update.id) || effects.ended_elsewhere;
    assert!(super::waking::heard(&mut listener, told).await);
}
