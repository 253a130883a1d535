//! Waits for signals and events, and access to the signals that a step was handed.

use std::marker::PhantomData;
use std::time::Duration;

use abide_core::model::{Command, CommandKind, Json, Name, Refusal};
use abide_core::rules::contract::yields;
use serde::de::DeserializeOwned;

use super::outcome::Kind;
use super::{Context, Machine, Move, Outcome};
use crate::Error;
use crate::message::{Event, Message, Signal, SignalName, read};

impl<M: Machine> Context<M> {
    /// Parks until a signal arrives: `ctx.wait_for(PAID).or(CANCELLED).timeout(hours(1)).then(At::Ship)`.
    ///
    /// A signal that is already in the inbox counts, unless this very step was handed it. So a step that waits again
    /// for the same name parks until there is another signal, and is then handed all of them.
    pub fn wait_for(&self, signal: impl SignalName) -> WaitFor<M> {
        WaitFor {
            names: signal.signal_name().map(|name| vec![name]),
            events: Vec::new(),
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Parks until a signal with one of these names arrives.
    pub fn wait_for_any<S: SignalName>(&self, signals: impl IntoIterator<Item = S>) -> WaitFor<M> {
        let names = signals.into_iter().map(|signal| signal.signal_name());
        WaitFor {
            names: names.collect(),
            events: Vec::new(),
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Parks until a matching event is published:
    /// `ctx.wait_for_event(Event::new("payment.received").matching("order_id", eq(42))).timeout(hours(1)).then(At::Ship)`.
    /// A timeout is required. Read the event with [`event`](Self::event).
    pub fn wait_for_event(&self, event: Event) -> WaitFor<M> {
        WaitFor {
            names: Ok(Vec::new()),
            events: vec![event],
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Returns the payload of the event that woke this step, or `None` if something else woke it.
    pub fn event<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let is_event = |one: &&Command| one.name.event_type().is_some();
        let Some(event) = self.task.awaited.iter().find(is_event) else {
            return Ok(None);
        };
        let payload = yields(&event.arguments).to();
        payload.map(Some).map_err(|error| Error::Unreadable {
            what: "the payload of an event",
            problem: format!("{}: {error}", event.name),
        })
    }

    /// Returns the value of the first signal with that name among those that this step was handed. Returns an error if
    /// there is none.
    pub fn awaited<T>(&self, signal: Signal<T>) -> Result<T, Error>
    where
        T: Message,
    {
        let first = self.first(signal.name()).ok_or_else(|| Error::Mismatch {
            what: "the signals that this step was handed",
            problem: format!(
                "there is no {:?} among them: look at `got` or `timed_out` first",
                signal.name()
            ),
        })?;
        read(&first.arguments).map_err(|error| unreadable(signal.name(), &error))
    }

    /// Returns the values of all signals with that name that this step was handed, in order.
    pub fn awaited_all<T>(&self, signal: Signal<T>) -> Result<Vec<T>, Error>
    where
        T: Message,
    {
        read_all(self.signals(), signal)
    }

    /// `true` if this step was handed a signal with that name.
    pub fn got(&self, signal: impl SignalName) -> bool {
        signal
            .signal_name()
            .is_ok_and(|name| self.first(name.as_str()).is_some())
    }

    /// Returns the payload of the first signal with that name, untyped: `true` without arguments, the value of a single
    /// argument, or a list of several.
    pub fn payload(&self, signal: &str) -> Option<Json> {
        self.first(signal).map(Command::payload)
    }

    /// Returns the signals that this step was handed: those that it waited for, in the order in which they were
    /// accepted.
    pub fn signals(&self) -> &[Command] {
        &self.task.awaited
    }

    /// Returns all signals that are in the inbox now, including those that were not waited for yet.
    pub async fn inbox(&self) -> Result<Vec<Command>, Error> {
        let mut pending = self.store.inbox(self.task.id).await?;
        pending.retain(|message| message.kind == CommandKind::Signal);
        Ok(pending)
    }

    /// Returns the values of all signals with that name that are in the inbox now, in order, including those that were
    /// not waited for yet.
    pub async fn inbox_all<T>(&self, signal: Signal<T>) -> Result<Vec<T>, Error>
    where
        T: Message,
    {
        read_all(&self.inbox().await?, signal)
    }

    fn first(&self, name: &str) -> Option<&Command> {
        self.task
            .awaited
            .iter()
            .find(|one| one.name.as_str() == name)
    }
}

/// Reads the values of all signals with that name.
fn read_all<T>(signals: &[Command], signal: Signal<T>) -> Result<Vec<T>, Error>
where
    T: Message,
{
    let of_name = signals.iter();
    of_name
        .filter(|one| one.name.as_str() == signal.name())
        .map(|one| read(&one.arguments).map_err(|error| unreadable(signal.name(), &error)))
        .collect()
}

fn unreadable(name: &str, error: &abide_core::model::NotJson) -> Error {
    Error::Unreadable {
        what: "the value of a signal",
        problem: format!("{name}: {error}"),
    }
}

/// A wait for signals or events. Finish it with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct WaitFor<M> {
    names: Result<Vec<Name>, Refusal>,
    events: Vec<Event>,
    timeout: Option<Duration>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> WaitFor<M> {
    /// Also waits for this signal; the first match ends the wait.
    pub fn or(mut self, signal: impl SignalName) -> Self {
        match (&mut self.names, signal.signal_name()) {
            (Ok(names), Ok(name)) => names.push(name),
            (names @ Ok(_), Err(refusal)) => *names = Err(refusal),
            (Err(_), _) => {}
        }
        self
    }

    /// Also waits for this event; the first match ends the wait.
    pub fn or_event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Ends the wait after that time at the latest; [`Context::timed_out`] is then `true`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the step that runs after the wait.
    pub fn then(self, next: M::Step) -> Outcome<M> {
        Ok(Move::of(Kind::Wait {
            signals: self.names?,
            events: self
                .events
                .into_iter()
                .map(Event::wait)
                .collect::<Result<_, _>>()?,
            timeout: self.timeout,
            next,
        }))
    }
}
