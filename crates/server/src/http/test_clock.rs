//! `/test/clock`: reads and moves the time of a server that was started with `--test-clock`. Other servers do not have it, and
//! it is not in the OpenAPI document.

use std::sync::Arc;

use abide::time::Timestamp;
use abide_kernel::{Clock, Op};
use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::dto::Millis;
use super::{App, Body, Problem};
use crate::auth::{Role, guard};
use crate::serve::TestClock;

/// The route, where the server has such a clock.
pub fn routes(app: &App) -> Router<App> {
    let routes = Router::new();
    match app.settings().test_clock {
        Some(_) => routes
            .route("/test/clock", get(read).post(advance))
            .route_layer(from_fn_with_state((app.clone(), Role::Operate), guard)),
        None => routes,
    }
}

/// The time of the test clock.
#[derive(Serialize)]
struct Shown {
    now: Timestamp,
    /// The time when something is due next.
    next_due: Option<Timestamp>,
    /// The time by which it was advanced.
    moved_ms: u64,
}

/// The time by which to advance the clock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    by_ms: Millis,
}

async fn read(State(app): State<App>) -> Result<axum::Json<Shown>, Problem> {
    shown(&app, &*clock(&app)?, 0).await
}

/// Advances the clock by the given time, or only to the next time at which something is due, so that nothing is skipped.
/// The claims of workers are not lost.
async fn advance(
    State(app): State<App>,
    Body(request): Body<Advance>,
) -> Result<axum::Json<Shown>, Problem> {
    let (clock, store) = (clock(&app)?, app.store());
    let now = clock.now();
    let due = store.next_due().await?;
    let by = match due {
        Some(due) if due > now => request.by_ms.duration().min(due.since(now)),
        _ => request.by_ms.duration(),
    };
    let workers = store.workers().await?;
    let living = workers.into_iter().filter(|one| one.lease_until > now);
    let renewal = Op::Renew {
        workers: living.map(|one| one.id).collect(),
        lease: by + app.settings().lease,
    };
    store.run(Arc::from([renewal])).await?;
    clock.advance(by);
    let moved_ms = u64::try_from(by.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    shown(&app, &clock, moved_ms).await
}

fn clock(app: &App) -> Result<Arc<TestClock>, Problem> {
    let found = app.settings().test_clock.clone();
    found.ok_or_else(|| Problem::not_found("this server has no test clock"))
}

async fn shown(app: &App, clock: &TestClock, moved_ms: u64) -> Result<axum::Json<Shown>, Problem> {
    let next_due = app.store().next_due().await?;
    Ok(axum::Json(Shown {
        now: clock.now(),
        next_due,
        moved_ms,
    }))
}
