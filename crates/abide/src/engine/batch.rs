//! One transaction of the dispatcher: outcomes to commit or commands to deliver, and claims to make.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Claim, Claimed, Commit, Committed, Inbox, InstanceId, Outcome, Then, Timestamp,
};
use abide_kernel::committer::{
    self, Bulk, Commits, Deliveries, Entry, Fault, Landing, Request, Waiter,
};
use abide_kernel::{Answer, Backoff, ClaimRequest, Error, Op};
use tokio::time::Instant;

use super::builder::Shared;
use super::{Follow, Ran, Task};

/// A step that has run: its claim, its task, and its outcome.
pub(super) struct Finished {
    pub claim: Claim,
    pub task: Arc<Task>,
    pub ran: Ran,
    pub took: Duration,
}

/// An outcome that is being sent to the database.
pub(super) type Outgoing = Entry<Commits, Sent>;

/// The content of a transaction. Outcomes and commands never share one: each kind locks rows in the order of their ids,
/// and both together would not.
#[derive(Default)]
pub(super) struct Batch {
    pub outcomes: Vec<Outgoing>,
    pub commands: Vec<Request<Deliveries>>,
    pub claims: Vec<Ask>,
}

/// A request of the dispatcher for work.
#[derive(Debug)]
pub(super) struct Ask {
    pub request: ClaimRequest,
    /// The number of wakes of the queue when the request was made.
    pub wakes: u64,
}

/// The result of a transaction.
#[derive(Default)]
pub(super) struct Landed {
    /// The number of outcomes and commands in a transaction of the writers.
    pub entries: usize,
    /// The answer to each outcome, in order.
    pub commits: Vec<(Committed, Sent)>,
    /// The instances that each request claimed.
    pub claims: Vec<(Ask, Vec<Claimed>)>,
    /// An instance that was claimed before and must run now, because the claims in its way have been given back.
    pub cleared: Option<Claimed>,
    /// The failure, if the transaction failed.
    pub failed: Option<Failure>,
    /// Outcomes that are given up, because the engine stops.
    pub dropped: Vec<Sent>,
    /// `true` if claims may have been made that this worker does not know of.
    pub unsure: bool,
    /// `true` if such claims were searched for and given back.
    pub searched: bool,
    /// `true` if the instances held here were checked.
    pub checked: bool,
    /// Instances held here that have ended.
    pub ended: Vec<InstanceId>,
    /// `true` if the worker was killed meanwhile, and the outcomes are lost to it.
    pub dead: bool,
}

/// A transaction that failed.
pub(super) struct Failure {
    pub outcomes: Vec<Outgoing>,
    pub commands: Vec<Request<Deliveries>>,
    pub claims: Vec<Ask>,
    pub error: Error,
}

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

/// The maximum number of rows that are given back in one transaction.
const GIVE_BACK: usize = 500;

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.commands.is_empty() && self.claims.is_empty()
    }

    /// Makes one attempt: commits or delivers, and claims in the same transaction.
    pub async fn land(self, shared: Arc<Shared>) -> Landed {
        let Self {
            outcomes,
            commands,
            claims,
        } = self;
        let claim_ops = claims.iter().map(|ask| Op::Claim(ask.request.clone()));
        let claim_ops = claim_ops.collect();
        let store = shared.committer.store();
        if !commands.is_empty() {
            return match committer::land(store, &Deliveries, commands, claim_ops).await {
                Landing::Done(answers, more) => {
                    for (caller, each) in answers.by_entry() {
                        caller.answer(Ok(each));
                    }
                    Landed::done(Vec::new(), claims, more)
                }
                Landing::Failed(commands, error) => Landed::failed(Failure {
                    outcomes,
                    commands,
                    claims,
                    error,
                }),
            };
        }
        let kind = shared.outcomes(&outcomes);
        match committer::land(store, &kind, outcomes, claim_ops).await {
            Landing::Done(answers, more) => {
                let commits = answers.firsts().map(|(sent, committed)| (committed, sent));
                Landed::done(commits.collect(), claims, more)
            }
            Landing::Failed(outcomes, error) => Landed::failed(Failure {
                outcomes,
                commands,
                claims,
                error,
            }),
        }
    }
}

impl Landed {
    fn done(commits: Vec<(Committed, Sent)>, requests: Vec<Ask>, answers: Vec<Answer>) -> Self {
        let claimed = |(ask, answer)| match answer {
            Answer::Claimed(claimed) => (ask, claimed),
            _ => (ask, Vec::new()),
        };
        Self {
            commits,
            claims: requests.into_iter().zip(answers).map(claimed).collect(),
            ..Self::default()
        }
    }

