//! What an operator asks for: cancel, restart, repair, look.

use std::future::IntoFuture;

use abide_core::model::{
    Cancel, Children, Instance, InstanceId, Kind, Name, Operated, Refusal, Status, Target, Worker,
};
use abide_core::rules::liveness::{Around, Liveness, Waiting, liveness, waiting};
use abide_kernel::committer::Patience;
use abide_kernel::{Answer, Filter, Finding, Op, Page, newest_run};
use futures_util::future::BoxFuture;
use serde::Serialize;

use super::{Address, Client};
use crate::Error;
use crate::machine::Step;

/// How many instances are examined in one transaction.
const EXAMINED: usize = 200;

/// Why an instance was not cancelled, restarted or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// There is nothing at that id or key.
    #[error("there is nothing at that id or key")]
    NoTarget,
    /// It has ended.
    #[error("it has ended as {0}")]
    NotActive(Status),
    /// It is neither failed nor cancelled.
    #[error("it is {0}: only what failed or was cancelled can be restarted")]
    NotRestartable(Status),
    /// It is reserved and was not started.
    #[error("it is reserved and was not started: start it first")]
    NotStarted,
    /// The run is not the newest of its chain.
    #[error("the run is not the newest of its chain, which is {current}")]
    NotCurrent {
        /// The newest.
        current: InstanceId,
    },
    /// Another has its key by now.
    #[error("its key was taken by instance {holder} meanwhile")]
    KeyTaken {
        /// Who has it.
        holder: InstanceId,
    },
    /// Anything else.
    #[error(transparent)]
    Error(#[from] Error),
}

impl OperateError {
    /// What the rules call it; none when it never came to a decision.
    pub const fn outcome(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoTarget => "no_target",
            Self::NotActive(_) => "rejected_not_active",
            Self::NotRestartable(_) => "rejected_not_restartable",
            Self::NotStarted => "rejected_not_started",
            Self::NotCurrent { .. } => "rejected_not_current",
            Self::KeyTaken { .. } => "duplicate",
            Self::Error(_) => return None,
        })
    }
}

/// What was done, or why not.
fn judged(operated: Operated) -> Result<Operated, OperateError> {
    Err(match operated {
        Operated::Cancelled { .. }
        | Operated::Cancelling { .. }
        | Operated::Restarted { .. }
        | Operated::RepairNotNeeded
        | Operated::RepairDispatched => return Ok(operated),
        Operated::NoTarget => OperateError::NoTarget,
        Operated::NotActive(status) => OperateError::NotActive(status),
        Operated::NotRestartable(status) => OperateError::NotRestartable(status),
        Operated::NotStarted => OperateError::NotStarted,
        Operated::NotCurrent(current) => OperateError::NotCurrent { current },
        Operated::KeyTaken(holder) => OperateError::KeyTaken { holder },
    })
}

async fn operate(client: &Client, op: Op) -> Result<Operated, OperateError> {
    match client.run(op).await? {
        Answer::Operated(each) => judged(each.into_iter().next().ok_or(Error::Closed)?),
        _ => Err(Error::Broken("it was answered with something else".into()).into()),
    }
}

/// A cancellation: made by [`Abide::cancel`](crate::Abide::cancel), and then awaited.
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

    /// Leaves its children as they are; unless asked to, it cancels them too, and theirs.
    pub fn leave_children(mut self) -> Self {
        self.children = Children::Leave;
        self
    }

    /// Ends a workflow at once, without letting its code clean up: for one whose code is gone, or does not end.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Who cancels it, for the record. A server that keeps the store records who the caller is, and this beside it, as
    /// `claimed_source`: at most 255 bytes then.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl IntoFuture for Cancelling {
    type Output = Result<Cancelled, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Cancels it; durable when this answers. A step that runs is told, and what it answers is dropped. A workflow's
    /// code is told by an error from what it waits for, and may clean up before it ends.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let cancel = Cancel {
                target: self.target.map_err(Error::from)?,
                reason: self.reason,
                children: self.children,
                force: self.force,
                source: self.source,
                claimed_source: None,
            };
            match operate(&self.client, Op::Cancel(vec![cancel])).await? {
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
                _ => Err(Error::Broken("it was answered with something else".into()).into()),
            }
        })
    }
}

/// What was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// The instance.
    pub id: InstanceId,
    /// How many children with it.
    pub children: usize,
    /// Whether it has ended; a workflow ends when its code has cleaned up.
    pub ended: bool,
}

