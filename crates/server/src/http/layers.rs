//! The layers around every request: an id, a slot and a deadline; the log and the metrics; the response to a panic.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide::model::Name;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::future::{BoxFuture, FutureExt};

use super::body::Timed;
use super::budgets::{Admission, Kind, Permit, Wait};
use super::problem::DiskFull;
use super::{App, Caller, Problem, once};
use crate::auth::Role;
use crate::log::ACCESS;
use crate::metrics;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of an id that a client may give.
const REQUEST_ID_BYTES: usize = 128;

tokio::task_local! {
    static ID: HeaderValue;
}

/// The id of the current request, for logs and problems.
pub fn request_id() -> Option<String> {
    ID.try_with(|id| id.to_str().unwrap_or_default().to_owned())
        .ok()
}

/// What happens around every request. It is one layer, because each layer of a router copies and boxes all that is
/// inside it, for every request.
pub(super) async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let marked = |request| once::mark(request, |request| next.run(request));
    observe(request, |request| admit(app, request, marked)).await
}

/// Gives a request an id, logs and counts it, and answers if the handler panics.
async fn observe<F: Future<Output = Response>>(
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let began = Instant::now();
    let id = match request.headers().get(&REQUEST_ID).filter(|id| is_fit(id)) {
        Some(id) => id.clone(),
        None => fresh_id(),
    };
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let handled = ID.scope(id.clone(), AssertUnwindSafe(next(request)).catch_unwind());
    let mut response = match handled.await {
        Ok(response) => response,
        Err(_) => {
            let panicked = Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "panic",
                "internal error: a bug in the server; the log has the details under this request_id",
            );
            ID.sync_scope(id.clone(), || panicked.into_response())
        }
    };
    response.headers_mut().insert(REQUEST_ID, id.clone());
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    report(&method, route, response.status(), began.elapsed(), &id);
    response
}

fn report(method: &Method, route: &str, status: StatusCode, took: Duration, id: &HeaderValue) {
    metrics::request(method, route, status, took);
    let (method, status) = (method.as_str(), status.as_u16());
    let ms = took.as_secs_f64() * 1000.0;
    let request_id = id.to_str().unwrap_or_default();
    match (status, is_probe(route)) {
        (500..=599, _) => {
            tracing::warn!(target: ACCESS, method, route, status, ms, request_id, "request")
        }
        // Each prober sends several a minute; at the level `info` they would hide the other requests.
        (_, true) => {
            tracing::debug!(target: ACCESS, method, route, status, ms, request_id, "request")
        }
        (_, false) => {
            tracing::info!(target: ACCESS, method, route, status, ms, request_id, "request")
        }
    }
}

/// `true` for a path that probes and scrapers request.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics")
}

