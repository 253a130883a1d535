//! Random programs, by seed, run step by step on the store under test and on the memory store: what both answer, and
//! what they leave, is the same. Only ids may differ.
//!
//! `ABIDE_DIFFERENTIAL_SEED=17` begins with that seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Claim, Command, CommandId, CommandKind, Commit, Committed, Instance, InstanceId, Name,
    Operated, Outcome, Policy, RetrySpec, Scope, Start, Status, When, WorkerId,
};

use super::build::{done, json, key, lane, plain};
use super::eventing::{any, awaits};
use super::lab::{Lab, WAITERS, limits};
use super::random::Rng;
use super::random_steps::{EVENTS, LEASE, MACHINES, QUEUES, lanes, name, serves};
use super::random_turns::{Knows, WORKFLOW};
use super::renaming::Renamed;
use super::waiters::{standing, totals};
use crate::memory::Memory;
use crate::{
    Answer, ClaimRequest, Clock, Cursor, Extension, ManualClock, NewWorker, Op, SweepRequest,
};

/// The number of seeds that run, one after the other on the same stores.
const SEEDS: u64 = 4;
/// The number of transactions of a program.
const STEPS: usize = 200;
/// The number of transactions after which all rows are compared.
const COMPARE_EVERY: usize = 10;

pub async fn a_random_program_leaves_the_same_as_in_memory(lab: Lab) {
    // rules 2.2, 2.4, 2.8, 6.1, 7.1, 7.3, 9.1, 10.2, 11.1, 11.2, 12.3, 12.4, 14.1, 14.6, 14.7 and 16.1
    let model = Memory::new(Arc::new(lab.clock.clone()), limits());
    let mut model = Renamed::new(Arc::new(model), None);
    let mut subject = Renamed::new(lab.store.clone(), lab.caller.clone());
    let given = std::env::var("ABIDE_DIFFERENTIAL_SEED");
    let first: u64 = given.map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + SEEDS {
        let mut program = Program::new(seed, lab.clock.clone());
        for machine in program.declarations() {
            let declare = [machine];
            assert_eq!(subject.run(&declare).await, model.run(&declare).await);
        }
        for step in 0..STEPS {
            let position = format!("seed {seed} (the first was {first}), step {step}");
            let ops = program.next();
            let (theirs, ours) = (subject.run(&ops).await, model.run(&ops).await);
            assert_eq!(
                theirs, ours,
                "{position}: left what the store answers, right what memory does, to:\n{ops:#?}"
            );
            program.hear(&ops, ours);
            if step % COMPARE_EVERY == COMPARE_EVERY - 1 {
                same_rows(&mut subject, &mut model, &position).await;
            }
        }
    }
    same_histories(&mut subject, &mut model).await;
    for event_type in EVENTS {
        waiters_are_counted(&lab, event_type).await;
    }
}

/// As many more can wait for a type as there is room for: no waiter was counted twice, and none that is gone is
/// (rule 14.7).
async fn waiters_are_counted(lab: &Lab, event_type: &str) {
    let waiters = standing(lab.store.as_ref()).await;
    let waiters = waiters.expect("the store can be read");
    let there = totals(&waiters).get(&name(event_type)).copied();
    let room = WAITERS - there.unwrap_or_default();
    let worker = lab.worker("counter").await;
    let queue = format!("count-{event_type}");
    for at in 0..=room {
        let mut start = plain();
        (start.machine, start.queue) = (name("counted"), Some(name(&queue)));
        lab.start(start).await;
        let lanes = vec![lane("counted", 1)];
        let claimed = lab.claim_from(worker, &queue, lanes, 1).await.remove(0);
        let answer = lab
            .commit(claimed.claim, awaits(vec![any(event_type)], &[]))
            .await;
        let fits = answer == Committed::Moved(Status::AwaitingSignal);
        assert_eq!(fits, at < room, "{event_type}, {at} of {room}: {answer:?}");
    }
}

