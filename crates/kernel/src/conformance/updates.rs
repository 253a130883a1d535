//! Updates: taken in like signals, and handled wherever the instance stands; then it goes back there.

use abide_core::model::{
    Cause, CommandStatus, Committed, NewCommand, Rejection, Sequence, Status, Verdict,
};

use super::build::{
    MINUTE, SECOND, adding, answer, cancelling, done, json, keep, key, keyed, later, many, name,
    next, next_after, once, plain, retry, spawn, updates, urgent, wait, within,
};
use super::lab::{Lab, command_ids};

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
    assert_eq!(lab.record(record.id).await, *record);
    let found = lab.get(id).await.inbox;
    assert_eq!((found.signals, found.updates), (1, 1));
    assert_eq!(lab.inbox(id).await.len(), 2, "an inbox holds both");
}

pub async fn only_declared_updates_are_taken(lab: Lab) {
    // rule 9.1
    let free = lab.start(urgent(5)).await;
    lab.under(updates()).await;
    let id = lab.start(plain()).await;
    let unknown = NewCommand::update(id, name("remove"));
    for (delivery, offered) in [(unknown, "add"), (adding(free, 1), "none")] {
        let answer = lab.deliver(delivery).await;
        assert_eq!(answer.offer.unwrap().to_string(), offered);
        assert_eq!(answer.verdict, Verdict::Rejected(Rejection::UnknownUpdate));
        assert_eq!(answer.verdict.outcome(), "rejected_unknown_update");
        assert_eq!(answer.record.unwrap().status, CommandStatus::Rejected);
    }
    let bad = NewCommand::update(id, name("add"));
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
        (after.row.due_at, &after.row.awaits),
        (before.row.due_at, &before.row.awaits)
    );
    assert_eq!(
        (
            after.row.step,
            after.row.step_seq,
            after.row.cause,
            after.row.attempt
        ),
        (before.row.step, before.row.step_seq, before.row.cause, 0)
    );
    assert_eq!(after.state, json("{\"updated\":1}"));
    assert_eq!((after.row.aside, after.row.inbox.updates), (None, 0));
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
        (found.status, found.family.pending),
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
    let Some(Committed::Kept(claim, _)) = lab.commit_all(vec![commit]).await.pop() else {
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

pub async fn a_request_id_makes_it_one_update(lab: Lab) {
    // rule 9.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let first = lab.accept(once("r", adding(id, 1))).await;
    let again = lab.deliver(once("r", adding(id, 1))).await;
    assert_eq!((again.verdict, again.duplicate), (Verdict::Accepted, true));
    assert_eq!(again.record.as_deref(), Some(&first));
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

pub async fn a_buffered_signal_without_a_wait_does_not_delay_updates(lab: Lab) {
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
