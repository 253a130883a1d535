//! A wait with a deadline: the step runs when the payment came and when its time is up, and decides.
//!
//! `cargo run --example decide_by_deadline`

use abide::prelude::*;
use abide::testing::Kit;

const PAYMENT: Signal<u32> = Signal::new("payment");

struct Order;

#[machine(steps = At, output = String)]
impl Order {
    async fn wait(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAYMENT).timeout(hours(1)).then(At::Decide)
    }

    async fn decide(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            return stop("payment never came"); // a wake, not a failure: `ctx.attempt()` is still 0
        }
        next(At::Ship)
    }

    async fn ship() -> Outcome<Self> {
        done("shipped".into())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let kit = Kit::builder().machine(Order).build().await?; // an `Abide` in memory with a clock to move
    let paid = kit.start(Order, ()).key("order:1").await?;
    let forgotten = kit.start(Order, ()).key("order:2").await?;
    kit.signal("order:1", PAYMENT, &100).await?;
    kit.advance(hours(1)).await;
    println!("{}", paid.result().await?);
    println!(
        "{:?}",
        forgotten.result().await.map_err(|error| error.to_string())
    );
    Ok(())
}
