//! Children of a workflow.

use std::marker::PhantomData;
use std::task::Poll;
use std::time::Duration;

use abide_core::model::{InstanceId, Json, Key, Name, OperationKind, Signature, Start, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::journal::WaitsFor;
use super::operation::{Came, Operation, Reads, awaitable};
use super::waits::Timed;
use super::{OperationError, Workflow};
use crate::client::StartBuilder;
use crate::machine::Startable;

/// The recorded end of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ChildEnd {
    pub id: InstanceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    pub machine: Name,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl ChildEnd {
    /// Parses the result of a child, or returns its error.
    fn read<O: DeserializeOwned>(
        self,
    ) -> Result<Result<O, OperationError>, abide_core::model::NotJson> {
        if self.status == Status::Done {
            return self.result.unwrap_or_default().to().map(Ok);
        }
        Ok(Err(OperationError::Child {
            id: self.id,
            machine: self.machine.to_string(),
            status: self.status,
            error: self.last_error,
        }))
    }
}

impl Workflow {
    /// Starts a child, and waits for its end: `wf.child(new_start(RESIZE, path)).await?`. A child can be anything that can
    /// be started: another workflow, a machine, a job. It exists when this turn is committed.
    pub fn child<D: Startable>(&self, child: StartBuilder<D>) -> ChildRun<D::Output> {
        let (start, machine) = self.start_of(child);
        let signature = Signature::named(OperationKind::Child, machine);
        ChildRun {
            operation: self.spawn_operation(signature, start.into_iter().collect(), None),
            comes_to: PhantomData,
        }
    }

    /// Starts children, and waits until all of them have ended, unless `at_least` sets another number. Returns the
    /// result of each, in order. A child whose key is taken is left out.
    pub fn children<D: Startable>(
        &self,
        children: impl IntoIterator<Item = StartBuilder<D>>,
    ) -> ChildrenRun<D::Output> {
        let mut machine = None;
        let mut starts = Vec::new();
        for child in children {
            let (start, name) = self.start_of(child);
            starts.extend(start);
            machine = Some(name);
        }
        let signature = Signature {
            name: machine,
            ..Signature::of(OperationKind::Children)
        };
        ChildrenRun {
            operation: self.spawn_operation(signature, starts, None),
            comes_to: PhantomData,
        }
    }

    /// Starts a child that is described as data, and waits for its end.
    pub(crate) fn child_of(&self, start: Start) -> ChildRun<Json> {
        let signature = Signature::named(OperationKind::Child, start.machine.clone());
        ChildRun {
            operation: self.spawn_operation(signature, vec![start], None),
            comes_to: PhantomData,
        }
    }

    fn spawn_operation(
        &self,
        signature: Signature,
        starts: Vec<Start>,
        at_least: Option<u32>,
    ) -> Operation {
        let count = u32::try_from(starts.len()).unwrap_or(u32::MAX);
        let waits_for = WaitsFor::Children {
            wanted: at_least.unwrap_or(count),
            unended: None,
        };
        let mut operation = self.operation(signature, waits_for);
        operation.ask(|request| request.starts = starts);
        operation
    }

    fn start_of<D: Startable>(&self, child: StartBuilder<D>) -> (Option<Start>, Name) {
        match Result::<Start, crate::Error>::from(child) {
            Ok(start) => {
                let machine = start.machine.clone();
                (Some(start), machine)
            }
            Err(error) => {
                let mut pages = self.journal.pages();
                pages.misused(
                    format!("asks for a child that cannot be started: {error}"),
                    "put that right",
                );
                (None, Name::stored("child"))
            }
        }
    }
}

/// A started child: created by [`Workflow::child`], and then awaited.
#[must_use = "a child is started when it is awaited"]
pub struct ChildRun<O> {
    operation: Operation,
    comes_to: PhantomData<fn() -> O>,
}

impl<O> ChildRun<O> {
    /// Waits for at most this duration. After that, the result is `None`, and the child continues.
    pub fn timeout(mut self, time: Duration) -> Timed<Self> {
        self.operation.within(time);
        Timed(self)
    }
}

impl<O: DeserializeOwned> Reads for ChildRun<O> {
    type Output = O;

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, came: Came) -> Poll<Result<O, OperationError>> {
        let end = match came {
            Came::Value(value) => value.to::<ChildEnd>().and_then(ChildEnd::read),
            Came::Error(problem) => return Poll::Ready(Err(not_started(problem))),
            _ => return Poll::Pending,
        };
        match end {
            Ok(read) => Poll::Ready(read),
            Err(error) => self.operation.unreadable("a child's result", &error),
        }
    }
}

/// Started children: created by [`Workflow::children`], and then awaited.
#[must_use = "children are started when this is awaited"]
pub struct ChildrenRun<O> {
    operation: Operation,
    comes_to: PhantomData<fn() -> O>,
}

impl<O> ChildrenRun<O> {
    /// Continues when this many children have ended. The result contains those that have ended by then, and the others
    /// continue. A count above the number of children blocks the workflow until its code uses a lower one.
    pub fn at_least(mut self, count: u32) -> Self {
        let mut spawned = count;
        self.operation.ask(|request| {
            if let WaitsFor::Children { wanted, .. } = &mut request.waits_for {
                spawned = u32::try_from(request.starts.len()).unwrap_or(u32::MAX);
                *wanted = count.min(spawned);
            }
        });
        if spawned < count {
            // rule 10.3
            self.operation.misused(
                format!("waits for at least {count} of {spawned} children, which can never be"),
                &format!("wait for {spawned} at most"),
            );
        }
        self
    }

    /// Waits for at most this duration. After that, the result is `None`, and the children continue.
    pub fn timeout(mut self, time: Duration) -> Timed<Self> {
        self.operation.within(time);
        Timed(self)
    }
}

impl<O: DeserializeOwned> Reads for ChildrenRun<O> {
    type Output = Vec<Result<O, OperationError>>;

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, came: Came) -> Poll<Result<Self::Output, OperationError>> {
        let ends = match came {
            Came::Value(value) => value.to::<Vec<ChildEnd>>(),
            Came::Error(problem) => return Poll::Ready(Err(not_started(problem))),
            _ => return Poll::Pending,
        };
        let read = |ends: Vec<ChildEnd>| ends.into_iter().map(ChildEnd::read).collect();
        match ends.and_then(read) {
            Ok(read) => Poll::Ready(Ok(read)),
            Err(error) => self.operation.unreadable("a child's result", &error),
        }
    }
}

fn not_started(problem: String) -> OperationError {
    OperationError::NotStarted { problem }
}

awaitable! {
    {O: DeserializeOwned} ChildRun<O>,
    {O: DeserializeOwned} ChildrenRun<O>,
}
