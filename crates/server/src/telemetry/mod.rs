//! Traces: one closed span for each attempt at a step, linked to what woke it.
//!
//! All spans of a run are one trace. Ids are made of what they stand for (the run, the step and its attempt, the
//! message), so that any server can link to a span that another one sent, and nothing is stored for it.

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod ids;
#[cfg(feature = "otel")]
mod layer;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use abide::{Cause, Command, CommandId, InstanceId, Store, Target, Timestamp};
use abide_kernel::model::Claimed;
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "otel")]
pub use layer::StepLayer;

/// An attempt at a step that has ended, as a trace tells of it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The run.
    pub instance: InstanceId,
    /// The machine.
    pub machine: String,
    /// Its version.
    pub version: u32,
    /// The step.
    pub step: String,
    /// The step's number in the run.
    pub step_sequence: u32,
    /// How often it was begun before.
    pub attempt: u32,
    /// What kind of thing woke it.
    pub cause: Option<Cause>,
    /// The messages that woke it.
    pub woken_by: Vec<CommandId>,
    /// The children whose end woke it.
    pub joined: Vec<InstanceId>,
    /// Who ran it.
    pub worker: String,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// What it came to: the outcome's name, or `stale`, `refused`, `lost`.
    pub outcome: String,
    /// What went wrong, if anything did.
    pub error: Option<String>,
}

impl Attempt {
    /// The attempt before that of a claim, whose worker is gone: when it began is not known any more.
    pub fn lost(claimed: &Claimed, now: Timestamp) -> Option<Self> {
        Some(Self {
            instance: claimed.claim.id(),
            machine: claimed.machine.to_string(),
            version: claimed.version,
            step: claimed.step.to_string(),
            step_sequence: claimed.step_seq,
            attempt: claimed.attempt.checked_sub(1)?,
            cause: None,
            woken_by: claimed.awaited.iter().map(|message| message.id).collect(),
            joined: claimed.children.iter().map(|child| child.id).collect(),
            worker: String::new(),
            began: moment(now),
            ended: moment(now),
            outcome: "lost".to_owned(),
            error: Some("the worker that ran it is gone: its lease ran out".to_owned()),
        })
    }
}

/// A signal, an update or an event that was accepted for a run.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its record.
    pub id: CommandId,
    /// The run that has it.
    pub instance: InstanceId,
    /// Its name.
    pub name: String,
    /// `signal`, `update` or `event`.
    pub kind: &'static str,
    /// When it came.
    pub at: SystemTime,
    /// The sender's own span, as its `traceparent` header names it.
    pub traceparent: Option<String>,
}

impl Message {
    /// What a record tells; none while nobody has it. The request that brought it may name the span that it was sent in.
    pub fn of(record: &Command, headers: Option<&HeaderMap>) -> Option<Self> {
        let traceparent = headers.and_then(|headers| headers.get("traceparent"));
        let (kind, name) = record.kind_and_name();
        Some(Self {
            id: record.id,
            instance: record.instance?,
            name: name.to_string(),
            kind,
            at: moment(record.received_at),
            traceparent: traceparent.and_then(|text| Some(text.to_str().ok()?.to_owned())),
        })
    }
}

/// A moment as the system writes it.
pub(crate) fn moment(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// Tells of every run whose end this process commits, until it is cancelled.
pub async fn tell_of_runs(store: Arc<dyn Store>, traces: Traces, over: CancellationToken) {
    if !traces.is_on() {
        return;
    }
    let mut news = store.listen();
    while let Some(Some(effects)) = over.run_until_cancelled(news.next()).await {
        for id in &effects.ended {
            match store.get(&Target::Id(*id)).await {
                Ok(Some(instance)) => traces.run(&instance),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, instance = %id, "no trace is told of a run"),
            }
        }
    }
}

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The binary cannot do it.
    #[error(
        "this abide was built without traces: build it with the feature `otel`, or leave `otel_endpoint` out"
    )]
    NotBuilt,
    /// The place to send them to is none.
    #[error(
        "traces cannot be sent to {endpoint:?}: {problem}; write the address of an OTLP collector, such as http://127.0.0.1:4318"
    )]
    BadEndpoint {
        /// The address.
        endpoint: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Where traces go. Cheap to clone; without an endpoint it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    #[cfg(feature = "otel")]
    to: Option<std::sync::Arc<export::Exporter>>,
}

impl Traces {
    /// Traces that go nowhere.
    pub fn off() -> Self {
        Self::default()
    }

    /// Traces that go to an OTLP collector over HTTP. Servers that share a database give the same `namespace`, so that
    /// they mean the same spans.
    #[cfg(feature = "otel")]
    pub fn to(endpoint: &str, namespace: &str) -> Result<Self, TraceError> {
        let exporter = export::Exporter::new(endpoint, namespace)?;
        Ok(Self {
            to: Some(std::sync::Arc::new(exporter)),
        })
    }

    /// Traces that go to an OTLP collector over HTTP; this binary was built without them.
    #[cfg(not(feature = "otel"))]
    pub fn to(_endpoint: &str, _namespace: &str) -> Result<Self, TraceError> {
        Err(TraceError::NotBuilt)
    }

    /// Whether they go anywhere.
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "otel")]
        return self.to.is_some();
        #[cfg(not(feature = "otel"))]
        false
    }

    /// Tells of an attempt at a step.
    pub fn attempt(&self, attempt: &Attempt) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.attempt(attempt);
        }
        #[cfg(not(feature = "otel"))]
        let _ = attempt;
    }

    /// Tells of a message that was accepted.
    pub fn message(&self, message: &Message) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.message(message);
        }
        #[cfg(not(feature = "otel"))]
        let _ = message;
    }

    /// Tells of a run from its start to its end.
    pub fn run(&self, instance: &abide::Instance) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.run(instance);
        }
        #[cfg(not(feature = "otel"))]
        let _ = instance;
    }

    /// Sends what is left. Blocks for a few seconds at most: call it where that does no harm.
    pub fn close(&self) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.close();
        }
    }
}
