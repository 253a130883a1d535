//! Blocked instances: parking an instance that a build cannot run, and letting another build try (rule 12.4).

use super::claims::{end_hold, queue_up};
use super::commit::{Facts, Moved};
use crate::model::{Cause, HistoryEvent, Name, Row, Status, Timestamp};

/// Maximum number of builds that are stored with an instance, the last ones: usually more than are live at once. If the
/// list is full, a live worker no longer releases the instance, because otherwise builds would try in turn forever.
const BUILDS_KEPT: usize = 16;

/// Parks a row whose step a build cannot run. Nothing is consumed or counted: its wait, the signals that it was handed
/// and its attempts stay, so the next build runs the same step with the same signals.
pub(super) fn block(row: &mut Row, reason: &str, facts: Facts<'_>, moved: &mut Moved<'_>) {
    moved.history_events.push(HistoryEvent::Blocked {
        step: row.step.clone(),
        step_sequence: row.step_seq,
        attempt: row.attempt,
        reason: facts.limits.cut_error(reason),
        build: facts.build.cloned(),
    });
    park(row, reason, facts);
}

/// Parks a row until another build or a repair releases it, and records the build that could not run it.
pub(super) fn park(row: &mut Row, reason: &str, facts: Facts<'_>) {
    end_hold(row);
    row.status = Status::Scheduled;
    row.due_at = None;
    row.cause = Cause::Replay;
    row.behind = false;
    let text = match facts.build {
        Some(build) => format!("{reason} (build {build})"),
        None => reason.to_owned(),
    };
    row.last_error = Some(facts.limits.cut_error(&text));
    if let Some(build) = facts.build {
        forget(row, build);
        row.unfit.push(build.clone());
        let over = row.unfit.len().saturating_sub(BUILDS_KEPT);
        row.unfit.drain(..over);
    }
}

/// The source that releases a blocked row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release<'a> {
    /// A live worker of a build: if that build could not run the row, the row stays blocked.
    Live(&'a Name),
    /// A worker that has just started: its build may try again, because more than the build may have changed.
    Fresh(&'a Name),
    /// An operator: every build may try again.
    Repair,
}

/// Releases a blocked row, so that it is tried again. Returns `true` if it was blocked and is released. No build in its
/// list claims it.
pub fn unblock(row: &mut Row, by: Release<'_>, now: Timestamp) -> bool {
    if !row.is_blocked() {
        return false;
    }
    match by {
        Release::Live(build) if row.unfit.contains(build) => return false,
        Release::Live(_) if row.unfit.len() >= BUILDS_KEPT => return false,
        Release::Live(_) => {}
        Release::Fresh(build) => forget(row, build),
        Release::Repair => row.unfit.clear(),
    }
    row.last_error = None;
    queue_up(row, now, Cause::Replay);
    true
}

fn forget(row: &mut Row, build: &Name) {
    row.unfit.retain(|one| one != build);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture;

    const NOW: Timestamp = Timestamp::from_micros(1_000_000);

    fn blocked_by(builds: impl IntoIterator<Item = String>) -> Row {
        Row {
            cause: Cause::Replay,
            unfit: builds.into_iter().map(Name::stored).collect(),
            last_error: Some("unknown step".into()),
            ..fixture::row(Status::Scheduled)
        }
    }

    #[test]
    fn a_blocked_row_is_released_by_a_build_that_may_try() {
        // rule 12.4
        let (old, new) = (Name::stored("old"), Name::stored("new"));
        let row = blocked_by([old.to_string()]);
        for (by, expected) in [
            (Release::Live(&old), None),
            (Release::Live(&new), Some(vec![old.clone()])),
            (Release::Fresh(&old), Some(Vec::new())),
            (Release::Fresh(&new), Some(vec![old.clone()])),
            (Release::Repair, Some(Vec::new())),
        ] {
            let mut tried = row.clone();
            assert_eq!(unblock(&mut tried, by, NOW), expected.is_some(), "{by:?}");
            let Some(unfit) = expected else {
                assert_eq!(tried, row, "{by:?}");
                continue;
            };
            assert_eq!((tried.status, tried.unfit), (Status::Runnable, unfit));
            assert_eq!(tried.last_error, None);
        }
    }

    #[test]
    fn a_live_worker_releases_no_row_that_too_many_builds_could_not_run() {
        // rule 12.4
        let new = Name::stored("new");
        let mut row = blocked_by((0..BUILDS_KEPT).map(|build| build.to_string()));
        assert!(!unblock(&mut row, Release::Live(&new), NOW));
        assert!(unblock(&mut row, Release::Fresh(&new), NOW));
        // Only what is blocked is released.
        let mut row = fixture::row(Status::Runnable);
        assert!(!unblock(&mut row, Release::Repair, NOW));
    }
}
