//! Claims what is runnable.

use abide_core::model::Claimed;

use crate::run::Turn;
use crate::{ClaimRequest, Result, Txn};

/// Claims what is runnable and hands those that join a barrier their children (rules 6.1, 10.2).
pub(crate) async fn claim<T: Txn>(turn: &mut Turn<'_, T>, request: &ClaimRequest) -> Result<Vec<Claimed>> {
    if request.limit == 0 || request.lanes.is_empty() {
        return Ok(Vec::new());
    }
    let mut claimed = turn.txn.claim(request, turn.now).await?;
    let barriers: Vec<_> = claimed.iter().filter_map(|one| Some((one.claim.id(), one.joins?))).collect();
    if !barriers.is_empty() {
        let mut children = turn.txn.children(&barriers).await?;
        for one in claimed.iter_mut().filter(|one| one.joins.is_some()) {
            let (own, rest) = children.into_iter().partition(|(parent, _)| *parent == one.claim.id());
            one.children = Vec::from_iter(own as Vec<_>).into_iter().map(|(_, child)| child).collect();
            children = rest;
        }
    }
    Ok(claimed)
}
