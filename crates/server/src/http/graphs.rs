//! Keeping graphs, so that they can be started by their names.

use abide::Graph;
use abide::graph::{GraphProblem, RetrySpec, StepSpec};
use abide::model::{Json, Name};
use abide::time::Timestamp;
use abide_kernel::model::{Document, DocumentKind};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, asked};
use super::instances::PageQuery;
use super::{App, Params, PathParams, Problem, Write};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get))
        .routes(routes!(list))
}

/// Routes for operators.
pub fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put))
}

/// A graph.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphRequest {
    /// Its steps. A step has a `name`, `after: [name…]`, optionally `skip_if: {step, field, op, value}`, and one of
    /// `task: name` (with `timeout_ms?`, `schedule_timeout_ms?`, `retry?`, `queue?`),
    /// `wait_for_event: {event, match, timeout_ms, lookback_ms?}`, `wait_for_signal: {signal, timeout_ms?}`, `sleep: {duration_ms}` and `graph: name`.
    #[schema(value_type = Vec<StepRequest>)]
    steps: Vec<Box<RawValue>>,
}

/// A step of a graph: it has one of `task`, `wait_for_event`, `wait_for_signal`, `sleep` and `graph`.
#[derive(ToSchema)]
#[schema(as = GraphStep)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::graph::StepSpec` is what is read"
)]
pub struct StepRequest {
    /// Its name, unique in the graph: 1 to 255 bytes without dots.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^.]+$")]
    name: String,
    /// The steps that it comes after.
    after: Option<Vec<String>>,
    /// When it is left out: `{step, field, op, value}`.
    #[schema(value_type = Option<Object>)]
    skip_if: Option<Json>,
    /// A task, by the name under which its code is registered.
    task: Option<Name>,
    /// How long one attempt at the task may take, from its claim by a worker on.
    #[schema(value_type = Option<i64>, minimum = 1)]
    timeout_ms: Option<u64>,
    /// How long the task may take as a whole, from the start of the step on: its waits in the queue, all attempts and the
    /// delays between them.
    #[schema(value_type = Option<i64>, minimum = 1)]
    schedule_timeout_ms: Option<u64>,
    /// When the task is tried again, as the same instance with `attempt` one higher: `{max_attempts, delay_ms, factor?, max_delay_ms?}`.
    #[schema(value_type = Option<RetrySpec>)]
    retry: Option<Json>,
    /// The queue in which the task waits.
    queue: Option<Name>,
    /// An event to wait for: `{event, match: {left, op, right} or a list of them, timeout_ms, lookback_ms?}`.
    #[schema(value_type = Option<Object>)]
    wait_for_event: Option<Json>,
    /// A signal to wait for: `{signal, timeout_ms?}`.
    #[schema(value_type = Option<Object>)]
    wait_for_signal: Option<Json>,
    /// Time to wait for: `{duration_ms}`.
    #[schema(value_type = Option<Object>)]
    sleep: Option<Json>,
    /// Another graph: the name of one that was put before, or the graph itself.
    #[schema(value_type = Json, required = false)]
    graph: Option<Json>,
}

/// The result of storing a graph.
#[derive(Serialize, ToSchema)]
pub struct GraphPut {
    /// Its name.
    name: Name,
    /// A hash of its definition, including the graphs that are steps of it.
    hash: String,
}

