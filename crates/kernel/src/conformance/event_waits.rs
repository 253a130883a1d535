//! Waiting for events: alone, with signals, several at once, in machines and in workflows.

use abide_core::model::{
    Cause, CommandStatus, Committed, HistoryEvent, InstanceId, Operator, Park, Refusal, Rejection,
    Sequence, Status, Verdict, WaitId, WaitKind,
};
use abide_core::rules::liveness::{Liveness, waiting};

use super::build::{
    MINUTE, SECOND, answer, done, held, keyed, name, next, plain, retry, signal, starting, updates,
    wait,
};
use super::coding::{Coded, awaiting, child_starts, ended, go_on, workflow};
use super::eventing::{
    any, arguments_of, awaits, known_as, order, ordered, parks, publishing, that, within_ms,
};
use super::lab::{Lab, command_ids};

fn wait_id(id: InstanceId, at: u32) -> Option<WaitId> {
    Some(WaitId::stored(format!("wait:{id}:{at}")))
}

pub async fn a_machine_waits_for_an_event_and_takes_it(lab: Lab) {
    // rules 7.6, 13.1, 14.1, 14.5 and 16.1
    let worker = lab.worker("w").await;
    let id = lab
        .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
        .await;
    let found = lab.get(id).await;
    let deadline = lab.now() + MINUTE;
    assert_eq!(
        (found.status, found.due_at, found.wait_kind()),
        (
            Status::AwaitingSignal,
            Some(deadline),
            Some(WaitKind::Event)
        )
    );
    let waits = waiting(&found).unwrap();
    assert_eq!(waits.names, [name("event:order")]);
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForEvent);
    let waiters = lab.waiters().await;
    let [waiter] = waiters.as_slice() else {
        panic!("{waiters:?}")
    };
    assert_eq!((waiter.instance, waiter.position), (id, 0));
    assert_eq!(waiter.event_type, name("order"));
    assert_eq!(waiter.conditions, order(1).conditions);
    assert_eq!((waiter.since, waiter.deadline), (lab.now(), Some(deadline)));
    assert_eq!(Some(&waiter.wait_id), found.wait_id());
    lab.pass(SECOND);
    assert_eq!(lab.tell(ordered(2)).await, 0);
    let event = lab.publish(known_as("e", ordered(1))).await;
    assert_eq!(event.matched, 1);
    assert!(lab.waiters().await.is_empty());
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.cause, claimed.timed_out, claimed.attempt),
        (Cause::Event, false, 0)
    );
    let came = claimed.awaited[0].clone();
    assert_eq!(
        (came.status, came.sequence, came.received_at),
        (CommandStatus::Received, Some(Sequence(1)), lab.now())
    );
    assert_eq!(
        (&came.wait_id, came.source.as_deref()),
        (&found.wait_id().cloned(), Some("e"))
    );
    assert_eq!(came.arguments, arguments_of("{\"id\":1}"));
    lab.commit(claimed.claim, next("then")).await;
    let record = lab.record(came.id).await;
    assert_eq!(
        (record.status, record.wait_id, record.step_sequence),
        (CommandStatus::Applied, found.wait_id().cloned(), Some(2))
    );
    let events = lab.events(id).await;
    let matched = HistoryEvent::EventMatched {
        command_id: came.id,
        event_type: name("order"),
        event_id: name("e"),
        message_sequence: Sequence(1),
        command_sequence: Some(Sequence(1)),
        wait_id: found.wait_id().cloned().unwrap(),
    };
    assert!(
        events.iter().any(|entry| entry.what == matched),
        "{events:?}"
    );
    assert_eq!(
        lab.kinds(id).await,
        [
            "step_completed",
            "wait_opened",
            "event_matched",
            "step_completed",
            "signal_applied",
            "message_cursor_advanced",
        ]
    );
}

pub async fn a_step_that_is_tried_again_keeps_its_event(lab: Lab) {
    // rules 4.1 and 7.4
    let worker = lab.worker("w").await;
    let id = lab
        .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
        .await;
    lab.tell(ordered(1)).await;
    let first = lab.claim(worker).await;
    let came = command_ids(&first.awaited);
    lab.commit(first.claim, retry(0)).await;
    assert_eq!(lab.inbox(id).await, came);
    let second = lab.claim(worker).await;
    assert_eq!((command_ids(&second.awaited), second.attempt), (came, 1));
    assert_eq!(lab.tell(ordered(1)).await, 0, "it does not wait any more");
    lab.commit(second.claim, done()).await;
    let taken = lab.record(second.awaited[0].id).await;
    assert_eq!(taken.status, CommandStatus::Applied);
}

