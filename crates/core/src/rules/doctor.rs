//! What the doctor finds: broken invariants of one instance (rule 11.3).

use super::liveness::{Around, World, is_miscounted, problem};
use crate::model::{CommandId, Row, Status};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The code, for programs: that of a [`Problem`](super::liveness::Problem), or one of the doctor's own.
    pub code: &'static str,
    /// The text, for people.
    pub text: String,
    /// The signal or update that it concerns.
    pub command_id: Option<CommandId>,
}

/// Returns the first broken invariant of a locked row. `holds_taken_key`: another instance holds a key that it holds
/// too, so the uniqueness of keys has failed (rule 2.8).
pub fn fault(row: &Row, world: World<'_>, holds_taken_key: bool) -> Option<Fault> {
    if let Some(problem) = problem(row, world) {
        return Some(Fault {
            code: problem.code().name(),
            text: problem.text(),
            command_id: problem.command(),
        });
    }
    let doubled = holds_taken_key.then_some((
        "key_held_twice",
        "it holds a key that another instance holds too",
    ));
    let (code, text) = at_rest(row, world.around).or(doubled)?;
    Some(Fault {
        code,
        text: text.to_owned(),
        command_id: None,
    })
}

/// Returns a broken invariant of an instance that has ended, or is reserved and not started. There is nothing to repair,
/// and its health is not affected.
fn at_rest(row: &Row, around: Option<&Around>) -> Option<(&'static str, &'static str)> {
    let has_ended = row.status.is_terminal();
    let pending = around.map_or(0, |around| around.signals + around.updates);
    if has_ended && row.worker.is_some() {
        Some(("ended_and_held", "it has ended, and a worker holds it"))
    } else if has_ended && row.finished_at.is_none() {
        Some((
            "ended_at_no_time",
            "it has ended at no time, so that it is never deleted",
        ))
    } else if has_ended && row.inbox.signals + row.inbox.updates + pending > 0 {
        Some((
            "ended_with_messages",
            "it has ended, and messages are pending in its inbox",
        ))
    } else if row.status == Status::Reserved
        && around.is_some_and(|around| is_miscounted(row.inbox, around))
    {
        Some((
            "reserved_and_miscounted",
            "it is reserved, and its count of pending messages is not what its inbox holds",
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Timestamp, WorkerId};
    use crate::rules::fixture;

    #[test]
    fn each_broken_invariant_has_its_code() {
        // rule 11.3
        let one_signal = Around {
            signals: 1,
            ..Around::default()
        };
        let none = Around::default();
        let done = || Row {
            finished_at: Some(Timestamp::MIN),
            ..fixture::row(Status::Done)
        };
        let mut counted = done();
        counted.inbox.updates = 1;
        let held = Row {
            worker: Some(WorkerId(3)),
            ..done()
        };
        let cases = [
            (done(), &none, false, None),
            (held, &one_signal, true, Some("ended_and_held")),
            (
                fixture::row(Status::Done),
                &none,
                false,
                Some("ended_at_no_time"),
            ),
            (done(), &one_signal, true, Some("ended_with_messages")),
            (counted, &none, false, Some("ended_with_messages")),
            (done(), &none, true, Some("key_held_twice")),
            (fixture::row(Status::Reserved), &none, false, None),
            (
                fixture::row(Status::Reserved),
                &one_signal,
                false,
                Some("reserved_and_miscounted"),
            ),
            (
                fixture::row(Status::Reserved),
                &none,
                true,
                Some("key_held_twice"),
            ),
            // What can be repaired comes first.
            (
                fixture::row(Status::Scheduled),
                &none,
                true,
                Some("never_due"),
            ),
        ];
        for (row, around, holds_taken_key, expected) in cases {
            let world = World {
                around: Some(around),
                ..World::default()
            };
            let found = fault(&row, world, holds_taken_key).map(|fault| fault.code);
            assert_eq!(found, expected, "{:?}", row.status);
        }
    }
}
