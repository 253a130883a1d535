//! A first machine, on a file: stop it in the middle (ctrl-c), run it again, and it goes on where it was.
//!
//! `cargo run --example first`

use abide::{Abide, Context, Machine, Outcome, Step, done, next, next_in, secs};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    paid: u32,
}

#[derive(Step)]
enum At {
    Charge,
    Pack,
    Ship,
}

struct Checkout;

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = At;
    type State = Order;
    type Output = String;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        println!("instance {}: {}", ctx.id(), at.name());
        match at {
            At::Charge => {
                ctx.state_mut().paid = 100;
                next(At::Pack)
            }
            At::Pack => next_in(secs(2), At::Ship),
            At::Ship => done(format!(
                "{} shipped, {} paid",
                ctx.state().item,
                ctx.state().paid
            )),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "sqlite:first.db".into());
    let abide = Abide::open(&url).await?;
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
