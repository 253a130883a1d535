//! Wait ids: what a signal is received under never changes, and each wait of a workflow's code has an id of its own.

use abide_core::model::{
    Command, CommandStatus, HistoryEvent, InstanceId, OperationKind, Park, Status, WaitId, WaitKind,
};

use super::build::{MINUTE, name, next, plain, wait};
use super::coding::{
    Coded, awaiting, child_starts, completed, ended, go_on, unfit, until, workflow,
};
use super::eventing::{known_as, order, ordered, parks};
use super::lab::Lab;

fn wait_id(id: InstanceId, operation: u32) -> WaitId {
    WaitId::stored(format!("wait:{id}:{operation}"))
}

fn own(signal: &Command) -> WaitId {
    WaitId::stored(format!("signal:{}", signal.id))
}

/// The ids of the open waits, by operation, and what each of them takes.
async fn open(lab: &Lab, id: InstanceId) -> Vec<(u32, WaitId, bool)> {
    let waits = lab.get(id).await.row.awaits.unwrap().waits.into_iter();
    let waits = waits.map(|one| (one.operation, one.id, one.command_id.is_some()));
    waits.collect()
}

/// Checks a signal that was applied against its history: one id from end to end.
async fn is_one_id(lab: &Lab, signal: &Command, expected: &WaitId) {
    assert_eq!(signal.wait_id.as_ref(), Some(expected), "received");
    let record = lab.record(signal.id).await;
    assert_eq!(record.wait_id.as_ref(), Some(expected), "the record");
    let events = lab.events(record.instance.unwrap()).await;
    let mut ids = events.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::SignalReceived {
            command_id,
            wait_id,
            ..
        }
        | HistoryEvent::SignalApplied {
            command_id,
            wait_id,
            ..
        } if *command_id == signal.id => Some(wait_id),
        _ => None,
    });
    assert!(ids.all(|id| id == expected));
}

pub async fn waits_side_by_side_have_an_id_each(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(4, &["x", "y"]));
    let id = lab.coded(worker, workflow(), turn).await;
    let waits = [(4, wait_id(id, 4), false), (5, wait_id(id, 5), false)];
    assert_eq!(open(&lab, id).await, waits);
    let events = lab.events(id).await;
    let HistoryEvent::WaitOpened { waits, .. } = &events.last().unwrap().what else {
        panic!("{events:?}")
    };
    let shown: Vec<_> = waits
        .iter()
        .map(|one| (one.operation, one.kind, one.name.clone(), one.id.clone()))
        .collect();
    assert_eq!(
        shown,
        [
            (4, WaitKind::Signal, Some(name("x")), wait_id(id, 4)),
            (5, WaitKind::Signal, Some(name("y")), wait_id(id, 5))
        ]
    );
    let y = lab.signal(id, "y").await;
    let x = lab.signal(id, "x").await;
    assert_eq!(y.wait_id, Some(wait_id(id, 5)));
    assert_eq!(x.wait_id, Some(wait_id(id, 4)));
    let turn = Coded::then(ended()).takes(&[&y, &x]);
    lab.turn(worker, id, turn).await;
    is_one_id(&lab, &y, &wait_id(id, 5)).await;
    is_one_id(&lab, &x, &wait_id(id, 4)).await;
}

pub async fn signals_of_one_name_belong_to_the_waits_in_order(lab: Lab) {
    // rules 7.6 and 12.2
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(2, &["go", "go"]));
    let id = lab.coded(worker, workflow(), turn).await;
    let first = lab.signal(id, "go").await;
    let second = lab.signal(id, "go").await;
    let third = lab.signal(id, "go").await;
    let waits = [(2, wait_id(id, 2), true), (3, wait_id(id, 3), true)];
    assert_eq!(open(&lab, id).await, waits);
    let takes = Coded::parks(awaiting(4, &["go"]))
        .takes_by(2, None, &first)
        .takes_by(3, None, &second);
    lab.turn(worker, id, takes).await;
    is_one_id(&lab, &first, &wait_id(id, 2)).await;
    is_one_id(&lab, &second, &wait_id(id, 3)).await;
    // No wait was open for the third. The wait that takes it adopts its id.
    assert_eq!(open(&lab, id).await, [(4, own(&third), true)]);
    assert_eq!(lab.get(id).await.wait_id(), Some(&own(&third)));
    let takes = Coded::then(ended()).takes_by(4, None, &third);
    lab.turn(worker, id, takes).await;
    is_one_id(&lab, &third, &own(&third)).await;
}

