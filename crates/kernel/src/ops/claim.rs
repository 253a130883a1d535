//! Claims runnable instances.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Claim, Claimed, Command, InstanceId, Lease, Name, WorkerId,
};
use abide_core::rules::deaths::{Case, MAX_DEATHS, SUSPECTED, give_up_suspects, is_suspected};
use abide_core::rules::handing::{go_first, handed, is_handed};

use super::commit::policies_of;
use super::skip_locked::Free;
use super::workers::policies_of_suspects;
use crate::run::Turn;
use crate::{Changes, ClaimRequest, ClaimRoom, Leased, Loads, Result, Txn, claimed_bytes};

/// The maximum number of steps that a worker holds and that may be suspected which a claim reads (rule 6.2).
const SUSPECTS_READ: usize = 500;

/// Claims runnable instances, and loads the input of each step: the children of the barrier that it joins, the signals
/// that it waited for, and the updates that come first (rules 6.1, 7.4, 9.4, 10.2).
pub(crate) async fn claim<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>> {
    if request.limit == 0 || request.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let mut claimed = claim_first(turn, request).await?;
    if let Some(lease) = request.lease
        && !claimed.is_empty()
    {
        keep_within(turn, &mut claimed).await?;
        keep_one_suspect(turn, &mut claimed, request.worker).await?;
        lease_out(turn, &claimed, request.worker, lease).await?;
    }
    bring_children(turn, &mut claimed).await?;
    bring_signals(turn, &mut claimed).await?;
    bring_updates(turn, &mut claimed).await?;
    Ok(claimed)
}

/// Claims the first instances. Under leases, and where it costs nothing extra, claims no more than fit in `claim_bytes`
/// (rule 16.4). If instances are left for that reason, notifies the queue, so that the next claim takes them.
async fn claim_first<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>> {
    // A single instance is claimed whatever its size.
    let is_bounded = request.limit != 1 && (request.lease.is_some() || T::CLAIMS_WITHIN);
    let most = is_bounded.then_some(turn.limits.claim_bytes);
    let (claimed, is_more) = turn.txn.claim(request, most, turn.now).await?;
    if is_more {
        turn.effects.ready.insert(request.queue.clone());
    }
    Ok(claimed)
}

/// Keeps the first claimed instances that fit in `claim_bytes` together with their children, at least one. Gives the
/// others back in the same transaction, for the next claim, before any child is read (rule 16.4).
async fn keep_within<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut Vec<Claimed>) -> Result<()> {
    let barriers = barriers(claimed);
    if claimed.len() == 1 || barriers.is_empty() {
        return Ok(());
    }
    let sizes = turn.txn.children_bytes(&barriers).await?;
    let sizes: BTreeMap<InstanceId, u64> = sizes.into_iter().collect();
    let mut room = ClaimRoom::new(turn.limits.claim_bytes);
    let fits = claimed.iter().take_while(|one| {
        let children = sizes.get(&one.claim.id()).copied().unwrap_or_default();
        let children = usize::try_from(children).unwrap_or(usize::MAX);
        room.take(claimed_bytes(one).saturating_add(children))
    });
    let fitting = fits.count();
    if fitting < claimed.len() {
        let rest = claimed.drain(fitting..).map(|one| one.claim);
        let rest: Vec<Claim> = rest.collect();
        super::workers::give_back(turn, &rest).await?;
    }
    Ok(())
}

/// Keeps at most one step that is suspected of killing its workers, and none if the worker already holds one. The
/// others are given back, and wait again (rule 5.6). An engine is one process, and does the same itself with its
/// claims.
async fn keep_one_suspect<T: Txn>(
    turn: &mut Turn<'_, T>,
    claimed: &mut Vec<Claimed>,
    worker: WorkerId,
) -> Result<()> {
    let may_be = claimed
        .iter()
        .filter(|one| is_suspected(one.deaths, MAX_DEATHS));
    let may_be: Vec<InstanceId> = may_be.map(|one| one.claim.id()).collect();
    if may_be.is_empty() {
        return Ok(());
    }
    let policies = policies_of(turn, &may_be).await?;
    let is_suspect = |one: &Claimed| {
        let case = Case::new(policies.get(&one.claim.id()), 0);
        is_suspected(one.deaths, case.most)
    };
    if !claimed.iter().any(is_suspect) {
        return Ok(());
    }
    let holds_one = holds_suspect(turn, worker, &may_be).await?;
    let surplus = give_up_suspects(claimed, holds_one, is_suspect).into_iter();
    let surplus: Vec<Claim> = surplus.map(|one| one.claim).collect();
    if !surplus.is_empty() {
        super::workers::give_back(turn, &surplus).await?;
    }
    Ok(())
}

