//! The request to start an instance.

use serde::{Deserialize, Serialize};

use super::time;
#[cfg(feature = "openapi")]
use crate::model::Status;
use crate::model::json::given;
use crate::model::{
    Json, Key, Name, Policy, Priority, Refusal, Scope, Start, Timestamp, UniqueKey, When,
};

/// The instance to start: of a machine, or of a graph that was stored with `/v1/graphs/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The machine to start; this or `graph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The graph to start; this or `machine`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<Name>,
    /// The machine's version; default: the newest known, or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2_147_483_647))]
    pub version: Option<u32>,
    /// The key: it addresses the instance, and no other instance can be started with it meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The step to begin at; default: the machine's first step, or `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Name>,
    /// The initial state of a machine; default null.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub state: Option<Json>,
    /// The input of a graph; default null.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    pub input: Option<Json>,
    /// Make an instance that has a key and no run yet; with `machine` and `key` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<bool>,
    /// The queue; default: the machine's queue, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// The priority: lower numbers run first; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// At most one instance of a partition executes at a time, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<Key>,
    /// A second key, which excludes duplicates and cannot be used as an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub unique_key: Option<String>,
    /// The scope of the key: the statuses in which the instance holds it; default: all that are not terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Status>>))]
    pub scope: Option<Scope>,
    /// The scope of the unique key: the statuses in which the instance holds it; default: all that are not terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Status>>))]
    pub unique_scope: Option<Scope>,
    /// When it is due; this or `delay_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// After how long it is due; this or `due_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64))]
    pub delay_ms: Option<u64>,
    /// The failure policy, where it differs from the machine's declaration; for machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// The operation that a request to start asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An instance that runs.
    Start(Box<Start>),
    /// An instance that has a key and no run yet.
    Reserve(Name, Key),
}

const NEITHER: &str = "it names neither a machine nor a graph: give one of them";
const GRAPH: &str = "graph/";

impl StartRequest {
    /// Creates a request to start a machine with a state.
    pub fn machine(machine: Name, state: Json) -> Self {
        Self {
            machine: Some(machine),
            state: Some(state),
            ..Self::default()
        }
    }

    /// Creates a request to start a graph with an input.
    pub fn graph(graph: Name, input: Json) -> Self {
        Self {
            graph: Some(graph),
            input: Some(input),
            ..Self::default()
        }
    }

    /// Returns the start or the reservation that it asks for. The caller looks up a graph and passes the start that the
    /// graph makes of the input.
    ///
    /// Errors: [`BadStart`](Refusal::BadStart) with all fields that contradict each other.
    pub fn wanted(self, of_graph: Option<Start>) -> Result<Wanted, Refusal> {
        self.check()?;
        if let (Some(true), Some(machine), Some(key)) = (self.reserve, &self.machine, &self.key) {
            return Ok(Wanted::Reserve(machine.clone(), key.clone()));
        }
        let plain = match (self.machine, of_graph) {
            (Some(machine), _) => Start {
                version: self.version,
                step: self.step,
                ..Start::of(machine, self.state.unwrap_or_default())
            },
            (None, Some(start)) => start,
            (None, None) => return Err(bad_start(NEITHER)),
        };
        let when = match (self.due_at, self.delay_ms) {
            (Some(moment), _) => When::At(moment),
            (None, Some(ms)) => When::After(time("delay_ms", ms)?),
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
            policy: self.policy,
            ..plain
        })))
    }

    /// Refuses fields that contradict each other.
    pub fn check(&self) -> Result<(), Refusal> {
        let problems = self.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(bad_start(problems.join("; "))),
        }
    }

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
                    (
                        self.policy.is_some(),
                        "a graph has no `policy`: its tasks have `retry` and `timeout_ms` of their own",
                    ),
                ];
                let met = of_machines.into_iter().filter(|(is, _)| *is);
                problems.extend(met.map(|(_, problem)| problem));
            }
        }
        if self.due_at.is_some() && self.delay_ms.is_some() {
            problems.push("it is due at a moment and after a time: give `due_at` or `delay_ms`");
        }
        if self.reserve == Some(true) {
            let alone = Self {
                machine: self.machine.clone(),
                key: self.key.clone(),
                reserve: self.reserve,
                ..Self::default()
            };
            if *self != alone {
                problems.push("a reservation takes `machine` and `key` alone: the rest comes with the start that opens it");
            }
            if self.key.is_none() {
                problems.push("a reservation needs a `key`");
            }
        }
        problems
    }
}

pub(super) fn bad_start(problem: impl Into<String>) -> Refusal {
    let problem = problem.into();
    Refusal::BadStart { problem }
}