pub async fn of_what_is_buffered_each_is_adopted_by_the_wait_that_takes_it(lab: Lab) {
    // rule 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let (a, b) = (lab.signal(id, "go").await, lab.signal(id, "go").await);
    let turn = Coded::parks(awaiting(1, &["x", "go", "go", "go"]));
    lab.commit(claim, turn.into()).await;
    let waits = [
        (1, wait_id(id, 1), false),
        (2, own(&a), true),
        (3, own(&b), true),
        (4, wait_id(id, 4), false),
    ];
    assert_eq!(open(&lab, id).await, waits);
    let events = lab.events(id).await;
    let opened = events.iter().find_map(|entry| match &entry.what {
        HistoryEvent::WaitOpened { waits, .. } => Some(waits.clone()),
        _ => None,
    });
    let opened: Vec<_> = opened.unwrap().into_iter().map(|one| one.id).collect();
    let expected = [wait_id(id, 1), own(&a), own(&b), wait_id(id, 4)];
    assert_eq!(opened, expected);
    let c = lab.signal(id, "go").await;
    let turn = Coded::then(ended()).takes(&[&a, &b, &c]);
    lab.turn(worker, id, turn).await;
    is_one_id(&lab, &a, &own(&a)).await;
    is_one_id(&lab, &b, &own(&b)).await;
    is_one_id(&lab, &c, &wait_id(id, 4)).await;
}

pub async fn what_a_dropped_wait_had_been_given_goes_to_a_later_one_under_its_id(lab: Lab) {
    // rules 7.6 and 12.2
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(2, &["x", "y"]));
    let id = lab.coded(worker, workflow(), turn).await;
    let (x, y) = (lab.signal(id, "x").await, lab.signal(id, "y").await);
    // The first of the two wins, the other is dropped, and waited for again later.
    let dropped = completed(3, OperationKind::Signal, "y", "null");
    let turn = Coded::parks(awaiting(4, &["z"]))
        .takes_by(2, None, &x)
        .tells(vec![dropped]);
    lab.turn(worker, id, turn).await;
    assert_eq!(open(&lab, id).await, [(4, wait_id(id, 4), false)]);
    assert_eq!(lab.record(y.id).await.status, CommandStatus::Received);
    let z = lab.signal(id, "z").await;
    let turn = Coded::parks(awaiting(5, &["y"])).takes_by(4, None, &z);
    lab.turn(worker, id, turn).await;
    assert_eq!(open(&lab, id).await, [(5, wait_id(id, 3), true)]);
    let turn = Coded::then(ended()).takes_by(5, None, &y);
    lab.turn(worker, id, turn).await;
    is_one_id(&lab, &y, &wait_id(id, 3)).await;
}

