//! The join barrier: a parent parks when it spawns, and continues when enough of its children have ended.

use super::claims::{come_back, resume};
use super::inbox::step_aside;
use crate::model::{
    Awaits, BarrierNumber, Cause, Family, HistoryEvent, InstanceId, Join, Kind, Pending, Refusal,
    ResumeKind, ResumeSource, Row, Status, Timestamp, WaitKind,
};

/// Returns the number of the parent's next barrier.
pub fn next_barrier(parent: &Row) -> BarrierNumber {
    BarrierNumber(parent.family.barrier.0 + 1)
}

/// Refuses a barrier that needs more children than are spawned: it could never open (rule 10.3).
pub fn check_join(join: Join, spawned: usize) -> Result<(), Refusal> {
    match join.at_least {
        Some(wanted) if wanted as usize > spawned => Err(Refusal::BadOutcome {
            problem: format!(
                "it waits for at least {wanted} of {spawned} children, which can never be; wait for {spawned} at most"
            ),
        }),
        _ => Ok(()),
    }
}

/// Parks a parent at its new barrier and counts the children that were really inserted. If there is none to wait for,
/// it continues at once (rule 10.1). Pending updates are handled at once.
pub fn park(
    parent: &mut Row,
    (inserted, duplicates): (u32, u32),
    join: Join,
    deadline: Option<Timestamp>,
    pending: &[Pending],
    now: Timestamp,
) -> Vec<HistoryEvent> {
    let barrier = next_barrier(parent);
    let needed = join.at_least.unwrap_or(inserted).min(inserted);
    parent.family = Family {
        barrier,
        pending: inserted,
        needed,
        ended: parent.family.ended,
    };
    parent.awaits = Some(Awaits::new(WaitKind::Children, Vec::new(), now, None));
    let mut events = vec![HistoryEvent::ChildrenSpawned {
        barrier,
        count: inserted,
        duplicates,
    }];
    if needed == 0 {
        events.push(open(parent, now));
    } else {
        parent.status = Status::AwaitingChildren;
        parent.due_at = deadline;
    }
    if parent.inbox.updates > 0 {
        step_aside(parent, pending, now);
    }
    events
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The child.
    pub child: InstanceId,
    /// The barrier it belongs to.
    pub barrier: BarrierNumber,
    /// The status that it ended with.
    pub status: Status,
}

/// Counts children that have ended, all of one commit at once, and opens the barrier when enough have (rules 10.2,
/// 10.3). Children of an earlier barrier are recorded in the history, but do not count.
pub fn ended(parent: &mut Row, ended: &[Ended], now: Timestamp) -> Vec<HistoryEvent> {
    if parent.status.is_terminal() {
        return Vec::new();
    }
    let workflow = parent.kind == Kind::Workflow;
    let waited = parent.family.needed > 0;
    let mut events = Vec::with_capacity(ended.len() + 1);
    for Ended {
        child,
        barrier,
        status,
    } in ended.iter().copied()
    {
        events.push(HistoryEvent::ChildEnded {
            child,
            barrier,
            status,
        });
        parent.family.ended = parent.family.ended.saturating_add(1);
        if workflow || barrier == parent.family.barrier {
            parent.family.pending = parent.family.pending.saturating_sub(1);
            parent.family.needed = parent.family.needed.saturating_sub(1);
        }
    }
    let enough = parent.family.needed == 0;
    match parent.stands() {
        // For a workflow, the operations of its code record which children were joined.
        Status::AwaitingSignal | Status::AwaitingChildren if workflow && waited && enough => {
            come_back(parent, now, Cause::Children, source());
        }
        Status::AwaitingChildren if !workflow && enough => events.push(open(parent, now)),
        _ => {}
    }
    events
}

/// Counts a child that had ended and is restarted: while its barrier is the last one, its end is waited for again
/// (rule 11.2).
pub fn reopened(parent: &mut Row, barrier: BarrierNumber) {
    let workflow = parent.kind == Kind::Workflow;
    if !parent.status.is_terminal() && (workflow || barrier == parent.family.barrier) {
        parent.family.pending = parent.family.pending.saturating_add(1);
        if !workflow && parent.stands() == Status::AwaitingChildren {
            parent.family.needed = parent.family.needed.saturating_add(1);
        }
    }
}

/// `true` if the step of a machine has joined the children of its last barrier: it was woken from that barrier, and has
/// not committed an outcome since. A row that failed in that step keeps this (rule 11.2).
pub fn has_joined(row: &Row) -> bool {
    let waited = row.awaits.as_ref().map(|awaits| awaits.kind);
    row.kind == Kind::Machine
        && waited == Some(WaitKind::Children)
        && row.stands() != Status::AwaitingChildren
}

/// Gives the children of a failed run's last barrier to the run that was opened by a restart (rule 11.2): `count` of
/// them, of which `pending` have not ended. If more of them are pending than when the step failed, because they were
/// restarted too, the new run waits for these first.
pub fn adopt(
    row: &mut Row,
    failed: &Row,
    (count, pending): (u32, u32),
    now: Timestamp,
) -> HistoryEvent {
    let needed = pending.saturating_sub(failed.family.pending);
    row.family = Family {
        barrier: failed.family.barrier,
        pending,
        needed,
        ended: 0,
    };
    row.timed_out = failed.timed_out;
    row.awaits = Some(Awaits::new(WaitKind::Children, Vec::new(), now, None));
    if needed == 0 {
        resume(row, source());
    } else {
        row.status = Status::AwaitingChildren;
        row.due_at = None;
        row.behind = false;
    }
    HistoryEvent::HandedAgain {
        run_id: failed.id,
        signals: Vec::new(),
        children: count,
    }
}

fn open(parent: &mut Row, now: Timestamp) -> HistoryEvent {
    come_back(parent, now, Cause::Children, source());
    HistoryEvent::ChildrenJoined {
        barrier: parent.family.barrier,
        missing: parent.family.pending,
    }
}

fn source() -> ResumeSource {
    ResumeSource::of(ResumeKind::Children)
}
