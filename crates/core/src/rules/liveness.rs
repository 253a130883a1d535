//! Health: the wait of an instance, and whether anything can still wake it. One function gives the answer to every
//! reader.

mod around;
mod code;
mod problem;
mod reasons;
mod severity;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::Terms;
use crate::model::{
    Instance, Kind, Lane, Name, OperationWait, ResumeSource, Status, Timestamp, WaitId, WaitKind,
    Worker,
};

pub use around::{Around, CHILDREN_SEEN, NAMES_SEEN, Siblings, UnmatchedEvent};
pub use code::{Code, Reason};
pub use problem::{Problem, is_judged_by_contract, is_miscounted, problem};
pub use reasons::{FAILURES_HEALTHY, failing_step, is_failing};
pub use severity::{Severity, severity};

use reasons::{blocked, died, failing, lane_named, near_miss, overdue, silent, stranded};

/// Time after which something that should have happened is called overdue.
const PATIENCE: Duration = Duration::from_secs(10);

/// The wait of an instance (section 13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Its kind.
    pub kind: WaitKind,
    /// The wait's id; if a workflow has several waits, that of the one that was ended, or of the first.
    pub id: Option<WaitId>,
    /// The signals that would wake it.
    pub names: Vec<Name>,
    /// The waits of a workflow's operations for signals, events and conditions, each with its id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OperationWait>,
    /// The source that ended it, until that is applied.
    pub resume_source: Option<ResumeSource>,
    /// When it began.
    pub since: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
}

/// The health of an instance, in one word (rule 13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// It has ended.
    Closed,
    /// A worker holds it.
    Running,
    /// A worker will claim it.
    Ready,
    /// It is due later, or is reserved and not started.
    Scheduled,
    /// It waits for a signal.
    WaitingForSignal,
    /// It waits for an event.
    WaitingForEvent,
    /// It waits for a condition.
    WaitingForCondition,
    /// It waits for its children.
    WaitingForChildren,
    /// It is runnable, and no live worker has code for it.
    WaitingForWorker,
    /// Its code does not match its history. A worker whose code matches, or a repair, lets it continue.
    ReplayBlocked,
    /// No live build can run its step. A worker of a build that can, or a repair, lets it continue.
    Blocked,
    /// Only a repair can wake it.
    RepairNeeded,
}

impl Liveness {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Scheduled => "scheduled",
            Self::WaitingForSignal => "waiting_for_signal",
            Self::WaitingForEvent => "waiting_for_event",
            Self::WaitingForCondition => "waiting_for_condition",
            Self::WaitingForChildren => "waiting_for_children",
            Self::WaitingForWorker => "waiting_for_worker",
            Self::ReplayBlocked => "replay_blocked",
            Self::Blocked => "blocked",
            Self::RepairNeeded => "repair_needed",
        }
    }

    /// `true` if it needs other workers than those that are running.
    pub const fn needs_worker(self) -> bool {
        matches!(
            self,
            Self::Blocked | Self::ReplayBlocked | Self::WaitingForWorker
        )
    }

    /// Returns the status that all instances with this health have, if it is one. A blocked instance may also be
    /// runnable: a worker released it and has stopped since.
    pub const fn status(self) -> Option<Status> {
        match self {
            Self::Running => Some(Status::Executing),
            Self::Ready | Self::WaitingForWorker => Some(Status::Runnable),
            Self::WaitingForSignal | Self::WaitingForEvent | Self::WaitingForCondition => {
                Some(Status::AwaitingSignal)
            }
            Self::WaitingForChildren => Some(Status::AwaitingChildren),
            Self::ReplayBlocked => Some(Status::Scheduled),
            Self::Closed | Self::Scheduled | Self::Blocked | Self::RepairNeeded => None,
        }
    }
}

/// The health of an instance (rule 13.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Its state.
    pub liveness: Liveness,
    /// The reason why it is not healthy. `None` if it is healthy.
    pub reason: Option<Reason>,
}

/// The known facts about the surroundings of an instance. Everything that was not read is assumed to be healthy.
#[derive(Clone, Copy, Default)]
pub struct World<'a> {
    /// The rows around it.
    pub around: Option<&'a Around>,
    /// The live workers.
    pub workers: Option<&'a [Worker]>,
    /// Its contract.
    pub terms: Option<&'a Terms>,
    /// The time.
    pub now: Option<Timestamp>,
}