/// `true` if a worker holds a step that is suspected of killing its workers, besides the ones just claimed. One that is
/// being committed is locked and does not count, because its step ends. Of what the worker holds, only steps in which
/// workers have died that often are read and locked, at most [`SUSPECTS_READ`]: a worker that holds more steps that may
/// be suspected, although the deaths of these are not limited, counts as holding a suspect.
async fn holds_suspect<T: Txn>(
    turn: &mut Turn<'_, T>,
    worker: WorkerId,
    claimed: &[InstanceId],
) -> Result<bool> {
    let limit = SUSPECTS_READ.saturating_add(claimed.len());
    let held = turn.txn.held(worker, InstanceId(0), SUSPECTED, limit);
    let mut held = held.await?;
    if held.len() >= limit {
        return Ok(true);
    }
    held.retain(|one| !claimed.contains(&one.id));
    if held.is_empty() {
        return Ok(false);
    }
    let ids: Vec<InstanceId> = held.iter().map(|one| one.id).collect();
    let mut ledger = Free::load(turn, &held).await?;
    let policies = policies_of_suspects(turn, &mut ledger, &ids).await?;
    Ok(ids.into_iter().any(|id| {
        let case = Case::new(policies.get(&id), 0);
        let account = ledger.get(id);
        account.is_some_and(|account| is_suspected(account.row.deaths, case.most))
    }))
}

/// Sets the time limits of instances that were claimed under leases, if they or their machine have any (rule 5.4). Also
/// extends the worker's lease to last at least as long as its claims, so that a dead worker holds only expired claims.
async fn lease_out<T: Txn>(
    turn: &mut Turn<'_, T>,
    claimed: &[Claimed],
    worker: WorkerId,
    lease: Duration,
) -> Result<()> {
    let machines: BTreeSet<&Name> = claimed.iter().map(|one| &one.machine).collect();
    let machines: Vec<Name> = machines.into_iter().cloned().collect();
    let declared = turn.txn.declared(&machines).await?;
    let mut limited = Vec::new();
    for one in claimed {
        let declared = declared
            .iter()
            .find(|it| it.machine == one.machine && it.version == one.version);
        let own = one.policy.as_ref().and_then(|own| own.step_timeout_ms);
        let limit = own.or(declared.and_then(|declared| declared.step_timeout_ms));
        let held = Lease::new(turn.now, lease, limit.map(Duration::from_millis));
        turn.effects.due_at(held.until);
        if held.limit.is_some() {
            limited.push(Leased {
                id: one.claim.id(),
                lease: Some(held),
            });
        }
    }
    if !limited.is_empty() {
        let changes = Changes {
            leases: limited,
            ..Changes::default()
        };
        turn.txn.update(&changes, turn.now).await?;
    }
    super::workers::renew(turn, &[worker], lease).await?;
    Ok(())
}

/// Returns the barriers that the claimed instances join.
fn barriers(claimed: &[Claimed]) -> Vec<(InstanceId, BarrierNumber)> {
    let joining = claimed.iter();
    joining
        .filter_map(|one| Some((one.claim.id(), handed(one).barrier?)))
        .collect()
}

async fn bring_children<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut [Claimed]) -> Result<()> {
    let barriers = barriers(claimed);
    if barriers.is_empty() {
        return Ok(());
    }
    let mut families: BTreeMap<InstanceId, Vec<Child>> = BTreeMap::new();
    for (parent, child) in turn.txn.children(&barriers).await? {
        families.entry(parent).or_default().push(child);
    }
    for one in claimed {
        one.children = families.remove(&one.claim.id()).unwrap_or_default();
    }
    Ok(())
}

async fn bring_signals<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut [Claimed]) -> Result<()> {
    let mut unread = Vec::new();
    for one in &mut *claimed {
        let id = one.claim.id();
        let Some((names, upto)) = handed(one).signals else {
            continue;
        };
        let delivered = turn.delivered.get(&id);
        // If all pending signals were delivered in this transaction, they need not be read.
        let whole = delivered.filter(|all| u64::from(one.inbox.signals) == all.len() as u64);
        let signals = whole.into_iter().flatten();
        let signals = signals.filter(|one| is_handed(names, upto, &one.name, one.sequence));
        let signals: Vec<Command> = signals.cloned().collect();
        match signals.is_empty() {
            true => unread.push((id, names.to_vec(), upto)),
            false => one.awaited = signals,
        }
    }
    if unread.is_empty() {
        return Ok(());
    }
    let mut inboxes = by_instance(turn.txn.awaited(&unread).await?);
    for one in claimed {
        if let Some(awaited) = inboxes.remove(&one.claim.id()) {
            one.awaited = awaited;
        }
    }
    Ok(())
}

async fn bring_updates<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut [Claimed]) -> Result<()> {
    let with_updates: Vec<InstanceId> = claimed
        .iter()
        .filter(|one| handed(one).updates)
        .map(|one| one.claim.id())
        .collect();
    if with_updates.is_empty() {
        return Ok(());
    }
    let mut inboxes = by_instance(turn.txn.updates(&with_updates).await?);
    for one in claimed {
        let woken_by = one.awaited.first().and_then(|first| first.sequence);
        let mut updates = inboxes.remove(&one.claim.id()).unwrap_or_default();
        updates.retain(|update| go_first(woken_by, update.sequence.unwrap_or_default()));
        one.updates = updates;
    }
    Ok(())
}

fn by_instance(commands: Vec<Command>) -> BTreeMap<InstanceId, Vec<Command>> {
    let mut inboxes: BTreeMap<InstanceId, Vec<Command>> = BTreeMap::new();
    for command in commands {
        if let Some(instance) = command.instance {
            inboxes.entry(instance).or_default().push(command);
        }
    }
    inboxes
}
