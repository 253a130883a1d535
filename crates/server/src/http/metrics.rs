//! `/metrics`, for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{App, Problem};
use crate::metrics;

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(measured))
}

/// The metrics.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, description = "in the text format of Prometheus", body = String, content_type = "text/plain"),
))]
async fn measured(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    app.depths().refresh().await;
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    Ok((kind, metrics::render()))
}
