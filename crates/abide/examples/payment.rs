//! An order that waits for its payment: a signal with a deadline, and an update that changes it while it waits.
//!
//! `cargo run --example payment`

use abide::machine::{Answer, Call};
use abide::message::Arguments;
use abide::prelude::*;

#[derive(Message)]
struct Order {
    item: String,
    address: String,
}

#[derive(Message)]
struct Payment {
    amount: u32,
}

/// Wakes it.
const PAID: Signal<Payment> = Signal::new("payment_confirmed");
/// Changes it while it waits.
const MOVE: Update<String, String> = Update::new("move_to");

struct Checkout;

#[machine(steps = At, state = Order, output = String, signals(PAID), updates(MOVE))]
impl Checkout {
    async fn start(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAID).timeout(hours(1)).then(At::Ship)
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            return stop("payment never came");
        }
        let paid = ctx.awaited(PAID)?.amount;
        let Order { item, address } = ctx.state();
        done(format!("{item} shipped to {address}, {paid} paid"))
    }

    async fn on_update(call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        let new = call.read(MOVE)?;
        let old = std::mem::replace(&mut ctx.state_mut().address, new);
        MOVE.reply(&old)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?; // or "sqlite:orders.db", "postgres://…"
    let engine = abide.engine().machine(Checkout).start().await?;
    let order = Order {
        item: "kettle".into(),
        address: "the old house".into(),
    };
    let order = abide.start(Checkout, order).key("order:42").await?;

    let was = abide
        .update("order:42", MOVE, &"the new house".to_owned())
        .await?;
    println!("it was to go to {was}");

    let empty = abide.signal("order:42", "payment_confirmed", Arguments::default());
    if let Err(refused) = empty.await {
        println!("refused: {refused}");
    }

    let paid = Payment { amount: 100 };
    for _ in 0..2 {
        let receipt = abide.signal("order:42", PAID, &paid).dedup("evt-7").await?;
        println!(
            "message {}, sent before: {}",
            receipt.sequence().unwrap_or_default(),
            receipt.duplicate
        );
    }
    println!("{}", order.result().await?);
    for entry in order.history().await? {
        println!("{:>3} {}", entry.seq, entry.what.kind());
    }
    engine.shutdown().await;
    Ok(())
}
