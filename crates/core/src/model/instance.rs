//! The complete row of an instance, as readers see it.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::coded::coded;
use super::json::null_is_a_result;
use super::{
    CommandId, CommandKind, InstanceId, Json, Key, Lane, Name, Policy, Row, Scope, Status,
    Timestamp, UniqueKey,
};

/// The complete row of an instance: the part that rules use, whose fields are also its own, and the rest.
///
/// ```
/// # use abide_core::model::{Instance, Status};
/// fn has_ended(instance: &Instance) -> bool {
///     instance.status == Status::Done && instance.result.is_some()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Instance {
    /// The part that rules use.
    #[serde(flatten)]
    pub row: Row,
    /// The name that the business knows it by.
    pub key: Option<Key>,
    /// The statuses in which it holds the key.
    pub scope: Scope,
    /// A second identity, which cannot be used as an address.
    pub unique_key: Option<UniqueKey>,
    /// The statuses in which it holds the unique key.
    pub unique_scope: Scope,
    /// The version of its machine.
    pub version: u32,
    /// The step it began at.
    pub first_step: Name,
    /// Its state.
    pub state: Json,
    /// Its result, if it is done.
    pub result: Option<Json>,
    /// Its own failure policy, where that differs from what its machine declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// When it was last written.
    pub updated_at: Timestamp,
}

null_is_a_result!(Instance, |one| one.status == Status::Done);
null_is_a_result!(Child, |one| one.status == Status::Done);

impl Deref for Instance {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

impl Instance {
    /// Returns its machine and version.
    pub fn lane(&self) -> Lane {
        Lane {
            machine: self.machine.clone(),
            version: self.version,
        }
    }

    /// Returns it as its parent sees it.
    pub fn child(&self) -> Child {
        Child {
            id: self.id,
            key: self.key.clone(),
            machine: self.machine.clone(),
            status: self.status,
            state: self.state.clone(),
            result: self.result.clone(),
            last_error: self.last_error.clone(),
        }
    }
}

coded! {
    /// The kind of an instance's wait; `signal` also for signals and events together.
    pub enum WaitKind {
        /// A signal, possibly together with events.
        Signal = 1, "signal";
        /// An event.
        Event = 2, "event";
        /// A condition.
        Condition = 3, "condition";
        /// Only time.
        Timer = 4, "timer";
        /// Its children.
        Children = 5, "children";
    }
}

/// The source that ended a wait, kept until the outcome of the step that it woke is committed (rule 13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeSource {
    /// The command; the first one if several arrived. Null for a deadline and for the end of children.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub command_id: Option<CommandId>,
    /// Its kind.
    pub kind: ResumeKind,
}

impl ResumeSource {
    /// Creates the source for a command, which is an event if it has the reserved name of one.
    pub fn command(id: CommandId, kind: CommandKind, name: &Name) -> Self {
        let kind = match (kind, name.event_type()) {
            (CommandKind::Signal, None) => ResumeKind::Signal,
            (CommandKind::Signal, Some(_)) => ResumeKind::Event,
            (CommandKind::Update, _) => ResumeKind::Update,
            (CommandKind::Cancel, _) => ResumeKind::Cancel,
        };
        Self {
            command_id: Some(id),
            kind,
        }
    }

    /// Creates the source for a deadline or for the end of children.
    pub const fn of(kind: ResumeKind) -> Self {
        Self {
            command_id: None,
            kind,
        }
    }
}

coded! {
    /// The kind of the source that ended a wait.
    pub enum ResumeKind {
        /// A signal.
        Signal = 1, "signal";
        /// An event.
        Event = 2, "event";
        /// An update, which is handled during the wait; the wait stays open.
        Update = 3, "update";
        /// A cancellation, which reaches a workflow's code.
        Cancel = 4, "cancel";
        /// Its deadline.
        Timeout = 5, "timeout";
        /// The end of its children.
        Children = 6, "children";
    }
}

/// A child as its parent sees it when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(remote = "Self")]
pub struct Child {
    /// The child.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub id: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// Its machine.
    pub machine: Name,
    /// Its status.
    pub status: Status,
    /// Its state.
    pub state: Json,
    /// The result.
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub result: Option<Json>,
    /// The error.
    pub last_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Awaits, Epoch, Lease, WaitId};
    use serde_json::{Value, json};

    fn waiting() -> Instance {
        let [machine, step, queue] = ["m", "s", "q"].map(Name::stored);
        let at = Timestamp::from_micros(1_000_000);
        let mut row = Row::new(InstanceId(7), machine, step, queue, at);
        row.status = Status::AwaitingSignal;
        let wait_id = Some(WaitId::stored("wait:7:1"));
        let mut awaits = Awaits::new(WaitKind::Signal, vec![Name::stored("go")], at, wait_id);
        awaits.resumed = Some(ResumeSource::of(ResumeKind::Timeout));
        row.awaits = Some(awaits);
        (row.family.pending, row.family.needed) = (2, 1);
        Instance {
            first_step: row.step.clone(),
            row,
            key: None,
            scope: Scope::NEVER,
            unique_key: None,
            unique_scope: Scope::NEVER,
            version: 3,
            state: Json::from(json!({"a": 1})),
            result: None,
            policy: None,
            updated_at: at,
        }
    }

    #[test]
    fn its_json_is_flat_and_is_read_back() {
        let one = waiting();
        let text = serde_json::to_string(&one).unwrap();
        let at = "1970-01-01T00:00:01Z";
        // In two parts, because the macro is recursive.
        let mut expected = json!({
            "id": 7, "key": null, "scope": [], "unique_key": null, "unique_scope": [], "kind": "machine", "machine": "m",
            "version": 3, "first_step": "s", "step": "s", "step_seq": 1, "attempt": 0, "deaths": 0,
            "status": "awaiting_signal", "state": {"a": 1}, "result": null, "last_error": null, "queue": "q",
            "priority": 0, "due_at": null, "partition_key": null, "behind": false, "worker": null, "cause": "start",
        });
        let rest = json!({
            "timed_out": false, "wait_kind": "signal", "awaits": ["go"], "wait_since": at, "wait_id": "wait:7:1",
            "resume_source": {"command_id": null, "kind": "timeout"}, "aside": null,
            "inbox": {"sequence": 0, "cursor": 0, "signals": 0, "updates": 0, "handed": 0, "bytes": 0, "commands": 0},
            "contract": null, "run_number": 1, "first_id": null, "children_needed": 1, "parent": null,
            "parent_barrier": 0, "barrier": 0, "children_pending": 2, "history": true, "history_events": 1,
            "created_at": at, "updated_at": at, "finished_at": null,
        });
        let rest = rest.as_object().unwrap().clone();
        expected.as_object_mut().unwrap().extend(rest);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Instance>(&text).unwrap(), one);
    }

    #[test]
    fn what_only_commits_need_is_not_in_its_json() {
        let mut held = waiting();
        held.row.awaits = None;
        let shown = serde_json::to_string(&held).unwrap();
        let until = Timestamp::from_micros(2_000_000);
        held.row.epoch = Epoch(5);
        held.row.lease = Some(Lease { until, limit: None });
        held.row.family.ended = 1;
        assert_eq!(serde_json::to_string(&held).unwrap(), shown);
    }
}
