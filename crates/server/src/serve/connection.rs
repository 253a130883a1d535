//! Connections: accepted up to a limit, each with deadlines for the client, and closed in order.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::Backoff;
use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::activity::{Activity, Over};
use super::socket::Socket;
use super::tls::{NoHandshake, Tls};
use super::wire::Wire;
use crate::http::{App, Peer};

/// Maximum number of connections above the limit that get a response that says so, at a time; further ones are only
/// closed.
const REFUSALS: usize = 256;
/// Time limit for the handshake with one of those.
const REFUSAL: Duration = Duration::from_secs(1);
/// How long an idle connection may take to close after it was asked to.
const FAREWELL: Duration = Duration::from_secs(5);
/// HTTP/2: a client that does not answer a ping for this long is gone.
const PING: Duration = Duration::from_secs(20);
/// HTTP/2: the maximum number of concurrent requests on one connection.
const STREAMS: u32 = 256;
/// HTTP/1: the maximum size of the head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// The connections that are open.
pub(super) struct Connections {
    tasks: TaskTracker,
    /// Asks connections to finish the running requests and to close.
    finish: CancellationToken,
    /// Closes connections at once.
    kill: CancellationToken,
}

/// Accepts connections until `stop` completes.
pub(super) async fn accept(
    app: &App,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    service: Router,
    stop: impl Future<Output = ()>,
) -> Connections {
    let settings = app.settings();
    let slots = Arc::new(Semaphore::new(settings.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.idle_timeout)
        .max_buf_size(HEAD_BYTES)
        .half_close(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES as u32);
    let builder = Arc::new(builder);
    let open = Connections {
        tasks: TaskTracker::new(),
        finish: CancellationToken::new(),
        kill: CancellationToken::new(),
    };
    let mut stop = std::pin::pin!(stop);
    let mut backoff = Backoff::away();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return open,
            accepted = listener.accept() => accepted,
        };
        let wire = match accepted {
            Ok((stream, _)) => {
                backoff.reset();
                Wire::new(stream, settings.write_timeout)
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // The system has no more sockets to give.
                tokio::select! {
                    () = &mut stop => return open,
                    _ = backoff.pause() => {}
                }
                continue;
            }
        };
        match slots.clone().try_acquire_owned() {
            Ok(slot) => {
                let (builder, service) = (builder.clone(), service.clone());
                let (finish, kill) = (open.finish.clone(), open.kill.clone());
                let tls = tls.clone();
                let times = Times {
                    head: settings.header_timeout,
                    idle: settings.idle_timeout,
                    write: settings.write_timeout,
                };
                open.tasks.spawn(async move {
                    let spoken = async {
                        if let Some(socket) = greet(wire, tls.as_deref(), times.head).await {
                            speak(&builder, socket, service, times, finish).await;
                        }
                    };
                    tokio::select! {
                        () = spoken => {}
                        () = kill.cancelled() => {}
                    }
                    drop(slot);
                });
            }
            Err(_) => {
                if let Ok(slot) = refusals.clone().try_acquire_owned() {
                    let tls = tls.clone();
                    open.tasks.spawn(async move {
                        if let Some(socket) = greet(wire, tls.as_deref(), REFUSAL).await {
                            let detail = "too many connections: the limit is the setting `connections`; try again in a second";
                            socket.refuse("503 Service Unavailable", "unavailable", detail).await;
                        }
                        drop(slot);
                    });
                }
            }
        }
    }
}

impl Connections {
    /// Lets all connections finish their running requests, for `grace` at most; then closes them.
    pub async fn finish(self, grace: Duration) {
        self.tasks.close();
        self.finish.cancel();
        if tokio::time::timeout(grace, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                connections = self.tasks.len(),
                "the grace time is over: connections are closed"
            );
            self.kill.cancel();
            self.tasks.wait().await;
        }
    }
}

/// Time limits for a client.
#[derive(Clone, Copy)]
struct Times {
    /// To send the head of a request.
    head: Duration,
    /// To send the next request.
    idle: Duration,
    /// To take a part of a response.
    write: Duration,
}

/// Prepares a connection: runs the TLS handshake if the server has a certificate. Returns `None` if the connection is
/// over.
async fn greet(wire: Wire, tls: Option<&Tls>, patience: Duration) -> Option<Socket> {
    let Some(tls) = tls else {
        return Some(Socket::plain(wire));
    };
    // The handshake gets the time limit of a head.
    match tls.accept(wire, Instant::now() + patience).await {
        Ok(socket) => Some(socket),
        Err(NoHandshake::Failed) => None,
        Err(NoHandshake::Plain(socket)) => {
            let detail = "this server requires TLS: write https:// in its address";
            socket
                .refuse("400 Bad Request", "tls_required", detail)
                .await;
            None
        }
    }
}

/// Serves HTTP on a connection until it ends.
async fn speak(
    builder: &Builder<TokioExecutor>,
    socket: Socket,
    service: Router,
    times: Times,
    finish: CancellationToken,
) {
    let heard = socket.clone();
    let activity = Activity::new();
    let doing = activity.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        // Until the request is answered, bytes that arrive belong to its body.
        let answering = heard.understood();
        let being_answered = doing.answering();
        let peer = heard.clone();
        request
            .extensions_mut()
            .insert(Peer::new(move || peer.clone().gone()));
        let answered = service.clone().oneshot(request.map(axum::body::Body::new));
        async move {
            let response = answered.await;
            drop(answering);
            response.map(|response| response.map(|body| being_answered.with(body)))
        }
    });
    let spoken = builder.serve_connection(TokioIo::new(socket.clone()), service);
    let mut spoken = std::pin::pin!(spoken);
    let ended = tokio::select! {
        ended = &mut spoken => ended.map_err(|error| is_late(&*error)),
        () = socket.late(times.head) => Err(true),
        over = activity.over(times.idle, times.write) => {
            if over == Over::Idle {
                // A request that arrives at this moment is still answered.
                spoken.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(FAREWELL, &mut spoken).await;
            }
            Ok(())
        }
        () = finish.cancelled() => {
            spoken.as_mut().graceful_shutdown();
            (&mut spoken).await.map_err(|error| is_late(&*error))
        }
    };
    match ended {
        Ok(()) => {}
        Err(true) if socket.is_halfway() => {
            let detail =
                "the head of the request did not arrive within `header_timeout_ms`: send it again";
            socket
                .refuse("408 Request Timeout", "slow_head", detail)
                .await;
        }
        // No further response is possible.
        Err(_) => socket.linger().await,
    }
}

/// `true` if a connection ended because a deadline has passed.
fn is_late(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error
        .downcast_ref::<hyper::Error>()
        .is_some_and(hyper::Error::is_timeout)
}
