//! The program of the README: an order that waits for its payment, however often it is stopped meanwhile.
//!
//! `cargo run --example hello`, and in another terminal `cargo run --example hello pay`

use abide::prelude::*;

const PAID: Signal<u32> = Signal::new("paid");

#[derive(Message)]
struct Order {
    item: String,
}

struct Checkout;

#[machine(steps = At, state = Order, output = String)]
impl Checkout {
    async fn order(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAID).timeout(days(3)).then(At::Ship) // a row, not a sleeping process
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            return stop("payment never came");
        }
        let (item, paid) = (&ctx.state().item, ctx.awaited(PAID)?);
        done(format!("{item} shipped, {paid} paid"))
    }
}

#[abide::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "sqlite:orders.db".into());
    let abide = Abide::open(&store).await?; // or "postgres://…", "https://…"
    if std::env::args().any(|argument| argument == "pay") {
        abide.signal("order:42", PAID, &100).dedup("evt-7").await?; // sent twice, it counts once
        return Ok(());
    }
    let engine = abide.engine().machine(Checkout).start().await?;
    let kettle = Order {
        item: "kettle".into(),
    };
    let order = abide
        .start(Checkout, kettle)
        .key("order:42")
        .or_existing()
        .await?;
    println!("order {} waits for its payment", order.id());
    println!("{}", order.result().await?);
    engine.shutdown().await;
    Ok(())
}
