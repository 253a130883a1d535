//! The store itself over HTTP, for `Abide::open("https://…")`: what `abide_kernel::wire` says. It is the library's own
//! language, may change with every release, and is not in the OpenAPI document.

use std::convert::Infallible;

use abide_kernel::wire::{self, HEARTBEAT, Request as Asked, Right};
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

/// All of it; rights are asked for request by request.
pub fn routes() -> Router<App> {
    Router::new()
        .route(wire::PATH, post(ask))
        .route(wire::NEWS, get(news))
}

async fn ask(State(app): State<App>, request: Request) -> Result<Response, Response> {
    let (role, caller) = admitted(&app, request.uri(), request.headers()).await?;
    if let Some(ticket) = request.extensions().get::<Admission>() {
        ticket.came_by(&caller, role);
    }
    is_json(request.headers()).map_err(Problem::into_response)?;
    let key = key_of(request.headers()).map_err(Problem::into_response)?;
    let body = raw(request, &app).await.map_err(Problem::into_response)?;
    let mut asked = wire::parse(&body)
        .map_err(|error| Problem::bad_request(error.to_string()).into_response())?;
    permitted(role, &asked).map_err(Problem::into_response)?;
    // Whose requests they are that may arrive more than once is not for the client to say.
    asked.on_behalf_of(&caller.identity());
    // Nor who has sent what is recorded (rule 7.3).
    asked.sent_by(&caller.source());
    let (reply, replayed) = match (key, asked) {
        (Some(key), Asked::Run(ops)) => answer_once(&app, &caller, key, &body, ops).await,
        (_, asked) => (wire::answer(&**app.store(), asked).await, false),
    };
    Ok(marked(axum::Json(reply).into_response(), replayed))
}

/// Refuses who may not do all of it.
fn permitted(role: Role, asked: &Asked) -> Result<(), Problem> {
    // The time is not secret, and a sender may read the record of what it has sent.
    if matches!(asked, Asked::Now | Asked::Writers)
        || (role == Role::Send && matches!(asked, Asked::Records(_)))
    {
        return Ok(());
    }
    for right in asked.needs() {
        let needed = match right {
            // A worker reads the states and histories of its instances.
            Right::Read if role == Role::Work => continue,
            Right::Read => Role::Read,
            Right::Send => Role::Send,
            Right::Work => Role::Work,
            Right::Operate => Role::Operate,
        };
        allowed(role, needed, &Method::POST)?;
    }
    Ok(())
}

/// Streams the notifications of commits that the token may read, as server-sent events, from the moment on at which the
/// response began.
async fn news(State(app): State<App>, mut parts: Parts) -> Result<Response, Response> {
    let (role, caller) = admitted(&app, &parts.uri, &parts.headers).await?;
    parts.extensions.insert(role);
    parts.extensions.insert(caller);
    let place = LongPoll::from_request_parts(&mut parts, &app).await;
    let place = place.map_err(Problem::into_response)?;
    let right = match role {
        Role::Read => Right::Read,
        Role::Send => Right::Send,
        Role::Work => Right::Work,
        Role::Operate => Right::Operate,
    };
    let heard = (app.store().listen(), app.draining().clone(), place);
    let told = stream::unfold(heard, move |(mut listener, draining, place)| async move {
        loop {
            let effects = tokio::select! {
                () = draining.cancelled() => None,
                () = place.gone() => None,
                effects = listener.next() => effects,
            }?;
            let effects = right.hears(&effects);
            if !effects.is_empty() {
                let event = Event::default().json_data(&effects).unwrap_or_default();
                return Some((Ok::<_, Infallible>(event), (listener, draining, place)));
            }
        }
    });
    Ok(Sse::new(told)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response())
}
