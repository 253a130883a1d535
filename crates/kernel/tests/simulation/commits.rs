//! Commits in a simulation: in time, lost on the way, from the dead, and twice.

use std::sync::Arc;

use abide_kernel::conformance::random_steps::{lanes, name, serves};
use abide_kernel::model::{Claim, Commit, Committed, Outcome};
use abide_kernel::{Answer, ClaimRequest, Op};

use crate::faults::is_too_large;
use crate::world::{Heard, Held, Worker, World};

impl World {
    pub fn some_commit(&mut self, claim: &Claim) -> Commit {
        let room = self.has_room();
        let commit = self.rng.some_commit(claim, room);
        match self.is_workflow(claim.id()) {
            true => Commit {
                outcome: self.some_turn(claim.id(), Vec::new(), (0, 0)),
                ..commit
            },
            false => commit,
        }
    }

    /// Something that a worker which knows what it was given would commit.
    fn some_commit_of(&mut self, held: &Held) -> Commit {
        let mut commit = self.some_commit(&held.claim);
        if self.is_workflow(held.claim.id()) {
            let (id, updates) = (held.claim.id(), held.updates.clone());
            commit.outcome = self.some_turn(id, updates, held.children);
            return commit;
        }
        if held.aside || !held.updates.is_empty() {
            commit.outcome = self.rng.some_answer(&held.updates, commit.outcome);
        }
        // One that was claimed for updates alone has no step to go on with.
        commit.keep &= !held.aside;
        commit
    }

    pub fn commit(&mut self) {
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
            held.push(self.workers[at].held.swap_remove(self.rng.below(most)));
        }
        for one in &mut held {
            let pending = self.inbox(one.claim.id());
            one.pending = pending.iter().map(|one| one.id).collect();
        }
        let mut commits: Vec<Commit> = held.iter().map(|one| self.some_commit_of(one)).collect();
        self.poison_commits(&mut commits);
        let outcomes: Vec<Outcome> = commits.iter().map(|one| one.outcome.clone()).collect();
        let described: Vec<String> = commits
            .iter()
            .map(|one| format!("{}: {}", one.claim.id(), one.outcome.name()))
            .collect();
        self.tell(format!(
            "{} commits {}",
            self.workers[at].id,
            described.join(", ")
        ));
        let mut ops = vec![Op::Commit {
            commits,
            serves: serves(),
        }];
        if self.rng.chance(30) {
            ops.push(Op::Claim(ClaimRequest {
                worker: self.workers[at].id,
                queue: name("default"),
                lanes: lanes(),
                limit: 2,
                lease: self.rng.some_lease(),
            }));
        }
        let ops: Arc<[Op]> = ops.into();
        let mut unheard: Option<Vec<&str>> = None;
        for _ in 0..3 {
            match self.send(ops.clone()) {
                Heard::Answers(mut answers) => {
                    if let Some(unheard) = unheard {
                        check_repeated(&unheard, &kinds(&answers));
                    }
                    self.take(at, answers.split_off(1));
                    return self.hear(at, held, outcomes, answers);
                }
                Heard::Refused => {}
                Heard::Lost(answers) => unheard = Some(kinds(&answers)),
            }
            if self.rng.chance(30) {
                break;
            }
            self.tell("  it is sent again".into());
        }
        match unheard {
            None => self.workers[at].held.extend(held),
            Some(_) => self.limbo.extend(held.into_iter().map(|one| one.claim)),
        }
    }

    /// Handles the answers to commits.
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
            let refused = matches!(answer, Committed::Refused(_) | Committed::Stale);
            assert!(refused || !is_too_large(&outcome), "{id} is too large");
            match answer {
                Committed::Moved(_) | Committed::Repeated(_) | Committed::Kept(_, _) => {
                    let went_on = !matches!(outcome, Outcome::Answer { then: None, .. });
                    if let Outcome::Workflow(turn) = &outcome {
                        self.check_turn(&one, turn);
                        if !turn.children.is_empty() {
                            // Of those that it would start, the keys of some may have been taken.
                            one.children.0 = self.live_children(id);
                        }
                    } else {
                        self.check_consumed(&one, &outcome);
                        if went_on {
                            self.check_recorded(id, one.step_seq, one.attempt);
                        }
                    }
                    self.taken.push((one.claim.again(), outcome));
                    if let Committed::Kept(claim, _) = answer {
                        assert!(
                            !self.is_granted(&claim),
                            "{claim:?} is kept and was claimed anew"
                        );
                        one.claim = claim;
                        one.updates.clear();
                        if went_on {
                            (one.step_seq, one.attempt) = (one.step_seq + 1, 0);
                            one.awaited.clear();
                        }
                        self.workers[at].held.push(one);
                    }
                }
                Committed::Stale => self.taken.push((one.claim, outcome)),
                Committed::Refused(_) => self.workers[at].held.push(one),
            }
        }
    }

    /// A process that was thought dead comes with a commit.
    pub fn commit_from_limbo(&mut self) {
        let most = self.limbo.len();
        if most == 0 {
            return;
        }
        let claim = self.limbo.swap_remove(self.rng.below(most));
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
                    Some(Committed::Kept(kept, _)) => self.limbo.push(kept),
                    Some(Committed::Refused(_)) => self.limbo.push(claim),
                    _ => self.taken.push((claim, outcome)),
                },
                other => panic!("{other:?}"),
            },
            Heard::Refused | Heard::Lost(_) => self.limbo.push(claim),
        }
    }

    /// Sends once more what was committed, or stale: nothing may change.
    pub fn commit_again(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let (claim, outcome) = self.rng.pick(&self.taken);
        let (claim, mut outcome) = (claim.again(), outcome.clone());
        if self.rng.chance(30) {
            outcome = self.some_commit(&claim).outcome;
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
            [Committed::Kept(kept, _)] => {
                assert!(
                    !self.is_granted(kept),
                    "{kept:?} is kept and was claimed anew"
                );
            }
            [Committed::Repeated(_) | Committed::Stale] => {}
            other => panic!("it is answered with {other:?}"),
        }
        assert_eq!(
            before,
            self.snapshot(),
            "a commit that comes twice changes nothing"
        );
    }
}

/// The kinds of the answers to commits: the status of an instance may have changed, but not the result of a commit.
fn kinds(answers: &[Answer]) -> Vec<&'static str> {
    let kind = |one: &Committed| match one {
        Committed::Moved(_) => "moved",
        Committed::Repeated(_) => "repeated",
        Committed::Kept(_, _) => "kept",
        Committed::Stale => "stale",
        Committed::Refused(_) => "refused",
    };
    let committed = answers.iter().filter_map(|answer| match answer {
        Answer::Committed(each) => Some(each.iter().map(kind)),
        _ => None,
    });
    committed.flatten().collect()
}

/// Checks that what was committed is answered as before. What was refused is decided anew: its key may be free now.
fn check_repeated(first: &[&str], again: &[&str]) {
    assert_eq!(first.len(), again.len());
    for (first, again) in first.iter().zip(again) {
        assert!(
            first == again || (*first, *again) == ("moved", "repeated") || *first == "refused",
            "{first} is answered as {again} when it is sent again"
        );
    }
}
