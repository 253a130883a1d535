//! Short words for what tests start and commit.

use std::time::Duration;

use abide_core::model::{
    Claim, Commit, Join, Json, Key, Lane, Name, Outcome, Priority, Start, Wait, When,
};

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

/// The same claim once more, as a worker has it that did not hear the answer to its commit.
pub(super) fn again(claim: &Claim) -> Claim {
    claim.renewed(claim.epoch())
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
