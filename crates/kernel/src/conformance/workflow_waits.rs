//! The waits of a workflow, all of them at once, and what wakes it.

use abide_core::model::{
    Cause, CommandStatus, Committed, HistoryEvent, InstanceId, Park, ResumeKind, ResumeSource,
    Sequence, Status, Unended, WaitId, WaitKind, WorkerId,
};
use abide_core::rules::liveness::{Liveness, Waiting, waiting};

use super::build::{MINUTE, SECOND, name, updates};
use super::coding::{
    Coded, awaiting, child_starts, condition, conditional, ended, go_on, sleep, until, workflow,
};
use super::lab::{Lab, command_ids};

fn wait_id(id: InstanceId, operation: u32) -> WaitId {
    WaitId::stored(format!("wait:{id}:{operation}"))
}

async fn parked(lab: &Lab, worker: WorkerId, park: Park) -> InstanceId {
    lab.coded(worker, workflow(), Coded::parks(park)).await
}

pub async fn it_waits_for_a_signal_and_takes_it(lab: Lab) {
    // rules 7.1, 7.6, 7.7, 12.2 and 13.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker, awaiting(3, &["paid"])).await;
    let found = lab.get(id).await;
    assert_eq!((found.status, found.due_at), (Status::AwaitingSignal, None));
    let waits = waiting(&found).unwrap();
    assert_eq!(
        (waits.kind, waits.names, waits.since),
        (WaitKind::Signal, vec![name("paid")], Some(lab.now()))
    );
    assert_eq!(
        waits.id,
        Some(wait_id(id, 3)),
        "it is named by its operation"
    );
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForSignal);
    lab.pass(SECOND);
    let paid = lab.signal(id, "paid").await;
    assert_eq!(paid.wait_id, Some(wait_id(id, 3)));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Signal);
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    let turn = Coded::then(go_on()).takes(&[&paid]);
    lab.commit(claimed.claim, turn.into()).await;
    let record = lab.record(paid.id).await;
    assert_eq!(
        (record.status, record.wait_id, record.step_sequence),
        (CommandStatus::Applied, Some(wait_id(id, 3)), Some(2))
    );
    let found = lab.get(id).await;
    assert_eq!((found.inbox.signals, found.inbox.cursor), (0, Sequence(1)));
    assert_eq!(
        lab.kinds(id).await,
        [
            "wait_opened",
            "signal_received",
            "signal_applied",
            "message_cursor_advanced"
        ]
    );
}

pub async fn any_of_several_signals_wakes_it_and_others_do_not(lab: Lab) {
    // rules 7.2 and 12.2
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker, awaiting(1, &["a", "b"])).await;
    lab.signal(id, "c").await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    let b = lab.signal(id, "b").await;
    assert_eq!(lab.status(id).await, Status::Runnable);
    let a = lab.signal(id, "a").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [b.id, a.id]);
}

pub async fn a_condition_waits_for_updates_and_not_for_a_signal_of_its_name(lab: Lab) {
    // rules 7.2, 9.5 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let deadline = lab.now() + MINUTE;
    let park = Park {
        until: Some(deadline),
        ..condition(4, "stocked")
    };
    let id = parked(&lab, worker, park).await;
    let found = lab.get(id).await;
    let waits = waiting(&found).unwrap();
    assert_eq!(
        (found.status, waits.kind, waits.deadline),
        (Status::AwaitingSignal, WaitKind::Condition, Some(deadline))
    );
    assert_eq!(
        (waits.names, waits.id),
        (vec![name("stocked")], Some(wait_id(id, 4)))
    );
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForCondition);
    let buffered = lab.signal(id, "stocked").await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    let update = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside && claimed.awaited.is_empty());
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    let turn = Coded::then(go_on()).answers(&[update.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable), "it is true now");
    assert_eq!(
        lab.record(buffered.id).await.status,
        CommandStatus::Received
    );
}

