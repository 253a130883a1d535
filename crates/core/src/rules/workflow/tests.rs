//! The effects of a turn on a row, case by case.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::model::{
    Answered, BarrierNumber, Blocked, Claim, Closing, Command, CommandId, ConditionWait,
    InstanceId, Json, NewCommand, Priority, Settled, SignalWait, Start, Taken, WorkerId,
};
use crate::rules::block::{Release, unblock};
use crate::rules::children::{Ended, ended, reopened};
use crate::rules::fixture;
use crate::rules::inbox::{receive, take};
use crate::rules::liveness::{Around, Problem, Siblings, World, problem};
use crate::rules::operate::code_handles_cancel;
use crate::rules::timers::fire;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);
const LATER: Timestamp = Timestamp::from_micros(9_000_000);

fn name(text: &str) -> Name {
    Name::stored(text)
}

/// A workflow that a worker runs.
fn running() -> Row {
    Row {
        kind: Kind::Workflow,
        due_at: Some(NOW),
        worker: Some(WorkerId(3)),
        epoch: Epoch(5),
        settled: Settled {
            last: Epoch(4),
            before: 0,
        },
        ..fixture::row(Status::Executing)
    }
}

fn turn(then: Then) -> WorkflowTurn {
    WorkflowTurn::of(then)
}

fn spawn(operation: u32, count: usize, needed: u32) -> ChildStarts {
    ChildStarts {
        operation,
        starts: vec![Start::of(name("child"), Json::null()); count],
        needed,
    }
}

/// Applies a turn as the kernel does; `inserted` has the number of children that each operation really started.
fn commit(
    row: &mut Row,
    turn: &WorkflowTurn,
    pending: &[Pending],
    inserted: &[u32],
) -> Vec<Closing> {
    let claim = Claim::granted(row.id, row.epoch, WorkerId(3), None, None);
    let commit = Commit {
        claim,
        outcome: crate::model::Outcome::Workflow(Box::new(turn.clone())),
        keep: true,
        took: std::time::Duration::ZERO,
        error: None,
    };
    let limits = Limits::default();
    let facts = Facts {
        now: NOW,
        limits: &limits,
        waiting: None,
        pending,
        retry: None,
        taken: None,
        build: None,
    };
    let mut moved = Moved::default();
    apply(row, &commit, turn, facts, &mut moved);
    if !turn.children.is_empty() {
        count_children(row, turn, inserted, NOW);
    }
    moved.closings
}

fn child_ends(row: &mut Row) {
    let one = Ended {
        child: InstanceId(9),
        barrier: BarrierNumber(2),
        status: Status::Done,
    };
    ended(row, &[one], NOW);
}

fn signal(id: i64, text: &str) -> Pending {
    Pending {
        id: CommandId(id),
        kind: CommandKind::Signal,
        name: name(text),
        sequence: Sequence(id),
        command_sequence: Some(Sequence(id)),
        wait_id: None,
    }
}

fn awaited(operation: u32, text: &str) -> SignalWait {
    SignalWait {
        operation,
        name: name(text),
        deadline: None,
    }
}

fn is_well(row: &Row, unended: u32) {
    let around = Around {
        signals: row.inbox.signals,
        updates: row.inbox.updates,
        has_holder: true,
        children: vec![Siblings {
            status: Status::Executing,
            is_due: true,
            runs_on: None,
            count: unended,
        }],
        ..Around::default()
    };
    let world = World {
        around: Some(&around),
        ..World::default()
    };
    assert_eq!(problem(row, world), None, "{row:?}");
}

#[test]
fn no_end_of_a_child_is_lost_around_the_park() {
    // rules 7.1 and 10.2
    for old in 0..4_u32 {
        for new in 0..3_u32 {
            for (old_needed, new_needed) in (0..=old).flat_map(|o| (0..=new).map(move |n| (o, n))) {
                for early in 0..=old {
                    park_and_end(old, old_needed, new, new_needed, early);
                }
            }
        }
    }
}

