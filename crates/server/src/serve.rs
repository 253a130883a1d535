//! The server process: opens the store, listens, and shuts down in order.

mod activity;
mod connection;
mod socket;
mod test_clock;
mod tls;
mod wire;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::store::OpenError;
use abide_kernel::Backoff;
use abide_kernel::memory::Memory;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::format::Format;
use tracing_subscriber::prelude::*;

use crate::hooks::Scheme;
use crate::http::{self, App};
use crate::log::{Json, Log};
use crate::nats::Sources;
use crate::settings::{self, LogFormat, SettingError, Settings, hidden};
use crate::telemetry::{Given, TraceError, Traces, report_runs};
use crate::{auth, graphs, metrics};

pub use test_clock::TestClock;
use tls::Tls;

/// Reason why a server did not start.
#[derive(thiserror::Error)]
pub enum ServeError {
    /// No store is named, and there is no default.
    #[error(transparent)]
    NoStore(#[from] SettingError),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] abide::Error),
    /// The directory of the default store could not be created.
    #[error("cannot create the directory of the store: {0}")]
    Directory(std::io::Error),
    /// The address to listen on is invalid.
    #[error("invalid address to listen on, {listen:?}: {problem}; write HOST:PORT")]
    Address {
        /// The value that was given.
        listen: String,
        /// The problem with it.
        problem: String,
    },
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The address is reachable from other computers, and the store has no token, so requests would not be
    /// authenticated.
    #[error(
        "{address} is reachable from other machines, and the store has no token: create one first, or listen on 127.0.0.1"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
    /// The test clock was refused: other computers could move the time, or the store is not in memory.
    #[error(
        "a test clock lets every caller move the time: it is for a store in memory, and not for {problem}; write --store memory: --listen 127.0.0.1:7070"
    )]
    TestClock {
        /// The store or the address for which it was refused.
        problem: String,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot serve TLS: {0}")]
    Tls(String),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// A webhook could not be set up.
    #[error("{0}")]
    Hooks(String),
    /// The configuration of NATS is invalid, or NATS cannot be read as configured.
    #[error("{0}")]
    Nats(String),
}

abide_kernel::debug_is_display!(ServeError);

/// Sets up logging and tracing as configured.
pub fn observe(settings: &Settings) -> Result<Traces, ServeError> {
    let given = Given {
        endpoint: settings.otel_endpoint.as_deref(),
        protocol: settings.otel_protocol,
    };
    let mut warnings = Vec::new();
    let traces = Traces::begin(given, &hidden(settings.store()?), &mut warnings)?;
    let format = settings
        .log_format
        .unwrap_or(match std::io::stderr().is_terminal() {
            true => LogFormat::Text,
            false => LogFormat::Json,
        });
    // The level was validated when the settings were read.
    let filter: tracing_subscriber::EnvFilter = settings.log_level.parse().unwrap_or_default();
    let layer = tracing_subscriber::fmt::layer().with_writer(Log::to(std::io::stderr()));
    let log = match format {
        LogFormat::Text => layer
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(filter)
            .boxed(),
        LogFormat::Json => {
            let format = Json(Format::default().json().flatten_event(true));
            layer
                .json()
                .event_format(format)
                .with_filter(filter)
                .boxed()
        }
    };
    let registry = tracing_subscriber::registry().with(log);
    #[cfg(feature = "otel")]
    let registry = registry.with(
        traces
            .is_on()
            .then(|| crate::telemetry::StepLayer::new(traces.clone())),
    );
    // This fails if logging was set up before. Then the earlier subscriber stays.
    let _ = registry.try_init();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(traces)
}

/// Serves until the process gets a signal to stop. Then it accepts no more connections, answers waiting requests at
/// once, finishes running requests within the grace time, and closes the store. A second signal ends the process at
/// once.
pub async fn run(mut settings: Settings, traces: Traces) -> Result<(), ServeError> {
    metrics::install();
    for hook in &mut settings.hooks {
        hook.fetch().map_err(ServeError::Hooks)?;
    }
    let addresses = resolved(&settings.listen).await?;
    // The handlers are installed before the first wait. Otherwise signals would not end the first process of a
    // container.
    let mut signals = StopSignals::listen()?;
    if !settings.ignored_variables.is_empty() {
        let names = settings.ignored_variables.join(", ");
        tracing::warn!(
            variables = names,
            "variables that are not settings were ignored"
        );
    }
    let abide = match &settings.test_clock {
        Some(clock) => in_memory(&settings, clock.clone(), &addresses)?,
        None => {
            let store = settings.store()?;
            settings::prepare(store).map_err(ServeError::Directory)?;
            opened(&settings, store, &mut signals).await?
        }
    };
    let ended = serve(&abide, settings, traces.clone(), &addresses, signals).await;
    abide.close().await;
    // Blocks until the last traces are sent.
    let _ = tokio::task::spawn_blocking(move || traces.close()).await;
    ended
}