/// Everything but the histories.
async fn same_rows(subject: &mut Renamed, model: &mut Renamed, position: &str) {
    let theirs = subject.rows().await.expect("the store can be read");
    let ours = model.rows().await.expect("memory can be read");
    for (their, our) in theirs.instances.iter().zip(&ours.instances) {
        assert!(their == our, "up to {position}: {}", unlike(their, our));
    }
    assert_eq!(
        theirs, ours,
        "up to {position}: left the store, right memory"
    );
}

/// Two instances, of the one in memory only what is unlike.
fn unlike(theirs: &Instance, ours: &Instance) -> String {
    let (theirs, ours) = (format!("{theirs:#?}"), format!("{ours:#?}"));
    let mut lines = Vec::new();
    for (their, our) in theirs.lines().zip(ours.lines()) {
        lines.push(match their == our {
            true => their.to_owned(),
            false => format!("{their}   <- in memory: {}", our.trim()),
        });
    }
    lines.join("\n")
}

async fn same_histories(subject: &mut Renamed, model: &mut Renamed) {
    let ours = model.rows().await.expect("memory can be read");
    for instance in ours.instances {
        let theirs = subject.history(instance.id).await;
        let theirs = theirs.expect("the store can be read");
        let ours = model.history(instance.id).await;
        let ours = ours.expect("memory can be read");
        assert_eq!(theirs, ours, "left the store, right memory: {instance:?}");
    }
}

/// A program that makes up its next step when it has heard what became of the last one.
struct Program {
    rng: Rng,
    clock: ManualClock,
    workers: Vec<WorkerId>,
    /// Claims that were granted and have not been used, with what came with them.
    held: Vec<(Claim, Knows)>,
    /// The workflows among those that were claimed.
    coded: BTreeSet<InstanceId>,
    /// The signals that were delivered.
    signals: Vec<Command>,
    /// The instances that were seen.
    known: Vec<InstanceId>,
    /// The cursor of an examination.
    examined: InstanceId,
    /// The cursor up to which blocked instances have been released.
    released: InstanceId,
    /// Claims that were used, with what for.
    used: Vec<(Claim, Outcome)>,
    /// The cursor at which the last sweep stopped.
    cursor: Option<Cursor>,
}

impl Program {
    fn new(seed: u64, clock: ManualClock) -> Self {
        Self {
            rng: Rng::new(seed),
            clock,
            workers: Vec::new(),
            held: Vec::new(),
            coded: BTreeSet::new(),
            signals: Vec::new(),
            known: Vec::new(),
            examined: InstanceId(0),
            released: InstanceId(0),
            used: Vec::new(),
            cursor: None,
        }
    }

    /// The declarations before it begins, so that updates are accepted.
    fn declarations(&mut self) -> Vec<Op> {
        (0..6).map(|_| self.declare()).collect()
    }

