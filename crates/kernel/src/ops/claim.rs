//! Claims what is runnable.

use std::collections::BTreeMap;

use abide_core::model::{Child, Claimed, InstanceId};

use crate::run::Turn;
use crate::{ClaimRequest, Result, Txn};

/// Claims what is runnable and hands those that join a barrier their children (rules 6.1, 10.2).
pub(crate) async fn claim<T: Txn>(
    turn: &mut Turn<'_, T>,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>> {
    if request.limit == 0 || request.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let mut claimed = turn.txn.claim(request, turn.now).await?;
    let barriers: Vec<_> = claimed
        .iter()
        .filter_map(|one| Some((one.claim.id(), one.joins?)))
        .collect();
    if !barriers.is_empty() {
        let mut families: BTreeMap<InstanceId, Vec<Child>> = BTreeMap::new();
        for (parent, child) in turn.txn.children(&barriers).await? {
            families.entry(parent).or_default().push(child);
        }
        for one in &mut claimed {
            one.children = families.remove(&one.claim.id()).unwrap_or_default();
        }
    }
    Ok(claimed)
}
