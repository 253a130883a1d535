//! One transaction of the dispatcher: outcomes to commit or mail to deliver, and claims to make.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Claim, Claimed, Commit, Committed, Inbox, InstanceId, Outcome, Then};
use abide_kernel::committer::{self, Bulk, Commits, Entry, Fault, Landing, Mail, Request, Waiter};
use abide_kernel::{Answer, Backoff, ClaimRequest, Error, Op};
use tokio::time::Instant;

use super::builder::Shared;
use super::{Follow, Ran, Task};

/// A step that has run: what it held, what it was, what it answers.
pub(super) struct Finished {
    pub claim: Claim,
    pub task: Arc<Task>,
    pub ran: Ran,
    pub took: Duration,
}

/// An outcome on its way into the database.
pub(super) type Outgoing = Entry<Commits, Sent>;

/// What a transaction is made of. Outcomes and mail are never in one: each locks rows in the order of their ids, and both
/// together would not.
#[derive(Default)]
pub(super) struct Batch {
    pub outcomes: Vec<Outgoing>,
    pub mail: Vec<Request<Mail>>,
    pub claims: Vec<Ask>,
}

/// A request for work, as the dispatcher makes it.
#[derive(Debug)]
pub(super) struct Ask {
    pub request: ClaimRequest,
    /// How often the queue had been woken by then.
    pub wakes: u64,
}

/// What became of a transaction.
#[derive(Default)]
pub(super) struct Landed {
    /// Of each outcome, in order.
    pub commits: Vec<(Committed, Sent)>,
    /// What was claimed, request by request.
    pub claims: Vec<(Ask, Vec<Claimed>)>,
    /// What failed.
    pub failed: Option<Failure>,
    /// Outcomes that are given up, since the engine stops.
    pub dropped: Vec<Sent>,
    /// Whether claims may have been made that nobody knows of.
    pub unsure: bool,
    /// Whether such claims were looked for, and given back.
    pub searched: bool,
    /// Whether it was looked at what runs here.
    pub looked: bool,
    /// What runs here and has ended.
    pub ended: Vec<InstanceId>,
    /// Whether the worker was told to die meanwhile, and the outcomes are lost to it.
    pub dead: bool,
}

/// A transaction that failed.
pub(super) struct Failure {
    pub outcomes: Vec<Outgoing>,
    pub mail: Vec<Request<Mail>>,
    pub claims: Vec<Ask>,
    pub error: Error,
}

/// What the dispatcher remembers of an outcome it has sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// The claim once more, for a step whose outcome is refused and which goes on holding it.
    pub claim: Claim,
    pub task: Arc<Task>,
    /// What follows, when the claim may be kept.
    pub follows: Option<Follow>,
    /// The error that the outcome answered for: then it was the error handler's.
    pub error: Option<String>,
    /// The reason, when the outcome was a stop.
    pub stopped: Option<String>,
    /// Whether it has a place in its queue.
    pub placed: bool,
    /// How soon a stop that was refused is sent again.
    pub stuck: Option<Backoff>,
}

impl Waiter for Sent {
    /// Outcomes are kept, however long the database is away.
    fn until(&self) -> Option<Instant> {
        None
    }
}

/// The rows given back in one transaction.
const GIVE_BACK: usize = 500;

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.mail.is_empty() && self.claims.is_empty()
    }

    /// Commits, or delivers and claims what that has woken in the same commit: one attempt.
    pub async fn land(self, shared: Arc<Shared>) -> Landed {
        let Self {
            outcomes,
            mail,
            claims,
        } = self;
        let asked = claims.iter().map(|ask| Op::Claim(ask.request.clone()));
        let asked = asked.collect();
        let store = shared.committer.store();
        if !mail.is_empty() {
            return match committer::land(store, &Mail, mail, asked).await {
                Landing::Done(answers, more) => {
                    for (caller, each) in answers {
                        caller.answer(Ok(each));
                    }
                    Landed::done(Vec::new(), claims, more)
                }
                Landing::Failed(mail, error) => Landed::failed(Failure {
                    outcomes,
                    mail,
                    claims,
                    error,
                }),
            };
        }
        let kind = shared.outcomes(&outcomes);
        match committer::land(store, &kind, outcomes, asked).await {
            Landing::Done(answers, more) => {
                let own =
                    |(sent, each): (Sent, Vec<Committed>)| Some((each.into_iter().next()?, sent));
                Landed::done(answers.into_iter().filter_map(own).collect(), claims, more)
            }
            Landing::Failed(outcomes, error) => Landed::failed(Failure {
                outcomes,
                mail,
                claims,
                error,
            }),
        }
    }
}

impl Landed {
    fn done(commits: Vec<(Committed, Sent)>, asks: Vec<Ask>, answers: Vec<Answer>) -> Self {
        let claimed = |(ask, answer)| match answer {
            Answer::Claimed(claimed) => (ask, claimed),
            _ => (ask, Vec::new()),
        };
        Self {
            commits,
            claims: asks.into_iter().zip(answers).map(claimed).collect(),
            ..Self::default()
        }
    }

    fn failed(failure: Failure) -> Self {
        // What was claimed though its answer got lost, or could not be read, is not known to anybody.
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
    /// What is committed along with these.
    fn outcomes(&self, outcomes: &[Outgoing]) -> Commits {
        let serves = match outcomes.iter().any(|one| one.waiter.follows.is_some()) {
            true => self.serves(),
            false => Vec::new(),
        };
        Commits { serves }
    }
}

impl Finished {
    /// The commit to send, and what to remember of it. The claim is kept while the chain of steps is short (rule 4.3).
    pub fn send(self, shared: &Shared) -> Outgoing {
        let Self {
            claim,
            task,
            ran,
            took,
        } = self;
        let settings = &shared.settings;
        let keep = !shared.stop.is_cancelled()
            && task.chain < settings.chain_steps
            && shared.clock.now().since(task.chain_since) <= settings.chain_time;
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
            placed: true,
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

/// Gives the claim up with the outcome, unless its steps still run; whether it does.
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

/// Commits an outcome in transactions of its own, until it is answered. One that is stuck is sent after that time, or never
/// when the engine stops before: it is worth no waiting then.
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

/// Commits an outcome in the transaction that its step wrote rows of its own in: both, or neither (rule 17.2). When that
/// cannot be, or nobody can tell whether it was, the claim is forgotten, and what is held without being known is given
/// back: then the step runs again, unless it was committed.
pub(super) async fn land_within(mut finished: Finished, shared: Arc<Shared>) -> Landed {
    let mut landed = Landed::default();
    let Some(within) = finished.ran.within.take() else {
        return landed;
    };
    let mut outgoing = finished.send(&shared);
    outgoing
        .items
        .iter_mut()
        .for_each(|commit| commit.keep = false);
    outgoing.waiter.follows = None;
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

/// Gives back what this worker holds without knowing: claims whose answer got lost.
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
