//! Graphs: tasks and waits as data, advanced by the engine. A [`Graph`] is built in code or read from JSON, and validated
//! before it runs. [`GraphSpec`] is its data; [`input`] and [`output`] refer to the input of the run and to the results of
//! its tasks.

mod attempts;
mod build;
mod draw;
mod read;
mod run;
mod task;

use std::sync::Arc;

use abide_core::model::{
    Contracted, Declared, Json, Kind, Name, NotJson, Refusal, Start, SubGraph,
};
use abide_core::rules::graph::{check, machine_of};
use serde_json::Value;

pub use abide_core::model::{GraphProblem, GraphSpec, RetrySpec, StepSpec, StepStatus};
pub use build::{GraphBuilder, Reference, input, output};
pub(crate) use run::GraphProgram;

use crate::Error;
use crate::machine::Definition;

/// A graph of tasks and waits, validated and ready to run: built with [`Graph::builder`], or read from JSON.
///
/// ```
/// use abide::graph::output;
/// use abide::message::eq;
/// use abide::prelude::*;
/// use serde_json::{Value, json};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let paid = Event::new("payment.received").matching("order_id", eq(output("create-order", "id")));
/// let graph = Graph::builder("webhook-handler")
///     .task("create-order").timeout(secs(10))
///     .wait_for_event("payment", paid, hours(1)).after("create-order")
///     .task("fulfill").after("payment").skip_if("payment", "timeout", eq(true))
///     .build()?;
///
/// let abide = Abide::open("memory:").await?;
/// let engine = abide
///     .engine()
///     .graph(&graph)
///     .task("create-order", |order: Value| async move { Ok(json!({"id": order["id"]})) })
///     .task("fulfill", |payment: Value| async move { Ok(payment["amount"].clone()) })
///     .start()
///     .await?;
/// let run = abide.start(graph.clone(), json!({"id": "ord_1"})).await?;
/// # while abide.event_waits(&Default::default(), None, 1).await?.items.is_empty() { tokio::task::yield_now().await; }
/// abide.publish("payment.received", &json!({"order_id": "ord_1", "amount": 99})).await?;
/// assert_eq!(run.result().await?, json!({"fulfill": 99}));
/// # engine.shutdown().await;
/// # Ok(())
/// # }
/// ```
///
/// Clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    spec: Arc<GraphSpec>,
}

/// All problems with a graph.
#[derive(Clone, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("the graph cannot be built: {}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
#[non_exhaustive]
pub struct BadGraph {
    /// Each problem, with the step that it concerns.
    pub problems: Vec<GraphProblem>,
}

abide_core::debug_is_display!(BadGraph);

impl Graph {
    /// Creates a builder.
    pub fn builder(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder::new(name.into())
    }

    /// Creates a graph from data, if it has no problems. Graphs that it names as steps are looked up in `known`.
    pub fn new(mut spec: GraphSpec, known: &[Self]) -> Result<Self, BadGraph> {
        look_up(&mut spec, known);
        let problems = check(&spec);
        match problems.is_empty() {
            true => Ok(Self {
                spec: Arc::new(spec),
            }),
            false => Err(BadGraph { problems }),
        }
    }

    /// Reads a graph from JSON. The error lists every problem: fields that cannot be read, unknown fields, and what
    /// [`new`](Self::new) refuses.
    ///
    /// ```
    /// use abide::Graph;
    ///
    /// let graph = Graph::from_json(r#"{"name": "two", "steps": [
    ///     {"name": "a", "task": "fetch"},
    ///     {"name": "b", "task": "store", "after": ["a"], "retry": {"max_attempts": 3, "delay_ms": 100}}
    /// ]}"#, &[])?;
    /// assert!(graph.to_mermaid().contains("s0 --> s1"));
    /// let wrong = Graph::from_json(r#"{"name": "x", "steps": [{"name": "a", "tsak": "fetch"}]}"#, &[]);
    /// assert!(wrong.unwrap_err().to_string().contains("unknown field `tsak`"));
    /// # Ok::<(), abide::graph::BadGraph>(())
    /// ```
    pub fn from_json(json: &str, known: &[Self]) -> Result<Self, BadGraph> {
        let (spec, unread) = Self::read(json);
        Self::of_read(spec, unread, known)
    }

    /// Reads a graph from JSON without validating it. Returns what could be read, and the problems with the rest.
    pub fn read(json: &str) -> (GraphSpec, Vec<GraphProblem>) {
        read::read(json)
    }

    /// Creates a graph from the result of [`read`](Self::read), if all of it could be read and it has no problems.
    /// Otherwise returns the problems of both kinds.
    pub fn of_read(
        spec: GraphSpec,
        mut unread: Vec<GraphProblem>,
        known: &[Self],
    ) -> Result<Self, BadGraph> {
        match Self::new(spec, known) {
            Ok(graph) if unread.is_empty() => Ok(graph),
            // A graph that was not read to its end cannot be validated.
            _ if unread.len() > read::PROBLEMS_MAX => Err(BadGraph { problems: unread }),
            built => {
                unread.extend(built.err().into_iter().flat_map(|bad| bad.problems));
                Err(BadGraph { problems: unread })
            }
        }
    }

    /// Returns the graph as JSON.
    pub fn to_json(&self) -> String {
        // A graph was read from JSON, or made of strings and numbers, so it can be written.
        serde_json::to_string(&*self.spec).unwrap_or_default()
    }

    /// The name of the graph.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The graph as data.
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// Returns the start of a run of this graph with this input.
    pub fn start_of(&self, input: &Json) -> Result<Start, Error> {
        let declared = self.declared()?;
        let state = run::begin(&self.spec, input).map_err(|error| Error::Mismatch {
            what: "the input",
            problem: error.to_string(),
        })?;
        Ok(Start {
            contract: Contracted::Free,
            kind: Some(declared.kind),
            version: Some(declared.version),
            step: Some(declared.first_step),
            queue: Some(declared.queue),
            history: Some(declared.history),
            ..Start::of(declared.machine, state)
        })
    }

    /// Returns this graph, and all graphs that are steps of it, directly or not.
    pub fn family(&self) -> Vec<Self> {
        let mut family = vec![self.clone()];
        for step in &self.spec.steps {
            if let Some(SubGraph::Whole(inner)) = &step.graph {
                let inner = Self {
                    spec: Arc::new((**inner).clone()),
                };
                family.extend(inner.family());
            }
        }
        family
    }
}

/// Replaces the names of graphs by the graphs.
fn look_up(spec: &mut GraphSpec, known: &[Graph]) {
    for step in &mut spec.steps {
        match &mut step.graph {
            Some(SubGraph::Whole(inner)) => look_up(inner, known),
            Some(SubGraph::Named(name)) => {
                if let Some(found) = known.iter().find(|graph| graph.name() == name) {
                    step.graph = Some(SubGraph::Whole(Box::new(found.spec().clone())));
                }
            }
            None => {}
        }
    }
}

impl Definition for Graph {
    type Input = Value;
    type Output = Value;

    fn declared(&self) -> Result<Declared, Refusal> {
        Ok(Declared {
            kind: Kind::Workflow,
            machine: Name::new(machine_of(self.name()))?,
            version: 1,
            first_step: Name::new("run")?,
            queue: Name::new("default")?,
            history: true,
            contract: None,
            retry: None,
            step_timeout_ms: None,
            max_deaths: None,
        })
    }

    /// The initial state of a run. It contains the definition, so that the run keeps it.
    fn state(&self, input: &Value) -> Result<Json, NotJson> {
        run::begin(&self.spec, &Json::of(input)?)
    }
}