pub async fn a_condition_without_a_key_waits_too_and_has_its_deadline(lab: Lab) {
    // rules 7.5 and 9.5
    let worker = lab.worker("w").await;
    let deadline = lab.now() + MINUTE;
    let park = Park {
        operation: 2,
        conditions: vec![conditional(2, None)],
        until: Some(deadline),
        ..Park::default()
    };
    let id = parked(&lab, worker, park).await;
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForCondition);
    let forever = Park {
        operation: 2,
        conditions: vec![conditional(2, None)],
        ..Park::default()
    };
    let other = parked(&lab, worker, forever).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    assert!(claimed.timed_out);
    let events = lab.events(id).await;
    let timed_out = HistoryEvent::TimedOut {
        wait_kind: WaitKind::Condition,
        deadline,
        wait_id: Some(wait_id(id, 2)),
    };
    assert_eq!(events.last().unwrap().what, timed_out);
    assert_eq!(lab.liveness(other).await, Liveness::WaitingForCondition);
}

pub async fn time_alone_is_scheduled_and_wakes_it(lab: Lab) {
    // rules 3.1 and 7.5
    let worker = lab.worker("w").await;
    let due = lab.now() + MINUTE;
    let id = parked(&lab, worker, sleep(1, due)).await;
    let found = lab.get(id).await;
    assert_eq!((found.status, found.due_at), (Status::Scheduled, Some(due)));
    assert_eq!(waiting(&found).unwrap().kind, WaitKind::Timer);
    assert_eq!(lab.liveness(id).await, Liveness::Scheduled);
    lab.signal(id, "a").await;
    lab.pass(MINUTE - SECOND);
    assert_eq!(lab.fire().await, 0);
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.cause, claimed.timed_out), (Cause::Timeout, true));
    assert_eq!(claimed.attempt, 0, "a wake is not a failure");
}

/// A wait for a signal, two children and a deadline at once.
async fn for_all(lab: &Lab, worker: WorkerId) -> InstanceId {
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(7, &["paid"])
    };
    let turn = Coded::parks(park).starts(6, child_starts(2), 2);
    let id = lab.coded(worker, workflow(), turn).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.wait_kind(), found.due_at),
        (
            Status::AwaitingSignal,
            Some(WaitKind::Signal),
            Some(lab.now() + MINUTE)
        )
    );
    assert_eq!((found.family.pending, found.family.needed), (2, 2));
    id
}

pub async fn of_a_signal_children_and_a_deadline_each_wakes_it(lab: Lab) {
    // rules 7.1, 7.5 and 10.2
    let worker = lab.worker("w").await;
    let signalled = for_all(&lab, worker).await;
    lab.signal(signalled, "paid").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.cause),
        (signalled, Cause::Signal)
    );
    lab.end_children(worker, 2).await;
    let joined = for_all(&lab, worker).await;
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(joined).await, Status::AwaitingSignal);
    lab.end_children(worker, 1).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.cause),
        (joined, Cause::Children)
    );
    assert_eq!(claimed.children_pending, 0);
    assert!(!claimed.timed_out && claimed.awaited.is_empty());
    assert_eq!(lab.count_events(joined, "child_ended").await, 2);
    let late = for_all(&lab, worker).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.timed_out), (late, true));
    assert_eq!(claimed.children_pending, 2);
}

pub async fn a_signal_that_came_while_the_turn_ran_wakes_it(lab: Lab) {
    // rules 7.1 and 12.2
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    lab.signal(id, "other").await;
    let paid = lab.signal(id, "paid").await;
    let answer = lab
        .commit(claim, Coded::parks(awaiting(1, &["paid", "sent"])).into())
        .await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Signal);
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    let turn = Coded::parks(awaiting(1, &["paid", "sent"]));
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(
        answer,
        Committed::Moved(Status::Runnable),
        "what is waited for is to be taken, also when it was handed before"
    );
}

pub async fn a_wait_for_one_signal_that_is_there_has_its_id(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let paid = lab.signal(id, "paid").await;
    let own = WaitId::stored(format!("signal:{}", paid.id));
    assert_eq!(paid.wait_id, Some(own.clone()));
    lab.commit(claim, Coded::parks(awaiting(1, &["paid"])).into())
        .await;
    assert_eq!(lab.get(id).await.wait_id(), Some(&own));
    let turn = Coded::parks(awaiting(1, &["paid"]));
    lab.turn(worker, id, turn).await;
    assert_eq!(
        lab.count_events(id, "wait_opened").await,
        1,
        "it is the same wait"
    );
    let turn = Coded::then(ended()).takes(&[&paid]);
    lab.turn(worker, id, turn).await;
    assert_eq!(lab.record(paid.id).await.wait_id, Some(own));
}

