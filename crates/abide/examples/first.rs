//! A first machine, on a file: stop it in the middle (ctrl-c), run it again, and it goes on where it was.
//!
//! `cargo run --example first`

use abide::machine::next_in;
use abide::prelude::*;

#[derive(Message)]
struct Order {
    item: String,
    paid: u32,
}

struct Checkout;

#[machine(steps = At, state = Order, output = String)]
impl Checkout {
    async fn charge(ctx: &mut Context<Self>) -> Outcome<Self> {
        println!("instance {}: charge", ctx.id());
        ctx.state_mut().paid = 100;
        next(At::Pack)
    }

    async fn pack(ctx: &mut Context<Self>) -> Outcome<Self> {
        println!("instance {}: pack", ctx.id());
        next_in(secs(2), At::Ship)
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        println!("instance {}: ship", ctx.id());
        let Order { item, paid } = ctx.state();
        done(format!("{item} shipped, {paid} paid"))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "sqlite:first.db".into());
    let abide = Abide::open(&store).await?;
    let engine = abide
        .engine()
        .machine(Checkout)
        .name("first")
        .start()
        .await?;

    let order = Order {
        item: "kettle".into(),
        paid: 0,
    };
    let order = abide
        .start(Checkout, order)
        .key("order:42")
        .or_existing()
        .await?;
    if !order.is_new() {
        println!("instance {}: still there, going on", order.id());
    }
    println!("instance {}: {}", order.id(), order.result().await?);

    engine.shutdown().await;
    Ok(())
}
