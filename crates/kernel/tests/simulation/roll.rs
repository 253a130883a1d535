//! What instances are started with and what steps answer, rolled by dice.

use std::time::Duration;

use abide_kernel::model::{
    Claim, Commit, Join, Json, Key, Lane, Name, Outcome, Priority, Scope, Start, Status, UniqueKey,
    Wait, When,
};

use crate::world::{World, again};

pub const QUEUES: [&str; 2] = ["default", "slow"];
pub const MACHINES: [(&str, u32); 3] = [("m", 1), ("m", 2), ("n", 1)];
pub const PARTITIONS: [&str; 3] = ["p", "q", "r"];
pub const LEASE: Duration = Duration::from_secs(30);

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

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

impl World {
    pub fn some_start(&mut self) -> Start {
        let (machine, version) = *self.dice.pick(&MACHINES);
        let mut start = Start::of(name(machine), Json::null());
        start.version = self.dice.chance(70).then_some(version);
        start.queue = self.dice.chance(30).then(|| name("slow"));
        start.priority = Priority(self.dice.below(3) as i16 - 1);
        start.history = self.dice.chance(10).then_some(false);
        if self.dice.chance(40) {
            start.partition_key = Some(Key::new(self.dice.pick(&PARTITIONS)).unwrap());
        }
        if self.dice.chance(30) {
            start.key = Some(Key::new(format!("k{}", self.dice.below(6))).unwrap());
            start.scope = self.some_scope();
        }
        if self.dice.chance(15) {
            start.unique_key = Some(UniqueKey::new([self.dice.below(5) as u8]).unwrap());
            start.unique_scope = self.some_scope();
        }
        if self.dice.chance(20) {
            start.when = When::After(Duration::from_millis(self.dice.below(40_000) as u64));
        }
        start
    }

    pub fn some_scope(&mut self) -> Scope {
        let scopes = [
            Scope::LIVE,
            Scope::LIVE,
            Scope::LIVE.and(Status::Done),
            Scope::ALWAYS,
            Scope::NEVER,
        ];
        *self.dice.pick(&scopes)
    }

    pub fn some_commit(&mut self, claim: &Claim) -> Commit {
        Commit {
            claim: again(claim),
            outcome: self.some_outcome(),
            keep: self.dice.chance(50),
            took: Duration::from_millis(self.dice.below(900) as u64),
            error: self.dice.chance(10).then(|| "it failed".to_owned()),
        }
    }

    pub fn some_outcome(&mut self) -> Outcome {
        let state = Json::of(&self.dice.below(1000)).unwrap();
        let delay_ms = if self.dice.chance(60) {
            0
        } else {
            self.dice.below(30_000) as u64
        };
        match self.dice.below(100) {
            0..25 => Outcome::Next {
                step: name("b"),
                state,
                delay_ms,
            },
            25..34 => Outcome::Retry { state, delay_ms },
            34..46 => {
                let some_names = self.dice.chance(60);
                // Without a signal and without a time it is refused.
                let some_time = some_names || self.dice.chance(80);
                Outcome::Wait(Wait {
                    signals: some_names.then(|| name("s")).into_iter().collect(),
                    timeout_ms: some_time.then_some(delay_ms),
                    next: name("woken"),
                    state,
                })
            }
            46..68 => self.some_family(state),
            68..92 => Outcome::Done { result: state },
            _ => Outcome::Stop {
                reason: "no".to_owned(),
            },
        }
    }

    pub fn some_family(&mut self, state: Json) -> Outcome {
        // Few when there are many already, or the program gets too large to be checked at every turn.
        let count = if self.living() > 40 {
            0
        } else {
            self.dice.below(4)
        };
        Outcome::Spawn {
            children: (0..count).map(|_| self.some_start()).collect(),
            next: name("joined"),
            state,
            join: Join {
                at_least: self.dice.chance(30).then(|| self.dice.below(4) as u32),
            },
            timeout_ms: self.dice.chance(30).then(|| self.dice.below(30_000) as u64),
        }
    }
}
