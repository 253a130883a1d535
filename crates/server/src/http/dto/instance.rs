//! An instance as readers see it.

use abide::client::Description;
use abide::model::{
    Cause, CommandId, Condition, Json, Key, Kind, Liveness, Name, OperationWait, Policy,
    ReasonCode, ResumeSource, Scope, WaitId, WaitKind, Waiter,
};
use abide::time::Timestamp;
use abide::{InstanceId, Status};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{App, Problem};

/// An instance in its current state.
#[derive(Serialize, ToSchema)]
#[schema(as = Instance)]
pub struct InstanceView {
    /// Its id.
    #[schema(value_type = i64)]
    pub id: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// The machine; a graph's is `graph/<name>`, a task's `task/<name>`.
    pub machine: Name,
    /// The machine's version.
    pub version: u32,
    /// `machine` or `workflow`.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// Its status.
    pub status: Status,
    /// The step that runs, or runs next.
    pub step: Name,
    /// The number of that step in the run.
    pub step_sequence: u32,
    /// The number of earlier attempts at that step.
    pub attempt: u32,
    /// The number of those attempts in which the worker died. At `max_deaths` the instance fails.
    pub deaths: u32,
    /// Its state.
    pub state: Json,
    /// The result, if it is done.
    #[schema(value_type = Json)]
    pub result: Option<Json>,
    /// The error, or the reason of the cancellation.
    pub last_error: Option<String>,
    /// What it waits for. After a wake-up, the wait that was ended, until what ended it is applied.
    pub wait: Option<WaitView>,
    /// Its health: whether anything can still wake it.
    pub liveness: Liveness,
    /// The reason if it is not healthy, for people.
    pub liveness_reason: Option<String>,
    /// The reason, for programs.
    pub liveness_code: Option<ReasonCode>,
    /// The signal or update that the reason is about.
    #[schema(value_type = Option<i64>)]
    pub liveness_command_id: Option<CommandId>,
    /// Its queue.
    pub queue: Name,
    /// Its priority: lower numbers run first.
    pub priority: i16,
    /// Its partition: at most one instance of a partition executes at a time.
    pub partition_key: Option<Key>,
    /// A second key, which excludes duplicates and cannot be used as an address.
    pub unique_key: Option<String>,
    /// The statuses in which it holds its key.
    #[schema(value_type = Vec<Status>)]
    pub scope: Scope,
    /// The statuses in which it holds its unique key.
    #[schema(value_type = Vec<Status>)]
    pub unique_scope: Scope,
    /// The failure policy, where it differs from the machine's declaration.
    pub policy: Option<Policy>,
    /// When it is due, its wait's deadline, or since when it is runnable.
    pub due_at: Option<Timestamp>,
    /// The cause of its last wake-up.
    #[schema(value_type = String)]
    pub cause: Cause,
    /// `true` if the deadline of its last wait has passed.
    pub timed_out: bool,
    /// The number of this run in its chain.
    pub run: u32,
    /// The first run of its chain.
    #[schema(value_type = i64)]
    pub first_id: InstanceId,
    /// Its parent.
    #[schema(value_type = Option<i64>)]
    pub parent_id: Option<InstanceId>,
    /// The number of its children that have not ended.
    pub children_pending: u32,
    /// The number of pending signals in its inbox.
    pub signals_pending: u32,
    /// The number of pending updates in its inbox.
    pub updates_pending: u32,
    /// The highest message sequence it has consumed.
    pub message_cursor: i64,
    /// The number of events in its history; 0 if it keeps none.
    pub history_events: u32,
    /// `true` if its history is so long that its code should continue as new.
    pub continue_as_new_recommended: bool,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// The wait of an instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitView {
    /// Its kind.
    pub kind: WaitKind,
    /// The wait's id. If a workflow has several waits: the id of the one that was ended, or of the first.
    #[schema(value_type = Option<String>)]
    pub id: Option<WaitId>,
    /// The signals that would wake it, or the key of the condition.
    pub names: Vec<Name>,
    /// The events that would wake it.
    pub events: Vec<EventAwaited>,
    /// The waits of a workflow's operations for signals, events and conditions, each with its own id.
    pub waits: Vec<OperationWaitView>,
    /// The cause that ended the wait, until it is applied; null while the wait is open.
    pub resume_source: Option<ResumeSource>,
    /// The time since when it is open.
    pub since: Option<Timestamp>,
    /// Its deadline.
    pub deadline: Option<Timestamp>,
}

