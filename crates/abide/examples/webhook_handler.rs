//! A graph that waits for an event, which another process publishes.
//!
//! `cargo run --example webhook_handler` starts it and waits;
//! `cargo run --example webhook_handler -- 99.99` in another terminal publishes the payment.

use abide::graph::output;
use abide::message::eq;
use abide::prelude::*;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "sqlite:orders.db".into());
    let abide = Abide::open(&store).await?;
    match std::env::args().nth(1) {
        None => handle(abide).await,
        Some(amount) => publish(abide, amount.parse()?).await,
    }
}

async fn handle(abide: Abide) -> Result<(), BoxError> {
    let order_id = eq(output("create-order", "id"));
    let paid = Event::new("payment.received").matching("order_id", order_id);
    let graph = Graph::builder("webhook-handler")
        .task("create-order")
        .timeout(secs(10))
        .wait_for_event("payment", paid, hours(1))
        .after("create-order")
        .task_named("fulfill", "fulfill-order")
        .after("payment")
        .build()?;

    let engine = abide.engine().graph(&graph);
    let engine = engine
        .task("create-order", |order: Value| async move { Ok(order) })
        .task("fulfill-order", |payment: Value| async move {
            Ok(payment.get("amount").cloned())
        });
    let engine = engine.start().await?;
    let run = abide.start(graph, json!({"id": "ord_123"})).key("ord_123");
    println!("{}", run.or_existing().await?.result().await?);
    engine.shutdown().await;
    Ok(())
}

async fn publish(abide: Abide, amount: f64) -> Result<(), BoxError> {
    let payment = json!({"order_id": "ord_123", "amount": amount});
    let published = abide.publish("payment.received", &payment).await?;
    println!("{} waited for it", published.matched);
    abide.close().await;
    Ok(())
}
