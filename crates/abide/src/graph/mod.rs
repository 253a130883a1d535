//! Graphs: tasks and waits as data, advanced by the engine.

mod build;
mod draw;
mod read;
mod run;

use std::sync::Arc;

use abide_core::model::{
    Contracted, Declared, GraphProblem, GraphSpec, Json, Kind, Name, NotJson, Refusal, Start,
    SubGraph,
};
use abide_core::rules::graph::{check, machine_of};
use serde_json::Value;

pub use build::{GraphBuilder, Reference, input, output};
pub(crate) use run::GraphProgram;

use crate::Error;
use crate::machine::Definition;

/// A graph of tasks and waits, checked and ready to be run: made by [`Graph::builder`], or read from JSON.
///
/// ```
/// use abide::{Abide, Event, Graph, eq, hours, output, secs};
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
/// A clone costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    spec: Arc<GraphSpec>,
}

/// All that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("the graph cannot be built: {}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct BadGraph {
    /// What is wrong, and with which step.
    pub problems: Vec<GraphProblem>,
}

impl Graph {
    /// Puts a graph together.
    pub fn builder(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder::new(name.into())
    }

    /// Takes a graph as data, when nothing is wrong with it. Graphs that it names as steps are found among `known`.
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
    /// # Ok::<(), abide::BadGraph>(())
    /// ```
    pub fn from_json(json: &str, known: &[Self]) -> Result<Self, BadGraph> {
        let (spec, unread) = Self::read(json);
        Self::of_read(spec, unread, known)
    }

    /// Reads a graph from JSON without checking it: with what cannot be read, and without that.
    pub fn read(json: &str) -> (GraphSpec, Vec<GraphProblem>) {
        read::read(json)
    }

    /// Takes a graph that was [read](Self::read), when all of it could be and nothing is wrong with it; else tells of both.
    pub fn of_read(
        spec: GraphSpec,
        mut unread: Vec<GraphProblem>,
        known: &[Self],
    ) -> Result<Self, BadGraph> {
        match Self::new(spec, known) {
            Ok(graph) if unread.is_empty() => Ok(graph),
            // What was not read to its end cannot be judged.
            _ if unread.len() > read::TOLD => Err(BadGraph { problems: unread }),
            built => {
                unread.extend(built.err().into_iter().flat_map(|bad| bad.problems));
                Err(BadGraph { problems: unread })
            }
        }
    }

    /// It as JSON.
    pub fn to_json(&self) -> String {
        // What was read as JSON, or made of texts and numbers, can be written.
        serde_json::to_string(&*self.spec).unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// It as data.
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// What starts a run of it with that input.
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

    /// It, and the graphs that are steps of it, and of those.
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

/// Puts graphs in the place of their names.
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
        })
    }

    /// The definition is pinned to the run: it is in its state.
    fn state(&self, input: &Value) -> Result<Json, NotJson> {
        run::begin(&self.spec, &Json::of(input)?)
    }
}
