//! Faults in a simulation beside a store that fails: workers that stand still, clocks that step back, requests that come
//! twice, entries that are refused among good ones.

use std::time::Duration;

use abide_kernel::model::{Commit, Json, Outcome, Refusal, Scope, Start, Started, Status};
use abide_kernel::{Answer, Clock, Op};

use crate::world::{Heard, STATE_MOST, World};

impl World {
    /// A worker stands still: it neither renews its lease nor commits, and does not know.
    pub fn pause(&mut self) {
        let Some(at) = self.some_worker() else { return };
        let worker = self.workers.swap_remove(at);
        self.tell(format!("{} stands still", worker.id));
        self.paused.push(worker);
    }

    /// One that stood still goes on with what it believes to hold.
    pub fn resume(&mut self) {
        let most = self.paused.len();
        if most == 0 {
            return self.let_time_pass();
        }
        let worker = self.paused.swap_remove(self.rng.below(most));
        self.tell(format!("{} goes on", worker.id));
        self.workers.push(worker);
    }

    pub fn step_clock_back(&mut self) {
        let time = Duration::from_millis(self.rng.below(20_000) as u64);
        self.tell(format!("the clock steps back by {time:?}"));
        self.clock.set(self.clock.now() - time);
    }

    /// Starts instances, now and then with one among them that cannot be: the others are not touched by that. If the
    /// answer is lost, sends them again, and those that hold a key are duplicates then (rules 2.2 and 2.3).
    pub fn send_starts(&mut self, mut starts: Vec<Start>) {
        if self.rng.chance(8) {
            let poisoned = self.rng.below(starts.len());
            let poison = self.rng.below(3);
            match &mut starts[poisoned] {
                start if poison == 0 => start.state = too_large(),
                start if poison == 1 => start.version = Some(0),
                start => start.scope = Scope::NEVER.and(Status::Executing),
            }
        }
        let bad: Vec<bool> = starts.iter().map(is_bad).collect();
        self.tell(format!("start {}", starts.len()));
        match self.send([Op::Start(starts.clone())].into()) {
            Heard::Answers(answers) => check_refused(&bad, &started(answers)),
            Heard::Refused => {}
            Heard::Lost(answers) => {
                let first = started(answers);
                check_refused(&bad, &first);
                self.tell("  they are started again".into());
                let holds = |start: &Start| {
                    let live = [Status::Runnable, Status::Scheduled];
                    start.key.is_some() && live.iter().all(|status| start.scope.holds(*status))
                };
                let kept = starts.iter().zip(first).filter(|(start, _)| holds(start));
                let (starts, first): (Vec<Start>, Vec<_>) =
                    kept.map(|(start, first)| (start.clone(), first)).unzip();
                let again = started(self.run([Op::Start(starts)].into()).unwrap());
                for (first, again) in first.into_iter().zip(again) {
                    if let Ok(Started::New(id)) = first {
                        assert_eq!(again, Ok(Started::Duplicate(id)));
                    }
                }
            }
        }
    }

    /// Makes one of these commits one that is refused; its neighbours are committed all the same, which is checked when
    /// the answers arrive.
    pub fn poison_commits(&mut self, commits: &mut [Commit]) {
        if self.rng.chance(6) {
            let at = self.rng.below(commits.len());
            if !self.is_workflow(commits[at].claim.id()) {
                commits[at].outcome = Outcome::Retry {
                    state: too_large(),
                    delay_ms: 0,
                };
            }
        }
    }
}

/// True if a start must be refused.
fn is_bad(start: &Start) -> bool {
    let gap = |scope: Scope| scope.holds(Status::Executing) && !scope.holds(Status::Runnable);
    start.state.size() > STATE_MOST || start.version == Some(0) || gap(start.scope)
}

/// True if an outcome must be refused.
pub fn is_too_large(outcome: &Outcome) -> bool {
    outcome
        .state()
        .is_some_and(|state| state.size() > STATE_MOST)
}

fn too_large() -> Json {
    Json::of(&"x".repeat(STATE_MOST)).unwrap()
}

fn started(answers: Vec<Answer>) -> Vec<Result<Started, Refusal>> {
    match answers.into_iter().next() {
        Some(Answer::Started(each)) => each,
        other => panic!("starts are not answered with {other:?}"),
    }
}

fn check_refused(bad: &[bool], answers: &[Result<Started, Refusal>]) {
    let refused: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(
        bad, refused,
        "exactly those are refused that must be: {answers:?}"
    );
}