/// A workflow with some children waits for some of these and some of those that it starts; some end before the commit.
fn park_and_end(old: u32, old_needed: u32, new: u32, new_needed: u32, early: u32) {
    let mut row = running();
    row.family.pending = old;
    (0..early).for_each(|_| child_ends(&mut row));
    let mut parks = turn(Then::Park(Park {
        operation: 2,
        children: (old_needed > 0).then_some(Unended {
            seen: 0,
            needed: old_needed,
        }),
        ..Park::default()
    }));
    parks.children = vec![spawn(2, new as usize, new_needed)];
    let waits = old_needed > 0 || new_needed > 0;
    assert_eq!(check(&parks, &Limits::default()).is_ok(), waits);
    if !waits {
        return;
    }
    commit(&mut row, &parks, &[], &[new]);
    let mut unended = old - early + new;
    assert_eq!(row.family.pending, unended);
    // So many ends more, of whichever children, are enough for one of the two.
    let of_old = (old_needed > 0).then(|| old_needed.saturating_sub(early));
    let of_new = (new_needed > 0).then_some(new_needed);
    let mut needed = of_old.into_iter().chain(of_new).min().unwrap_or_default();
    loop {
        let woken = row.status == Status::Runnable;
        assert_eq!(woken, needed == 0, "{row:?}");
        if woken {
            assert_eq!(row.cause, Cause::Children);
            return;
        }
        is_well(&row, unended);
        child_ends(&mut row);
        (needed, unended) = (needed - 1, unended - 1);
    }
}

#[test]
fn children_of_which_none_was_started_are_not_waited_for() {
    // rule 10.1
    let mut parks = turn(Then::Park(Park {
        operation: 2,
        signals: vec![awaited(2, "paid")],
        ..Park::default()
    }));
    parks.children = vec![spawn(1, 2, 2), spawn(2, 1, 1)];
    let mut row = running();
    commit(&mut row, &parks, &[], &[0, 1]);
    assert_eq!((row.status, row.cause), (Status::Runnable, Cause::Children));
    let mut row = running();
    commit(&mut row, &parks, &[], &[1, 1]);
    assert_eq!((row.status, row.family.needed), (Status::AwaitingSignal, 1));
    // Taken aside for its updates it is woken all the same.
    let mut row = running();
    row.inbox.updates = 1;
    commit(&mut row, &parks, &[], &[0, 1]);
    assert_eq!(row.status, Status::Runnable);
    assert_eq!((row.aside, row.cause), (None, Cause::Children));
}

#[test]
fn a_child_that_is_restarted_is_counted_and_does_not_wake_its_parent() {
    // rule 11.2
    let mut row = running();
    reopened(&mut row, BarrierNumber(1));
    assert_eq!((row.family.pending, row.family.needed), (1, 0));
    row.status = Status::Cancelled;
    reopened(&mut row, BarrierNumber(1));
    assert_eq!(row.family.pending, 1, "it has ended");
}

#[test]
fn where_a_workflow_stands_is_the_first_of_what_it_waits_for() {
    // rules 3.1 and 13.1
    let full = Park {
        operation: 3,
        signals: vec![awaited(2, "paid")],
        events: Vec::new(),
        conditions: vec![ConditionWait {
            operation: 3,
            key: Some(name("stocked")),
            deadline: None,
        }],
        until: Some(LATER),
        children: Some(Unended { seen: 0, needed: 1 }),
    };
    let no_signal = Park {
        signals: Vec::new(),
        ..full.clone()
    };
    let no_condition = Park {
        conditions: Vec::new(),
        ..no_signal.clone()
    };
    let time_alone = Park {
        children: None,
        ..no_condition.clone()
    };
    let expected = [
        (full, Status::AwaitingSignal, WaitKind::Signal, "paid"),
        (
            no_signal,
            Status::AwaitingSignal,
            WaitKind::Condition,
            "stocked",
        ),
        (
            no_condition,
            Status::AwaitingChildren,
            WaitKind::Children,
            "",
        ),
        (time_alone, Status::Scheduled, WaitKind::Timer, ""),
    ];
    for (park, status, kind, names) in expected {
        let mut row = running();
        row.family.pending = 2;
        commit(&mut row, &turn(Then::Park(park)), &[], &[]);
        let awaits = row.awaits.clone().unwrap();
        assert_eq!((row.status, awaits.kind), (status, kind));
        let named: Vec<&str> = awaits.names.iter().map(Name::as_str).collect();
        assert_eq!(named.join(" "), names);
        // rule 7.6: a wait for a signal is named by its own operation.
        let operation = if kind == WaitKind::Signal { 2 } else { 3 };
        assert_eq!(awaits.id.unwrap().as_str(), format!("wait:7:{operation}"));
        is_well(&row, 2);
        // Each of them has its deadline, and not before: it may have been moved since the row was found to be due.
        let mut late = row.clone();
        assert!(fire(&mut late, NOW).is_none(), "rule 6.5");
        assert!(fire(&mut late, LATER).is_some());
        assert!(late.timed_out && late.status == Status::Runnable);
    }
}

