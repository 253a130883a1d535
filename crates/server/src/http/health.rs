//! The liveness and the readiness of the server.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide::model::{Json, Name};
use abide::store::Store;
use abide_kernel::Op;
use abide_kernel::model::DocumentKind;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use futures_util::FutureExt;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{App, Problem};
use crate::auth::admitted_in_time;
use crate::background_read::BackgroundRead;

/// How long a probe's result is good enough.
const FRESH: Duration = Duration::from_secs(1);
/// How long a response waits for a probe. Together with the time for checking the token, it is sent within two seconds,
/// whatever the store does.
const PATIENCE: Duration = Duration::from_millis(1_200);

/// Routes that need no token.
pub fn open() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
}

/// The response of a healthy process.
#[derive(Serialize, ToSchema)]
pub struct Well {
    /// `ok`.
    status: &'static str,
}

/// Check that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses(
    (status = 200, description = "the process is alive", body = Well),
))]
async fn alive() -> axum::Json<Well> {
    axum::Json(Well { status: "ok" })
}

/// The readiness of the store: it can be reached, it answers, and its disk has room.
pub struct Readiness {
    read: BackgroundRead<Result<(), String>>,
    /// `true` if a write found no room on the disk, and no large probe has succeeded since.
    doubted: Arc<AtomicBool>,
}

impl Readiness {
    /// Spawns the task that probes the store on request. Each server overwrites a document of its own, so that no server
    /// waits for another.
    pub fn begin(store: Arc<dyn Store>, listen: &str, stop: CancellationToken) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let server: String = format!("{} {listen}", host.trim())
            .chars()
            .take(200)
            .collect();
        let name = Name::new(server).unwrap_or_else(|_| Name::stored("server"));
        let doubted = Arc::new(AtomicBool::new(false));
        let doubt = doubted.clone();
        let read = BackgroundRead::begin(FRESH, stop, move || {
            probe(store.clone(), name.clone(), doubt.clone()).boxed()
        });
        Self { read, doubted }
    }

    /// Records that a write found no room on the disk. A small probe may still succeed, because PostgreSQL overwrites
    /// pages that it has. So the next probes are large, until one of them succeeds.
    pub fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// The reason why the server cannot work, if there is one.
    async fn trouble(&self) -> Option<String> {
        let late = || {
            format!(
                "the store has not answered within {} ms",
                PATIENCE.as_millis()
            )
        };
        match self.read.newest(PATIENCE).await {
            Some(seen) if seen.at.elapsed() < FRESH + PATIENCE => seen.what.err(),
            _ => Some(late()),
        }
    }
}

/// Writes something small, or something large when there has been no room.
async fn probe(store: Arc<dyn Store>, name: Name, doubted: Arc<AtomicBool>) -> Result<(), String> {
    let is_large = doubted.load(Ordering::Relaxed);
    let body = match is_large {
        true => Json::of(&large()?),
        false => Json::of(&store.clock().now()),
    };
    let body = body.map_err(|error| error.to_string())?;
    let keep = Op::Keep(vec![(DocumentKind::Probe, name, Some(body))]);
    store
        .run(Arc::from([keep]))
        .await
        .map_err(|error| error.to_string())?;
    if is_large {
        doubted.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// A text of 256 KiB that a database can hardly compress.
fn large() -> Result<String, String> {
    let mut text = String::with_capacity(256 << 10);
    for _ in 0..16 {
        let bytes = crate::auth::random::<8192>().map_err(|error| error.to_string())?;
        bytes.iter().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
    }
    Ok(text)
}

/// Check that the store can be reached and written to, and that the server is not about to stop. The reason is shown only to
/// callers with a token.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "the server is ready", body = Well),
    (status = 503, description = "the server is not ready: send requests to another server, or later", body = Problem, content_type = "application/problem+json"),
))]
async fn ready(
    State(app): State<App>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<axum::Json<Well>, Problem> {
    if app.leaving().is_cancelled() || app.draining().is_cancelled() {
        return Err(Problem::unavailable("the server is shutting down"));
    }
    let Some(why) = app.readiness().trouble().await else {
        return Ok(axum::Json(Well { status: "ok" }));
    };
    let known = admitted_in_time(&app, &uri, &headers).await;
    tracing::warn!(why, "the server is not ready");
    Err(Problem::unavailable(match known {
        Ok(_) => format!("the server cannot work: {why}"),
        Err(_) => {
            "the server is not ready; the log has the reason, and so has this response if the request has a token"
                .to_owned()
        }
    }))
}
