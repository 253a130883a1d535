//! One transaction of the dispatcher: outcomes to commit or commands to deliver, and claims to make. And what can
//! happen to it.

use std::sync::Arc;

use abide_core::model::{Claimed, Committed, InstanceId};
use abide_kernel::committer::{self, Commits, Deliveries, Landing, Request};
use abide_kernel::{Answer, Begun, ClaimRequest, Error, Op};

use super::super::builder::Shared;
use super::steps::{Outgoing, Sent};

/// The content of a transaction.
#[derive(Default)]
pub(super) struct Batch {
    pub entries: Entries,
    pub claims: Vec<Ask>,
}

/// The entries of a transaction. Outcomes and commands never share one: each kind locks rows in the order of their ids,
/// and both together would not.
pub(super) enum Entries {
    Outcomes(Vec<Outgoing>),
    Commands(Vec<Request<Deliveries>>),
}

/// A request of the dispatcher for work.
#[derive(Debug)]
pub(super) struct Ask {
    pub request: ClaimRequest,
    pub begun: Begun,
}

/// The number of entries and claims in a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub entries: usize,
    pub claims: usize,
}

/// What has happened to a transaction, or to other work of the dispatcher in the database.
pub(super) enum Landed {
    /// It was committed: the answer to each outcome, in order, and the instances that each request claimed. Commands
    /// are answered already.
    Done {
        commits: Vec<(Committed, Sent)>,
        claims: Vec<(Ask, Vec<Claimed>)>,
    },
    /// It failed.
    Failed(Failure),
    /// The own transaction of a step was not committed, or its result is unknown.
    Lost(Sent),
    /// A refused stop is given up, because the engine stops.
    Dropped(Sent),
    /// Claims that this worker did not know of were searched for and given back.
    Searched,
    /// The instances held here were checked: these have ended.
    Checked(Vec<InstanceId>),
    /// Claims were given back. The instance that had to wait for that can run now.
    GivenBack(Option<Claimed>),
    /// The worker was killed or the store was closed. The outcome is lost to this worker.
    Dead,
}

/// A transaction that failed.
pub(super) struct Failure {
    pub entries: Entries,
    pub claims: Vec<Ask>,
    pub error: Error,
}

impl Batch {
    pub const fn size(&self) -> Size {
        Size {
            entries: self.entries.len(),
            claims: self.claims.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.claims.is_empty()
    }

    /// Makes one attempt: commits or delivers, and claims in the same transaction.
    pub async fn land(self, shared: Arc<Shared>) -> Landed {
        let Self { entries, claims } = self;
        let claim_ops = claims.iter().map(|ask| Op::Claim(ask.request.clone()));
        let claim_ops = claim_ops.collect();
        let store = shared.committer.store();
        match entries {
            Entries::Outcomes(outcomes) => {
                let kind = shared.outcomes(&outcomes);
                match committer::land(store, &kind, outcomes, claim_ops).await {
                    Landing::Done(answers, more) => {
                        let commits = answers.firsts().map(|(sent, committed)| (committed, sent));
                        Landed::done(commits.collect(), claims, more)
                    }
                    Landing::Failed(outcomes, error) => {
                        Landed::failed(Entries::Outcomes(outcomes), claims, error)
                    }
                }
            }
            Entries::Commands(commands) => {
                match committer::land(store, &Deliveries, commands, claim_ops).await {
                    Landing::Done(answers, more) => {
                        for (caller, each) in answers.by_entry() {
                            caller.answer(Ok(each));
                        }
                        Landed::done(Vec::new(), claims, more)
                    }
                    Landing::Failed(commands, error) => {
                        Landed::failed(Entries::Commands(commands), claims, error)
                    }
                }
            }
        }
    }
}

impl Entries {
    pub const fn len(&self) -> usize {
        match self {
            Self::Outcomes(outcomes) => outcomes.len(),
            Self::Commands(commands) => commands.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the outcomes.
    pub const fn outcomes(&self) -> &[Outgoing] {
        match self {
            Self::Outcomes(outcomes) => outcomes.as_slice(),
            Self::Commands(_) => &[],
        }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self::Outcomes(Vec::new())
    }
}

impl Landed {
    fn done(commits: Vec<(Committed, Sent)>, requests: Vec<Ask>, answers: Vec<Answer>) -> Self {
        let claimed = |(ask, answer)| match answer {
            Answer::Claimed(claimed) => (ask, claimed),
            _ => (ask, Vec::new()),
        };
        Self::Done {
            commits,
            claims: requests.into_iter().zip(answers).map(claimed).collect(),
        }
    }

    const fn failed(entries: Entries, claims: Vec<Ask>, error: Error) -> Self {
        Self::Failed(Failure {
            entries,
            claims,
            error,
        })
    }
}

impl Failure {
    /// `true` if claims may have been made. This worker does not know of them, because their answer was lost or
    /// unreadable.
    pub fn may_have_claimed(&self) -> bool {
        let nothing = matches!(self.error, Error::Conflict(_) | Error::Unavailable(_));
        !nothing && !self.claims.is_empty()
    }
}

impl Shared {
    /// The kind of batch for these outcomes. If claims may be kept, it names what this worker serves.
    pub(super) fn outcomes(&self, outcomes: &[Outgoing]) -> Commits {
        let serves = match outcomes.iter().any(|one| one.waiter.follows.is_some()) {
            true => self.serves(),
            false => Vec::new(),
        };
        Commits { serves }
    }
}
