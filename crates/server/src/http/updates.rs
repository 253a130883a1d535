//! Sending updates, and reading their answers.

use std::time::Duration;

use abide::InstanceId;
use abide::client::UpdateHandle;
use abide::message::Arguments;
use abide::model::{Command, CommandId, CommandKind, CommandStatus, Json, Key, Name, Target};
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::caller::Caller;
use super::dto::{Listed, UpdateView, waited};
use super::instances::{PageQuery, WaitQuery};
use super::signals::{arguments, page, refused, sent_to};
use super::{App, LongPoll, Params, PathParams, Problem, Write, WriteByHeader, target};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(of_instance))
}

/// Routes that send updates and fetch their answers.
pub fn send() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(update))
        .routes(routes!(get))
}

/// How long an answer is waited for unless the request says otherwise.
const PATIENCE_MS: u64 = 30_000;

/// An update to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    /// Arguments: a list by position, or an object by name.
    #[schema(value_type = Option<Arguments>)]
    arguments: Option<Json>,
    /// The request id. An update that is sent again with the same id is the same update, and gets the same answer.
    request_id: Option<Name>,
    /// What to wait for: `accepted` or `completed`; default `completed`.
    #[serde(default)]
    wait_for: WaitFor,
    /// How long to wait for the answer, in milliseconds; default 30 s.
    #[schema(minimum = 0, maximum = 60000, default = 30000)]
    wait_ms: Option<u64>,
}

/// The stage of an update that its sender waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// That it was accepted.
    Accepted,
    /// That it was answered.
    #[default]
    Completed,
}

/// The result of sending an update.
#[derive(Serialize, ToSchema)]
pub struct UpdateAnswer {
    /// Its id, with which its answer can be fetched later.
    #[schema(value_type = i64)]
    update_id: CommandId,
    /// `completed`, or `accepted` when it is not answered yet.
    update_status: CommandStatus,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Json)]
    result: Option<Json>,
    /// `update_accepted`.
    outcome: &'static str,
    /// Its place in the chain of the instance.
    #[schema(value_type = Option<i64>)]
    message_sequence: Option<abide::model::Sequence>,
    /// Its command sequence in the run.
    #[schema(value_type = Option<i64>)]
    command_sequence: Option<abide::model::Sequence>,
    /// The run that it was delivered to.
    #[schema(value_type = Option<i64>)]
    instance_id: Option<InstanceId>,
    /// The key that it was sent to, or that its instance has.
    key: Option<Key>,
    /// `true` if it was accepted before.
    duplicate: bool,
}