/// Returns the wait of an instance if it waits, or the wait that it was woken from until the source of the wake is
/// applied.
pub fn waiting(instance: &Instance) -> Option<Waiting> {
    let stands = instance.stands();
    let source = instance.resume_source();
    let kind = instance.wait_kind().filter(|kind| {
        // Rows that an earlier release woke have no source, and their step may be retried later.
        source.is_some() || stands.waits_for(*kind)
    })?;
    let ended = source.and_then(|source| {
        let mut waits = instance.waits().iter();
        waits.find(|wait| wait.command_id.is_some() && wait.command_id == source.command_id)
    });
    Some(Waiting {
        kind: ended.map_or(kind, |wait| wait.kind),
        id: match ended {
            Some(wait) => Some(wait.id.clone()),
            None => instance.wait_id().cloned(),
        },
        names: instance.awaited().to_vec(),
        waits: instance.waits().to_vec(),
        since: instance.wait_since(),
        deadline: match (instance.aside, source) {
            (Some(aside), _) => aside.due_at,
            (None, None) => instance.due_at,
            // The wait is over.
            (None, Some(_)) => None,
        },
        resume_source: source,
    })
}

/// Returns the health of an instance (rule 13.1). Every reader shows this result. `repair` and `doctor` use
/// [`problem`], which is the part of it that concerns the instance itself.
pub fn health(instance: &Instance, world: World<'_>) -> Health {
    if let Some(problem) = problem(instance, world) {
        return Health {
            liveness: Liveness::RepairNeeded,
            reason: Some(problem.reason()),
        };
    }
    let liveness = liveness(instance, world.workers);
    let reason = match liveness {
        Liveness::ReplayBlocked => Some((
            Code::ReplayBlocked,
            instance.last_error.clone().unwrap_or_default(),
        )),
        Liveness::Blocked => Some((Code::Blocked, blocked(instance))),
        Liveness::WaitingForWorker => Some((
            Code::NoWorker,
            format!(
                "no live worker serves {}",
                lane_named(&instance.queue, &instance.machine, instance.version)
            ),
        )),
        Liveness::Running => silent(instance, world.workers).or_else(|| died(instance)),
        Liveness::WaitingForChildren => {
            overdue(instance, world).or_else(|| stranded(instance, world))
        }
        Liveness::Scheduled => overdue(instance, world).or_else(|| died(instance)),
        Liveness::Ready => died(instance),
        Liveness::WaitingForSignal | Liveness::WaitingForEvent | Liveness::WaitingForCondition => {
            overdue(instance, world)
        }
        Liveness::Closed | Liveness::RepairNeeded => None,
    };
    let reason = reason.or_else(|| failing(instance));
    let reason = reason.map(|(code, text)| Reason {
        code,
        text,
        command_id: None,
    });
    let reason = reason.or_else(|| near_miss(instance, world.around?));
    Health { liveness, reason }
}

/// Returns the state of an instance that does not need repair.
fn liveness(instance: &Instance, workers: Option<&[Worker]>) -> Liveness {
    if instance.is_blocked() {
        return match instance.kind {
            Kind::Workflow => Liveness::ReplayBlocked,
            Kind::Machine => Liveness::Blocked,
        };
    }
    let unserved =
        || workers.is_some_and(|workers| !workers.iter().any(|one| serves(one, instance)));
    // It was released by a worker that has stopped since.
    let unfit = || {
        let fits = |one: &Worker| serves(one, instance) && !instance.unfit.contains(one.build());
        !instance.unfit.is_empty() && workers.is_some_and(|workers| !workers.iter().any(fits))
    };
    match (instance.status, instance.wait_kind()) {
        (status, _) if status.is_terminal() => Liveness::Closed,
        (Status::Executing, _) => Liveness::Running,
        (Status::Runnable, _) if unserved() => Liveness::WaitingForWorker,
        (Status::Runnable, _) if unfit() => Liveness::Blocked,
        (Status::Runnable, _) => Liveness::Ready,
        (Status::AwaitingSignal, Some(WaitKind::Event)) => Liveness::WaitingForEvent,
        (Status::AwaitingSignal, Some(WaitKind::Condition)) => Liveness::WaitingForCondition,
        (Status::AwaitingSignal, _) => Liveness::WaitingForSignal,
        (Status::AwaitingChildren, _) => Liveness::WaitingForChildren,
        _ => Liveness::Scheduled,
    }
}

/// `true` if a worker serves an instance's queue and has code for it.
pub fn serves(worker: &Worker, instance: &Instance) -> bool {
    serves_lane(worker, &instance.queue, &instance.machine, instance.version)
}

/// `true` if a worker serves a queue and has code for that machine and version.
pub fn serves_lane(worker: &Worker, queue: &Name, machine: &Name, version: u32) -> bool {
    let has_code = |lane: &Lane| lane.machine == *machine && lane.version == version;
    worker.queues.contains(queue) && worker.lanes.iter().any(has_code)
}

/// `true` if the list of workers is needed to decide whether an instance is healthy, at that time.
pub fn is_judged_by_workers(instance: &Instance, now: Timestamp) -> bool {
    match instance.status {
        Status::Runnable | Status::Executing | Status::AwaitingChildren => true,
        status if status.is_terminal() => false,
        _ => instance.due_at.is_some_and(|due| now.since(due) > PATIENCE),
    }
}
