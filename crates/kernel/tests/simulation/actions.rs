//! The actions of a simulation, each chosen at random.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_kernel::conformance::random_steps::{LEASE, QUEUES, lanes, name, serves};
use abide_kernel::model::{Claim, Heartbeat, InstanceId, Start, WorkerId};
use abide_kernel::{Answer, ClaimRequest, Clock, Extension, NewWorker, Op, SweepRequest};

use crate::world::{BATCH_MOST, Heard, Held, Worker, World};

impl World {
    /// Does one thing.
    pub fn act(&mut self) {
        match self.rng.below(161) {
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
            97..99 => self.declare(),
            99..119 => self.deliver(),
            119..122 => self.cancel(),
            122..125 => self.restart(),
            125..126 => self.reserve(),
            126..129 => self.release(),
            129..143 => self.publish(),
            143..149 => self.extend(),
            149..151 => self.fail(),
            151..154 => self.pause(),
            154..158 => self.resume(),
            _ => self.step_clock_back(),
        }
    }

    /// Two workers and a few instances, so that something can happen.
    pub fn begin(&mut self) {
        self.register();
        self.register();
        for _ in 0..6 {
            self.declare();
        }
        self.start();
        self.start();
    }

    fn start(&mut self) {
        let starts: Vec<Start> = (0..self.rng.between(1, 4))
            .map(|_| self.rng.some_start())
            .collect();
        self.send_starts(starts);
    }

    /// A worker, registered if there is none. It may have died long ago without knowing it.
    pub fn some_worker(&mut self) -> Option<usize> {
        if self.workers.is_empty() {
            self.register();
        }
        let most = self.workers.len();
        (most > 0).then(|| self.rng.below(most))
    }

    pub fn claim(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers[at].id;
        let limit = self.rng.between(1, 5);
        let queue = name(QUEUES[self.rng.below(2)]);
        self.tell(format!("{worker} claims up to {limit} from {queue}"));
        let request = ClaimRequest {
            worker,
            queue,
            lanes: lanes(),
            limit,
            lease: self.rng.some_lease(),
        };
        if let Heard::Answers(answers) = self.send([Op::Claim(request)].into()) {
            self.take(at, answers);
        }
    }

    /// Notes the claims that a worker has received.
    pub fn take(&mut self, at: usize, answers: Vec<Answer>) {
        for answer in answers {
            let Answer::Claimed(claimed) = answer else {
                continue;
            };
            for one in claimed {
                assert_eq!(one.claim.worker(), self.workers[at].id);
                self.check_joined(&one);
                self.check_handed(&one);
                self.workers[at].held.push(Held {
                    claim: one.claim,
                    step_seq: one.step_seq,
                    attempt: one.attempt,
                    awaited: one.awaited.iter().map(|one| one.id).collect(),
                    updates: one.updates.iter().map(|one| one.id).collect(),
                    aside: one.aside,
                    children: (one.children_pending, one.children_ended),
                    pending: BTreeSet::new(),
                });
            }
        }
    }

    pub fn let_time_pass(&mut self) {
        let most = if self.rng.chance(20) { 120_000 } else { 12_000 };
        let time = Duration::from_millis(self.rng.below(most) as u64);
        self.tell(format!("{time:?} pass"));
        self.clock.advance(time);
    }

    fn fire(&mut self) {
        let limit = self.rng.between(1, 5);
        self.tell(format!("fire up to {limit}"));
        self.send([Op::Fire { limit }].into());
    }

    fn reclaim(&mut self) {
        let limit = self.rng.between(1, 5);
        self.tell(format!("reclaim up to {limit}"));
        self.send([Op::Reclaim { limit }].into());
    }

    /// A worker renews its lease; when it learns that it is lost, it forgets what it held.
    fn renew(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers[at].id;
        self.tell(format!("{worker} renews its lease"));
        let op = Op::Renew {
            workers: vec![worker],
            lease: LEASE,
        };
        if let Heard::Answers(answers) = self.send([op].into())
            && let [Answer::Renewed { lost }] = answers.as_slice()
            && !lost.is_empty()
        {
            self.forget(at);
        }
    }

