//! An order that waits for its payment and then ships.
//!
//! `cargo run --example ship_order`

use abide::{Abide, BoxError, Context, Outcome, Signal, done, machine};
use serde_json::{Value, json};

const PAID: Signal<u32> = Signal::new("payment_confirmed");

struct Order;

#[machine(steps = At, output = Value)]
impl Order {
    async fn start(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAID).then(At::Ship)
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        done(json!({"paid": ctx.awaited(PAID)?}))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?; // or "sqlite:orders.db", "postgres://…"
    let engine = abide.engine().machine(Order).start().await?;
    let order = abide.start(Order, ()).key("order:42").await?;
    abide.signal("order:42", PAID, &100).dedup("evt-7").await?; // safe to send again
    println!("{}", order.result().await?);
    engine.shutdown().await;
    Ok(())
}
