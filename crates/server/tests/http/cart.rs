//! A machine for these tests, run by an engine in this process over the server's store.

use abide::engine::Engine;
use abide::machine::{Answer, Call, Messages};
use abide::time::days;
use abide::{Abide, Context, Machine, Outcome, Signal, Step, Update, done, stop};

use crate::common::Server;

pub const ADD: Update<String, usize> = Update::new("add");
pub const ORDER: Signal<u32> = Signal::new("order");
pub const FAIL: Signal<String> = Signal::new("fail");

#[derive(Step)]
pub enum At {
    Fill,
    Order,
}

/// It waits for `order` or `fail`, takes items by `add` meanwhile, and comes to what it has.
pub struct Cart;

impl Machine for Cart {
    const NAME: &'static str = "cart";
    type Step = At;
    type State = Vec<String>;
    type Output = Vec<String>;

    fn messages() -> Messages {
        Messages::new().signal(ORDER).signal(FAIL).update(ADD)
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Fill => ctx
                .wait_for(ORDER)
                .or(FAIL)
                .timeout(days(30))
                .then(At::Order),
            At::Order if ctx.state().iter().any(|item| item == "bomb") => {
                stop("there is a bomb in it")
            }
            At::Order => done(ctx.state().clone()),
        }
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        let item = call.read(ADD)?;
        if item.is_empty() {
            return Err("an item has a name".into());
        }
        ctx.state_mut().push(item);
        ADD.reply(&ctx.state().len())
    }
}

/// An engine that runs carts.
pub async fn engine(server: &Server) -> (Abide, Engine) {
    let abide = Abide::open(&server.store).await.unwrap();
    let engine = abide.engine().machine(Cart).start().await.unwrap();
    (abide, engine)
}

/// Waits until an instance stands there.
pub async fn standing(server: &Server, target: &str, status: &str) {
    let path = format!("/v1/instances/{target}");
    let stands = async || server.get(&path).await.1["status"] == status;
    server.until(&format!("{target} is {status}"), stands).await;
}
