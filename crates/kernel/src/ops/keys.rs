//! Sees to instances that would take a key which another holds (rule 2.8).

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{AnyKey, Closing, InstanceId, NewRow, Refusal, Row};
use abide_core::rules::children::Ended;
use abide_core::rules::commit::Look;
use abide_core::rules::keys::{Concerns, Fate, fail, fate, give_up, held, held_on};

use super::commit::{close, pending_of, tell_parents};
use crate::ledger::{Account, Ledger};
use crate::run::Turn;
use crate::{Result, Txn};

/// Who holds which keys, as far as an operation has asked, and as far as it has decided over them since.
#[derive(Default)]
pub(crate) struct Holders {
    keys: BTreeMap<InstanceId, BTreeSet<AnyKey>>,
    held: BTreeMap<AnyKey, InstanceId>,
    /// The keys that rows of this batch leave, with who held them.
    left: BTreeMap<AnyKey, InstanceId>,
    /// What rows of this batch may hold from now on.
    granted: BTreeMap<InstanceId, Concerns>,
}

impl Holders {
    /// Asks who holds the keys of these rows.
    pub async fn load<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        ledger: &mut Ledger<'_>,
        ids: &[InstanceId],
    ) -> Result<()> {
        for found in turn.txn.holders(ids).await? {
            let holder = found
                .holder
                .filter(|holder| !leaves(ledger, *holder, &found.key));
            if let Some(holder) = holder {
                self.held.entry(found.key.clone()).or_insert(holder);
            }
            self.keys.entry(found.of).or_default().insert(found.key);
        }
        Ok(())
    }

    /// The keys that a row would hold and another does, with that one. The row was asked for.
    pub fn in_the_way(&self, row: &Row) -> Vec<(AnyKey, InstanceId)> {
        self.of_others(&self.held, row)
    }

    /// The same for the first row of a run that follows: it is written before the rows of this batch are, and finds a key
    /// still held that one of them leaves.
    pub fn in_the_way_of_next(&self, row: &Row) -> Vec<(AnyKey, InstanceId)> {
        let mut others = self.in_the_way(row);
        others.extend(self.of_others(&self.left, row));
        others
    }

    /// Those of the keys that a row would hold which are another's here.
    fn of_others(
        &self,
        held_by: &BTreeMap<AnyKey, InstanceId>,
        row: &Row,
    ) -> Vec<(AnyKey, InstanceId)> {
        let keys = self.keys.get(&row.id).into_iter().flatten();
        let others = keys.filter(|key| held(row).has(key)).filter_map(|key| {
            let holder = held_by.get(key).filter(|holder| **holder != row.id)?;
            Some((key.clone(), *holder))
        });
        others.collect()
    }

    /// Grants a row all the keys that its status lets it hold: none is in the way. The row was asked for.
    pub fn grant(&mut self, row: &Row) {
        self.take(row);
        self.granted.insert(row.id, held(row));
    }

    /// Notes that a row holds all the keys that its status lets it hold. The row was asked for.
    fn take(&mut self, row: &Row) {
        let keys = self.keys.get(&row.id).into_iter().flatten();
        let taken = keys.filter(|key| held(row).has(key));
        self.held.extend(taken.map(|key| (key.clone(), row.id)));
    }

    /// Notes that a row has left the keys that its status does not let it hold; of one that another run follows, that of
    /// the first row of that run.
    pub fn leave(&mut self, row: &Row) {
        if self.held.is_empty() {
            return;
        }
        let held = held_on(row);
        let (left, kept): (BTreeMap<_, _>, _) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(key, holder)| *holder == row.id && !held.has(key));
        self.held = kept;
        self.left.extend(left);
    }

    /// The row of this batch that was granted a key which a new row would hold.
    pub fn granted_instead_of(&self, new: &NewRow) -> Option<InstanceId> {
        if self.granted.is_empty() {
            return None;
        }
        let scopes = new.scopes();
        let key = new.key.clone().map(AnyKey::Key);
        let unique_key = new.unique_key.clone().map(AnyKey::UniqueKey);
        let wanted = [
            key.filter(|_| scopes.key.holds(new.status)),
            unique_key.filter(|_| scopes.unique_key.holds(new.status)),
        ];
        let mut holders = wanted.iter().flatten().map(|key| self.held.get(key));
        let granted = |holder: &&InstanceId| self.granted.contains_key(holder);
        holders.find_map(|holder| holder.filter(granted).copied())
    }
}

