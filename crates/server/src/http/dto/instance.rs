//! An instance as readers see it.

use abide::client::Description;
use abide::model::{
    Cause, CommandId, Condition as EventCondition, Json, Key, Kind, Name, OperationWait, Operator,
    Policy, ReasonCode, ResumeKind, ResumeSource, Scope, WaitId, WaitKind, Waiter,
};
use abide::time::Timestamp;
use abide::{InstanceId, Status};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AnyJson, KeyText, NameText, OperatorWord, PolicyRequest, StatusWord, WaitKindWord};
use crate::http::{App, Problem};

/// An instance in its current state.
#[derive(Serialize, ToSchema)]
#[schema(as = Instance)]
pub struct InstanceView {
    /// Its id.
    #[schema(value_type = i64)]
    pub id: InstanceId,
    /// Its key.
    #[schema(value_type = Option<KeyText>)]
    pub key: Option<Key>,
    /// The machine; a graph's is `graph/<name>`, a task's `task/<name>`.
    #[schema(value_type = NameText)]
    pub machine: Name,
    /// The machine's version.
    pub version: u32,
    /// `machine` or `workflow`.
    #[schema(value_type = String)]
    pub kind: Kind,
    /// Its status.
    #[schema(value_type = StatusWord)]
    pub status: Status,
    /// The step that runs, or runs next.
    #[schema(value_type = NameText)]
    pub step: Name,
    /// The number of that step in the run.
    pub step_sequence: u32,
    /// The number of earlier attempts at that step.
    pub attempt: u32,
    /// The number of those attempts in which the worker died. At `max_deaths` the instance fails.
    pub deaths: u32,
    /// Its state.
    #[schema(value_type = AnyJson)]
    pub state: Json,
    /// The result, if it is done.
    #[schema(value_type = AnyJson)]
    pub result: Option<Json>,
    /// The error, or the reason of the cancellation.
    pub last_error: Option<String>,
    /// What it waits for. After a wake-up, the wait that was ended, until what ended it is applied.
    pub wait: Option<WaitView>,
    /// Its health: whether anything can still wake it.
    #[schema(value_type = LivenessWord)]
    pub liveness: &'static str,
    /// The reason if it is not healthy, for people.
    pub liveness_reason: Option<String>,
    /// The reason, for programs.
    pub liveness_code: Option<ReasonWord>,
    /// The signal or update that the reason is about.
    #[schema(value_type = Option<i64>)]
    pub liveness_command_id: Option<CommandId>,
    /// Its queue.
    #[schema(value_type = NameText)]
    pub queue: Name,
    /// Its priority: lower numbers run first.
    pub priority: i16,
    /// Its partition: at most one instance of a partition executes at a time.
    #[schema(value_type = Option<KeyText>)]
    pub partition_key: Option<Key>,
    /// A second key, which excludes duplicates and cannot be used as an address.
    pub unique_key: Option<String>,
    /// The statuses in which it holds its key.
    #[schema(value_type = Vec<StatusWord>)]
    pub scope: Scope,
    /// The statuses in which it holds its unique key.
    #[schema(value_type = Vec<StatusWord>)]
    pub unique_scope: Scope,
    /// The failure policy, where it differs from the machine's declaration.
    #[schema(value_type = Option<PolicyRequest>)]
    pub policy: Option<Policy>,
    /// When it is due, its wait's deadline, or since when it is runnable.
    #[schema(value_type = Option<String>, format = DateTime)]
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
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was last written.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// The wait of an instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitView {
    /// Its kind.
    #[schema(value_type = WaitKindWord)]
    pub kind: WaitKind,
    /// The wait's id. If a workflow has several waits: the id of the one that was ended, or of the first.
    #[schema(value_type = Option<String>)]
    pub id: Option<WaitId>,
    /// The signals that would wake it, or the key of the condition.
    #[schema(value_type = Vec<NameText>)]
    pub names: Vec<Name>,
    /// The events that would wake it.
    pub events: Vec<EventAwaited>,
    /// The waits of a workflow's operations for signals, events and conditions, each with its own id.
    pub waits: Vec<OperationWaitView>,
    /// The cause that ended the wait, until it is applied; null while the wait is open.
    pub resume_source: Option<ResumeSourceView>,
    /// The time since when it is open.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Its deadline.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
}

