//! Short constructors for what tests start and commit.

use std::time::Duration;

use abide_core::model::{
    Accepts, Answered, Arguments, Cancel, Children, Claim, CommandId, Commit, Contract, Declared,
    Join, Json, Key, Kind, Lane, Name, NewCommand, Outcome, Parameter, Priority, Start, Target,
    Wait, When,
};

use crate::Op;

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("a good key")
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("good JSON")
}

pub(super) fn lane(machine: &str, version: u32) -> Lane {
    Lane {
        machine: name(machine),
        version,
    }
}

/// A start of the machine `m`, all else left out.
pub(super) fn plain() -> Start {
    Start::of(name("m"), Json::null())
}

pub(super) fn many(count: usize) -> Vec<Start> {
    vec![plain(); count]
}

pub(super) fn keyed(text: &str) -> Start {
    Start {
        key: Some(key(text)),
        ..plain()
    }
}

pub(super) fn urgent(priority: i16) -> Start {
    Start {
        priority: Priority(priority),
        ..plain()
    }
}

pub(super) fn within(partition: &str) -> Start {
    Start {
        partition_key: Some(key(partition)),
        ..plain()
    }
}

pub(super) fn later(delay: Duration) -> Start {
    Start {
        when: When::After(delay),
        ..plain()
    }
}

pub(super) fn next(step: &str) -> Outcome {
    Outcome::Next {
        step: name(step),
        state: json("{\"to\":1}"),
        delay_ms: 0,
    }
}

pub(super) fn next_after(step: &str, delay_ms: u64) -> Outcome {
    Outcome::Next {
        step: name(step),
        state: json("{\"to\":1}"),
        delay_ms,
    }
}

pub(super) fn retry(delay_ms: u64) -> Outcome {
    Outcome::Retry {
        state: json("{\"again\":1}"),
        delay_ms,
    }
}

pub(super) fn wait(signals: &[&str], timeout_ms: Option<u64>) -> Outcome {
    let signals = signals.iter().map(|signal| name(signal)).collect();
    Outcome::Wait(Wait {
        signals,
        events: Vec::new(),
        timeout_ms,
        next: name("woken"),
        state: json("{\"waits\":1}"),
    })
}

pub(super) fn spawn(children: Vec<Start>) -> Outcome {
    join(children, None, None)
}

pub(super) fn join(
    children: Vec<Start>,
    at_least: Option<u32>,
    timeout_ms: Option<u64>,
) -> Outcome {
    Outcome::Spawn {
        children,
        next: name("joined"),
        state: json("{\"spawned\":1}"),
        join: Join { at_least },
        timeout_ms,
    }
}

pub(super) fn done() -> Outcome {
    Outcome::Done {
        result: json("{\"sum\":42}"),
    }
}

pub(super) fn stop(reason: &str) -> Outcome {
    Outcome::Stop {
        reason: reason.to_owned(),
    }
}

pub(super) fn continue_as_new(step: &str) -> Outcome {
    Outcome::ContinueAsNew {
        step: name(step),
        state: json("{\"run\":2}"),
        version: None,
    }
}

/// Good answers to these updates, with a new state, and what is to be done then.
pub(super) fn answer(updates: &[CommandId], then: Option<Outcome>) -> Outcome {
    let good = |update_id: &CommandId| Answered {
        update_id: *update_id,
        result: json("{\"ok\":1}"),
        error: None,
    };
    Outcome::Answer {
        updates: updates.iter().map(good).collect(),
        state: Some(json("{\"updated\":1}")),
        then: then.map(Box::new),
    }
}

/// An update whose handler failed: nothing is changed.
pub(super) fn answer_failed(update_id: CommandId, error: &str) -> Outcome {
    Outcome::Answer {
        updates: vec![Answered {
            update_id,
            result: Json::null(),
            error: Some(error.to_owned()),
        }],
        state: None,
        then: None,
    }
}

pub(super) fn signal(target: impl Into<Target>, text: &str) -> NewCommand {
    NewCommand::signal(target, name(text))
}

