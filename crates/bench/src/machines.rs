//! The machines that are measured: they do nothing, so that all that is left is what the engine does.

use std::time::{SystemTime, UNIX_EPOCH};

use abide::client::new_start;
use abide::message::eq;
use abide::time::{Timestamp, days};
use abide::{Context, Event, Machine, Outcome, Signal, Step, done, next};
use serde::{Deserialize, Serialize};

/// A small state, as an application would keep one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub order: u64,
    pub steps: u32,
}

impl Order {
    pub const fn new(order: u64) -> Self {
        Self { order, steps: 0 }
    }

    /// As it is stored.
    pub fn json(order: u64) -> String {
        format!(r#"{{"order":{order},"steps":0}}"#)
    }
}

#[derive(Step)]
pub enum At {
    Work,
}

/// One step, and done.
pub struct One;

impl Machine for One {
    const NAME: &'static str = "bench-one";
    type Step = At;
    type State = Order;
    type Output = u64;

    async fn step(&self, _at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        done(ctx.state().order)
    }
}

/// Ten steps, each of which changes the state.
pub struct Ten;

impl Ten {
    pub const STEPS: u32 = 10;
}

impl Machine for Ten {
    const NAME: &'static str = "bench-ten";
    type Step = At;
    type State = Order;
    type Output = u64;

    async fn step(&self, _at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.state_mut().steps += 1;
        if ctx.state().steps < Self::STEPS {
            next(At::Work)
        } else {
            done(ctx.state().order)
        }
    }
}

/// Starts as many children as its state says, and is done when all of them have ended.
pub struct Fan;

impl Machine for Fan {
    const NAME: &'static str = "bench-fan";
    type Step = Stage;
    type State = u32;
    type Output = usize;

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Stage::Park => {
                let children = (0..u64::from(*ctx.state())).map(Order::new);
                let children = children.map(|order| new_start(One, order));
                ctx.spawn(children).then(Stage::Woken)
            }
            Stage::Woken => done(ctx.children().len()),
        }
    }
}

/// One step, which tells by how many microseconds it ran too late. Its state is the moment when it is due.
pub struct Late;

impl Machine for Late {
    const NAME: &'static str = "bench-late";
    type Step = At;
    type State = i64;
    type Output = i64;

    async fn step(&self, _at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        done(now().as_micros() - *ctx.state())
    }
}

/// The signal that wakes those that wait.
pub const GO: Signal<u32> = Signal::new("go");

#[derive(Step)]
pub enum Stage {
    Park,
    Woken,
}

/// Waits for a signal, and is done.
pub struct Parked;

impl Machine for Parked {
    const NAME: &'static str = "bench-parked";
    type Step = Stage;
    type State = Order;
    type Output = u64;

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Stage::Park => ctx.wait_for(GO).then(Stage::Woken),
            Stage::Woken => done(ctx.state().order),
        }
    }
}

/// Waits for the event of its order, and is done.
pub struct Listening;

impl Listening {
    /// The type of the events.
    pub const EVENT: &'static str = "payment.received";
}

impl Machine for Listening {
    const NAME: &'static str = "bench-listening";
    type Step = Stage;
    type State = Order;
    type Output = u64;

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Stage::Park => {
                let payment = Event::new(Self::EVENT).matching("order", eq(ctx.state().order));
                ctx.wait_for_event(payment)
                    .timeout(days(365))
                    .then(Stage::Woken)
            }
            Stage::Woken => done(ctx.state().order),
        }
    }
}

/// Waits for a signal, tells when it runs, and waits for the next.
#[derive(Default)]
pub struct Waker {
    notify: Option<Box<dyn Fn(u32) + Send + Sync>>,
}

impl Waker {
    /// Creates one that calls a function with the state, which differs from instance to instance.
    pub fn new(notify: impl Fn(u32) + Send + Sync + 'static) -> Self {
        Self {
            notify: Some(Box::new(notify)),
        }
    }
}

impl Machine for Waker {
    const NAME: &'static str = "bench-waker";
    type Step = Stage;
    type State = u32;
    type Output = ();

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match (at, &self.notify) {
            (Stage::Park, _) => ctx.wait_for(GO).then(Stage::Woken),
            (Stage::Woken, tell) => {
                if let Some(tell) = tell {
                    tell(*ctx.state());
                }
                // Consumes the signal, and parks again.
                next(Stage::Park)
            }
        }
    }
}

/// The time of this computer.
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_store_the_state_that_abide_stores() {
        assert_eq!(
            serde_json::to_string(&Order::new(42)).unwrap(),
            Order::json(42)
        );
    }
}
