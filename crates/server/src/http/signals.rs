//! Sending signals, and the records of those that were sent.

use abide::InstanceId;
use abide::client::{Receipt, SendError};
use abide::message::Arguments;
use abide::model::{
    CommandId, CommandKind, CommandStatus, Json, Key, Name, Rejection, Sequence, Target,
};
use abide::outbox::{SignalWithStartRequest, Wanted};
use abide::store::CommandFilter;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::caller::Caller;
use super::dto::{Listed, Millis, SignalView, asked, given, wanted};
use super::instances::{PageQuery, not_found};
use super::{App, Params, PathParams, Problem, Write, target, unfit};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(of_instance))
        .routes(routes!(list))
}

/// Routes that send.
pub fn send() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(signal))
}

/// Routes that may start instances.
pub fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(signal_with_start))
}

/// A signal to send.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// One value. Where parameters are declared, an object counts as arguments by name. This or `arguments`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Json)]
    payload: Option<Json>,
    /// Arguments: a list by position, or an object by name. This or `payload`.
    #[schema(value_type = Option<Arguments>)]
    arguments: Option<Json>,
    /// The dedup key. A signal that is sent again with the same key is the same signal.
    dedup_key: Option<Name>,
    /// How long to hold the signal if no instance has the key.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
    hold_for_ms: Option<Millis>,
}

/// The result of sending a signal.
#[derive(Serialize, ToSchema)]
pub struct SignalAnswer {
    /// `signal_received`, or `signal_held`.
    outcome: &'static str,
    /// Its record.
    #[schema(value_type = i64)]
    command_id: CommandId,
    /// Its message sequence in the chain of the instance; absent while it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    message_sequence: Option<Sequence>,
    /// Its command sequence in the run; absent while it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    command_sequence: Option<Sequence>,
    /// The run that it was delivered to; null while it is held.
    #[schema(value_type = Option<i64>)]
    instance_id: Option<InstanceId>,
    /// The key that it was sent to, or that its instance has.
    key: Option<Key>,
    /// `true` if it was accepted before; then the other fields are those of the first record.
    duplicate: bool,
    /// The signal that the instance waits for, if this one has a similar name and so wakes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    similar: Option<Name>,
}

/// Arguments as a request gives them: a payload or arguments.
pub fn arguments(payload: Option<Json>, arguments: Option<Json>) -> Result<Arguments, Problem> {
    match (payload, arguments) {
        (Some(_), Some(_)) => Err(Problem::unprocessable(
            "give a `payload` or `arguments`, not both",
        )),
        (Some(payload), None) => Ok(Arguments::Payload(payload)),
        (None, Some(arguments)) => Arguments::from_json(&arguments).map_err(|_| {
            Problem::unprocessable(format!(
                "`arguments` is {}: expected a list, by position, or an object, by name",
                unfit::shown(arguments.as_str())
            ))
        }),
        (None, None) => Ok(Arguments::default()),
    }
}

/// Send a signal. When this answers, the signal is durable.
#[utoipa::path(post, path = "/v1/instances/{target}/signals/{name}", operation_id = "send_signal", tag = "signals",
    params(("target" = Target, Path, description = "An id or a key."), ("name" = Name, Path, description = "The signal.")),
    request_body = SignalRequest, responses(
    (status = 200, description = "Accepted before: `duplicate` is true.", body = SignalAnswer),
    (status = 202, description = "The signal is in the inbox, or held.", body = SignalAnswer),
))]
pub async fn signal(
    State(app): State<App>,
    PathParams((text, name)): PathParams<(String, String)>,
    caller: Caller,
    headers: HeaderMap,
    Write {
        body: request,
        abide,
    }: Write<SignalRequest>,
) -> Result<(StatusCode, axum::Json<SignalAnswer>), Problem> {
    let arguments = arguments(request.payload, request.arguments)?;
    let mut builder = abide
        .signal(target(&text)?, &name, arguments)
        .source(caller.source());
    if let Some(key) = request.dedup_key {
        builder = builder.dedup(key.as_str());
    }
    if let Some(time) = request.hold_for_ms {
        builder = builder.hold_for(time.duration());
    }
    signal_response(&app, builder.await, &text, &headers)
}

/// Send a signal to the live instance that has a key, or start one with the signal in its inbox, in one commit.
///
/// If the signal would be refused, nothing is started.
#[utoipa::path(post, path = "/v1/signal-with-start", operation_id = "signal_with_start", tag = "signals",
    request_body = SignalWithStartRequest, responses(
    (status = 200, description = "Accepted before: `duplicate` is true.", body = SignalAnswer),
    (status = 201, description = "An instance was started, with the signal in its inbox.", body = SignalAnswer),
    (status = 202, description = "The signal is in the inbox of the live instance.", body = SignalAnswer),
))]
pub async fn signal_with_start(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Write {
        body: request,
        abide,
    }: Write<SignalWithStartRequest>,
) -> Result<(StatusCode, axum::Json<SignalAnswer>), Problem> {
    let arguments = arguments(request.payload, request.arguments)?;
    let Some(key) = request.start.key.clone() else {
        return Err(Problem::unprocessable(
            "`start` needs a `key`: the signal is sent to it",
        ));
    };
    let Wanted::Start(start) = wanted(request.start, &app, &mut Default::default()).await? else {
        return Err(Problem::unprocessable(
            "a reserved instance takes no signals: leave `reserve` out",
        ));
    };
    let builder = abide.signal_with_start(Ok(*start), request.name, arguments);
    let mut builder = builder.source(caller.source());
    if let Some(key) = request.dedup_key {
        builder = builder.dedup(key.as_str());
    }
    signal_response(&app, builder.await, key.as_str(), &headers)
}

