//! Steps: the side effects of a workflow. The result of each is recorded.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use abide_core::model::{InstanceId, Json, Name, OperationKind, Signature};
use abide_core::rules::retry::Retry;
use abide_kernel::Clock;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::journal::{Ran, StepState, WaitsFor, Within};
use super::operation::{Came, Operation};
use super::transaction::Own;
use super::{OperationError, Workflow};
use crate::BoxError;
use crate::machine::{Fault, FaultKind, guarded};

/// One attempt at a step, passed to its code.
#[derive(Clone, Debug)]
pub struct Attempt {
    instance: InstanceId,
    operation: u32,
    number: u32,
    pub(super) own: Arc<Own>,
}

impl Attempt {
    /// The number of earlier attempts at this step: 0 for the first one.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns an idempotency token for external systems. It is the same whenever this step of this run is run again,
    /// and different for every other step (rule 1.2). Pass it to a system that detects repeated requests by it.
    pub fn token(&self) -> String {
        format!("abide-{}-{}", self.instance, self.operation)
    }
}

type Running<'a> = BoxFuture<'a, Result<Json, Fault>>;
type Code<'a> = Box<dyn Fn(Attempt, Option<Duration>, Arc<dyn Clock>) -> Running<'a> + Send + 'a>;

impl Workflow {
    /// Runs code with a side effect and records its result: a request, a write, anything that is not deterministic. The
    /// code may do anything except request durable operations. If its worker dies before the result is committed, it
    /// runs again. Once a result is committed, it never runs again.
    ///
    /// ```
    /// # use abide::prelude::*;
    /// # async fn charge(card: &str) -> Result<u32, BoxError> { Ok(card.len() as u32) }
    /// async fn order(wf: Workflow, card: String) -> Result<u32, BoxError> {
    ///     let receipt = wf
    ///         .step("charge", || charge(&card))
    ///         .retry(Retry::exponential(secs(1)).attempts(5))
    ///         .time_limit(secs(30))
    ///         .await?;
    ///     Ok(receipt)
    /// }
    /// ```
    pub fn step<'a, F, R, T, E>(&self, name: impl AsRef<str>, code: F) -> StepRun<'a, T>
    where
        F: Fn() -> R + Send + 'a,
        R: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
    {
        self.step_with(name, move |_| code())
    }

    /// Runs code with a side effect like [`step`](Self::step), and passes it its [`Attempt`], whose token is the same
    /// for all attempts.
    pub fn step_with<'a, F, R, T, E>(&self, name: impl AsRef<str>, code: F) -> StepRun<'a, T>
    where
        F: Fn(Attempt) -> R + Send + 'a,
        R: Future<Output = Result<T, E>> + Send + 'a,
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
    {
        let name = self.name(Name::new(name));
        let waits_for = WaitsFor::Step {
            state: StepState::Wanted,
            attempts: 0,
        };
        let signature = Signature::named(OperationKind::Step, name.clone());
        StepRun {
            operation: self.operation(signature, waits_for),
            name,
            limit: None,
            retry: Retry::never(),
            code: Box::new(move |attempt, limit, clock| {
                let code = code(attempt);
                let code = async move { code.await.map_err(Into::into) };
                Box::pin(async move { stored(&guarded(code, limit, &*clock).await?) })
            }),
            running: None,
            own: None,
            comes_to: PhantomData,
        }
    }
}

fn stored<T: Serialize>(value: &T) -> Result<Json, Fault> {
    Json::of(value).map_err(|error| {
        let text = format!("the result cannot be stored: {error}");
        Fault::new(FaultKind::Outcome, text)
    })
}

/// A step: created by [`Workflow::step`], and then awaited.
#[must_use = "a step does nothing before it is awaited"]
pub struct StepRun<'a, T> {
    operation: Operation,
    name: Name,
    limit: Option<Duration>,
    retry: Retry,
    code: Code<'a>,
    running: Option<(Instant, Running<'a>)>,
    /// Access of the running attempt to the store.
    own: Option<Arc<Own>>,
    comes_to: PhantomData<fn() -> T>,
}

