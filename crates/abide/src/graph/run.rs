//! Advances a run of a graph: a workflow whose code is the graph.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use abide_core::model::{
    AT_ONCE, EventSpec, GraphSpec, GraphState, Json, Kind, Name, NotJson, Start, StepSpec,
    StepState, StepStatus, SubGraph,
};
use abide_core::rules::graph::{
    self as rules, Outputs, input_of, is_skipped, last_steps, machine_of, next_step, resolve,
};
use abide_kernel::Store;
use futures_util::future::BoxFuture;

use super::task::{apart, cancel, task};
use crate::machine::{Fault, FaultKind};
use crate::workflow::{OperationError, Program, Workflow};
use crate::{BoxError, Error};

/// The initial state of a run.
pub(super) fn begin(graph: &GraphSpec, input: &Json) -> Result<Json, NotJson> {
    Json::of(&rules::begin(graph.clone(), input.clone()))
}

/// The code of all graphs. The state of a run says what it does.
pub(crate) struct GraphProgram {
    pub store: Arc<dyn Store>,
}

impl Program for GraphProgram {
    fn begin(
        &self,
        workflow: Workflow,
        state: &Json,
    ) -> Result<BoxFuture<'static, Result<Json, BoxError>>, Fault> {
        let shown: GraphState = state.to().map_err(|error| {
            Fault::new(
                FaultKind::Unreadable,
                format!("the state is not that of a graph's run: {error}"),
            )
        })?;
        // The state shows the progress of earlier turns. The code starts from the beginning, and the history brings it
        // there.
        let shown = rules::begin(shown.graph, shown.input);
        let run = Run {
            wf: workflow,
            store: self.store.clone(),
            shown,
            outputs: Outputs::new(),
        };
        Ok(Box::pin(run.advance()))
    }
}

/// A run in progress.
struct Run {
    wf: Workflow,
    store: Arc<dyn Store>,
    shown: GraphState,
    outputs: Outputs,
}

type Running = Pin<Box<dyn Future<Output = Result<Json, BoxError>> + Send>>;

impl Run {
    /// Runs the steps, in parallel where they are independent, to the end or to the first step that fails for good.
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
            // Always in the same order, because it determines the numbers of the operations.
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
                // The commit that ends the run marks the rest as cancelled.
                Err(error) if is_cancelled(&error) => return Err(error),
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
        let shown = StepState {
            status,
            output,
            error,
        };
        self.shown.steps.insert(name.to_owned(), shown);
    }

    fn show(&self) {
        if let Ok(state) = Json::of(&self.shown) {
            self.wf.show(state);
        }
    }

    /// Fails the run after a step has failed for good. Steps that have not started do not start, and running ones are
    /// cancelled.
    async fn fail(&mut self, name: &str, error: &BoxError) -> BoxError {
        let error = Fault::text(error);
        self.note(name, StepStatus::Failed, None, Some(error.clone()));
        rules::cancel_rest(&mut self.shown);
        self.show();
        let reason = format!("step {name:?} of the graph failed");
        let (id, store) = (self.wf.id(), self.store.clone());
        let cancelling = self.wf.step("cancel what runs", || {
            let (store, reason) = (store.clone(), reason.clone());
            apart(async move {
                let filter = abide_kernel::Filter {
                    parent: Some(id),
                    ..abide_kernel::Filter::default()
                };
                let mut before = None;
                loop {
                    let page = store.list(&filter, before, AT_ONCE).await?;
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
        match cancelling.await {
            Ok(()) => format!("step {name:?} failed: {error}").into(),
            Err(second) => {
                format!("step {name:?} failed: {error}; and the running steps could not be cancelled: {second}")
                    .into()
            }
        }
    }

    /// Starts a step.
    fn begin(&self, step: StepSpec) -> Running {
        let wf = self.wf.of_graph_step(&step.name);
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

/// The output of a wait that timed out (rule 14.5).
fn timed_out() -> Json {
    serde_json::json!({"timeout": true}).into()
}

fn is_cancelled(error: &BoxError) -> bool {
    error
        .downcast_ref()
        .is_some_and(OperationError::is_cancelled)
}
