//! The end of a simulation: the faults stop, workers do all there is to do, and nothing may be left that could go on.

use std::time::Duration;

use abide_kernel::conformance::invariants;
use abide_kernel::conformance::random_steps::{LEASE, QUEUES, lanes, name};
use abide_kernel::model::{
    Answered, Claimed, Commit, Committed, InstanceId, Json, Outcome, Refusal, Status, Then,
    WorkerId, WorkflowTurn,
};
use abide_kernel::{Answer, ClaimRequest, Clock, NewWorker, Op, SweepRequest};

use crate::waits::needs_history;
use crate::world::{World, now};

/// The most rounds until nothing moves: many more than any program needs.
const ROUNDS: usize = 1000;
/// The length of each of them: whatever is due or leased at its beginning is over at its end.
const ROUND: Duration = Duration::from_secs(3600);

impl World {
    /// Lets everything end that can, checks what is left, ends that too, and sweeps it all.
    pub fn finish(&mut self) {
        self.tell("the faults stop, and everything is driven to its end".into());
        self.workers.clear();
        self.paused.clear();
        self.drive();
        self.check_left();
        self.cancel_forgotten();
        self.drive();
        let lives = self.seen.values().filter(|one| !one.status.is_terminal());
        let stuck: Vec<_> = lives.collect();
        assert!(stuck.is_empty(), "stuck: {stuck:?}");
        let found = now(invariants::violations(&self.store)).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
        self.clock.advance(Duration::from_secs(1));
        let sweep = SweepRequest {
            before: self.clock.now(),
            after: None,
            limit: usize::MAX,
        };
        self.run([Op::Sweep(sweep)].into()).unwrap();
        assert!(self.instances().is_empty(), "nothing is left to be joined");
        assert!(self.waiters().is_empty() && self.events().is_empty());
    }

    /// Does what timers, leases and workers have to do until nothing moves any more.
    fn drive(&mut self) {
        for _ in 0..ROUNDS {
            self.clock.advance(ROUND);
            let release = Op::ReleaseBlocked {
                build: None,
                fresh: false,
                lanes: lanes(),
                after: InstanceId(0),
                limit: 1000,
            };
            let ops = [
                Op::Reclaim { limit: 1000 },
                Op::Fire { limit: 1000 },
                release,
            ];
            let answers = self.run(ops.into()).unwrap();
            let touched = answers.iter().map(|answer| match answer {
                Answer::Touched { count, .. }
                | Answer::Fired { count, .. }
                | Answer::Released { count, .. } => *count,
                other => panic!("{other:?}"),
            });
            let touched: usize = touched.sum();
            let ran = self.run_all_there_is();
            self.check();
            if touched + ran == 0 {
                return;
            }
        }
        panic!("it goes on for ever");
    }

    /// Checks that whatever has not ended waits for what was not sent.
    fn check_left(&self) {
        let (instances, records) = (self.instances(), self.records());
        let mut stuck = Vec::new();
        for one in instances.iter().filter(|one| !one.status.is_terminal()) {
            let history = match needs_history(one) {
                true => self.history(one.id),
                false => Vec::new(),
            };
            stuck.extend(self.waits.stuck(one, &instances, &records, &history));
        }
        assert!(stuck.is_empty(), "left behind: {}", stuck.join("\n"));
    }

    /// Claims all there is, answers updates, and ends every step that runs; how much that was.
    fn run_all_there_is(&mut self) -> usize {
        let worker = NewWorker {
            name: name("last"),
            lease: LEASE,
            queues: QUEUES.map(name).into(),
            lanes: lanes(),
            build: None,
        };
        let answers = self.run([Op::Register(worker)].into()).unwrap();
        let [Answer::Registered(worker)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        QUEUES
            .map(|queue| self.run_queue(worker.id, queue))
            .iter()
            .sum()
    }

    fn run_queue(&mut self, worker: WorkerId, queue: &str) -> usize {
        let request = ClaimRequest {
            worker,
            queue: name(queue),
            lanes: lanes(),
            limit: 1000,
            lease: None,
        };
        let answers = self.run([Op::Claim(request)].into()).unwrap();
        let Some(Answer::Claimed(claimed)) = answers.into_iter().next() else {
            panic!("no answer to a claim")
        };
        let ends = |claimed: &Claimed, outcome: Outcome| Commit {
            outcome,
            claim: claimed.claim.again(),
            keep: false,
            took: Duration::ZERO,
            error: None,
        };
        let commits = claimed.iter().map(|one| ends(one, end_of(one)));
        let each = self.commit_all(commits.collect());
        // One that may not go on under its key is stopped, which is never refused.
        let mut stops = Vec::new();
        for (one, answer) in claimed.iter().zip(each) {
            match answer {
                Committed::Moved(Status::Done) => {}
                Committed::Moved(_) if one.aside => {}
                Committed::Refused(Refusal::KeyTaken { .. }) => {
                    let reason = "its key is taken".to_owned();
                    stops.push(ends(one, Outcome::Stop { reason }));
                }
                other => panic!("{other:?}"),
            }
        }
        for answer in self.commit_all(stops) {
            assert_eq!(answer, Committed::Moved(Status::Failed));
        }
        claimed.len()
    }

    fn commit_all(&mut self, commits: Vec<Commit>) -> Vec<Committed> {
        let serves = Vec::new();
        let answers = self.run([Op::Commit { commits, serves }].into()).unwrap();
        match answers.into_iter().next() {
            Some(Answer::Committed(each)) => each,
            other => panic!("{other:?}"),
        }
    }
}

/// The outcome that ends an instance; one that runs for nothing but updates answers them and goes back to where it was.
fn end_of(claimed: &Claimed) -> Outcome {
    let result = Json::null();
    match claimed.machine.as_str() {
        abide_kernel::conformance::random_turns::WORKFLOW => {
            Outcome::Workflow(Box::new(WorkflowTurn::of(Then::Done { result })))
        }
        _ if claimed.aside => {
            let answered = |update_id| Answered {
                update_id,
                result: Json::null(),
                error: None,
            };
            let updates = claimed.updates.iter().map(|one| answered(one.id));
            Outcome::Answer {
                updates: updates.collect(),
                state: None,
                then: None,
            }
        }
        _ => Outcome::Done { result },
    }
}