impl<T> StepRun<'_, T> {
    /// Sets the retry policy. Default: no retries. While a retry is pending, the run is a row, not a process.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Limits the time of one attempt.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs the step's code, if it must run now.
    fn run(&mut self, number: u32) {
        let journal = self.operation.journal.clone();
        let attempts = {
            let pages = journal.pages();
            let attempts = pages
                .open
                .get(&number)
                .and_then(|open| match open.waits_for {
                    WaitsFor::Step {
                        state: StepState::Running,
                        attempts,
                    } if open.brought.is_none() => Some(attempts),
                    _ => None,
                });
            let Some(attempts) = attempts else { return };
            attempts
        };
        let runtime = {
            let mut pages = journal.pages();
            pages.within = Some(Within::Step(self.name.clone()));
            pages.runtime.clone()
        };
        // The workflow's own code is polled without timers and I/O (see `barren`).
        let entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
        let (began, running) = self.running.get_or_insert_with(|| {
            let own = Own::new(&journal, self.limit);
            self.own = Some(own.clone());
            let attempt = Attempt {
                instance: journal.about.id,
                operation: number,
                number: attempts.saturating_sub(1),
                own,
            };
            let clock = journal.about.clock.clone();
            (Instant::now(), call(&self.code, attempt, self.limit, clock))
        });
        // Its own waker, not that of the workflow's code, because a step may wait for anything.
        let bell = Waker::from(journal.step_bell.clone());
        let polled = running.as_mut().poll(&mut Context::from_waker(&bell));
        let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut within = None;
        if polled.is_ready() {
            self.running = None;
            within = self.own.take().and_then(|own| own.close());
        }
        let Poll::Ready(outcome) = polled else {
            drop(entered);
            journal.pages().within = None;
            return;
        };
        let outcome = outcome.and_then(|value| {
            let most = journal.about.limits.result_bytes;
            if value.size() > most {
                let size = value.size();
                let text = format!(
                    "the result is too large: {size} bytes; the limit `result_bytes` is {most}"
                );
                return Err(Fault::new(FaultKind::Outcome, text));
            }
            Ok(value)
        });
        if outcome.is_err() {
            // rule 17.2: the rows of a failed step are rolled back.
            within = None;
        }
        drop(entered);
        let mut pages = journal.pages();
        pages.within = None;
        let again = outcome.is_err().then(|| {
            let delay = self
                .retry
                .delay(attempts.saturating_sub(1), fastrand::f64());
            delay.map(|delay| journal.now() + delay)
        });
        let ran = Ran {
            outcome: outcome.map_err(|fault| journal.about.limits.cut_error(&fault.to_string())),
            duration_us,
            again: again.flatten(),
            within,
        };
        pages.ran.push_back((number, ran));
        if let Some(open) = pages.open.get_mut(&number)
            && let WaitsFor::Step { state, .. } = &mut open.waits_for
        {
            *state = StepState::Ended;
        }
    }
}

impl<T> Drop for StepRun<'_, T> {
    fn drop(&mut self) {
        // Running code may do work when it is dropped, and must do that in its own runtime.
        if let Some(running) = self.running.take() {
            let runtime = self.operation.journal.pages().runtime.clone();
            let _entered = runtime.as_ref().map(tokio::runtime::Handle::enter);
            drop(running);
            // The transaction that it opened is rolled back.
            drop(self.own.take().and_then(|own| own.close()));
        }
    }
}

/// Makes the future of an attempt. If the code is not an `async fn`, the call itself may panic.
fn call<'a>(
    code: &Code<'a>,
    attempt: Attempt,
    limit: Option<Duration>,
    clock: Arc<dyn Clock>,
) -> Running<'a> {
    let made =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| code(attempt, limit, clock)));
    made.unwrap_or_else(|panic| {
        let fault = Fault::panic(&*panic);
        Box::pin(std::future::ready(Err(fault)))
    })
}

impl<T: DeserializeOwned> Future for StepRun<'_, T> {
    type Output = Result<T, OperationError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = Pin::into_inner(self);
        if let Some(number) = this.operation.open() {
            this.run(number);
        }
        match std::task::ready!(this.operation.poll_brought(cx)) {
            Came::Value(value) => match value.to() {
                Ok(value) => Poll::Ready(Ok(value)),
                Err(error) => this.operation.unreadable("a step's result", &error),
            },
            Came::Error(error) => Poll::Ready(Err(OperationError::Step {
                step: this.name.to_string(),
                error,
            })),
            Came::Cancelled(reason) => Poll::Ready(Err(OperationError::Cancelled { reason })),
            Came::TimedOut => Poll::Pending,
        }
    }
}
