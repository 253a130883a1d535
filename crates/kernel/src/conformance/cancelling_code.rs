//! Cancelling a workflow: its code is notified, cleans up, and ends.

use abide_core::model::{
    Cancel, Cause, Command, CommandKind, CommandStatus, Committed, HistoryEvent, InstanceId,
    Operated, Outcome, Park, Sequence, Start, Status, Then, Unended, WorkerId,
};

use super::build::{MINUTE, cancelling, done, key, keyed, plain, spawn, updates, urgent};
use super::coding::{
    Coded, awaiting, awaiting_children, child_starts, ended, go_on, sleep, unfit, workflow,
};
use super::lab::{Lab, command_ids};
use crate::CommandFilter;

fn cleaned_up() -> Then {
    Then::Cancelled {
        reason: "no longer wanted".into(),
    }
}

fn forced(id: InstanceId) -> Cancel {
    Cancel {
        force: true,
        ..cancelling(id)
    }
}

/// A workflow that waits for the signal `paid`.
async fn parked(lab: &Lab, worker: WorkerId) -> InstanceId {
    let turn = Coded::parks(awaiting(1, &["paid"]));
    lab.coded(worker, workflow(), turn).await
}

/// Requests a cancellation, which is accepted.
async fn request_cancel(lab: &Lab, id: InstanceId, children: usize) {
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelling { id, children });
}

/// The cancellations that were ever taken in.
async fn cancels(lab: &Lab) -> Vec<Command> {
    let mut all = lab.records(CommandFilter::default()).await;
    all.retain(|one| one.kind == CommandKind::Cancel && one.sequence.is_some());
    all
}

pub async fn a_cancel_is_handed_to_the_code_which_then_ends(lab: Lab) {
    // rules 7.3, 11.1 and 16.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    lab.pass(MINUTE);
    let cancel = Cancel {
        source: Some("operator".into()),
        claimed_source: Some("desk 3".into()),
        ..cancelling(id)
    };
    let answer = lab.cancel(cancel).await;
    assert_eq!(answer, Operated::Cancelling { id, children: 0 });
    assert_eq!(answer.outcome(), "cancelling");
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.inbox.updates, found.inbox.sequence),
        (Status::Runnable, 1, Sequence(1))
    );
    let events = lab.events(id).await;
    let sent = cancels(&lab).await.remove(0);
    let (source, claimed) = lab.recorded("operator", Some("desk 3"));
    let requested = HistoryEvent::CancelRequested {
        command_id: sent.id,
        message_sequence: Sequence(1),
        command_sequence: Some(Sequence(1)),
        reason: "no longer wanted".into(),
        source: source.map(str::to_owned),
        claimed_source: claimed.map(str::to_owned),
    };
    assert_eq!(events.last().unwrap().what, requested);
    assert_eq!(
        (sent.status, sent.instance),
        (CommandStatus::Accepted, Some(id))
    );
    assert_eq!(
        (sent.source.as_deref(), sent.claimed_source.as_deref()),
        (source, claimed)
    );
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.cause, claimed.aside), (Cause::Update, true));
    assert_eq!(command_ids(&claimed.updates), [sent.id]);
    assert_eq!(claimed.updates[0].kind, CommandKind::Cancel);
    // It cleans up for a while first.
    let turn = Coded::parks(sleep(2, lab.now() + MINUTE)).answers(&[sent.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Scheduled));
    let record = lab.record(sent.id).await;
    assert_eq!(record.status, CommandStatus::Completed);
    lab.pass(MINUTE);
    lab.fire().await;
    lab.turn(worker, id, Coded::then(cleaned_up())).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.last_error.as_deref()),
        (Status::Cancelled, Some("no longer wanted"))
    );
    let kinds = lab.kinds(id).await;
    assert_eq!(kinds.last(), Some(&"cancelled"));
    assert_eq!(lab.count_events(id, "cancel_requested").await, 1);
}

pub async fn however_often_it_is_cancelled_the_code_is_notified_once(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    request_cancel(&lab, id, 0).await;
    request_cancel(&lab, id, 0).await;
    let otherwise = Cancel {
        reason: "for another reason".into(),
        ..cancelling(id)
    };
    let answer = lab.cancel(otherwise.clone()).await;
    assert_eq!(answer, Operated::Cancelling { id, children: 0 });
    assert_eq!(cancels(&lab).await.len(), 1);
    assert_eq!(lab.get(id).await.inbox.updates, 1);
    let sent = cancels(&lab).await.remove(0);
    let claimed = lab.claim(worker).await;
    request_cancel(&lab, id, 0).await;
    let turn = Coded::parks(awaiting(2, &["cleaned"])).answers(&[sent.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    lab.cancel(otherwise).await;
    request_cancel(&lab, id, 0).await;
    assert_eq!(cancels(&lab).await.len(), 1);
    assert_eq!(lab.status(id).await, Status::AwaitingSignal, "it knows");
    assert_eq!(lab.count_events(id, "cancel_requested").await, 1);
}

pub async fn code_that_runs_is_notified_too(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let mut listener = lab.store.listen();
    request_cancel(&lab, id, 0).await;
    let notified = |effects: &crate::Effects| effects.received.contains(&id);
    assert!(super::waking::heard(&mut listener, notified).await);
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.worker),
        (Status::Executing, Some(worker))
    );
    let sent = cancels(&lab).await.remove(0);
    let turn = Coded::then(cleaned_up()).answers(&[sent.id]);
    let answer = lab.commit(claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Cancelled));
    assert_eq!(lab.record(sent.id).await.status, CommandStatus::Completed);
}