pub async fn a_signal_that_comes_while_the_code_runs_is_for_the_wait_that_is_open(lab: Lab) {
    // rules 7.1 and 7.6
    let worker = lab.worker("w").await;
    for goes_on in [false, true] {
        let turn = Coded::parks(awaiting(1, &["x", "y"]));
        let id = lab.coded(worker, workflow(), turn).await;
        let x = lab.signal(id, "x").await;
        let mut claim = lab.claim(worker).await.claim;
        if goes_on {
            let ends = completed(1, OperationKind::Signal, "x", "1");
            let turn = Coded::then(go_on()).takes(&[&x]).tells(vec![ends]);
            lab.commit(claim, turn.into()).await;
            claim = lab.claim(worker).await.claim;
        }
        let y = lab.signal(id, "y").await;
        assert_eq!(y.wait_id, Some(wait_id(id, 2)), "{goes_on}");
        let late = lab.signal(id, "y").await;
        assert_eq!(late.wait_id, Some(own(&late)), "that wait has one");
        let turn = match goes_on {
            true => Coded::parks(awaiting(2, &["y"])),
            false => Coded::parks(awaiting(2, &["y"])).takes(&[&x]),
        };
        let answer = lab.commit(claim, turn.into()).await;
        let runs = abide_core::model::Committed::Moved(Status::Runnable);
        assert_eq!(answer, runs, "{goes_on}");
        assert_eq!(open(&lab, id).await, [(2, wait_id(id, 2), true)]);
        lab.turn(worker, id, Coded::then(ended()).takes(&[&y]))
            .await;
        is_one_id(&lab, &y, &wait_id(id, 2)).await;
    }
}

pub async fn a_signal_that_comes_while_the_code_does_not_fit_is_for_its_wait(lab: Lab) {
    // rules 7.6 and 12.4
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(1, &["x", "y"]));
    let id = lab.coded(worker, workflow(), turn).await;
    let x = lab.signal(id, "x").await;
    lab.turn(worker, id, Coded::then(unfit())).await;
    assert!(lab.get(id).await.is_blocked());
    let y = lab.signal(id, "y").await;
    assert_eq!(y.wait_id, Some(wait_id(id, 2)));
    assert!(
        lab.get(id).await.is_blocked(),
        "nothing but a repair wakes it"
    );
    lab.repair(id).await;
    let turn = Coded::then(ended()).takes(&[&x, &y]);
    lab.turn(worker, id, turn).await;
    is_one_id(&lab, &x, &wait_id(id, 1)).await;
    is_one_id(&lab, &y, &wait_id(id, 2)).await;
}

pub async fn a_wait_whose_time_was_up_takes_nothing_and_the_others_do(lab: Lab) {
    // rules 7.5 and 7.6
    let worker = lab.worker("w").await;
    for executing in [false, true] {
        let mut park = until(awaiting(1, &["x", "y"]), lab.now() + MINUTE);
        park.signals[1].deadline = Some(lab.now() + 2 * MINUTE);
        let id = lab.coded(worker, workflow(), Coded::parks(park)).await;
        lab.pass(MINUTE);
        assert_eq!(lab.fire().await, 1);
        let claim = match executing {
            true => Some(lab.claim(worker).await.claim),
            false => None,
        };
        let (x, y) = (lab.signal(id, "x").await, lab.signal(id, "y").await);
        assert_eq!(x.wait_id, Some(own(&x)), "it came too late: {executing}");
        assert_eq!(y.wait_id, Some(wait_id(id, 2)), "{executing}");
        let claim = match claim {
            Some(claim) => claim,
            None => {
                let claimed = lab.claim(worker).await;
                assert!(claimed.timed_out && claimed.awaited.is_empty());
                claimed.claim
            }
        };
        let turn = Coded::then(ended()).takes(&[&y]);
        lab.commit(claim, turn.into()).await;
        is_one_id(&lab, &y, &wait_id(id, 2)).await;
    }
}

