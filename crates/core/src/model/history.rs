//! The history of an instance: history events in order, one row for each commit.

mod kinds;

use serde::{Deserialize, Serialize};

use super::{
    Accepts, AnyKey, BarrierNumber, Blocked, CommandId, Completed, InstanceId, Json, Key, Name,
    Opened, OperationWait, Sequence, Status, Timestamp, TriedAgain, WaitId, WaitKind,
};

/// One history event of an instance, with its number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number: 1, 2, 3 …
    pub seq: u32,
    /// When it was committed.
    pub at: Timestamp,
    /// The event itself.
    #[serde(flatten)]
    pub what: HistoryEvent,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// The serialized form of an entry, written out because a flattened one cannot hold JSON as raw text.
        #[derive(Deserialize)]
        struct Written {
            seq: u32,
            at: Timestamp,
            kind: String,
            #[serde(default)]
            data: Option<Json>,
        }
        #[derive(Serialize)]
        struct What<'w> {
            kind: &'w str,
            #[serde(skip_serializing_if = "Option::is_none")]
            data: Option<&'w Json>,
        }
        let written = Written::deserialize(from)?;
        let what = Json::of(&What {
            kind: &written.kind,
            data: written.data.as_ref(),
        });
        let what = what.and_then(|what| what.to::<HistoryEvent>());
        Ok(Self {
            seq: written.seq,
            at: written.at,
            what: what.map_err(serde::de::Error::custom)?,
        })
    }
}