    /// The operations of the next transaction; some time may pass before it.
    fn next(&mut self) -> Vec<Op> {
        if self.rng.chance(30) {
            let most = *self.rng.pick(&[50, 5_000, 60_000]);
            let time = Duration::from_millis(self.rng.below(most) as u64);
            self.clock.advance(time);
        }
        let count = if self.rng.chance(80) { 1 } else { 3 };
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        if self.workers.is_empty() {
            return self.register();
        }
        let worker = *self.rng.pick(&self.workers);
        let limit = self.rng.between(1, 6);
        match self.rng.below(158) {
            0..14 => self.start(),
            14..34 => self.claim(worker, limit),
            34..62 => self.commit(),
            62..69 => self.commit_again(),
            69..72 => Op::GiveBack(
                self.held
                    .pop()
                    .into_iter()
                    .map(|(claim, _)| claim)
                    .collect(),
            ),
            72..75 => self.give_back_except(worker, limit),
            75..82 => Op::Fire { limit },
            82..85 => self.register(),
            85..88 => Op::Renew {
                workers: vec![worker, *self.rng.pick(&self.workers)],
                lease: LEASE,
            },
            88..92 => Op::Reclaim { limit },
            92..94 => Op::SignOff { worker, limit },
            94..97 => self.sweep(limit),
            97..101 => self.declare(),
            101..119 => self.deliver(),
            119..122 => {
                let count = self.rng.between(1, 2);
                let cancels = (0..count).map(|_| self.rng.some_cancel(&self.known));
                Op::Cancel(cancels.collect())
            }
            122..126 => {
                let count = self.rng.between(1, 2);
                let restarts = (0..count).map(|_| self.rng.some_restart(&self.known));
                Op::Restart(restarts.collect())
            }
            126..127 => Op::Repair(vec![self.rng.some_target(&self.known)]),
            127..128 => Op::Examine {
                after: self.examined,
                limit,
            },
            128..130 => Op::ReleaseBlocked {
                build: self.rng.some_build(),
                fresh: self.rng.chance(50),
                lanes: lanes(),
                after: self.released,
                limit,
            },
            130..144 => {
                let count = self.rng.between(1, 3);
                Op::Publish((0..count).map(|_| self.rng.some_publish()).collect())
            }
            144..153 => self.extend(),
            153..155 => match self.register() {
                Op::Register(worker) => Op::Enlist(worker),
                other => other,
            },
            155..156 => match self.register() {
                Op::Register(NewWorker { name, .. }) if self.rng.chance(50) => Op::Expire { name },
                Op::Register(NewWorker { name, .. }) => Op::SignOffNamed { name, limit },
                other => other,
            },
            _ => {
                let (machine, _) = *self.rng.pick(&MACHINES);
                Op::Reserve(vec![(name(machine), self.rng.some_key())])
            }
        }
    }

    fn start(&mut self) -> Op {
        let count = self.rng.between(0, 5);
        Op::Start((0..count).map(|_| self.some_start()).collect())
    }

    /// A start, now and then with something that others do not have.
    fn some_start(&mut self) -> Start {
        let mut start = self.rng.some_start();
        match self.rng.below(30) {
            0 => start.queue = Some(name("unserved")),
            1 => start.machine = name("unserved"),
            2 => start.when = When::At(self.clock.now() - Duration::from_secs(7)),
            3 => start.state = json("{\"b\": [1.50, \"é\\u0041\"],\n \"a\": null}"),
            4 => start.step = Some(name("Schritt")),
            5 => start.key = Some(key("k1 é%_")),
            6 => start.partition_key = Some(key("P")),
            // Refused.
            7 => start.version = Some(0),
            8 => start.scope = Scope::NEVER.and(Status::Executing),
            // Several that would come to hold one key.
            9 => {
                start.key = Some(key("k6"));
                start.scope = Scope::NEVER.and(Status::Runnable);
            }
            // A policy of its own, which is refused where it allows no attempt, or is a workflow's.
            10..14 => {
                let retry = RetrySpec::doubling(self.rng.below(4) as u32, 700);
                start.policy = Some(Policy {
                    retry: self.rng.chance(70).then_some(retry),
                    step_timeout_ms: self.rng.chance(50).then_some(4000),
                    max_deaths: self.rng.chance(30).then(|| self.rng.below(3) as u32),
                });
            }
            _ => {}
        }
        start
    }

    fn claim(&mut self, worker: WorkerId, limit: usize) -> Op {
        let mut lanes = lanes();
        if self.rng.chance(40) {
            let at = self.rng.below(lanes.len());
            lanes.swap_remove(at);
        }
        Op::Claim(ClaimRequest {
            worker,
            queue: name(QUEUES[self.rng.below(QUEUES.len())]),
            lanes,
            limit,
            lease: self.rng.some_lease(),
        })
    }

