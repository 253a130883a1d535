//! The state that all requests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::model::{Cause, Command, Limits};
use abide::store::Store;
use abide::time::Timestamp;
use abide_kernel::model::Claimed;
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

use crate::auth::Tokens;
use crate::graphs::Put;
use crate::hooks::Hook;
use crate::metrics::Depths;
use crate::settings::Settings;
use crate::telemetry::{AttemptTrace, MessageTrace, Traces};
use crate::workers::Workers;

use super::budgets::Budgets;
use super::feed::Feed;
use super::health::Readiness;

/// The state that all requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    abide: Abide,
    settings: Settings,
    traces: Traces,
    tokens: Tokens,
    depths: Depths,
    readiness: Readiness,
    budgets: Arc<Budgets>,
    feed: Feed,
    workers: Workers,
    graphs: Put,
    leaving: CancellationToken,
    draining: CancellationToken,
    born: Instant,
}

impl App {
    /// Makes the state for an open store.
    pub fn new(abide: Abide, settings: Settings, traces: Traces) -> Self {
        let (store, draining) = (abide.store(), CancellationToken::new());
        Self(Arc::new(Shared {
            tokens: Tokens::new(store.clone()),
            depths: Depths::begin(store.clone(), draining.clone()),
            readiness: Readiness::begin(store.clone(), &settings.listen, draining.clone()),
            budgets: Arc::new(Budgets::new(
                settings.in_flight,
                settings.long_polls,
                settings.receiving_bytes,
                settings.body_bytes,
            )),
            feed: Feed::new(),
            workers: Workers::begin(abide.store()),
            graphs: Put::default(),
            leaving: CancellationToken::new(),
            draining,
            born: Instant::now(),
            settings,
            traces,
            abide,
        }))
    }

    /// The client.
    pub fn abide(&self) -> &Abide {
        &self.0.abide
    }

    /// The store, for operations that the client does not have.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.0.abide.store()
    }

    /// The size limits.
    pub fn limits(&self) -> &Limits {
        &self.0.settings.limits
    }

    /// The server's settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The destination of traces.
    pub fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Reports a command that was accepted, and the span of its sender, to the traces.
    pub(crate) fn trace(&self, record: &Command, headers: &HeaderMap) {
        if self.traces().is_on()
            && let Some(message) = MessageTrace::of(record, Some(headers))
        {
            self.traces().message(&message);
        }
    }

    /// Reports to the traces what a claim reveals: the events that woke the instance, and the attempt before it if its
    /// worker is gone.
    pub(crate) fn trace_claim(&self, claimed: &Claimed, now: Timestamp) {
        if !self.traces().is_on() {
            return;
        }
        for event in claimed
            .awaited
            .iter()
            .filter(|one| one.name.event_type().is_some())
        {
            if let Some(message) = MessageTrace::of(event, None) {
                self.traces().message(&message);
            }
        }
        if claimed.cause == Cause::Reclaim
            && let Some(lost) = AttemptTrace::lost(claimed, now)
        {
            self.traces().attempt(&lost);
        }
    }

    /// Cancelled when the server is asked to stop. It still answers all requests for `drain_ms`, but is not ready any
    /// more, so that load balancers send requests elsewhere.
    pub fn leaving(&self) -> &CancellationToken {
        &self.0.leaving
    }

    /// Cancelled when the server shuts down. Handlers that wait then answer at once, with what there is.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// The time since this process began to serve.
    pub fn uptime(&self) -> Duration {
        self.0.born.elapsed()
    }

    /// The services for workers over HTTP.
    pub fn workers(&self) -> &Workers {
        &self.0.workers
    }

    /// Notifies this server's engine that a graph was declared, so that it advances the graph at once.
    pub fn graphs(&self) -> &Put {
        &self.0.graphs
    }

    /// The webhook source of this name.
    pub fn hook(&self, source: &str) -> Option<&Hook> {
        self.0
            .settings
            .hooks
            .iter()
            .find(|hook| hook.source == source)
    }

    /// The changes on the whole server.
    pub(crate) fn feed(&self) -> &Feed {
        &self.0.feed
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn depths(&self) -> &Depths {
        &self.0.depths
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    pub(crate) fn budgets(&self) -> &Arc<Budgets> {
        &self.0.budgets
    }
}
