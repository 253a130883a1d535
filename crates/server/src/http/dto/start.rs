//! A request to start an instance.

use std::collections::HashMap;

use abide::Graph;
use abide::graph::RetrySpec;
use abide::model::{Json, Key, Name, Policy, Refusal, Scope, Status};
use abide::outbox::Wanted;
use abide::time::Timestamp;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Millis, given};
use crate::http::{App, Problem};

/// The instance to start: of a machine, or of a graph that was stored with `/v1/graphs/{name}`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The machine to start; this or `graph`.
    machine: Option<Name>,
    /// The graph to start; this or `machine`.
    graph: Option<Name>,
    /// The machine's version; default: the newest known, or 1.
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    version: Option<u32>,
    /// The key: it addresses the instance, and no other instance can be started with it meanwhile.
    key: Option<Key>,
    /// The step to begin at; default: the machine's first step, or `start`.
    step: Option<Name>,
    /// The initial state of a machine; default null.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Json)]
    state: Option<Json>,
    /// The input of a graph; default null.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Json)]
    input: Option<Json>,
    /// Make an instance that has a key and no run yet; with `machine` and `key` alone.
    reserve: Option<bool>,
    /// The queue; default: the machine's queue, or `default`.
    queue: Option<Name>,
    /// The priority: lower numbers run first; default 0.
    priority: Option<i16>,
    /// At most one instance of a partition executes at a time, in order.
    partition_key: Option<Key>,
    /// A second key, which excludes duplicates and cannot be used as an address.
    #[schema(min_length = 1, max_length = 255)]
    unique_key: Option<String>,
    /// The scope of the key: the statuses in which the instance holds it; default: all that are not terminal.
    #[schema(value_type = Option<Vec<Status>>)]
    scope: Option<Scope>,
    /// The scope of the unique key: the statuses in which the instance holds it; default: all that are not terminal.
    #[schema(value_type = Option<Vec<Status>>)]
    unique_scope: Option<Scope>,
    /// When it is due; this or `delay_ms`.
    due_at: Option<Timestamp>,
    /// After how long it is due; this or `due_at`.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
    delay_ms: Option<Millis>,
    /// The failure policy, where it differs from the machine's declaration; for machines.
    policy: Option<PolicyRequest>,
}

/// The failure policy of an instance. The machine's declaration applies to what is left out.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub struct PolicyRequest {
    /// The retry policy of a failed step. A retry is the same instance with `attempt` one higher.
    retry: Option<RetrySpec>,
    /// How long one attempt at a step may take, from its claim on.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 315_360_000_000_i64)]
    step_timeout_ms: Option<Millis>,
    /// The number of deaths of its worker in one step after which the instance fails, 0 for no limit; also for workflows.
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_deaths: Option<u32>,
}

impl From<PolicyRequest> for Policy {
    fn from(request: PolicyRequest) -> Self {
        Self {
            retry: request.retry,
            step_timeout_ms: request.step_timeout_ms.map(Millis::ms),
            max_deaths: request.max_deaths,
        }
    }
}

/// The graphs that one request has looked up.
pub type Graphs = HashMap<Name, Option<Graph>>;

impl StartRequest {
    /// Returns the start that is wanted; each graph is looked up once.
    pub async fn wanted(self, app: &App, graphs: &mut Graphs) -> Result<Wanted, Problem> {
        let request = abide::outbox::StartRequest::from(self);
        let refused = |refusal: Refusal| Problem::unprocessable(refusal.to_string());
        request.check().map_err(refused)?;
        let of_graph = match &request.graph {
            None => None,
            Some(name) => {
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
                Some(graph.start_of(&request.input.clone().unwrap_or_default())?)
            }
        };
        Ok(request.wanted(of_graph)?)
    }

    /// The key that it is to have.
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }
}

impl From<StartRequest> for abide::outbox::StartRequest {
    fn from(request: StartRequest) -> Self {
        Self {
            machine: request.machine,
            graph: request.graph,
            version: request.version,
            key: request.key,
            step: request.step,
            state: request.state,
            input: request.input,
            reserve: request.reserve,
            queue: request.queue,
            priority: request.priority,
            partition_key: request.partition_key,
            unique_key: request.unique_key,
            scope: request.scope,
            unique_scope: request.unique_scope,
            due_at: request.due_at,
            delay_ms: request.delay_ms.map(Millis::ms),
            policy: request.policy.map(Policy::from),
        }
    }
}