pub async fn a_turn_that_did_not_see_it_is_committed_and_the_next_is_notified(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    request_cancel(&lab, id, 0).await;
    let answer = lab
        .commit(claim, Coded::parks(awaiting(1, &["paid"])).into())
        .await;
    assert_eq!(
        answer,
        Committed::Moved(Status::Runnable),
        "it does not sleep"
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.updates.len(), 1);
}

pub async fn force_ends_it_at_once(lab: Lab) {
    // rules 1.3 and 11.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    request_cancel(&lab, id, 0).await;
    let sent = cancels(&lab).await.remove(0);
    let claim = lab.claim(worker).await.claim;
    let answer = lab.cancel(forced(id)).await;
    assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    assert_eq!(lab.status(id).await, Status::Cancelled);
    let record = lab.record(sent.id).await;
    assert_eq!(record.status, CommandStatus::Failed, "it was not handled");
    assert!(record.error.unwrap().contains("cancelled"));
    let stale = lab.commit(claim, Coded::then(cleaned_up()).into()).await;
    assert_eq!(stale, Committed::Stale);
    let again = lab.cancel(cancelling(id)).await;
    assert_eq!(again, Operated::NotActive(Status::Cancelled));
}

pub async fn one_that_never_ran_ends_at_once(lab: Lab) {
    // rule 11.1
    let later = Start {
        when: abide_core::model::When::After(MINUTE),
        ..workflow()
    };
    for start in [workflow(), later] {
        let id = lab.start(start).await;
        let answer = lab.cancel(cancelling(id)).await;
        assert_eq!(answer, Operated::Cancelled { id, children: 0 });
        assert_eq!(lab.kinds(id).await, ["cancelled"]);
    }
    assert!(cancels(&lab).await.is_empty());
}

pub async fn one_that_a_dead_worker_began_is_known_to_have_begun_by_its_commits(lab: Lab) {
    // rules 5.3 and 11.1
    let worker = lab.worker("w").await;
    let id = lab.coded(worker, workflow(), Coded::then(go_on())).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
    request_cancel(&lab, id, 0).await;
    let claimed = lab.claim(worker).await;
    assert!(!claimed.aside, "it has something to go on with");
    assert_eq!(claimed.updates.len(), 1);
}

pub async fn it_reaches_workflows_and_machines_below_it(lab: Lab) {
    // rules 10.2 and 11.1
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(2))
        .starts(1, vec![urgent(1), urgent(1)], 2)
        .starts(2, vec![workflow()], 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let below = lab.claim(worker).await.claim;
    let begun = below.id();
    let grandchild = Coded::parks(awaiting(2, &["x"])).starts(1, child_starts(1), 1);
    lab.commit(below, grandchild.into()).await;
    request_cancel(&lab, id, 4).await;
    let found = lab.get(id).await;
    assert_eq!(found.family.pending, 1, "the workflow cleans up");
    assert_eq!(found.inbox.updates, 1);
    assert_eq!(lab.get(begun).await.inbox.updates, 1);
    assert_eq!(lab.get(begun).await.family.pending, 0);
    assert_eq!(cancels(&lab).await.len(), 2);
    let mut claimed = lab.claim_some(worker, 9).await;
    claimed.sort_by_key(|one| one.claim.id());
    assert_eq!(claimed.len(), 2, "the machines have ended");
    let child = claimed.pop().unwrap();
    let parent = claimed.pop().unwrap();
    // The parent waits for the child to clean up.
    let park = Park {
        children: Some(Unended {
            seen: parent.children_ended,
            needed: 1,
        }),
        ..awaiting_children(2)
    };
    let turn = Coded::parks(park).answers(&command_ids(&parent.updates));
    let answer = lab.commit(parent.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingChildren));
    let turn = Coded::parks(awaiting(3, &["cleaned"])).answers(&command_ids(&child.updates));
    lab.commit(child.claim, turn.into()).await;
    assert_eq!(lab.status(id).await, Status::AwaitingChildren);
    lab.signal(begun, "cleaned").await;
    lab.turn(worker, begun, Coded::then(cleaned_up())).await;
    assert_eq!(lab.status(id).await, Status::Runnable, "it has ended now");
    lab.turn(worker, id, Coded::then(cleaned_up())).await;
    assert_eq!(lab.status(id).await, Status::Cancelled);
}

