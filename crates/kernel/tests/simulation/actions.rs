//! What can happen in a simulation, each action rolled by dice.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::model::{
    Claim, Commit, Committed, Declared, Heartbeat, InstanceId, Join, Json, Key, Lane, Name,
    Outcome, Priority, Scope, Start, Status, UniqueKey, Wait, When, WorkerId,
};
use abide_kernel::{Answer, ClaimRequest, Clock, NewWorker, Op, SweepRequest};

use crate::world::{BATCH_MOST, Heard, Held, Worker, World, again};

const QUEUES: [&str; 2] = ["default", "slow"];
const MACHINES: [(&str, u32); 3] = [("m", 1), ("m", 2), ("n", 1)];
const PARTITIONS: [&str; 3] = ["p", "q", "r"];
const LEASE: Duration = Duration::from_secs(30);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn lanes() -> Vec<Lane> {
    let lane = |(machine, version): &(&str, u32)| Lane {
        machine: name(machine),
        version: *version,
    };
    MACHINES.iter().map(lane).collect()
}

fn serves() -> Vec<(Name, Vec<Lane>)> {
    QUEUES.iter().map(|queue| (name(queue), lanes())).collect()
}

impl World {
    /// Does one thing.
    pub fn act(&mut self) {
        match self.dice.below(100) {
            0..12 => self.start(),
            12..34 => self.claim(),
            34..60 => self.commit(),
            60..64 => self.commit_from_limbo(),
            64..70 => self.commit_again(),
            70..77 => self.let_time_pass(),
            77..82 => self.fire(),
            82..85 => self.reclaim(),
            85..88 => self.renew(),
            88..91 => self.register(),
            91..93 => self.crash(),
            93..95 => self.give_back(),
            95..96 => self.sign_off(),
            96..97 => self.sweep(),
            97..98 => self.declare(),
            _ => self.fail(),
        }
    }

    /// Two workers and a few instances, so that something can happen.
    pub fn begin(&mut self) {
        self.register();
        self.register();
        self.start();
        self.start();
    }

    fn start(&mut self) {
        let starts: Vec<Start> = (0..self.dice.between(1, 4))
            .map(|_| self.some_start())
            .collect();
        self.tell(format!("start {}", starts.len()));
        self.send([Op::Start(starts)].into());
    }

