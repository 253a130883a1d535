//! Traces: one closed span for each attempt at a step, linked to what woke it.
//!
//! All spans of a run are one trace. Ids are derived from what they identify (the run, the step and its attempt, the
//! command), so any server can link to a span that another one sent, and no id is stored.

#[cfg(feature = "otel")]
mod client;
#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod ids;
#[cfg(feature = "otel")]
mod layer;
#[cfg_attr(
    not(feature = "otel"),
    allow(
        dead_code,
        reason = "a binary without traces reads only what they would be"
    )
)]
mod target;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use abide::InstanceId;
use abide::model::{Cause, Command, CommandId, Target};
use abide::store::Store;
use abide::time::Timestamp;
use abide_kernel::model::Claimed;
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "otel")]
pub use layer::StepLayer;
pub use target::{Given, Protocol};

/// An attempt at a step that has ended, for a trace.
#[derive(Clone, Debug)]
pub struct AttemptTrace {
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
    /// The cause that woke it.
    pub cause: Option<Cause>,
    /// The commands that woke it.
    pub woken_by: Vec<CommandId>,
    /// The children whose ends woke it.
    pub joined: Vec<InstanceId>,
    /// The worker that ran it.
    pub worker: String,
    /// The time when it began.
    pub began: SystemTime,
    /// The time when it ended.
    pub ended: SystemTime,
    /// The name of its outcome, or `stale`, `refused`, `lost`.
    pub outcome: String,
    /// The error, if there was one.
    pub error: Option<String>,
}

impl AttemptTrace {
    /// The attempt before that of a claim, whose worker is gone. Its start time is not known. Returns `None` if the
    /// claim is the first attempt.
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
pub struct MessageTrace {
    /// Its id.
    pub id: CommandId,
    /// The run that accepted it.
    pub instance: InstanceId,
    /// Its name.
    pub name: String,
    /// `signal`, `update` or `event`.
    pub kind: &'static str,
    /// The time when it was received.
    pub at: SystemTime,
    /// The sender's span, from its `traceparent` header.
    pub traceparent: Option<String>,
}

impl MessageTrace {
    /// Describes a command. Returns `None` if no run has it yet. The headers of its request may name the sender's span.
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

/// Converts a timestamp to the time type of the system.
pub(crate) fn moment(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// Reports every run whose end this process commits, until it is cancelled.
pub async fn report_runs(store: Arc<dyn Store>, traces: Traces, over: CancellationToken) {
    if !traces.is_on() {
        return;
    }
    let mut listener = store.listen();
    while let Some(Some(effects)) = over.run_until_cancelled(listener.next()).await {
        for id in &effects.ended {
            match store.get(&Target::Id(*id)).await {
                Ok(Some(instance)) => traces.run(&instance),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, instance = %id, "a run is not traced: it could not be read")
                }
            }
        }
    }
}

/// Reason why traces cannot be sent.
#[derive(thiserror::Error)]
pub enum TraceError {
    /// The binary was built without traces.
    #[error(
        "this abide was built without traces: build it with the feature `otel`, or leave `otel_endpoint` out"
    )]
    NotBuilt,
    /// The endpoint is invalid.
    #[error(
        "traces cannot be sent to {endpoint:?}: {problem}; write the address of an OTLP collector, such as http://127.0.0.1:4318"
    )]
    BadEndpoint {
        /// The address.
        endpoint: String,
        /// The problem with it.
        problem: String,
    },
}

abide_kernel::debug_is_display!(TraceError);

/// The destination of traces. Cheap to clone. Without an endpoint it does nothing.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    #[cfg(feature = "otel")]
    to: Option<std::sync::Arc<export::Exporter>>,
}

impl Traces {
    /// Makes a destination that discards traces.
    pub fn off() -> Self {
        Self::default()
    }

    /// Makes the destination that the settings give, or otherwise the standard variables of OpenTelemetry
    /// (`OTEL_EXPORTER_OTLP_…`). If neither names an endpoint, traces are discarded. Must be called within a runtime.
    /// Servers that share a database give the same `namespace`, so that they derive the same ids of spans. Values of
    /// the variables that are not understood are reported in `warnings`.
    #[cfg(feature = "otel")]
    pub fn begin(
        given: Given<'_>,
        namespace: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Self, TraceError> {
        let environment = |name: &str| std::env::var(name).ok();
        let begun = target::target(given, &environment, warnings).and_then(|target| {
            let begun = target.map(|target| export::Exporter::new(&target, namespace));
            begun.transpose()
        });
        match begun {
            Ok(to) => Ok(Self {
                to: to.map(std::sync::Arc::new),
            }),
            // An invalid variable that all programs share must not prevent the start.
            Err(error) if given.endpoint.is_none() => {
                warnings.push(format!("{error}; no traces are sent"));
                Ok(Self::off())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns an error if the settings give an endpoint, because this binary was built without traces.
    #[cfg(not(feature = "otel"))]
    pub fn begin(
        given: Given<'_>,
        _namespace: &str,
        _warnings: &mut Vec<String>,
    ) -> Result<Self, TraceError> {
        match given.endpoint {
            Some(_) => Err(TraceError::NotBuilt),
            None => Ok(Self::off()),
        }
    }

    /// `true` if traces are sent.
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "otel")]
        return self.to.is_some();
        #[cfg(not(feature = "otel"))]
        false
    }

    /// Reports an attempt at a step.
    pub fn attempt(&self, attempt: &AttemptTrace) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.attempt(attempt);
        }
        #[cfg(not(feature = "otel"))]
        let _ = attempt;
    }

    /// Reports a command that was accepted.
    pub fn message(&self, message: &MessageTrace) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.message(message);
        }
        #[cfg(not(feature = "otel"))]
        let _ = message;
    }

    /// Reports a run, from its start to its end.
    pub fn run(&self, instance: &abide::model::Instance) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.run(instance);
        }
        #[cfg(not(feature = "otel"))]
        let _ = instance;
    }

    /// Sends the remaining spans. Blocks for a few seconds at most, so do not call it on a thread of the runtime.
    pub fn close(&self) {
        #[cfg(feature = "otel")]
        if let Some(to) = &self.to {
            to.close();
        }
    }
}