pub async fn it_takes_exactly_what_it_names(lab: Lab) {
    // rules 7.7 and 12.2
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker, awaiting(1, &["a", "b"])).await;
    let mut sent = Vec::new();
    for text in ["a", "b", "a", "c", "a"] {
        sent.push(lab.signal(id, text).await);
    }
    let other = lab.start(workflow()).await;
    let stranger = lab.signal(other, "a").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    let turn = Coded::parks(awaiting(4, &["d"]))
        .takes(&[&sent[0], &sent[2], &sent[1], &stranger])
        // One that is named twice is taken once.
        .takes(&[&sent[2]]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.inbox(id).await, [sent[3].id, sent[4].id]);
    let found = lab.get(id).await;
    assert_eq!((found.inbox.signals, found.inbox.cursor), (2, Sequence(3)));
    assert_eq!(
        lab.record(stranger.id).await.status,
        CommandStatus::Received
    );
    let applied: Vec<_> = lab.events(id).await;
    let applied = applied.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::SignalApplied { command_id, .. } => Some(*command_id),
        _ => None,
    });
    assert_eq!(
        applied.collect::<Vec<_>>(),
        [sent[0].id, sent[2].id, sent[1].id]
    );
    assert_eq!(lab.count_events(id, "message_cursor_advanced").await, 1);
    lab.turn(worker, other, Coded::then(ended()).takes(&[&stranger]))
        .await;
    lab.signal(id, "d").await;
    let turn = Coded::then(go_on()).takes(&[&sent[0], &sent[4]]);
    lab.turn(worker, id, turn).await;
    let found = lab.get(id).await;
    assert_eq!((found.inbox.signals, found.inbox.cursor), (2, Sequence(5)));
}

pub async fn who_waits_again_for_the_same_goes_on_with_its_wait(lab: Lab) {
    // rules 7.6 and 16.1
    let worker = lab.worker("w").await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(5, &["paid"])
    };
    let turn = Coded::parks(park.clone()).starts(4, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let since = lab.now();
    lab.pass(SECOND);
    lab.end_children(worker, 1).await;
    let status = lab.turn(worker, id, Coded::parks(park.clone())).await;
    assert_eq!(status, Status::AwaitingSignal);
    let found = lab.get(id).await;
    assert_eq!(
        (found.wait_since(), found.wait_id().cloned(), found.due_at),
        (Some(since), Some(wait_id(id, 5)), park.until)
    );
    assert_eq!(lab.count_events(id, "wait_opened").await, 1);
    lab.pass(MINUTE);
    lab.fire().await;
    let other = awaiting(6, &["paid"]);
    lab.turn(worker, id, Coded::parks(other)).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.wait_since(), found.wait_id().cloned()),
        (Some(lab.now()), Some(wait_id(id, 6)))
    );
    assert_eq!(lab.count_events(id, "wait_opened").await, 2);
}

pub async fn of_a_signal_and_the_deadline_the_first_committed_wins(lab: Lab) {
    // rules 7.5 and 9.5
    let worker = lab.worker("w").await;
    let park = until(awaiting(1, &["paid"]), lab.now() + MINUTE);
    let early = parked(&lab, worker, park.clone()).await;
    let late = parked(&lab, worker, park).await;
    lab.pass(MINUTE);
    let first = lab.signal(early, "paid").await;
    assert_eq!(lab.fire().await, 1, "the signal came first");
    let second = lab.signal(late, "paid").await;
    assert_eq!(
        second.wait_id,
        Some(WaitId::stored(format!("signal:{}", second.id))),
        "that wait is over"
    );
    let mut claimed = lab.claim_some(worker, 2).await;
    claimed.sort_by_key(|one| one.claim.id());
    assert!(!claimed[0].timed_out && claimed[1].timed_out);
    assert_eq!(command_ids(&claimed[0].awaited), [first.id]);
    assert!(claimed[1].awaited.is_empty(), "it came after the deadline");
    assert_eq!(lab.count_events(early, "timed_out").await, 0);
    let answer = lab
        .commit(claimed.pop().unwrap().claim, Coded::then(go_on()).into())
        .await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    assert_eq!(lab.inbox(late).await, [second.id], "it stays");
    let claim = lab.claim(worker).await.claim;
    let answer = lab
        .commit(claim, Coded::parks(awaiting(2, &["paid"])).into())
        .await;
    assert_eq!(
        answer,
        Committed::Moved(Status::Runnable),
        "the next wait has it"
    );
}

