//! Taking a waiting instance aside, so that its updates are handled while it waits.

use crate::model::{Aside, Cause, CommandKind, Pending, ResumeKind, ResumeSource, Row, Timestamp};
use crate::rules::claims::queue_up;

/// Takes a waiting instance aside, so that its updates are handled now; it runs for the first pending one.
pub(in crate::rules) fn step_aside(row: &mut Row, pending: &[Pending], now: Timestamp) {
    set_aside(row, first_update(pending), now);
}

fn first_update(pending: &[Pending]) -> Option<ResumeSource> {
    let first = pending.iter().find(|one| one.kind != CommandKind::Signal)?;
    Some(ResumeSource::command(first.id, first.kind, &first.name))
}

/// Records the update that an instance taken aside runs for next, after those before it have been answered.
pub(in crate::rules) fn turn_to_next_update(row: &mut Row, pending: &[Pending]) {
    if let Some(awaits) = &mut row.awaits
        && awaits.resumed.is_some_and(is_update)
    {
        awaits.resumed = first_update(pending);
    }
}

/// `true` if the wait stays open although this has arrived.
const fn is_update(source: ResumeSource) -> bool {
    matches!(source.kind, ResumeKind::Update | ResumeKind::Cancel)
}

pub(super) fn set_aside(row: &mut Row, source: Option<ResumeSource>, now: Timestamp) {
    // A row whose code does not match its history could not handle them. A row whose workers died handles them when it
    // runs again: its workers may have died because of an update (rule 5.6).
    if row.status.is_parked() && !row.is_blocked() && !row.is_recovering() {
        row.aside = Some(Aside {
            status: row.status,
            due_at: row.due_at,
            cause: row.cause,
        });
        queue_up(row, now, Cause::Update);
        if let Some(awaits) = &mut row.awaits {
            // A step that is retried later was woken by something else.
            awaits.resumed = awaits.resumed.or(source);
        }
    }
}

/// Returns an instance to where it was before its updates.
pub(in crate::rules) fn step_back(row: &mut Row, aside: Aside) {
    row.aside = None;
    row.status = aside.status;
    row.due_at = aside.due_at;
    row.cause = aside.cause;
    row.behind = false;
    if row.attempt == 0 {
        // Its step was never begun, so workers that died did so in updates, and those are answered now (rule 5.5).
        row.deaths = 0;
    }
    if let Some(awaits) = &mut row.awaits {
        awaits.resumed = awaits.resumed.filter(|source| !is_update(*source));
    }
}
