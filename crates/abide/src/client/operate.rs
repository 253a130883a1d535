//! The operations of an operator: cancel, restart, repair, describe.

use std::future::IntoFuture;

use abide_core::model::{
    Cancel, Children, Instance, InstanceId, Kind, Name, Operated, Refusal, Status, Target,
};
use abide_core::rules::liveness::{Health, Liveness, Reason, Waiting, waiting};
use abide_kernel::committer::Patience;
use abide_kernel::{Answer, Filter, Finding, Op, Page};
use futures_util::future::BoxFuture;
use serde::Serialize;

use super::{Address, Client};
use crate::Error;
use crate::machine::StepName;

/// Number of instances that one transaction examines.
const EXAMINED: usize = 200;

/// The reason why an instance was not cancelled, restarted or repaired.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// No instance has that id or key.
    #[error("no instance with the id or key {:?}: it was never started, or its retention is over", .0.to_string())]
    NoTarget(Target),
    /// The instance has ended.
    #[error("it has ended as {0}")]
    NotActive(Status),
    /// The instance is neither failed nor cancelled.
    #[error("it is {0}: only a failed or cancelled instance can be restarted")]
    NotRestartable(Status),
    /// The instance is reserved and was not started.
    #[error("it is reserved and was not started: start it first")]
    NotStarted,
    /// The run is not the newest of its chain.
    #[error("the run is not the newest of its chain, which is {current}")]
    NotCurrent {
        /// The newest run.
        current: InstanceId,
    },
    /// Another instance has taken its key.
    #[error("its key was taken by instance {holder} meanwhile")]
    KeyTaken {
        /// The instance that holds it.
        holder: InstanceId,
    },
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}

impl OperateError {
    /// The outcome as the rules name it; `None` if no decision was made.
    pub const fn outcome(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoTarget(_) => "no_target",
            Self::NotActive(_) => "rejected_not_active",
            Self::NotRestartable(_) => "rejected_not_restartable",
            Self::NotStarted => "rejected_not_started",
            Self::NotCurrent { .. } => "rejected_not_current",
            Self::KeyTaken { .. } => "duplicate",
            Self::Error(_) => return None,
        })
    }
}

/// Returns what was done to a target, or the reason why nothing was.
fn judged(operated: Operated, target: Target) -> Result<Operated, OperateError> {
    Err(match operated {
        Operated::Cancelled { .. }
        | Operated::Cancelling { .. }
        | Operated::Restarted { .. }
        | Operated::RepairNotNeeded
        | Operated::RepairDispatched => return Ok(operated),
        Operated::NoTarget => OperateError::NoTarget(target),
        Operated::NotActive(status) => OperateError::NotActive(status),
        Operated::NotRestartable(status) => OperateError::NotRestartable(status),
        Operated::NotStarted => OperateError::NotStarted,
        Operated::NotCurrent(current) => OperateError::NotCurrent { current },
        Operated::KeyTaken(holder) => OperateError::KeyTaken { holder },
    })
}

async fn operate(client: &Client, target: Target, op: Op) -> Result<Operated, OperateError> {
    match client.run(op).await? {
        Answer::Operated(each) => judged(each.into_iter().next().ok_or(Error::Closed)?, target),
        _ => Err(Error::unexpected_answer().into()),
    }
}

/// A builder of a cancellation. [`Abide::cancel`](crate::Abide::cancel) returns one to configure and then await.
#[must_use = "nothing is cancelled before it is awaited"]
pub struct Cancelling {
    target: Result<Target, Refusal>,
    reason: String,
    children: Children,
    force: bool,
    source: Option<String>,
    client: Client,
}

impl Cancelling {
    pub(crate) fn new(target: impl Address, reason: String, client: Client) -> Self {
        Self {
            target: target.target(),
            reason,
            children: Children::Cascade,
            force: false,
            source: None,
            client,
        }
    }

    /// Leaves its children as they are. By default they are cancelled too, and their children.
    pub fn leave_children(mut self) -> Self {
        self.children = Children::Leave;
        self
    }

    /// Ends a workflow at once, without letting its code clean up: for a workflow whose code no longer exists or does
    /// not end.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Sets the caller, for the record. A server records the identity of the caller as the source, and this value as
    /// `claimed_source`, which may have at most 255 bytes.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl IntoFuture for Cancelling {
    type Output = Result<Cancelled, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Cancels the instance; the cancellation is durable once this returns. A step that is running is notified, and its
    /// outcome is discarded. The code of a workflow gets an error from what it waits for, and may clean up before it
    /// ends.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let target = self.target.map_err(Error::from)?;
            let cancel = Cancel {
                target: target.clone(),
                reason: self.reason,
                children: self.children,
                force: self.force,
                source: self.source,
                claimed_source: None,
            };
            match operate(&self.client, target, Op::Cancel(vec![cancel])).await? {
                Operated::Cancelled { id, children } => Ok(Cancelled {
                    id,
                    children,
                    ended: true,
                }),
                Operated::Cancelling { id, children } => Ok(Cancelled {
                    id,
                    children,
                    ended: false,
                }),
                _ => Err(Error::unexpected_answer().into()),
            }
        })
    }
}

