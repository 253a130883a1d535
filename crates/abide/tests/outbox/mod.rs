//! Requests that callers insert into the outbox, in transactions of their own: carried out once each, in order, or recorded
//! as refused (rule 17.3). On SQLite and on PostgreSQL; the store in memory has no SQL, and so no outbox.

#![cfg(all(feature = "sqlite", feature = "postgres"))]

mod caller;
mod many;
mod refusing;
mod taking;

use crate::common::{At, Lab, Script, eventually};
use abide::engine::Engine;
use abide::store::Filter;
use abide::time::{hours, secs};
use abide::{Status, done};
use caller::Caller;
use serde_json::{Value, json};

/// Makes two tests of one: on SQLite, and on PostgreSQL, each with a connection of the caller's own.
macro_rules! on_both {
    (async fn $name:ident($lab:ident: Lab, $caller:ident: Caller) $body:block) => {
        mod $name {
            use super::*;

            async fn test($lab: Lab) {
                #[allow(unused_mut, reason = "not every test begins a transaction")]
                let mut $caller = Caller::new(&$lab).await;
                $body
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Lab::sqlite().await.check(test).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Lab::postgres().await.check(test).await;
            }
        }
    };
}
pub(crate) use on_both;

/// Ends with its state, unless that is `"wait"`: then it waits for a signal that never comes, and its inbox can be read.
fn script() -> Script {
    Script::new(|_, ctx| match ctx.state() == &json!("wait") {
        true => ctx
            .wait_for(abide::Signal::<u32>::new("never"))
            .then(At::Two),
        false => done(ctx.state().clone()),
    })
}

/// Starts an engine that does not poll: it runs only work that it was notified of.
async fn engine(lab: &Lab) -> Engine {
    let engine = lab.again().await.engine().poll(hours(1));
    engine.machine(script()).start().await.unwrap()
}

fn start(key: &str, state: Value) -> String {
    json!({"start": {"machine": "script", "key": key, "state": state}}).to_string()
}

fn signal(key: &str, payload: u32) -> String {
    json!({"signal": {"target": key, "name": "paid", "payload": payload}}).to_string()
}

/// Waits until there is an instance under a key, and it stands so.
async fn until(lab: &Lab, key: &str, status: Status) -> abide::model::Instance {
    let mut found = None;
    eventually(&format!("{key} to be {status}"), async || {
        found = lab.get(key).await.unwrap();
        found.as_ref().is_some_and(|one| one.status == status)
    })
    .await;
    found.unwrap()
}

/// Waits until nothing waits in the outbox.
async fn until_taken(lab: &Lab) {
    eventually("the outbox to be empty", async || {
        lab.outbox_depth().await.unwrap().waiting == 0
    })
    .await;
}

/// The payloads of the signals that came to an instance, in order.
async fn payloads(lab: &Lab, key: &str) -> Vec<Value> {
    let mut items = lab.commands(key, None, 10_000).await.unwrap().items;
    items.sort_by_key(|record| record.sequence);
    let read =
        |record: &abide::model::Command| record.arguments.to::<Vec<Value>>().unwrap()[0].clone();
    items.iter().map(read).collect()
}

async fn count(lab: &Lab) -> usize {
    let page = lab.list(&Filter::default(), None, 1_000).await.unwrap();
    page.items.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_has_no_outbox() {
    let lab = Lab::memory().await;
    let engine = lab.engine().machine(script()).lease(secs(5));
    let engine = engine.start().await.unwrap();
    assert_eq!(lab.outbox_depth().await.unwrap(), Default::default());
    let page = lab.refused_requests(None, 9).await.unwrap();
    assert!(page.items.is_empty());
    assert_eq!(
        lab.retry_refused(&[abide::outbox::OutboxId(1)])
            .await
            .unwrap(),
        0
    );
    engine.shutdown().await;
}
