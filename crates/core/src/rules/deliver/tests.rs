//! The decision table of rule 7.3, for all combinations of its conditions.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use super::*;
use crate::model::{Arguments, CommandId, CommandStatus, Key, Name, Timestamp};
use crate::rules::fixture;

const NEWER: InstanceId = InstanceId(8);

/// Whether a command with the same dedup key was accepted or held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Earlier {
    No,
    Same,
    Other,
}

/// The verdict of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    Unknown,
    Invalid,
}

/// The conditions of one row of the table.
#[derive(Clone, Copy, Debug)]
struct Case {
    status: Option<Status>,
    by_id: bool,
    is_newest: bool,
    earlier: Earlier,
    fit: Fit,
    large: bool,
    full: bool,
    hold: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        let statuses = [
            None,
            Some(Status::Reserved),
            Some(Status::AwaitingSignal),
            Some(Status::Done),
        ];
        let mut all = Vec::new();
        for status in statuses {
            for earlier in [Earlier::No, Earlier::Same, Earlier::Other] {
                for fit in [Fit::Yes, Fit::Unknown, Fit::Invalid] {
                    for bits in 0..32_u8 {
                        let is = |bit: u8| bits & (1 << bit) != 0;
                        all.push(Self {
                            status,
                            earlier,
                            fit,
                            by_id: is(0),
                            is_newest: is(1),
                            large: is(2),
                            full: is(3),
                            hold: is(4),
                        });
                    }
                }
            }
        }
        all
    }

    /// `true` if it is for the next start under its key.
    fn is_for_next_start(&self) -> bool {
        let is_over = self.status == Some(Status::Done) && self.earlier == Earlier::No;
        self.hold && !self.by_id && (self.status.is_none() || is_over)
    }

    /// `true` if the stored arguments are those of the earlier command.
    fn is_repeat(&self) -> bool {
        let is_stored = self.fit == Fit::Yes || self.is_for_next_start();
        self.earlier == Earlier::Same && is_stored && !self.large
    }

    fn decided(&self) -> String {
        let text = match self.large {
            true => Json::of("a text that is longer than it may be, by far").unwrap(),
            false => Json::of(&1).unwrap(),
        };
        let limits = Limits {
            payload_bytes: 24,
            inbox_pending: 1,
            held_per_key: 1,
            ..Limits::default()
        };
        let target = match self.by_id {
            true => Target::Id(InstanceId(7)),
            false => Target::Key(Key::stored("k")),
        };
        let mut delivery = NewCommand::signal(target, Name::stored("paid"));
        delivery.arguments = Arguments::Payload(text);
        delivery.hold_for = self.hold.then_some(Duration::from_secs(1));
        let stored = contract::free(&delivery.arguments);
        let given = Json::of(&delivery.arguments).unwrap();
        let first = |arguments: &Json| match self.earlier {
            Earlier::No => None,
            Earlier::Same => Some(command("paid", arguments.clone())),
            Earlier::Other => Some(command("other", arguments.clone())),
        };
        let (accepted, held) = (first(&stored), first(&given));
        let row = self.status.map(|status| {
            let mut row = fixture::row(status);
            row.inbox.signals = u32::from(self.full);
            row
        });
        let run = row.as_ref().map(|row| Addressed {
            row,
            newest: Some(if self.is_newest { row.id } else { NEWER }),
            earlier: accepted.as_ref(),
            terms: None,
            judged: match self.fit {
                Fit::Yes => Ok(stored.clone()),
                Fit::Unknown => Err(Unfit::Unknown),
                Fit::Invalid => Err(Unfit::TooLong { most: 1 }),
            },
        });
        let held = Held {
            earlier: held.as_ref().filter(|_| self.status.is_none()),
            count: usize::from(self.full),
            bytes: 0,
        };
        let facts = Facts {
            run,
            held,
            limits: &limits,
        };
        match decide(&delivery, facts) {
            Decision::NoTarget => "no_target".to_owned(),
            Decision::Duplicate(_) => "duplicate".to_owned(),
            Decision::Held(arguments) => {
                assert_eq!(arguments, given);
                "signal_held".to_owned()
            }
            Decision::Accepted(arguments) => {
                assert_eq!(arguments, stored);
                "signal_received".to_owned()
            }
            Decision::Refused { unwanted, of_run } => {
                assert_eq!(of_run, !self.is_for_next_start());
                let is_newer = unwanted.newest == Some(NEWER);
                assert_eq!(is_newer, unwanted.rejection == Rejection::NotCurrent);
                unwanted.rejection.reason().to_owned()
            }
        }
    }
}

fn command(name: &str, arguments: Json) -> Command {
    Command {
        id: CommandId(3),
        kind: CommandKind::Signal,
        name: Name::stored(name),
        status: CommandStatus::Received,
        rejection: None,
        instance: None,
        chain: None,
        key: None,
        sequence: None,
        command_sequence: None,
        arguments,
        validation_errors: None,
        dedup_key: None,
        source: None,
        claimed_source: None,
        wait_id: None,
        step_sequence: None,
        operation: None,
        graph_step: None,
        received_at: Timestamp::MIN,
        hold_until: None,
        closed_at: None,
        result: None,
        error: None,
    }
}

/// A line of the table: its number, its condition, and the answer.
type Line = (u8, fn(&Case) -> bool, &'static str);

/// The lines in the order in which they are checked. A signal that is to be held goes through the lines that need no
/// run: 2, 3 and 9.
const LINES: [Line; 14] = [
    (
        1,
        |case| case.status.is_none() && !case.is_for_next_start(),
        "no_target",
    ),
    (
        9,
        |case| case.is_for_next_start() && case.large,
        "payload_too_large",
    ),
    (2, Case::is_repeat, "duplicate"),
    (3, |case| case.earlier != Earlier::No, "dedup_conflict"),
    (
        9,
        |case| case.is_for_next_start() && case.full,
        "inbox_full",
    ),
    (1, Case::is_for_next_start, "signal_held"),
    (
        4,
        |case| case.status == Some(Status::Reserved),
        "instance_not_started",
    ),
    (
        5,
        |case| case.status == Some(Status::Done) && case.by_id && !case.is_newest,
        "run_not_current",
    ),
    (
        6,
        |case| case.status == Some(Status::Done),
        "run_not_active",
    ),
    (7, |case| case.fit == Fit::Unknown, "unknown_signal"),
    (
        8,
        |case| case.fit == Fit::Invalid,
        "invalid_signal_arguments",
    ),
    (9, |case| case.large, "payload_too_large"),
    (9, |case| case.full, "inbox_full"),
    (10, |_| true, "signal_received"),
];

#[test]
fn the_first_line_that_applies_decides() {
    // rule 7.3
    for case in Case::all() {
        let expected = LINES.iter().find(|(_, applies, _)| applies(&case)).unwrap();
        assert_eq!(case.decided(), expected.2, "line {}: {case:?}", expected.0);
    }
}

#[test]
fn a_cancellation_is_accepted_into_a_full_inbox() {
    // rule 11.1
    let limits = Limits {
        inbox_pending: 0,
        ..Limits::default()
    };
    let row = fixture::row(Status::AwaitingSignal);
    let room = |kind| has_room(&row, kind, &Json::null(), &limits).is_ok();
    assert!(room(CommandKind::Cancel) && !room(CommandKind::Signal) && !room(CommandKind::Update));
}