/// A signal, an event or a condition that one operation of a workflow waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationWait)]
pub struct OperationWaitView {
    /// The operation.
    pub operation: u32,
    /// `signal`, `event` or `condition`.
    pub kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition; empty for a condition without a key.
    pub name: String,
    /// The wait's id. The signal or event that it takes carries this id.
    #[schema(value_type = String)]
    pub id: WaitId,
    /// The deadline of the operation.
    pub deadline: Option<Timestamp>,
    /// The signal or event that it takes, if that has arrived.
    #[schema(value_type = Option<i64>)]
    pub command_id: Option<CommandId>,
}

impl From<OperationWait> for OperationWaitView {
    fn from(wait: OperationWait) -> Self {
        Self {
            operation: wait.operation,
            kind: wait.kind,
            name: wait.name.map_or_else(String::new, String::from),
            id: wait.id,
            deadline: wait.deadline,
            command_id: wait.command_id,
        }
    }
}

/// An event that is waited for.
#[derive(Serialize, ToSchema)]
pub struct EventAwaited {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: Name,
    /// The conditions that it must meet, all of them.
    pub conditions: Vec<Condition>,
}

/// How many instances are looked up at once.
const AT_ONCE: usize = 8;

/// Instances as readers see them, in their order, with the events that they wait for.
pub async fn views(
    app: &App,
    descriptions: Vec<Description>,
) -> Result<Vec<InstanceView>, Problem> {
    let views = descriptions
        .into_iter()
        .map(|description| view(app, description));
    stream::iter(views).buffered(AT_ONCE).try_collect().await
}

async fn view(app: &App, description: Description) -> Result<InstanceView, Problem> {
    let names = description.wait.iter().flat_map(|wait| &wait.names);
    let waiters = match names.into_iter().any(|name| name.event_type().is_some()) {
        true => app.abide().event_waits_of(description.instance.id).await?,
        false => Vec::new(),
    };
    Ok(InstanceView::new(description, waiters))
}

impl InstanceView {
    /// Makes the view of an instance. `waiters` are its waits for events.
    pub fn new(description: Description, waiters: Vec<Waiter>) -> Self {
        let Description {
            instance,
            wait,
            continue_as_new_recommended,
            liveness,
            reason,
        } = description;
        let wait = wait.map(|wait| WaitView {
            kind: wait.kind,
            id: wait.id,
            names: wait
                .names
                .into_iter()
                .filter(|name| name.event_type().is_none())
                .collect(),
            events: waiters.into_iter().map(EventAwaited::from).collect(),
            waits: wait
                .waits
                .into_iter()
                .map(OperationWaitView::from)
                .collect(),
            resume_source: wait.resume_source,
            since: wait.since,
            deadline: wait.deadline,
        });
        let liveness_code = reason.as_ref().map(|reason| reason.code);
        let liveness_command_id = reason.as_ref().and_then(|reason| reason.command_id);
        let row = instance.row;
        Self {
            first_id: row.chain(),
            unique_key: instance
                .unique_key
                .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()),
            id: row.id,
            key: instance.key,
            machine: row.machine,
            version: instance.version,
            kind: row.kind,
            status: row.status,
            step: row.step,
            step_sequence: row.step_seq,
            attempt: row.attempt,
            deaths: row.deaths,
            state: instance.state,
            result: instance.result,
            last_error: row.last_error,
            wait,
            liveness,
            liveness_reason: reason.map(|reason| reason.text),
            liveness_code,
            liveness_command_id,
            queue: row.queue,
            priority: row.priority.0,
            partition_key: row.partition_key,
            scope: instance.scope,
            unique_scope: instance.unique_scope,
            policy: instance.policy,
            due_at: row.due_at,
            cause: row.cause,
            timed_out: row.timed_out,
            run: row.run.number,
            parent_id: row.parent,
            children_pending: row.family.pending,
            signals_pending: row.inbox.signals,
            updates_pending: row.inbox.updates,
            message_cursor: row.inbox.cursor.0,
            history_events: if row.history { row.history_seq } else { 0 },
            continue_as_new_recommended,
            created_at: row.created_at,
            updated_at: instance.updated_at,
            finished_at: row.finished_at,
        }
    }
}

impl From<Waiter> for EventAwaited {
    fn from(waiter: Waiter) -> Self {
        Self {
            event_type: waiter.event_type,
            conditions: waiter.conditions,
        }
    }
}