/// Opens the store. If the database is unavailable, waits for it for up to `store_wait_ms`.
///
/// A database and the server are often started together, and the database needs longer. A request to stop ends the
/// wait.
async fn opened(
    settings: &Settings,
    store: &str,
    signals: &mut StopSignals,
) -> Result<Abide, ServeError> {
    // A file exists or does not exist; waiting does not help.
    let wait = match store.starts_with("sqlite:") {
        true => Duration::ZERO,
        false => settings.store_wait,
    };
    let until = Instant::now() + wait;
    let mut backoff = Backoff::away();
    loop {
        let error = match settings.open_options().open(store).await {
            Err(OpenError::Error(error @ abide::Error::Unavailable(_))) => error,
            opened => return Ok(opened?),
        };
        let left = until.saturating_duration_since(Instant::now());
        let delay = backoff.failed().unwrap_or_default();
        if left < delay {
            return Err(error.into());
        }
        // Logs the first failure, and then each time the number of failures has doubled.
        if backoff.failures().is_power_of_two() {
            tracing::warn!(%error, left = ?left, "waiting for the store");
        }
        tokio::select! {
            () = signals.stop() => return Err(error.into()),
            () = tokio::time::sleep(delay) => {}
        }
    }
}

/// Opens a store in memory with a test clock, for tests of applications.
fn in_memory(
    settings: &Settings,
    clock: Arc<TestClock>,
    addresses: &[SocketAddr],
) -> Result<Abide, ServeError> {
    let refused = |problem: String| Err(ServeError::TestClock { problem });
    let store = settings.store()?;
    if store != "memory:" {
        return refused(hidden(store));
    }
    if let Some(address) = addresses.iter().find(|one| !one.ip().is_loopback()) {
        return refused(format!("{address}, which others can reach"));
    }
    tracing::warn!("this server has a test clock: every caller may move its time");
    let store = Memory::new(clock, settings.limits.clone());
    Ok(settings.open_options().on(Arc::new(store)))
}

async fn serve(
    abide: &Abide,
    settings: Settings,
    traces: Traces,
    addresses: &[SocketAddr],
    mut signals: StopSignals,
) -> Result<(), ServeError> {
    let store = hidden(settings.store()?);
    let ready = Ready::bound(abide, settings, traces, addresses).await?;
    let address = ready.address();
    let scheme = if ready.tls.is_some() { "https" } else { "http" };
    println!("listening on {scheme}://{address}, store {store}");
    tracing::info!(%address, store, version = env!("CARGO_PKG_VERSION"), "ready");
    let until = async {
        signals.stop().await;
        tokio::spawn(async move {
            signals.stop_again().await;
            tracing::warn!("second request to stop: ending at once");
            std::process::exit(1);
        });
    };
    ready.serve(until).await;
    tracing::info!("shut down");
    Ok(())
}

/// Signals within this time after the first one count as the same request.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// The signals that ask this process to stop.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the signal handlers.
    pub(crate) fn listen() -> Result<Self, ServeError> {
        let (Ok(terminate), Ok(interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            return Err(abide::Error::Broken("cannot install signal handlers".into()).into());
        };
        Ok(Self {
            terminate,
            interrupt,
        })
    }

    /// Waits for a signal to stop: SIGTERM, or SIGINT (ctrl-c).
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for a second request to stop. A signal that arrives shortly after the first one does not count, because
    /// some programs, such as timeout(1), signal both the process and its group.
    pub(crate) async fn stop_again(&mut self) {
        let first = Instant::now();
        while first.elapsed() < SAME_REQUEST {
            self.stop().await;
        }
    }
}

/// A server that listens. Connections are accepted when it [serves](Self::serve).
pub struct Ready {
    app: App,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    address: SocketAddr,
    engine: graphs::Engine,
    sources: Sources,
    runs: JoinHandle<()>,
    /// Stops the tasks that watch the ends of runs and the files of the certificate.
    over: CancellationToken,
}