    /// Names some of what is held, and now and then what is not any more.
    fn extend(&mut self) -> Op {
        let held = self.held.iter().map(|(claim, _)| claim);
        let used = self.used.iter().rev().take(3).map(|(claim, _)| claim);
        let mut named: Vec<Extension> = Vec::new();
        for claim in held.chain(used) {
            if self.rng.chance(60) {
                named.push(Extension {
                    claim: claim.again(),
                    lease: Duration::from_secs(self.rng.between(1, 15) as u64),
                });
            }
        }
        Op::Extend(named)
    }

    fn commit(&mut self) -> Op {
        let mut commits = Vec::new();
        for _ in 0..self.rng.between(1, 4).min(self.held.len()) {
            let at = self.rng.below(self.held.len());
            let (claim, knows) = self.held.swap_remove(at);
            let mut commit = self.some_commit(&claim);
            if self.coded.contains(&claim.id()) {
                commit.outcome = self.some_turn(claim.id(), knows);
            } else if self.rng.chance(5) {
                commit.outcome = Outcome::Block {
                    reason: "no such step".to_owned(),
                };
            } else if !knows.updates.is_empty() && self.rng.chance(90) {
                commit.outcome = self.rng.some_answer(&knows.updates, commit.outcome);
            }
            commits.push(commit);
        }
        Op::Commit {
            commits,
            serves: serves(),
        }
    }

    fn some_commit(&mut self, claim: &Claim) -> Commit {
        // Children of children would grow beyond measure if there was always room for them.
        let room = self.rng.chance(50);
        self.rng.some_commit(claim, room)
    }

    /// A turn of a workflow, which may take what it was handed, what else came to it, and what is not its own.
    fn some_turn(&mut self, id: InstanceId, mut knows: Knows) -> Outcome {
        let recent = self.signals.iter().rev().take(12);
        let rng = &mut self.rng;
        let more = recent.filter(|one| one.instance == Some(id) || rng.chance(10));
        let more: Vec<_> = more.map(|one| (one.id, one.name.clone())).collect();
        knows.signals.extend(more);
        let room = self.rng.chance(60);
        let operation = self.rng.between(1, 9) as u32;
        self.rng
            .some_turn(&knows, operation, self.clock.now(), room)
    }

    /// Commits once more what was committed or given back, with the same outcome or another.
    fn commit_again(&mut self) -> Op {
        let mut commits = Vec::new();
        for _ in 0..self.rng.between(1, 2).min(self.used.len()) {
            let (claim, outcome) = self.rng.pick(&self.used);
            let (claim, outcome) = (claim.again(), outcome.clone());
            let mut commit = self.some_commit(&claim);
            if self.rng.chance(70) {
                commit.outcome = outcome;
            } else if self.coded.contains(&claim.id()) {
                commit.outcome = self.some_turn(claim.id(), Knows::default());
            }
            commits.push(commit);
        }
        Op::Commit {
            commits,
            serves: serves(),
        }
    }

    fn give_back_except(&mut self, worker: WorkerId, limit: usize) -> Op {
        let rng = &mut self.rng;
        let known = self.held.iter().filter(|_| rng.chance(70));
        Op::GiveBackExcept {
            worker,
            known: known.map(|(claim, _)| claim.id()).collect(),
            limit,
        }
    }

    fn register(&mut self) -> Op {
        Op::Register(NewWorker {
            name: name(&format!("w{}", self.rng.below(4))),
            lease: LEASE * self.rng.between(1, 3) as u32,
            queues: QUEUES.map(name).into(),
            lanes: lanes(),
            build: self.rng.some_build(),
        })
    }

    fn sweep(&mut self, limit: usize) -> Op {
        Op::Sweep(SweepRequest {
            before: self.clock.now() - Duration::from_secs(self.rng.below(200) as u64),
            after: self.cursor,
            limit,
        })
    }

