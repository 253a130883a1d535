//! The life of a message as its record and the history show it: wait ids, the cursor, and the events in order.

use abide_core::model::{
    CommandStatus, Entry, HistoryEvent, InstanceId, Name, Sequence, WaitId, WaitKind,
};

use super::build::{
    MINUTE, answer, cancelling, continue_as_new, done, name, next, plain, signal, updates, wait,
};
use super::lab::Lab;

fn waits(id: InstanceId, step: u32) -> WaitId {
    WaitId::stored(format!("wait:{id}:{step}"))
}

/// The events of a history that concern messages, in order.
async fn message_events(lab: &Lab, id: InstanceId) -> Vec<HistoryEvent> {
    let of_messages = |entry: Entry| match entry.what {
        HistoryEvent::StepCompleted { .. } | HistoryEvent::Done => None,
        what => Some(what),
    };
    lab.events(id)
        .await
        .into_iter()
        .filter_map(of_messages)
        .collect()
}

/// The wait ids in the history, event by event.
async fn recorded_wait_ids(lab: &Lab, id: InstanceId) -> Vec<(&'static str, WaitId)> {
    let of = |what: HistoryEvent| match &what {
        HistoryEvent::SignalReceived { wait_id, .. }
        | HistoryEvent::SignalApplied { wait_id, .. } => Some((what.kind(), wait_id.clone())),
        HistoryEvent::WaitOpened { wait_id, .. } => Some((what.kind(), wait_id.clone()?)),
        _ => None,
    };
    message_events(lab, id)
        .await
        .into_iter()
        .filter_map(of)
        .collect()
}

pub async fn received_opened_and_applied_show_the_id_of_the_wait(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let wait_id = lab.get(id).await.wait_id().cloned().unwrap();
    let paid = lab.signal(id, "paid").await;
    assert_eq!(paid.wait_id.as_ref(), Some(&wait_id));
    lab.step(worker, next("x")).await;
    assert_eq!(lab.record(paid.id).await.wait_id.as_ref(), Some(&wait_id));
    let expected = ["wait_opened", "signal_received", "signal_applied"];
    assert_eq!(
        recorded_wait_ids(&lab, id).await,
        expected.map(|kind| (kind, wait_id.clone()))
    );
}

pub async fn a_wait_adopts_the_id_of_the_signal_that_was_there_before_it(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let early = lab.signal(id, "paid").await;
    let own = early
        .wait_id
        .clone()
        .expect("a buffered one carries its own");
    lab.step(worker, wait(&["paid"], None)).await;
    assert_eq!(lab.get(id).await.wait_id(), Some(&own));
    lab.step(worker, next("x")).await;
    assert_eq!(lab.record(early.id).await.wait_id.as_ref(), Some(&own));
    let expected = ["signal_received", "wait_opened", "signal_applied"];
    assert_eq!(
        recorded_wait_ids(&lab, id).await,
        expected.map(|kind| (kind, own.clone()))
    );
}

pub async fn a_wait_for_a_set_keeps_its_own_id(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let a = lab.signal(id, "a").await;
    let b = lab.signal(id, "b").await;
    assert_ne!(a.wait_id, b.wait_id);
    lab.step(worker, wait(&["a", "b"], None)).await;
    let own = lab.get(id).await.wait_id().cloned().unwrap();
    assert_eq!(own, waits(id, 2));
    lab.step(worker, next("x")).await;
    for taken in [a, b] {
        assert_ne!(taken.wait_id.as_ref(), Some(&own));
        assert_eq!(lab.record(taken.id).await.wait_id.as_ref(), Some(&own));
    }
}

pub async fn each_wait_has_an_id_of_its_own(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let one = lab.parked(worker, plain(), &["a"], None).await;
    let two = lab.parked(worker, plain(), &["a"], Some(1000)).await;
    let first = lab.get(two).await.wait_id().cloned();
    assert_ne!(lab.get(one).await.wait_id(), first.as_ref());
    lab.pass(MINUTE);
    lab.fire().await;
    lab.step(worker, wait(&["a"], None)).await;
    assert_ne!(lab.get(two).await.wait_id(), first.as_ref());
}

pub async fn what_ends_unread_keeps_its_own_id(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let early = lab.signal(id, "paid").await;
    lab.step(worker, done()).await;
    let gone = lab.record(early.id).await;
    assert_eq!(
        (gone.status, gone.wait_id),
        (CommandStatus::Discarded, early.wait_id)
    );
}

pub async fn the_cursor_is_the_highest_sequence_that_was_consumed(lab: Lab) {
    // rule 7.7
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    for text in ["a", "b", "c"] {
        lab.signal(id, text).await;
    }
    lab.step(worker, wait(&["b"], None)).await;
    lab.step(worker, next("x")).await;
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(2));
    // An earlier position: nothing moves, and what is pending is read from its record.
    lab.step(worker, wait(&["a"], None)).await;
    lab.step(worker, next("x")).await;
    let found = lab.get(id).await;
    assert_eq!((found.inbox.cursor, found.inbox.signals), (Sequence(2), 1));
    lab.step(worker, wait(&["c"], None)).await;
    lab.step(worker, next("x")).await;
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(3));
    let moves: Vec<_> = message_events(&lab, id)
        .await
        .into_iter()
        .filter_map(|what| match what {
            HistoryEvent::MessageCursorAdvanced { stream, from, to } => {
                Some((stream, from.0, to.0))
            }
            _ => None,
        })
        .collect();
    let inbox = || "inbox".to_owned();
    assert_eq!(moves, [(inbox(), 0, 2), (inbox(), 2, 3)]);
}

