//! The locks that a transaction holds, so that it never waits for a lock out of order.
//!
//! Locks are taken in one order everywhere: keys, then partitions, then instances by id. A transaction waits only for a
//! lock that comes after all locks that it holds, so no two transactions can wait for each other. A lock that is needed
//! too late (a parent that a claim did not name, a run that was continued, the second of two instances to cancel) is
//! taken only if no other transaction has it. Otherwise the transaction is rolled back and starts again: it first takes
//! all the locks that it had, and the one that it needed, in order.
//!
//! This is not possible in a host's transaction, which contains other work as well. There a late lock is waited for.

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key};
use abide_kernel::{Error, Result};

use crate::load;
use crate::param::Param;
use crate::txn::Transaction;
use crate::{find, partition};

/// Maximum number of times that a transaction starts again because of a late lock.
const TRIES_MAX: usize = 8;

/// The locks that a transaction holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Keys that were requested as shared, and keys that were requested exclusively.
    pub shared: BTreeSet<Key>,
    pub alone: BTreeSet<Key>,
    pub partitions: BTreeSet<Key>,
    pub rows: BTreeSet<InstanceId>,
    /// `true` if other rows are locked too: those that determine the front of a partition.
    pub fronts: bool,
    /// `true` if a lock was needed too late. It is listed here, but not held.
    missed: bool,
    /// Number of restarts.
    tries: usize,
}

impl Held {
    fn has_keys(&self) -> bool {
        !self.shared.is_empty() || !self.alone.is_empty()
    }

    fn has_rows(&self) -> bool {
        !self.rows.is_empty() || self.fronts
    }
}

/// Those of the instances that exist. Locks nothing.
///
/// Index: `instances_pkey`.
pub const PRESENT: &str = "\
select id from abide.instances where id = any((select $1::bigint[])::bigint[])";

impl Transaction<'_> {
    /// `true` if the transaction may wait for keys.
    pub fn is_before_keys(&self) -> bool {
        self.is_before_partitions() && (self.is_host() || !self.held.has_keys())
    }

    /// `true` if the transaction may wait for partitions.
    pub fn is_before_partitions(&self) -> bool {
        self.is_before_rows() && (self.is_host() || self.held.partitions.is_empty())
    }

    /// `true` if the transaction may wait for instances.
    pub fn is_before_rows(&self) -> bool {
        self.is_host() || !self.held.has_rows()
    }

    /// Records that a lock was needed too late and that another transaction has it; returns the error.
    pub fn missed(&mut self) -> Error {
        self.held.missed = true;
        Error::Conflict("the next row or key to lock is locked by another transaction".into())
    }

    /// Checks that all rows that were to be locked without waiting are locked; rows that do not exist are ignored.
    pub async fn check_locked(
        &mut self,
        wanted: &[InstanceId],
        locked: impl Iterator<Item = InstanceId>,
    ) -> Result<()> {
        let mut missing: BTreeSet<InstanceId> = wanted.iter().copied().collect();
        for id in locked {
            missing.remove(&id);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let params = vec![Param::list(missing.into_iter())];
        match self.read(PRESENT, params).await?.is_empty() {
            true => Ok(()),
            false => Err(self.missed()),
        }
    }

    /// Starts again if a lock was needed too late: rolls back, and takes all known locks, in order. Returns `false` if
    /// it did not start again; then the original error stands.
    pub async fn begin_again(&mut self) -> Result<bool> {
        if !self.held.missed || self.is_host() || self.held.tries >= TRIES_MAX {
            return Ok(false);
        }
        self.start_over().await?;
        let mut held = std::mem::take(&mut self.held);
        let (shared, alone): (Vec<Key>, Vec<Key>) = (
            held.shared.difference(&held.alone).cloned().collect(),
            held.alone.iter().cloned().collect(),
        );
        let partitions: Vec<Key> = held.partitions.iter().cloned().collect();
        let rows: Vec<InstanceId> = held.rows.iter().copied().collect();
        if held.has_keys() {
            find::lock_keys(self, &shared, &alone).await?;
        }
        if !partitions.is_empty() {
            partition::lock_partitions(self, &partitions).await?;
        }
        if !rows.is_empty() {
            self.write(load::LOCK.many, vec![Param::list(rows.into_iter())])?;
        }
        held.missed = false;
        held.fronts = false;
        held.tries += 1;
        self.held = held;
        Ok(true)
    }
}
