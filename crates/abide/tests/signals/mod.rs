//! Signals: waits of a step, the signals that it gets, the answers to senders, and the records that remain.

mod buffered;
mod contracts;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod crowded;
mod dedup;
mod holding;
mod packs;
mod processes;
mod records;
mod refused;
mod resuming;
mod sending;
mod timeouts;
mod waiting;
mod with_start;

use crate::common::{At, Lab, Script};
use abide::client::SendError;
use abide::contract::{Accepts, Parameter};
use abide::machine::Messages;
use abide::message::Arguments;
use abide::model::{Command, Json, Name};
use abide::{Context, InstanceId, Machine, Message, Outcome, Signal, Status, Step, done};
use serde_json::{Value, json};

/// Sent field by field.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct Payment {
    pub amount: i64,
    pub note: Option<String>,
}

pub const PAID: Signal<Payment> = Signal::new("paid");
pub const NOTE: Signal<String> = Signal::new("note");
pub const GO: Signal<()> = Signal::new("go");

pub fn payment(amount: i64) -> Payment {
    Payment { amount, note: None }
}

/// Waits for one signal of that name, and ends with what it was sent with.
pub fn waits_for(name: &'static str) -> Script {
    Script::new(move |at, ctx| match at {
        At::One => ctx.wait_for(name).then(At::Two),
        _ => done(value(&ctx.payload(name).unwrap())),
    })
}

pub fn value(json: &Json) -> Value {
    json.to().unwrap()
}

pub fn args(values: &[Value]) -> Arguments {
    let values: Vec<Json> = values.iter().map(|one| Json::of(one).unwrap()).collect();
    values.into()
}

pub fn named(values: &[(&str, Value)]) -> Arguments {
    let pair = |(name, value): &(&str, Value)| ((*name).to_owned(), Json::of(value).unwrap());
    values.iter().map(pair).collect::<Vec<_>>().into()
}

/// An instance that waits for a signal.
pub async fn parked(lab: &Lab, key: &str) -> InstanceId {
    let started = lab.start(Script::any(), json!(null)).key(key).await;
    let id = started.unwrap().id();
    lab.until_status(id, Status::AwaitingSignal).await;
    id
}

/// All commands that were sent to an instance, oldest first.
pub async fn sent_to(lab: &Lab, id: InstanceId) -> Vec<Command> {
    let mut page = lab.commands(id, None, 10_000).await.unwrap();
    assert!(page.next.is_none());
    page.items.reverse();
    page.items
}

/// The outcome of a refusal in the decision table, and its reason.
pub fn decision(error: &SendError) -> (&'static str, Option<&'static str>) {
    (error.outcome().unwrap(), error.reason())
}

/// A machine under a contract: one signal made of a type, one written out by hand.
#[derive(Clone, Copy)]
pub struct Strict;

#[derive(Step)]
pub enum Stage {
    Open,
    Closed,
}

impl Machine for Strict {
    const NAME: &'static str = "strict";
    type Step = Stage;
    type State = Value;
    type Output = Value;

    fn messages() -> Messages {
        Messages::new().signal(PAID).signal_of(Accepts {
            name: Name::new("moved").unwrap(),
            parameters: Some(vec![
                Parameter::new("place", "string"),
                Parameter::new("floor", "int|string").default_to(Json::of(&1).unwrap()),
                Parameter::new("tags", "string").variadic(),
            ]),
        })
    }

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Stage::Open => ctx.wait_for(PAID).or("moved").then(Stage::Closed),
            Stage::Closed if ctx.got(PAID) => done(json!(ctx.awaited(PAID)?)),
            Stage::Closed => done(value(&ctx.payload("moved").unwrap())),
        }
    }
}