pub async fn the_barrier_of_a_machine_opens_when_the_code_below_it_has_ended(lab: Lab) {
    // rules 10.2 and 11.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![workflow()])).await;
    let claim = lab.claim(worker).await.claim;
    let child = claim.id();
    lab.commit(claim, Coded::parks(awaiting(1, &["paid"])).into())
        .await;
    request_cancel(&lab, child, 0).await;
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    lab.turn(worker, child, Coded::then(cleaned_up())).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.cause),
        (parent, Cause::Children)
    );
    assert_eq!(claimed.children[0].status, Status::Cancelled);
}

pub async fn a_machine_that_is_cancelled_asks_the_code_below_it(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![workflow(), workflow()])).await;
    let first = lab.claim(worker).await.claim;
    let begun = first.id();
    lab.commit(first, Coded::parks(awaiting(1, &["paid"])).into())
        .await;
    let answer = lab.cancel(cancelling(parent)).await;
    let cancelled = Operated::Cancelled {
        id: parent,
        children: 2,
    };
    assert_eq!(answer, cancelled);
    assert_eq!(cancels(&lab).await.len(), 1, "the other had not begun");
    lab.turn(worker, begun, Coded::then(cleaned_up())).await;
    assert!(lab.claim_some(worker, 9).await.is_empty());
}

pub async fn a_pending_cancel_moves_to_the_next_run(lab: Lab) {
    // rules 2.4 and 11.1
    let worker = lab.worker("w").await;
    let start = Start {
        kind: Some(abide_core::model::Kind::Workflow),
        ..keyed("k")
    };
    let id = lab.start(start).await;
    let claim = lab.claim(worker).await.claim;
    request_cancel(&lab, id, 0).await;
    let next = Then::ContinueAsNew {
        state: super::build::json("2"),
        version: None,
    };
    lab.commit(claim, Coded::then(next).into()).await;
    let second = lab.find(key("k")).await.unwrap();
    assert_eq!((second.run.number, second.inbox.updates), (2, 1));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), second.id);
    let sent = cancels(&lab).await.remove(0);
    assert_eq!((sent.instance, sent.chain), (Some(second.id), Some(id)));
    assert_eq!(command_ids(&claimed.updates), [sent.id]);
    let turn = Coded::then(cleaned_up()).answers(&[sent.id]);
    lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(lab.status(second.id).await, Status::Cancelled);
}

pub async fn one_that_ends_before_it_heard_of_it_says_so(lab: Lab) {
    // rules 9.2 and 11.1
    let worker = lab.worker("w").await;
    let ends: [(Outcome, Status); 2] = [
        (Coded::then(ended()).into(), Status::Done),
        (
            Coded::then(Then::Stop {
                reason: "no".into(),
            })
            .into(),
            Status::Failed,
        ),
    ];
    for (outcome, status) in ends {
        let id = lab.start(workflow()).await;
        let claim = lab.claim(worker).await.claim;
        request_cancel(&lab, id, 0).await;
        assert_eq!(lab.commit(claim, outcome).await, Committed::Moved(status));
        let sent = cancels(&lab).await.pop().unwrap();
        assert_eq!(sent.status, CommandStatus::Failed);
        let error = sent.error.unwrap();
        assert!(error.contains(status.name()), "{error}");
        let kinds = ["cancel_requested", status.name()];
        assert_eq!(lab.kinds(id).await, kinds);
    }
}

pub async fn a_full_inbox_does_not_keep_a_cancel_out(lab: Lab) {
    // rules 11.1 and 16.3
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let full: Vec<_> = (0..100).map(|_| super::build::signal(id, "x")).collect();
    lab.deliver_all(full).await;
    request_cancel(&lab, id, 0).await;
    assert_eq!(lab.get(id).await.inbox.updates, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.updates.len(), 1);
}

pub async fn a_cancel_comes_in_its_place_among_updates(lab: Lab) {
    // rules 9.4 and 11.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let before = lab.update(id).await;
    request_cancel(&lab, id, 0).await;
    let after = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let sent = cancels(&lab).await.remove(0);
    assert_eq!(
        command_ids(&claimed.updates),
        [before.id, sent.id, after.id]
    );
    let turn = Coded::then(cleaned_up()).answers(&[before.id, sent.id]);
    lab.commit(claimed.claim, turn.into()).await;
    let mut became = Vec::new();
    for id in [before.id, sent.id, after.id] {
        became.push(lab.record(id).await.status);
    }
    use CommandStatus::{Completed, Failed};
    assert_eq!(became, [Completed, Completed, Failed]);
    assert_eq!(lab.count_events(id, "update_completed").await, 1);
    assert_eq!(lab.count_events(id, "update_failed").await, 1);
}

pub async fn a_code_that_blocks_with_a_cancel_pending_is_ended_by_the_next(lab: Lab) {
    // rules 11.1 and 12.4
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    request_cancel(&lab, id, 0).await;
    lab.turn(worker, id, Coded::then(unfit())).await;
    assert!(lab.get(id).await.is_blocked());
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    let sent = cancels(&lab).await.remove(0);
    assert_eq!(sent.status, CommandStatus::Failed);
}

pub async fn a_machine_is_never_asked(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    assert_eq!(lab.commit(claim.again(), done()).await, Committed::Stale);
}
