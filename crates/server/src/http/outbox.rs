//! The outbox: its depth, its refused requests, and the operations on them.

use abide::outbox::{OutboxId, RefusedRequest};
use abide::time::Timestamp;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, asked};
use super::instances::PageQuery;
use super::{App, Params, PathParams, Problem, Write};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(depth))
        .routes(routes!(refused))
}

/// Routes for operators.
pub fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(retry))
        .routes(routes!(discard))
}

/// The number of requests that wait in the outbox, and that were refused. Numbers are counted up to 10,000.
#[derive(Serialize, ToSchema)]
#[schema(as = Outbox)]
pub struct OutboxView {
    /// Requests that were committed and are not carried out yet.
    waiting: u64,
    /// When the first of them was inserted.
    oldest_at: Option<Timestamp>,
    /// Requests that were refused and are still recorded.
    refused: u64,
}

/// A request of the outbox that was refused.
#[derive(Serialize, ToSchema)]
#[schema(as = RefusedRequest)]
pub struct RefusedView {
    /// Its id among the refused requests.
    #[schema(value_type = i64)]
    pub id: OutboxId,
    /// The id that its row had in the outbox.
    #[schema(value_type = i64)]
    pub outbox_id: OutboxId,
    /// The request, as it was inserted: a text, because it may be invalid JSON.
    pub request: String,
    /// The database role that inserted it; null on SQLite.
    pub role: Option<String>,
    /// A stable code for the reason of the refusal.
    pub reason: String,
    /// The reason, for people.
    pub problem: String,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When it was refused.
    pub refused_at: Timestamp,
}

impl From<RefusedRequest> for RefusedView {
    fn from(one: RefusedRequest) -> Self {
        Self {
            id: one.id,
            outbox_id: one.outbox_id,
            request: one.request,
            role: one.role,
            reason: one.problem.reason.into_owned(),
            problem: one.problem.problem,
            created_at: one.created_at,
            refused_at: one.refused_at,
        }
    }
}

const REFUSED: &str = "refused";

/// Get the depth of the outbox: how many requests wait, since when, and how many were refused.
#[utoipa::path(get, path = "/v1/outbox", operation_id = "get_outbox", tag = "outbox", responses(
    (status = 200, description = "The depth of the outbox.", body = OutboxView),
))]
pub async fn depth(State(app): State<App>) -> Result<axum::Json<OutboxView>, Problem> {
    let depth = app.abide().outbox_depth().await?;
    Ok(axum::Json(OutboxView {
        waiting: depth.waiting,
        oldest_at: depth.oldest,
        refused: depth.refused,
    }))
}

/// List the requests of the outbox that were refused, newest first.
#[utoipa::path(get, path = "/v1/outbox/refused", operation_id = "list_refused_requests", tag = "outbox", params(PageQuery),
    responses((status = 200, description = "A page of refused requests.", body = Listed<RefusedView>)))]
pub async fn refused(
    State(app): State<App>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<RefusedView>>, Problem> {
    let (limit, before) = asked(REFUSED, query.limit, query.cursor.as_deref())?;
    let page = app.abide().refused_requests(before, limit).await?;
    Ok(Listed::page(REFUSED, page, RefusedView::from))
}

/// A request without fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {}

/// The result of an operation on a refused request.
#[derive(Serialize, ToSchema)]
pub struct Settled {
    /// `requeued`, or `discarded`.
    outcome: &'static str,
}

/// Put a refused request back at the end of the outbox, so that it is taken again.
#[utoipa::path(post, path = "/v1/outbox/refused/{id}/retry", operation_id = "retry_refused_request", tag = "outbox",
    params(("id" = i64, Path, description = "The id of the refused request.")), request_body = SettleRequest, responses(
    (status = 200, description = "It waits in the outbox.", body = Settled),
))]
pub async fn retry(
    PathParams(id): PathParams<i64>,
    Write { body, abide }: Write<SettleRequest>,
) -> Result<axum::Json<Settled>, Problem> {
    let SettleRequest {} = body;
    let found = abide.retry_refused(&[OutboxId(id)]).await?;
    settled(id, found, "requeued")
}

/// Delete a refused request.
#[utoipa::path(post, path = "/v1/outbox/refused/{id}/discard", operation_id = "discard_refused_request", tag = "outbox",
    params(("id" = i64, Path, description = "The id of the refused request.")), request_body = SettleRequest, responses(
    (status = 200, description = "It is gone.", body = Settled),
))]
pub async fn discard(
    PathParams(id): PathParams<i64>,
    Write { body, abide }: Write<SettleRequest>,
) -> Result<axum::Json<Settled>, Problem> {
    let SettleRequest {} = body;
    let found = abide.discard_refused(&[OutboxId(id)]).await?;
    settled(id, found, "discarded")
}

fn settled(id: i64, found: usize, outcome: &'static str) -> Result<axum::Json<Settled>, Problem> {
    match found {
        0 => {
            let detail = format!(
                "there is no refused request {id}: it was retried or discarded, or its retention is over"
            );
            Err(Problem::new(
                StatusCode::NOT_FOUND,
                "no_such_request",
                detail,
            ))
        }
        _ => Ok(axum::Json(Settled { outcome })),
    }
}
