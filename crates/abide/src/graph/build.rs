//! Puts a graph together.

use std::time::Duration;

use abide_core::model::{
    EventSpec, GraphProblem, GraphSpec, Json, MatchSpec, Matches, RetrySpec, Right, SignalSpec,
    SkipIf, SleepSpec, StepSpec, SubGraph,
};
use serde::Serialize;

use super::{BadGraph, Graph};
use crate::message::{Event, REFERENCE, Test};
use crate::time::as_ms;

/// Puts a graph together, step by step; what follows a step is about that step. Made by [`Graph::builder`].
#[must_use = "finish it with `.build()`"]
pub struct GraphBuilder {
    spec: GraphSpec,
    problems: Vec<GraphProblem>,
}

/// A reference to what a run begins with, or to what a step came to: made by [`input`] and [`output`].
#[derive(Clone, Debug)]
pub struct Reference(String);

impl Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map([(REFERENCE, &self.0)])
    }
}

/// What the run begins with, at a path.
pub fn input(path: &str) -> Reference {
    Reference(format!("input.{path}"))
}

/// What a step came to, at a path.
pub fn output(step: &str, path: &str) -> Reference {
    Reference(format!("step.{step}.output.{path}"))
}

impl GraphBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            spec: GraphSpec {
                name,
                steps: Vec::new(),
            },
            problems: Vec::new(),
        }
    }

    fn step(mut self, name: impl Into<String>, set: impl FnOnce(&mut StepSpec)) -> Self {
        let mut step = StepSpec {
            name: name.into(),
            ..StepSpec::default()
        };
        set(&mut step);
        self.spec.steps.push(step);
        self
    }

    fn last(mut self, what: &str, set: impl FnOnce(&mut StepSpec)) -> Self {
        match self.spec.steps.last_mut() {
            Some(step) => set(step),
            None => self.problems.push(GraphProblem {
                step: None,
                message: format!("{what} is about the step before it, and there is none"),
            }),
        }
        self
    }

    fn wrong(&mut self, step: &str, message: String) {
        self.problems.push(GraphProblem {
            step: Some(step.to_owned()),
            message,
        });
    }

    /// A task, of the same name as the step.
    pub fn task(self, name: impl Into<String>) -> Self {
        let name = name.into();
        let task = name.clone();
        self.step(name, |step| step.task = Some(task))
    }

    /// A task of another name than the step.
    pub fn task_named(self, name: impl Into<String>, task: impl Into<String>) -> Self {
        let task = task.into();
        self.step(name, |step| step.task = Some(task))
    }

    /// Waits for an event, for that time at most; then it comes to `{"timeout": true}`.
    pub fn wait_for_event(
        mut self,
        name: impl Into<String>,
        event: Event,
        timeout: Duration,
    ) -> Self {
        let name = name.into();
        let (event_type, tests, lookback) = event.parts();
        let mut conditions = Vec::new();
        for (left, Test { op, right }) in tests {
            match right {
                Ok(right) => {
                    let right = right_of(right);
                    if matches!(&right, Right::Const(value) if is_referring(value)) {
                        self.wrong(&name, format!("{left} {op}: {NO_REFERENCE}"));
                    }
                    conditions.push(MatchSpec { left, op, right });
                }
                Err(error) => self.wrong(&name, format!("{left} {op}: {error}")),
            }
        }
        self.step(name, |step| {
            step.wait_for_event = Some(EventSpec {
                event: event_type,
                conditions: Matches(conditions),
                timeout_ms: as_ms(timeout),
                lookback_ms: lookback.map(as_ms),
            });
        })
    }

    /// Waits for a signal to the run; it comes to what that was sent with.
    pub fn wait_for_signal(self, name: impl Into<String>, signal: impl Into<String>) -> Self {
        let signal = signal.into();
        self.step(name, |step| {
            step.wait_for_signal = Some(SignalSpec {
                signal,
                timeout_ms: None,
            });
        })
    }

    /// Waits for time.
    pub fn sleep(self, name: impl Into<String>, time: Duration) -> Self {
        self.step(name, |step| {
            step.sleep = Some(SleepSpec {
                duration_ms: as_ms(time),
            });
        })
    }

    /// Another graph; it comes to what that comes to.
    pub fn graph(self, name: impl Into<String>, graph: &Graph) -> Self {
        let inner = SubGraph::Whole(Box::new(graph.spec().clone()));
        self.step(name, |step| step.graph = Some(inner))
    }

    /// Comes after that step; said again, after that one too.
    pub fn after(self, step: impl Into<String>) -> Self {
        let after = step.into();
        self.last("after", |step| step.after.push(after))
    }

    /// Is left out when a step before it came to something of which this holds.
    pub fn skip_if(
        mut self,
        step: impl Into<String>,
        field: impl Into<String>,
        test: Test,
    ) -> Self {
        let (step, field) = (step.into(), field.into());
        let value = test.right.unwrap_or_else(|error| {
            self.wrong(&step, format!("skip_if {field}: {error}"));
            Json::null()
        });
        if is_referring(&value) {
            self.wrong(&step, format!("skip_if {field}: {NO_REFERENCE}"));
        }
        let op = test.op;
        self.last("skip_if", |last| {
            last.skip_if = Some(SkipIf {
                step,
                field,
                op,
                value,
            });
        })
    }

    /// A task is tried again: at most so often, the first time counted, after that time, which doubles.
    pub fn retry(self, max_attempts: u32, delay: Duration) -> Self {
        let retry = RetrySpec {
            max_attempts,
            delay_ms: as_ms(delay),
            factor: Some(200),
            max_delay_ms: None,
        };
        self.retry_by(retry)
    }

    /// A task is tried again, as the policy says.
    pub fn retry_by(self, retry: RetrySpec) -> Self {
        self.last("retry", |step| step.retry = Some(retry))
    }

    /// How long an attempt at a task may take, or how long to wait for a signal.
    pub fn timeout(self, time: Duration) -> Self {
        self.last("timeout", |step| match &mut step.wait_for_signal {
            Some(signal) => signal.timeout_ms = Some(as_ms(time)),
            None => step.timeout_ms = Some(as_ms(time)),
        })
    }

    /// The queue in which a task waits.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        self.last("queue", |step| step.queue = Some(queue))
    }

    /// The graph, or all that is wrong with it.
    pub fn build(self) -> Result<Graph, BadGraph> {
        let mut problems = self.problems;
        match Graph::new(self.spec, &[]) {
            Ok(graph) if problems.is_empty() => Ok(graph),
            Ok(_) => Err(BadGraph { problems }),
            Err(bad) => {
                problems.extend(bad.problems);
                Err(BadGraph { problems })
            }
        }
    }
}

/// What a test compares with: a value, or a reference.
fn right_of(right: Json) -> Right {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Referring {
        #[serde(rename = "abide reference")]
        reference: String,
    }
    match right.to::<Referring>() {
        Ok(referring) => Right::Reference(referring.reference),
        Err(_) => Right::Const(right),
    }
}

/// What is wrong where a reference stands that nobody would resolve.
const NO_REFERENCE: &str = "a reference is compared with alone, and only in what an event must say";

/// Whether there is a reference in a value.
fn is_referring(value: &Json) -> bool {
    value.as_str().contains(&format!("\"{REFERENCE}\""))
}
