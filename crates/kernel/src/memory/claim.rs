//! Claims from the tables, and the sizes of children.

use abide_core::model::{
    BarrierNumber, Claimed, Epoch, InstanceId, Lane, Lease, Name, Priority, Status, Timestamp,
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
            let mut record = self.copy(id)?;
            record.row.status = Status::Executing;
            record.row.worker = Some(request.worker);
            record.row.lease = request.lease.map(|lease| Lease::new(now, lease, None));
            record.row.epoch = Epoch(record.row.epoch.0 + 1);
            record.updated_at = now;
            let parent = self.parent_of(&record.row);
            if let Some(one) = record.to_claimed(parent) {
                if !room.take(claimed_bytes(&one)) {
                    return Ok((claimed, true));
                }
                claimed.push(one);
            }
            self.put(record)?;
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
