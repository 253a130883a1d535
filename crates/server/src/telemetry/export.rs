//! Sends spans to a collector, in batches, from a thread of its own.

use std::time::{Duration, SystemTime};

use abide::{Instance, InstanceId, Status};
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status as SpanStatus};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};

use super::ids::{Ids, parent};
use super::{Attempt, Message, TraceError, moment};

/// A span names so many of those that woke it.
const LINKS: usize = 128;

#[derive(Debug)]
pub(super) struct Exporter {
    ids: Ids,
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl Exporter {
    pub fn new(endpoint: &str, namespace: &str) -> Result<Self, TraceError> {
        let bad = |problem: String| TraceError::BadEndpoint {
            endpoint: endpoint.to_owned(),
            problem,
        };
        let whole = endpoint.trim_end_matches('/');
        if !whole.starts_with("http://") && !whole.starts_with("https://") {
            return Err(bad("it is no http address".to_owned()));
        }
        let whole = match whole.ends_with("/v1/traces") {
            true => whole.to_owned(),
            false => format!("{whole}/v1/traces"),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(whole)
            .with_protocol(Protocol::HttpJson)
            .with_timeout(Duration::from_secs(5))
            .build()
            .map_err(|error| bad(error.to_string()))?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name("abide")
            .with_attribute(KeyValue::new("service.namespace", namespace.to_owned()))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        processor.set_resource(&resource);
        Ok(Self {
            ids: Ids::new(namespace),
            processor,
            scope: InstrumentationScope::builder("abide")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        })
    }

    pub fn attempt(&self, attempt: &Attempt) {
        let run = attempt.instance;
        let woken = attempt.woken_by.iter().map(|id| self.ids.message(run, *id));
        let joined = attempt.joined.iter().map(|child| self.ids.run(*child));
        // What is not woken by something from outside follows from the attempt before it.
        let earlier = match attempt.attempt.checked_sub(1) {
            Some(before) => Some((attempt.step_sequence, before)),
            None => attempt
                .step_sequence
                .checked_sub(1)
                .filter(|seq| *seq > 0)
                .map(|seq| (seq, 0)),
        };
        let mut links: Vec<SpanContext> = woken.chain(joined).take(LINKS).collect();
        if links.is_empty() {
            links.extend(earlier.map(|(seq, before)| self.ids.attempt(run, seq, before)));
        }
        let mut attributes = vec![
            KeyValue::new("abide.instance", run.0),
            KeyValue::new("abide.machine", attempt.machine.clone()),
            KeyValue::new("abide.version", i64::from(attempt.version)),
            KeyValue::new("abide.step", attempt.step.clone()),
            KeyValue::new("abide.step_sequence", i64::from(attempt.step_sequence)),
            KeyValue::new("abide.attempt", i64::from(attempt.attempt)),
            KeyValue::new("abide.worker", attempt.worker.clone()),
            KeyValue::new("abide.outcome", attempt.outcome.clone()),
        ];
        if let Some(cause) = attempt.cause {
            attributes.push(KeyValue::new("abide.cause", cause.name()));
        }
        self.send(Span {
            context: self
                .ids
                .attempt(run, attempt.step_sequence, attempt.attempt),
            within: Some(run),
            kind: SpanKind::Consumer,
            name: format!("{} {}", attempt.machine, attempt.step),
            from: attempt.began,
            to: attempt.ended,
            attributes,
            links,
            status: attempt
                .error
                .clone()
                .map_or(SpanStatus::Unset, SpanStatus::error),
        });
    }

    pub fn message(&self, message: &Message) {
        self.send(Span {
            context: self.ids.message(message.instance, message.id),
            within: Some(message.instance),
            kind: SpanKind::Producer,
            name: format!("{} {}", message.kind, message.name),
            from: message.at,
            to: message.at,
            attributes: vec![
                KeyValue::new("abide.instance", message.instance.0),
                KeyValue::new("abide.command", message.id.0),
            ],
            links: message
                .traceparent
                .as_deref()
                .and_then(parent)
                .into_iter()
                .collect(),
            status: SpanStatus::Unset,
        });
    }

    pub fn run(&self, instance: &Instance) {
        let Some(finished) = instance.finished_at else {
            return;
        };
        let failed = instance.status == Status::Failed;
        let error = instance.last_error.clone().filter(|_| failed);
        self.send(Span {
            context: self.ids.run(instance.id),
            within: None,
            kind: SpanKind::Internal,
            name: instance.machine.to_string(),
            from: moment(instance.created_at),
            to: moment(finished),
            attributes: vec![
                KeyValue::new("abide.instance", instance.id.0),
                KeyValue::new(
                    "abide.key",
                    instance
                        .key
                        .as_ref()
                        .map_or_else(String::new, ToString::to_string),
                ),
                KeyValue::new("abide.machine", instance.machine.to_string()),
                KeyValue::new("abide.version", i64::from(instance.version)),
                KeyValue::new("abide.status", instance.status.to_string()),
            ],
            links: instance
                .parent
                .map(|parent| self.ids.run(parent))
                .into_iter()
                .collect(),
            status: error.map_or(SpanStatus::Unset, SpanStatus::error),
        });
    }

    pub fn close(&self) {
        if let Err(error) = self.processor.shutdown() {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }

    fn send(&self, span: Span) {
        let parent = span.within.map(|run| self.ids.run(run).span_id());
        let mut links = SpanLinks::default();
        links.links = span.links.into_iter().map(Link::with_context).collect();
        self.processor.on_end(SpanData {
            span_context: span.context,
            parent_span_id: parent.unwrap_or(opentelemetry::trace::SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: span.from,
            end_time: span.to.max(span.from),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: span.status,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

/// A span that is about to be sent.
struct Span {
    context: SpanContext,
    within: Option<InstanceId>,
    kind: SpanKind,
    name: String,
    from: SystemTime,
    to: SystemTime,
    attributes: Vec<KeyValue>,
    links: Vec<SpanContext>,
    status: SpanStatus,
}
