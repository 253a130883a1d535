//! The answers to updates, and what an instance does after them.

use super::{Facts, Moved};
use crate::model::{
    Answered, Closing, CommandKind, CommandStatus, Epoch, HistoryEvent, Json, Pending, Row,
    Timestamp,
};
use crate::rules::claims::{end_hold, queue_up};
use crate::rules::inbox;

/// Writes the answers to pending updates. A second answer to the same update, and an answer to one that is not pending,
/// are ignored.
pub(in crate::rules) fn answer(
    row: &mut Row,
    updates: &[Answered],
    facts: Facts<'_>,
) -> inbox::Closed {
    let mut closed = inbox::Closed::default();
    let mut highest = row.inbox.cursor;
    for answered in updates {
        let update = facts
            .pending
            .iter()
            .find(|one| one.id == answered.update_id && one.kind != CommandKind::Signal);
        let twice = closed
            .closings
            .iter()
            .any(|closing: &Closing| closing.id == answered.update_id);
        let (Some(update), false) = (update, twice) else {
            continue;
        };
        let (update_id, name, message_sequence) = (update.id, update.name.clone(), update.sequence);
        let command_sequence = update.command_sequence;
        let error = answered
            .error
            .as_deref()
            .map(|error| facts.limits.cut_error(error));
        closed.closings.push(Closing {
            id: update_id,
            status: match error {
                Some(_) => CommandStatus::Failed,
                None => CommandStatus::Completed,
            },
            wait_id: None,
            step_sequence: Some(row.step_seq),
            operation: None,
            graph_step: None,
            result: error.is_none().then(|| answered.result.clone()),
            error: error.clone(),
        });
        closed.history_events.extend(match error {
            // The operations that a cancellation reached record its effect.
            _ if update.kind == CommandKind::Cancel => None,
            Some(error) => Some(HistoryEvent::UpdateFailed {
                update_id,
                name,
                message_sequence,
                command_sequence,
                error,
            }),
            None => Some(HistoryEvent::UpdateCompleted {
                update_id,
                name,
                message_sequence,
                command_sequence,
            }),
        });
        highest = highest.max(message_sequence);
    }
    let count = u32::try_from(closed.closings.len()).unwrap_or(u32::MAX);
    row.inbox.updates = row.inbox.updates.saturating_sub(count);
    row.inbox.settle_bytes();
    closed.history_events.extend(inbox::advance(row, highest));
    closed
}

/// Handles a failure of an instance that ran only for updates: the first update has failed, which changes nothing else
/// (rule 9.2). It is not known which of the other updates were there when it was claimed; they are handed out again.
pub(super) fn fail_update(row: &mut Row, error: &str, facts: Facts<'_>, moved: &mut Moved<'_>) {
    let first = facts
        .pending
        .iter()
        .find(|one| one.kind != CommandKind::Signal);
    let failed: Vec<Answered> = first
        .map(|update| Answered {
            update_id: update.id,
            result: Json::null(),
            error: Some(error.to_owned()),
        })
        .into_iter()
        .collect();
    moved.close(answer(row, &failed, facts));
    moved.kept = go_on(row, false, &moved.left(facts.pending), facts.now);
}

/// Continues after updates have been answered: with those that arrived meanwhile, with the step, or back where the
/// instance was. Returns `true` if the worker keeps its claim, to run the step.
pub(super) fn go_on(row: &mut Row, keep: bool, left: &[Pending], now: Timestamp) -> bool {
    match row.aside {
        None if keep && row.inbox.updates == 0 => {
            row.epoch = Epoch(row.epoch.0 + 1);
            return true;
        }
        Some(aside) if row.inbox.updates == 0 => {
            end_hold(row);
            inbox::step_back(row, aside);
        }
        _ => {
            end_hold(row);
            queue_up(row, now, row.cause);
            inbox::turn_to_next_update(row, left);
        }
    }
    false
}