pub async fn a_wait_that_goes_on_keeps_its_id_whatever_wakes_the_workflow(lab: Lab) {
    // rules 7.6 and 16.1
    let worker = lab.worker("w").await;
    let park = awaiting(2, &["x", "y"]);
    let turn = Coded::parks(park.clone()).starts(1, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let since = lab.get(id).await.wait_since();
    lab.pass(MINUTE);
    lab.end_children(worker, 1).await;
    // It goes on, and waits for the same again: these are the same waits.
    lab.turn(worker, id, Coded::then(go_on())).await;
    lab.turn(worker, id, Coded::parks(park)).await;
    let waits = [(2, wait_id(id, 2), false), (3, wait_id(id, 3), false)];
    assert_eq!(open(&lab, id).await, waits);
    assert_eq!(lab.get(id).await.wait_since(), since);
    assert_eq!(lab.count_events(id, "wait_opened").await, 1);
}

pub async fn an_event_and_a_signal_are_each_for_their_operation(lab: Lab) {
    // rules 7.6 and 14.1
    let worker = lab.worker("w").await;
    let events = parks(vec![(3, order(1)), (5, order(2))], lab.now() + MINUTE);
    let park = Park {
        signals: awaiting(4, &["order"]).signals,
        ..events
    };
    let id = lab.coded(worker, workflow(), Coded::parks(park)).await;
    assert_eq!(lab.tell(known_as("e", ordered(2))).await, 1);
    let signal = lab.signal(id, "order").await;
    assert_eq!(signal.wait_id, Some(wait_id(id, 4)));
    let claimed = lab.claim(worker).await;
    let event = claimed.awaited[0].clone();
    assert_eq!(event.wait_id, Some(wait_id(id, 5)));
    let waits = [
        (3, wait_id(id, 3), false),
        (4, wait_id(id, 4), true),
        (5, wait_id(id, 5), true),
    ];
    assert_eq!(open(&lab, id).await, waits);
    let turn = Coded::then(ended()).takes(&[&event, &signal]);
    lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(lab.record(event.id).await.wait_id, Some(wait_id(id, 5)));
    is_one_id(&lab, &signal, &wait_id(id, 4)).await;
}

pub async fn what_takes_a_signal_is_named_by_its_operation_and_its_step(lab: Lab) {
    // rules 7.6, 15.4 and 16.1
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(2, &["go", "go"]));
    let id = lab.coded(worker, workflow(), turn).await;
    let (plainly, of_step) = (lab.signal(id, "go").await, lab.signal(id, "go").await);
    let turn =
        Coded::then(ended())
            .takes_by(2, None, &plainly)
            .takes_by(3, Some("überweisen"), &of_step);
    lab.turn(worker, id, turn).await;
    for (signal, number, step) in [(plainly, 2, None), (of_step, 3, Some("überweisen"))] {
        let record = lab.record(signal.id).await;
        let expected = (Some(number), step.map(name));
        assert_eq!((record.operation, record.graph_step.clone()), expected);
        let applied = lab
            .events(id)
            .await
            .into_iter()
            .find_map(|entry| match entry.what {
                HistoryEvent::SignalApplied {
                    command_id,
                    operation,
                    graph_step,
                    ..
                } if command_id == signal.id => Some((operation, graph_step)),
                _ => None,
            });
        assert_eq!(applied, Some(expected));
    }
}

pub async fn a_machine_that_takes_several_of_one_name_leaves_each_its_id(lab: Lab) {
    // rules 7.4 and 7.6
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let (a, b) = (lab.signal(id, "paid").await, lab.signal(id, "paid").await);
    lab.step(worker, wait(&["paid"], None)).await;
    assert_eq!(
        lab.get(id).await.wait_id(),
        Some(&own(&a)),
        "that of the first"
    );
    let c = lab.signal(id, "paid").await;
    assert_eq!(c.wait_id, Some(own(&a)), "it came while that wait was open");
    lab.step(worker, next("x")).await;
    is_one_id(&lab, &a, &own(&a)).await;
    is_one_id(&lab, &b, &own(&b)).await;
    is_one_id(&lab, &c, &own(&a)).await;
    // One that a wait was handed and did not take stays under its id, and a later wait adopts that.
    lab.step(worker, wait(&["paid"], None)).await;
    let opened = lab.get(id).await.wait_id().cloned().unwrap();
    let d = lab.signal(id, "paid").await;
    lab.step(worker, wait(&["other"], None)).await;
    lab.signal(id, "other").await;
    lab.step(worker, wait(&["paid"], None)).await;
    assert_eq!(lab.get(id).await.wait_id(), Some(&opened));
    lab.step(worker, next("x")).await;
    is_one_id(&lab, &d, &opened).await;
}
