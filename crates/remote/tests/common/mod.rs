//! A small server: the two routes over any store, which can be stopped and started again at its port.
#![allow(dead_code, reason = "each test uses some of it")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abide_kernel::wire::{self, answer, parse};
use abide_kernel::{Listener, Store};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// The source of all that is sent to it.
pub const CALLER: &str = "http";

/// A server over a store, with threads of its own: when it is dropped its connections are cut, as when a process dies.
pub struct Server {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Serves a store at a free port.
    pub async fn of(store: Arc<dyn Store>) -> Self {
        Self::with(routes(store), "127.0.0.1:0".parse().unwrap()).await
    }

    /// Serves those routes there.
    pub async fn with(routes: Router, address: SocketAddr) -> Self {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let bound = runtime.spawn(TcpListener::bind(address));
        let listener = bound.await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self {
            address,
            runtime: Some(runtime),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let runtime = self.runtime.take().unwrap();
        // Not on a thread of another runtime, which would not let us wait.
        let down = thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(10)));
        down.join().unwrap();
    }
}

/// The two routes.
pub fn routes(store: Arc<dyn Store>) -> Router {
    Router::new()
        .route(wire::PATH, post(rpc))
        .route(wire::NOTIFICATIONS, get(notifications))
        .layer(DefaultBodyLimit::max(256 << 20))
        .with_state(store)
}

async fn rpc(State(store): State<Arc<dyn Store>>, body: Bytes) -> Response {
    match parse(&body) {
        Ok(mut request) => {
            request.sent_by(CALLER);
            axum::Json(answer(&*store, request).await).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn notifications(State(store): State<Arc<dyn Store>>) -> Response {
    let events = stream::unfold(store.listen(), |mut listener: Listener| async {
        let next = tokio::time::timeout(wire::HEARTBEAT, listener.next()).await;
        let text = match next {
            Ok(Some(effects)) => format!("data: {}\n\n", serde_json::to_string(&*effects).unwrap()),
            Ok(None) => return None,
            Err(_) => ":\n\n".to_owned(),
        };
        Some((Ok::<_, Infallible>(text), listener))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(events)).into_response()
}

/// The routes for callers with that token, and for no others.
pub fn guarded(store: Arc<dyn Store>, token: &'static str) -> Router {
    let guard = move |request: Request, next: Next| async move {
        let given = request.headers().get(header::AUTHORIZATION);
        match given.and_then(|given| given.to_str().ok()) {
            Some(given) if given == format!("Bearer {token}") => next.run(request).await,
            Some("Bearer weak") => StatusCode::FORBIDDEN.into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    };
    routes(store).layer(middleware::from_fn(guard))
}