/// Send an update, and wait for its answer.
///
/// If the answer does not come in time, the update is still handled: get its answer later by its id.
#[utoipa::path(post, path = "/v1/instances/{target}/updates/{name}", operation_id = "send_update", tag = "updates",
    params(("target" = Target, Path, description = "An id or a key."), ("name" = Name, Path, description = "The update.")),
    request_body = UpdateRequest, responses(
    (status = 200, description = "It was completed.", body = UpdateAnswer),
    (status = 202, description = "Accepted, and not answered yet.", body = UpdateAnswer),
    (status = 422, description = "The update failed (`error` says why), or its arguments are invalid.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn update(
    State(app): State<App>,
    PathParams((text, name)): PathParams<(String, String)>,
    caller: Caller,
    mut parts: Parts,
    // Its `request_id` is remembered for as long as its instance is (rule 9.3), not for a day.
    WriteByHeader(Write {
        body: request,
        abide,
    }): WriteByHeader<UpdateRequest>,
) -> Result<(StatusCode, axum::Json<UpdateAnswer>), Problem> {
    let wait = waited(Some(request.wait_ms.unwrap_or(PATIENCE_MS)))?;
    let arguments = arguments(None, request.arguments)?;
    let mut builder = abide
        .update(target(&text)?, &name, arguments)
        .source(caller.source());
    if let Some(id) = request.request_id {
        builder = builder.request_id(id.as_str());
    }
    let handle = builder.accepted().await.map_err(|error| {
        let problem = refused(error, &text, "update_id");
        match problem.more.contains_key("update_id") {
            true => problem.with("update_status", CommandStatus::Rejected),
            false => problem,
        }
    })?;
    let Some(receipt) = handle.receipt().cloned() else {
        return Err(Problem::from(abide::Error::Closed));
    };
    let mut record = receipt.record;
    if !receipt.duplicate {
        app.trace(&record, &parts.headers);
    }
    if record.status.is_pending()
        && request.wait_for == WaitFor::Completed
        && !wait.is_zero()
        && let Some(closed) = answered(&app, &mut parts, &handle, wait).await?
    {
        record = closed;
    }
    judged(record, receipt.duplicate)
}

/// The record of an update that was answered in time.
async fn answered(
    app: &App,
    parts: &mut Parts,
    handle: &UpdateHandle<Json>,
    wait: Duration,
) -> Result<Option<Command>, Problem> {
    let _slot = LongPoll::from_request_parts(parts, app).await?;
    tokio::select! {
        closed = handle.closed() => Ok(closed?),
        () = tokio::time::sleep(wait) => Ok(None),
        () = app.draining().cancelled() => Ok(None),
    }
}

fn judged(
    record: Command,
    duplicate: bool,
) -> Result<(StatusCode, axum::Json<UpdateAnswer>), Problem> {
    let status = match record.status {
        CommandStatus::Completed => StatusCode::OK,
        CommandStatus::Failed => {
            let error = record.error.unwrap_or_default();
            let problem = Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "update_failed",
                format!("the update failed: {error}"),
            );
            return Err(problem
                .with("update_id", record.id)
                .with("update_status", record.status)
                .with("error", error)
                .with("outcome", "update_accepted")
                .with("message_sequence", record.sequence)
                .with("command_sequence", record.command_sequence)
                .with("instance_id", record.instance)
                .with("key", record.key)
                .with("duplicate", duplicate));
        }
        _ => StatusCode::ACCEPTED,
    };
    let answer = UpdateAnswer {
        outcome: record.outcome(),
        update_id: record.id,
        update_status: record.status,
        result: record.result,
        message_sequence: record.sequence,
        command_sequence: record.command_sequence,
        instance_id: record.instance,
        key: record.key,
        duplicate,
    };
    Ok((status, axum::Json(answer)))
}

/// Get the record of an update, and optionally wait until it is answered.
#[utoipa::path(get, path = "/v1/updates/{id}", operation_id = "get_update", tag = "updates",
    params(("id" = i64, Path, description = "The `update_id`.", minimum = 0), WaitQuery), responses(
    (status = 200, description = "The record, answered or not.", body = UpdateView),
))]
pub async fn get(
    State(app): State<App>,
    PathParams(id): PathParams<i64>,
    Params(query): Params<WaitQuery>,
    mut parts: Parts,
) -> Result<axum::Json<UpdateView>, Problem> {
    let wait = waited(query.wait_ms)?;
    let handle: UpdateHandle<Json> = app.abide().update_handle(CommandId(id));
    let found = handle
        .record()
        .await?
        .filter(|record| record.kind == CommandKind::Update);
    let mut record = found.ok_or_else(|| {
        Problem::not_found(format!(
            "there is no update {id}: it was never sent, or was deleted with its instance"
        ))
    })?;
    if record.status.is_pending()
        && !wait.is_zero()
        && let Some(closed) = answered(&app, &mut parts, &handle, wait).await?
    {
        record = closed;
    }
    Ok(axum::Json(record.into()))
}

/// List the updates that were sent to an instance or to an earlier run of it, including refused ones, newest first.
#[utoipa::path(get, path = "/v1/instances/{target}/updates", operation_id = "list_instance_updates", tag = "updates",
    params(("target" = Target, Path, description = "An id or a key."), PageQuery),
    responses((status = 200, description = "A page of updates.", body = Listed<UpdateView>)))]
pub async fn of_instance(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<UpdateView>>, Problem> {
    let filter = sent_to(&app, &text, CommandKind::Update).await?;
    page(&app, &filter, &query, "updates").await
}
