//! The numbers of commands in their run, and what is kept of those that are refused.

use abide_core::model::{
    Arguments, Command, CommandStatus, HistoryEvent, InstanceId, NewCommand, Rejection, Sequence,
    Started, Verdict,
};
use futures_util::future::join_all;

use super::build::{
    MINUTE, SECOND, adding, answer, continue_as_new, done, held, json, key, keyed, name, next,
    once, paying, plain, signal, starting, stop, strict, updates, wait,
};
use super::eventing::{awaits, known_as, order, ordered};
use super::lab::Lab;
use crate::{Answer, CommandFilter, Op};

/// The record of what was sent, accepted or refused.
async fn sent(lab: &Lab, delivery: NewCommand) -> Command {
    let delivered = lab.deliver(delivery).await;
    *delivered.record.expect("it has a record")
}

/// The numbers of a run's records, oldest first, by their names.
async fn numbers(lab: &Lab, id: InstanceId) -> Vec<(String, i64)> {
    let filter = CommandFilter {
        instance: Some(id),
        ..CommandFilter::default()
    };
    let records = lab.records(filter).await.into_iter();
    let numbers = records.map(|one| (one.name.to_string(), one.command_sequence.unwrap().0));
    numbers.collect()
}

async fn count(lab: &Lab, id: InstanceId) -> i64 {
    lab.get(id).await.inbox.commands.0
}

pub async fn commands_of_a_run_are_numbered_refused_ones_too(lab: Lab) {
    // rules 7.1 and 7.3
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let other = lab.start(plain()).await;
    let number = |record: &Command| record.command_sequence.map(|number| number.0);
    let invalid = sent(&lab, paying(id, "paid", "\"five\"")).await;
    assert_eq!((number(&invalid), invalid.sequence), (Some(1), None));
    let paid = sent(&lab, once("d", paying(id, "paid", "5"))).await;
    assert_eq!((number(&paid), paid.sequence), (Some(2), Some(Sequence(1))));
    assert_eq!(number(&sent(&lab, signal(id, "unknown")).await), Some(3));
    // What was sent before is the same command.
    let again = lab.deliver(once("d", paying(id, "paid", "5"))).await;
    assert!(again.duplicate);
    assert_eq!(number(&again.record.unwrap()), Some(2));
    let conflict = sent(&lab, once("d", paying(id, "paid", "6"))).await;
    assert_eq!(number(&conflict), Some(4));
    let update = sent(&lab, adding(id, 1)).await;
    let sequence = Some(Sequence(2));
    assert_eq!((number(&update), update.sequence), (Some(5), sequence));
    assert_eq!(number(&sent(&lab, signal(other, "stop")).await), Some(1));
    let claim = lab.claim(worker).await.claim;
    lab.commit(claim, answer(&[update.id], Some(done()))).await;
    // Those that come when the run has ended are its commands as well.
    let ended = lab.get(id).await;
    let late = sent(&lab, signal(id, "stop")).await;
    assert_eq!(late.rejection, Some(Rejection::NotActive));
    let late = sent(&lab, adding(id, 2)).await;
    assert_eq!((number(&late), count(&lab, id).await), (Some(7), 7));
    let after = lab.get(id).await;
    assert_eq!(
        (
            after.row.status,
            after.row.finished_at,
            after.result,
            after.row.inbox.sequence
        ),
        (
            ended.row.status,
            ended.row.finished_at,
            ended.result,
            ended.row.inbox.sequence
        ),
    );
    let all: Vec<i64> = numbers(&lab, id).await.iter().map(|(_, n)| *n).collect();
    assert_eq!(all, [1, 2, 3, 4, 5, 6, 7]);
}

pub async fn no_two_commands_of_a_run_have_one_number_however_they_come(lab: Lab) {
    // rules 7.1 and 7.3
    lab.under(strict()).await;
    let ids = lab.start_all(vec![plain(); 3]).await;
    let batches = (0..12).map(|at: usize| {
        let (lab, ids) = (lab.clone(), ids.clone());
        async move {
            let deliveries = ids.iter().flat_map(|id| {
                let good = paying(*id, "paid", "1");
                [good, signal(*id, "unknown"), adding(*id, at as i64)]
            });
            lab.deliver_all(deliveries.collect()).await;
        }
    });
    join_all(batches).await;
    for id in ids {
        let mut all: Vec<i64> = numbers(&lab, id).await.iter().map(|(_, n)| *n).collect();
        all.sort_unstable();
        assert_eq!(all, (1..=36).collect::<Vec<_>>());
        assert_eq!(count(&lab, id).await, 36);
    }
}

