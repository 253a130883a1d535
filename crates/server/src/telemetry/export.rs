//! Sends spans to a collector, in batches, from a thread of its own.

use std::time::SystemTime;

use abide::model::Instance;
use abide::{InstanceId, Status};
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status as SpanStatus};
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{Protocol as Encoding, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Sampler, SamplingDecision, ShouldSample, SpanData, SpanEvents, SpanLinks,
    SpanProcessor,
};

use super::client::Client;
use super::ids::{Ids, parent};
use super::target::{Protocol, Sampling, Target};
use super::{AttemptTrace, MessageTrace, TraceError, moment};
use crate::settings::hidden;

/// Maximum number of links of a span to what woke it.
const LINKS: usize = 128;

#[derive(Debug)]
pub(super) struct Exporter {
    ids: Ids,
    processor: BatchSpanProcessor,
    sampler: Sampler,
    scope: InstrumentationScope,
}

impl Exporter {
    /// Makes an exporter to a target. Must be called within a runtime, which then sends the requests.
    pub fn new(target: &Target, namespace: &str) -> Result<Self, TraceError> {
        let bad = |problem: String| TraceError::BadEndpoint {
            endpoint: hidden(&target.endpoint),
            problem,
        };
        let client = Client::new(target).map_err(bad)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(&target.endpoint)
            .with_protocol(match target.protocol {
                Protocol::HttpJson => Encoding::HttpJson,
                Protocol::HttpProtobuf | Protocol::Grpc => Encoding::HttpBinary,
            })
            .with_timeout(target.timeout)
            .build()
            .map_err(|error| bad(error.to_string()))?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(&resource(namespace));
        Ok(Self {
            ids: Ids::new(namespace),
            processor,
            sampler: match target.sampling {
                Sampling::All => Sampler::AlwaysOn,
                Sampling::None => Sampler::AlwaysOff,
                Sampling::Part(part) => Sampler::TraceIdRatioBased(part),
            },
            scope: InstrumentationScope::builder("abide")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        })
    }

    /// `true` if the run of a span is traced. The id of the trace decides, so all servers decide the same.
    fn is_sampled(&self, span: &Span) -> bool {
        let trace = span.context.trace_id();
        let sampled = self
            .sampler
            .should_sample(None, trace, &span.name, &span.kind, &[], &[]);
        sampled.decision == SamplingDecision::RecordAndSample
    }

    pub fn attempt(&self, attempt: &AttemptTrace) {
        let run = attempt.instance;
        let woken = attempt.woken_by.iter().map(|id| self.ids.message(run, *id));
        let joined = attempt.joined.iter().map(|child| self.ids.run(*child));
        // If nothing from outside woke the step, it is linked to the attempt before it.
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

    pub fn message(&self, message: &MessageTrace) {
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
        if !self.is_sampled(&span) {
            return;
        }
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

/// The resource that sends the spans: from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, otherwise abide's own
/// values.
fn resource(namespace: &str) -> Resource {
    let detected = Resource::builder().build();
    let named = |key: &'static str| {
        let value = detected.get(&Key::new(key)).map(|value| value.to_string());
        value.filter(|value| !value.starts_with("unknown_service"))
    };
    let own = [
        ("service.name", "abide"),
        ("service.namespace", namespace),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let own = own.into_iter().filter(|(key, _)| named(key).is_none());
    let own = own.map(|(key, value)| KeyValue::new(key, value.to_owned()));
    Resource::builder().with_attributes(own).build()
}

/// A span to be sent.
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
