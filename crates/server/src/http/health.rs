//! Whether the server lives, and whether it can work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{App, Problem};

/// What needs no token.
pub fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
}

/// That all is well.
#[derive(Serialize, ToSchema)]
pub struct Well {
    /// `ok`.
    status: &'static str,
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses(
    (status = 200, description = "it lives", body = Well),
))]
async fn alive() -> Json<Well> {
    Json(Well { status: "ok" })
}

/// Whether the store can be reached, and the server is not about to stop.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "it can work", body = Well),
    (status = 503, description = "it cannot now: send requests elsewhere, or later", body = Problem, content_type = "application/problem+json"),
))]
async fn ready(State(app): State<App>) -> Result<Json<Well>, (StatusCode, Problem)> {
    if app.draining().is_cancelled() {
        return Err(away("the server is shutting down"));
    }
    match app.store().next_due().await {
        Ok(_) => Ok(Json(Well { status: "ok" })),
        Err(error) => Err(away(&error.to_string())),
    }
}

fn away(why: &str) -> (StatusCode, Problem) {
    (StatusCode::SERVICE_UNAVAILABLE, Problem::unavailable(why))
}