/// A signal, an event or a condition that one operation of a workflow waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationWait)]
pub struct OperationWaitView {
    /// The operation.
    pub operation: u32,
    /// `signal`, `event` or `condition`.
    #[schema(value_type = WaitKindWord)]
    pub kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition; empty for a condition without a key.
    pub name: String,
    /// The wait's id. The signal or event that it takes carries this id.
    #[schema(value_type = String)]
    pub id: WaitId,
    /// The deadline of the operation.
    #[schema(value_type = Option<String>, format = DateTime)]
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

/// The cause that ended a wait.
#[derive(Serialize, ToSchema)]
#[schema(as = ResumeSource)]
pub struct ResumeSourceView {
    /// The command, or the first of several; null if it was the deadline, or children.
    #[schema(value_type = Option<i64>)]
    pub command_id: Option<CommandId>,
    /// Its kind.
    pub kind: ResumeWord,
}

impl From<ResumeSource> for ResumeSourceView {
    fn from(source: ResumeSource) -> Self {
        Self {
            command_id: source.command_id,
            kind: match source.kind {
                ResumeKind::Signal => ResumeWord::Signal,
                ResumeKind::Event => ResumeWord::Event,
                ResumeKind::Update => ResumeWord::Update,
                ResumeKind::Cancel => ResumeWord::Cancel,
                ResumeKind::Timeout => ResumeWord::Timeout,
                ResumeKind::Children => ResumeWord::Children,
            },
        }
    }
}

/// The kind of the cause that ended a wait.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ResumeKind)]
pub enum ResumeWord {
    /// A signal.
    Signal,
    /// An event.
    Event,
    /// An update, which is answered beside the wait.
    Update,
    /// A cancellation, which reaches a workflow's code.
    Cancel,
    /// Its deadline.
    Timeout,
    /// The end of its children.
    Children,
}

/// An event that is waited for.
#[derive(Serialize, ToSchema)]
pub struct EventAwaited {
    /// Its type.
    #[serde(rename = "type")]
    #[schema(value_type = NameText)]
    pub event_type: Name,
    /// The conditions that it must meet, all of them.
    pub conditions: Vec<ConditionView>,
}

/// A condition that an event must meet to match.
#[derive(Serialize, ToSchema)]
#[schema(as = Condition)]
pub struct ConditionView {
    /// The path in its payload.
    pub left: String,
    /// The comparison.
    #[schema(value_type = OperatorWord)]
    pub op: Operator,
    /// The value to compare with.
    #[schema(value_type = AnyJson)]
    pub right: Json,
}

impl From<EventCondition> for ConditionView {
    fn from(condition: EventCondition) -> Self {
        Self {
            left: condition.left.into(),
            op: condition.op,
            right: condition.right,
        }
    }
}

/// The health of an instance (section 13 of the rules).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Liveness)]
pub enum LivenessWord {
    /// It has ended.
    Closed,
    /// A worker has it.
    Running,
    /// A worker will take it.
    Ready,
    /// It is due later, or reserved.
    Scheduled,
    /// A signal will wake it.
    WaitingForSignal,
    /// An event will.
    WaitingForEvent,
    /// A condition will.
    WaitingForCondition,
    /// Its children will.
    WaitingForChildren,
    /// No live worker has code for it.
    WaitingForWorker,
    /// Its code does not match its history.
    ReplayBlocked,
    /// No build that lives can run its step.
    Blocked,
    /// Nothing can wake it any more.
    RepairNeeded,
}

impl LivenessWord {
    /// `true` if this is the liveness of an instance.
    pub fn is(self, liveness: abide::model::Liveness) -> bool {
        use abide::model::Liveness;
        matches!(
            (self, liveness),
            (Self::Closed, Liveness::Closed)
                | (Self::Running, Liveness::Running)
                | (Self::Ready, Liveness::Ready)
                | (Self::Scheduled, Liveness::Scheduled)
                | (Self::WaitingForSignal, Liveness::WaitingForSignal)
                | (Self::WaitingForEvent, Liveness::WaitingForEvent)
                | (Self::WaitingForCondition, Liveness::WaitingForCondition)
                | (Self::WaitingForChildren, Liveness::WaitingForChildren)
                | (Self::WaitingForWorker, Liveness::WaitingForWorker)
                | (Self::ReplayBlocked, Liveness::ReplayBlocked)
                | (Self::Blocked, Liveness::Blocked)
                | (Self::RepairNeeded, Liveness::RepairNeeded)
        )
    }

