//! The HTTP face: JSON under `/v1`, one file for each resource.

mod app;
mod body;
mod budgets;
mod caller;
pub(crate) mod dto;
pub(crate) mod events;
mod extract;
mod feed;
mod graphs;
mod health;
pub(crate) mod history;
mod hooks;
pub(crate) mod instances;
mod layers;
pub(crate) mod machines;
mod metrics;
mod once;
mod openapi;
pub(crate) mod operate;
pub(crate) mod outbox;
mod problem;
mod rpc;
pub(crate) mod signals;
pub(crate) mod starts;
pub(crate) mod stats;
mod stream;
mod test_clock;
mod updates;
pub(crate) mod waits;
mod workers;

pub(crate) use abide::__private::unfit;
use axum::Router;
use axum::middleware::from_fn_with_state;
use utoipa_axum::router::OpenApiRouter;

use crate::auth::{Role, guard};

pub use app::App;
pub use budgets::Admission;
pub use caller::Caller;
pub use extract::{Body, Params, PathParams, raw, received, target};
pub use layers::{LongPoll, Peer, Waiting, request_id};
pub use once::{Write, WriteByHeader};
pub use problem::{OverLimit, Problem, Refused};

/// Routes that read.
fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(events::read())
        .merge(graphs::read())
        .merge(history::read())
        .merge(instances::read())
        .merge(machines::read())
        .merge(metrics::read())
        .merge(outbox::read())
        .merge(signals::read())
        .merge(stats::read())
        .merge(stream::read())
        .merge(updates::read())
        .merge(waits::read())
}

/// Routes that send signals, updates and events.
fn send() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(events::send())
        .merge(signals::send())
        .merge(updates::send())
}

/// Routes for workers.
fn work() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(machines::work())
        .merge(workers::work())
}

/// Routes for operators.
fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(graphs::operate())
        .merge(operate::operate())
        .merge(outbox::operate())
        .merge(signals::operate())
        .merge(starts::operate())
}

/// All routes that are described, each behind the guard of its role.
pub fn routes(app: &App) -> OpenApiRouter<App> {
    let guarded = |routes: OpenApiRouter<App>, role: Role| {
        routes.route_layer(from_fn_with_state((app.clone(), role), guard))
    };
    OpenApiRouter::new()
        .merge(health::open())
        .merge(hooks::open())
        .merge(guarded(read(), Role::Read))
        .merge(guarded(send(), Role::Send))
        .merge(guarded(work(), Role::Work))
        .merge(guarded(operate(), Role::Operate))
}

/// The description of all routes, which `/openapi.json` serves.
pub fn description() -> utoipa::openapi::OpenApi {
    let routes = OpenApiRouter::new()
        .merge(health::open())
        .merge(hooks::open())
        .merge(read())
        .merge(send())
        .merge(work())
        .merge(operate());
    openapi::finished(routes.into_openapi())
}

/// The whole service.
pub fn service(app: &App) -> Router {
    let (router, _) = routes(app).split_for_parts();
    let reads = from_fn_with_state((app.clone(), Role::Read), guard);
    router
        .merge(openapi::serve(description()).route_layer(reads))
        .merge(rpc::routes())
        .merge(test_clock::routes(app))
        .method_not_allowed_fallback(layers::wrong_method)
        .fallback(layers::nowhere)
        .layer(from_fn_with_state(app.clone(), layers::around))
        .with_state(app.clone())
}