pub async fn events_come_together_like_signals(lab: Lab) {
    // rules 7.4 and 14.1
    let worker = lab.worker("w").await;
    let both = || awaits(vec![order(1), order(2)], &[]);
    let id = lab.awaiting(worker, plain(), both()).await;
    lab.tell(ordered(1)).await;
    assert_eq!(lab.tell(ordered(2)).await, 0, "one event ends a wait");
    let claimed = lab.claim(worker).await;
    let first = command_ids(&claimed.awaited);
    let answer = lab.commit(claimed.claim, both()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal), "quietly");
    assert_eq!(lab.tell(ordered(2)).await, 1);
    let claimed = lab.claim(worker).await;
    let came = command_ids(&claimed.awaited);
    assert_eq!((came.len(), came[0]), (2, first[0]));
    lab.commit(claimed.claim, done()).await;
    assert_eq!(lab.count_events(id, "signal_applied").await, 2);
}

pub async fn a_signal_or_one_of_several_events_ends_the_wait(lab: Lab) {
    // rules 7.2 and 14.5
    let worker = lab.worker("w").await;
    let waits = || awaits(vec![order(1), any("paid"), order(2)], &["stop"]);
    for which in 0..4 {
        let id = lab.awaiting(worker, plain(), waits()).await;
        let found = lab.get(id).await;
        assert_eq!(found.wait_kind(), Some(WaitKind::Signal), "the first kind");
        assert_eq!(found.awaited().len(), 3, "a name is listed once");
        assert_eq!(lab.waiters().await.len(), 3);
        lab.signal(id, "other").await;
        assert_eq!(lab.tell(ordered(3)).await, 0);
        assert_eq!(lab.status(id).await, Status::AwaitingSignal);
        let cause = match which {
            0 => {
                lab.signal(id, "stop").await;
                Cause::Signal
            }
            1 => {
                assert_eq!(lab.tell(ordered(1)).await, 1);
                Cause::Event
            }
            2 => {
                assert_eq!(lab.tell(publishing("paid", "{}")).await, 1);
                Cause::Event
            }
            _ => {
                assert_eq!(lab.tell(ordered(2)).await, 1);
                Cause::Event
            }
        };
        assert!(lab.waiters().await.is_empty());
        for event in [ordered(1), ordered(2), publishing("paid", "1")] {
            assert_eq!(lab.tell(event).await, 0, "a later one changes nothing");
        }
        let late = lab.signal(id, "stop").await;
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.cause, cause, "case {which}");
        let late = u8::from(command_ids(&claimed.awaited).contains(&late.id));
        assert_eq!((claimed.awaited.len(), late), (2, 1));
        lab.commit(claimed.claim, done()).await;
    }
}

pub async fn a_wait_for_an_event_needs_a_timeout(lab: Lab) {
    // rule 14.5
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let code = lab.start(workflow()).await;
    let claimed = lab.claim(worker).await;
    let before = lab.get(id).await;
    for timeout_ms in [None, Some(0)] {
        for signals in [&[] as &[&str], &["s"]] {
            let waits = within_ms(vec![order(1)], signals, timeout_ms);
            let refusal = lab.refused(claimed.claim.again(), waits).await;
            assert!(refusal.to_string().contains("timeout"), "{refusal}");
        }
    }
    assert_eq!(lab.get(id).await, before);
    let turn = lab.claim(worker).await;
    assert_eq!(turn.claim.id(), code);
    let forever = Park {
        until: None,
        ..parks(vec![(1, order(1))], lab.now())
    };
    let refusal = lab
        .refused(turn.claim.again(), Coded::parks(forever).into())
        .await;
    assert!(refusal.to_string().contains("timeout"), "{refusal}");
    assert!(lab.waiters().await.is_empty());
    for (claim, least) in [
        (claimed.claim, within_ms(vec![order(1)], &[], Some(1))),
        (
            turn.claim,
            Coded::parks(parks(vec![(1, order(1))], lab.now())).into(),
        ),
    ] {
        lab.commit(claim, least).await;
    }
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 2);
}

pub async fn all_problems_of_a_wait_are_reported_at_once(lab: Lab) {
    // rules 14.1 and 14.2
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let before = lab.get(id).await;
    let bad = that(any("paid"), "at.one", Operator::In, "\"no list\"");
    let worse = that(
        that(any("order"), "two", Operator::Exists, "1"),
        "three",
        Operator::Gt,
        "null",
    );
    let waits = awaits(vec![bad, order(1), worse], &["s"]);
    let refusal = lab.refused(claimed.claim.again(), waits.clone()).await;
    let Refusal::BadEvent { problem } = &refusal else {
        panic!("{refusal:?}")
    };
    for part in ["paid: at.one in", "order: two exists", "order: three gt"] {
        assert!(problem.contains(part), "{part} in {problem}");
    }
    let then = answer(&[], Some(waits));
    assert_eq!(lab.refused(claimed.claim.again(), then).await, refusal);
    assert_eq!(lab.get(id).await, before);
    let many = vec![order(1); 1000];
    let refusal = lab.refused(claimed.claim.again(), awaits(many, &[])).await;
    assert!(refusal.to_string().contains("names_per_wait"), "{refusal}");
    lab.commit(claimed.claim, done()).await;
}

