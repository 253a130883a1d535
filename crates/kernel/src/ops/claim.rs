//! Claims what is runnable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide_core::model::{
    Child, Claim, Claimed, Command, InstanceId, Lease, Name, Sequence, WorkerId,
};
use abide_core::rules::inbox::go_first;

use crate::run::Turn;
use crate::{Changes, ClaimRequest, Leased, Listed, Result, Txn};

/// Claims what is runnable, and hands over what each step runs on: the children of the barrier that it joins, the
/// signals that it waited for, the updates that go first (rules 6.1, 7.4, 9.4, 10.2).
pub(crate) async fn claim<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>> {
    if request.limit == 0 || request.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let mut claimed = turn.txn.claim(request, turn.now).await?;
    // An engine's claim may be the last statement of its transaction: nothing can be given back in it.
    let is_bounded = request.lease.is_some();
    if is_bounded {
        keep_within(turn, &mut claimed, bytes_to_bring).await?;
    }
    if let Some(lease) = request.lease
        && !claimed.is_empty()
    {
        lease_out(turn, &claimed, request.worker, lease).await?;
    }
    bring_children(turn, &mut claimed).await?;
    if is_bounded {
        let with_children = |one: &Claimed| {
            let children = one.children.iter().map(Listed::bytes);
            bytes_to_bring(one).saturating_add(children.sum())
        };
        keep_within(turn, &mut claimed, with_children).await?;
    }
    bring_signals(turn, &mut claimed).await?;
    bring_updates(turn, &mut claimed).await?;
    Ok(claimed)
}

/// The bytes of a claimed instance's state, and of the messages that may be brought with it.
fn bytes_to_bring(one: &Claimed) -> usize {
    let is_awaited = !one.awaits.is_empty() && one.inbox.signals > 0;
    let messages = match is_awaited || one.inbox.updates > 0 {
        true => usize::try_from(one.inbox.bytes).unwrap_or(usize::MAX),
        false => 0,
    };
    one.state.size().saturating_add(messages)
}

/// Keeps the first of what was claimed, as many as `claim_bytes` has room for and one at least; the rest is given back in
/// the same transaction, for the next claim (rule 16.4).
async fn keep_within<T: Txn>(
    turn: &mut Turn<'_, T>,
    claimed: &mut Vec<Claimed>,
    bytes: impl Fn(&Claimed) -> usize,
) -> Result<()> {
    let most = turn.limits.claim_bytes;
    let mut total = 0_usize;
    let fits = claimed.iter().take_while(|one| {
        total = total.saturating_add(bytes(one));
        total <= most
    });
    let fitting = fits.count().max(1);
    if fitting < claimed.len() {
        let rest = claimed.drain(fitting..).map(|one| one.claim);
        let rest: Vec<Claim> = rest.collect();
        super::workers::give_back(turn, &rest).await?;
    }
    Ok(())
}

/// Sets the time limits of what was claimed under leases, where its machines have declared any (rule 5.4), and sees to it
/// that the worker is believed in at least as long as what it holds: who is dead holds nothing that has not run out.
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
        let limit = declared.and_then(|declared| declared.step_timeout_ms);
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

async fn bring_children<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut [Claimed]) -> Result<()> {
    let barriers: Vec<_> = claimed
        .iter()
        .filter(|one| !one.aside)
        // A workflow has none: its operations look at their own children.
        .filter_map(|one| Some((one.claim.id(), one.joins.filter(|barrier| barrier.0 > 0)?)))
        .collect();
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
    for one in &mut *claimed {
        let delivered = turn.delivered.get(&one.claim.id());
        // When all that is pending came with this very transaction, it need not be read.
        if let Some(delivered) = delivered
            && !one.aside
            && u64::from(one.inbox.signals) == delivered.len() as u64
        {
            let handed = delivered.iter().filter(|signal| {
                one.awaits.contains(&signal.name)
                    && signal.sequence.is_some_and(|at| at <= one.inbox.handed)
            });
            one.awaited = handed.cloned().collect();
        }
    }
    let handed: Vec<_> = claimed
        .iter()
        .filter(|one| one.awaited.is_empty())
        .filter(|one| !one.aside && !one.awaits.is_empty())
        .filter(|one| one.inbox.signals > 0 && one.inbox.handed > Sequence::default())
        .map(|one| (one.claim.id(), one.awaits.clone(), one.inbox.handed))
        .collect();
    if handed.is_empty() {
        return Ok(());
    }
    let mut inboxes = by_instance(turn.txn.awaited(&handed).await?);
    for one in claimed {
        if let Some(awaited) = inboxes.remove(&one.claim.id()) {
            one.awaited = awaited;
        }
    }
    Ok(())
}

async fn bring_updates<T: Txn>(turn: &mut Turn<'_, T>, claimed: &mut [Claimed]) -> Result<()> {
    let asked: Vec<InstanceId> = claimed
        .iter()
        .filter(|one| one.inbox.updates > 0)
        .map(|one| one.claim.id())
        .collect();
    if asked.is_empty() {
        return Ok(());
    }
    let mut inboxes = by_instance(turn.txn.updates(&asked).await?);
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