    fn some_start(&mut self) -> Start {
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

    fn some_scope(&mut self) -> Scope {
        let scopes = [
            Scope::LIVE,
            Scope::LIVE,
            Scope::LIVE.and(Status::Done),
            Scope::ALWAYS,
            Scope::NEVER,
        ];
        *self.dice.pick(&scopes)
    }

    /// A worker, registered if there is none. It may have died long ago without knowing it.
    fn some_worker(&mut self) -> Option<usize> {
        if self.workers.is_empty() {
            self.register();
        }
        let most = self.workers.len();
        (most > 0).then(|| self.dice.below(most))
    }

    fn claim(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers[at].id;
        let limit = self.dice.between(1, 5);
        let queue = name(QUEUES[self.dice.below(2)]);
        self.tell(format!("{worker} claims up to {limit} from {queue}"));
        let request = ClaimRequest {
            worker,
            queue,
            lanes: lanes(),
            limit,
        };
        if let Heard::Answers(answers) = self.send([Op::Claim(request)].into()) {
            self.take(at, answers);
        }
    }

    /// Notes what a worker has heard that it holds.
    fn take(&mut self, at: usize, answers: Vec<Answer>) {
        for answer in answers {
            let Answer::Claimed(claimed) = answer else {
                continue;
            };
            for one in claimed {
                assert_eq!(one.claim.worker(), self.workers[at].id);
                self.check_joined(&one);
                self.workers[at].held.push(Held {
                    claim: one.claim,
                    step_seq: one.step_seq,
                    attempt: one.attempt,
                });
            }
        }
    }

    fn commit(&mut self) {
        let busy = |worker: &Worker| !worker.held.is_empty();
        let Some(at) = self.workers.iter().position(busy) else {
            return self.claim();
        };
        // The busy one longest there would else commit alone.
        self.workers.rotate_left(at + 1);
        let at = self.workers.len() - 1;
        let mut held = Vec::new();
        while held.len() < 3 && !self.workers[at].held.is_empty() {
            let most = self.workers[at].held.len();
            held.push(self.workers[at].held.swap_remove(self.dice.below(most)));
        }
        let commits: Vec<Commit> = held
            .iter()
            .map(|one| self.some_commit(&one.claim))
            .collect();
        let outcomes: Vec<Outcome> = commits.iter().map(|one| one.outcome.clone()).collect();
        let told: Vec<String> = commits
            .iter()
            .map(|one| format!("{}: {}", one.claim.id(), one.outcome.name()))
            .collect();
        self.tell(format!(
            "{} commits {}",
            self.workers[at].id,
            told.join(", ")
        ));
        let mut ops = vec![Op::Commit {
            commits,
            serves: serves(),
        }];
        if self.dice.chance(30) {
            ops.push(Op::Claim(ClaimRequest {
                worker: self.workers[at].id,
                queue: name("default"),
                lanes: lanes(),
                limit: 2,
            }));
        }
        let ops: Arc<[Op]> = ops.into();
        let mut unheard = None;
        for _ in 0..3 {
            match self.send(ops.clone()) {
                Heard::Answers(mut answers) => {
                    if let Some(unheard) = unheard {
                        assert_eq!(kinds(&answers), unheard, "it is not answered as before");
                    }
                    self.take(at, answers.split_off(1));
                    return self.hear(at, held, outcomes, answers);
                }
                Heard::Refused => {}
                Heard::Lost(answers) => unheard = Some(kinds(&answers)),
            }
            if self.dice.chance(30) {
                break;
            }
            self.tell("  it is sent again".into());
        }
        match unheard {
            None => self.workers[at].held.extend(held),
            Some(_) => self.limbo.extend(held.into_iter().map(|one| one.claim)),
        }
    }

    /// Hears what became of commits.
    fn hear(
        &mut self,
        at: usize,
        held: Vec<Held>,
        outcomes: Vec<Outcome>,
        mut answers: Vec<Answer>,
    ) {
        let Some(Answer::Committed(each)) = answers.pop() else {
            panic!("no answer to a commit")
        };
        assert_eq!(each.len(), held.len());
        for ((mut one, outcome), answer) in held.into_iter().zip(outcomes).zip(each) {
            let id = one.claim.id();
            match answer {
                Committed::Moved(_) | Committed::Kept(_) => {
                    self.check_told(id, one.step_seq, one.attempt);
                    self.taken.push((again(&one.claim), outcome));
                    if let Committed::Kept(claim) = answer {
                        assert!(
                            !self.is_granted(&claim),
                            "{claim:?} is kept and was claimed anew"
                        );
                        (one.claim, one.step_seq, one.attempt) = (claim, one.step_seq + 1, 0);
                        self.workers[at].held.push(one);
                    }
                }
                Committed::Stale => self.taken.push((one.claim, outcome)),
                Committed::Refused(_) => self.workers[at].held.push(one),
            }
        }
    }

    fn some_commit(&mut self, claim: &Claim) -> Commit {
        Commit {
            claim: again(claim),
            outcome: self.some_outcome(),
            keep: self.dice.chance(50),
            took: Duration::from_millis(self.dice.below(900) as u64),
            error: self.dice.chance(10).then(|| "it failed".to_owned()),
        }
    }

    fn some_outcome(&mut self) -> Outcome {
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

    fn some_family(&mut self, state: Json) -> Outcome {
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

    /// A process that was thought dead comes with a commit.
    fn commit_from_limbo(&mut self) {
        let most = self.limbo.len();
        if most == 0 {
            return;
        }
        let claim = self.limbo.swap_remove(self.dice.below(most));
        let commit = self.some_commit(&claim);
        let (id, outcome) = (claim.id(), commit.outcome.clone());
        self.tell(format!("a ghost commits {id}: {}", outcome.name()));
        let op = Op::Commit {
            commits: vec![commit],
            serves: serves(),
        };
        match self.send([op].into()) {
            Heard::Answers(mut answers) => match answers.pop() {
                Some(Answer::Committed(mut each)) => match each.pop() {
                    Some(Committed::Kept(kept)) => self.limbo.push(kept),
                    Some(Committed::Refused(_)) => self.limbo.push(claim),
                    _ => self.taken.push((claim, outcome)),
                },
                other => panic!("{other:?}"),
            },
            Heard::Refused | Heard::Lost(_) => self.limbo.push(claim),
        }
    }

    /// What was taken, or stale, is sent once more: nothing may change.
    fn commit_again(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let (claim, outcome) = self.dice.pick(&self.taken);
        let (claim, mut outcome) = (again(claim), outcome.clone());
        if self.dice.chance(30) {
            outcome = self.some_outcome();
        }
        self.tell(format!(
            "{} is committed again: {}",
            claim.id(),
            outcome.name()
        ));
        let commit = Commit {
            outcome,
            ..self.some_commit(&claim)
        };
        let before = self.snapshot();
        let op = Op::Commit {
            commits: vec![commit],
            serves: serves(),
        };
        let answers = self.run([op].into()).unwrap();
        let [Answer::Committed(each)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        match each.as_slice() {
            [Committed::Kept(kept)] => {
                assert!(
                    !self.is_granted(kept),
                    "{kept:?} is kept and was claimed anew"
                );
            }
            [Committed::Moved(_) | Committed::Stale] => {}
            other => panic!("it is answered with {other:?}"),
        }
        assert_eq!(
            before,
            self.snapshot(),
            "a commit that comes twice changes nothing"
        );
    }

    fn let_time_pass(&mut self) {
        let most = if self.dice.chance(20) {
            120_000
        } else {
            12_000
        };
        let time = Duration::from_millis(self.dice.below(most) as u64);
        self.tell(format!("{time:?} pass"));
        self.clock.advance(time);
    }

    fn fire(&mut self) {
        let limit = self.dice.between(1, 5);
        self.tell(format!("fire up to {limit}"));
        self.send([Op::Fire { limit }].into());
    }

    fn reclaim(&mut self) {
        let limit = self.dice.between(1, 5);
        self.tell(format!("reclaim up to {limit}"));
        self.send([Op::Reclaim { limit }].into());
    }

    /// A worker says that it lives; when it learns that it does not, it forgets what it held.
    fn renew(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers[at].id;
        self.tell(format!("{worker} renews its lease"));
        let op = Op::Renew {
            worker,
            lease: LEASE,
        };
        if let Heard::Answers(answers) = self.send([op].into())
            && let [Answer::Heartbeat(Heartbeat::Lost)] = answers.as_slice()
        {
            self.forget(at);
        }
    }

    fn forget(&mut self, at: usize) -> Worker {
        let mut worker = self.workers.swap_remove(at);
        self.limbo
            .extend(worker.held.drain(..).map(|one| one.claim));
        worker
    }

    fn register(&mut self) {
        let number = self.dice.below(4);
        self.tell(format!("worker w{number} registers"));
        let worker = NewWorker {
            name: name(&format!("w{number}")),
            lease: LEASE,
            queues: QUEUES.map(name).into(),
            lanes: lanes(),
        };
        // The older process of its name may go on for a while and not know that it is dead.
        if let Heard::Answers(answers) = self.send([Op::Register(worker)].into())
            && let [Answer::Registered(worker)] = answers.as_slice()
        {
            self.workers.push(Worker {
                id: worker.id,
                name: number,
                held: Vec::new(),
            });
        }
    }

    fn crash(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.forget(at);
        self.tell(format!("{}, named w{}, crashes", worker.id, worker.name));
    }

    fn give_back(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers[at].id;
        if self.dice.chance(50) {
            self.tell(format!("{worker} gives back what it does not know of"));
            let known: Vec<InstanceId> = self.workers[at]
                .held
                .iter()
                .map(|one| one.claim.id())
                .collect();
            let limit = self.dice.between(1, 4);
            let op = Op::GiveBackExcept {
                worker,
                known,
                limit,
            };
            self.send([op].into());
        } else if let Some(one) = self.workers[at].held.pop() {
            self.tell(format!("{worker} gives {} back", one.claim.id()));
            self.send([Op::GiveBack(vec![again(&one.claim)])].into());
            self.limbo.push(one.claim);
        }
    }

    fn sign_off(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker: WorkerId = self.workers[at].id;
        let limit = self.dice.between(1, 4);
        self.tell(format!("{worker} signs off"));
        self.send([Op::SignOff { worker, limit }].into());
        self.forget(at);
    }

    fn sweep(&mut self) {
        let before = self.clock.now() - Duration::from_secs(self.dice.below(60) as u64);
        self.tell(format!("sweep what ended before {before}"));
        let request = SweepRequest {
            before,
            after: self.cursor,
            limit: self.dice.between(1, 5),
        };
        if let Heard::Answers(answers) = self.send([Op::Sweep(request)].into())
            && let [Answer::Swept { next, .. }] = answers.as_slice()
        {
            self.cursor = *next;
        }
    }

    fn declare(&mut self) {
        let (machine, version) = *self.dice.pick(&MACHINES);
        self.tell(format!("{machine} {version} is declared"));
        let declared = Declared {
            machine: name(machine),
            version,
            first_step: name("first"),
            queue: name(QUEUES[self.dice.below(2)]),
            history: self.dice.chance(90),
        };
        self.send([Op::Declare(vec![declared])].into());
    }

    /// A transaction of which the last operation is refused: none of the others may have happened.
    fn fail(&mut self) {
        let Some(at) = self.some_worker() else { return };
        self.tell("a transaction fails in its last operation".into());
        let worker = self.workers[at].id;
        let held: Vec<Claim> = self.workers[at]
            .held
            .iter()
            .map(|one| again(&one.claim))
            .collect();
        let commits = held.iter().map(|claim| self.some_commit(claim)).collect();
        let request = ClaimRequest {
            worker,
            queue: name("default"),
            lanes: lanes(),
            limit: 5,
        };
        let sweep = SweepRequest {
            before: self.clock.now(),
            after: None,
            limit: 5,
        };
        let start = self.some_start();
        let ops = [
            Op::Fire { limit: 3 },
            Op::Reclaim { limit: 3 },
            Op::Commit {
                commits,
                serves: serves(),
            },
            Op::Start(vec![start.clone()]),
            Op::Claim(request),
            Op::Renew {
                worker,
                lease: LEASE * 2,
            },
            Op::SignOff { worker, limit: 2 },
            Op::Sweep(sweep),
            Op::Start(vec![start; BATCH_MOST + 1]),
        ];
        let before = self.snapshot();
        assert!(self.run(ops.into()).is_err());
        assert_eq!(before, self.snapshot(), "what failed has left something");
    }

    /// Claims all there is and ends it.
    pub fn end_all_runnable(&mut self) {
        self.workers.clear();
        let worker = NewWorker {
            name: name("last"),
            lease: LEASE,
            queues: QUEUES.map(name).into(),
            lanes: lanes(),
        };
        let answers = self.run([Op::Register(worker)].into()).unwrap();
        let [Answer::Registered(worker)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        for queue in QUEUES {
            let request = ClaimRequest {
                worker: worker.id,
                queue: name(queue),
                lanes: lanes(),
                limit: 1000,
            };
            let answers = self.run([Op::Claim(request)].into()).unwrap();
            let Some(Answer::Claimed(claimed)) = answers.into_iter().next() else {
                panic!("no answer to a claim")
            };
            let end = |claim| Commit {
                claim,
                outcome: Outcome::Done {
                    result: Json::null(),
                },
                keep: false,
                took: Duration::ZERO,
                error: None,
            };
            let commits: Vec<Commit> = claimed.into_iter().map(|one| end(one.claim)).collect();
            let answers = self
                .run(
                    [Op::Commit {
                        commits,
                        serves: Vec::new(),
                    }]
                    .into(),
                )
                .unwrap();
            let [Answer::Committed(each)] = answers.as_slice() else {
                panic!("{answers:?}")
            };
            let done = |one: &Committed| *one == Committed::Moved(Status::Done);
            assert!(each.iter().all(done), "{each:?}");
        }
    }
}

/// Of what kind the answers to commits are: where an instance stands may have changed, but not what became of a commit.
fn kinds(answers: &[Answer]) -> Vec<&'static str> {
    let kind = |one: &Committed| match one {
        Committed::Moved(_) => "moved",
        Committed::Kept(_) => "kept",
        Committed::Stale => "stale",
        Committed::Refused(_) => "refused",
    };
    let committed = answers.iter().filter_map(|answer| match answer {
        Answer::Committed(each) => Some(each.iter().map(kind)),
        _ => None,
    });
    committed.flatten().collect()
}
