//! The records of signals and updates, as readers see them.

use abide::InstanceId;
use abide::model::{Command, CommandId, CommandStatus, Json, Key, Name, Sequence, WaitId};
use abide::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::Problems;

/// The record of a signal, or of an event that was matched.
#[derive(Serialize, ToSchema)]
#[schema(as = Signal)]
pub struct SignalView {
    /// Its id: `command_id` of the answer to its sender.
    #[schema(value_type = i64)]
    pub id: CommandId,
    /// `signal`, or `event` when it is an event that was matched.
    pub kind: &'static str,
    /// Its name; of an event its type.
    pub name: Name,
    /// Its status.
    pub status: CommandStatus,
    /// The outcome that its sender got.
    pub outcome: &'static str,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The run that it was delivered to.
    #[schema(value_type = Option<i64>)]
    pub instance_id: Option<InstanceId>,
    /// The key that it was sent to, or that its instance has.
    pub key: Option<Key>,
    /// Its message sequence in the chain; null if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub message_sequence: Option<Sequence>,
    /// Its place among all commands that were recorded for the run, refused ones too; null when no run has it, and in
    /// records of earlier releases.
    #[schema(value_type = Option<i64>)]
    pub command_sequence: Option<Sequence>,
    /// The step that consumed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_sequence: Option<u32>,
    /// The operation of the workflow's code that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The graph step that the operation belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_step: Option<Name>,
    /// The wait that takes or took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub wait_id: Option<WaitId>,
    /// The arguments: an object by parameter under a contract, else a list. Those of a refused one are as they were given:
    /// an object when that was by name, else a list; null when they were too large to keep.
    pub arguments: Json,
    /// The problems of the arguments.
    #[schema(value_type = Problems)]
    pub validation_errors: Json,
    /// Its dedup key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<Name>,
    /// The sender. Over HTTP, as the server knows it: `http`, `http:<token>` or `hook:<webhook>`; for an event, its id.
    pub source: Option<String>,
    /// The sender, as the client named it; the server has not checked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub claimed_source: Option<String>,
    /// The time when it arrived.
    pub received_at: Timestamp,
    /// The time until which it is held, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// When it was consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// The time when it was closed, for whatever reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

impl From<Command> for SignalView {
    fn from(record: Command) -> Self {
        let outcome = record.outcome();
        let (kind, name) = record.kind_and_name();
        Self {
            id: record.id,
            kind,
            name,
            status: record.status,
            outcome,
            reason: record.rejection.map(abide::model::Rejection::reason),
            instance_id: record.instance,
            key: record.key,
            message_sequence: record.sequence,
            command_sequence: record.command_sequence,
            step_sequence: record.step_sequence,
            operation: record.operation,
            graph_step: record.graph_step,
            wait_id: record.wait_id,
            arguments: record.arguments,
            validation_errors: record.validation_errors.unwrap_or_else(empty),
            dedup_key: record.dedup_key,
            source: record.source,
            claimed_source: record.claimed_source,
            received_at: record.received_at,
            held_until: record.hold_until,
            applied_at: record
                .closed_at
                .filter(|_| record.status == CommandStatus::Applied),
            closed_at: record.closed_at,
        }
    }
}

/// The record of an update.
#[derive(Serialize, ToSchema)]
#[schema(as = Update)]
pub struct UpdateView {
    /// Its id.
    #[schema(value_type = i64)]
    pub update_id: CommandId,
    /// Its name.
    pub name: Name,
    /// Its status: `accepted`, `completed`, `failed` or `rejected`.
    pub update_status: CommandStatus,
    /// The outcome that its sender got.
    pub outcome: &'static str,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Json)]
    pub result: Option<Json>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The run that it was delivered to.
    #[schema(value_type = Option<i64>)]
    pub instance_id: Option<InstanceId>,
    /// The key that it was sent to, or that its instance has.
    pub key: Option<Key>,
    /// Its message sequence in the chain; null if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub message_sequence: Option<Sequence>,
    /// Its place among all commands that were recorded for the run, refused ones too; null when no run has it, and in
    /// records of earlier releases.
    #[schema(value_type = Option<i64>)]
    pub command_sequence: Option<Sequence>,
    /// The arguments: an object by parameter under a contract, else a list. Those of a refused one are as they were given:
    /// an object when that was by name, else a list; null when they were too large to keep.
    pub arguments: Json,
    /// The problems of the arguments.
    #[schema(value_type = Problems)]
    pub validation_errors: Json,
    /// Its dedup key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Name>,
    /// The sender. Over HTTP, as the server knows it: `http` or `http:<token>`.
    pub source: Option<String>,
    /// The sender, as the client named it; the server has not checked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Name>)]
    pub claimed_source: Option<String>,
    /// The time when it arrived.
    pub received_at: Timestamp,
    /// When it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

impl From<Command> for UpdateView {
    fn from(record: Command) -> Self {
        Self {
            update_id: record.id,
            update_status: record.status,
            outcome: record.outcome(),
            reason: record.rejection.map(abide::model::Rejection::reason),
            name: record.name,
            result: record.result,
            error: record.error,
            instance_id: record.instance,
            key: record.key,
            message_sequence: record.sequence,
            command_sequence: record.command_sequence,
            arguments: record.arguments,
            validation_errors: record.validation_errors.unwrap_or_else(empty),
            request_id: record.dedup_key,
            source: record.source,
            claimed_source: record.claimed_source,
            received_at: record.received_at,
            closed_at: record.closed_at,
        }
    }
}

fn empty() -> Json {
    Json::from(serde_json::json!({}))
}