/// A restart: made by [`Abide::restart`](crate::Abide::restart), and then awaited.
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

    /// Begins at that step; unless given, at the one where it ended.
    pub fn at(mut self, step: impl Step) -> Self {
        self.step = Some(Name::new(step.name()));
        self
    }

    /// Begins at the step of that name.
    pub fn at_named(mut self, step: &str) -> Self {
        self.step = Some(Name::new(step));
        self
    }
}

impl IntoFuture for Restarting {
    type Output = Result<InstanceId, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Opens the new run; durable when this answers with its id.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let step = self.step.transpose().map_err(Error::from)?;
            let target = self.target.map_err(Error::from)?;
            match operate(&self.client, Op::Restart(vec![(target, step)])).await? {
                Operated::Restarted { id, .. } => Ok(id),
                _ => Err(Error::Broken("it was answered with something else".into()).into()),
            }
        })
    }
}

/// Puts right what is wrong with an instance; whether anything was.
pub(crate) async fn repair(client: &Client, target: impl Address) -> Result<bool, OperateError> {
    let target = target.target().map_err(Error::from)?;
    let repaired = operate(client, Op::Repair(vec![target])).await?;
    Ok(repaired == Operated::RepairDispatched)
}

/// What [`Abide::doctor`](crate::Abide::doctor) has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// How many instances were looked at.
    pub examined: usize,
    /// What is wrong, and with which.
    pub findings: Vec<Finding>,
}

/// Looks at every instance, a page at a time.
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
            return Err(Error::Broken("it was answered with something else".into()));
        };
        diagnosis.examined += count;
        diagnosis.findings.extend(findings);
        after = next;
    }
    Ok(diagnosis)
}

/// An instance with what it waits for, and whether anything can still wake it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Look {
    /// The instance.
    #[serde(flatten)]
    pub instance: Instance,
    /// What it waits for.
    pub wait: Option<Waiting>,
    /// Whether a workflow's history has grown so long that its code does well to continue as new.
    pub continue_as_new_recommended: bool,
    /// Whether it is well.
    #[serde(flatten)]
    pub liveness: Liveness,
}

/// Looks at an instance.
pub(crate) async fn look(client: &Client, target: impl Address) -> Result<Option<Look>, Error> {
    let Some(instance) = newest_run(&*client.store, &target.target()?).await? else {
        return Ok(None);
    };
    let workers = match instance.status {
        Status::Runnable => client.store.workers().await?,
        _ => Vec::new(),
    };
    Ok(Some(seen(client, instance, &workers)))
}

/// Looks at a page of instances.
pub(crate) async fn look_page(
    client: &Client,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<Page<Look>, Error> {
    let page = client.store.list(filter, before, limit).await?;
    let runnable = |one: &Instance| one.status == Status::Runnable;
    let workers = match page.items.iter().any(runnable) {
        true => client.store.workers().await?,
        false => Vec::new(),
    };
    let items = page.items.into_iter();
    Ok(Page {
        items: items.map(|one| seen(client, one, &workers)).collect(),
        next: page.next,
    })
}

fn seen(client: &Client, instance: Instance, workers: &[Worker]) -> Look {
    let around = Around {
        served: (instance.status == Status::Runnable).then(|| serves(workers, &instance)),
        ..Around::default()
    };
    Look {
        wait: waiting(&instance),
        continue_as_new_recommended: instance.kind == Kind::Workflow
            && instance.history_events as usize >= client.limits.history_events,
        liveness: liveness(&instance, around),
        instance,
    }
}

fn serves(workers: &[Worker], instance: &Instance) -> bool {
    workers.iter().any(|worker| {
        worker.queues.contains(&instance.queue)
            && worker
                .lanes
                .iter()
                .any(|lane| lane.machine == instance.machine && lane.version == instance.version)
    })
}

impl Client {
    /// Runs one operation, again while it conflicts with others or the database is away.
    pub(crate) async fn run(&self, op: Op) -> Result<Answer, Error> {
        let answers = self.run_all(vec![op]).await?;
        answers.into_iter().next().ok_or(Error::Closed)
    }

    /// Runs operations in one transaction, again while it conflicts with others or the database is away.
    pub(crate) async fn run_all(&self, ops: Vec<Op>) -> Result<Vec<Answer>, Error> {
        let ops = match self.run_once(ops).await {
            Ok(answers) => return Ok(answers?),
            Err(ops) => ops,
        };
        let patience = Patience::lasting(self.patience);
        Ok(self.committer.run(&ops.into(), patience).await?)
    }
}
