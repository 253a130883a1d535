//! An order: its item is reserved, it waits for its payment, and it is shipped.

use abide::prelude::*;

/// The state of an order.
#[derive(Message)]
pub struct Order {
    pub item: String,
    pub price: u32,
}

/// The arguments of the signal `paid`, which arrives when the customer has paid.
#[derive(Message)]
pub struct Payment {
    pub amount: u32,
}

pub const PAID: Signal<Payment> = Signal::new("paid");

pub struct Checkout;

#[machine(steps = At, state = Order, output = String, signals(PAID))]
impl Checkout {
    async fn reserve(ctx: &mut Context<Self>) -> Outcome<Self> {
        call_warehouse(&ctx.state().item, &ctx.token().to_string()).await?;
        ctx.wait_for(PAID).timeout(days(3)).then(At::Ship)
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            return next(At::Release);
        }
        let paid = ctx.awaited(PAID)?.amount;
        done(format!("{} shipped, {paid} paid", ctx.state().item))
    }

    async fn release(ctx: &mut Context<Self>) -> Outcome<Self> {
        done(format!("{} is back on its shelf", ctx.state().item))
    }

    fn retry(&self) -> Retry {
        Retry::exponential(secs(1)).attempts(3)
    }
}

/// Stands for a request to the warehouse. A step may run twice, so it sends its token along: the same token, the same request.
async fn call_warehouse(item: &str, token: &str) -> Result<(), BoxError> {
    match item {
        "unicorn" => Err("the warehouse has no unicorn".into()),
        _ => {
            println!("reserved {item} under {token}");
            Ok(())
        }
    }
}
