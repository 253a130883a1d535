//! A request to start an instance.

use std::collections::HashMap;

use abide::{Graph, Json, Key, Name, Priority, Scope, Start, Timestamp, UniqueKey, When};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{AnyJson, KeyText, Millis, NameText, StatusWord, given};
use crate::http::{App, Problem};

/// What to start: a machine, or a graph that was put to `/v1/graphs/{name}`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The machine to start; this or `graph`.
    #[schema(value_type = Option<NameText>)]
    machine: Option<Name>,
    /// The graph to start; this or `machine`.
    #[schema(value_type = Option<NameText>)]
    graph: Option<Name>,
    /// The machine's version; the newest known unless given, else 1.
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    version: Option<u32>,
    /// The business identity: it addresses the instance, and nothing else can be started under it meanwhile.
    #[schema(value_type = Option<KeyText>)]
    key: Option<Key>,
    /// The step to begin at; the machine's first unless given, else `start`.
    #[schema(value_type = Option<NameText>)]
    step: Option<Name>,
    /// The state that a machine begins with; null unless given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = AnyJson)]
    state: Option<Json>,
    /// What a graph begins with; null unless given.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = AnyJson)]
    input: Option<Json>,
    /// Make an instance that has a key and no run yet; with `machine` and `key` alone.
    reserve: Option<bool>,
    /// The queue to wait in; the machine's unless given, else `default`.
    #[schema(value_type = Option<NameText>)]
    queue: Option<Name>,
    /// How urgent: lower goes first; 0 unless given.
    priority: Option<i16>,
    /// At most one instance of a partition executes at a time, in order.
    #[schema(value_type = Option<KeyText>)]
    partition_key: Option<Key>,
    /// A second identity that addresses nothing.
    #[schema(min_length = 1, max_length = 255)]
    unique_key: Option<String>,
    /// In which statuses the key is taken; those that are not terminal unless given.
    #[schema(value_type = Option<Vec<StatusWord>>)]
    scope: Option<Scope>,
    /// In which statuses the unique key is taken; those that are not terminal unless given.
    #[schema(value_type = Option<Vec<StatusWord>>)]
    unique_scope: Option<Scope>,
    /// When it is due; this or `delay_ms`.
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    /// After how long it is due; this or `due_at`.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
    delay_ms: Option<Millis>,
}

/// What a request wants.
pub enum Wanted {
    /// An instance that runs.
    Start(Box<Start>),
    /// One that has a key and no run yet.
    Reserve(Name, Key),
}

/// The graphs that one request has looked up.
pub type Graphs = HashMap<Name, Option<Graph>>;

impl StartRequest {
    /// What is wanted; graphs are looked up once.
    pub async fn wanted(self, app: &App, graphs: &mut Graphs) -> Result<Wanted, Problem> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(Problem::unprocessable(format!(
                "nothing can be started so: {}",
                problems.join("; ")
            )));
        }
        if let (Some(true), Some(machine), Some(key)) = (self.reserve, &self.machine, &self.key) {
            return Ok(Wanted::Reserve(machine.clone(), key.clone()));
        }
        let plain = match (&self.machine, &self.graph) {
            (_, Some(name)) => {
                if !graphs.contains_key(name) {
                    let found = app.abide().graph(name.as_str()).await?;
                    graphs.insert(name.clone(), found);
                }
                let Some(Some(graph)) = graphs.get(name) else {
                    let detail = format!(
                        "there is no graph {name:?} here: put it to /v1/graphs/{name} first"
                    );
                    return Err(Problem::unprocessable(detail).with("reason", "unknown_graph"));
                };
                graph.start_of(&self.input.unwrap_or_default())?
            }
            (Some(machine), None) => Start {
                version: self.version,
                step: self.step,
                ..Start::of(machine.clone(), self.state.unwrap_or_default())
            },
            // `problems` has refused it.
            (None, None) => return Err(Problem::unprocessable(NEITHER)),
        };
        let when = match (self.due_at, self.delay_ms) {
            (Some(moment), _) => When::At(moment),
            (None, Some(delay)) => When::After(delay.duration()),
            (None, None) => When::Now,
        };
        Ok(Wanted::Start(Box::new(Start {
            key: self.key,
            queue: self.queue.or(plain.queue),
            priority: Priority(self.priority.unwrap_or(0)),
            partition_key: self.partition_key,
            unique_key: self.unique_key.map(UniqueKey::new).transpose()?,
            scope: self.scope.unwrap_or_default(),
            unique_scope: self.unique_scope.unwrap_or_default(),
            when,
            ..plain
        })))
    }

    /// What fields contradict each other.
    fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        match (&self.machine, &self.graph) {
            (None, None) => problems.push(NEITHER),
            (Some(_), Some(_)) => problems.push("it names a machine and a graph: give one of them"),
            (Some(machine), None) => {
                if machine.as_str().starts_with(GRAPH) {
                    problems.push("the machines of graphs are started as graphs: give `graph` with the rest of the name");
                }
                if self.input.is_some() {
                    problems.push("`input` is a graph's: a machine begins with `state`");
                }
            }
            (None, Some(_)) => {
                let of_machines = [
                    (
                        self.state.is_some(),
                        "`state` is a machine's: a graph begins with `input`",
                    ),
                    (self.version.is_some(), "a graph has no `version`"),
                    (self.step.is_some(), "a graph has no `step` to begin at"),
                ];
                problems.extend(
                    of_machines
                        .into_iter()
                        .filter(|(is, _)| *is)
                        .map(|(_, problem)| problem),
                );
            }
        }
        if self.due_at.is_some() && self.delay_ms.is_some() {
            problems.push("it is due at a moment and after a time: give `due_at` or `delay_ms`");
        }
        if self.reserve == Some(true) {
            if self.has_more_than_machine_and_key() {
                problems.push("what is reserved takes `machine` and `key` alone: the rest comes with the start that opens it");
            }
            if self.key.is_none() {
                problems.push("what is reserved needs a `key`");
            }
        }
        problems
    }

    fn has_more_than_machine_and_key(&self) -> bool {
        let more = [
            self.graph.is_some(),
            self.version.is_some(),
            self.step.is_some(),
            self.state.is_some(),
            self.input.is_some(),
            self.queue.is_some(),
            self.priority.is_some(),
            self.partition_key.is_some(),
            self.unique_key.is_some(),
            self.scope.is_some(),
            self.unique_scope.is_some(),
            self.due_at.is_some(),
            self.delay_ms.is_some(),
        ];
        more.contains(&true)
    }

    /// The key that it is to have.
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

const NEITHER: &str = "it names neither a machine nor a graph: give one of them";
const GRAPH: &str = "graph/";