/// Whether a row leaves a key in the very change that another takes it. One that takes a key itself is not counted upon:
/// it may yet have to stay, and two that swap their keys could not be written one after the other.
fn leaves(ledger: &mut Ledger<'_>, holder: InstanceId, key: &AnyKey) -> bool {
    ledger
        .get(holder)
        .is_some_and(|account| !account.takes_key() && !held(&account.row).has(key))
}

/// Decides over all rows of an operation that would take a key: of two that would take the same, the first in order has
/// it, after those that were granted it before. What fails is told to its parent, which may take a key itself when it
/// wakes; and so on.
pub(crate) async fn settle<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    mut holders: Holders,
) -> Result<()> {
    let mut decided = BTreeSet::new();
    for (id, granted) in &holders.granted {
        // One that stands otherwise than was foreseen, like a parent whose children were all there, is decided over anew.
        let as_granted = |account: &mut Account<'_>| held(&account.row) == *granted;
        if ledger.get(*id).is_some_and(as_granted) {
            decided.insert(*id);
        }
    }
    loop {
        let taking = ledger.taking(&decided);
        if taking.is_empty() {
            return Ok(());
        }
        holders.load(turn, ledger, &taking).await?;
        let mut failing = Vec::new();
        for id in taking {
            let Some(account) = ledger.get(id) else {
                continue;
            };
            let in_the_way = holders.in_the_way(&account.row);
            match in_the_way.first() {
                Some((key, holder)) if fate(account.was(), &account.row) == Fate::Fails => {
                    // It may come under its keys once more when it has failed, and is then decided over again.
                    failing.push((id, refusal(key, *holder)));
                    continue;
                }
                _ => give_all_up(account, in_the_way),
            }
            holders.take(&account.row);
            decided.insert(id);
        }
        fail_all(turn, ledger, failing).await?;
    }
}

/// What an instance is told whose key is taken.
pub(crate) fn refusal(key: &AnyKey, holder: InstanceId) -> Refusal {
    Refusal::KeyTaken {
        holder,
        key: Some(key.clone()),
    }
}

fn give_all_up(account: &mut Account<'_>, keys: Vec<(AnyKey, InstanceId)>) {
    for (key, holder) in keys {
        let told = give_up(&mut account.row, key, holder);
        // The end of a run is told last.
        let ended = account.row.status.is_terminal() && !account.told.is_empty();
        account
            .told
            .insert(account.told.len() - usize::from(ended), told);
    }
}

/// Ends rows: their inboxes are closed, and their parents told.
async fn fail_all<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    failing: Vec<(InstanceId, Refusal)>,
) -> Result<()> {
    let ids = failing.iter().map(|(id, _)| *id);
    let looks = ids.filter(|id| {
        let inbox = ledger.get(*id).map(|account| account.row.inbox);
        inbox.is_some_and(|inbox| inbox.signals + inbox.updates > 0)
    });
    let looks: Vec<_> = looks.map(|id| (id, Look::at_all())).collect();
    let pending = pending_of(turn, &looks).await?;
    let mut closings: Vec<Closing> = Vec::new();
    let mut ends: BTreeMap<InstanceId, Vec<Ended>> = BTreeMap::new();
    for (id, taken) in failing {
        let Some(account) = ledger.get(id) else {
            continue;
        };
        let left = pending.get(&id).map_or(&[][..], Vec::as_slice);
        let closed = fail(&mut account.row, &taken, left, turn.limits, turn.now);
        account.result = None;
        account.told.extend(closed.told);
        closings.extend(closed.closings);
        if let Some(parent) = account.row.parent {
            ends.entry(parent).or_default().push(Ended {
                child: id,
                barrier: account.row.parent_barrier,
                status: account.row.status,
            });
        }
    }
    close(turn, &closings).await?;
    tell_parents(turn, ledger, ends).await
}