/// A signal with one value.
pub(super) fn paying(target: impl Into<Target>, text: &str, payload: &str) -> NewCommand {
    NewCommand {
        arguments: Arguments::Payload(json(payload)),
        ..signal(target, text)
    }
}

/// The same, sent under that dedup key.
pub(super) fn once(dedup_key: &str, delivery: NewCommand) -> NewCommand {
    NewCommand {
        dedup_key: Some(name(dedup_key)),
        ..delivery
    }
}

/// A signal to a key, which is kept that long when no instance holds it.
pub(super) fn held(key_text: &str, text: &str, hold_for: Duration) -> NewCommand {
    NewCommand {
        hold_for: Some(hold_for),
        ..signal(key(key_text), text)
    }
}

/// A signal that starts what it is for when no instance lives under its key.
pub(super) fn starting(start: Start, text: &str) -> NewCommand {
    let key = start.key.clone().expect("a start with a key");
    NewCommand {
        start: Some(Box::new(start)),
        ..signal(key, text)
    }
}

/// An update of the contract below, with a number.
pub(super) fn adding(target: impl Into<Target>, number: i64) -> NewCommand {
    NewCommand {
        arguments: Arguments::Positional(vec![Json::of(&number).expect("a number is JSON")]),
        ..NewCommand::update(target, name("add"))
    }
}

pub(super) fn cancelling(target: impl Into<Target>) -> Cancel {
    Cancel {
        target: target.into(),
        reason: "no longer wanted".to_owned(),
        children: Children::Cascade,
        force: false,
        source: None,
        claimed_source: None,
    }
}

/// Any signal, and the update `add(n: int)`.
pub(super) fn updates() -> Contract {
    Contract {
        signals: Vec::new(),
        updates: vec![Accepts {
            name: name("add"),
            parameters: Some(vec![Parameter::new("n", "int")]),
        }],
    }
}

/// The signals `paid(amount: int, note: string?)` and `stop`, and the update `add(n: int)`.
pub(super) fn strict() -> Contract {
    let paid = Accepts {
        name: name("paid"),
        parameters: Some(vec![
            Parameter::new("amount", "int"),
            Parameter::new("note", "string").nullable(),
        ]),
    };
    let stop = Accepts {
        name: name("stop"),
        parameters: None,
    };
    Contract {
        signals: vec![paid, stop],
        ..updates()
    }
}

/// The machine `m` in version 1 under that contract.
pub(super) fn under(contract: &Contract) -> Declared {
    Declared {
        kind: Kind::Machine,
        machine: name("m"),
        version: 1,
        first_step: name("start"),
        queue: name("default"),
        history: true,
        contract: Some(contract.id()),
        retry: None,
        step_timeout_ms: None,
        max_deaths: None,
    }
}

pub(super) fn commit(claim: Claim, outcome: Outcome) -> Commit {
    Commit {
        claim,
        outcome,
        keep: false,
        took: Duration::from_millis(3),
        error: None,
    }
}

/// A commit that would like to go on with the next step.
pub(super) fn keep(claim: Claim, outcome: Outcome) -> Commit {
    Commit {
        keep: true,
        ..commit(claim, outcome)
    }
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The ways, counted from zero, in which a worker named `w` gives a claim back in good order; the last one goes by its name.
pub(super) fn returning(claim: Claim, way: usize) -> Op {
    let (worker, limit) = (claim.worker(), 9);
    match way {
        0 => Op::GiveBack(vec![claim]),
        1 => Op::SignOff { worker, limit },
        2 => Op::GiveBackExcept {
            worker,
            known: Vec::new(),
            limit,
        },
        _ => Op::SignOffNamed {
            name: name("w"),
            limit,
        },
    }
}

/// The declaration of a version of a machine that keeps no history, in the queue `slow`.
pub(super) fn declared(machine: &str, version: u32, first_step: &str) -> Declared {
    Declared {
        kind: Kind::Machine,
        machine: name(machine),
        version,
        first_step: name(first_step),
        queue: name("slow"),
        history: false,
        contract: None,
        retry: None,
        step_timeout_ms: None,
        max_deaths: None,
    }
}