pub async fn a_signal_with_the_name_of_an_event_is_rejected(lab: Lab) {
    // rules 7.3 and 14.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let start = keyed("k");
    let id = lab
        .awaiting(worker, start, awaits(vec![any("order")], &[]))
        .await;
    for delivery in [
        signal(id, "event:order"),
        signal(super::build::key("k"), "event:order"),
        signal(id, "event:"),
        held("k", "event:order", MINUTE),
        starting(keyed("k"), "event:order"),
    ] {
        let answer = lab.deliver(delivery).await;
        let unknown = Verdict::Rejected(Rejection::UnknownSignal);
        assert_eq!(answer.verdict, unknown, "{answer:?}");
    }
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert!(lab.inbox(id).await.is_empty());
    let fresh = lab.deliver(starting(keyed("fresh"), "event:order")).await;
    assert_eq!(fresh.verdict, Verdict::Rejected(Rejection::UnknownSignal));
    assert!(lab.find(super::build::key("fresh")).await.is_none());
    let other = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), other);
    let refusal = lab
        .refused(claimed.claim.again(), wait(&["event:order"], None))
        .await;
    assert!(refusal.to_string().contains("event:order"), "{refusal}");
    lab.commit(claimed.claim, done()).await;
    assert_eq!(lab.tell(publishing("order", "1")).await, 1);
    let came = lab.claim(worker).await.awaited.remove(0);
    assert_eq!(came.key, Some(super::build::key("k")), "as a signal has it");
}

pub async fn an_update_is_answered_while_the_wait_stands(lab: Lab) {
    // rules 9.1 and 14.7
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab
        .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
        .await;
    let waiters = lab.waiters().await;
    let update = lab.update(id).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert_eq!(lab.waiters().await, waiters);
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    assert_eq!(lab.waiters().await, waiters);
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert_eq!(lab.waiters().await, waiters);
    assert_eq!(lab.tell(ordered(1)).await, 1);
    assert_eq!(lab.claim(worker).await.awaited.len(), 1);
}

pub async fn an_event_that_comes_while_an_update_is_answered_wakes_it_afterwards(lab: Lab) {
    // rules 9.1 and 14.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    for executes in [false, true] {
        let id = lab
            .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
            .await;
        let update = lab.update(id).await;
        if !executes {
            assert_eq!(lab.tell(ordered(1)).await, 1);
        }
        let claimed = lab.claim(worker).await;
        assert!(claimed.aside == executes || !claimed.updates.is_empty());
        if executes {
            assert_eq!(lab.tell(ordered(1)).await, 1);
        }
        assert!(lab.waiters().await.is_empty());
        assert_eq!(lab.tell(ordered(1)).await, 0);
        lab.commit(claimed.claim, answer(&[update.id], None)).await;
        assert_eq!(lab.status(id).await, Status::Runnable);
        let claimed = lab.claim(worker).await;
        assert_eq!((claimed.claim.id(), claimed.awaited.len()), (id, 1));
        lab.pass(2 * MINUTE);
        assert_eq!(lab.fire().await, 0, "its deadline is over with the wait");
        lab.commit(claimed.claim, done()).await;
    }
}

pub async fn an_answer_may_let_it_wait_for_something_else(lab: Lab) {
    // rules 9.1 and 14.7
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab
        .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
        .await;
    let update = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let then = answer(&[update.id], Some(awaits(vec![order(2), any("paid")], &[])));
    lab.commit(claim, then).await;
    let waiters = lab.waiters().await;
    let conditions: Vec<_> = waiters.iter().map(|one| one.conditions.clone()).collect();
    assert_eq!(conditions, [order(2).conditions, Vec::new()]);
    assert_eq!(lab.tell(ordered(1)).await, 0);
    assert_eq!(lab.tell(ordered(2)).await, 1);
    let update = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let then = answer(&[update.id], Some(wait(&["s"], None)));
    lab.commit(claim, then).await;
    assert!(lab.waiters().await.is_empty());
}

