//! A tracing layer that reads the spans in which an engine of this process runs steps, and reports them as attempts.

use std::time::SystemTime;

use abide::InstanceId;
use abide::model::{Cause, CommandId};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::{AttemptTrace, Traces};

/// The target of the spans in which the library runs steps.
const STEP: &str = "abide::step";

/// Makes an [`AttemptTrace`] of each step that an engine of this process runs.
pub struct StepLayer {
    traces: Traces,
}

impl StepLayer {
    /// Makes a layer that reports to `traces`.
    pub fn new(traces: Traces) -> Self {
        Self { traces }
    }
}

impl<S> Layer<S> for StepLayer
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != STEP {
            return;
        }
        let Some(span) = context.span(id) else { return };
        let now = SystemTime::now();
        let mut reading = Reading(AttemptTrace {
            instance: InstanceId(0),
            machine: String::new(),
            version: 0,
            step: String::new(),
            step_sequence: 0,
            attempt: 0,
            cause: None,
            woken_by: Vec::new(),
            joined: Vec::new(),
            worker: String::new(),
            began: now,
            ended: now,
            outcome: "lost".to_owned(),
            error: None,
        });
        attributes.record(&mut reading);
        span.extensions_mut().insert(reading.0);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(attempt) = extensions.remove::<AttemptTrace>() {
            let mut reading = Reading(attempt);
            values.record(&mut reading);
            extensions.insert(reading.0);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        if let Some(mut attempt) = span.extensions_mut().remove::<AttemptTrace>() {
            attempt.ended = SystemTime::now();
            self.traces.attempt(&attempt);
        }
    }
}

/// Reads the fields of a span.
struct Reading(AttemptTrace);

impl Visit for Reading {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "instance" {
            self.0.instance = InstanceId(value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        match field.name() {
            "version" => self.0.version = value,
            "step_sequence" => self.0.step_sequence = value,
            "attempt" => self.0.attempt = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

impl Reading {
    fn text(&mut self, name: &str, value: &str) {
        let numbers = || {
            value
                .split(',')
                .filter_map(|number| number.trim().parse().ok())
        };
        match name {
            "machine" => self.0.machine = value.to_owned(),
            "step" => self.0.step = value.to_owned(),
            "worker" => self.0.worker = value.to_owned(),
            "outcome" => self.0.outcome = value.to_owned(),
            "error" => self.0.error = Some(value.to_owned()),
            "cause" => self.0.cause = serde_json::from_value::<Cause>(value.into()).ok(),
            "woken_by" => self.0.woken_by = numbers().map(CommandId).collect(),
            "joined" => self.0.joined = numbers().map(InstanceId).collect(),
            _ => {}
        }
    }
}
