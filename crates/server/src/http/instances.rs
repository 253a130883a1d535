//! Reads instances: one, a list, its children, its runs, and its result.

use abide::client::{Description, NotDone};
use abide::model::{Instance, Json, Key, Liveness, Name, Target, WaitKind};
use abide::store::Filter;
use abide::{InstanceId, Status};
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{InstanceView, LIMIT_MAX, Listed, asked, encode, views, waited};
use super::{App, LongPoll, Params, PathParams, Problem, target};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(get_batch))
        .routes(routes!(children))
        .routes(routes!(runs))
        .routes(routes!(result))
}

/// The instance that a path names. Returns a problem if it does not exist.
pub async fn found(app: &App, text: &str) -> Result<Instance, Problem> {
    let target = target(text)?;
    app.abide()
        .get(target)
        .await?
        .ok_or_else(|| not_found(text))
}

/// Makes the problem for an id or key that no instance has.
pub fn not_found(text: &str) -> Problem {
    let detail = format!(
        "no instance with the id or key {text:?}: it was never started, or its retention is over"
    );
    Problem::new(StatusCode::NOT_FOUND, "no_target", detail).with("outcome", "no_target")
}

/// Which instances to list: all that meet every condition given.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstancesQuery {
    /// Only entries with this status.
    status: Option<Status>,
    /// Only instances of this machine.
    machine: Option<Name>,
    /// Only instances in this queue.
    queue: Option<Name>,
    /// Only instances whose key begins with this text.
    key_prefix: Option<String>,
    /// Only instances with this kind of wait.
    wait_kind: Option<WaitKind>,
    /// Only instances that wait for the signal with this name, for an event of this type, or for the condition with this key.
    waiting_for: Option<Name>,
    /// Only instances with this liveness. It is computed for each instance, so a page may have few entries, or none, and a `next_cursor`.
    liveness: Option<Liveness>,
    /// Only children of this instance: an id or a key.
    #[param(value_type = Option<Target>)]
    parent: Option<String>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

const INSTANCES: &str = "instances";
/// Maximum number of instances that are checked for one page with a given liveness.
const JUDGED: usize = 5_000;

/// List instances, newest first.
#[utoipa::path(get, path = "/v1/instances", operation_id = "list_instances", tag = "instances", params(InstancesQuery), responses(
    (status = 200, description = "A page of instances.", body = Listed<InstanceView>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<InstancesQuery>,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let (limit, before) = asked(INSTANCES, query.limit, query.cursor.as_deref())?;
    let parent = match &query.parent {
        None => None,
        Some(parent) => Some(found(&app, parent).await?.id),
    };
    let filter = Filter {
        status: query.status.or(query.liveness.and_then(Liveness::status)),
        machine: query.machine,
        queue: query.queue,
        key_prefix: query.key_prefix,
        parent,
        chain: None,
        wait_kind: query.wait_kind,
        waiting_for: query.waiting_for,
    };
    match query.liveness {
        None => page(&app, &filter, before, limit).await,
        Some(liveness) => judged(&app, &filter, before, limit, liveness).await,
    }
}

async fn page(
    app: &App,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let page = app.abide().describe_page(filter, before, limit).await?;
    listed(app, page.items, page.next).await
}

async fn listed(
    app: &App,
    items: Vec<Description>,
    next: Option<InstanceId>,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let next_cursor = next.and_then(|next| encode(INSTANCES, &next));
    Ok(axum::Json(Listed {
        items: views(app, items).await?,
        next_cursor,
    }))
}

/// A page of instances with this liveness. It ends when it is full, or when many instances were checked.
async fn judged(
    app: &App,
    filter: &Filter,
    mut before: Option<InstanceId>,
    limit: usize,
    liveness: Liveness,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let mut items = Vec::new();
    let mut judged = 0;
    loop {
        let page = app.abide().describe_page(filter, before, LIMIT_MAX).await?;
        judged += page.items.len();
        let next = page.next;
        for description in page.items {
            let id = description.instance.id;
            if liveness == description.liveness {
                items.push(description);
            }
            if items.len() == limit {
                return listed(app, items, Some(id)).await;
            }
        }
        if next.is_none() || judged >= JUDGED {
            return listed(app, items, next).await;
        }
        before = next;
    }
}

/// Get an instance: its status, what it waits for, and its health.
#[utoipa::path(get, path = "/v1/instances/{target}", operation_id = "get_instance", tag = "instances",
    params(("target" = Target, Path, description = "An id or a key.")), responses(
    (status = 200, description = "The instance.", body = InstanceView),
))]
pub async fn get(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
) -> Result<axum::Json<InstanceView>, Problem> {
    one(&app, &text).await
}

/// Get the instance whose key is `batch`, which the path for batches would hide.
#[utoipa::path(get, path = "/v1/instances/batch", operation_id = "get_instance_batch", tag = "instances", responses(
    (status = 200, description = "The instance.", body = InstanceView),
    (status = 404, description = "No instance has that key.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn get_batch(State(app): State<App>) -> Result<axum::Json<InstanceView>, Problem> {
    one(&app, "batch").await
}

