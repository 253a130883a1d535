//! The transactions of the hub, and their results.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use abide::InstanceId;
use abide::model::{Name, Worker, WorkerId};
use abide::store::Store;
use abide_kernel::model::{AT_ONCE, Claim, Claimed, Lane};
use abide_kernel::rules::leases;
use abide_kernel::{Answer, ClaimRequest, Error, NewWorker, Op, Result};

use super::Waiting;
use super::group::{Spot, WorkQuery};

/// Maximum number of builds that one transaction releases instances for.
const BUILDS_MAX: usize = 64;

/// The result of a transaction.
pub(super) enum Landed {
    /// Groups were queried.
    WorkFound(Vec<Sent>, Result<WorkFound>),
    /// Workers were enlisted.
    Enlisted(Vec<Name>, Result<Vec<Worker>>),
    /// Leases were renewed. Contains the workers whose leases were lost.
    Renewed(Result<Vec<WorkerId>>),
    /// Instances that were blocked by other builds were released.
    Released(Result<()>),
    /// Claims were given back. Contains those that must be tried again.
    Returned(Vec<Claim>),
}

/// A query for one group, and its polls, each with the number of its worker.
pub(super) struct Sent {
    pub spot: Spot,
    pub query: WorkQuery,
    pub polls: Vec<(Waiting, WorkerId)>,
}

/// The result of queries.
pub(super) struct WorkFound {
    pub lost: Vec<WorkerId>,
    /// The claims for each poll, in order.
    pub claimed: Vec<Vec<Claimed>>,
}

/// `true` if the same request may succeed later. If the answer to a claim was lost, that claim expires.
pub(super) const fn may_pass(error: &Error) -> bool {
    error.is_passing() || matches!(error, Error::Unknown(_))
}

/// Claims for polls, in the order of their arrival, in one transaction. The same transaction renews the leases of their
/// workers.
pub(super) async fn find_work(
    store: Arc<dyn Store>,
    sent: Vec<Sent>,
    workflows: HashSet<Lane>,
) -> Landed {
    let mut ids: Vec<WorkerId> = sent
        .iter()
        .flat_map(|one| one.polls.iter().map(|(_, id)| *id))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut ops = vec![Op::Renew {
        workers: ids,
        lease: leases::REMOTE,
    }];
    for one in &sent {
        let lanes: Vec<Lane> = one
            .spot
            .lanes
            .iter()
            .filter(|lane| !workflows.contains(lane))
            .cloned()
            .collect();
        for (waiting, worker) in &one.polls {
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
        Err(error) => return Landed::WorkFound(sent, Err(error)),
    };
    let mut found = WorkFound {
        lost: Vec::new(),
        claimed: Vec::new(),
    };
    for answer in answers {
        match answer {
            Answer::Renewed { lost } => found.lost = lost,
            Answer::Claimed(claimed) => found.claimed.push(claimed),
            _ => return Landed::WorkFound(sent, Err(Error::unexpected_answer())),
        }
    }
    Landed::WorkFound(sent, Ok(found))
}

/// Enlists workers, and releases blocked instances that they may have the code for. This includes instances that their
/// own builds could not run before, because more than the build may have changed.
pub(super) async fn enlist(store: Arc<dyn Store>, strangers: Vec<NewWorker>) -> Landed {
    let names = strangers.iter().map(|worker| worker.name.clone()).collect();
    let builds: Vec<(Name, Vec<Lane>)> = strangers
        .iter()
        .map(|worker| {
            let build = worker.build.as_ref().unwrap_or(&worker.name);
            (build.clone(), worker.lanes.clone())
        })
        .collect();
    let ops: Vec<Op> = strangers.into_iter().map(Op::Enlist).collect();
    let answers = match store.run(ops.into()).await {
        Ok(answers) => answers,
        Err(error) => return Landed::Enlisted(names, Err(error)),
    };
    if let Err(error) = release_all(&*store, builds, true).await {
        tracing::warn!(%error, "instances that are blocked stay so; repair them, or start their workers again");
    }
    let worker = |answer| match answer {
        Answer::Registered(worker) => Ok(worker),
        _ => Err(Error::unexpected_answer()),
    };
    Landed::Enlisted(names, answers.into_iter().map(worker).collect())
}

/// Releases instances that other builds could not run.
pub(super) async fn release(store: Arc<dyn Store>, builds: Vec<(Name, Vec<Lane>)>) -> Landed {
    Landed::Released(release_all(&*store, builds, false).await)
}

/// Releases blocked instances that these builds may be able to run. Almost always nothing is blocked; then it costs one
/// query, however many builds there are. (A worker without a build counts as a build of its own.)
async fn release_all(store: &dyn Store, builds: Vec<(Name, Vec<Lane>)>, fresh: bool) -> Result<()> {
    if !is_any_blocked(store, &builds).await? {
        return Ok(());
    }
    let mut left: Vec<(Name, Vec<Lane>, InstanceId)> = builds
        .into_iter()
        .map(|(build, lanes)| (build, lanes, InstanceId(0)))
        .collect();
    while !left.is_empty() {
        let some: Vec<_> = left.drain(..left.len().min(BUILDS_MAX)).collect();
        let ops = some.iter().map(|(build, lanes, after)| Op::ReleaseBlocked {
            build: Some(build.clone()),
            fresh,
            lanes: lanes.clone(),
            after: *after,
            limit: AT_ONCE,
        });
        let answers = store.run(ops.collect()).await?;
        for ((build, lanes, _), answer) in some.into_iter().zip(answers) {
            if let Answer::Released {
                next: Some(next), ..
            } = answer
            {
                left.push((build, lanes, next));
            }
        }
    }
    Ok(())
}

/// `true` if any instance is blocked that these builds have code for.
async fn is_any_blocked(store: &dyn Store, builds: &[(Name, Vec<Lane>)]) -> Result<bool> {
    let lanes: BTreeSet<&Lane> = builds.iter().flat_map(|(_, lanes)| lanes).collect();
    let ops = [
        Op::PassOver {
            instances: Vec::new(),
            name_only: true,
        },
        Op::ReleaseBlocked {
            build: None,
            fresh: false,
            lanes: lanes.into_iter().cloned().collect(),
            after: InstanceId(0),
            limit: 1,
        },
    ];
    let answers = store.run(Arc::from(ops)).await?;
    let named = |answer: &Answer| matches!(answer, Answer::Named(ids) if !ids.is_empty());
    Ok(answers.iter().any(named))
}

pub(super) async fn renew(store: Arc<dyn Store>, workers: Vec<WorkerId>) -> Landed {
    let renewal = Op::Renew {
        workers,
        lease: leases::REMOTE,
    };
    let answers = store.run(Arc::from([renewal])).await;
    Landed::Renewed(answers.map(|answers| match answers.into_iter().next() {
        Some(Answer::Renewed { lost }) => lost,
        _ => Vec::new(),
    }))
}

/// Gives claims back. Returns those that must be tried again.
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
