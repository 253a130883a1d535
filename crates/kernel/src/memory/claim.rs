//! Claims from the tables, and the sizes of children.

use abide_core::model::{
    BarrierNumber, Claim, Claimed, Epoch, InstanceId, Lane, Lease, Name, Priority, Status,
    Timestamp,
};

use super::pieces::MemoryTxn;
use crate::{ClaimRequest, ClaimRoom, Listed, Result, claimed_bytes};

impl MemoryTxn<'_> {
    /// Claims the first runnable instances, at most `most` bytes but at least one instance. Also returns `true` if
    /// instances were left because of the limit.
    pub fn claim_first(
        &mut self,
        request: &ClaimRequest,
        most: usize,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        let mut claimed = Vec::new();
        let mut room = ClaimRoom::new(most);
        let worker = self.tables.workers().get(&request.worker);
        let build = worker.map(|worker| worker.build().clone());
        while claimed.len() < request.limit
            && let Some((_, _, id)) = self.first_fit(&request.queue, &request.lanes, build.as_ref())
        {
            let mut one = self.copy(id)?;
            one.row.status = Status::Executing;
            one.row.worker = Some(request.worker);
            one.row.lease = request.lease.map(|lease| Lease::new(now, lease, None));
            one.row.epoch = Epoch(one.epoch.0 + 1);
            one.updated_at = now;
            let claim = Claim::granted(
                id,
                one.epoch,
                request.worker,
                one.partition_key.clone(),
                self.parent_of(&one),
            );
            let (key, state, policy) = (one.key.clone(), one.state.clone(), one.policy.clone());
            let held = Claimed::new(claim, &one, one.version, key, state, policy);
            if !room.take(claimed_bytes(&held)) {
                return Ok((claimed, true));
            }
            claimed.push(held);
            self.put(one)?;
        }
        Ok((claimed, false))
    }

    /// Returns the priority of the instance that would be claimed first.
    pub fn first_priority(&self, queue: &Name, lanes: &[Lane]) -> Option<Priority> {
        let first = self.first_position(queue, lanes);
        first.map(|(priority, _, _)| priority)
    }

    /// Returns the size in bytes of the children of each barrier.
    pub fn bytes_of_children(
        &self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Vec<(InstanceId, u64)> {
        let of = |(parent, barrier): &(InstanceId, BarrierNumber)| {
            let children = self.tables.children(*parent, *barrier);
            let bytes = children.map(|child| child.bytes() as u64);
            (*parent, bytes.sum())
        };
        barriers.iter().map(of).collect()
    }
}
