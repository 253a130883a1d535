//! What all requests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::{Abide, Cause, Command, Limits, Store, Timestamp};
use abide_kernel::model::Claimed;
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

use crate::auth::Tokens;
use crate::graphs::Put;
use crate::hooks::Hook;
use crate::metrics::Depths;
use crate::settings::Settings;
use crate::telemetry::{Attempt, Message, Traces};
use crate::workers::Workers;

use super::feed::Feed;
use super::health::Readiness;
use super::places::Places;

/// What all requests share. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    abide: Abide,
    settings: Settings,
    traces: Traces,
    tokens: Tokens,
    depths: Depths,
    readiness: Readiness,
    places: Arc<Places>,
    feed: Feed,
    workers: Workers,
    graphs: Put,
    draining: CancellationToken,
    born: Instant,
}

impl App {
    /// An app over an open store.
    pub fn new(abide: Abide, settings: Settings, traces: Traces) -> Self {
        let (store, draining) = (abide.store(), CancellationToken::new());
        Self(Arc::new(Shared {
            tokens: Tokens::new(store.clone()),
            depths: Depths::begin(store.clone(), draining.clone()),
            readiness: Readiness::begin(store.clone(), &settings.listen, draining.clone()),
            places: Arc::new(Places::new(
                settings.in_flight,
                settings.long_polls,
                settings.receiving_bytes,
                settings.body_bytes,
            )),
            feed: Feed::new(),
            workers: Workers::begin(abide.store()),
            graphs: Put::default(),
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

    /// The store behind it, for what a client has no word for.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.0.abide.store()
    }

    /// How large things may get.
    pub fn limits(&self) -> &Limits {
        &self.0.settings.limits
    }

    /// What the server was told.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Where traces go.
    pub fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Tells of a message that was accepted, and of the span that it was sent in.
    pub(crate) fn trace(&self, record: &Command, headers: &HeaderMap) {
        if self.traces().is_on()
            && let Some(message) = Message::of(record, Some(headers))
        {
            self.traces().message(&message);
        }
    }

    /// Tells of what comes to light when an instance is claimed: the events that woke it, and the attempt before it when the
    /// worker that made that one is gone.
    pub(crate) fn trace_claim(&self, claimed: &Claimed, now: Timestamp) {
        if !self.traces().is_on() {
            return;
        }
        for event in claimed
            .awaited
            .iter()
            .filter(|one| one.name.event_type().is_some())
        {
            if let Some(message) = Message::of(event, None) {
                self.traces().message(&message);
            }
        }
        if claimed.cause == Cause::Reclaim
            && let Some(lost) = Attempt::lost(claimed, now)
        {
            self.traces().attempt(&lost);
        }
    }

    /// Cancelled when the server shuts down: whoever waits for something answers at once then, with what there is.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// For how long this process has been serving.
    pub fn uptime(&self) -> Duration {
        self.0.born.elapsed()
    }

    /// What workers over HTTP are served by.
    pub fn workers(&self) -> &Workers {
        &self.0.workers
    }

    /// To be told when a graph was put, so that this server's engine advances it at once.
    pub fn graphs(&self) -> &Put {
        &self.0.graphs
    }

    /// The webhook source of that name.
    pub fn hook(&self, source: &str) -> Option<&Hook> {
        self.0
            .settings
            .hooks
            .iter()
            .find(|hook| hook.source == source)
    }

    /// What changes on the whole server.
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

    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.0.places
    }
}