    /// The status that all of these have, when it is one.
    pub const fn status(self) -> Option<Status> {
        match self {
            Self::Running => Some(Status::Executing),
            Self::Ready | Self::WaitingForWorker => Some(Status::Runnable),
            Self::WaitingForSignal | Self::WaitingForEvent | Self::WaitingForCondition => {
                Some(Status::AwaitingSignal)
            }
            Self::WaitingForChildren => Some(Status::AwaitingChildren),
            Self::ReplayBlocked => Some(Status::Scheduled),
            // One that was let go on by a worker which has gone is runnable.
            Self::Closed | Self::Scheduled | Self::Blocked | Self::RepairNeeded => None,
        }
    }
}

/// The reason why an instance is not healthy (rule 13.1). Later releases may add reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LivenessCode)]
pub enum ReasonWord {
    /// `repair_needed`: it is due at no time.
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
    /// `repair_needed`: it stands behind in a partition that has nothing at its front.
    NoFront,
    /// `repair_needed`: its count of pending messages is not what its inbox holds.
    Miscounted,
    /// `replay_blocked`: its code does not match its history.
    ReplayBlocked,
    /// `blocked`: the builds that met it could not run its step.
    Blocked,
    /// `waiting_for_worker`: no live worker serves its queue with code for it.
    NoWorker,
    /// `waiting_for_children`: too many of the children could run, and no live worker has code for them.
    ChildrenUnserved,
    /// `waiting_for_children`: too many of the children are blocked, or due at no time.
    ChildrenBlocked,
    /// `running`: the worker that holds it is not among those that live.
    WorkerSilent,
    /// `scheduled` or `waiting_for_…`: its time has passed, and nothing has let it go on.
    Overdue,
    /// Its step has failed more than three times in a row.
    Failing,
    /// `waiting_for_…`: a signal of nearly the name that it waits for is pending.
    SimilarSignal,
    /// `waiting_for_…`: an event of the type that it waits for came, and did not match.
    UnmatchedEvent,
    /// `running`, `ready` or `scheduled`: its workers have died in this step, more than once.
    WorkerDied,
}

impl From<ReasonCode> for ReasonWord {
    fn from(code: ReasonCode) -> Self {
        match code {
            ReasonCode::NeverDue => Self::NeverDue,
            ReasonCode::WaitsForNothing => Self::WaitsForNothing,
            ReasonCode::UndeclaredSignal => Self::UndeclaredSignal,
            ReasonCode::MissedSignal => Self::MissedSignal,
            ReasonCode::MissedUpdate => Self::MissedUpdate,
            ReasonCode::MissedChildren => Self::MissedChildren,
            ReasonCode::NotHeld => Self::NotHeld,
            ReasonCode::NoFront => Self::NoFront,
            ReasonCode::Miscounted => Self::Miscounted,
            ReasonCode::ReplayBlocked => Self::ReplayBlocked,
            ReasonCode::Blocked => Self::Blocked,
            ReasonCode::NoWorker => Self::NoWorker,
            ReasonCode::ChildrenUnserved => Self::ChildrenUnserved,
            ReasonCode::ChildrenBlocked => Self::ChildrenBlocked,
            ReasonCode::WorkerSilent => Self::WorkerSilent,
            ReasonCode::Overdue => Self::Overdue,
            ReasonCode::Failing => Self::Failing,
            ReasonCode::SimilarSignal => Self::SimilarSignal,
            ReasonCode::UnmatchedEvent => Self::UnmatchedEvent,
            ReasonCode::WorkerDied => Self::WorkerDied,
        }
    }
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
            resume_source: wait.resume_source.map(ResumeSourceView::from),
            since: wait.since,
            deadline: wait.deadline,
        });
        let liveness_code = reason.as_ref().map(|reason| reason.code.into());
        let liveness_command_id = reason.as_ref().and_then(|reason| reason.command_id);
        Self {
            first_id: instance.chain(),
            unique_key: instance
                .unique_key
                .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()),
            id: instance.id,
            key: instance.key,
            machine: instance.machine,
            version: instance.version,
            kind: instance.kind,
            status: instance.status,
            step: instance.step,
            step_sequence: instance.step_seq,
            attempt: instance.attempt,
            deaths: instance.deaths,
            state: instance.state,
            result: instance.result,
            last_error: instance.last_error,
            wait,
            liveness: liveness.name(),
            liveness_reason: reason.map(|reason| reason.text),
            liveness_code,
            liveness_command_id,
            queue: instance.queue,
            priority: instance.priority.0,
            partition_key: instance.partition_key,
            scope: instance.scope,
            unique_scope: instance.unique_scope,
            policy: instance.policy,
            due_at: instance.due_at,
            cause: instance.cause,
            timed_out: instance.timed_out,
            run: instance.run.number,
            parent_id: instance.parent,
            children_pending: instance.children_pending,
            signals_pending: instance.inbox.signals,
            updates_pending: instance.inbox.updates,
            message_cursor: instance.inbox.cursor.0,
            history_events: if instance.history {
                instance.history_events
            } else {
                0
            },
            continue_as_new_recommended,
            created_at: instance.created_at,
            updated_at: instance.updated_at,
            finished_at: instance.finished_at,
        }
    }
}

impl From<Waiter> for EventAwaited {
    fn from(waiter: Waiter) -> Self {
        Self {
            event_type: waiter.event_type,
            conditions: waiter
                .conditions
                .into_iter()
                .map(ConditionView::from)
                .collect(),
        }
    }
}
