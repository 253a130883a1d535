//! What a transaction has locked, so that it never waits for a lock out of order.
//!
//! Locks are taken in one order everywhere: keys, then partitions, then instances by id. A transaction waits only for
//! what comes after all that it has locked already; then no two can wait for each other. What is met too late (a parent
//! that a claim did not name, a run that has gone on, the second of two instances to cancel) is locked if nobody else has
//! it. If somebody has, the transaction is rolled back and begins again, with all that it had locked and what it has
//! met now locked first, in order.
//!
//! In a host's transaction that cannot be done, for there is more in it than ours. There a late lock is waited for.

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key};
use abide_kernel::{Error, Result};

use crate::load;
use crate::param::Param;
use crate::txn::Transaction;
use crate::{find, partition};

/// How often a transaction begins again because of what it has met too late.
const TRIES_MAX: usize = 8;

/// What a transaction has locked.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Keys that it shares with others, and keys that it has alone.
    pub shared: BTreeSet<Key>,
    pub alone: BTreeSet<Key>,
    pub partitions: BTreeSet<Key>,
    pub rows: BTreeSet<InstanceId>,
    /// Whether rows are locked that are not named: those that decide who is at the front of a partition.
    pub fronts: bool,
    /// Whether something was met too late: it is named here, and is not locked.
    missed: bool,
    /// How often it has begun.
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

/// Which of these instances there are; not locked.
///
/// Index: `instances_pkey`.
pub const PRESENT: &str = "\
select id from abide.instances where id = any((select $1::bigint[])::bigint[])";

impl Transaction<'_> {
    /// Whether keys may be waited for.
    pub fn is_before_keys(&self) -> bool {
        self.is_before_partitions() && (self.is_host() || !self.held.has_keys())
    }

    /// Whether partitions may be waited for.
    pub fn is_before_partitions(&self) -> bool {
        self.is_before_rows() && (self.is_host() || self.held.partitions.is_empty())
    }

    /// Whether instances may be waited for.
    pub fn is_before_rows(&self) -> bool {
        self.is_host() || !self.held.has_rows()
    }

    /// What the caller is told who has met something too late that somebody else has locked.
    pub fn missed(&mut self) -> Error {
        self.held.missed = true;
        Error::Conflict("what has to be locked next is locked by another transaction".into())
    }

    /// Whether all of these, which were to be locked without waiting, are; those that are not there need not be.
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

    /// Begins again when something was met too late: rolls back, and locks all that is known to be needed, in order.
    /// Whether it did; when not, the error that it met stands.
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
            self.write(load::LOCK, vec![Param::list(rows.into_iter())])?;
        }
        held.missed = false;
        held.fronts = false;
        held.tries += 1;
        self.held = held;
        Ok(true)
    }
}
