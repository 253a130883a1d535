//! The machine after a change: a customer who has paid is thanked, in a step of its own.

use abide::prelude::*;
use orders::PAID;

#[derive(Message)]
pub struct Order {
    pub item: String,
    pub price: u32,
    #[serde(default)]
    pub paid: u32,
}

pub struct Checkout;

#[machine(steps = At, state = Order, output = String, signals(PAID))]
impl Checkout {
    async fn reserve(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAID).timeout(days(3)).then(At::Ship)
    }

    async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            return next(At::Release);
        }
        ctx.state_mut().paid = ctx.awaited(PAID)?.amount;
        next(At::Thank)
    }

    async fn thank(ctx: &mut Context<Self>) -> Outcome<Self> {
        let Order { item, paid, .. } = ctx.state();
        done(format!("{item} shipped, {paid} paid, thank you"))
    }

    async fn release(ctx: &mut Context<Self>) -> Outcome<Self> {
        done(format!("{} is back on its shelf", ctx.state().item))
    }
}
