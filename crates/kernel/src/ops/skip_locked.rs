//! Locks only rows that no other transaction has locked, so that a locked row does not delay the others (rule 6.8).

use std::collections::BTreeSet;

use abide_core::model::{InstanceId, Key};

use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Result, Touched, Txn};

/// Rows that were found without a lock, and could be locked without waiting.
#[derive(Default)]
pub(crate) struct Free<'a> {
    pub ledger: Ledger<'a>,
    /// The locked partitions.
    partitions: BTreeSet<Key>,
}

impl<'a> Free<'a> {
    /// Locks and loads those of these rows that are free.
    pub async fn load<T: Txn>(turn: &mut Turn<'_, T>, rows: &[Touched]) -> Result<Ledger<'a>> {
        let mut free = Self::default();
        let rows: Vec<Vec<Touched>> = rows.iter().map(|row| vec![row.clone()]).collect();
        free.lock(turn, &rows).await?;
        Ok(free.ledger)
    }

    /// Locks families of rows, partitions first, without waiting. Returns, for each family, `true` if all of it could
    /// be locked.
    pub async fn lock<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        families: &[Vec<Touched>],
    ) -> Result<Vec<bool>> {
        let members = || families.iter().flatten();
        let wanted: BTreeSet<&Key> = members()
            .filter_map(|one| one.partition.as_ref())
            .filter(|key| !self.partitions.contains(*key))
            .collect();
        if !wanted.is_empty() {
            let wanted: Vec<Key> = wanted.into_iter().cloned().collect();
            let free = turn.txn.lock_free_partitions(&wanted).await?;
            self.partitions.extend(free);
        }
        let in_free_partition = |one: &&Touched| {
            one.partition
                .as_ref()
                .is_none_or(|key| self.partitions.contains(key))
        };
        let ids: BTreeSet<InstanceId> = members()
            .filter(in_free_partition)
            .map(|one| one.id)
            .collect();
        let ids: Vec<InstanceId> = ids.into_iter().collect();
        self.ledger.add_free(turn.txn, &ids).await?;
        let is_free = |family: &Vec<Touched>| {
            let mut family = family.iter();
            family.all(|one| self.ledger.get(one.id).is_some())
        };
        Ok(families.iter().map(is_free).collect())
    }
}
