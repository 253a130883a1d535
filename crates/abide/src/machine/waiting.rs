//! Waiting for signals, and reading what came.

use std::marker::PhantomData;
use std::time::Duration;

use abide_core::model::{Command, CommandKind, Json, Name, Refusal};
use abide_core::rules::contract::yields;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::outcome::Kind;
use super::{Context, Machine, Move, Outcome};
use crate::Error;
use crate::message::{Event, Signal, read};

/// What names a signal: a [`Signal`], or plain text.
pub trait SignalName {
    /// The name, when it is fit to be one.
    fn signal_name(&self) -> Result<Name, Refusal>;
}

impl<T> SignalName for Signal<T> {
    fn signal_name(&self) -> Result<Name, Refusal> {
        Name::new(self.name())
    }
}

impl SignalName for &str {
    fn signal_name(&self) -> Result<Name, Refusal> {
        Name::new(self)
    }
}

impl SignalName for String {
    fn signal_name(&self) -> Result<Name, Refusal> {
        Name::new(self)
    }
}

impl SignalName for Name {
    fn signal_name(&self) -> Result<Name, Refusal> {
        Ok(self.clone())
    }
}

impl<M: Machine> Context<M> {
    /// Parks until a signal comes: `ctx.wait_for(PAID).or(CANCELLED).timeout(hours(1)).then(At::Ship)`.
    ///
    /// A signal that is in the inbox already counts, unless this very step was handed it: so a step that waits again for
    /// what it has got parks until there is more, and is then handed all of it.
    pub fn wait_for(&self, signal: impl SignalName) -> WaitFor<M> {
        WaitFor {
            names: signal.signal_name().map(|name| vec![name]),
            events: Vec::new(),
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Parks until a signal of one of these names comes.
    pub fn wait_for_any<S: SignalName>(&self, signals: impl IntoIterator<Item = S>) -> WaitFor<M> {
        let names = signals.into_iter().map(|signal| signal.signal_name());
        WaitFor {
            names: names.collect(),
            events: Vec::new(),
            timeout: None,
            machine: PhantomData,
        }
    }

    /// Parks until an event is published that matches:
    /// `ctx.wait_for_event(Event::new("payment.received").matching("order_id", eq(42))).timeout(hours(1)).then(At::Ship)`.
    /// A timeout is required; what came is read with [`event`](Self::event).
    pub fn wait_for_event(&self, event: Event) -> WaitFor<M> {
        WaitFor {
            names: Ok(Vec::new()),
            events: vec![event],
            timeout: None,
            machine: PhantomData,
        }
    }

    /// What the event said that this step was woken by; none when it was woken by something else.
    pub fn event<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let is_event = |one: &&Command| one.name.event_type().is_some();
        let Some(event) = self.task.awaited.iter().find(is_event) else {
            return Ok(None);
        };
        let payload = yields(&event.arguments).to();
        payload.map(Some).map_err(|error| Error::Mismatch {
            what: "what an event says",
            problem: format!("{}: {error}", event.name),
        })
    }

    /// What the first signal of that name was sent with, of those that this step was handed.
    pub fn awaited<T>(&self, signal: Signal<T>) -> Result<T, Error>
    where
        T: DeserializeOwned + JsonSchema + 'static,
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

    /// What each signal of that name was sent with, in order.
    pub fn awaited_all<T>(&self, signal: Signal<T>) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        read_all(self.signals(), signal)
    }

    /// Whether a signal of that name is among those that this step was handed.
    pub fn got(&self, signal: impl SignalName) -> bool {
        signal
            .signal_name()
            .is_ok_and(|name| self.first(name.as_str()).is_some())
    }

    /// What the first signal of that name was sent with, untyped: `true` when with nothing, the value when with one
    /// argument, their list when with several.
    pub fn payload(&self, signal: &str) -> Option<Json> {
        self.first(signal).map(Command::payload)
    }

    /// The signals that this step was handed: those that it waited for, in the order in which they were accepted.
    pub fn signals(&self) -> &[Command] {
        &self.task.awaited
    }

    /// All signals that are in the inbox now, also those that nobody has waited for yet.
    pub async fn inbox(&self) -> Result<Vec<Command>, Error> {
        let mut pending = self.store.inbox(self.task.id).await?;
        pending.retain(|message| message.kind == CommandKind::Signal);
        Ok(pending)
    }

    /// What each signal of that name that is in the inbox now was sent with, in order, also when nobody has waited for it
    /// yet.
    pub async fn inbox_all<T>(&self, signal: Signal<T>) -> Result<Vec<T>, Error>
    where
        T: DeserializeOwned + JsonSchema + 'static,
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

/// What each signal of that name was sent with.
fn read_all<T>(signals: &[Command], signal: Signal<T>) -> Result<Vec<T>, Error>
where
    T: DeserializeOwned + JsonSchema + 'static,
{
    let of_name = signals.iter();
    of_name
        .filter(|one| one.name.as_str() == signal.name())
        .map(|one| read(&one.arguments).map_err(|error| unreadable(signal.name(), &error)))
        .collect()
}

fn unreadable(name: &str, error: &abide_core::model::NotJson) -> Error {
    Error::Mismatch {
        what: "what a signal was sent with",
        problem: format!("{name}: {error}"),
    }
}

/// A wait for signals, to be finished with [`then`](Self::then).
#[must_use = "finish it with `.then(step)` and return that"]
pub struct WaitFor<M> {
    names: Result<Vec<Name>, Refusal>,
    events: Vec<Event>,
    timeout: Option<Duration>,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> WaitFor<M> {
    /// Or for this one, whichever comes first.
    pub fn or(mut self, signal: impl SignalName) -> Self {
        match (&mut self.names, signal.signal_name()) {
            (Ok(names), Ok(name)) => names.push(name),
            (names @ Ok(_), Err(refusal)) => *names = Err(refusal),
            (Err(_), _) => {}
        }
        self
    }

    /// Or for this event, whichever comes first.
    pub fn or_event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Goes on after that time at the latest; [`Context::timed_out`] is true then.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The step to run then.
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
