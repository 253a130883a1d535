//! Helpers that the tests share: sending, starting a source, and reading the events.

use std::sync::Arc;
use std::time::Duration;

use abide::Abide;
use abide::model::{Event as StoredEvent, Limits};
use abide::store::{EventFilter, Store};
use abide_kernel::SystemClock;
use abide_kernel::memory::Memory;
use abide_nats::{Source, SourceBuilder};
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use futures_util::future::join_all;
use serde_json::json;

use crate::server::Server;
use crate::wait::eventually;

/// A source of all of `ORDERS` that is not started; what it left unacknowledged comes again after a second.
pub fn source(abide: &Abide, server: &Server) -> SourceBuilder {
    Source::of(abide.clone(), &server.url())
        .stream("ORDERS")
        .durable("abide")
        .ack_wait(Duration::from_secs(1))
}

/// A store in memory, to be put behind something.
pub fn memory() -> Arc<dyn Store> {
    let clock = Arc::new(SystemClock::default());
    Arc::new(Memory::new(clock, Limits::default()))
}

/// Sends `{"n": n}` to `orders.paid` for each of these, stored when this returns.
pub async fn send(context: &Context, numbers: std::ops::Range<u32>) {
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(200) {
        let sent = some.iter().map(async |n| {
            let body = json!({"n": n}).to_string();
            let stored = context.publish("orders.paid", body.into()).await.unwrap();
            stored.await.unwrap();
        });
        join_all(sent).await;
    }
}

/// All events that are kept, oldest first.
pub async fn events(abide: &Abide) -> Vec<StoredEvent> {
    let mut all = Vec::new();
    let mut before = None;
    loop {
        let page = abide.events(&EventFilter::default(), before, 500).await;
        let page = page.unwrap();
        all.extend(page.items);
        before = page.next;
        if before.is_none() {
            all.reverse();
            return all;
        }
    }
}

/// The numbers that the events say, sorted.
pub async fn numbers(abide: &Abide) -> Vec<u32> {
    let number = |event: &StoredEvent| {
        let payload: serde_json::Value = event.payload.to().unwrap();
        payload["n"].as_u64().unwrap() as u32
    };
    let mut numbers: Vec<u32> = events(abide).await.iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Waits until there are so many events.
pub async fn until_there_are(abide: &Abide, count: usize) {
    let what = format!("{count} events");
    eventually(&what, async || events(abide).await.len() >= count).await;
}

/// Waits until the server knows that every message was dealt with.
pub async fn until_all_is_acknowledged(context: &Context) {
    eventually("the acknowledgements", async || {
        let consumer = context.get_consumer_from_stream("abide", "ORDERS").await;
        let Ok(mut consumer): Result<PullConsumer, _> = consumer else {
            return false;
        };
        let Ok(info) = consumer.info().await else {
            return false;
        };
        (info.num_pending, info.num_ack_pending) == (0, 0)
    })
    .await;
}