/// The result of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled {
    /// The instance.
    pub id: InstanceId,
    /// The number of children that were cancelled with it.
    pub children: usize,
    /// `true` if the instance has ended; a workflow ends when its code has cleaned up.
    pub ended: bool,
}

/// A builder of a restart. [`Abide::restart`](crate::Abide::restart) returns one to configure and then await.
#[must_use = "nothing is restarted before it is awaited"]
pub struct Restarting {
    target: Result<Target, Refusal>,
    step: Option<Result<Name, Refusal>>,
    client: Client,
}

impl Restarting {
    pub(crate) fn new(target: impl Address, client: Client) -> Self {
        Self {
            target: target.target(),
            step: None,
            client,
        }
    }

    /// Begins at that step; by default at the step where the run ended.
    pub fn at(mut self, step: impl StepName) -> Self {
        self.step = Some(step.step_name());
        self
    }
}

impl IntoFuture for Restarting {
    type Output = Result<InstanceId, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Opens the new run and returns its id. The run is durable once this returns.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let step = self.step.transpose().map_err(Error::from)?;
            let target = self.target.map_err(Error::from)?;
            let op = Op::Restart(vec![(target.clone(), step)]);
            match operate(&self.client, target, op).await? {
                Operated::Restarted { id, .. } => Ok(id),
                _ => Err(Error::unexpected_answer().into()),
            }
        })
    }
}

/// Repairs what is wrong with an instance. Returns `true` if there was anything to repair.
pub(crate) async fn repair(client: &Client, target: impl Address) -> Result<bool, OperateError> {
    let target = target.target().map_err(Error::from)?;
    let op = Op::Repair(vec![target.clone()]);
    let repaired = operate(client, target, op).await?;
    Ok(repaired == Operated::RepairDispatched)
}

/// The result of [`Abide::doctor`](crate::Abide::doctor).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The number of instances that were examined.
    pub examined: usize,
    /// The problems that were found, and the instances that have them.
    pub findings: Vec<Finding>,
}

/// Examines every instance, a page at a time.
pub(crate) async fn doctor(client: &Client) -> Result<Diagnosis, Error> {
    let mut diagnosis = Diagnosis::default();
    let mut after = Some(InstanceId(0));
    while let Some(from) = after {
        let op = Op::Examine {
            after: from,
            limit: EXAMINED,
        };
        let Answer::Examined {
            count,
            findings,
            next,
        } = client.run(op).await?
        else {
            return Err(Error::unexpected_answer());
        };
        diagnosis.examined += count;
        diagnosis.findings.extend(findings);
        after = next;
    }
    Ok(diagnosis)
}

/// An instance with what it waits for, and whether anything can still wake it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The instance.
    #[serde(flatten)]
    pub instance: Instance,
    /// The wait that it is in, if any.
    pub wait: Option<Waiting>,
    /// `true` if the history of a workflow has become so long that its code should continue as new.
    pub continue_as_new_recommended: bool,
    /// The name of its health.
    pub liveness: Liveness,
    /// The reason why it is not healthy; `None` if it is.
    pub reason: Option<Reason>,
}

/// Returns an instance with its wait and its health.
pub(crate) async fn describe(
    client: &Client,
    target: impl Address,
) -> Result<Option<Description>, Error> {
    let found = abide_kernel::describe(&*client.store, &target.target()?).await?;
    Ok(found.map(|found| seen(client, found)))
}

/// Returns a page of instances with their waits and their health.
pub(crate) async fn describe_page(
    client: &Client,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<Page<Description>, Error> {
    let page = abide_kernel::describe_page(&*client.store, filter, before, limit).await?;
    let items = page.items.into_iter();
    Ok(Page {
        items: items.map(|found| seen(client, found)).collect(),
        next: page.next,
    })
}

fn seen(client: &Client, (instance, health): (Instance, Health)) -> Description {
    Description {
        wait: waiting(&instance),
        continue_as_new_recommended: instance.kind == Kind::Workflow
            && instance.history_seq as usize >= client.limits.history_events,
        liveness: health.liveness,
        reason: health.reason,
        instance,
    }
}

impl Client {
    /// Runs one operation. Retries while it conflicts with others or the database is unavailable.
    pub(crate) async fn run(&self, op: Op) -> Result<Answer, Error> {
        let answers = self.run_all(vec![op]).await?;
        answers.into_iter().next().ok_or(Error::Closed)
    }

    /// Runs operations in one transaction. Retries while it conflicts with others or the database is unavailable.
    pub(crate) async fn run_all(&self, ops: Vec<Op>) -> Result<Vec<Answer>, Error> {
        let ops = match self.run_once(ops).await {
            Ok(answers) => return Ok(answers?),
            Err(ops) => ops,
        };
        let patience = Patience::lasting(self.patience);
        Ok(self.committer.run(&ops.into(), patience).await?)
    }
}
