//! What instances are started with and what steps answer, rolled by dice.

use std::time::Duration;

use abide_core::model::{
    Claim, Commit, Join, Json, Key, Lane, Name, Outcome, Priority, Scope, Start, Status, UniqueKey,
    Wait, When,
};

use super::build::again;
pub use super::build::name;
use super::dice::Dice;
pub use super::lab::LEASE;

pub const QUEUES: [&str; 2] = ["default", "slow"];
pub const MACHINES: [(&str, u32); 3] = [("m", 1), ("m", 2), ("n", 1)];
pub const PARTITIONS: [&str; 3] = ["p", "q", "r"];

pub fn lanes() -> Vec<Lane> {
    let lane = |(machine, version): &(&str, u32)| Lane {
        machine: name(machine),
        version: *version,
    };
    MACHINES.iter().map(lane).collect()
}

pub fn serves() -> Vec<(Name, Vec<Lane>)> {
    QUEUES.iter().map(|queue| (name(queue), lanes())).collect()
}

impl Dice {
    pub fn some_start(&mut self) -> Start {
        let (machine, version) = *self.pick(&MACHINES);
        let mut start = Start::of(name(machine), Json::null());
        start.version = self.chance(70).then_some(version);
        start.queue = self.chance(30).then(|| name("slow"));
        start.priority = Priority(self.below(3) as i16 - 1);
        start.history = self.chance(10).then_some(false);
        if self.chance(40) {
            start.partition_key = Some(Key::new(self.pick(&PARTITIONS)).unwrap());
        }
        if self.chance(30) {
            start.key = Some(Key::new(format!("k{}", self.below(6))).unwrap());
            start.scope = self.some_scope();
        }
        if self.chance(15) {
            start.unique_key = Some(UniqueKey::new([self.below(5) as u8]).unwrap());
            start.unique_scope = self.some_scope();
        }
        if self.chance(20) {
            start.when = When::After(Duration::from_millis(self.below(40_000) as u64));
        }
        start
    }

    fn some_scope(&mut self) -> Scope {
        let scopes = [
            Scope::LIVE,
            Scope::LIVE,
            Scope::LIVE.and(Status::Done),
            Scope::ALWAYS,
            Scope::NEVER,
        ];
        *self.pick(&scopes)
    }

    /// Something for that claim to commit; it spawns nobody if there is `room` for none.
    pub fn some_commit(&mut self, claim: &Claim, room: bool) -> Commit {
        Commit {
            claim: again(claim),
            outcome: self.some_outcome(room),
            keep: self.chance(50),
            took: Duration::from_millis(self.below(900) as u64),
            error: self.chance(10).then(|| "it failed".to_owned()),
        }
    }

    pub fn some_outcome(&mut self, room: bool) -> Outcome {
        let state = Json::of(&self.below(1000)).unwrap();
        let delay_ms = if self.chance(60) {
            0
        } else {
            self.below(30_000) as u64
        };
        match self.below(100) {
            0..25 => Outcome::Next {
                step: name("b"),
                state,
                delay_ms,
            },
            25..34 => Outcome::Retry { state, delay_ms },
            34..46 => {
                let some_names = self.chance(60);
                // Without a signal and without a time it is refused.
                let some_time = some_names || self.chance(80);
                Outcome::Wait(Wait {
                    signals: some_names.then(|| name("s")).into_iter().collect(),
                    timeout_ms: some_time.then_some(delay_ms),
                    next: name("woken"),
                    state,
                })
            }
            46..68 => self.some_family(state, room),
            68..92 => Outcome::Done { result: state },
            _ => Outcome::Stop {
                reason: "no".to_owned(),
            },
        }
    }

    fn some_family(&mut self, state: Json, room: bool) -> Outcome {
        let count = if room { self.below(4) } else { 0 };
        Outcome::Spawn {
            children: (0..count).map(|_| self.some_start()).collect(),
            next: name("joined"),
            state,
            join: Join {
                at_least: self.chance(30).then(|| self.below(4) as u32),
            },
            timeout_ms: self.chance(30).then(|| self.below(30_000) as u64),
        }
    }
}
