//! Advances a run of a graph: a workflow whose code is the graph.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use abide_core::model::{
    Brood, Cancel, Children, EventSpec, GraphSpec, Json, Kind, Name, NotJson, Start, StepSpec,
    StepStatus, SubGraph, Target,
};
use abide_core::rules::graph::{
    Outputs, input_of, is_skipped, last_steps, machine_of, next_step, resolve, task_machine,
};
use abide_kernel::{Op, Store};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::machine::{Fault, FaultKind};
use crate::workflow::{OperationError, Program, Workflow};
use crate::{BoxError, Error};

/// A run as its state shows it: what it began with, what it is, and where each step stands (rule 15.4).
#[derive(Serialize, Deserialize)]
struct Shown {
    input: Json,
    graph: GraphSpec,
    #[serde(default)]
    steps: BTreeMap<String, StepShown>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StepShown {
    status: StepStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a run begins with.
pub(super) fn begin(graph: &GraphSpec, input: &Json) -> Result<Json, NotJson> {
    Json::of(&Shown {
        input: input.clone(),
        graph: graph.clone(),
        steps: pending(graph),
    })
}

/// The steps of a run in which none has begun.
fn pending(graph: &GraphSpec) -> BTreeMap<String, StepShown> {
    let pending = StepShown {
        status: StepStatus::Pending,
        output: None,
        error: None,
    };
    let names = graph.steps.iter().map(|step| step.name.clone());
    names.map(|name| (name, pending.clone())).collect()
}

/// The code of all graphs: what a run does is in its state.
pub(crate) struct GraphProgram {
    pub store: Arc<dyn Store>,
}

impl Program for GraphProgram {
    fn begin(
        &self,
        workflow: Workflow,
        state: &Json,
    ) -> Result<BoxFuture<'static, Result<Json, BoxError>>, Fault> {
        let mut shown: Shown = state.to().map_err(|error| {
            Fault::new(
                FaultKind::Unreadable,
                format!("the state is not that of a graph's run: {error}"),
            )
        })?;
        // It shows how far earlier turns came; the code begins at the beginning, and the history leads it there.
        shown.steps = pending(&shown.graph);
        let run = Run {
            wf: workflow,
            store: self.store.clone(),
            shown,
            outputs: Outputs::new(),
        };
        Ok(Box::pin(run.advance()))
    }
}

/// A run under way.
struct Run {
    wf: Workflow,
    store: Arc<dyn Store>,
    shown: Shown,
    outputs: Outputs,
}

type Running = Pin<Box<dyn Future<Output = Result<Json, BoxError>> + Send>>;

impl Run {
    /// Runs step after step, side by side where nothing is between them, to the end or to the first that fails for good.
    async fn advance(mut self) -> Result<Json, BoxError> {
        let mut running: Vec<(String, Running)> = Vec::new();
        loop {
            while let Some(step) = self.next() {
                if is_skipped(&step, &self.outputs) {
                    self.outputs.insert(step.name.clone(), Json::null());
                    self.note(&step.name, StepStatus::Skipped, None, None);
                    continue;
                }
                self.note(&step.name, StepStatus::Running, None, None);
                running.push((step.name.clone(), self.begin(step)));
            }
            self.show();
            if running.is_empty() {
                break;
            }
            // In order, every time: what they ask for is numbered by it.
            let (at, ended) = poll_fn(|cx| {
                for (at, (_, step)) in running.iter_mut().enumerate() {
                    if let Poll::Ready(ended) = step.as_mut().poll(cx) {
                        return Poll::Ready((at, ended));
                    }
                }
                Poll::Pending
            })
            .await;
            let (name, _) = running.remove(at);
            match ended {
                Ok(output) => {
                    self.note(&name, StepStatus::Done, Some(output.clone()), None);
                    self.outputs.insert(name, output);
                }
                Err(error) if is_cancelled(&error) => {
                    self.end_the_rest();
                    self.show();
                    return Err(error);
                }
                Err(error) => {
                    drop(running);
                    return Err(self.fail(&name, &error).await);
                }
            }
        }
        let of = |name: &str| self.outputs.get(name).cloned().unwrap_or_default();
        let last = last_steps(&self.shown.graph).into_iter();
        let result: BTreeMap<&str, Json> = last.map(|name| (name, of(name))).collect();
        Ok(Json::of(&result)?)
    }

    fn next(&self) -> Option<StepSpec> {
        let status = |name: &str| self.shown.steps.get(name).map(|step| step.status);
        next_step(&self.shown.graph, status).cloned()
    }

    fn note(
        &mut self,
        name: &str,
        status: StepStatus,
        output: Option<Json>,
        error: Option<String>,
    ) {
        let shown = StepShown {
            status,
            output,
            error,
        };
        self.shown.steps.insert(name.to_owned(), shown);
    }

    /// The run ends: what has not begun never will, and what runs is told to end (rule 15.4).
    fn end_the_rest(&mut self) {
        for step in self.shown.steps.values_mut() {
            if matches!(step.status, StepStatus::Pending | StepStatus::Running) {
                step.status = StepStatus::Cancelled;
            }
        }
    }

    fn show(&self) {
        if let Ok(state) = Json::of(&self.shown) {
            self.wf.show(state);
        }
    }

