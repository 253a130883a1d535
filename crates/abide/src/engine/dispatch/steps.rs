//! The steps that run, each in a task of its own, and their outcomes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Claim, Claimed, Commit, Inbox, Lane, Outcome, Refusal, Then, Timestamp};
use abide_kernel::Backoff;
use abide_kernel::committer::{Commits, Entry, Waiter};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::Instant;
use tracing::Instrument;

use super::super::builder::Shared;
use super::super::span::attempt;
use super::super::{Follow, Ran, Runner, Task};
use super::Dispatcher;

/// The start of instances that were claimed together: the time, and the code that the last one needed.
pub(super) struct Start {
    now: Timestamp,
    last: Option<(Lane, Arc<dyn Runner>)>,
}

impl Start {
    pub const fn at(now: Timestamp) -> Self {
        Self { now, last: None }
    }

    /// Returns the code for an instance. Most instances of a claim are of one lane, so it is found once.
    fn runner(&mut self, shared: &Shared, claimed: &Claimed) -> Option<Arc<dyn Runner>> {
        if let Some((lane, runner)) = &self.last
            && lane.version == claimed.version
            && lane.machine == claimed.machine
        {
            return Some(runner.clone());
        }
        let lane = Lane {
            machine: claimed.machine.clone(),
            version: claimed.version,
        };
        let runner = shared.runner(&lane)?;
        self.last = Some((lane, runner.clone()));
        Some(runner)
    }
}

impl Dispatcher {
    /// Starts the step of an instance that was claimed and is held.
    pub(super) fn begin(&mut self, claimed: Claimed, start: &mut Start) {
        let Some(runner) = start.runner(&self.shared, &claimed) else {
            // Only lanes that have code are claimed.
            tracing::error!(instance = %claimed.claim.id(), machine = %claimed.machine, "claimed without code for it");
            return;
        };
        let held = self.held.entry(claimed.claim.id()).or_default();
        let (claim, task) = Task::of(
            claimed,
            runner,
            held.cancelled.clone(),
            held.command_arrived.clone(),
            start.now,
        );
        self.start(claim, Arc::new(task));
    }

    /// Runs the error handlers of refused outcomes for which there is a slot.
    pub(super) fn ask_handlers(&mut self) {
        let queues = self.queues.iter_mut();
        let refused = queues.flat_map(|queue| std::iter::from_fn(|| queue.next_refused()));
        for (refusal, sent) in refused.collect::<Vec<_>>() {
            self.ask_again(refusal, sent);
        }
    }

    /// Runs a step in a task of its own.
    pub(super) fn start(&self, claim: Claim, task: Arc<Task>) {
        let runner = task.runner.clone();
        let code = if task.answers() {
            runner.answer(task.clone())
        } else {
            runner.run(task.clone())
        };
        self.spawn(claim, task, code);
    }

    /// Passes a refused outcome to the error handler. If the refused outcome was the handler's own, the instance is
    /// stopped with both messages (rules 4.2, 5.2: it never loops).
    fn ask_again(&self, refusal: Refusal, sent: Sent) {
        let Sent {
            claim, task, error, ..
        } = sent;
        let code = match error {
            None => task.runner.clone().refused(task.clone(), refusal),
            Some(first) => {
                let reason = format!("{first}; and its error handler failed: {refusal}");
                std::future::ready(Ran {
                    outcome: Outcome::Stop { reason },
                    error: Some(first),
                    within: None,
                })
                .boxed()
            }
        };
        self.spawn(claim, task, code);
    }

    fn spawn(&self, claim: Claim, task: Arc<Task>, code: BoxFuture<'static, Ran>) {
        let (finish, kill) = (self.finish.clone(), self.shared.kill.clone());
        let span = attempt(&task, &self.shared.settings.name);
        let within = span.clone();
        let run = async move {
            let began = std::time::Instant::now();
            let ran = tokio::select! {
                biased;
                ran = AssertUnwindSafe(code).catch_unwind() => ran,
                () = kill.cancelled() => return,
            };
            let ran = ran.unwrap_or_else(|_| {
                let reason = "the code that runs steps panicked: this is a bug in abide".to_owned();
                Ran {
                    outcome: Outcome::Stop {
                        reason: reason.clone(),
                    },
                    error: Some(reason),
                    within: None,
                }
            });
            within.record("outcome", ran.outcome.name());
            if let Some(error) = &ran.error {
                within.record("error", error.as_str());
            }
            // The dispatcher has ended only if the worker was killed.
            let _ = finish.send(Finished {
                claim,
                task,
                ran,
                took: began.elapsed(),
            });
        };
        self.steps.spawn(run.instrument(span));
    }
}