pub async fn what_moves_on_to_the_next_run_is_numbered_anew_there(lab: Lab) {
    // rules 2.4 and 7.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    for text in ["a", "b", "c"] {
        lab.signal(first, text).await;
    }
    lab.step(worker, wait(&["b"], None)).await;
    let refused = NewCommand::update(first, name("unknown"));
    assert_eq!(
        sent(&lab, refused).await.command_sequence,
        Some(Sequence(4))
    );
    lab.signal(first, "d").await;
    let claim = lab.claim(worker).await.claim;
    lab.update(first).await;
    lab.commit(claim, continue_as_new("again")).await;
    let second = lab.find(key("k")).await.unwrap().id;
    let of = |list: &[(&str, i64)]| -> Vec<(String, i64)> {
        list.iter()
            .map(|(text, n)| (text.to_string(), *n))
            .collect()
    };
    // What it has consumed and what it has refused stays; the rest goes on in its order.
    assert_eq!(numbers(&lab, first).await, of(&[("b", 2), ("unknown", 4)]));
    let moved = [("a", 1), ("c", 2), ("d", 3), ("add", 4)];
    assert_eq!(numbers(&lab, second).await, of(&moved));
    assert_eq!(
        (count(&lab, first).await, count(&lab, second).await),
        (6, 4)
    );
    let next_one = lab.signal(key("k"), "e").await;
    assert_eq!(next_one.command_sequence, Some(Sequence(5)));
    assert_eq!(next_one.sequence, Some(Sequence(6)), "the chain's goes on");
    let not_current = sent(&lab, signal(first, "e")).await;
    assert_eq!(not_current.rejection, Some(Rejection::NotCurrent));
    assert_eq!(not_current.command_sequence, Some(Sequence(7)));
}

pub async fn a_run_that_is_restarted_counts_from_one(lab: Lab) {
    // rules 7.1 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.signal(first, "a").await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    assert_eq!(count(&lab, second).await, 0);
    let b = lab.signal(second, "b").await;
    assert_eq!(b.command_sequence, Some(Sequence(1)));
    assert_eq!(b.sequence, Some(Sequence(2)));
}

pub async fn held_signals_are_numbered_when_they_are_handed_over(lab: Lab) {
    // rules 7.1 and 7.8
    lab.under(strict()).await;
    let hold = |payload: &str, hold_for| NewCommand {
        hold_for: Some(hold_for),
        ..paying(key("k"), "paid", payload)
    };
    let mut records = Vec::new();
    for (payload, hold_for) in [
        ("1", MINUTE),
        ("2", SECOND),
        ("\"x\"", MINUTE),
        ("3", MINUTE),
    ] {
        let delivered = lab.deliver(hold(payload, hold_for)).await;
        assert_eq!(delivered.verdict, Verdict::Held);
        let record = delivered.record.unwrap();
        assert_eq!(record.command_sequence, None, "no run has it");
        records.push(record.id);
    }
    lab.pass(2 * SECOND);
    let id = lab.start(keyed("k")).await;
    let mut became = Vec::new();
    for record in records {
        let record = lab.record(record).await;
        became.push((record.status, record.command_sequence.map(|n| n.0)));
    }
    assert_eq!(
        became,
        [
            (CommandStatus::Received, Some(1)),
            (CommandStatus::Expired, None),
            (CommandStatus::Rejected, Some(2)),
            (CommandStatus::Received, Some(3)),
        ]
    );
    assert_eq!(count(&lab, id).await, 3);
}

