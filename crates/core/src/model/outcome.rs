//! The outcome of a step, and the result of committing it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Answered, Claim, EventWait, Inbox, Json, Name, Refusal, Start, Status, Then, WorkflowTurn,
};

/// The outcome of a step. An instance moves when its outcome is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// Continues with another step, at once or after a delay.
    Next {
        /// The step to run.
        step: Name,
        /// The state to run it with.
        state: Json,
        /// Delay before it runs.
        #[serde(default)]
        delay_ms: u64,
    },
    /// Runs the same step again after a delay, with `attempt` raised by 1.
    Retry {
        /// The state to run it with.
        state: Json,
        /// Delay before it runs.
        delay_ms: u64,
    },
    /// Parks until a signal or an event arrives, or the deadline passes.
    Wait(Wait),
    /// Starts children and parks until they have ended.
    Spawn {
        /// The children.
        children: Vec<Start>,
        /// The step to run when they have ended.
        next: Name,
        /// The state to run it with.
        state: Json,
        /// Number of ends to wait for; all of them if omitted.
        #[serde(default)]
        join: Join,
        /// Timeout of the wait for them.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Ends the instance as `done`.
    Done {
        /// Its result.
        result: Json,
    },
    /// Ends the instance as `failed`.
    Stop {
        /// The reason.
        reason: String,
    },
    /// The step failed. The retry policy that its instance was started with, or else the one that its machine declares,
    /// decides whether the step runs again, with the state that it had, or the instance ends as `failed`. Without a
    /// policy it ends.
    Fail {
        /// The error.
        error: String,
    },
    /// Closes this run and opens the next one of its chain, with all pending messages.
    ContinueAsNew {
        /// The step to begin at.
        step: Name,
        /// The state to begin with.
        state: Json,
        /// The version of the new run; unchanged if omitted.
        #[serde(default)]
        version: Option<u32>,
    },
    /// Answers updates that came with the claim. Then the instance returns to where it was, or `then` is applied.
    Answer {
        /// The answers.
        updates: Vec<Answered>,
        /// The new state; unchanged if omitted.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "super::json::given"
        )]
        state: Option<Json>,
        /// The outcome to apply afterwards.
        #[serde(default)]
        then: Option<Box<Outcome>>,
    },
    /// The outcome of one turn of a workflow's code.
    Workflow(Box<WorkflowTurn>),
    /// This build cannot run the step: it does not know the step, or cannot read the state or what the step was handed.
    /// The instance stays as it is until another build claims it (rule 12.4).
    Block {
        /// The reason.
        reason: String,
    },
}

/// The signals, events and time that an instance parks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The signals, each of which wakes it. Without signals and events it waits only for time.
    #[serde(default)]
    pub signals: Vec<Name>,
    /// The events, each of which wakes it.
    #[serde(default)]
    pub events: Vec<EventWait>,
    /// Timeout of the wait.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The step to run afterwards.
    pub next: Name,
    /// The state to run it with.
    pub state: Json,
}

impl Wait {
    /// Returns all names that it waits for: those of signals, and the reserved names of events.
    pub fn names(&self) -> Vec<Name> {
        let events = self.events.iter();
        let events = events.map(|event| Name::of_event(&event.event_type));
        let mut names = self.signals.clone();
        for name in events {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Number of a barrier's children that must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// This number, or all children if there are fewer; all of them if omitted.
    #[serde(default)]
    pub at_least: Option<u32>,
}

impl Outcome {
    /// Its name in the history.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Next { .. } => "next",
            Self::Retry { .. } => "retry",
            Self::Wait(_) => "wait",
            Self::Spawn { .. } => "spawn",
            Self::Done { .. } => "done",
            Self::Stop { .. } => "stop",
            Self::Fail { .. } => "fail",
            Self::ContinueAsNew { .. } => "continue_as_new",
            Self::Answer { .. } => "answer",
            Self::Workflow(_) => "workflow",
            Self::Block { .. } => "block",
        }
    }

    /// Returns the outcome that is applied in the end: the one after the answers to updates, if there is one.
    pub fn last(&self) -> &Self {
        match self {
            Self::Answer {
                then: Some(then), ..
            } => then.last(),
            other => other,
        }
    }

    /// `true` if it ends the instance, or may end it: a policy decides about a failure.
    pub fn may_end(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Stop { .. } | Self::Fail { .. } => true,
            Self::Workflow(turn) => matches!(
                turn.then,
                Then::Done { .. } | Then::Stop { .. } | Then::Cancelled { .. }
            ),
            Self::Answer {
                then: Some(then), ..
            } => then.may_end(),
            _ => false,
        }
    }

    /// Returns the state that it leaves the run with. `None` for terminal outcomes.
    pub fn state(&self) -> Option<&Json> {
        match self {
            Self::Next { state, .. } | Self::Retry { state, .. } | Self::Spawn { state, .. } => {
                Some(state)
            }
            Self::Wait(wait) => Some(&wait.state),
            Self::Answer { state, then, .. } => match then {
                Some(then) => match then.state() {
                    Some(state) => Some(state),
                    None => state.as_ref(),
                },
                None => state.as_ref(),
            },
            // The state belongs to the new run.
            Self::ContinueAsNew { .. } => None,
            Self::Done { .. } | Self::Stop { .. } | Self::Fail { .. } | Self::Block { .. } => None,
            Self::Workflow(turn) => turn.state.as_ref(),
        }
    }
}

/// A request to commit the outcome of a step.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The claim, which ends with this commit unless it is kept.
    pub claim: Claim,
    /// The outcome.
    pub outcome: Outcome,
    /// `true` to keep the claim if the outcome is a `next` that is due at once.
    pub keep: bool,
    /// Duration of the step.
    pub took: Duration,
    /// The error that the error handler was called for, if the outcome is the handler's.
    pub error: Option<String>,
}

impl Commit {
    /// Returns a copy, for a transaction that is retried.
    #[must_use]
    pub fn again(&self) -> Self {
        Self {
            claim: self.claim.again(),
            outcome: self.outcome.clone(),
            keep: self.keep,
            took: self.took,
            error: self.error.clone(),
        }
    }
}

/// The answer to a commit.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Committed {
    /// It is durable, and the instance now has this status.
    Moved(Status),
    /// An outcome was already committed under this claim, and nothing changed now: the first answer may have been lost.
    Repeated(Status),
    /// It is durable, and the worker keeps the instance under this new claim: run the next step. With the counters of
    /// the inbox now.
    Kept(Claim, Inbox),
    /// The claim was lost before: no part of the outcome was committed.
    Stale,
    /// The outcome broke a rule: nothing was committed, and the claim is unchanged.
    Refused(Refusal),
}