async fn one(app: &App, text: &str) -> Result<axum::Json<InstanceView>, Problem> {
    let description = app
        .abide()
        .describe(target(text)?)
        .await?
        .ok_or_else(|| not_found(text))?;
    let view = views(app, vec![description]).await?.into_iter().next();
    view.map(axum::Json).ok_or_else(|| not_found(text))
}

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// List the children of an instance, newest first.
#[utoipa::path(get, path = "/v1/instances/{target}/children", operation_id = "list_children", tag = "instances",
    params(("target" = Target, Path, description = "An id or a key."), PageQuery), responses(
    (status = 200, description = "A page of instances.", body = Listed<InstanceView>),
))]
pub async fn children(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let (limit, before) = asked(INSTANCES, query.limit, query.cursor.as_deref())?;
    let filter = Filter {
        parent: Some(found(&app, &text).await?.id),
        ..Filter::default()
    };
    page(&app, &filter, before, limit).await
}

/// List the runs of an instance's chain, newest first.
#[utoipa::path(get, path = "/v1/instances/{target}/runs", operation_id = "list_runs", tag = "instances",
    params(("target" = Target, Path, description = "An id or a key."), PageQuery), responses(
    (status = 200, description = "A page of instances.", body = Listed<InstanceView>),
))]
pub async fn runs(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<InstanceView>>, Problem> {
    let (limit, before) = asked(INSTANCES, query.limit, query.cursor.as_deref())?;
    let filter = Filter {
        chain: Some(found(&app, &text).await?.chain()),
        ..Filter::default()
    };
    page(&app, &filter, before, limit).await
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// How long to wait for it, in milliseconds; 0 if not given.
    #[param(minimum = 0, maximum = 60000, default = 0)]
    pub wait_ms: Option<u64>,
}

/// The result of an instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Result)]
pub struct ResultView {
    /// The run that ended; if it continued as new, the last run.
    #[schema(value_type = i64)]
    id: InstanceId,
    /// The number of that run in its chain.
    run: u32,
    /// Its key.
    key: Option<Key>,
    /// Its status.
    status: Status,
    /// The result, if it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Json)]
    result: Option<Json>,
    /// The error, or the reason of the cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Get the result of an instance, and optionally wait for it. A run that continues as new is followed.
#[utoipa::path(get, path = "/v1/instances/{target}/result", operation_id = "get_result", tag = "instances",
    params(("target" = Target, Path, description = "An id or a key."), WaitQuery), responses(
    (status = 200, description = "It has ended: `status`, and `result` or `last_error`.", body = ResultView),
    (status = 202, description = "It has not ended yet.", body = ResultView),
))]
pub async fn result(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<WaitQuery>,
    mut parts: Parts,
) -> Result<(StatusCode, axum::Json<ResultView>), Problem> {
    let wait = waited(query.wait_ms)?;
    let instance = app.abide().current(target(&text)?).await?;
    let instance = instance.ok_or_else(|| not_found(&text))?;
    if instance.status.is_terminal() && instance.status != Status::Continued {
        return Ok((StatusCode::OK, axum::Json(instance.into())));
    }
    let handle = app
        .abide()
        .handle::<Json>(instance.id)
        .await?
        .ok_or_else(|| not_found(&text))?;
    let ending = match wait.is_zero() && instance.status != Status::Continued {
        true => None,
        false => {
            let _slot = LongPoll::from_request_parts(&mut parts, &app).await?;
            // A chain is followed however little time there is: to see where it stands.
            let wait = wait.max(std::time::Duration::from_millis(20));
            tokio::select! {
                ending = handle.ended() => Some(ending),
                () = tokio::time::sleep(wait) => None,
                () = app.draining().cancelled() => None,
            }
        }
    };
    match ending {
        Some(Ok(ending)) => {
            let last = app.abide().get(ending.id).await?;
            let last = last.ok_or_else(|| not_found(&text))?;
            Ok((StatusCode::OK, axum::Json(last.into())))
        }
        Some(Err(NotDone::Error(error))) => Err(error.into()),
        Some(Err(_)) => Err(not_found(&text)),
        None => {
            let id = newest(&app, &instance).await?;
            let now = app.abide().get(id).await?.ok_or_else(|| not_found(&text))?;
            Ok((StatusCode::ACCEPTED, axum::Json(now.into())))
        }
    }
}

impl From<Instance> for ResultView {
    fn from(instance: Instance) -> Self {
        let row = instance.row;
        let ended = row.status.is_terminal();
        Self {
            id: row.id,
            run: row.run.number,
            key: instance.key,
            status: row.status,
            result: instance.result.filter(|_| ended),
            last_error: row.last_error.filter(|_| ended),
        }
    }
}

/// The newest run of an instance's chain.
async fn newest(app: &App, instance: &Instance) -> Result<InstanceId, Problem> {
    let filter = Filter {
        chain: Some(instance.chain()),
        ..Filter::default()
    };
    let page = app.abide().list(&filter, None, 1).await?;
    Ok(page.items.first().map_or(instance.id, |newest| newest.id))
}