/// Makes the response to the sender of a signal: the table of rule 7.3.
pub fn signal_response(
    app: &App,
    sent: Result<Receipt, SendError>,
    text: &str,
    headers: &HeaderMap,
) -> Result<(StatusCode, axum::Json<SignalAnswer>), Problem> {
    let receipt = sent.map_err(|error| refused(error, text, "command_id"))?;
    let status = match (receipt.duplicate, receipt.started) {
        (true, _) => StatusCode::OK,
        (false, true) => StatusCode::CREATED,
        (false, false) => StatusCode::ACCEPTED,
    };
    let record = receipt.record;
    if !receipt.duplicate {
        app.trace(&record, headers);
    }
    Ok((
        status,
        axum::Json(SignalAnswer {
            outcome: record.outcome(),
            command_id: record.id,
            message_sequence: record.sequence,
            command_sequence: record.command_sequence,
            instance_id: record.instance,
            key: record.key,
            duplicate: receipt.duplicate,
            similar: receipt.similar,
        }),
    ))
}

/// Makes the response to a refused signal or update: the fields of the ordinary response, and the reason.
pub fn refused(error: SendError, text: &str, id: &str) -> Problem {
    let detail = error.to_string();
    let rejected = match error {
        SendError::NoTarget(_) => return not_found(text),
        SendError::Rejected(rejected) => rejected,
        SendError::Error(error) => return error.into(),
        // The enum may get more variants; there is no better response for an unknown one.
        other => return Problem::unprocessable(other.to_string()),
    };
    let (why, over) = (rejected.why, rejected.limit);
    let problem = Problem::new(status(why), why.reason(), detail)
        .with("outcome", why.outcome())
        .with("reason", why.reason())
        .with("duplicate", false)
        .with_some("current_id", rejected.current)
        .with_some("limit", over.as_ref().map(|over| over.limit.clone()))
        .with_some("most", over.as_ref().map(|over| over.most))
        .with_some("met", over.as_ref().map(|over| over.met));
    let Some(record) = rejected.record else {
        return problem;
    };
    problem
        .with(id, record.id)
        .with_some("command_sequence", record.command_sequence)
        .with("instance_id", record.instance)
        .with("key", record.key)
        .with_some("validation_errors", record.validation_errors)
}

fn status(why: Rejection) -> StatusCode {
    match why {
        Rejection::ConflictingDuplicate
        | Rejection::NotStarted
        | Rejection::NotCurrent
        | Rejection::NotActive
        | Rejection::InboxFull => StatusCode::CONFLICT,
        Rejection::UnknownSignal | Rejection::UnknownUpdate => StatusCode::NOT_FOUND,
        Rejection::InvalidSignal | Rejection::InvalidUpdate => StatusCode::UNPROCESSABLE_ENTITY,
        Rejection::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

const SIGNALS: &str = "signals";

/// List the signals that were sent to an instance or to an earlier run of it, including refused ones, newest first.
#[utoipa::path(get, path = "/v1/instances/{target}/signals", operation_id = "list_instance_signals", tag = "signals",
    params(("target" = Target, Path, description = "An id or a key. If no instance has the key, the signals that are held for it are listed."), PageQuery),
    responses((status = 200, description = "A page of signals.", body = Listed<SignalView>)))]
pub async fn of_instance(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<SignalView>>, Problem> {
    let filter = sent_to(&app, &text, CommandKind::Signal).await?;
    page(&app, &filter, &query, SIGNALS).await
}

/// Returns the filter for records of a kind that were sent to an instance, or to a key that no instance has.
pub async fn sent_to(app: &App, text: &str, kind: CommandKind) -> Result<CommandFilter, Problem> {
    let target = target(text)?;
    let kind = Some(kind);
    if let Some(instance) = app.abide().get(target.clone()).await? {
        return Ok(CommandFilter {
            chain: Some(instance.chain()),
            kind,
            ..CommandFilter::default()
        });
    }
    let Target::Key(key) = target else {
        return Err(not_found(text));
    };
    let filter = CommandFilter {
        key: Some(key),
        kind,
        ..CommandFilter::default()
    };
    // No instance has the key, and nothing was sent to it.
    if app
        .abide()
        .list_commands(&filter, None, 1)
        .await?
        .items
        .is_empty()
    {
        return Err(not_found(text));
    }
    Ok(filter)
}

/// A page of records.
pub async fn page<T: From<abide::model::Command> + ToSchema>(
    app: &App,
    filter: &CommandFilter,
    query: &PageQuery,
    kind: &str,
) -> Result<axum::Json<Listed<T>>, Problem> {
    let (limit, before) = asked(kind, query.limit, query.cursor.as_deref())?;
    let page = app.abide().list_commands(filter, before, limit).await?;
    Ok(Listed::page(kind, page, T::from))
}

/// Which signals to list: all that meet every condition given.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SignalsQuery {
    /// Only entries with this status.
    status: Option<CommandStatus>,
    /// Only signals with this name.
    name: Option<Name>,
    /// Only signals that were sent to this key.
    key: Option<Key>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the signals of all instances, including held, refused and expired ones, newest first.
#[utoipa::path(get, path = "/v1/signals", operation_id = "list_signals", tag = "signals", params(SignalsQuery),
    responses((status = 200, description = "A page of signals.", body = Listed<SignalView>)))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<SignalsQuery>,
) -> Result<axum::Json<Listed<SignalView>>, Problem> {
    let filter = CommandFilter {
        status: query.status,
        name: query.name,
        key: query.key,
        kind: Some(CommandKind::Signal),
        ..CommandFilter::default()
    };
    let query = PageQuery {
        limit: query.limit,
        cursor: query.cursor,
    };
    page(&app, &filter, &query, SIGNALS).await
}
