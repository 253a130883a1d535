//! Updates: handled under the instance's claim, whatever it is doing, and answered.

mod answers;
mod crashes;
mod crowds;
mod failing;
mod handling;

use crate::common::{Gate, Lab, Log};
use abide::client::{Handle, new_start};
use abide::contract::Accepts;
use abide::machine::{Answer, Call, Messages, continue_as_new, reply};
use abide::model::Name;
use abide::time::hours;
use abide::{Context, Job, Machine, Outcome, Signal, Step, Update, done, next};
use serde::{Deserialize, Serialize};

/// The state of a [`Till`]: the behaviour of its step, and the amounts that were added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    pub how: String,
    pub total: i64,
    pub entries: Vec<i64>,
}

pub fn books(how: &str) -> Books {
    Books {
        how: how.to_owned(),
        ..Books::default()
    }
}

/// Adds an amount, and answers the total.
pub const ADD: Update<i64, i64> = Update::new("add");
/// Changes the state and then fails.
pub const FAIL: Update<String, ()> = Update::new("fail");
/// Changes the state and then panics.
pub const PANIC: Update<(), ()> = Update::new("panic");
/// Is answered, and goes on to the last step.
pub const SKIP: Update<(), i64> = Update::new("skip");
/// Is answered, and ends the instance.
pub const CLOSE: Update<(), String> = Update::new("close");
/// Is answered, and begins a new run.
pub const RENEW: Update<(), u32> = Update::new("renew");
/// Waits at the gate before it is answered.
pub const SLOW: Update<i64, i64> = Update::new("slow");
/// Is declared without parameters, so that it can be sent with anything; the handler reads a number.
pub const RAW: Update<i64, i64> = Update::new("raw");
/// Answers with more than can be stored.
pub const LARGE: Update<usize, String> = Update::new("large");
/// Is declared, and has no handler.
pub const FORGOTTEN: Update<(), ()> = Update::new("forgotten");

pub const SHUT: Signal<()> = Signal::new("shut");
pub const CHILD: Job<()> = Job::new("child");

#[derive(Step, Debug)]
pub enum At {
    Open,
    Shut,
}

/// A machine that behaves as its state prescribes, and takes updates meanwhile.
#[derive(Clone)]
pub struct Till {
    pub gate: Gate,
    /// The amounts that were added, one for each run of a handler.
    pub log: Log<i64>,
}

impl Till {
    pub fn gated() -> Self {
        Self {
            gate: Gate::closed(),
            log: Log::new(),
        }
    }
}

impl Machine for Till {
    const NAME: &'static str = "till";
    type Step = At;
    type State = Books;
    type Output = Books;

    fn messages() -> Messages {
        Messages::new()
            .signal(SHUT)
            .update(ADD)
            .update(FAIL)
            .update(PANIC)
            .update(SKIP)
            .update(CLOSE)
            .update(RENEW)
            .update(SLOW)
            .update(LARGE)
            .update(FORGOTTEN)
            .update_of(Accepts {
                name: Name::new("raw").unwrap(),
                parameters: None,
            })
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match (at, ctx.state().how.as_str()) {
            (At::Open, "waits") => ctx.wait_for(SHUT).then(At::Shut),
            (At::Open, "waits until") => ctx.wait_for(SHUT).timeout(hours(1)).then(At::Shut),
            (At::Open, "sleeps") => ctx.sleep(hours(1)).then(At::Shut),
            (At::Open, "joins") => ctx.spawn([new_start(CHILD, ())]).then(At::Shut),
            (At::Open, "runs") => {
                self.gate.pass().await;
                ctx.state_mut().entries.push(0);
                next(At::Shut)
            }
            (At::Open, "ends") => {
                self.gate.pass().await;
                done(ctx.state().clone())
            }
            _ => done(ctx.state().clone()),
        }
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        match call.name() {
            "add" => {
                let amount = call.read(ADD)?;
                self.log.note(amount);
                ctx.state_mut().total += amount;
                ctx.state_mut().entries.push(amount);
                ADD.reply(&ctx.state().total)
            }
            "slow" => {
                self.gate.pass().await;
                let amount = call.read(SLOW)?;
                ctx.state_mut().entries.push(amount);
                SLOW.reply(&amount)
            }
            "fail" => {
                ctx.state_mut().total = -1;
                Err(call.read(FAIL)?.into())
            }
            "panic" => {
                ctx.state_mut().total = -1;
                panic!("the till is on fire")
            }
            "skip" => SKIP.reply_then(&ctx.state().total, next(At::Shut)),
            "close" => {
                ctx.state_mut().total = 0;
                CLOSE.reply_then(&"closed".into(), done(ctx.state().clone()))
            }
            "renew" => {
                ctx.state_mut().entries.clear();
                RENEW.reply_then(&1, continue_as_new(At::Open))
            }
            "raw" => reply(&call.read(RAW)?),
            "large" => LARGE.reply(&"x".repeat(call.read(LARGE)?)),
            other => Err(format!("no handler for {other}").into()),
        }
    }
}

/// One that stands where its step has brought it.
pub async fn standing(lab: &Lab, till: &Till, how: &str) -> Handle<Books> {
    let handle = lab.start(till.clone(), books(how)).key(how).await.unwrap();
    let status = match how {
        "sleeps" => abide::Status::Scheduled,
        "joins" => abide::Status::AwaitingChildren,
        "runs" | "ends" => abide::Status::Executing,
        _ => abide::Status::AwaitingSignal,
    };
    lab.until_status(handle.id(), status).await;
    handle
}

/// An engine whose children wait for the gate.
pub async fn engine(lab: &Lab, till: &Till) -> abide::engine::Engine {
    let gate = till.gate.clone();
    let engine = lab.engine().machine(till.clone()).job(CHILD, move |()| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(())
        }
    });
    engine.start().await.unwrap()
}