pub async fn a_workflow_waits_for_events_each_under_its_operation(lab: Lab) {
    // rules 7.6, 12.2, 13.1, 14.1 and 16.1
    let worker = lab.worker("w").await;
    let until = lab.now() + MINUTE;
    let park = parks(vec![(3, order(1)), (5, order(2))], until);
    let id = lab.coded(worker, workflow(), Coded::parks(park)).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.wait_kind(), found.due_at),
        (Status::AwaitingSignal, Some(WaitKind::Event), Some(until))
    );
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForEvent);
    let waiters = lab.waiters().await;
    let stand: Vec<_> = waiters
        .iter()
        .map(|one| (one.position, Some(one.wait_id.clone()), one.deadline))
        .collect();
    assert_eq!(
        stand,
        [
            (3, wait_id(id, 3), Some(until)),
            (5, wait_id(id, 5), Some(until))
        ]
    );
    assert_eq!(lab.tell(known_as("e", ordered(2))).await, 1);
    assert!(lab.waiters().await.is_empty());
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Event);
    let came = claimed.awaited[0].clone();
    assert_eq!(
        came.wait_id,
        wait_id(id, 5),
        "it names the wait that it is for"
    );
    let turn = Coded::then(go_on()).takes(&[&came]);
    lab.commit(claimed.claim, turn.into()).await;
    let record = lab.record(came.id).await;
    assert_eq!(
        (record.status, record.wait_id),
        (CommandStatus::Applied, wait_id(id, 5))
    );
    let events = lab.events(id).await.into_iter().map(|entry| entry.what);
    let ids: Vec<_> = events
        .filter_map(|what| match what {
            HistoryEvent::EventMatched { wait_id, .. }
            | HistoryEvent::SignalApplied { wait_id, .. } => Some(wait_id),
            _ => None,
        })
        .collect();
    assert_eq!(ids, [wait_id(id, 5).unwrap(), wait_id(id, 5).unwrap()]);
}

pub async fn a_workflow_waits_for_an_event_a_signal_and_children_at_once(lab: Lab) {
    // rules 10.2, 12.2, 14.5 and 14.7
    let worker = lab.worker("w").await;
    for which in 0..4 {
        let park = Park {
            events: vec![(2, order(1))],
            until: Some(lab.now() + MINUTE),
            ..awaiting(7, &["paid"])
        };
        let turn = Coded::parks(park).starts(6, child_starts(1), 1);
        let id = lab.coded(worker, workflow(), turn).await;
        assert_eq!(lab.waits_for_events().await, [id]);
        let cause = match which {
            0 => {
                assert_eq!(lab.tell(ordered(1)).await, 1);
                Cause::Event
            }
            1 => {
                lab.signal(id, "paid").await;
                Cause::Signal
            }
            2 => {
                lab.end_children(worker, 1).await;
                Cause::Children
            }
            _ => {
                lab.pass(MINUTE);
                assert_eq!(lab.fire().await, 1);
                Cause::Timeout
            }
        };
        assert!(lab.waiters().await.is_empty(), "case {which}");
        assert_eq!(lab.tell(ordered(1)).await, 0);
        let claimed = lab.claim(worker).await;
        assert_eq!((claimed.claim.id(), claimed.cause), (id, cause));
        assert_eq!(claimed.timed_out, which == 3);
        lab.commit(claimed.claim, Coded::then(ended()).into()).await;
        if which != 2 {
            lab.end_children(worker, 1).await;
        }
    }
}

pub async fn a_workflow_that_answers_an_update_waits_on(lab: Lab) {
    // rules 9.1, 12.2 and 14.7
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let until = lab.now() + MINUTE;
    let park = parks(vec![(1, order(1))], until);
    let turn = Coded::parks(park.clone());
    let first = lab.coded(worker, workflow(), turn.clone()).await;
    let opened = lab.now();
    lab.pass(SECOND);
    let second = lab.coded(worker, workflow(), turn).await;
    let update = lab.update(first).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.aside);
    assert_eq!(lab.waits_for_events().await, [first, second]);
    lab.pass(SECOND);
    let turn = Coded::parks(park).answers(&[update.id]);
    lab.commit(claimed.claim, turn.into()).await;
    let waiters = lab.waiters().await;
    assert_eq!((waiters.len(), waiters[0].instance), (2, first));
    assert_eq!(waiters[0].since, opened, "it has not lost its position");
    assert_eq!(lab.count_events(first, "wait_opened").await, 1);
    assert_eq!(lab.tell(ordered(1)).await, 2);
}

pub async fn an_event_that_a_workflow_was_sent_and_did_not_take_is_handed_again(lab: Lab) {
    // rules 7.1 and 12.2
    let worker = lab.worker("w").await;
    let until = lab.now() + MINUTE;
    let park = parks(vec![(1, order(1))], until);
    let turn = Coded::parks(park.clone());
    let id = lab.coded(worker, workflow(), turn.clone()).await;
    lab.tell(ordered(1)).await;
    let claimed = lab.claim(worker).await;
    let came = claimed.awaited[0].clone();
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable), "it is there");
    assert!(lab.waiters().await.is_empty());
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [came.id]);
    let turn = Coded::then(ended()).takes(&[&came]);
    lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(lab.record(came.id).await.status, CommandStatus::Applied);
    assert_eq!(lab.status(id).await, Status::Done);
}
