//! One transaction of the dispatcher: outcomes to commit and claims to make, tried until the database has answered.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Claim, Claimed, Commit, Committed, Inbox, InstanceId, Outcome, Refusal, Then,
};
use abide_kernel::fold::{self, Folded, Mail, Request};
use abide_kernel::{Answer, ClaimRequest, Error, Op};

use super::builder::Shared;
use super::{Follow, Ran, Task};

/// A step that has run: what it held, what it was, what it answers.
pub(super) struct Finished {
    pub claim: Claim,
    pub task: Arc<Task>,
    pub ran: Ran,
    pub took: Duration,
}

/// What a transaction is made of. Outcomes and mail are never in one: each locks rows in the order of their ids, and both
/// together would not.
#[derive(Default)]
pub(super) struct Batch {
    pub finished: Vec<Finished>,
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
}

/// How long to wait before a database that cannot be reached is tried again: at first, and at most.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How often a transaction that conflicts is tried before its members are tried one by one, which then wait for the
/// others as for a database that is away.
const CONFLICTS_MAX: u32 = 8;
/// The rows given back in one transaction.
const GIVE_BACK: usize = 500;

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.mail.is_empty() && self.claims.is_empty()
    }

    /// Delivers, and claims what that has woken in the same commit. What cannot be done now is handed to the task that
    /// waits for the database.
    pub async fn post(self, shared: Arc<Shared>) -> Landed {
        let mut landed = Landed::default();
        let claims = self.claims.iter();
        let claims = claims.map(|ask| Op::Claim(ask.request.clone())).collect();
        let mail = fold::Batch::with(self.mail, claims);
        let nothing = |ask| (ask, Vec::new());
        let mut conflicts = 0;
        let error = loop {
            match shared.store.run(mail.ops()).await {
                Ok(answers) => {
                    let mut answers = answers.into_iter();
                    let delivered = answers.next().and_then(Mail::answers);
                    mail.answer(delivered.unwrap_or_default());
                    landed.claims = self.claims.into_iter().zip(answers).map(claimed).collect();
                    return landed;
                }
                Err(Error::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
                Err(error) => break error,
            }
        };
        landed.claims = self.claims.into_iter().map(nothing).collect();
        // What was claimed though its answer got lost is not known to anybody.
        landed.unsure = true;
        match error {
            Error::Unknown(_) | Error::Closed => mail.fail(&error),
            _ => {
                for request in mail.apart() {
                    // Nobody is left to tell when the task is gone.
                    let _ = shared.mail.fold(request);
                }
            }
        }
        landed
    }

    /// Commits it. What the database refuses as a whole is tried member by member; what it refuses even so is answered
    /// as refused. Goes on trying while the database is away: outcomes are kept, not lost.
    pub async fn land(self, shared: Arc<Shared>) -> Landed {
        let mut landed = Landed::default();
        let (commits, sent): (Vec<_>, Vec<_>) = self
            .finished
            .into_iter()
            .map(|one| one.send(&shared))
            .unzip();
        let mut ops = Vec::with_capacity(1 + self.claims.len());
        if !commits.is_empty() {
            ops.push(Op::Commit {
                commits,
                serves: shared.serves(),
            });
        }
        ops.extend(self.claims.iter().map(|ask| Op::Claim(ask.request.clone())));
        let ops: Arc<[Op]> = ops.into();

        let mut answers = match attempt(&shared, &ops, Of::Many, &mut landed.unsure).await {
            Ok(answers) => answers.into_iter(),
            Err(Trouble::Dead) => {
                landed.dead = true;
                return landed;
            }
            Err(Trouble::Refused(_)) => {
                // Nothing is claimed this time; the dispatcher will ask again.
                landed.claims = self
                    .claims
                    .into_iter()
                    .map(|ask| (ask, Vec::new()))
                    .collect();
                landed.unsure = true;
                if let Some(Op::Commit { commits, .. }) = ops.first() {
                    one_by_one(&shared, commits, sent, &mut landed).await;
                }
                return landed;
            }
        };
        if !sent.is_empty()
            && let Some(Answer::Committed(committed)) = answers.next()
        {
            landed.commits = committed.into_iter().zip(sent).collect();
        }
        landed.claims = self.claims.into_iter().zip(answers).map(claimed).collect();
        landed
    }
}