pub async fn what_was_refused_before_the_start_keeps_its_number(lab: Lab) {
    // rules 2.7 and 7.1
    let reserve = Op::Reserve(vec![(name("m"), key("k"))]);
    let id = match lab.run(reserve).await {
        Answer::Started(each) => match each[0] {
            Ok(Started::New(id)) => id,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let early = sent(&lab, signal(key("k"), "a")).await;
    assert_eq!(early.rejection, Some(Rejection::NotStarted));
    assert_eq!(early.command_sequence, Some(Sequence(1)));
    assert_eq!(lab.start(keyed("k")).await, id);
    let a = lab.signal(id, "a").await;
    assert_eq!(a.command_sequence, Some(Sequence(2)));
}

pub async fn an_event_that_matched_is_a_command_of_the_run(lab: Lab) {
    // rules 7.1 and 14.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.signal(id, "a").await;
    lab.step(worker, awaits(vec![order(1)], &[])).await;
    lab.tell(known_as("e", ordered(1))).await;
    let event = lab.claim(worker).await.awaited[0].clone();
    assert_eq!(event.command_sequence, Some(Sequence(2)));
}

pub async fn histories_name_the_number_of_each_command(lab: Lab) {
    // rules 7.1 and 16.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    sent(&lab, NewCommand::update(id, name("unknown"))).await;
    let (a, b) = (lab.signal(id, "a").await, lab.signal(id, "b").await);
    let add = lab.update(id).await;
    lab.step(worker, answer(&[add.id], Some(wait(&["a"], None))))
        .await;
    lab.step(worker, next("x")).await;
    let last = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    lab.commit(claim, done()).await;
    let events = lab.events(id).await;
    let numbers = events.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::SignalReceived {
            command_id: id,
            command_sequence,
            ..
        }
        | HistoryEvent::SignalApplied {
            command_id: id,
            command_sequence,
            ..
        }
        | HistoryEvent::SignalDiscarded {
            command_id: id,
            command_sequence,
            ..
        }
        | HistoryEvent::UpdateAccepted {
            update_id: id,
            command_sequence,
            ..
        }
        | HistoryEvent::UpdateCompleted {
            update_id: id,
            command_sequence,
            ..
        }
        | HistoryEvent::UpdateFailed {
            update_id: id,
            command_sequence,
            ..
        } => Some((entry.what.kind(), *id, command_sequence.map(|n| n.0))),
        _ => None,
    });
    let numbers: Vec<_> = numbers.collect();
    let expected = [
        ("signal_received", a.id, Some(2)),
        ("signal_received", b.id, Some(3)),
        ("update_accepted", add.id, Some(4)),
        ("update_completed", add.id, Some(4)),
        ("signal_applied", a.id, Some(2)),
        ("update_accepted", last.id, Some(5)),
        ("signal_discarded", b.id, Some(3)),
        ("update_failed", last.id, Some(5)),
    ];
    assert_eq!(numbers, expected);
}

fn named(pairs: &[(&str, &str)]) -> Arguments {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.to_string(), json(value)));
    Arguments::Named(pairs.collect())
}

pub async fn refused_arguments_are_kept_as_they_were_given(lab: Lab) {
    // rules 7.3 and 8.3
    lab.under(strict()).await;
    let id = lab.start(keyed("k")).await;
    let with = |arguments, delivery: NewCommand| NewCommand {
        arguments,
        ..delivery
    };
    let by_name = named(&[("note", "null"), ("amount", "\"fünf\"")]);
    let by_position = Arguments::Positional(vec![json("1.50"), json("{\"a\" : 1}"), json("3")]);
    let payload = |text: &str| Arguments::Payload(json(text));
    let large = format!("\"{}\"", "x".repeat((1 << 20) + 1));
    let by_name_shown = r#"{"note":null,"amount":"fünf"}"#;
    let by_position_shown = r#"[1.50,{"a" : 1},3]"#;
    let cases = [
        (by_name.clone(), by_name_shown),
        (by_position.clone(), by_position_shown),
        (Arguments::default(), "[]"),
        (named(&[]), "{}"),
        (payload("\"five\""), r#"["five"]"#),
        // Under a contract an object that is the payload stands for arguments by name.
        (payload(r#"{"amount":null}"#), r#"{"amount":null}"#),
        (named(&[("amount", &large)]), "null"),
        (payload(&large), "null"),
    ];
    for (arguments, shown) in cases {
        let delivered = lab.deliver(with(arguments, signal(id, "paid"))).await;
        assert!(delivered.verdict.rejection().is_some(), "{shown}");
        let record = delivered.record.unwrap();
        assert_eq!(record.arguments.as_str(), shown);
        assert_eq!(lab.record(record.id).await.arguments.as_str(), shown);
    }
    let update = with(by_name.clone(), NewCommand::update(id, name("add")));
    assert_eq!(sent(&lab, update).await.arguments.as_str(), by_name_shown);
    // One that is refused when it is handed over, and one that would have started what it is for.
    let waits = with(by_name.clone(), held("later", "paid", MINUTE));
    let waits = lab.deliver(waits).await.record.unwrap();
    lab.start(keyed("later")).await;
    let handed = lab.record(waits.id).await;
    assert_eq!(handed.status, CommandStatus::Rejected);
    assert_eq!(handed.arguments.as_str(), by_name_shown);
    let starts = with(by_position, starting(keyed("missing"), "paid"));
    let refused = sent(&lab, starts).await;
    assert_eq!(refused.arguments.as_str(), by_position_shown);
    assert_eq!(lab.record(refused.id).await, refused);
    // Where nothing is declared, a payload is one value.
    let free = abide_core::model::Start {
        contract: abide_core::model::Contracted::Free,
        ..keyed("free")
    };
    let free = lab.start(free).await;
    lab.cancel(super::build::cancelling(free)).await;
    let late = sent(&lab, paying(free, "any", r#"{"a":1}"#)).await;
    assert_eq!(late.arguments.as_str(), r#"[{"a":1}]"#);
    let late = sent(&lab, with(by_name, signal(free, "any"))).await;
    assert_eq!(late.arguments.as_str(), by_name_shown);
}