    fn failed(failure: Failure) -> Self {
        // Claims whose answer was lost or unreadable are known to no process.
        let nothing = matches!(failure.error, Error::Conflict(_) | Error::Unavailable(_));
        Self {
            unsure: !nothing && !failure.claims.is_empty(),
            failed: Some(failure),
            ..Self::default()
        }
    }

    fn dead() -> Self {
        Self {
            dead: true,
            ..Self::default()
        }
    }
}

impl Shared {
    /// The kind of batch for these outcomes. If claims may be kept, it names what this worker serves.
    fn outcomes(&self, outcomes: &[Outgoing]) -> Commits {
        let serves = match outcomes.iter().any(|one| one.waiter.follows.is_some()) {
            true => self.serves(),
            false => Vec::new(),
        };
        Commits { serves }
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
    outgoing
        .items
        .iter_mut()
        .for_each(|commit| commit.keep = false);
    outgoing.waiter.follows = None;
    true
}

/// Commits an outcome in transactions of its own, until it is answered. A stuck outcome is sent after the delay. If the
/// engine stops before that, it is dropped.
pub(super) async fn land_alone(
    outgoing: Outgoing,
    stuck: Option<Duration>,
    shared: Arc<Shared>,
) -> Landed {
    if let Some(delay) = stuck {
        tokio::select! {
            () = shared.stop.cancelled() => return Landed {
                dropped: vec![outgoing.waiter],
                ..Landed::default()
            },
            () = tokio::time::sleep(delay) => {}
        }
    }
    let kind = shared.outcomes(std::slice::from_ref(&outgoing));
    let (sent, answer) = tokio::select! {
        () = shared.kill.cancelled() => return Landed::dead(),
        answered = shared.committer.alone(&kind, outgoing) => answered,
    };
    match answer.map(|each| each.into_iter().next()) {
        Ok(Some(committed)) => Landed {
            commits: vec![(committed, sent)],
            ..Landed::default()
        },
        // The store was closed.
        _ => Landed::dead(),
    }
}

/// Commits an outcome in the transaction in which its step wrote its own rows: both, or neither (rule 17.2). If the
/// commit fails, or its result is unknown, the claim is forgotten, and claims that are held but not known are given
/// back. Then the step runs again, unless it was committed.
pub(super) async fn land_within(mut finished: Finished, shared: Arc<Shared>) -> Landed {
    let mut landed = Landed::default();
    let Some(within) = finished.ran.within.take() else {
        return landed;
    };
    let mut outgoing = finished.send(&shared, shared.clock.now());
    // A workflow continues under its claim, because other steps of it may be running.
    let is_turn = |commit: &Commit| matches!(commit.outcome, Outcome::Workflow(_));
    if !outgoing.items.iter().any(is_turn) {
        outgoing
            .items
            .iter_mut()
            .for_each(|commit| commit.keep = false);
        outgoing.waiter.follows = None;
    }
    let (commits, sent) = (outgoing.items, outgoing.waiter);
    let op = Op::Commit {
        commits,
        serves: Vec::new(),
    };
    let committed = match within.finish(op).await {
        Ok(Answer::Committed(mut each)) => each.pop(),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, instance = %sent.task.id, "a step's own transaction was not committed; it runs again");
            landed.unsure = true;
            None
        }
    };
    landed
        .commits
        .push((committed.unwrap_or(Committed::Stale), sent));
    landed
}

/// Gives back claims that this worker holds but does not know of, because their answers were lost.
pub(super) async fn search(shared: Arc<Shared>, known: Vec<InstanceId>) -> Landed {
    let mut landed = Landed {
        searched: true,
        ..Landed::default()
    };
    let (mut bulk, mut backoff) = (Bulk::new(GIVE_BACK), Backoff::away());
    let give_back = |limit| Op::GiveBackExcept {
        worker: shared.worker(),
        known: known.clone(),
        limit,
    };
    loop {
        let ran = tokio::select! {
            () = shared.kill.cancelled() => Err(Error::Closed),
            ran = bulk.run(&shared.store, give_back) => ran,
        };
        match ran {
            Ok(Answer::Touched { more: true, .. }) => {}
            Ok(_) => return landed,
            Err(Error::Closed) => {
                landed.dead = true;
                return landed;
            }
            Err(error) if error.fault() == Fault::Entry => {
                tracing::error!(%error, "lost claims could not be looked for; they are free when this worker ends");
                return landed;
            }
            Err(error) => {
                tracing::warn!(%error, "lost claims cannot be looked for; trying again");
                backoff.pause().await;
            }
        }
    }
}