#[test]
fn a_workflow_does_not_park_on_a_signal_that_is_there() {
    // rules 7.1 and 12.2
    let parks = turn(Then::Park(Park {
        operation: 1,
        signals: vec![awaited(1, "a"), awaited(2, "b")],
        ..Park::default()
    }));
    for (there, woken) in [("a", true), ("b", true), ("c", false)] {
        for handed in [0, 1] {
            let mut row = running();
            row.inbox.sequence = Sequence(1);
            row.inbox.signals = 1;
            row.inbox.handed = Sequence(handed);
            commit(&mut row, &parks, &[signal(1, there)], &[]);
            assert_eq!(row.status == Status::Runnable, woken, "{there}, {handed}");
        }
    }
}

#[test]
fn what_is_taken_is_what_is_named_once() {
    // rules 7.7 and 12.2
    let mut row = running();
    row.inbox.sequence = Sequence(4);
    row.inbox.signals = 4;
    let pending: Vec<Pending> = (1..5).map(|id| signal(id, "a")).collect();
    let taken = |id: i64| Taken {
        id: CommandId(id),
        name: name("a"),
        operation: Some(1),
        graph_step: None,
    };
    let closed = take(
        &mut row,
        &[taken(3), taken(1), taken(3), taken(99)],
        &pending,
    );
    let ids: Vec<i64> = closed.closings.iter().map(|closing| closing.id.0).collect();
    assert_eq!(ids, [3, 1]);
    assert_eq!((row.inbox.signals, row.inbox.cursor), (2, Sequence(3)));
    let closed = take(&mut row, &[taken(2)], &pending);
    assert_eq!(
        closed.history_events.len(),
        1,
        "the cursor does not go back"
    );
    assert_eq!(row.inbox.cursor, Sequence(3));
}

#[test]
fn a_blocked_workflow_is_left_alone_by_all_that_comes() {
    // rule 12.4
    let block = turn(Then::Block(Blocked {
        operation: 2,
        recorded: "sleep".into(),
        requested: "step \"charge\"".into(),
        cure: "deploy the old code".into(),
    }));
    let mut row = running();
    (row.family.pending, row.family.needed) = (1, 1);
    row.inbox.updates = 1;
    commit(&mut row, &block, &[], &[]);
    assert!(row.is_blocked());
    let error = row.last_error.clone().unwrap();
    assert!(
        error.contains("sleep") && error.contains("charge"),
        "{error}"
    );
    for kind in [CommandKind::Signal, CommandKind::Update] {
        let new = NewCommand {
            kind,
            ..NewCommand::signal(row.id, name("x"))
        };
        let mut command = Command::new(&new, CommandId(1), NOW);
        receive(&mut row, &mut command, None, NOW);
        assert!(row.is_blocked() && row.aside.is_none());
    }
    child_ends(&mut row);
    assert!(row.is_blocked() && row.family.pending == 0);
    assert!(fire(&mut row, Timestamp::from_micros(i64::MAX)).is_none());
    is_well(&row, 0);
    assert!(!code_handles_cancel(&row), "its code cannot clean up");
    assert!(unblock(&mut row, Release::Repair, LATER));
    assert_eq!((row.status, row.due_at), (Status::Runnable, Some(LATER)));
    assert_eq!(row.last_error, None);
    assert!(
        !unblock(&mut row, Release::Repair, LATER),
        "it is not blocked any more"
    );
}

#[test]
fn nothing_but_a_block_reads_as_blocked() {
    // rule 12.4
    let mut row = running();
    (row.status, row.due_at) = (Status::Scheduled, None);
    assert!(!row.is_blocked());
    assert_eq!(problem(&row, World::default()), Some(Problem::NeverDue));
    row.cause = Cause::Replay;
    assert!(row.is_blocked());
    row.due_at = Some(LATER);
    assert!(!row.is_blocked());
}

#[test]
fn a_cancellation_goes_to_the_code_of_a_workflow_that_has_begun() {
    // rule 11.1
    let mut row = running();
    assert!(code_handles_cancel(&row));
    row.settled = Settled::default();
    assert!(code_handles_cancel(&row), "it runs");
    row.status = Status::Runnable;
    assert!(!code_handles_cancel(&row), "it has not begun");
    row.settled.last = Epoch(1);
    assert!(code_handles_cancel(&row));
    row.kind = Kind::Machine;
    assert!(!code_handles_cancel(&row), "a machine has no code to ask");
    row.kind = Kind::Workflow;
    row.status = Status::Done;
    assert!(!code_handles_cancel(&row), "it has ended");
}

