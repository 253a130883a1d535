//! The texts of SQL statements, put together while they are compiled. Both databases store statuses and kinds as
//! numbers; a statement writes `@runnable` or `in (@parked)`, and the numbers come from the model.
//!
//! This file knows no table and no statement: those are in the stores.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "these functions run at compile time, where a panic is an error of the build"
)]

use crate::model::{CommandKind, CommandStatus, Kind, Status};

/// Joins constant texts to one statement, and replaces each `@name` in it by the numbers that [`NAMES`] has for it. An
/// unknown name does not compile.
///
/// ```
/// const COLUMNS: &str = "id, queue";
/// const DUE: &str = abide_core::sql!("select ", COLUMNS, " from t where status in (@parked) and due_at <= ?1");
/// assert_eq!(DUE, "select id, queue from t where status in (1, 4, 5) and due_at <= ?1");
/// ```
#[macro_export]
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {{
        const PARTS: &[&str] = &[$($part),+];
        const TEXT: [u8; $crate::sql::length(PARTS)] = $crate::sql::bytes(PARTS);
        const SQL: &str = $crate::sql::text(&TEXT);
        SQL
    }};
}

/// The names that statements use for statuses and kinds, with their numbers. A name in the plural stands for a set, and
/// is written in parentheses: `status in (@parked)`.
pub const NAMES: &[(&str, &[i16])] = &[
    ("reserved", &[Status::Reserved.code()]),
    ("scheduled", &[Status::Scheduled.code()]),
    ("runnable", &[Status::Runnable.code()]),
    ("executing", &[Status::Executing.code()]),
    ("awaiting_signal", &[Status::AwaitingSignal.code()]),
    ("awaiting_children", &[Status::AwaitingChildren.code()]),
    // Statuses in which an instance is due later, or waits.
    (
        "parked",
        &[
            Status::Scheduled.code(),
            Status::AwaitingSignal.code(),
            Status::AwaitingChildren.code(),
        ],
    ),
    // Statuses in which it waits for more than its timer.
    (
        "awaiting",
        &[
            Status::AwaitingSignal.code(),
            Status::AwaitingChildren.code(),
        ],
    ),
    // Statuses in which it has a place at the front of its partition, unless it is behind.
    (
        "contending",
        &[Status::Runnable.code(), Status::Executing.code()],
    ),
    // The first status of those that have ended: `status < @first_ended`.
    ("first_ended", &[Status::Done.code()]),
    ("workflow", &[Kind::Workflow.code()]),
    ("signal", &[CommandKind::Signal.code()]),
    // The first kind of those that are not signals: `kind >= @update`.
    ("update", &[CommandKind::Update.code()]),
    // Statuses of records.
    ("held", &[CommandStatus::Held.code()]),
    (
        "pending",
        &[
            CommandStatus::Received.code(),
            CommandStatus::Accepted.code(),
        ],
    ),
    ("expired", &[CommandStatus::Expired.code()]),
];

/// The number of bytes of a statement.
pub const fn length(parts: &[&str]) -> usize {
    write::<0>(parts).length
}

/// The bytes of a statement of that length.
pub const fn bytes<const LENGTH: usize>(parts: &[&str]) -> [u8; LENGTH] {
    write(parts).bytes
}

/// The text of a statement.
pub const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a statement is not UTF-8"),
    }
}

/// A text that is being written. What does not fit is only counted.
struct Writer<const ROOM: usize> {
    bytes: [u8; ROOM],
    length: usize,
}

impl<const ROOM: usize> Writer<ROOM> {
    const fn push(&mut self, byte: u8) {
        if self.length < ROOM {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
    }

    const fn push_numbers(&mut self, numbers: &[i16]) {
        let mut at = 0;
        while at < numbers.len() {
            if at > 0 {
                self.push(b',');
                self.push(b' ');
            }
            assert!(0 <= numbers[at] && numbers[at] < 10, "a code has one digit");
            self.push(b'0' + numbers[at] as u8);
            at += 1;
        }
    }
}

const fn write<const ROOM: usize>(parts: &[&str]) -> Writer<ROOM> {
    let mut to = Writer {
        bytes: [0; ROOM],
        length: 0,
    };
    let mut part = 0;
    while part < parts.len() {
        let text = parts[part].as_bytes();
        let mut at = 0;
        while at < text.len() {
            if text[at] == b'@' {
                let end = end_of_name(text, at + 1);
                to.push_numbers(numbers(text, at + 1, end));
                at = end;
            } else {
                to.push(text[at]);
                at += 1;
            }
        }
        part += 1;
    }
    to
}

const fn end_of_name(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && (text[at].is_ascii_lowercase() || text[at] == b'_') {
        at += 1;
    }
    at
}

const fn numbers(text: &[u8], start: usize, end: usize) -> &'static [i16] {
    let mut index = 0;
    while index < NAMES.len() {
        let (name, numbers) = NAMES[index];
        if is_name(text, start, end, name.as_bytes()) {
            return numbers;
        }
        index += 1;
    }
    panic!("a statement has an unknown name after `@`: sql::NAMES has all of them")
}

const fn is_name(text: &[u8], start: usize, end: usize, name: &[u8]) -> bool {
    if end - start != name.len() {
        return false;
    }
    let mut at = 0;
    while at < name.len() {
        if text[start + at] != name[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers_of(which: impl Fn(Status) -> bool) -> Vec<i16> {
        let statuses = Status::ALL.into_iter().filter(|status| which(*status));
        statuses.map(Status::code).collect()
    }

    fn named(name: &str) -> &'static [i16] {
        NAMES.iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn the_sets_that_statements_name_are_those_of_the_rules() {
        use crate::model::WaitKind;
        assert_eq!(named("parked"), numbers_of(Status::is_parked));
        // rule 13.1
        let waits = |status: Status| status.waits_for(WaitKind::Signal);
        assert_eq!(named("awaiting"), numbers_of(waits));
        let timers = |status: Status| status.is_parked() && !waits(status);
        assert_eq!(named("scheduled"), numbers_of(timers));
        let ended = numbers_of(Status::is_terminal);
        let first = named("first_ended")[0];
        assert_eq!(
            ended,
            (first..=Status::ALL.len() as i16 - 1).collect::<Vec<_>>()
        );
        let pending = CommandStatus::ALL
            .into_iter()
            .filter(|one| one.is_pending());
        let pending: Vec<i16> = pending.map(CommandStatus::code).collect();
        assert_eq!(named("pending"), pending);
    }

    #[test]
    fn a_statement_has_numbers_for_names_and_keeps_everything_else() {
        const TEXT: &str = crate::sql!("a = @runnable", " and é in (@contending) -- @held");
        assert_eq!(TEXT, "a = 2 and é in (2, 3) -- 0");
    }
}
