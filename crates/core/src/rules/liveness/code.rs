//! The reasons why an instance is not healthy, as codes for programs and as texts for people.

use serde::{Deserialize, Serialize};

use crate::model::CommandId;

/// The reason why an instance is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The code, for programs.
    pub code: Code,
    /// The text, for people: the problem, and what to do about it if that is not a repair.
    pub text: String,
    /// The signal or update that it concerns.
    pub command_id: Option<CommandId>,
}

/// The reason why an instance is not healthy (rule 13.1), as a code. Later releases may add reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = LivenessCode))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// `repair_needed`: it has no due time.
    NeverDue,
    /// `repair_needed`: it waits, and neither a signal nor a deadline can wake it.
    WaitsForNothing,
    /// `repair_needed`: its contract declares none of the signals that it waits for, and it has no deadline.
    UndeclaredSignal,
    /// `repair_needed`: a signal that it waits for is pending, and did not wake it.
    MissedSignal,
    /// `repair_needed`: an update is pending, and did not wake it.
    MissedUpdate,
    /// `repair_needed`: it waits for more children than have yet to end.
    MissedChildren,
    /// `repair_needed`: it executes, and no worker holds it.
    NotHeld,
    /// `repair_needed`: it is behind in a partition that has no instance at its front.
    NoFront,
    /// `repair_needed`: its count of pending messages differs from its inbox.
    Miscounted,
    /// `replay_blocked`: its code does not match its history.
    ReplayBlocked,
    /// `blocked`: the builds that claimed it could not run its step.
    Blocked,
    /// `waiting_for_worker`: no live worker serves its queue with code for it.
    NoWorker,
    /// `waiting_for_children`: too many of the children are runnable, and no live worker has code for them.
    ChildrenUnserved,
    /// `waiting_for_children`: too many of the children are blocked, or have no due time.
    ChildrenBlocked,
    /// `running`: the worker that holds it is not live.
    WorkerSilent,
    /// `scheduled` or `waiting_for_…`: its time has passed, and it was not woken.
    Overdue,
    /// Its step has failed more than three times in a row.
    Failing,
    /// `waiting_for_…`: a signal with a name similar to the awaited one is pending.
    SimilarSignal,
    /// `waiting_for_…`: an event of the type that it waits for was published, and did not match.
    UnmatchedEvent,
    /// `running`, `ready` or `scheduled`: its workers have died in this step, more than once.
    WorkerDied,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::NeverDue,
        Self::WaitsForNothing,
        Self::UndeclaredSignal,
        Self::MissedSignal,
        Self::MissedUpdate,
        Self::MissedChildren,
        Self::NotHeld,
        Self::NoFront,
        Self::Miscounted,
        Self::ReplayBlocked,
        Self::Blocked,
        Self::NoWorker,
        Self::ChildrenUnserved,
        Self::ChildrenBlocked,
        Self::WorkerSilent,
        Self::Overdue,
        Self::Failing,
        Self::SimilarSignal,
        Self::UnmatchedEvent,
        Self::WorkerDied,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverDue => "never_due",
            Self::WaitsForNothing => "waits_for_nothing",
            Self::UndeclaredSignal => "undeclared_signal",
            Self::MissedSignal => "missed_signal",
            Self::MissedUpdate => "missed_update",
            Self::MissedChildren => "missed_children",
            Self::NotHeld => "not_held",
            Self::NoFront => "no_front",
            Self::Miscounted => "miscounted",
            Self::ReplayBlocked => "replay_blocked",
            Self::Blocked => "blocked",
            Self::NoWorker => "no_worker",
            Self::ChildrenUnserved => "children_unserved",
            Self::ChildrenBlocked => "children_blocked",
            Self::WorkerSilent => "worker_silent",
            Self::Overdue => "overdue",
            Self::Failing => "failing",
            Self::SimilarSignal => "similar_signal",
            Self::UnmatchedEvent => "unmatched_event",
            Self::WorkerDied => "worker_died",
        }
    }
}