/// `true` if an id that a client gives may be written to logs.
fn is_fit(id: &HeaderValue) -> bool {
    (1..=REQUEST_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// Makes an id that no other request has: a random number of this process and a counter.
fn fresh_id() -> HeaderValue {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::LazyLock<u64> =
        std::sync::LazyLock::new(|| crate::auth::random::<8>().map_or(0, u64::from_le_bytes));
    let text = format!("{:016x}-{}", *START, NEXT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("none"))
}

/// Gives a request a ticket and a deadline. The request takes its slot when its sender is known and its body is
/// complete, so that a slow one does not keep others out.
async fn admit<F: Future<Output = Response>>(
    app: App,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    // Monitoring must see that a full server is full.
    if is_probe(request.uri().path()) {
        return next(request).await;
    }
    let kind = Kind::of(request.method(), request.uri());
    let ticket = Admission::new(app.budgets().clone(), kind);
    let timeout = app.settings().request_timeout;
    let mut until = tokio::time::Instant::now() + timeout;
    let expects = request.headers().contains_key(header::EXPECT);
    let method = request.method().clone();
    let mut request = request.map(|body| Timed::body(body, until, expects));
    request.extensions_mut().insert(ticket.clone());
    let mut handled = std::pin::pin!(next(request));
    loop {
        if let Ok(response) = tokio::time::timeout_at(until + LAG, &mut handled).await {
            if response.extensions().get::<DiskFull>().is_some() {
                app.readiness().doubt();
            }
            return response;
        }
        match ticket.since().map(|since| since + timeout) {
            // A long poll has its own time limit.
            _ if ticket.waits() => return handled.await,
            // The time is counted from when the body was complete.
            Some(later) if later > until => until = later,
            _ => break,
        }
    }
    late(&method).into_response()
}

/// The problem for a request that took too long. A read has changed nothing.
fn late(method: &Method) -> Problem {
    let late = "the request took longer than `request_timeout_ms`";
    let problem = match *method {
        Method::GET | Method::HEAD => Problem::unavailable(format!("{late}; send it again")),
        _ => Problem::unknown(format!(
            "{late}; its outcome is unknown. Retry it if it has an idempotency key, otherwise check first"
        )),
    };
    problem.with("limit", "request_timeout_ms")
}

/// The handler that reads a late body answers first; this delay precedes giving up the whole request.
const LAG: Duration = Duration::from_millis(250);

/// The slot of a request that waits for something to happen. It does not count among the concurrent requests, and has
/// its own time limit. Take it as an argument of the handler, and keep it as long as the wait, or the stream, lasts.
/// When the server [drains](App::draining), answer at once.
pub struct LongPoll {
    _slot: Permit,
    peer: Option<Peer>,
}

impl LongPoll {
    /// Waits until the client has closed its side of the connection, and so may be gone.
    pub async fn gone(&self) {
        match &self.peer {
            Some(peer) => (peer.0)().await,
            None => std::future::pending().await,
        }
    }
}

/// The client at the other end of a request's connection.
#[derive(Clone)]
pub struct Peer(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl Peer {
    /// Makes a peer from a function whose future completes when the client has closed its side.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        gone: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || gone().boxed()))
    }
}

impl FromRequestParts<App> for LongPoll {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Waiting::of(parts).begin(app)
    }
}

/// The data needed to begin a long poll, for a request whose body must arrive first.
pub struct Waiting {
    wait: Wait,
    role: Role,
    token: Option<Name>,
    ticket: Option<Admission>,
    peer: Option<Peer>,
}

impl Waiting {
    fn of(parts: &Parts) -> Self {
        Self {
            wait: Wait::of(&parts.uri),
            role: parts.extensions.get().copied().unwrap_or(Role::Read),
            token: parts
                .extensions
                .get()
                .and_then(|Caller(token)| token.clone()),
            ticket: parts.extensions.get::<Admission>().cloned(),
            peer: parts.extensions.get::<Peer>().cloned(),
        }
    }

    /// Takes a slot among the long polls, and gives back the one among the concurrent requests.
    pub fn begin(self, app: &App) -> Result<LongPoll, Problem> {
        let slot = app
            .budgets()
            .wait(self.wait, self.role, self.token.as_ref())?;
        if let Some(ticket) = &self.ticket {
            ticket.give_back();
        }
        metrics::long_poll(1.0);
        Ok(LongPoll {
            _slot: slot,
            peer: self.peer,
        })
    }
}

impl FromRequestParts<App> for Waiting {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self::of(parts))
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        metrics::long_poll(-1.0);
    }
}

/// The response for an unknown path.
pub(super) async fn nowhere(request: Request) -> Problem {
    let path = request.uri().path();
    let hint = match path.strip_suffix('/') {
        None | Some("") => String::new(),
        Some(_) => format!("leave the slash at the end of {path} out; "),
    };
    Problem::not_found(format!(
        "unknown path {path}: {hint}/openapi.json lists all paths"
    ))
}

/// The response for a known path with a wrong method.
pub(super) async fn wrong_method(request: Request) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!(
            "method {} is not allowed for {}; the header `allow` lists the allowed methods",
            request.method(),
            request.uri().path()
        ),
    )
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn send(id: Option<&str>) -> (StatusCode, HeaderValue, serde_json::Value) {
        async fn handler() -> StatusCode {
            panic!("confidential")
        }
        let router: Router =
            Router::new()
                .route("/", get(handler))
                .layer(from_fn(|request, next: Next| {
                    observe(request, |request| next.run(request))
                }));
        let mut request = Request::new(Body::empty());
        if let Some(id) = id {
            request
                .headers_mut()
                .insert(REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
        }
        let response = router.oneshot(request).await.unwrap();
        let (status, id) = (response.status(), response.headers()[&REQUEST_ID].clone());
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, id, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_can_be_found_by_the_id_of_its_request() {
        let (status, id, body) = send(Some("mine-1")).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(
            (id.to_str().unwrap(), &body["request_id"]),
            ("mine-1", &serde_json::json!("mine-1"))
        );
        assert!(!body.to_string().contains("confidential"), "{body}");
    }

    #[tokio::test]
    async fn an_id_that_is_not_fit_for_a_log_is_replaced() {
        let long = "x".repeat(200);
        for id in [
            None,
            Some(""),
            Some("two words"),
            Some("é"),
            Some(long.as_str()),
        ] {
            let (_, given, body) = send(id).await;
            assert_ne!(Some(given.as_bytes()), id.map(str::as_bytes));
            assert_eq!(body["request_id"], given.to_str().unwrap());
        }
        assert_ne!(send(None).await.1, send(None).await.1);
    }
}
