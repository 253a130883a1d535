//! Settles instances that would take a key that another instance holds (rule 2.8).

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    AnyKey, Closing, InstanceId, Limits, NewRow, Pending, Refusal, Row, Timestamp,
};
use abide_core::rules::children::Ended;
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::inbox::Closed;
use abide_core::rules::keys::{Concerns, Fate, fail, fate, give_up, held, held_on};

use super::commit::{close, notify_parents, pending_of};
use crate::ledger::{Account, Ledger};
use crate::run::Turn;
use crate::{Loads, Result, Txn};

/// The holders of keys, as far as an operation has loaded them and has granted keys since.
#[derive(Default)]
pub(crate) struct Holders {
    keys: BTreeMap<InstanceId, BTreeSet<AnyKey>>,
    held: BTreeMap<AnyKey, InstanceId>,
    /// The keys that rows of this batch leave, with their former holders.
    left: BTreeMap<AnyKey, InstanceId>,
    /// The keys that rows of this batch may hold from now on.
    granted: BTreeMap<InstanceId, Concerns>,
}

impl Holders {
    /// Loads the holders of the keys of these rows.
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

    /// Returns the keys that a row would hold but another instance holds, with that instance. The row must be loaded.
    pub fn in_the_way(&self, row: &Row) -> Vec<(AnyKey, InstanceId)> {
        self.of_others(&self.held, row)
    }

    /// Returns the same for the first row of the next run. That row is written before the rows of this batch, so a key
    /// that one of them leaves is still held.
    pub fn in_the_way_of_next(&self, row: &Row) -> Vec<(AnyKey, InstanceId)> {
        let mut others = self.in_the_way(row);
        others.extend(self.of_others(&self.left, row));
        others
    }

    /// Returns the keys that a row would hold and that another instance holds according to `held_by`.
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

    /// Grants a row all keys that its status lets it hold. None of them may be taken. The row must be loaded.
    pub fn grant(&mut self, row: &Row) {
        self.take(row);
        self.granted.insert(row.id, held(row));
    }

    /// Records that a row holds all keys that its status lets it hold. The row must be loaded.
    fn take(&mut self, row: &Row) {
        let keys = self.keys.get(&row.id).into_iter().flatten();
        let taken = keys.filter(|key| held(row).has(key));
        self.held.extend(taken.map(|key| (key.clone(), row.id)));
    }

    /// Records that a row has left the keys that its status does not let it hold. For a row that another run follows,
    /// the status of that run's first row counts.
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

    /// Returns the row of this batch that was granted a key that a new row would hold.
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

/// `true` if a row leaves a key in the same change in which another row takes it. A row that takes a key itself does
/// not count: it may still have to stay, and two rows that swap their keys could not be written one after the other.
fn leaves(ledger: &mut Ledger<'_>, holder: InstanceId, key: &AnyKey) -> bool {
    ledger
        .get(holder)
        .is_some_and(|account| !account.takes_key() && !held(&account.row).has(key))
}

/// Decides all rows of an operation that would take a key. Of two rows that would take the same key, the first in order
/// gets it, after rows that were granted it before. If a row fails, its parent is notified; the parent may wake and
/// take a key itself, and so on.
pub(crate) async fn settle<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    mut holders: Holders,
) -> Result<()> {
    let mut decided = BTreeSet::new();
    for (id, granted) in &holders.granted {
        // A row that differs from the prediction, such as a parent whose children all existed already, is decided
        // again.
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
                    // After it has failed it may hold its keys again, and is then decided again.
                    failing.push((id, refusal(key, *holder)));
                    continue;
                }
                _ => give_all_up(account, in_the_way),
            }
            holders.take(&account.row);
            decided.insert(id);
        }
        end_all(turn, ledger, failing, |row, taken, ending| {
            fail(row, taken, ending.pending, ending.limits, ending.now)
        })
        .await?;
    }
}

/// Returns the refusal for an instance whose key is taken.
pub(crate) fn refusal(key: &AnyKey, holder: InstanceId) -> Refusal {
    Refusal::KeyTaken {
        holder,
        key: Some(key.clone()),
    }
}

fn give_all_up(account: &mut Account<'_>, keys: Vec<(AnyKey, InstanceId)>) {
    for (key, holder) in keys {
        let event = give_up(&mut account.row, key, holder);
        // The end of a run is its last history event.
        let ended = account.row.status.is_terminal() && !account.history_events.is_empty();
        account
            .history_events
            .insert(account.history_events.len() - usize::from(ended), event);
    }
}

/// The data to end a row with, besides the reason.
pub(crate) struct Ending<'e> {
    /// All pending commands of its inbox.
    pub pending: &'e [Pending],
    /// The limits in force.
    pub limits: &'e Limits,
    /// The time.
    pub now: Timestamp,
}

/// Ends rows, each for its own reason: closes their inboxes, and notifies their parents.
pub(crate) async fn end_all<T: Txn, W>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    ending: Vec<(InstanceId, W)>,
    end: impl Fn(&mut Row, &W, Ending<'_>) -> Closed,
) -> Result<()> {
    if ending.is_empty() {
        return Ok(());
    }
    let ids = ending.iter().map(|(id, _)| *id);
    let needs = ids.filter(|id| {
        let inbox = ledger.get(*id).map(|account| account.row.inbox);
        inbox.is_some_and(|inbox| inbox.signals + inbox.updates > 0)
    });
    let needs: Vec<_> = needs.map(|id| (id, InboxNeeds::at_all())).collect();
    let pending = pending_of(turn, &needs).await?;
    let mut closings: Vec<Closing> = Vec::new();
    let mut ends: BTreeMap<InstanceId, Vec<Ended>> = BTreeMap::new();
    for (id, why) in ending {
        let Some(account) = ledger.get(id) else {
            continue;
        };
        let around = Ending {
            pending: pending.get(&id).map_or(&[][..], Vec::as_slice),
            limits: turn.limits,
            now: turn.now,
        };
        let closed = end(&mut account.row, &why, around);
        account.result = None;
        account.history_events.extend(closed.history_events);
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
    notify_parents(turn, ledger, ends).await
}
