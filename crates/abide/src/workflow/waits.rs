//! Waits: for a signal, an event, a condition, or a time.

use std::marker::PhantomData;
use std::task::Poll;
use std::time::Duration;

use abide_core::model::{EventWait, Json, Name, OperationKind, Signature, Timestamp};
use abide_core::rules::contract::yields;
use serde::de::DeserializeOwned;

use super::journal::WaitsFor;
use super::operation::{Came, Operation, Reads, awaitable};
use super::{OperationError, Workflow};
use crate::message::{Event, Message, Signal, SignalName, read};

/// The name and argument type of a signal: a [`Signal`], or plain text.
pub trait AwaitedSignal<T>: SignalName {}

impl<T> AwaitedSignal<T> for Signal<T> {}
impl<T> AwaitedSignal<T> for &str {}
impl<T> AwaitedSignal<T> for String {}

impl Workflow {
    /// Takes the next signal with this name, in the order in which they were accepted, each once (rule 12.2). A signal
    /// that arrived before this call counts.
    ///
    /// ```
    /// # use abide::prelude::*;
    /// const APPROVED_BY: Signal<String> = Signal::new("approved-by");
    ///
    /// async fn approval(wf: Workflow, _: ()) -> Result<String, BoxError> {
    ///     let by = wf.signal(APPROVED_BY).timeout(days(3)).await?;
    ///     Ok(by.ok_or("not approved")?)                // `None`: its time was up
    /// }
    /// ```
    pub fn signal<T>(&self, signal: impl AwaitedSignal<T>) -> SignalWait<T>
    where
        T: Message,
    {
        let name = self.name(signal.signal_name());
        let signature = Signature::named(OperationKind::Signal, name);
        SignalWait {
            operation: self.operation(signature, WaitsFor::Signal),
            sent: PhantomData,
        }
    }

    /// Takes the next signal with this name, whatever its arguments.
    pub(crate) fn signal_of(&self, name: &str) -> AnySignal {
        let name = self.name(Name::new(name));
        let signature = Signature::named(OperationKind::Signal, name);
        AnySignal {
            operation: self.operation(signature, WaitsFor::Signal),
        }
    }

    /// Waits for a matching event. A timeout is required; after it, the result is `None`.
    ///
    /// ```
    /// # use abide::message::eq;
    /// # use abide::prelude::*;
    /// async fn order(wf: Workflow, id: String) -> Result<f64, BoxError> {
    ///     let paid = Event::new("payment.received").matching("order_id", eq(&id));
    ///     let paid: Option<serde_json::Value> = wf.event(paid).timeout(hours(1)).await?;
    ///     let paid = paid.ok_or("payment never came")?;
    ///     Ok(paid["amount"].as_f64().unwrap_or_default())
    /// }
    /// ```
    pub fn event<T: DeserializeOwned>(&self, event: Event) -> EventAwaited<T> {
        self.event_of(self.event_wait(event))
    }

    fn event_wait(&self, event: Event) -> EventWait {
        let wait = event.wait().map_err(|refusal| {
            let problem = format!("waits for an event that cannot be: {refusal}");
            self.journal.pages().misused(problem, "put that right");
        });
        wait.unwrap_or_else(|()| EventWait {
            event_type: Name::stored("none"),
            conditions: Vec::new(),
            lookback_ms: None,
        })
    }

    /// Waits for an event that is described as data.
    pub(crate) fn event_of<T: DeserializeOwned>(&self, wait: EventWait) -> EventAwaited<T> {
        let signature = Signature::named(OperationKind::Event, wait.event_type.clone());
        EventAwaited {
            operation: self.operation(signature, WaitsFor::Event(wait)),
            payload: PhantomData,
        }
    }

