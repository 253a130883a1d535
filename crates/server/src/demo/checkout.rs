//! A sample: an order that waits for its payment, as a machine.

use abide::machine::Messages;
use abide::time::minutes;
use abide::{Context, Machine, Outcome, Signal, Step, done, next};
use serde::{Deserialize, Serialize};

use super::work;

/// The payment of an order: `abide signal order:7 paid 40`.
pub const PAID: Signal<u32> = Signal::new("paid");

/// How long an order waits for its payment, in minutes.
const PATIENCE_MIN: u64 = 5;

/// An order, and the effects of its steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The item that was ordered.
    pub item: String,
    /// Its price.
    pub price: u32,
    /// The effects of the steps, one line each: `step: what`.
    #[serde(default)]
    pub effects: Vec<String>,
}

/// The result of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// The result in words.
    pub said: String,
    /// The effects of the steps, one line each: `step: what`.
    pub effects: Vec<String>,
}

impl Order {
    /// Makes the order with this number.
    pub fn number(number: u64) -> Self {
        const GOODS: [(&str, u32); 5] = [
            ("kettle", 40),
            ("lamp", 65),
            ("chair", 120),
            ("radio", 80),
            ("clock", 25),
        ];
        let index = usize::try_from(number).unwrap_or_default() % GOODS.len();
        let (item, price) = GOODS.get(index).copied().unwrap_or(("kettle", 40));
        Self {
            item: item.to_owned(),
            price,
            effects: Vec::new(),
        }
    }
}

/// The steps of an order.
#[derive(Debug, Step)]
pub enum At {
    /// Reserves the goods, and waits for the payment.
    Reserve,
    /// Takes the payment.
    Charge,
    /// Packs the goods.
    Pack,
    /// Ships the goods.
    Ship,
    /// The payment did not arrive: releases the goods.
    Release,
}

/// The machine.
pub struct Checkout;

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = At;
    type State = Order;
    type Output = Receipt;

    fn messages() -> Messages {
        Messages::new().signal(PAID)
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Reserve => {
                work(200).await;
                ctx.state_mut().did("reserve", "put aside");
                let payment = ctx.wait_for(PAID).timeout(minutes(PATIENCE_MIN));
                payment.then(At::Charge)
            }
            At::Charge if ctx.timed_out() => {
                ctx.state_mut().did("charge", "not paid in time");
                next(At::Release)
            }
            At::Charge => {
                let paid = ctx.awaited(PAID)?;
                // A bank that gets `ctx.token()` charges once, however often the request is repeated.
                work(700).await;
                ctx.state_mut().did("charge", &format!("{paid} paid"));
                next(At::Pack)
            }
            At::Pack => {
                work(400).await;
                ctx.state_mut().did("pack", "packed");
                next(At::Ship)
            }
            At::Ship => {
                work(500).await;
                ctx.state_mut().did("ship", "shipped");
                done(ctx.state().receipt("is shipped"))
            }
            At::Release => {
                work(200).await;
                ctx.state_mut().did("release", "put back");
                done(
                    ctx.state()
                        .receipt("is back on its shelf: it was not paid in time"),
                )
            }
        }
    }
}

impl Order {
    fn did(&mut self, step: &str, what: &str) {
        self.effects.push(format!("{step}: {what}"));
    }

    fn receipt(&self, text: &str) -> Receipt {
        Receipt {
            said: format!("the {} {text}", self.item),
            effects: self.effects.clone(),
        }
    }
}