/// A step that has run: its claim, its task, and its outcome.
pub(super) struct Finished {
    pub claim: Claim,
    pub task: Arc<Task>,
    pub ran: Ran,
    pub took: Duration,
}

/// An outcome that is being sent to the database.
pub(super) type Outgoing = Entry<Commits, Sent>;

/// State of an outcome that the dispatcher has sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// A copy of the claim, for a step whose outcome is refused and which continues to hold it.
    pub claim: Claim,
    pub task: Arc<Task>,
    /// The continuation, if the claim may be kept.
    pub follows: Option<Follow>,
    /// The error that the outcome handles. If set, the outcome is that of the error handler.
    pub error: Option<String>,
    /// The reason, if the outcome is a stop.
    pub stopped: Option<String>,
    /// `true` if it has a slot in its queue.
    pub has_slot: bool,
    /// The back-off for sending a refused stop again.
    pub stuck: Option<Backoff>,
}

impl Waiter for Sent {
    /// Outcomes are kept, however long the database is unavailable.
    fn until(&self) -> Option<Instant> {
        None
    }
}

impl Finished {
    /// Makes the commit to send, and the state to remember about it. The claim is kept while the chain of steps is
    /// short (rule 4.3).
    pub fn send(self, shared: &Shared, now: Timestamp) -> Outgoing {
        let Self {
            claim,
            task,
            ran,
            took,
        } = self;
        let settings = &shared.settings;
        let keep = !shared.stop.is_cancelled()
            && task.chain < settings.chain_steps
            && now.since(task.chain_since) <= settings.chain_time;
        let follows = match &ran.outcome {
            Outcome::Next {
                step,
                state,
                delay_ms: 0,
            } if keep => Some(Follow::Step {
                step: step.clone(),
                state: state.clone(),
            }),
            Outcome::Answer {
                state, then: None, ..
            } if keep && !task.aside => Some(Follow::Same {
                state: state.clone(),
            }),
            Outcome::Workflow(turn)
                if keep || matches!(turn.then, Then::GoOn { running: true }) =>
            {
                matches!(turn.then, Then::GoOn { .. }).then_some(Follow::Turn {
                    inbox: Inbox::default(),
                })
            }
            _ => None,
        };
        let stopped = match &ran.outcome {
            Outcome::Stop { reason } => Some(reason.clone()),
            _ => None,
        };
        let waiter = Sent {
            claim: claim.again(),
            task,
            error: ran.error.clone(),
            stopped,
            has_slot: true,
            stuck: None,
            follows,
        };
        let commit = Commit {
            claim,
            outcome: ran.outcome,
            keep: waiter.follows.is_some(),
            took,
            error: ran.error,
        };
        Entry {
            items: vec![commit],
            waiter,
        }
    }
}

/// Gives the claim up with the outcome, unless steps of it still run. `true` if it does.
pub(super) fn leave(outgoing: &mut Outgoing) -> bool {
    let running = |commit: &Commit| {
        let turn = match &commit.outcome {
            Outcome::Workflow(turn) => Some(&turn.then),
            _ => None,
        };
        matches!(turn, Some(Then::GoOn { running: true }))
    };
    if outgoing.items.iter().any(running) {
        return false;
    }
    give_up(outgoing);
    true
}

/// Makes the outcome give up its claim.
pub(super) fn give_up(outgoing: &mut Outgoing) {
    outgoing
        .items
        .iter_mut()
        .for_each(|commit| commit.keep = false);
    outgoing.waiter.follows = None;
}

/// `true` if an outcome certainly ends this worker's claim.
pub(super) fn leaves(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Next { delay_ms: 0, .. } | Outcome::Answer { .. } => false,
        Outcome::Workflow(turn) => !matches!(turn.then, Then::GoOn { .. }),
        _ => true,
    }
}