/// What a request for work has brought.
fn claimed((ask, answer): (Ask, Answer)) -> (Ask, Vec<Claimed>) {
    match answer {
        Answer::Claimed(claimed) => (ask, claimed),
        _ => (ask, Vec::new()),
    }
}

impl Finished {
    /// The commit to send, and what to remember of it. The claim is kept while the chain of steps is short (rule 4.3).
    fn send(self, shared: &Shared) -> (Commit, Sent) {
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
        let error = ran.error.clone();
        let again = claim.again();
        let commit = Commit {
            claim,
            outcome: ran.outcome,
            keep: follows.is_some(),
            took,
            error: ran.error,
        };
        (
            commit,
            Sent {
                claim: again,
                task,
                follows,
                error,
                stopped,
            },
        )
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
    let (mut commit, mut sent) = finished.send(&shared);
    (commit.keep, sent.follows) = (false, None);
    let op = Op::Commit {
        commits: vec![commit],
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
    let ops: Arc<[Op]> = Arc::from([Op::GiveBackExcept {
        worker: shared.worker(),
        known,
        limit: GIVE_BACK,
    }]);
    loop {
        match attempt(&shared, &ops, Of::One, &mut false).await {
            Ok(answers) if matches!(answers.first(), Some(Answer::Touched { more: true, .. })) => {}
            Ok(_) => return landed,
            Err(Trouble::Dead) => {
                landed.dead = true;
                return landed;
            }
            Err(Trouble::Refused(error)) => {
                tracing::error!(%error, "lost claims could not be looked for; their lease will free them");
                return landed;
            }
        }
    }
}

/// Why a transaction was given up.
enum Trouble {
    /// The database will not have it, however often it is asked.
    Refused(Error),
    /// The worker was told to die.
    Dead,
}

/// Whether a transaction can be taken apart when it conflicts again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    One,
    Many,
}

/// Runs a transaction until it is answered, through conflicts and while the database is away.
async fn attempt(
    shared: &Shared,
    ops: &Arc<[Op]>,
    of: Of,
    unsure: &mut bool,
) -> Result<Vec<Answer>, Trouble> {
    let mut conflicts = 0;
    let mut backoff = BACKOFF_FIRST;
    loop {
        if shared.kill.is_cancelled() {
            return Err(Trouble::Dead);
        }
        match shared.store.run(ops.clone()).await {
            Ok(answers) => return Ok(answers),
            Err(Error::Conflict(_)) if conflicts < CONFLICTS_MAX => conflicts += 1,
            Err(error @ Error::Conflict(_)) if of == Of::Many => {
                return Err(Trouble::Refused(error));
            }
            Err(error @ (Error::Conflict(_) | Error::Unavailable(_) | Error::Unknown(_))) => {
                tracing::warn!(%error, "outcomes are kept until the database is back");
                // What was committed though its answer got lost is told by its epoch when it is sent again. What was
                // claimed so is not known to anybody, and has to be looked for.
                *unsure |= matches!(error, Error::Unknown(_));
                tokio::select! {
                    () = shared.kill.cancelled() => return Err(Trouble::Dead),
                    () = tokio::time::sleep(backoff) => backoff = (backoff * 2).min(BACKOFF_MAX),
                }
            }
            Err(Error::Closed) => return Err(Trouble::Dead),
            Err(error) => return Err(Trouble::Refused(error)),
        }
    }
}

/// Commits the members of a refused transaction one by one, so that the one at fault hurts no other.
async fn one_by_one(shared: &Shared, commits: &[Commit], sent: Vec<Sent>, landed: &mut Landed) {
    for (commit, sent) in commits.iter().zip(sent) {
        let ops = Arc::from([Op::Commit {
            commits: vec![commit.again()],
            serves: shared.serves(),
        }]);
        let answer = match attempt(shared, &ops, Of::One, &mut landed.unsure).await {
            Ok(answers) => match answers.into_iter().next() {
                Some(Answer::Committed(mut committed)) => committed.pop(),
                _ => None,
            },
            Err(Trouble::Refused(error)) => {
                tracing::error!(%error, instance = %sent.task.id, "the database refuses an outcome");
                Some(Committed::Refused(Refusal::BadOutcome {
                    problem: error.to_string(),
                }))
            }
            Err(Trouble::Dead) => {
                landed.dead = true;
                return;
            }
        };
        landed.commits.extend(answer.map(|answer| (answer, sent)));
    }
}
