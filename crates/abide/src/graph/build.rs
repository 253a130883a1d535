//! The builder of graphs.

use std::time::Duration;

use abide_core::model::{
    EventSpec, GraphProblem, GraphSpec, Json, MatchSpec, Matches, RetrySpec, Right, SignalSpec,
    SkipIf, SleepSpec, StepSpec, SubGraph,
};
use serde::Serialize;

use super::{BadGraph, Graph};
use crate::message::{Event, REFERENCE, Test};
use crate::time::as_ms;

/// Builds a graph step by step. Methods such as `after` and `retry` configure the step that was added last. Created by
/// [`Graph::builder`].
#[must_use = "finish it with `.build()`"]
pub struct GraphBuilder {
    spec: GraphSpec,
    problems: Vec<GraphProblem>,
}

/// A reference to the input of a run, or to the output of a step: created by [`input`] and [`output`].
#[derive(Clone, Debug)]
pub struct Reference(String);

impl Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map([(REFERENCE, &self.0)])
    }
}

/// Refers to the input of the run, at a path.
pub fn input(path: &str) -> Reference {
    Reference(format!("input.{path}"))
}

/// Refers to the output of a step, at a path.
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

    /// Adds a task with the same name as the step.
    pub fn task(self, name: impl Into<String>) -> Self {
        let name = name.into();
        let task = name.clone();
        self.step(name, |step| step.task = Some(task))
    }

    /// Adds a task with a different name than the step.
    pub fn task_named(self, name: impl Into<String>, task: impl Into<String>) -> Self {
        let task = task.into();
        self.step(name, |step| step.task = Some(task))
    }

    /// Adds a wait for an event, of at most this time. If that passes, the output of the step is `{"timeout": true}`.
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

    /// Adds a wait for a signal to the run. The output of the step is the signal's arguments.
    pub fn wait_for_signal(self, name: impl Into<String>, signal: impl Into<String>) -> Self {
        let signal = signal.into();
        self.step(name, |step| {
            step.wait_for_signal = Some(SignalSpec {
                signal,
                timeout_ms: None,
            });
        })
    }

    /// Adds a wait for a duration.
    pub fn sleep(self, name: impl Into<String>, time: Duration) -> Self {
        self.step(name, |step| {
            step.sleep = Some(SleepSpec {
                duration_ms: as_ms(time),
            });
        })
    }

    /// Adds another graph as a step. The output of the step is the result of that graph.
    pub fn graph(self, name: impl Into<String>, graph: &Graph) -> Self {
        let inner = SubGraph::Whole(Box::new(graph.spec().clone()));
        self.step(name, |step| step.graph = Some(inner))
    }

    /// Makes the last added step run after `step`. Can be called several times, for several steps.
    pub fn after(self, step: impl Into<String>) -> Self {
        let after = step.into();
        self.last("after", |step| step.after.push(after))
    }

    /// Skips the last added step if this condition holds for the output of an earlier step.
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

    /// Retries a failed task: at most `max_attempts` attempts, including the first, with a delay that doubles. All
    /// attempts are the same instance, with the same idempotency token.
    pub fn retry(self, max_attempts: u32, delay: Duration) -> Self {
        self.retry_by(RetrySpec::doubling(max_attempts, as_ms(delay)))
    }

    /// Retries a failed task, as the policy says.
    pub fn retry_by(self, retry: RetrySpec) -> Self {
        self.last("retry", |step| step.retry = Some(retry))
    }

    /// Limits an attempt at a task, from the time a worker claims it, or the wait for a signal.
    pub fn timeout(self, time: Duration) -> Self {
        self.last("timeout", |step| match &mut step.wait_for_signal {
            Some(signal) => signal.timeout_ms = Some(as_ms(time)),
            None => step.timeout_ms = Some(as_ms(time)),
        })
    }

    /// Limits a task as a whole, from the start of its step to its end: its waits in the queue, all attempts and the
    /// delays between them. When this time has passed, the task is cancelled and the step fails.
    ///
    /// ```
    /// use abide::prelude::*;
    ///
    /// let graph = Graph::builder("mail").task("send").timeout(secs(10)).retry(3, secs(1)).schedule_timeout(minutes(5));
    /// assert!(graph.build()?.to_json().contains(r#""schedule_timeout_ms":300000"#));
    /// # Ok::<(), abide::graph::BadGraph>(())
    /// ```
    pub fn schedule_timeout(self, time: Duration) -> Self {
        self.last("schedule_timeout", |step| {
            step.schedule_timeout_ms = Some(as_ms(time));
        })
    }

    /// Sets the queue in which a task waits.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        self.last("queue", |step| step.queue = Some(queue))
    }

    /// Returns the graph, or all problems with it.
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

/// Converts the right side of a comparison: a value, or a reference.
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

/// The problem with a reference where it would not be resolved.
const NO_REFERENCE: &str = "a reference is compared with alone, and only in what an event must say";

/// `true` if a value contains a reference.
fn is_referring(value: &Json) -> bool {
    value.as_str().contains(&format!("\"{REFERENCE}\""))
}