/// A history event: something that happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// It was started.
    Started {
        /// The machine.
        machine: Name,
        /// Its version.
        version: u32,
        /// The step it began at.
        step: Name,
        /// Its key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Key>,
        /// Its parent, if it is a child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<InstanceId>,
        /// Its run number in the chain.
        run_number: u32,
        /// The signals that it accepts, if its machine declares any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_signals: Vec<Name>,
        /// Their contracts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_signal_contracts: Vec<Accepts>,
        /// The updates that it accepts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_updates: Vec<Name>,
        /// Their contracts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_update_contracts: Vec<Accepts>,
    },
    /// A step ended, and its outcome was committed.
    StepCompleted {
        /// The step.
        step: Name,
        /// Its number in the run.
        step_sequence: u32,
        /// The name of its outcome.
        outcome: String,
        /// The next step, if it continued with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Name>,
        /// Number of times that it was begun before.
        attempt: u32,
        /// Duration of the step.
        duration_us: u64,
    },
    /// A step returned an error or panicked, and the outcome of its error handler was committed.
    StepFailed {
        /// The step.
        step: Name,
        /// Its number in the run.
        step_sequence: u32,
        /// The error.
        error: String,
        /// The name of its error handler's outcome.
        outcome: String,
        /// The next step, if the outcome continued with one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Name>,
        /// Number of times that it was begun before.
        attempt: u32,
        /// Duration of the step.
        duration_us: u64,
    },
    /// The step will run again.
    Retried {
        /// The step.
        step: Name,
        /// The number of the next attempt.
        attempt: u32,
        /// When it is due.
        due_at: Timestamp,
        /// The attempts that this history event combines, if there are several (rule 16.1).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folded: Option<Folded>,
    },
    /// It parked.
    WaitOpened {
        /// The kind of the wait.
        wait_kind: WaitKind,
        /// The signals that would wake it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<Name>,
        /// The deadline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The wait's id; if a workflow has several waits, that of the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_id: Option<WaitId>,
        /// The waits of a workflow's operations for signals, events and conditions, each with its id.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits: Vec<OperationWait>,
    },
    /// A signal was put into its inbox.
    SignalReceived {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The wait that it ended, or its own id if no wait was open for it.
        wait_id: WaitId,
        /// The sender.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The sender, as the caller of a server claimed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// An event that it waited for was put into its inbox.
    EventMatched {
        /// Its record in the inbox.
        command_id: CommandId,
        /// Its type.
        event_type: Name,
        /// Its id.
        event_id: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The wait that it ended.
        wait_id: WaitId,
    },
    /// A step consumed a signal.
    SignalApplied {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The wait that took it.
        wait_id: WaitId,
        /// The step that consumed it.
        step: Name,
        /// That step's number.
        step_sequence: u32,
        /// The operation of a workflow that took it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<u32>,
        /// The graph step that the operation belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        graph_step: Option<Name>,
    },
    /// The instance ended, and this signal was left over.
    SignalDiscarded {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
    },
    /// It has consumed its messages up to a later position.
    MessageCursorAdvanced {
        /// The stream of messages: `inbox`.
        stream: String,
        /// The old position.
        from: Sequence,
        /// The new position.
        to: Sequence,
    },
    /// An update was accepted and will be handled.
    UpdateAccepted {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The sender.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The sender, as the caller of a server claimed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// An update was handled.
    UpdateCompleted {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
    },
    /// An update's handler failed, or it was not answered when the instance ended.
    UpdateFailed {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The reason.
        error: String,
    },
    /// Its wait timed out.
    TimedOut {
        /// The kind of the wait.
        wait_kind: WaitKind,
        /// The deadline of the wait.
        deadline: Timestamp,
        /// The wait's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_id: Option<WaitId>,
    },
    /// It started children.
    ChildrenSpawned {
        /// The barrier's number.
        barrier: BarrierNumber,
        /// Number of children that were started.
        count: u32,
        /// Number of children that were not started because their key was taken.
        #[serde(default, skip_serializing_if = "is_zero")]
        duplicates: u32,
    },
    /// A child ended.
    ChildEnded {
        /// The child.
        child: InstanceId,
        /// The barrier it belongs to.
        barrier: BarrierNumber,
        /// The status that it ended with.
        status: Status,
    },
    /// Enough of its children have ended.
    ChildrenJoined {
        /// The barrier's number.
        barrier: BarrierNumber,
        /// Number of children that have not ended.
        missing: u32,
    },
    /// Its worker died, or was restarted, and the step runs again.
    Reclaimed {
        /// The step.
        step: Name,
        /// The number of the next attempt.
        attempt: u32,
        /// The worker that held it.
        worker: Name,
        /// Number of times that a worker died in this step.
        #[serde(default)]
        deaths: u32,
        /// When it is due, if that is later.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        due_at: Option<Timestamp>,
        /// The attempts that this history event combines, if there are several (rule 16.1).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folded: Option<Folded>,
    },
    /// Another instance holds a key that it would have taken, and it continues, or ends, without the key.
    KeyGivenUp {
        /// The key.
        #[serde(flatten)]
        key: AnyKey,
        /// The instance that holds it.
        holder: InstanceId,
    },
    /// A problem was repaired.
    Repaired {
        /// The problem.
        problem: String,
    },
    /// An operation of its code began.
    OperationOpened(Opened),
    /// An operation of its code ended.
    OperationCompleted(Completed),
    /// A step of its code failed and will be retried.
    OperationRetried(TriedAgain),
    /// Its code does not match its history.
    ReplayBlocked(Blocked),
    /// A build could not run its step, and it waits for another build.
    Blocked {
        /// The step.
        step: Name,
        /// The number of that step in the run.
        step_sequence: u32,
        /// Number of times that it was begun before; a block does not count as an attempt.
        attempt: u32,
        /// The reason.
        reason: String,
        /// The build that could not run it. `None` if its worker is no longer known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        build: Option<Name>,
    },
    /// A restarted run begins with the signals or the children that the last step of the previous run was handed (rule
    /// 11.2).
    HandedAgain {
        /// The previous run.
        run_id: InstanceId,
        /// The signals, in the order of their sequence.
        signals: Vec<HandedSignal>,
        /// Number of children that it has taken over from the previous run.
        #[serde(default, skip_serializing_if = "is_zero")]
        children: u32,
    },
    /// Its code was asked to clean up and end.
    CancelRequested {
        /// The record.
        command_id: CommandId,
        /// Its position in the chain.
        message_sequence: Sequence,
        /// Its position among the commands of the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_sequence: Option<Sequence>,
        /// The reason.
        reason: String,
        /// The caller that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// The caller that asked for it, as the caller of a server claimed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// It was cancelled.
    Cancelled {
        /// The reason.
        reason: String,
    },
    /// Its chain continues in a newer run.
    Continued {
        /// The newer run.
        run_id: InstanceId,
        /// Its number.
        run_number: u32,
    },
    /// It ended with a result.
    Done,
    /// It ended with an error.
    Failed {
        /// The reason.
        error: String,
    },
}

impl HistoryEvent {
    /// Returns the attempts that it combines, if there are several.
    pub const fn folded(&self) -> Option<&Folded> {
        match self {
            Self::Retried { folded, .. } | Self::Reclaimed { folded, .. } => folded.as_ref(),
            Self::OperationRetried(again) => again.folded.as_ref(),
            _ => None,
        }
    }

    /// Returns how many history numbers it has used: one for each attempt that it combines. Its own number is the last
    /// of them.
    pub fn numbers(&self) -> u32 {
        self.folded().map_or(1, |folded| folded.count.max(1))
    }
}

/// A signal that a restarted run was handed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedSignal {
    /// Its record in this run.
    pub command_id: CommandId,
    /// The record that it was copied from, which stays with the previous run.
    pub copy_of: CommandId,
    /// Its name, or the type of the event.
    pub name: Name,
    /// Its position in the chain.
    pub message_sequence: Sequence,
}

/// The attempts at one step that one history event combines (rule 16.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folded {
    /// The first attempt, numbered as `attempt` is.
    pub first: u32,
    /// The last attempt.
    pub last: u32,
    /// Number of attempts.
    pub count: u32,
    /// Number of attempts that ended with the death of a worker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// When the first of them was recorded.
    pub since: Timestamp,
    /// The error of the last attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_as_seq_kind_at_data() {
        let entry = Entry {
            seq: 2,
            at: Timestamp::from_micros(0),
            what: HistoryEvent::Failed { error: "no".into() },
        };
        assert_eq!(
            serde_json::to_string(&entry).unwrap(),
            r#"{"seq":2,"at":"1970-01-01T00:00:00Z","kind":"failed","data":{"error":"no"}}"#
        );
    }
}