    /// A worker names some of what it holds; of what it learns that it has lost, it forgets.
    fn extend(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let mut named: Vec<usize> = (0..self.workers[at].held.len()).collect();
        named.retain(|_| self.rng.chance(70));
        let held = &self.workers[at].held;
        let lease = Duration::from_secs(self.rng.between(1, 20) as u64);
        let claims = named.iter().map(|one| Extension {
            claim: held[*one].claim.again(),
            lease,
        });
        let extend = Op::Extend(claims.collect());
        let worker = self.workers[at].id;
        self.tell(format!("{worker} names {} of its claims", named.len()));
        if let Heard::Answers(answers) = self.send([extend].into())
            && let [Answer::Extended(beats)] = answers.as_slice()
        {
            assert_eq!(beats.len(), named.len());
            for (one, beat) in named.iter().zip(beats).rev() {
                if *beat == Heartbeat::Lost {
                    let lost = self.workers[at].held.swap_remove(*one);
                    self.limbo.push(lost.claim);
                }
            }
        }
    }

    fn forget(&mut self, at: usize) -> Worker {
        let mut worker = self.workers.swap_remove(at);
        self.limbo
            .extend(worker.held.drain(..).map(|one| one.claim));
        worker
    }

    fn register(&mut self) {
        let number = self.rng.below(4);
        self.tell(format!("worker w{number} registers"));
        let worker = NewWorker {
            name: name(&format!("w{number}")),
            lease: LEASE,
            queues: QUEUES.map(name).into(),
            lanes: lanes(),
            build: None,
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
        if self.rng.chance(50) {
            self.tell(format!("{worker} gives back what it does not know of"));
            let known: Vec<InstanceId> = self.workers[at]
                .held
                .iter()
                .map(|one| one.claim.id())
                .collect();
            let limit = self.rng.between(1, 4);
            let op = Op::GiveBackExcept {
                worker,
                known,
                limit,
            };
            self.send([op].into());
        } else if let Some(one) = self.workers[at].held.pop() {
            self.tell(format!("{worker} gives {} back", one.claim.id()));
            self.send([Op::GiveBack(vec![one.claim.again()])].into());
            self.limbo.push(one.claim);
        }
    }

    fn sign_off(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker: WorkerId = self.workers[at].id;
        let limit = self.rng.between(1, 4);
        self.tell(format!("{worker} signs off"));
        self.send([Op::SignOff { worker, limit }].into());
        self.forget(at);
    }

    fn sweep(&mut self) {
        let before = self.clock.now() - Duration::from_secs(self.rng.below(60) as u64);
        self.tell(format!("sweep what ended before {before}"));
        let request = SweepRequest {
            before,
            after: self.cursor,
            limit: self.rng.between(1, 5),
        };
        if let Heard::Answers(answers) = self.send([Op::Sweep(request)].into())
            && let [Answer::Swept { next, .. }] = answers.as_slice()
        {
            self.cursor = *next;
        }
    }

    fn declare(&mut self) {
        let (machine, contract) = self.rng.some_declaration();
        self.tell(format!(
            "{} {} is declared",
            machine.machine, machine.version
        ));
        let declare = Op::Declare {
            machines: vec![machine],
            contracts: contract.into_iter().collect(),
        };
        self.send([declare].into());
    }

    /// A transaction of which the last operation is refused: none of the others may have happened.
    fn fail(&mut self) {
        let Some(at) = self.some_worker() else { return };
        self.tell("a transaction fails in its last operation".into());
        let worker = self.workers[at].id;
        let held: Vec<Claim> = self.workers[at]
            .held
            .iter()
            .map(|one| one.claim.again())
            .collect();
        let commits = held.iter().map(|claim| self.some_commit(claim)).collect();
        let request = ClaimRequest {
            worker,
            queue: name("default"),
            lanes: lanes(),
            limit: 5,
            lease: None,
        };
        let sweep = SweepRequest {
            before: self.clock.now(),
            after: None,
            limit: 5,
        };
        let start = self.rng.some_start();
        let ops = [
            Op::Fire { limit: 3 },
            Op::Reclaim { limit: 3 },
            Op::Commit {
                commits,
                serves: serves(),
            },
            Op::Start(vec![start.clone()]),
            Op::Deliver(self.some_deliveries()),
            Op::Publish(self.some_publishes()),
            Op::Cancel(vec![self.some_cancel()]),
            Op::Restart(vec![self.some_restart()]),
            Op::Claim(request),
            Op::Renew {
                workers: vec![worker],
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
}
