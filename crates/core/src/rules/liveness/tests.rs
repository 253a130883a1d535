//! The health of an instance, case by case.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::model::{
    Accepts, Awaits, CommandId, Contract, ContractId, Inbox, Json, Scope, Sequence, WorkerId,
};
use crate::rules::fixture;

const NOW: Timestamp = Timestamp::from_micros(100_000_000);
const EARLY: Timestamp = Timestamp::from_micros(1_000_000);

fn name(text: &str) -> Name {
    Name::stored(text)
}

fn instance(status: Status) -> Instance {
    let row = fixture::row(status);
    Instance {
        first_step: row.step.clone(),
        row,
        key: None,
        scope: Scope::LIVE,
        unique_key: None,
        unique_scope: Scope::LIVE,
        version: 1,
        state: Json::null(),
        result: None,
        policy: None,
        updated_at: EARLY,
    }
}

/// One that waits for these signals.
fn waits(names: &[&str]) -> Instance {
    let names = names.iter().map(|text| name(text)).collect();
    let mut one = instance(Status::AwaitingSignal);
    one.row.awaits = Some(Awaits::new(WaitKind::Signal, names, EARLY, None));
    one.row.contract = Some(ContractId(1));
    one
}

/// One that waits for that many children.
fn joins(needed: u32) -> Instance {
    let mut one = instance(Status::AwaitingChildren);
    one.row.awaits = Some(Awaits::new(WaitKind::Children, Vec::new(), EARLY, None));
    (one.row.family.needed, one.row.family.pending) = (needed, needed);
    one
}

fn children(status: Status, is_due: bool, count: u32) -> Siblings {
    let lane = Lane {
        machine: name("n"),
        version: 2,
    };
    Siblings {
        status,
        is_due,
        runs_on: (status == Status::Runnable).then(|| (name("mail"), lane)),
        count,
    }
}

fn worker(queue: &str, machine: &str, version: u32) -> Worker {
    Worker {
        id: WorkerId(3),
        name: name("w"),
        lease_until: NOW,
        started_at: EARLY,
        queues: vec![name(queue)],
        lanes: vec![Lane {
            machine: name(machine),
            version,
        }],
        build: None,
    }
}

fn terms(signals: &[&str]) -> Terms {
    let accepts = |text: &&str| Accepts {
        name: name(text),
        parameters: None,
    };
    let contract = Contract {
        signals: signals.iter().map(accepts).collect(),
        ..Contract::default()
    };
    Terms::new(&contract).unwrap()
}

fn with(around: &Around) -> World<'_> {
    World {
        around: Some(around),
        ..World::default()
    }
}

fn code(instance: &Instance, world: World<'_>) -> Option<(Liveness, Code, Option<i64>)> {
    let Health { liveness, reason } = health(instance, world);
    reason.map(|reason| (liveness, reason.code, reason.command_id.map(|id| id.0)))
}

#[test]
fn a_signal_that_it_waits_for_and_was_not_handed_is_missed() {
    // rule 13.1
    let mut one = waits(&["go"]);
    one.row.inbox.signals = 1;
    let around = Around {
        signals: 1,
        missed_signal: Some(CommandId(17)),
        ..Around::default()
    };
    let missed = Some((Liveness::RepairNeeded, Code::MissedSignal, Some(17)));
    assert_eq!(code(&one, with(&around)), missed);
    let text = health(&one, with(&around)).reason.unwrap().text;
    assert!(text.contains("signal 17"), "{text}");
    assert_eq!(code(&one, World::default()), None, "it was not examined");
    let names = vec![name("go")];
    one.row.awaits = Some(Awaits::new(WaitKind::Condition, names, EARLY, None));
    assert_eq!(code(&one, with(&around)), None, "its name is a condition's");
}

#[test]
fn an_update_that_is_pending_beside_a_park_is_missed_however_it_is_counted() {
    // rule 13.1
    let mut one = waits(&["go"]);
    let around = Around {
        updates: 1,
        newest_update: Some((CommandId(9), Sequence(1))),
        ..Around::default()
    };
    let missed = Some((Liveness::RepairNeeded, Code::MissedUpdate, Some(9)));
    assert_eq!(code(&one, with(&around)), missed);
    one.row.inbox.updates = 1;
    assert_eq!(code(&one, with(&around)), missed);
    assert_eq!(
        code(&one, World::default()),
        Some((Liveness::RepairNeeded, Code::MissedUpdate, None))
    );
    let none = Around::default();
    let miscounted = Some((Liveness::RepairNeeded, Code::Miscounted, None));
    assert_eq!(code(&one, with(&none)), miscounted);
}

#[test]
fn a_wait_that_its_contract_does_not_know_and_nothing_else_ends_needs_repair() {
    // rules 8.6 and 13.1
    let (other, any) = (terms(&["stop"]), terms(&[]));
    let world = |terms| World {
        terms: Some(terms),
        ..World::default()
    };
    let undeclared = Some((Liveness::RepairNeeded, Code::UndeclaredSignal, None));
    let one = waits(&["go", "on"]);
    assert_eq!(code(&one, world(&other)), undeclared);
    let text = health(&one, world(&other)).reason.unwrap().text;
    assert!(text.contains("\"go\", \"on\""), "{text}");
    assert_eq!(code(&one, world(&any)), None, "it takes any signal");
    assert_eq!(code(&waits(&["go", "stop"]), world(&other)), None);
    assert_eq!(code(&waits(&["go", "event:paid"]), world(&other)), None);
    let mut bounded = waits(&["go"]);
    bounded.row.due_at = Some(NOW);
    assert_eq!(code(&bounded, world(&other)), None, "its deadline ends it");
    let mut joined = waits(&["go"]);
    joined.row.family.needed = 1;
    assert_eq!(code(&joined, world(&other)), None, "its children end it");
    let nothing = Some((Liveness::RepairNeeded, Code::WaitsForNothing, None));
    assert_eq!(code(&waits(&[]), world(&any)), nothing);
}