    /// Waits until a predicate over the workflow's own state is true. The predicate is evaluated again after every
    /// input of the workflow: an update, a signal, the end of a step. The key names the wait for operators, and replay
    /// checks it: 1 to 128 of the characters `A-Z a-z 0-9 . _ : -`.
    ///
    /// ```
    /// # use abide::{Update, Workflow, BoxError};
    /// const SET_READY: Update<bool, bool> = Update::new("set-ready");
    ///
    /// async fn approval(wf: Workflow, _: ()) -> Result<(), BoxError> {
    ///     let ready = wf.state(false);
    ///     wf.on_update(SET_READY, { let ready = ready.clone(); move |value| { ready.set(value); Ok(value) } });
    ///     wf.condition("approval.ready", || ready.get()).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn condition<P: FnMut() -> bool>(&self, key: &str, predicate: P) -> Condition<P> {
        let key = self.condition_key(key);
        self.conditional(Some(key), predicate)
    }

    /// Waits like [`condition`](Self::condition), without a key.
    pub fn condition_unnamed<P: FnMut() -> bool>(&self, predicate: P) -> Condition<P> {
        self.conditional(None, predicate)
    }

    fn conditional<P: FnMut() -> bool>(&self, key: Option<Name>, predicate: P) -> Condition<P> {
        let signature = Signature {
            key,
            ..Signature::of(OperationKind::Condition)
        };
        let waits_for = WaitsFor::Condition { is_true: false };
        Condition {
            operation: self.operation(signature, waits_for),
            predicate,
        }
    }

    fn condition_key(&self, key: &str) -> Name {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if !(1..=128).contains(&key.len()) || !key.bytes().all(fits) {
            self.journal.pages().misused(
                format!("names a condition {key:?}"),
                "give it a key of 1 to 128 of the characters A-Z a-z 0-9 . _ : -",
            );
        }
        Name::stored(key)
    }

    /// Waits for this duration.
    pub fn sleep(&self, time: Duration) -> Sleeping {
        self.sleep_until(self.journal.now() + time)
    }

    /// Waits until this time.
    pub fn sleep_until(&self, moment: Timestamp) -> Sleeping {
        let signature = Signature::of(OperationKind::Sleep);
        let mut operation = self.operation(signature, WaitsFor::Time);
        operation.ask(|request| request.deadline = Some(moment));
        Sleeping { operation }
    }
}

/// A wait for an event: created by [`Workflow::event`], and awaited after a timeout was set.
#[must_use = "give it a timeout, and await that"]
pub struct EventAwaited<T> {
    operation: Operation,
    payload: PhantomData<fn() -> T>,
}

impl<T> EventAwaited<T> {
    /// Waits for at most this duration.
    pub fn timeout(mut self, time: Duration) -> Timed<Self> {
        self.operation.within(time);
        Timed(self)
    }
}

impl<T: DeserializeOwned> Reads for EventAwaited<T> {
    type Output = T;

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, came: Came) -> Poll<Result<T, OperationError>> {
        let arguments = match came {
            Came::Value(arguments) => arguments,
            Came::Error(problem) => return Poll::Ready(Err(OperationError::Wait { problem })),
            _ => return Poll::Pending,
        };
        match yields(&arguments).to() {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => self.operation.unreadable("an event", &error),
        }
    }
}

/// A wait for a signal with any arguments.
pub(crate) struct AnySignal {
    operation: Operation,
}

impl AnySignal {
    pub fn timeout(mut self, time: Duration) -> Timed<Self> {
        self.operation.within(time);
        Timed(self)
    }
}

impl Reads for AnySignal {
    type Output = Json;

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, came: Came) -> Poll<Result<Json, OperationError>> {
        match came {
            Came::Value(arguments) => Poll::Ready(Ok(yields(&arguments))),
            _ => Poll::Pending,
        }
    }
}

/// A wait for a signal: created by [`Workflow::signal`], and then awaited.
#[must_use = "nothing is waited for before it is awaited"]
pub struct SignalWait<T> {
    operation: Operation,
    sent: PhantomData<fn() -> T>,
}

impl<T> SignalWait<T> {
    /// Waits for at most this duration. After that, the result is `None`, which cannot be confused with a payload.
    pub fn timeout(mut self, time: Duration) -> Timed<Self> {
        self.operation.within(time);
        Timed(self)
    }
}

