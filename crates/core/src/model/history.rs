//! What is remembered of an instance: events in order, a row for each commit.

use serde::{Deserialize, Serialize};

use super::{
    Accepts, AnyKey, BarrierNumber, Blocked, CommandId, Completed, InstanceId, Json, Key, Name,
    NotJson, Opened, Sequence, Status, Timestamp, TriedAgain, WaitId, WaitKind,
};

/// One event of an instance's history, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its place: 1, 2, 3 …
    pub seq: u32,
    /// When it was committed.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        /// An entry as it is written; a flattened one could not hold JSON as text.
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
        let what = what.and_then(|what| what.to::<Happening>());
        Ok(Self {
            seq: written.seq,
            at: written.at,
            what: what.map_err(serde::de::Error::custom)?,
        })
    }
}

/// What happened to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happening {
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
        /// Whose child it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<InstanceId>,
        /// Which run of its chain it is.
        run_number: u32,
        /// The signals it takes, when its machine declares any.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_signals: Vec<Name>,
        /// What they must look like.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_signal_contracts: Vec<Accepts>,
        /// The updates it takes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_updates: Vec<Name>,
        /// What they must look like.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        declared_update_contracts: Vec<Accepts>,
    },
    /// A step answered, and its outcome was committed.
    StepCompleted {
        /// The step.
        step: Name,
        /// Its number in the run.
        step_sequence: u32,
        /// What it answered.
        outcome: String,
        /// Where to, when it went on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Name>,
        /// How often it was begun before.
        attempt: u32,
        /// How long it ran.
        duration_us: u64,
    },
    /// A step failed or panicked, and what its error handler answered was committed.
    StepFailed {
        /// The step.
        step: Name,
        /// Its number in the run.
        step_sequence: u32,
        /// The error.
        error: String,
        /// What its error handler answered.
        outcome: String,
        /// Where to, when that went on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Name>,
        /// How often it was begun before.
        attempt: u32,
        /// How long it ran.
        duration_us: u64,
    },
    /// The step runs again.
    Retried {
        /// The step.
        step: Name,
        /// The attempt that is next.
        attempt: u32,
        /// When it is due.
        due_at: Timestamp,
    },
    /// It began to wait.
    WaitOpened {
        /// For what kind of thing.
        wait_kind: WaitKind,
        /// The signals that would wake it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        names: Vec<Name>,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
        /// The wait's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_id: Option<WaitId>,
    },
    /// A signal came into its inbox.
    SignalReceived {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// The wait that it ended, or its own id when nobody waited for it.
        wait_id: WaitId,
        /// Who sent it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Who sent it, as the caller of a server said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// An event came into its inbox that it waited for.
    EventMatched {
        /// Its record in the inbox.
        command_id: CommandId,
        /// Its type.
        event_type: Name,
        /// What it is known by.
        event_id: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// The wait that it ended.
        wait_id: WaitId,
    },
    /// A step consumed a signal.
    SignalApplied {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// The wait that took it.
        wait_id: WaitId,
        /// The step that consumed it.
        step: Name,
        /// That step's number.
        step_sequence: u32,
    },
    /// It ended, and nobody will take this signal any more.
    SignalDiscarded {
        /// Its record.
        command_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
    },
    /// It has consumed its messages up to a later place.
    MessageCursorAdvanced {
        /// Which messages: `inbox`.
        stream: String,
        /// From where.
        from: Sequence,
        /// To where.
        to: Sequence,
    },
    /// An update is to be handled.
    UpdateAccepted {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// Who sent it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Who sent it, as the caller of a server said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// An update was handled.
    UpdateCompleted {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
    },
    /// An update's handler failed, or the instance ended first.
    UpdateFailed {
        /// Its record.
        update_id: CommandId,
        /// Its name.
        name: Name,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// Why.
        error: String,
    },
    /// Its wait's time was up.
    TimedOut {
        /// What it had waited for.
        wait_kind: WaitKind,
        /// Until when it was to wait.
        deadline: Timestamp,
        /// The wait's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_id: Option<WaitId>,
    },
    /// It started children.
    ChildrenSpawned {
        /// The barrier's number.
        barrier: BarrierNumber,
        /// How many were really started.
        count: u32,
        /// How many were not, their key being taken.
        #[serde(default, skip_serializing_if = "is_zero")]
        duplicates: u32,
    },
    /// A child ended.
    ChildEnded {
        /// The child.
        child: InstanceId,
        /// The barrier it belongs to.
        barrier: BarrierNumber,
        /// How it ended.
        status: Status,
    },
    /// Enough of its children have ended.
    ChildrenJoined {
        /// The barrier's number.
        barrier: BarrierNumber,
        /// How many children have not ended.
        missing: u32,
    },
    /// Its worker died, or was started again, and the step runs once more.
    Reclaimed {
        /// The step.
        step: Name,
        /// The attempt that is next.
        attempt: u32,
        /// The worker that had it.
        worker: Name,
    },
    /// A key that it would have taken was taken by another, and it goes on, or ends, without it.
    KeyGivenUp {
        /// The key.
        #[serde(flatten)]
        key: AnyKey,
        /// The instance that holds it.
        holder: InstanceId,
    },
    /// Something was wrong with it and was put right.
    Repaired {
        /// What it was.
        problem: String,
    },
    /// An operation of its code was begun.
    OperationOpened(Opened),
    /// An operation of its code has come to its end.
    OperationCompleted(Completed),
    /// A step of its code failed and is tried again.
    OperationRetried(TriedAgain),
    /// Its code does not fit its history.
    ReplayBlocked(Blocked),
    /// Its code is to clean up and end.
    CancelRequested {
        /// The record.
        command_id: CommandId,
        /// Its place in the chain.
        message_sequence: Sequence,
        /// Why.
        reason: String,
        /// Who asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Who asked for it, as the caller of a server said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_source: Option<String>,
    },
    /// It was cancelled.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// Its chain goes on in a newer run.
    Continued {
        /// That run.
        run_id: InstanceId,
        /// Its number.
        run_number: u32,
    },
    /// It ended well.
    Done,
    /// It ended badly.
    Failed {
        /// Why.
        error: String,
    },
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Happening {
    /// The names of all kinds.
    pub const KINDS: [&'static str; 29] = [
        "started",
        "step_completed",
        "step_failed",
        "retried",
        "wait_opened",
        "signal_received",
        "event_matched",
        "signal_applied",
        "signal_discarded",
        "message_cursor_advanced",
        "update_accepted",
        "update_completed",
        "update_failed",
        "timed_out",
        "children_spawned",
        "child_ended",
        "children_joined",
        "reclaimed",
        "key_given_up",
        "repaired",
        "operation_opened",
        "operation_completed",
        "operation_retried",
        "replay_blocked",
        "cancel_requested",
        "cancelled",
        "continued",
        "done",
        "failed",
    ];

    /// Its name, as readers see it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::StepCompleted { .. } => "step_completed",
            Self::StepFailed { .. } => "step_failed",
            Self::Retried { .. } => "retried",
            Self::WaitOpened { .. } => "wait_opened",
            Self::SignalReceived { .. } => "signal_received",
            Self::EventMatched { .. } => "event_matched",
            Self::SignalApplied { .. } => "signal_applied",
            Self::SignalDiscarded { .. } => "signal_discarded",
            Self::MessageCursorAdvanced { .. } => "message_cursor_advanced",
            Self::UpdateAccepted { .. } => "update_accepted",
            Self::UpdateCompleted { .. } => "update_completed",
            Self::UpdateFailed { .. } => "update_failed",
            Self::TimedOut { .. } => "timed_out",
            Self::ChildrenSpawned { .. } => "children_spawned",
            Self::ChildEnded { .. } => "child_ended",
            Self::ChildrenJoined { .. } => "children_joined",
            Self::Reclaimed { .. } => "reclaimed",
            Self::KeyGivenUp { .. } => "key_given_up",
            Self::Repaired { .. } => "repaired",
            Self::OperationOpened(_) => "operation_opened",
            Self::OperationCompleted(_) => "operation_completed",
            Self::OperationRetried(_) => "operation_retried",
            Self::ReplayBlocked(_) => "replay_blocked",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::Cancelled { .. } => "cancelled",
            Self::Continued { .. } => "continued",
            Self::Done => "done",
            Self::Failed { .. } => "failed",
        }
    }
}