    fn declare(&mut self) -> Op {
        let (machine, contract) = self.rng.some_declaration();
        Op::Declare {
            machines: vec![machine],
            contracts: contract.into_iter().collect(),
        }
    }

    fn deliver(&mut self) -> Op {
        let count = self.rng.between(1, 4);
        let deliveries = (0..count).map(|_| self.rng.some_delivery(&self.known));
        Op::Deliver(deliveries.collect())
    }

    /// Hears what became of a transaction.
    fn hear(&mut self, ops: &[Op], answers: Result<Vec<Answer>, String>) {
        let Ok(answers) = answers else {
            return self.take_up(ops);
        };
        for (op, answer) in ops.iter().zip(answers) {
            match (op, answer) {
                (Op::Commit { commits, .. }, Answer::Committed(each)) => {
                    for (commit, answer) in commits.iter().zip(each) {
                        self.hear_commit(commit, answer);
                    }
                }
                (Op::GiveBack(claims), _) => {
                    let lost = |claim: &Claim| (claim.again(), done());
                    self.used.extend(claims.iter().map(lost));
                }
                (_, Answer::Claimed(claimed)) => {
                    for one in claimed {
                        self.known.push(one.claim.id());
                        if one.machine.as_str() == WORKFLOW {
                            self.coded.insert(one.claim.id());
                        }
                        let knows = Knows {
                            signals: pairs(&one.awaited),
                            updates: one.updates.iter().map(|update| update.id).collect(),
                            children: one.children_pending,
                            ended: one.children_ended,
                        };
                        self.held.push((one.claim, knows));
                    }
                }
                (_, Answer::Started(each)) => {
                    self.known.extend(each.iter().flatten().map(|one| one.id()));
                }
                (_, Answer::Operated(each)) => {
                    self.known.extend(each.iter().filter_map(|one| match one {
                        Operated::Restarted { id, .. } => Some(*id),
                        _ => None,
                    }));
                }
                (_, Answer::Examined { next, .. }) => {
                    self.examined = next.unwrap_or_default();
                }
                (_, Answer::Delivered(each)) => {
                    let records = each
                        .into_iter()
                        .flatten()
                        .filter_map(|one| one.record.map(|record| *record));
                    let signals = records.filter(|one| one.kind == CommandKind::Signal);
                    self.signals.extend(signals);
                }
                (_, Answer::Released { next, .. }) => self.released = next.unwrap_or_default(),
                (_, Answer::Registered(worker)) => self.workers.push(worker.id),
                (_, Answer::Swept { next, .. }) => self.cursor = next,
                _ => {}
            }
        }
    }

    fn hear_commit(&mut self, commit: &Commit, answer: Committed) {
        let claim = commit.claim.again();
        match answer {
            Committed::Refused(_) => self.held.push((claim, Knows::default())),
            Committed::Kept(kept, _) => {
                self.used.push((claim, commit.outcome.clone()));
                // One that was committed again is kept again.
                if !self.held.iter().any(|(held, _)| *held == kept) {
                    self.held.push((kept, Knows::default()));
                }
            }
            Committed::Moved(_) | Committed::Repeated(_) | Committed::Stale => {
                self.used.push((claim, commit.outcome.clone()));
            }
        }
    }

    /// Nothing was written: the claims are as they were.
    fn take_up(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Commit { commits, .. } => {
                    let claims = commits.iter().map(|commit| commit.claim.again());
                    self.held
                        .extend(claims.map(|claim| (claim, Knows::default())));
                }
                Op::GiveBack(claims) => {
                    let claims = claims.iter().map(Claim::again);
                    self.held
                        .extend(claims.map(|claim| (claim, Knows::default())));
                }
                _ => {}
            }
        }
    }
}

fn pairs(signals: &[Command]) -> Vec<(CommandId, Name)> {
    let pair = |one: &Command| (one.id, one.name.clone());
    signals.iter().map(pair).collect()
}
