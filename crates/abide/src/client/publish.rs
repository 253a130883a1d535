//! Publishes events, and lists events and the waits for them.

use std::future::IntoFuture;

use abide_core::model::{EventSequence, InstanceId, Json, Name, Publish, Published, Refusal};
use abide_kernel::{Answer, EventFilter, EventPage, Op, WaiterFilter, WaiterPage};
use futures_util::future::BoxFuture;
use serde::Serialize;

use super::{Client, Within, first};
use crate::{Abide, Error};

/// A builder of an event to publish. [`Abide::publish`] returns one to configure and then await; [`event_of`] makes one
/// for a batch.
#[must_use = "nothing is published before it is awaited"]
pub struct Publication<C = ()> {
    publish: Result<Publish, Error>,
    client: C,
}

/// Describes an event to publish, as one of a [batch](Abide::publish_all).
pub fn event_of(event_type: &str, payload: &(impl Serialize + ?Sized)) -> Publication {
    Publication::new(event_type, payload, ())
}

impl<C> Publication<C> {
    fn new(event_type: &str, payload: &(impl Serialize + ?Sized), client: C) -> Self {
        let publish = || -> Result<Publish, Error> {
            Ok(Publish {
                event_type: Name::new(event_type)?,
                payload: Json::of(payload).map_err(|error| Error::Mismatch {
                    what: "the payload of an event",
                    problem: error.to_string(),
                })?,
                event_id: None,
            })
        };
        Self {
            publish: publish(),
            client,
        }
    }

    /// Sets the event id. An event of the same type that is published again with the same id is the same event, so it
    /// is safe to repeat.
    pub fn event_id(mut self, id: impl AsRef<str>) -> Self {
        match (&mut self.publish, Name::new(id)) {
            (Ok(publish), Ok(id)) => publish.event_id = Some(id),
            (Ok(_), Err(refusal)) => self.publish = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }
}

impl IntoFuture for Publication<Client> {
    type Output = Result<Published, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Publishes the event. Once this returns, the event is durable and is in the inbox of every instance that it
    /// matched.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let published = self.client.publish(vec![self.publish?]).await;
            Ok(published.and_then(first)??)
        })
    }
}

impl Publication<Client> {
    /// Publishes the event inside your own transaction. It exists once that commits; if that rolls back, it never
    /// existed. See [`StartBuilder::within`](super::StartBuilder::within).
    pub fn within<T: Within>(self, transaction: T) -> T::Answer<Result<Published, Error>> {
        let ops = self.publish.map(|publish| vec![Op::Publish(vec![publish])]);
        transaction.run(&self.client, ops, |answers| {
            match answers?.into_iter().next() {
                Some(Answer::Published(each)) => {
                    Ok(each.into_iter().next().ok_or(Error::Closed)??)
                }
                _ => Err(Error::unexpected_answer()),
            }
        })
    }
}

impl Abide {
    /// Publishes an event and wakes every instance that waits for it.
    ///
    /// ```
    /// # use abide::Abide;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// let payment = serde_json::json!({"order_id": "ord_123", "amount": 99.99});
    /// let published = abide.publish("payment.received", &payment).event_id("evt_7").await?;
    /// assert_eq!((published.matched, published.duplicate), (0, false));
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(
        &self,
        event_type: &str,
        payload: &(impl Serialize + ?Sized),
    ) -> Publication<Client> {
        Publication::new(event_type, payload, self.client().clone())
    }

    /// Publishes any number of events in one transaction. Each event gets its own result.
    pub async fn publish_all(
        &self,
        events: impl IntoIterator<Item = Publication>,
    ) -> Result<Vec<Result<Published, Refusal>>, Error> {
        let events = events.into_iter().map(|event| event.publish);
        let events: Vec<Publish> = events.collect::<Result<_, _>>()?;
        Ok(self.client().publish(events).await?)
    }

    /// Returns a page of the stored events, newest first. Pass `next` of one page as `before` of the following one.
    pub async fn events(
        &self,
        filter: &EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> Result<EventPage, Error> {
        Ok(self.store().events(filter, before, limit).await?)
    }

    /// Returns a page of the waits for events, ordered by instance: which instance waits for what, since when and until
    /// when.
    pub async fn event_waits(
        &self,
        filter: &WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> Result<WaiterPage, Error> {
        Ok(self.store().waiters(filter, after, limit).await?)
    }
}