    /// A step has failed for good: so has the run; what has not started is not started, and what runs is told.
    async fn fail(&mut self, name: &str, error: &BoxError) -> BoxError {
        let error = Fault::text(error);
        self.note(name, StepStatus::Failed, None, Some(error.clone()));
        self.end_the_rest();
        self.show();
        let reason = format!("step {name:?} of the graph failed");
        let (id, store) = (self.wf.id(), self.store.clone());
        let told = self.wf.step("cancel what runs", || {
            let (store, reason) = (store.clone(), reason.clone());
            apart(async move {
                let filter = abide_kernel::Filter {
                    parent: Some(id),
                    ..abide_kernel::Filter::default()
                };
                let mut before = None;
                loop {
                    let page = store.list(&filter, before, 500).await?;
                    for child in page.items {
                        if !child.status.is_terminal() {
                            cancel(&*store, child.id, &reason).await?;
                        }
                    }
                    before = page.next;
                    if before.is_none() {
                        return Ok::<_, Error>(());
                    }
                }
            })
        });
        match told.await {
            Ok(()) => format!("step {name:?} failed: {error}").into(),
            Err(second) => {
                format!("step {name:?} failed: {error}; and what runs could not be told: {second}")
                    .into()
            }
        }
    }

    /// A step that begins now.
    fn begin(&self, step: StepSpec) -> Running {
        let wf = self.wf.clone();
        let input = input_of(&step, &self.shown.input, &self.outputs);
        if let Some(event) = &step.wait_for_event {
            let wait = resolve(event, &self.shown.input, &self.outputs);
            return Box::pin(wait_for_event(wf, wait, event.clone()));
        }
        if let Some(signal) = step.wait_for_signal {
            return Box::pin(async move {
                let came = wf.signal_of(&signal.signal);
                match signal.timeout_ms {
                    None => Ok(came.await?),
                    Some(ms) => {
                        let came = came.timeout(Duration::from_millis(ms)).await?;
                        Ok(came.unwrap_or_else(timed_out))
                    }
                }
            });
        }
        if let Some(sleep) = step.sleep {
            return Box::pin(async move {
                wf.sleep(Duration::from_millis(sleep.duration_ms)).await?;
                Ok(Json::null())
            });
        }
        if let Some(SubGraph::Whole(inner)) = step.graph {
            return Box::pin(async move {
                let start = Start {
                    kind: Some(Kind::Workflow),
                    version: Some(1),
                    step: Some(Name::new("run")?),
                    ..Start::of(Name::new(machine_of(&inner.name))?, begin(&inner, &input)?)
                };
                Ok(wf.child_of(start).await?)
            });
        }
        Box::pin(task(wf, self.store.clone(), step, input))
    }
}

async fn wait_for_event(
    wf: Workflow,
    wait: Result<abide_core::model::EventWait, String>,
    event: EventSpec,
) -> Result<Json, BoxError> {
    let came = wf.event_of(wait?);
    let came = came
        .timeout(Duration::from_millis(event.timeout_ms))
        .await?;
    Ok(came.unwrap_or_else(timed_out))
}

/// What a wait comes to whose time is up (rule 14.5).
fn timed_out() -> Json {
    serde_json::json!({"timeout": true}).into()
}

/// A task: a child of the machine `task/<name>`, tried again as the step says.
async fn task(
    wf: Workflow,
    store: Arc<dyn Store>,
    step: StepSpec,
    input: Json,
) -> Result<Json, BoxError> {
    let task = step.task.clone().unwrap_or_default();
    let queue = step.queue.as_deref().map(Name::new).transpose()?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let start = Start {
            kind: Some(Kind::Machine),
            version: Some(1),
            step: Some(Name::new("run")?),
            queue: queue.clone(),
            ..Start::of(Name::new(task_machine(&task))?, input.clone())
        };
        let error: BoxError = match step.timeout_ms {
            None => match wf.child_of(start).await {
                Ok(output) => return Ok(output),
                Err(error @ OperationError::Cancelled { .. }) => return Err(error.into()),
                Err(error) => error.into(),
            },
            Some(ms) => {
                let mut child = wf.child_of(start).timeout(Duration::from_millis(ms));
                match (&mut child).await {
                    Ok(Some(output)) => return Ok(output),
                    Err(error @ OperationError::Cancelled { .. }) => return Err(error.into()),
                    Err(error) => error.into(),
                    Ok(None) => {
                        let number = child.number();
                        let told = wf.step(format!("cancel {}", step.name), || {
                            let store = store.clone();
                            let id = wf.id();
                            apart(async move {
                                for child in store.children(id, Brood::barrier(number)).await? {
                                    if !child.status.is_terminal() {
                                        cancel(&*store, child.id, "its time was up").await?;
                                    }
                                }
                                Ok::<_, Error>(())
                            })
                        });
                        told.await?;
                        format!("it took longer than {ms} ms").into()
                    }
                }
            }
        };
        match step
            .retry
            .as_ref()
            .and_then(|retry| retry.delay_ms(attempts))
        {
            Some(delay) => wf.sleep(Duration::from_millis(delay)).await?,
            None => return Err(error),
        }
    }
}

/// Does something in a task of its own. A step is not polled while its run is committed, and that commit may wait for the
/// very row that a transaction of the step has locked.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and the step with it.
            Err(_) => std::future::pending().await,
        },
    }
}

async fn cancel(
    store: &dyn Store,
    id: abide_core::model::InstanceId,
    reason: &str,
) -> Result<(), Error> {
    let cancel = Cancel {
        target: Target::Id(id),
        reason: reason.to_owned(),
        children: Children::Cascade,
        force: false,
        source: Some("graph".to_owned()),
        claimed_source: None,
    };
    // One that has ended meanwhile need not be told.
    store.run(Arc::from([Op::Cancel(vec![cancel])])).await?;
    Ok(())
}

fn is_cancelled(error: &BoxError) -> bool {
    error
        .downcast_ref()
        .is_some_and(OperationError::is_cancelled)
}