impl Ready {
    /// Listens on the configured address, for a store that is already open.
    pub async fn over(
        abide: &Abide,
        settings: Settings,
        traces: Traces,
    ) -> Result<Self, ServeError> {
        let addresses = resolved(&settings.listen).await?;
        Self::bound(abide, settings, traces, &addresses).await
    }

    async fn bound(
        abide: &Abide,
        settings: Settings,
        traces: Traces,
        addresses: &[SocketAddr],
    ) -> Result<Self, ServeError> {
        if let Some(token) = &settings.bootstrap_token {
            auth::bootstrap(&**abide.store(), token).await?;
        }
        let outside = addresses.iter().find(|address| !address.ip().is_loopback());
        if let Some(&address) = outside
            && auth::list(&**abide.store()).await?.is_empty()
        {
            return Err(ServeError::Unguarded { address });
        }
        let unproven = settings
            .hooks
            .iter()
            .find(|hook| hook.scheme == Scheme::None);
        if let (Some(address), Some(hook)) = (outside, unproven) {
            let text = format!(
                "the webhooks of {:?} are not authenticated (scheme none), and {address} is reachable from other machines: give it a scheme and a secret, or listen on 127.0.0.1",
                hook.source
            );
            return Err(ServeError::Hooks(text));
        }
        let over = CancellationToken::new();
        let tls = match settings.tls.pair() {
            Some((cert, key)) => Some(Tls::begin(cert, key, over.clone()).await?),
            None => None,
        };
        metrics::install();
        socket::raise_limit();
        let listener = bound(addresses).await?;
        let address = listener
            .local_addr()
            .map_err(|error| listening(addresses, error))?;
        let options = graphs::Options {
            name: settings
                .name
                .clone()
                .unwrap_or_else(|| graphs::name(address)),
            retention: settings.retention,
            grace: settings.grace,
        };
        let app = App::new(abide.clone(), settings, traces.clone());
        if outside.is_some() {
            app.tokens().insist();
        }
        let sources = Sources::start(abide, &app.settings().nats).await;
        let sources = sources.map_err(ServeError::Nats)?;
        let engine = graphs::Engine::start(abide, options, app.graphs().clone()).await?;
        let runs = tokio::spawn(report_runs(abide.store().clone(), traces, over.clone()));
        Ok(Self {
            app,
            listener,
            tls,
            address,
            engine,
            sources,
            runs,
            over,
        })
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `until` completes, then shuts down in order. The store stays open.
    pub async fn serve(self, until: impl Future<Output = ()>) {
        let service = http::service(&self.app);
        let (grace, drain) = (self.app.settings().grace, self.app.settings().drain);
        let leaving = self.app.leaving().clone();
        let until = async {
            until.await;
            leaving.cancel();
            if !drain.is_zero() {
                tracing::info!(?drain, "stop requested: no longer ready, still answering");
                tokio::time::sleep(drain).await;
            }
        };
        let connections =
            connection::accept(&self.app, self.listener, self.tls, service, until).await;
        self.app.draining().cancel();
        tracing::info!("shutting down: no more connections; running requests are finished");
        connections.finish(grace).await;
        self.app.workers().hub.end().await;
        self.sources.shutdown().await;
        self.engine.shutdown().await;
        self.over.cancel();
        // The task ends when it is cancelled; it cannot fail.
        let _ = self.runs.await;
    }
}

/// Time limit for resolving the name of a host.
const LOOKUP: Duration = Duration::from_secs(5);

async fn resolved(listen: &str) -> Result<Vec<SocketAddr>, ServeError> {
    let bad = |problem: String| ServeError::Address {
        listen: listen.to_owned(),
        problem,
    };
    let lookup = tokio::time::timeout(LOOKUP, tokio::net::lookup_host(listen)).await;
    let found: Vec<SocketAddr> = lookup
        .map_err(|_| bad("the host name could not be resolved in time".to_owned()))?
        .map_err(|error| bad(error.to_string()))?
        .collect();
    match found.is_empty() {
        true => Err(bad("the host name has no address".to_owned())),
        false => Ok(found),
    }
}

async fn bound(addresses: &[SocketAddr]) -> Result<TcpListener, ServeError> {
    TcpListener::bind(addresses)
        .await
        .map_err(|error| listening(addresses, error))
}

fn listening(addresses: &[SocketAddr], error: std::io::Error) -> ServeError {
    let address = addresses
        .first()
        .copied()
        .unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    ServeError::Listen { address, error }
}