impl<T: Message> Reads for SignalWait<T> {
    type Output = T;

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, came: Came) -> Poll<Result<T, OperationError>> {
        let Came::Value(arguments) = came else {
            return Poll::Pending;
        };
        match read(&arguments) {
            Ok(value) => Poll::Ready(Ok(value)),
            Err(error) => self.operation.unreadable("a signal", &error),
        }
    }
}

/// A wait for a condition: created by [`Workflow::condition`], and then awaited.
#[must_use = "nothing is waited for before it is awaited"]
pub struct Condition<P> {
    operation: Operation,
    predicate: P,
}

impl<P> Condition<P> {
    /// Sets a version of the predicate. Replay refuses to continue from a wait that was recorded with another one.
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        let fingerprint = fingerprint.into();
        self.operation
            .ask(|request| request.signature.fingerprint = Some(fingerprint));
        self
    }

    /// Waits for at most this duration. The result is `false` if it has passed, otherwise `true`.
    pub fn timeout(mut self, time: Duration) -> TimedCondition<P> {
        self.operation.within(time);
        TimedCondition(self)
    }
}

impl<P: FnMut() -> bool + Unpin> Condition<P> {
    /// Evaluates the predicate, and notes the result for the runner of the code.
    fn check(&mut self) {
        let Some(number) = self.operation.open() else {
            return;
        };
        let now = (self.predicate)();
        let mut pages = self.operation.journal.pages();
        if let Some(open) = pages.open.get_mut(&number)
            && let WaitsFor::Condition { is_true } = &mut open.waits_for
        {
            *is_true = now;
        }
    }
}

impl<P: FnMut() -> bool + Unpin> Reads for Condition<P> {
    type Output = ();

    fn operation(&mut self) -> &mut Operation {
        self.check();
        &mut self.operation
    }

    fn read(&mut self, _: Came) -> Poll<Result<(), OperationError>> {
        Poll::Ready(Ok(()))
    }
}

/// A wait for a condition with a timeout.
#[must_use = "nothing is waited for before it is awaited"]
pub struct TimedCondition<P>(Condition<P>);

impl<P: FnMut() -> bool + Unpin> Reads for TimedCondition<P> {
    type Output = bool;

    fn operation(&mut self) -> &mut Operation {
        self.0.operation()
    }

    fn read(&mut self, came: Came) -> Poll<Result<bool, OperationError>> {
        Poll::Ready(Ok(!matches!(came, Came::TimedOut)))
    }
}

/// A wait for a time: created by [`Workflow::sleep`], and then awaited.
#[must_use = "nothing is waited for before it is awaited"]
pub struct Sleeping {
    operation: Operation,
}

impl Reads for Sleeping {
    type Output = ();

    fn operation(&mut self) -> &mut Operation {
        &mut self.operation
    }

    fn read(&mut self, _: Came) -> Poll<Result<(), OperationError>> {
        Poll::Ready(Ok(()))
    }
}

/// An operation with a timeout. The result is `None` if it has passed.
#[must_use = "nothing is waited for before it is awaited"]
pub struct Timed<W>(pub(super) W);

impl<W: Reads> Timed<W> {
    /// The number of its operation, if that has begun.
    pub(crate) fn number(&mut self) -> u32 {
        self.0.operation().begun_as()
    }
}

impl<W: Reads> Reads for Timed<W> {
    type Output = Option<W::Output>;

    fn operation(&mut self) -> &mut Operation {
        self.0.operation()
    }

    fn read(&mut self, came: Came) -> Poll<Result<Self::Output, OperationError>> {
        match came {
            Came::TimedOut => Poll::Ready(Ok(None)),
            came => self.0.read(came).map(|read| read.map(Some)),
        }
    }
}

impl Operation {
    /// Sets the deadline of the operation.
    pub(super) fn within(&mut self, time: Duration) {
        let deadline = self.journal.now() + time;
        self.ask(|request| request.deadline = Some(deadline));
    }
}

awaitable! {
    {T: Message} SignalWait<T>,
    {P: FnMut() -> bool + Unpin} Condition<P>,
    {P: FnMut() -> bool + Unpin} TimedCondition<P>,
    {} Sleeping,
    {} AnySignal,
    {W: Reads + Unpin} Timed<W>,
}
