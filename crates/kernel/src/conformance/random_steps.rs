//! Random starts of instances and random outcomes of steps.

use std::time::Duration;

use abide_core::model::{
    Answered, Arguments, Cancel, Children, Claim, CommandId, CommandKind, Commit, Condition,
    Contract, Declared, EventWait, InstanceId, Join, Json, Key, Kind, Lane, Name, NewCommand,
    Operator, Outcome, Path, Priority, Publish, RetrySpec, Scope, Start, Status, Target, UniqueKey,
    Wait, When,
};

pub use super::build::name;
use super::build::{strict, updates};
pub use super::lab::LEASE;
use super::random::Rng;
use super::random_turns::WORKFLOW;

pub const QUEUES: [&str; 2] = ["default", "slow"];
pub const MACHINES: [(&str, u32); 4] = [("m", 1), ("m", 2), ("n", 1), (WORKFLOW, 1)];
pub const PARTITIONS: [&str; 3] = ["p", "q", "r"];
pub const SIGNALS: [&str; 3] = ["s", "t", "paid"];
pub const EVENTS: [&str; 3] = ["order", "paid", "é"];

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

impl Rng {
    pub fn some_start(&mut self) -> Start {
        let (machine, version) = *self.pick(&MACHINES);
        let mut start = Start::of(name(machine), Json::null());
        start.version = self.chance(70).then_some(version);
        start.queue = self.chance(30).then(|| name("slow"));
        start.priority = Priority(self.below(3) as i16 - 1);
        start.history = self.chance(10).then_some(false);
        if machine == WORKFLOW {
            // Who is not known to be a workflow becomes one with its first turn.
            start.kind = self.chance(70).then_some(Kind::Workflow);
            start.history = start.history.filter(|_| start.kind.is_some());
        }
        if self.chance(40) {
            start.partition_key = Some(Key::new(self.pick(&PARTITIONS)).unwrap());
        }
        if self.chance(30) {
            start.key = Some(self.some_key());
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

    /// The lease of a claim that may have one of its own.
    pub fn some_lease(&mut self) -> Option<Duration> {
        let lease = self.chance(40);
        lease.then(|| Duration::from_secs(self.between(1, 20) as u64))
    }

    pub fn some_key(&mut self) -> Key {
        Key::new(format!("k{}", self.below(6))).unwrap()
    }

    /// A scope: one that a run never enters after its start, or, as often, one that it may come to (rule 2.8).
    fn some_scope(&mut self) -> Scope {
        let plain = [
            Scope::LIVE,
            Scope::LIVE,
            Scope::LIVE.and(Status::Done),
            Scope::ALWAYS,
            Scope::NEVER,
        ];
        let entered: [&[Status]; 7] = [
            &[Status::Scheduled, Status::Runnable],
            &[Status::Runnable],
            &[Status::Done],
            &[Status::AwaitingSignal, Status::Failed],
            &[Status::Scheduled, Status::AwaitingChildren],
            &[Status::Cancelled, Status::Failed, Status::Continued],
            &[Status::Runnable, Status::Executing, Status::Cancelled],
        ];
        match self.chance(50) {
            true => *self.pick(&plain),
            false => self.pick(&entered).iter().copied().collect(),
        }
    }

    /// Something for that claim to commit; it spawns no children if there is no `room`.
    pub fn some_commit(&mut self, claim: &Claim, room: bool) -> Commit {
        Commit {
            claim: claim.again(),
            outcome: self.some_outcome(room),
            keep: self.chance(50),
            took: Duration::from_millis(self.below(900) as u64),
            error: self.chance(10).then(|| "it failed".to_owned()),
        }
    }

    /// One of a few builds, or none.
    pub fn some_build(&mut self) -> Option<Name> {
        let build = self.below(4);
        (build > 0).then(|| name(&format!("b{build}")))
    }

    pub fn some_outcome(&mut self, room: bool) -> Outcome {
        let state = Json::of(&self.below(1000)).unwrap();
        let delay_ms = if self.chance(60) {
            0
        } else {
            self.below(30_000) as u64
        };
        match self.below(100) {
            0..23 => Outcome::Next {
                step: name("b"),
                state,
                delay_ms,
            },
            23..30 => Outcome::Retry { state, delay_ms },
            30..54 => {
                let count = *self.pick(&[0, 1, 1, 2, 3]);
                let events = *self.pick(&[0, 0, 0, 1, 1, 2]);
                // Without a signal and without a time it is refused.
                let some_time = (count > 0 && events == 0) || self.chance(80);
                Outcome::Wait(Wait {
                    signals: SIGNALS.map(name).into_iter().take(count).collect(),
                    events: (0..events).map(|_| self.some_event_wait()).collect(),
                    timeout_ms: some_time.then(|| delay_ms + 1000 * self.below(9) as u64),
                    next: name("woken"),
                    state,
                })
            }
            54..70 => self.some_family(state, room),
            70..77 => Outcome::ContinueAsNew {
                step: name("again"),
                state,
                version: self.chance(20).then_some(1),
            },
            77..93 => Outcome::Done { result: state },
            93..96 => Outcome::Stop {
                reason: "no".to_owned(),
            },
            _ => Outcome::Fail {
                error: "it did not work".to_owned(),
            },
        }
    }

    /// A wait for an event; now and then one that is refused.
    pub fn some_event_wait(&mut self) -> EventWait {
        let event_type = name(self.pick::<&str>(&EVENTS));
        let mut conditions = Vec::new();
        for _ in 0..*self.pick(&[0, 1, 1, 1, 2]) {
            let (left, op, right) = *self.pick(&[
                ("id", Operator::Eq, "1"),
                ("id", Operator::Eq, "\"2\""),
                ("id", Operator::EqTyped, "2"),
                ("id", Operator::In, "[0,1,\"1\",null]"),
                ("id", Operator::Ne, "1"),
                ("id", Operator::Gt, "1"),
                ("id", Operator::Exists, "false"),
                ("in.0", Operator::Lte, "\"b\""),
                ("in", Operator::Eq, "[\"b\",{}]"),
                ("in.1", Operator::Exists, "true"),
            ]);
            conditions.push(Condition {
                left: Path::new(left).unwrap(),
                op,
                right: Json::parse(right.to_owned()).unwrap(),
            });
        }
        if self.chance(3) {
            conditions.push(Condition {
                left: Path::new("id").unwrap(),
                op: Operator::Exists,
                right: Json::null(),
            });
        }
        let back = *self.pick(&[0, 1_000, 20_000]);
        EventWait {
            event_type,
            conditions,
            lookback_ms: self.chance(25).then_some(back),
        }
    }

    /// An event to publish; some are known by an id, and were published before.
    pub fn some_publish(&mut self) -> Publish {
        let payload = *self.pick(&[
            "{\"id\":0}",
            "{\"id\":1}",
            "{\"id\":1.0,\"in\":[\"a\"]}",
            "{\"id\":\"1\"}",
            "{\"id\":2}",
            "{\"id\": \"2\"}",
            "{\"id\":null}",
            "{\"in\":[\"b\", {}]}",
            "{\"in\":[\"c\",{},3]}",
            "null",
        ]);
        Publish {
            event_type: name(self.pick::<&str>(&EVENTS)),
            payload: Json::parse(payload.to_owned()).unwrap(),
            event_id: self
                .chance(40)
                .then(|| name(&format!("e{}", self.below(40)))),
        }
    }

    fn some_family(&mut self, state: Json, room: bool) -> Outcome {
        let count = if room { self.below(4) } else { 0 };
        Outcome::Spawn {
            children: (0..count).map(|_| self.some_start()).collect(),
            next: name("joined"),
            state,
            join: Join {
                // Now and then more than there are, which is refused.
                at_least: self.chance(30).then(|| self.below(count + 2) as u32),
            },
            timeout_ms: self.chance(30).then(|| self.below(30_000) as u64),
        }
    }

    /// Answers to some of these updates, and now and then what is to be done then.
    pub fn some_answer(&mut self, updates: &[CommandId], then: Outcome) -> Outcome {
        let mut answers = Vec::new();
        for update_id in updates {
            if self.chance(90) {
                answers.push(Answered {
                    update_id: *update_id,
                    result: Json::of(&self.below(9)).unwrap(),
                    error: self.chance(20).then(|| "not now".to_owned()),
                });
            }
        }
        Outcome::Answer {
            updates: answers,
            state: self
                .chance(60)
                .then(|| Json::of(&self.below(1000)).unwrap()),
            then: self.chance(25).then(|| Box::new(then)),
        }
    }

    /// A machine as it is declared, and the contract that it may be under.
    pub fn some_declaration(&mut self) -> (Declared, Option<Contract>) {
        let (machine, version) = *self.pick(&MACHINES);
        let contract = match self.below(4) {
            0 => None,
            1 => Some(strict()),
            _ => Some(updates()),
        };
        let declared = Declared {
            kind: match machine == WORKFLOW {
                true => Kind::Workflow,
                false => Kind::Machine,
            },
            machine: name(machine),
            version,
            first_step: name("first"),
            queue: name(QUEUES[self.below(QUEUES.len())]),
            history: self.chance(90),
            contract: contract.as_ref().map(Contract::id),
            retry: self.chance(60).then(|| RetrySpec {
                max_attempts: self.between(1, 4) as u32,
                delay_ms: *self.pick(&[0, 700]),
                factor: *self.pick(&[None, Some(150)]),
                max_delay_ms: *self.pick(&[None, Some(1000)]),
            }),
            step_timeout_ms: self.chance(40).then(|| 1000 * self.between(3, 20) as u64),
            max_deaths: self.chance(50).then(|| self.between(1, 3) as u32),
        };
        (declared, contract)
    }

    /// One of these instances, or of those that a key stands for.
    pub fn some_target(&mut self, known: &[InstanceId]) -> Target {
        match known.is_empty() || self.chance(40) {
            true => Target::Key(self.some_key()),
            false => {
                // Those that came last are the likeliest to live.
                let last = known.len().saturating_sub(12);
                let from = if self.chance(80) { last } else { 0 };
                Target::Id(*self.pick(&known[from..]))
            }
        }
    }

    pub fn some_delivery(&mut self, known: &[InstanceId]) -> NewCommand {
        let target = self.some_target(known);
        let mut delivery = match self.chance(70) {
            true => NewCommand::signal(target, name(self.pick::<&str>(&SIGNALS))),
            false => NewCommand::update(target, name("add")),
        };
        let number = Json::of(&self.below(3)).unwrap();
        delivery.arguments = match self.below(10) {
            0 => Arguments::default(),
            1 => Arguments::Payload(Json::of(&"text").unwrap()),
            2 => Arguments::Named(vec![("n".to_owned(), number)]),
            _ => Arguments::Payload(number),
        };
        delivery.dedup_key = self
            .chance(30)
            .then(|| name(&format!("d{}", self.below(8))));
        delivery.source = self.chance(20).then(|| "somebody".to_owned());
        if let Target::Key(key) = &delivery.target {
            let key = key.clone();
            delivery.hold_for = self
                .chance(40)
                .then(|| Duration::from_millis(self.below(90_000) as u64));
            if delivery.kind == CommandKind::Signal && self.chance(20) {
                let mut start = self.some_start();
                start.key = Some(key);
                delivery.start = Some(Box::new(start));
            }
        }
        delivery
    }

    pub fn some_cancel(&mut self, known: &[InstanceId]) -> Cancel {
        Cancel {
            target: self.some_target(known),
            reason: "no longer wanted".to_owned(),
            children: match self.chance(70) {
                true => Children::Cascade,
                false => Children::Leave,
            },
            force: self.chance(25),
            source: self.chance(20).then(|| "somebody".to_owned()),
            claimed_source: None,
        }
    }

    pub fn some_restart(&mut self, known: &[InstanceId]) -> (Target, Option<Name>) {
        let step = self.chance(30).then(|| name("from-here"));
        (self.some_target(known), step)
    }
}