#[test]
fn a_barrier_that_too_few_children_can_open_says_why() {
    // rules 10.2 and 13.1
    let serving = [worker("mail", "n", 2)];
    let idle = [
        worker("mail", "n", 1),
        worker("default", "n", 2),
        worker("mail", "m", 2),
    ];
    let of = |groups: Vec<Siblings>| Around {
        children: groups,
        ..Around::default()
    };
    let judged = |one: &Instance, around: &Around, workers: &[Worker]| {
        let world = World {
            workers: Some(workers),
            ..with(around)
        };
        code(one, world).map(|(liveness, code, _)| (liveness, code))
    };
    let (ready, runs) = (Status::Runnable, Status::Executing);
    let around = of(vec![children(ready, true, 2), children(runs, true, 1)]);
    let unserved = Some((Liveness::WaitingForChildren, Code::ChildrenUnserved));
    assert_eq!(judged(&joins(3), &around, &idle), unserved);
    assert_eq!(judged(&joins(2), &around, &[]), unserved);
    assert_eq!(judged(&joins(1), &around, &idle), None, "one is enough");
    assert_eq!(judged(&joins(3), &around, &serving), None);
    let around = of(vec![
        children(Status::Scheduled, false, 1),
        children(Status::Scheduled, true, 1),
    ]);
    let blocked = Some((Liveness::WaitingForChildren, Code::ChildrenBlocked));
    assert_eq!(judged(&joins(2), &around, &serving), blocked);
    assert_eq!(judged(&joins(1), &around, &serving), None);
    let around = of(vec![
        children(Status::Done, true, 5),
        children(runs, true, 1),
    ]);
    let missed = Some((Liveness::RepairNeeded, Code::MissedChildren));
    assert_eq!(judged(&joins(2), &around, &serving), missed);
    assert_eq!(judged(&joins(1), &around, &serving), None);
    assert_eq!(judged(&joins(0), &around, &serving), missed);
    let many = of(vec![children(Status::Done, true, CHILDREN_SEEN)]);
    assert_eq!(
        judged(&joins(2), &many, &serving),
        None,
        "not all were seen"
    );
}

#[test]
fn what_ended_or_was_not_started_is_not_for_repair() {
    // rules 11.3 and 13.1
    let around = Around {
        signals: 3,
        updates: 2,
        ..Around::default()
    };
    for (status, expected) in [
        (Status::Done, Liveness::Closed),
        (Status::Failed, Liveness::Closed),
        (Status::Reserved, Liveness::Scheduled),
    ] {
        let found = health(&instance(status), with(&around));
        assert_eq!((found.liveness, found.reason), (expected, None));
    }
}

#[test]
fn what_is_late_by_more_than_patience_is_overdue() {
    // rule 13.1
    let due = |status, due_at| {
        let mut one = instance(status);
        one.row.due_at = Some(due_at);
        one
    };
    let at = |now| World {
        now: Some(now),
        ..World::default()
    };
    let one = due(Status::Scheduled, EARLY);
    assert_eq!(code(&one, at(EARLY + PATIENCE)), None);
    let late = EARLY + PATIENCE + Duration::from_micros(1);
    assert_eq!(
        code(&one, at(late)),
        Some((Liveness::Scheduled, Code::Overdue, None))
    );
    assert_eq!(code(&due(Status::Reserved, EARLY), at(NOW)), None);
    assert!(is_judged_by_workers(&one, NOW) && !is_judged_by_workers(&one, EARLY));
}

#[test]
fn a_hold_without_a_worker_and_a_line_without_a_front_need_repair() {
    // rules 5.3, 6.3 and 13.1
    let mut held = instance(Status::Executing);
    held.row.worker = Some(WorkerId(3));
    let unknown = Around::default();
    let known = Around {
        has_holder: true,
        ..Around::default()
    };
    let not_held = Some((Liveness::RepairNeeded, Code::NotHeld, None));
    assert_eq!(code(&held, with(&unknown)), not_held);
    assert_eq!(code(&held, with(&known)), None);
    let silent = World {
        workers: Some(&[]),
        ..with(&known)
    };
    assert_eq!(
        code(&held, silent),
        Some((Liveness::Running, Code::WorkerSilent, None))
    );
    held.row.worker = None;
    assert_eq!(code(&held, with(&known)), not_held);
    let mut behind = instance(Status::Runnable);
    (behind.row.behind, behind.row.due_at) = (true, Some(EARLY));
    assert_eq!(
        code(&behind, with(&unknown)),
        Some((Liveness::RepairNeeded, Code::NoFront, None))
    );
    let led = Around {
        has_front: true,
        ..Around::default()
    };
    assert_eq!(code(&behind, with(&led)), None);
}

#[test]
fn codes_are_written_as_they_are_named() {
    for code in Code::ALL {
        let written = serde_json::to_string(&code).unwrap();
        assert_eq!(written, format!("\"{}\"", code.name()));
    }
    let inbox = Inbox {
        sequence: Sequence(1),
        ..Inbox::default()
    };
    assert!(!is_miscounted(inbox, &Around::default()));
}