pub async fn what_is_discarded_does_not_move_the_cursor(lab: Lab) {
    // rule 7.7
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.signal(id, "a").await;
    lab.step(worker, done()).await;
    assert_eq!(lab.get(id).await.inbox.cursor, Sequence(0));
    assert!(!lab.kinds(id).await.contains(&"message_cursor_advanced"));
}

pub async fn an_update_moves_the_cursor_too(lab: Lab) {
    // rules 7.7 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(id, "x").await;
    let update = lab.update(id).await;
    lab.step(worker, answer(&[update.id], None)).await;
    let found = lab.get(id).await;
    assert_eq!((found.inbox.cursor, found.inbox.signals), (Sequence(2), 1));
}

pub async fn the_life_of_a_signal_is_recorded_in_order(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], None).await;
    let from = |delivery: abide_core::model::NewCommand| abide_core::model::NewCommand {
        source: Some("api".into()),
        ..delivery
    };
    let x = lab.accept(from(signal(id, "x"))).await;
    let a = lab.signal(id, "a").await;
    lab.step(worker, done()).await;
    let wait_id = waits(id, 2);
    let received = |text: &str, record: &abide_core::model::Command, wait_id: WaitId| {
        HistoryEvent::SignalReceived {
            command_id: record.id,
            name: name(text),
            message_sequence: record.sequence.unwrap(),
            command_sequence: record.command_sequence,
            wait_id,
            source: record.source.clone(),
            claimed_source: record.claimed_source.clone(),
        }
    };
    let names = |texts: [&str; 2]| -> Vec<Name> { texts.map(name).into() };
    let expected = [
        HistoryEvent::WaitOpened {
            wait_kind: WaitKind::Signal,
            names: names(["a", "b"]),
            deadline: None,
            wait_id: Some(wait_id.clone()),
            waits: Vec::new(),
        },
        received("x", &x, x.wait_id.clone().unwrap()),
        received("a", &a, wait_id.clone()),
        HistoryEvent::SignalApplied {
            command_id: a.id,
            name: name("a"),
            message_sequence: Sequence(2),
            command_sequence: Some(Sequence(2)),
            wait_id,
            step: name("woken"),
            step_sequence: 2,
            operation: None,
            graph_step: None,
        },
        HistoryEvent::MessageCursorAdvanced {
            stream: "inbox".into(),
            from: Sequence(0),
            to: Sequence(2),
        },
        HistoryEvent::SignalDiscarded {
            command_id: x.id,
            name: name("x"),
            message_sequence: Sequence(1),
            command_sequence: Some(Sequence(1)),
        },
    ];
    assert_eq!(message_events(&lab, id).await, expected);
}

pub async fn an_update_is_recorded_from_its_arrival_to_its_answer(lab: Lab) {
    // rules 9.2 and 16.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let good = lab.update(id).await;
    lab.step(worker, answer(&[good.id], None)).await;
    let bad = lab.update(id).await;
    lab.step(worker, super::build::answer_failed(bad.id, "not now"))
        .await;
    let unanswered = lab.update(id).await;
    lab.cancel(cancelling(id)).await;
    let kinds: Vec<_> = lab.kinds(id).await;
    assert_eq!(
        kinds,
        [
            "step_completed",
            "wait_opened",
            "update_accepted",
            "update_completed",
            "message_cursor_advanced",
            "update_accepted",
            "update_failed",
            "message_cursor_advanced",
            "update_accepted",
            "update_failed",
            "cancelled",
        ]
    );
    let events = message_events(&lab, id).await;
    assert_eq!(
        events[2],
        HistoryEvent::UpdateCompleted {
            update_id: good.id,
            name: name("add"),
            message_sequence: Sequence(1),
            command_sequence: Some(Sequence(1)),
        }
    );
    let HistoryEvent::UpdateFailed {
        update_id, error, ..
    } = &events[8]
    else {
        panic!("{:?}", events[8])
    };
    assert_eq!(*update_id, unanswered.id);
    assert!(error.contains("cancelled"), "{error}");
}

pub async fn a_continuation_is_recorded_by_the_run_that_ends(lab: Lab) {
    // rules 2.4 and 16.1
    let worker = lab.worker("w").await;
    let first = lab.start(super::build::keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    let second = lab.find(super::build::key("k")).await.unwrap().id;
    let last = lab.events(first).await.pop().unwrap().what;
    assert_eq!(
        last,
        HistoryEvent::Continued {
            run_id: second,
            run_number: 2,
        }
    );
    assert!(lab.kinds(second).await.is_empty(), "its history is its own");
}

pub async fn a_refused_message_is_not_part_of_the_history(lab: Lab) {
    // rules 7.3 and 16.1
    lab.under(super::build::strict()).await;
    let id = lab.start(plain()).await;
    lab.deliver(signal(id, "unknown")).await;
    assert!(lab.kinds(id).await.is_empty());
}
