//! The server's life: it opens the store, listens, and ends in order.

mod activity;
mod connection;
mod socket;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use abide::{Abide, OpenError};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::prelude::*;

use crate::hooks::Scheme;
use crate::http::{self, App};
use crate::nats::Sources;
use crate::settings::{self, LogFormat, Settings, hidden};
use crate::telemetry::{TraceError, Traces, tell_of_runs};
use crate::{auth, graphs, metrics};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] abide::Error),
    /// The directory of the default store could not be made.
    #[error("the directory of the store cannot be made: {0}")]
    Directory(std::io::Error),
    /// What to listen on is no address.
    #[error("{listen:?} is no address to listen on: {problem}; write HOST:PORT")]
    Address {
        /// What was given.
        listen: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The address is not to be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// Others could reach the server, and nobody would ask them for a token.
    #[error(
        "{address} can be reached by others, and there is no token in the store: make one first, or listen on 127.0.0.1"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// A webhook could not be set up.
    #[error("{0}")]
    Hooks(String),
    /// Events cannot be read from NATS as the settings say.
    #[error("{0}")]
    Nats(String),
}

/// Begins to log and to trace as the settings say.
pub fn observe(settings: &Settings) -> Result<Traces, ServeError> {
    let traces = match &settings.otel_endpoint {
        Some(endpoint) => Traces::to(endpoint, &hidden(&settings.store))?,
        None => Traces::off(),
    };
    let format = settings
        .log_format
        .unwrap_or(match std::io::stderr().is_terminal() {
            true => LogFormat::Text,
            false => LogFormat::Json,
        });
    // Checked when it was read.
    let filter: tracing_subscriber::EnvFilter = settings.log_level.parse().unwrap_or_default();
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let log = match format {
        LogFormat::Text => layer
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(filter)
            .boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let registry = tracing_subscriber::registry().with(log);
    #[cfg(feature = "otel")]
    let registry = registry.with(
        traces
            .is_on()
            .then(|| crate::telemetry::StepLayer::new(traces.clone())),
    );
    // Whoever has begun to log before goes on.
    let _ = registry.try_init();
    Ok(traces)
}

/// Serves until the process is told to stop: then no more connections are taken, whoever waits is answered at once, what
/// runs is finished within the grace time, and the store is closed. Told a second time, the process ends at once.
pub async fn run(mut settings: Settings, traces: Traces) -> Result<(), ServeError> {
    for hook in &mut settings.hooks {
        hook.fetch().map_err(ServeError::Hooks)?;
    }
    let addresses = resolved(&settings.listen).await?;
    settings::prepare(&settings.store).map_err(ServeError::Directory)?;
    let abide = settings.open_options().open(&settings.store).await?;
    let ended = serve(&abide, settings, traces.clone(), &addresses).await;
    abide.close().await;
    // It blocks until the last of them are sent.
    let _ = tokio::task::spawn_blocking(move || traces.close()).await;
    ended
}

async fn serve(
    abide: &Abide,
    settings: Settings,
    traces: Traces,
    addresses: &[SocketAddr],
) -> Result<(), ServeError> {
    let store = hidden(&settings.store);
    // Before it says that it is ready: a signal that comes then must find somebody.
    let mut told = Told::listen()?;
    let ready = Ready::bound(abide, settings, traces, addresses).await?;
    let address = ready.address();
    println!("listening on http://{address}, store {store}");
    tracing::info!(%address, store, version = env!("CARGO_PKG_VERSION"), "ready");
    let until = async {
        told.stop().await;
        tokio::spawn(async move {
            told.again().await;
            tracing::warn!("told twice to stop: ending at once");
            std::process::exit(1);
        });
    };
    ready.serve(until).await;
    tracing::info!("shut down");
    Ok(())
}

/// How long after a signal another one is the same.
const SAME_WORD: Duration = Duration::from_millis(500);

/// What the system tells the process.
pub(crate) struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Told {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, ServeError> {
        let (Ok(terminate), Ok(interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            return Err(abide::Error::Broken("the system gives no signals".into()).into());
        };
        Ok(Self {
            terminate,
            interrupt,
        })
    }

    /// Until it is told to stop: by SIGTERM, or by ctrl-c.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Until it is told once more. What comes at once after the first is the same word: some, such as timeout(1), tell both
    /// the process and its group.
    pub(crate) async fn again(&mut self) {
        let first = Instant::now();
        while first.elapsed() < SAME_WORD {
            self.stop().await;
        }
    }
}

/// A server that listens: who connects is answered as soon as it [serves](Self::serve).
pub struct Ready {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    engine: graphs::Engine,
    sources: Sources,
    runs: JoinHandle<()>,
    runs_told: CancellationToken,
}

impl Ready {
    /// Listens where the settings say, over a store that is open.
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
                "the webhooks of {:?} bring no proof (scheme none), and {address} can be reached by others: give it a scheme and a secret, or listen on 127.0.0.1",
                hook.source
            );
            return Err(ServeError::Hooks(text));
        }
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
        let runs_told = CancellationToken::new();
        let runs = tokio::spawn(tell_of_runs(
            abide.store().clone(),
            traces,
            runs_told.clone(),
        ));
        Ok(Self {
            app,
            listener,
            address,
            engine,
            sources,
            runs,
            runs_told,
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until then, and ends in order. The store stays open.
    pub async fn serve(self, until: impl Future<Output = ()>) {
        let service = http::service(&self.app);
        let grace = self.app.settings().grace;
        let connections = connection::accept(&self.app, self.listener, service, until).await;
        self.app.draining().cancel();
        tracing::info!("shutting down: no more connections; what runs is finished");
        connections.finish(grace).await;
        self.app.workers().hub.end().await;
        self.sources.shutdown().await;
        self.engine.shutdown().await;
        self.runs_told.cancel();
        // It ends when it is told to; it cannot fail.
        let _ = self.runs.await;
    }
}

/// How long the name of a host may take to be looked up.
const LOOKUP: Duration = Duration::from_secs(5);

async fn resolved(listen: &str) -> Result<Vec<SocketAddr>, ServeError> {
    let bad = |problem: String| ServeError::Address {
        listen: listen.to_owned(),
        problem,
    };
    let looked = tokio::time::timeout(LOOKUP, tokio::net::lookup_host(listen)).await;
    let found: Vec<SocketAddr> = looked
        .map_err(|_| bad("its name could not be looked up in time".to_owned()))?
        .map_err(|error| bad(error.to_string()))?
        .collect();
    match found.is_empty() {
        true => Err(bad("its name stands for nothing".to_owned())),
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
