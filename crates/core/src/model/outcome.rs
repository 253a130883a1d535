//! What a step answers, and what becomes of the answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Answered, Claim, EventWait, Inbox, Json, Name, Refusal, Start, Status, Then, WorkflowTurn,
};

/// What a step answers. Committing it is what moves an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// Go to another step, now or after a delay.
    Next {
        /// The step to run.
        step: Name,
        /// The state to run it with.
        state: Json,
        /// How long to wait first.
        #[serde(default)]
        delay_ms: u64,
    },
    /// The same step again after a delay, one attempt on.
    Retry {
        /// The state to run it with.
        state: Json,
        /// How long to wait first.
        delay_ms: u64,
    },
    /// Park until a signal comes or the time is up.
    Wait(Wait),
    /// Start children and park until they have ended.
    Spawn {
        /// The children.
        children: Vec<Start>,
        /// The step to run when they have ended.
        next: Name,
        /// The state to run it with.
        state: Json,
        /// How many ends to wait for; all of them when left out.
        #[serde(default)]
        join: Join,
        /// How long to wait for them at most.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// End well.
    Done {
        /// What it came to.
        result: Json,
    },
    /// End badly.
    Stop {
        /// Why.
        reason: String,
    },
    /// The step failed: the retry policy that its machine has declared decides whether it runs again, in the state that
    /// it had, or the instance ends badly. Without a policy it ends.
    Fail {
        /// What went wrong.
        error: String,
    },
    /// Close this run and open the next of its chain, with all messages that are pending.
    ContinueAsNew {
        /// The step to begin at.
        step: Name,
        /// The state to begin with.
        state: Json,
        /// The version to go on with; the same when left out.
        #[serde(default)]
        version: Option<u32>,
    },
    /// Answer updates that the claim came with; then go back to where the instance stood, or do what is said.
    Answer {
        /// The answers.
        updates: Vec<Answered>,
        /// The new state; the old one stays when left out.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "super::json::given"
        )]
        state: Option<Json>,
        /// What to do then.
        #[serde(default)]
        then: Option<Box<Outcome>>,
    },
    /// What one turn of a workflow's code came to.
    Workflow(Box<WorkflowTurn>),
}

/// What a parked instance waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The signals, any of which wakes it. None: it waits for nothing but time.
    #[serde(default)]
    pub signals: Vec<Name>,
    /// The events, any of which wakes it.
    #[serde(default)]
    pub events: Vec<EventWait>,
    /// How long to wait at most.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The step to run then.
    pub next: Name,
    /// The state to run it with.
    pub state: Json,
}

impl Wait {
    /// All names that it waits for: those of signals, and those under which events come.
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

/// How many of a barrier's children must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// That many, or as many as there are; all of them when left out.
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
        }
    }

    /// What is done in the end: what follows the answers to updates, if anything does.
    pub fn last(&self) -> &Self {
        match self {
            Self::Answer {
                then: Some(then), ..
            } => then.last(),
            other => other,
        }
    }

    /// Whether it ends the instance, or may: of a failure a policy decides.
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

    /// The state it leaves the run with, which terminal ones do not.
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
            // Of the new run.
            Self::ContinueAsNew { .. } => None,
            Self::Done { .. } | Self::Stop { .. } | Self::Fail { .. } => None,
            Self::Workflow(turn) => turn.state.as_ref(),
        }
    }
}

/// A request to commit what a step answered.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The hold on the instance, given up by this commit unless it is kept.
    pub claim: Claim,
    /// The answer.
    pub outcome: Outcome,
    /// Go on holding the instance when the answer is a `next` that is due at once.
    pub keep: bool,
    /// How long the step ran.
    pub took: Duration,
    /// The error that the error handler answered for, if it was one.
    pub error: Option<String>,
}

impl Commit {
    /// The same once more, for a transaction that is tried again.
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

/// What became of a commit.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Committed {
    /// It is durable, and the instance now stands there.
    Moved(Status),
    /// An outcome was committed under this claim before, and nothing is changed now: its answer may have got lost.
    Repeated(Status),
    /// It is durable, and the hold goes on under this new claim: run the next step. With what is in the inbox now.
    Kept(Claim, Inbox),
    /// The claim was lost before: nothing of the outcome was committed.
    Stale,
    /// The outcome broke a rule: nothing was committed and the claim is as it was.
    Refused(Refusal),
}