#[test]
fn steps_that_run_keep_the_claim_whatever_waits() {
    // rules 4.3 and 9.1
    let keeps = |running: bool, updates: u32, waiting: Option<i16>| {
        let mut row = self::running();
        row.inbox.updates = updates;
        let turn = turn(Then::GoOn { running });
        let limits = Limits::default();
        let commit = Commit {
            claim: Claim::granted(row.id, row.epoch, WorkerId(3), None, None),
            outcome: crate::model::Outcome::Workflow(Box::new(turn.clone())),
            keep: true,
            took: std::time::Duration::ZERO,
            error: None,
        };
        let facts = Facts {
            now: NOW,
            limits: &limits,
            waiting: waiting.map(Priority),
            pending: &[],
            retry: None,
            taken: None,
            build: None,
        };
        let mut moved = Moved::default();
        apply(&mut row, &commit, &turn, facts, &mut moved);
        assert_eq!(moved.kept, row.status == Status::Executing);
        moved.kept
    };
    assert!(keeps(false, 0, None) && keeps(false, 0, Some(0)) && keeps(false, 0, Some(5)));
    assert!(!keeps(false, 0, Some(-1)) && !keeps(false, 1, None));
    assert!(keeps(true, 0, Some(-1)) && keeps(true, 1, None));
}

#[test]
fn an_end_answers_what_was_answered_and_fails_the_rest() {
    // rules 9.2 and 11.1
    let mut row = running();
    row.inbox.updates = 2;
    row.inbox.sequence = Sequence(2);
    let cancel = |id| Pending {
        kind: CommandKind::Cancel,
        ..signal(id, "cancel")
    };
    let mut ends = turn(Then::Cancelled {
        reason: "asked to".into(),
    });
    ends.updates = vec![Answered {
        update_id: CommandId(1),
        result: Json::null(),
        error: None,
    }];
    let closings = commit(&mut row, &ends, &[cancel(1), cancel(2)], &[]);
    let became: Vec<_> = closings
        .iter()
        .map(|one| (one.id.0, one.error.is_some()))
        .collect();
    assert_eq!(became, [(1, false), (2, true)]);
    assert_eq!((row.status, row.inbox.updates), (Status::Cancelled, 0));
    assert_eq!(row.last_error.as_deref(), Some("asked to"));
}

#[test]
fn updates_that_the_code_holds_do_not_wake_it_and_are_not_missed() {
    // rules 9.1 and 13.1
    let parks = |held: u32, updates: u32| {
        let mut row = running();
        (row.inbox.updates, row.inbox.sequence) = (updates, Sequence(4));
        let turn = WorkflowTurn {
            held,
            ..turn(Then::Park(Park {
                operation: 1,
                signals: vec![SignalWait {
                    operation: 1,
                    name: name("go"),
                    deadline: None,
                }],
                ..Park::default()
            }))
        };
        commit(&mut row, &turn, &[], &[]);
        row
    };
    for (held, updates, status) in [
        (0, 0, Status::AwaitingSignal),
        (1, 1, Status::AwaitingSignal),
        (3, 3, Status::AwaitingSignal),
        (0, 1, Status::Runnable),
        (2, 3, Status::Runnable),
    ] {
        let row = parks(held, updates);
        assert_eq!(
            (row.status, row.aside.is_some()),
            (status, status == Status::Runnable)
        );
    }
    let mut row = parks(1, 1);
    let with = |row: &Row, newest: i64| {
        let around = Around {
            updates: 1,
            newest_update: Some((CommandId(7), Sequence(newest))),
            ..Around::default()
        };
        let world = World {
            around: Some(&around),
            ..World::default()
        };
        problem(row, world)
    };
    assert_eq!(problem(&row, World::default()), None);
    assert_eq!(with(&row, 4), None);
    let missed = |id: Option<i64>| Some(Problem::MissedUpdate(id.map(CommandId)));
    assert_eq!(with(&row, 5), missed(Some(7)));
    row.kind = Kind::Machine;
    assert_eq!(with(&row, 4), missed(Some(7)));
    assert_eq!(problem(&row, World::default()), missed(None));
}
