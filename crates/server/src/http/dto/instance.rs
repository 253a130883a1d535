//! An instance as readers see it.

use abide::{
    Cause, CommandId, EventCondition, InstanceId, Json, Key, Kind, Look, Name, OperationWait,
    Operator, Policy, ReasonCode, ResumeKind, ResumeSource, Scope, Status, Timestamp, WaitId,
    WaitKind, Waiter,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AnyJson, KeyText, NameText, OperatorWord, PolicyRequest, StatusWord, WaitKindWord};
use crate::http::{App, Problem};

/// An instance as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Instance)]
pub struct InstanceView {
    /// Its id.
    #[schema(value_type = i64)]
    pub id: InstanceId,
    /// Its business identity.
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
    /// Where it stands.
    #[schema(value_type = StatusWord)]
    pub status: Status,
    /// The step that runs, or runs next.
    #[schema(value_type = NameText)]
    pub step: Name,
    /// The number of that step in the run.
    pub step_sequence: u32,
    /// How often that step was begun before.
    pub attempt: u32,
    /// In how many of those attempts its worker died; after `max_deaths` of them the instance fails.
    pub deaths: u32,
    /// Its state.
    #[schema(value_type = AnyJson)]
    pub state: Json,
    /// What it came to, when it is done.
    #[schema(value_type = AnyJson)]
    pub result: Option<Json>,
    /// What it failed of, or why it was cancelled.
    pub last_error: Option<String>,
    /// What it waits for; also what it was woken from, until what woke it is applied.
    pub wait: Option<WaitView>,
    /// Whether it is well, and what can wake it.
    #[schema(value_type = LivenessWord)]
    pub liveness: &'static str,
    /// Why it is not well, when it is not, for people.
    pub liveness_reason: Option<String>,
    /// The same, for programs.
    pub liveness_code: Option<ReasonWord>,
    /// The signal or update that the reason is about.
    #[schema(value_type = Option<i64>)]
    pub liveness_command_id: Option<CommandId>,
    /// The queue it waits in.
    #[schema(value_type = NameText)]
    pub queue: Name,
    /// How urgent: lower goes first.
    pub priority: i16,
    /// Of its partition at most one executes at a time.
    #[schema(value_type = Option<KeyText>)]
    pub partition_key: Option<Key>,
    /// A second identity that addresses nothing.
    pub unique_key: Option<String>,
    /// In which statuses its key is taken.
    #[schema(value_type = Vec<StatusWord>)]
    pub scope: Scope,
    /// In which statuses its unique key is taken.
    #[schema(value_type = Vec<StatusWord>)]
    pub unique_scope: Scope,
    /// How its steps fail, where that is not as its machine declares.
    #[schema(value_type = Option<PolicyRequest>)]
    pub policy: Option<Policy>,
    /// When it is due, its wait's deadline, or since when it is runnable.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// What woke it last.
    #[schema(value_type = String)]
    pub cause: Cause,
    /// Whether its last wait ran into its deadline.
    pub timed_out: bool,
    /// Which run of its chain it is.
    pub run: u32,
    /// The first run of its chain.
    #[schema(value_type = i64)]
    pub first_id: InstanceId,
    /// Whose child it is.
    #[schema(value_type = Option<i64>)]
    pub parent_id: Option<InstanceId>,
    /// How many of its children have not ended.
    pub children_pending: u32,
    /// How many signals are pending in its inbox.
    pub signals_pending: u32,
    /// How many updates are pending in its inbox.
    pub updates_pending: u32,
    /// The highest message sequence it has consumed.
    pub message_cursor: i64,
    /// How many events its history has; 0 when it keeps none.
    pub history_events: u32,
    /// Whether its history has grown so long that its code does well to continue as new.
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

/// What an instance waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitView {
    /// Of which kind.
    #[schema(value_type = WaitKindWord)]
    pub kind: WaitKind,
    /// The wait's id; of a workflow's several waits that of the one that was ended, or of the first.
    #[schema(value_type = Option<String>)]
    pub id: Option<WaitId>,
    /// The signals that would wake it, or the key of the condition.
    #[schema(value_type = Vec<NameText>)]
    pub names: Vec<Name>,
    /// The events that would.
    pub events: Vec<EventAwaited>,
    /// The waits of a workflow's operations for signals, events and conditions, each with its own id.
    pub waits: Vec<OperationWaitView>,
    /// What has ended the wait, from when it came until it is applied; null while the wait is open.
    pub resume_source: Option<ResumeSourceView>,
    /// Since when.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Until when.
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
    /// The wait's id: what it takes was received under it.
    #[schema(value_type = String)]
    pub id: WaitId,
    /// Until when the operation waits for a signal or a condition.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// The signal or event that it takes, when that has come.
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

/// What has ended a wait.
#[derive(Serialize, ToSchema)]
#[schema(as = ResumeSource)]
pub struct ResumeSourceView {
    /// The command: the first, when several have come; null when it was the deadline, or children.
    #[schema(value_type = Option<i64>)]
    pub command_id: Option<CommandId>,
    /// What it was.
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

/// What kind of thing has ended a wait.
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
    /// What it must say, all of it.
    pub conditions: Vec<ConditionView>,
}

/// What an event must say to match.
#[derive(Serialize, ToSchema)]
#[schema(as = Condition)]
pub struct ConditionView {
    /// Where to look in its payload.
    pub left: String,
    /// How to compare.
    #[schema(value_type = OperatorWord)]
    pub op: Operator,
    /// What with.
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

/// Whether an instance is well (section 13 of the rules).
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
    /// Its code does not fit its history.
    ReplayBlocked,
    /// No build that lives can run its step.
    Blocked,
    /// Nothing can wake it any more.
    RepairNeeded,
}

impl LivenessWord {
    /// Whether that is what an instance is.
    pub fn is(self, liveness: abide::Liveness) -> bool {
        use abide::Liveness;
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

/// Why an instance is not well (rule 13.1). More may come.
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
    /// `replay_blocked`: its code does not fit its history.
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
pub async fn views(app: &App, looks: Vec<Look>) -> Result<Vec<InstanceView>, Problem> {
    let views = looks.into_iter().map(|look| view(app, look));
    stream::iter(views).buffered(AT_ONCE).try_collect().await
}

async fn view(app: &App, look: Look) -> Result<InstanceView, Problem> {
    let names = look.wait.iter().flat_map(|wait| &wait.names);
    let waiters = match names.into_iter().any(|name| name.event_type().is_some()) {
        true => app.abide().event_waits_of(look.instance.id).await?,
        false => Vec::new(),
    };
    Ok(InstanceView::new(look, waiters))
}

impl InstanceView {
    /// An instance, and those who stand for its waits for events.
    pub fn new(look: Look, waiters: Vec<Waiter>) -> Self {
        let Look {
            instance,
            wait,
            continue_as_new_recommended,
            liveness,
            reason,
        } = look;
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
