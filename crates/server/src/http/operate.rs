//! The operations of an operator: cancel, restart, repair.

use abide::InstanceId;
use abide::client::OperateError;
use abide::model::{Name, Target};
use abide_kernel::model::Children;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::caller::Caller;
use super::instances::not_found;
use super::starts::StartedView;
use super::{App, PathParams, Problem, Write, target};

/// Routes for operators.
pub fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cancel))
        .routes(routes!(restart))
        .routes(routes!(repair))
}

/// The reason for the cancellation, and how the children are treated.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The reason; it is written to the history.
    reason: Option<String>,
    /// How its children are treated; default `cascade`.
    #[serde(default)]
    children: Children,
    /// End a workflow at once, without letting its code clean up.
    #[serde(default)]
    force: bool,
}

/// The result of an operation.
#[derive(Serialize, ToSchema)]
pub struct Operated {
    /// The outcome, as a stable code.
    outcome: &'static str,
}

/// The result of a cancellation.
#[derive(Serialize, ToSchema)]
pub struct CancelAnswer {
    /// `cancelled`; `cancelling` for a workflow whose code cleans up first.
    outcome: &'static str,
    /// The instance.
    #[schema(value_type = i64)]
    id: InstanceId,
    /// The number of children that were cancelled with it.
    children: usize,
}

/// Cancel an instance. If a step is running, its outcome is discarded.
#[utoipa::path(post, path = "/v1/instances/{target}/cancel", operation_id = "cancel", tag = "operate",
    params(("target" = Target, Path, description = "An id or a key.")), request_body = CancelRequest, responses(
    (status = 200, description = "It was cancelled.", body = CancelAnswer),
    (status = 202, description = "The workflow's code was notified, and cleans up before it ends.", body = CancelAnswer),
))]
pub async fn cancel(
    PathParams(text): PathParams<String>,
    caller: Caller,
    Write {
        body: request,
        abide,
    }: Write<CancelRequest>,
) -> Result<(StatusCode, axum::Json<CancelAnswer>), Problem> {
    let reason = request
        .reason
        .unwrap_or_else(|| "no reason was given".to_owned());
    let mut cancelling = abide.cancel(target(&text)?, reason).source(caller.source());
    if request.children == Children::Leave {
        cancelling = cancelling.leave_children();
    }
    if request.force {
        cancelling = cancelling.force();
    }
    let cancelled = cancelling.await.map_err(|error| refused(error, &text))?;
    let (status, outcome) = match cancelled.ended {
        true => (StatusCode::OK, "cancelled"),
        false => (StatusCode::ACCEPTED, "cancelling"),
    };
    Ok((
        status,
        axum::Json(CancelAnswer {
            outcome,
            id: cancelled.id,
            children: cancelled.children,
        }),
    ))
}

/// The options of a restart.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestartRequest {
    /// The step to begin at; default: the step where it ended.
    step: Option<Name>,
}

/// Open a new run of an instance that failed or was cancelled, with its last state.
#[utoipa::path(post, path = "/v1/instances/{target}/restart", operation_id = "restart", tag = "operate",
    params(("target" = Target, Path, description = "An id or a key.")), request_body = RestartRequest, responses(
    (status = 201, description = "The new run.", body = StartedView),
))]
pub async fn restart(
    PathParams(text): PathParams<String>,
    Write {
        body: request,
        abide,
    }: Write<RestartRequest>,
) -> Result<(StatusCode, axum::Json<StartedView>), Problem> {
    let mut restarting = abide.restart(target(&text)?);
    if let Some(step) = request.step {
        restarting = restarting.at(step);
    }
    let id = restarting.await.map_err(|error| refused(error, &text))?;
    let run = abide.get(id).await?.ok_or_else(|| not_found(&text))?;
    Ok((StatusCode::CREATED, axum::Json(run.into())))
}

/// A request without fields.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {}

/// Repair an instance.
#[utoipa::path(post, path = "/v1/instances/{target}/repair", operation_id = "repair", tag = "operate",
    params(("target" = Target, Path, description = "An id or a key.")),
    request_body = RepairRequest, responses(
    (status = 200, description = "`repair_not_needed`, or `repair_dispatched` if something was repaired.", body = Operated),
))]
pub async fn repair(
    PathParams(text): PathParams<String>,
    Write {
        body: RepairRequest {},
        abide,
    }: Write<RepairRequest>,
) -> Result<axum::Json<Operated>, Problem> {
    let dispatched = abide
        .repair(target(&text)?)
        .await
        .map_err(|error| refused(error, &text))?;
    let outcome = if dispatched {
        "repair_dispatched"
    } else {
        "repair_not_needed"
    };
    Ok(axum::Json(Operated { outcome }))
}

/// Makes the response to a refused operation.
pub fn refused(error: OperateError, text: &str) -> Problem {
    let outcome = error.outcome();
    let detail = error.to_string();
    let (reason, current, holder) = match error {
        OperateError::NoTarget(_) => return not_found(text),
        OperateError::Error(error) => return error.into(),
        OperateError::NotActive(_) => ("run_not_active", None, None),
        OperateError::NotRestartable(_) => ("not_restartable", None, None),
        OperateError::NotStarted => ("instance_not_started", None, None),
        OperateError::NotCurrent { current } => ("run_not_current", Some(current), None),
        OperateError::KeyTaken { holder } => ("key_taken", None, Some(holder)),
        // The enum may get more variants; there is no better response for an unknown one.
        other => return Problem::unprocessable(other.to_string()),
    };
    Problem::new(StatusCode::CONFLICT, reason, detail)
        .with_some("outcome", outcome)
        .with("reason", reason)
        .with_some("current_id", current)
        .with_some("id", holder)
}