/// Store a graph, and replace an older one with the same name. Runs that have begun keep the graph that they began with.
///
/// The server advances it; its tasks are claimed by workers, as machines `task/<name>`.
#[utoipa::path(put, path = "/v1/graphs/{name}", operation_id = "put_graph", tag = "graphs",
    params(("name" = Name, Path, description = "The graph.")), request_body = GraphRequest, responses(
    (status = 200, description = "The graph is stored.", body = GraphPut),
    (status = 422, description = "The graph is invalid: `problems: [{step?, message}]` lists all problems.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn put(
    State(app): State<App>,
    PathParams(name): PathParams<String>,
    Write {
        body: request,
        abide,
    }: Write<GraphRequest>,
) -> Result<axum::Json<GraphPut>, Problem> {
    let kept = Name::new(&name)?;
    let written = Written {
        name: &name,
        steps: &request.steps,
    };
    let written = serde_json::to_string(&written);
    let written = written.map_err(|error| Problem::unprocessable(error.to_string()))?;
    let (spec, mut problems) = Graph::read(&written);
    // A graph that contains itself would contain an older graph of its name.
    let itself = |step: &&StepSpec| {
        step.graph
            .as_ref()
            .is_some_and(|inner| inner.name() == spec.name)
    };
    for step in spec.steps.iter().filter(itself) {
        problems.push(GraphProblem {
            step: Some(step.name.clone()),
            message: "a graph cannot be a step of itself".into(),
        });
    }
    let known = match spec.steps.iter().any(|step| step.graph.is_some()) {
        true => app.abide().graphs().await?,
        false => Vec::new(),
    };
    let graph = Graph::of_read(spec, problems, &known).map_err(|error| bad(error.problems))?;
    abide.keep_graph(&graph).await?;
    app.graphs().notify();
    Ok(axum::Json(GraphPut {
        hash: hash(&graph),
        name: kept,
    }))
}

/// A graph as it came.
#[derive(Serialize)]
struct Written<'r> {
    name: &'r str,
    steps: &'r [Box<RawValue>],
}

fn bad(problems: Vec<GraphProblem>) -> Problem {
    let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let detail = format!("the graph cannot be kept: {}", messages.join("; "));
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_graph", detail)
        .with("reason", "bad_graph")
        .with("problems", problems)
}

/// The SHA-256 of the graph's one text, in hexadecimal.
fn hash(graph: &Graph) -> String {
    let text = Json::of(graph.spec())
        .map(|json| json.canonical())
        .unwrap_or_default();
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A stored graph.
#[derive(Serialize, ToSchema)]
#[schema(as = Graph)]
pub struct GraphView {
    /// Its name.
    name: String,
    /// A hash of its definition.
    hash: String,
    /// Its steps. Graphs that are steps of it are included in place of their names.
    #[schema(value_type = Vec<Object>)]
    steps: Vec<StepSpec>,
    /// The graph as a Mermaid drawing.
    mermaid: String,
}

impl From<&Graph> for GraphView {
    fn from(graph: &Graph) -> Self {
        Self {
            name: graph.name().to_owned(),
            hash: hash(graph),
            steps: graph.spec().steps.clone(),
            mermaid: graph.to_mermaid(),
        }
    }
}

/// Get a graph.
#[utoipa::path(get, path = "/v1/graphs/{name}", operation_id = "get_graph", tag = "graphs",
    params(("name" = Name, Path, description = "The graph.")), responses(
    (status = 200, description = "The graph.", body = GraphView),
))]
pub async fn get(
    State(app): State<App>,
    PathParams(name): PathParams<String>,
) -> Result<axum::Json<GraphView>, Problem> {
    let graph = app.abide().graph(&name).await?;
    let graph = graph.ok_or_else(|| {
        Problem::not_found(format!("there is no graph {name:?}: put it here first"))
    })?;
    Ok(axum::Json(GraphView::from(&graph)))
}

/// A graph of a list.
#[derive(Serialize, ToSchema)]
pub struct GraphLine {
    /// Its name.
    name: Name,
    /// The time when it was last stored.
    updated_at: Timestamp,
}

/// List the stored graphs, by name.
#[utoipa::path(get, path = "/v1/graphs", operation_id = "list_graphs", tag = "graphs", params(PageQuery), responses(
    (status = 200, description = "A page of graphs.", body = Listed<GraphLine>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<GraphLine>>, Problem> {
    let (limit, after) = asked("graphs", query.limit, query.cursor.as_deref())?;
    let page = app
        .store()
        .documents_page(DocumentKind::Graph, after, limit);
    let page = page.await?;
    let line = |document: Document| GraphLine {
        name: document.name,
        updated_at: document.updated_at,
    };
    Ok(Listed::page("graphs", page, line))
}
