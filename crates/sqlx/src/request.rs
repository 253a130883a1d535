//! Builders of requests. Options that are left out have the values that the machine declares.

use std::time::Duration;

use abide_core::model::{
    CancelRequest, Children, InstanceId, Json, Key, Name, OutboxRequest, Publish, Refusal,
    SignalRequest, SignalWithStartRequest, StartRequest, Target, Timestamp,
};
use serde::Serialize;

use crate::{Error, Outbox};

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Json, Error> {
    // A value that is written as text can be read back as JSON.
    let text = serde_json::to_string(value)?;
    Json::parse(text).map_err(|error| {
        Error::Refused(Refusal::BadRequest {
            problem: error.to_string(),
        })
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Names an instance: an id, or a text, which is an id when it is digits only and a key otherwise.
pub trait IntoTarget {
    /// The instance that is meant.
    fn into_target(self) -> Result<Target, Refusal>;
}

impl IntoTarget for &str {
    fn into_target(self) -> Result<Target, Refusal> {
        let digits = !self.is_empty() && self.bytes().all(|byte| byte.is_ascii_digit());
        match self.parse() {
            Ok(id) if digits => Ok(Target::Id(InstanceId(id))),
            _ => Key::new(self).map(Target::Key),
        }
    }
}

impl IntoTarget for &String {
    fn into_target(self) -> Result<Target, Refusal> {
        self.as_str().into_target()
    }
}

impl IntoTarget for i64 {
    fn into_target(self) -> Result<Target, Refusal> {
        Ok(Target::Id(InstanceId(self)))
    }
}

impl<T: Into<Target>> IntoTarget for T
where
    T: private::Typed,
{
    fn into_target(self) -> Result<Target, Refusal> {
        Ok(self.into())
    }
}

mod private {
    use super::*;

    pub trait Typed {}
    impl Typed for InstanceId {}
    impl Typed for Key {}
    impl Typed for Target {}
}

/// Defines `insert` of a builder.
macro_rules! inserted {
    ($builder:ident) => {
        impl $builder {
            /// Inserts the request into the outbox, in the transaction of the executor.
            ///
            /// Atomic: it is carried out when that commits, and never if it rolls back. A crash after the commit leaves a row
            /// that is still taken.
            pub async fn insert<'e, E>(self, executor: E) -> Result<(), Error>
            where
                E: sqlx::Executor<'e>,
                E::Database: Outbox,
            {
                crate::insert(&self.request(), executor).await
            }
        }
    };
}

/// A start of a machine or of a graph.
#[derive(Clone, Debug)]
#[must_use = "a start does nothing until it is inserted"]
pub struct Start(StartRequest);

/// Starts an instance of a machine with a state.
pub fn start<T: Serialize + ?Sized>(machine: &str, state: &T) -> Result<Start, Error> {
    let machine = Name::new(machine)?;
    Ok(Start(StartRequest::machine(machine, json(state)?)))
}

/// Starts a run of a graph that the server keeps, with an input.
pub fn start_graph<T: Serialize + ?Sized>(graph: &str, input: &T) -> Result<Start, Error> {
    let graph = Name::new(graph)?;
    Ok(Start(StartRequest::graph(graph, json(input)?)))
}

impl Start {
    /// Sets the business key: no other instance can be started with it meanwhile.
    pub fn key(mut self, key: &str) -> Result<Self, Error> {
        self.0.key = Some(Key::new(key)?);
        Ok(self)
    }

    /// Sets the queue to wait in.
    pub fn queue(mut self, queue: &str) -> Result<Self, Error> {
        self.0.queue = Some(Name::new(queue)?);
        Ok(self)
    }

    /// Sets the partition, of which at most one instance executes at a time.
    pub fn partition(mut self, key: &str) -> Result<Self, Error> {
        self.0.partition_key = Some(Key::new(key)?);
        Ok(self)
    }

    /// Sets the priority; lower goes first.
    pub fn priority(mut self, priority: i16) -> Self {
        self.0.priority = Some(priority);
        self
    }

    /// Sets the delay after which it is due.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.0.delay_ms = Some(milliseconds(delay));
        self
    }

    /// Sets the time at which it is due.
    pub fn due_at(mut self, moment: Timestamp) -> Self {
        self.0.due_at = Some(moment);
        self
    }

    /// Sets any other field of the request.
    pub fn with(mut self, set: impl FnOnce(&mut StartRequest)) -> Self {
        set(&mut self.0);
        self
    }

    /// Sends a signal to the instance that lives under its key, or starts it with the signal in its inbox.
    pub fn or_signal<T: Serialize + ?Sized>(
        self,
        name: &str,
        payload: &T,
    ) -> Result<Signal, Error> {
        Ok(Signal(Message::WithStart(Box::new(
            SignalWithStartRequest {
                start: self.0,
                name: Name::new(name)?,
                payload: Some(json(payload)?),
                arguments: None,
                dedup_key: None,
            },
        ))))
    }

    /// The request.
    pub fn request(self) -> OutboxRequest {
        OutboxRequest::Start(Box::new(self.0))
    }
}

inserted!(Start);

/// A signal.
#[derive(Clone, Debug)]
#[must_use = "a signal is not sent until it is inserted"]
pub struct Signal(Message);

#[derive(Clone, Debug)]
enum Message {
    Plain(SignalRequest),
    WithStart(Box<SignalWithStartRequest>),
}

/// Sends a signal with a payload to an instance.
pub fn signal<T: Serialize + ?Sized>(
    target: impl IntoTarget,
    name: &str,
    payload: &T,
) -> Result<Signal, Error> {
    Ok(Signal(Message::Plain(SignalRequest {
        payload: Some(json(payload)?),
        ..SignalRequest::new(target.into_target()?, Name::new(name)?)
    })))
}

impl Signal {
    /// Sets its deduplication key: sent again with the same key, it is the same signal.
    pub fn dedup(mut self, key: &str) -> Result<Self, Error> {
        let key = Some(Name::new(key)?);
        match &mut self.0 {
            Message::Plain(signal) => signal.dedup_key = key,
            Message::WithStart(signal) => signal.dedup_key = key,
        }
        Ok(self)
    }

    /// Sets the time for which it is held if no instance holds the key. A signal that starts its instance needs none.
    pub fn hold_for(mut self, time: Duration) -> Self {
        if let Message::Plain(signal) = &mut self.0 {
            signal.hold_for_ms = Some(milliseconds(time));
        }
        self
    }

    /// The request.
    pub fn request(self) -> OutboxRequest {
        match self.0 {
            Message::Plain(signal) => OutboxRequest::Signal(signal),
            Message::WithStart(signal) => OutboxRequest::SignalWithStart(signal),
        }
    }
}

inserted!(Signal);

/// An event.
#[derive(Clone, Debug)]
#[must_use = "an event is not published until it is inserted"]
pub struct Event(Publish);

/// Publishes an event of a type.
pub fn publish<T: Serialize + ?Sized>(event_type: &str, payload: &T) -> Result<Event, Error> {
    Ok(Event(Publish {
        event_type: Name::new(event_type)?,
        payload: json(payload)?,
        event_id: None,
    }))
}

impl Event {
    /// Sets its id: published again with the same id, it is the same event.
    pub fn id(mut self, id: &str) -> Result<Self, Error> {
        self.0.event_id = Some(Name::new(id)?);
        Ok(self)
    }

    /// The request.
    pub fn request(self) -> OutboxRequest {
        OutboxRequest::Publish(self.0)
    }
}

inserted!(Event);

/// A cancellation.
#[derive(Clone, Debug)]
#[must_use = "nothing is cancelled until this is inserted"]
pub struct Cancel(CancelRequest);

/// Cancels an instance, and its children with it.
pub fn cancel(target: impl IntoTarget, reason: &str) -> Result<Cancel, Error> {
    Ok(Cancel(CancelRequest {
        reason: Some(reason.to_owned()),
        ..CancelRequest::new(target.into_target()?)
    }))
}

impl Cancel {
    /// Leaves its children as they are.
    pub fn leave_children(mut self) -> Self {
        self.0.children = Children::Leave;
        self
    }

    /// Ends a workflow at once, without letting its code clean up.
    pub fn force(mut self) -> Self {
        self.0.force = true;
        self
    }

    /// The request.
    pub fn request(self) -> OutboxRequest {
        OutboxRequest::Cancel(self.0)
    }
}

inserted!(Cancel);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn text(request: OutboxRequest) -> String {
        serde_json::to_string(&request).unwrap()
    }

    #[test]
    fn builders_write_what_the_outbox_reads() {
        let start = start("checkout", &7).unwrap().key("order:42").unwrap();
        let start = start.priority(-1).delay(Duration::from_secs(2));
        assert_eq!(
            text(start.clone().request()),
            r#"{"start":{"machine":"checkout","key":"order:42","state":7,"priority":-1,"delay_ms":2000}}"#
        );
        let paid = signal("order:42", "paid", &[1])
            .unwrap()
            .dedup("d")
            .unwrap();
        assert_eq!(
            text(paid.hold_for(Duration::from_secs(1)).request()),
            r#"{"signal":{"target":"order:42","name":"paid","payload":[1],"dedup_key":"d","hold_for_ms":1000}}"#
        );
        assert!(
            text(start.or_signal("paid", &1).unwrap().request())
                .starts_with(r#"{"signal_with_start":{"start":{"#)
        );
        assert_eq!(
            text(publish("placed", &()).unwrap().id("e").unwrap().request()),
            r#"{"publish":{"type":"placed","payload":null,"event_id":"e"}}"#
        );
        assert_eq!(
            text(
                cancel(7, "gone")
                    .unwrap()
                    .leave_children()
                    .force()
                    .request()
            ),
            r#"{"cancel":{"target":7,"reason":"gone","children":"leave","force":true}}"#
        );
        assert!(signal("", "paid", &1).is_err() && super::start("", &1).is_err());
    }
}
