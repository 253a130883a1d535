//! The store itself over HTTP, for `Abide::open("https://…")`: the protocol of `abide_kernel::wire`. It is internal to
//! the library, may change with every release, and is not in the OpenAPI document.

use std::convert::Infallible;

use abide_kernel::Query;
use abide_kernel::wire::{self, HEARTBEAT, Permission, Request as WireRequest};
use axum::Router;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;

use super::extract::is_json;
use super::once::{answer_once, key_of, marked};
use super::{Admission, App, LongPoll, Problem, raw};
use crate::auth::{Role, admitted, allowed};

/// All routes of the protocol. Rights are checked for each request.
pub fn routes() -> Router<App> {
    Router::new()
        .route(wire::PATH, post(call))
        .route(wire::NOTIFICATIONS, get(notifications))
}

async fn call(State(app): State<App>, request: Request) -> Result<Response, Response> {
    let (role, caller) = admitted(&app, request.uri(), request.headers()).await?;
    if let Some(ticket) = request.extensions().get::<Admission>() {
        ticket.came_by(&caller, role);
    }
    is_json(request.headers()).map_err(Problem::into_response)?;
    let key = key_of(request.headers()).map_err(Problem::into_response)?;
    let body = raw(request, &app).await.map_err(Problem::into_response)?;
    let mut request = wire::parse(&body)
        .map_err(|error| Problem::bad_request(error.to_string()).into_response())?;
    permitted(role, &request).map_err(Problem::into_response)?;
    // The server, not the client, determines whose idempotency keys these are.
    request.on_behalf_of(&caller.identity());
    // The same holds for the sender that is recorded (rule 7.3).
    request.sent_by(&caller.source());
    let (reply, replayed) = match (key, request) {
        (Some(key), WireRequest::Run(ops)) => answer_once(&app, &caller, key, &body, ops).await,
        (_, request) => (wire::answer(&**app.store(), request).await, false),
    };
    Ok(marked(axum::Json(reply).into_response(), replayed))
}

/// Returns an error if the role does not permit the whole request.
fn permitted(role: Role, request: &WireRequest) -> Result<(), Problem> {
    // The time is not secret, and a sender may read the record of what it has sent.
    if matches!(request, WireRequest::Now | WireRequest::Writers)
        || (role == Role::Send && matches!(request, WireRequest::Read(Query::Records(_))))
    {
        return Ok(());
    }
    for right in request.needs() {
        let needed = match right {
            // A worker reads the states and histories of its instances.
            Permission::Read if role == Role::Work => continue,
            Permission::Read => Role::Read,
            Permission::Send => Role::Send,
            Permission::Work => Role::Work,
            Permission::Operate => Role::Operate,
        };
        allowed(role, needed, &Method::POST)?;
    }
    Ok(())
}

/// Streams the notifications of commits that the token may read, as server-sent events, from the moment on at which the
/// response began.
async fn notifications(State(app): State<App>, mut parts: Parts) -> Result<Response, Response> {
    let (role, caller) = admitted(&app, &parts.uri, &parts.headers).await?;
    parts.extensions.insert(role);
    parts.extensions.insert(caller);
    let slot = LongPoll::from_request_parts(&mut parts, &app).await;
    let slot = slot.map_err(Problem::into_response)?;
    let right = match role {
        Role::Read => Permission::Read,
        Role::Send => Permission::Send,
        Role::Work => Permission::Work,
        Role::Operate => Permission::Operate,
    };
    let state = (app.store().listen(), app.draining().clone(), slot);
    let events = stream::unfold(state, move |(mut listener, draining, slot)| async move {
        loop {
            let effects = tokio::select! {
                () = draining.cancelled() => None,
                () = slot.gone() => None,
                effects = listener.next() => effects,
            }?;
            let effects = right.visible_effects(&effects);
            if !effects.is_empty() {
                let event = Event::default().json_data(&effects).unwrap_or_default();
                return Some((Ok::<_, Infallible>(event), (listener, draining, slot)));
            }
        }
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response())
}