/// What one commit adds to one instance's history: a row that holds its events in order.
///
/// A commit tells of two events as a rule (`step_completed`, then what followed), and one row for both costs the
/// databases half of two rows. `started` is not among them: it is told by the instance's own row, which is written in
/// the same commit as what it tells of, and is always event 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The instance.
    pub instance: InstanceId,
    /// The first event's number.
    pub seq: u32,
    /// When it was committed.
    pub at: Timestamp,
    /// The events, as a JSON array.
    pub events: String,
}

impl HistoryRow {
    /// Packs the events of one commit.
    pub fn pack(
        instance: InstanceId,
        seq: u32,
        at: Timestamp,
        events: &[Happening],
    ) -> Result<Self, NotJson> {
        Ok(Self {
            instance,
            seq,
            at,
            events: serde_json::to_string(events)?,
        })
    }

    /// The events, one by one.
    pub fn unpack(&self) -> Result<Vec<Entry>, NotJson> {
        let events: Vec<Happening> = serde_json::from_str(&self.events)?;
        Ok((self.seq..)
            .zip(events)
            .map(|(seq, what)| Entry {
                seq,
                at: self.at,
                what,
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_packed_and_read_back_in_order() {
        // rule 16.1
        let events = vec![
            Happening::ChildEnded {
                child: InstanceId(7),
                barrier: BarrierNumber(1),
                status: Status::Failed,
            },
            Happening::Done,
        ];
        let row = HistoryRow::pack(InstanceId(1), 5, Timestamp::from_micros(9), &events).unwrap();
        let read = row.unpack().unwrap();
        assert_eq!(
            read.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
            [5, 6]
        );
        assert_eq!(
            read.into_iter().map(|entry| entry.what).collect::<Vec<_>>(),
            events
        );
    }

    #[test]
    fn every_kind_is_known_by_its_name() {
        let unknown = serde_json::from_str::<Happening>(r#"{"kind":"nothing","data":null}"#);
        let known = Happening::KINDS.map(|kind| format!("`{kind}`")).join(", ");
        let told = unknown.unwrap_err().to_string();
        assert!(
            told.contains(&format!("expected one of {known} at")),
            "{told}"
        );
    }

    #[test]
    fn an_entry_reads_as_seq_kind_at_data() {
        let entry = Entry {
            seq: 2,
            at: Timestamp::from_micros(0),
            what: Happening::Failed { error: "no".into() },
        };
        assert_eq!(
            serde_json::to_string(&entry).unwrap(),
            r#"{"seq":2,"at":"1970-01-01T00:00:00Z","kind":"failed","data":{"error":"no"}}"#
        );
    }
}
