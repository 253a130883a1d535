//! The transactions of the hub, and what they came to.

use std::collections::HashSet;
use std::sync::Arc;

use abide::{Name, Store, Worker, WorkerId};
use abide_kernel::model::{Claim, Claimed, Lane};
use abide_kernel::{Answer, ClaimRequest, Error, NewWorker, Op, Result};

use super::group::{Look, Spot};
use super::roll;

/// What a transaction came to.
pub(super) enum Landed {
    /// Looks at groups.
    Looked(Vec<Sent>, Result<Looked>),
    /// Workers were made known.
    Enlisted(Vec<Name>, Result<Vec<Worker>>),
    /// Leases were renewed; whose were lost.
    Renewed(Result<Vec<WorkerId>>),
    /// Claims were given back, or not.
    Returned(Vec<Claim>),
}

/// A look at one group, and under what number each of its polls was made.
pub(super) struct Sent {
    pub spot: Spot,
    pub look: Look,
    pub ids: Vec<WorkerId>,
}

/// What looks have brought.
pub(super) struct Looked {
    pub lost: Vec<WorkerId>,
    /// Of each poll, in order.
    pub claimed: Vec<Vec<Claimed>>,
}

/// Whether the same request may succeed later; a claim whose answer got lost runs out.
pub(super) const fn may_pass(error: &Error) -> bool {
    error.is_passing() || matches!(error, Error::Unknown(_))
}

/// Claims for polls, first come first served, in one transaction. That their workers live is made sure of in the same.
pub(super) async fn look(
    store: Arc<dyn Store>,
    sent: Vec<Sent>,
    workflows: HashSet<Lane>,
) -> Landed {
    let mut ids: Vec<WorkerId> = sent
        .iter()
        .flat_map(|one| one.ids.iter().copied())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut ops = vec![Op::Renew {
        workers: ids,
        lease: roll::LEASE,
    }];
    for one in &sent {
        let lanes: Vec<Lane> = one
            .spot
            .lanes
            .iter()
            .filter(|lane| !workflows.contains(lane))
            .cloned()
            .collect();
        for (waiting, worker) in one.look.polls().iter().zip(&one.ids) {
            ops.push(Op::Claim(ClaimRequest {
                worker: *worker,
                queue: one.spot.queue.clone(),
                lanes: lanes.clone(),
                limit: waiting.poll.limit,
                lease: Some(waiting.poll.lease),
            }));
        }
    }
    let answers = match store.run(ops.into()).await {
        Ok(answers) => answers,
        Err(error) => return Landed::Looked(sent, Err(error)),
    };
    let mut looked = Looked {
        lost: Vec::new(),
        claimed: Vec::new(),
    };
    for answer in answers {
        match answer {
            Answer::Renewed { lost } => looked.lost = lost,
            Answer::Claimed(claimed) => looked.claimed.push(claimed),
            _ => return Landed::Looked(sent, Err(other())),
        }
    }
    Landed::Looked(sent, Ok(looked))
}

pub(super) async fn enlist(store: Arc<dyn Store>, strangers: Vec<NewWorker>) -> Landed {
    let names = strangers.iter().map(|worker| worker.name.clone()).collect();
    let ops: Vec<Op> = strangers.into_iter().map(Op::Enlist).collect();
    let answers = match store.run(ops.into()).await {
        Ok(answers) => answers,
        Err(error) => return Landed::Enlisted(names, Err(error)),
    };
    let worker = |answer| match answer {
        Answer::Registered(worker) => Ok(worker),
        _ => Err(other()),
    };
    Landed::Enlisted(names, answers.into_iter().map(worker).collect())
}

pub(super) async fn renew(store: Arc<dyn Store>, workers: Vec<WorkerId>) -> Landed {
    let renewal = Op::Renew {
        workers,
        lease: roll::LEASE,
    };
    let answers = store.run(Arc::from([renewal])).await;
    Landed::Renewed(answers.map(|answers| match answers.into_iter().next() {
        Some(Answer::Renewed { lost }) => lost,
        _ => Vec::new(),
    }))
}

/// Gives claims back; those that could not be.
pub(super) async fn give_back(store: Arc<dyn Store>, claims: Vec<Claim>) -> Landed {
    let copies = claims.iter().map(Claim::again).collect();
    match store.run(Arc::from([Op::GiveBack(claims)])).await {
        Ok(_) => Landed::Returned(Vec::new()),
        Err(error) if may_pass(&error) => Landed::Returned(copies),
        Err(error) => {
            tracing::error!(%error, "claims could not be given back; they run out");
            Landed::Returned(Vec::new())
        }
    }
}

fn other() -> Error {
    Error::Broken("a hub's request was answered with something else".into())
}