pub async fn an_update_runs_aside_and_the_turn_restates_the_wait(lab: Lab) {
    // rules 9.1, 9.2 and 9.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(1, &["paid"])
    };
    let turn = Coded::parks(park.clone()).starts(2, child_starts(2), 2);
    let id = lab.coded(worker, workflow(), turn).await;
    let before = lab.get(id).await;
    lab.pass(SECOND);
    let update = lab.update(id).await;
    let aside = lab.get(id).await;
    assert_eq!(aside.status, Status::Runnable);
    let aside = waiting(&aside).unwrap();
    let source = ResumeSource {
        command_id: Some(update.id),
        kind: ResumeKind::Update,
    };
    assert_eq!(aside.resume_source, Some(source));
    let same = Waiting {
        resume_source: None,
        ..aside
    };
    assert_eq!(Some(same), waiting(&before), "it waits all the same");
    lab.end_children(worker, 1).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    assert_eq!(
        (claimed.cause, claimed.children_pending),
        (Cause::Update, 1)
    );
    let restated = Park {
        children: Some(Unended {
            seen: claimed.children_ended,
            needed: 1,
        }),
        ..park
    };
    let turn = Coded::parks(restated).answers(&[update.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    let after = lab.get(id).await;
    assert_eq!(waiting(&after), waiting(&before));
    assert_eq!((after.family.pending, after.family.needed), (1, 1));
    assert_eq!(lab.count_events(id, "wait_opened").await, 1);
    let record = lab.record(update.id).await;
    assert_eq!(record.status, CommandStatus::Completed);
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn what_comes_while_an_update_is_handled_is_not_lost(lab: Lab) {
    // rules 7.1, 7.5, 9.1 and 10.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(1, &["paid"])
    };
    for which in 0..4 {
        let turn = Coded::parks(park.clone()).starts(2, child_starts(1), 1);
        let id = lab.coded(worker, workflow(), turn).await;
        let update = lab.update(id).await;
        let claimed = lab.claim(worker).await;
        let restated = Park {
            children: Some(Unended {
                seen: claimed.children_ended,
                needed: 1,
            }),
            ..park.clone()
        };
        let (mut paid, mut other) = (None, None);
        match which {
            0 => paid = Some(lab.signal(id, "paid").await),
            1 => lab.end_children(worker, 1).await,
            2 => other = Some(lab.update(id).await),
            _ => {
                lab.pass(MINUTE);
                assert_eq!(lab.fire().await, 0, "it is aside");
            }
        }
        let turn = Coded::parks(restated).answers(&[update.id]);
        lab.commit(claimed.claim, turn.into()).await;
        lab.fire().await;
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.claim.id(), id, "case {which}");
        let woken = (claimed.cause, claimed.aside, claimed.timed_out);
        let expected = match which {
            0 => (Cause::Signal, false, false),
            1 => (Cause::Children, false, false),
            2 => (Cause::Update, true, false),
            _ => (Cause::Timeout, false, true),
        };
        assert_eq!(woken, expected, "case {which}");
        assert_eq!(lab.count_events(id, "wait_opened").await, 1, "case {which}");
        assert_eq!(claimed.awaited.first(), paid.as_ref());
        assert_eq!(claimed.updates.first(), other.as_ref());
        if let Some(paid) = paid {
            assert_eq!(paid.wait_id, Some(wait_id(id, 1)));
        }
        lab.commit(claimed.claim, Coded::then(ended()).into()).await;
        if which != 1 {
            lab.end_children(worker, 1).await;
        }
    }
}

pub async fn a_turn_that_parks_does_not_sleep_while_an_update_is_pending(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let update = lab.update(id).await;
    let park = awaiting(1, &["paid"]);
    let answer = lab.commit(claim.again(), Coded::parks(park.clone()).into());
    assert_eq!(answer.await, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    let turn = Coded::parks(park).answers(&[update.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
}
