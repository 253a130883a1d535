//! The rows of one operation: as they were loaded, as they are to be, and what is to be told of them.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    BarrierNumber, Happening, HistoryRow, InstanceId, Json, Key, Kind, Row, Scopes, Status,
    Timestamp, Waiter,
};
use abide_core::rules::keys::taking;

use crate::ops::keys::{self, Holders};
use crate::run::Turn;
use crate::{Advance, Changes, Effects, Error, Finish, GivenUp, Leased, Move, Result, Txn, Wake};

/// The rows of one operation, by id.
#[derive(Debug, Default)]
pub(crate) struct Ledger<'a>(BTreeMap<InstanceId, Account<'a>>);

/// One row as it was and as it is to be.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    was: Row,
    /// The row as it is to be.
    pub row: Row,
    /// The new state.
    pub state: Option<&'a Json>,
    /// The result.
    pub result: Option<&'a Json>,
    /// What is to be told.
    pub told: Vec<Happening>,
    /// The waiters that stand for it from now on.
    pub opens: Option<Vec<Waiter>>,
}

impl<'a> Ledger<'a> {
    /// Locks and loads rows.
    pub async fn load<T: Txn>(txn: &mut T, mut ids: Vec<InstanceId>) -> Result<Self> {
        let mut ledger = Self::default();
        ids.sort_unstable();
        ids.dedup();
        ledger.add(txn, &ids).await?;
        Ok(ledger)
    }

    /// Locks and loads more rows.
    pub async fn add<T: Txn>(&mut self, txn: &mut T, ids: &[InstanceId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        for row in txn.lock(ids).await? {
            self.enter(row);
        }
        Ok(())
    }

    fn enter(&mut self, row: Row) {
        let account = Account {
            was: row.clone(),
            row,
            state: None,
            result: None,
            told: Vec::new(),
            opens: None,
        };
        self.0.insert(account.was.id, account);
    }

    /// Locks and loads those of these rows that nobody else has locked.
    pub async fn add_free<T: Txn>(&mut self, txn: &mut T, ids: &[InstanceId]) -> Result<()> {
        let new: Vec<InstanceId> = ids
            .iter()
            .copied()
            .filter(|id| !self.0.contains_key(id))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for row in txn.lock_free(&new).await? {
            self.enter(row);
        }
        Ok(())
    }

    pub fn get(&mut self, id: InstanceId) -> Option<&mut Account<'a>> {
        self.0.get_mut(&id)
    }

    /// Those that take a key with their change and are none of these: who was due first comes first.
    pub fn taking(&self, except: &BTreeSet<InstanceId>) -> Vec<InstanceId> {
        let accounts = self.0.values().filter(|account| account.takes_key());
        let mut taking: Vec<_> = accounts
            .map(|account| (account.row.due_at, account.row.id))
            .filter(|(_, id)| !except.contains(id))
            .collect();
        taking.sort_unstable();
        taking.into_iter().map(|(_, id)| id).collect()
    }

    /// Writes what has changed, and notes what there is to tell and which partitions have to be settled. Who would take
    /// a key that another holds is seen to before (rule 2.8).
    pub async fn write<T: Txn>(&mut self, turn: &mut Turn<'_, T>) -> Result<()> {
        self.write_granted(turn, Holders::default()).await
    }

    /// The same for rows some of which were granted keys already.
    pub async fn write_granted<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        holders: Holders,
    ) -> Result<()> {
        keys::settle(turn, self, holders).await?;
        let mut history = Vec::new();
        for account in self.0.values_mut() {
            history.extend(account.close(turn.now)?);
        }
        // Who leaves a key is written before who takes it: the databases look at each row as it is written.
        let (mut changes, mut takers) = (Changes::default(), Changes::default());
        for account in self.0.values() {
            account.note(&mut turn.effects, &mut turn.partitions);
            match account.takes_key() {
                true => account.sort_into(&mut takers),
                false => account.sort_into(&mut changes),
            }
        }
        turn.txn.update(&changes, turn.now).await?;
        if !takers.is_empty() {
            turn.txn.update(&takers, turn.now).await?;
        }
        turn.txn.append(&history).await?;
        self.keep_waiters(turn.txn).await
    }
}

impl Ledger<'_> {
    /// rule 14.7: who waits no more leaves no waiter behind.
    async fn keep_waiters<T: Txn>(&mut self, txn: &mut T) -> Result<()> {
        let gone = self.0.values().filter(|account| {
            account.was.has_waiters() && (account.opens.is_some() || !account.row.has_waiters())
        });
        let gone: Vec<InstanceId> = gone.map(|account| account.row.id).collect();
        if !gone.is_empty() {
            txn.close_waiters(&gone).await?;
        }
        // What has ended a wait in the commit that opened it, like the end of a child, leaves none.
        let waits = self
            .0
            .values_mut()
            .filter(|account| account.row.has_waiters());
        let opens = waits.filter_map(|account| account.opens.take());
        let opens: Vec<Waiter> = opens.flatten().collect();
        if !opens.is_empty() {
            txn.open_waiters(&opens).await?;
        }
        Ok(())
    }
}

impl Account<'_> {
    /// The row as it was loaded.
    pub fn was(&self) -> &Row {
        &self.was
    }

    /// Whether it holds a key that it did not hold before.
    pub fn takes_key(&self) -> bool {
        taking(&self.was, &self.row).any()
    }

    /// Notes that another run follows, which was written already: its keys and its place at the barrier are that one's.
    pub fn supersede(&mut self) {
        (self.was.scopes, self.row.scopes) = (Scopes::NONE, Scopes::NONE);
        self.row.parent_barrier = BarrierNumber::default();
    }

    /// Numbers and packs what is to be told.
    fn close(&mut self, now: Timestamp) -> Result<Option<HistoryRow>> {
        if self.told.is_empty() || !self.row.history {
            return Ok(None);
        }
        let first = self.row.history_seq + 1;
        let row = HistoryRow::pack(self.row.id, first, now, &self.told).map_err(|error| {
            Error::Broken(format!(
                "history of instance {} cannot be written: {error}",
                self.row.id
            ))
        })?;
        self.row.history_seq += u32::try_from(self.told.len()).unwrap_or(u32::MAX);
        Ok(Some(row))
    }

    fn note(&self, effects: &mut Effects, partitions: &mut Vec<Key>) {
        let (was, row) = (&self.was, &self.row);
        match row.status {
            // Also of one that was runnable before: its row is another now, and whoever was about to claim the old one
            // passes it over.
            Status::Runnable if !row.behind => {
                effects.ready.insert(row.queue.clone());
            }
            Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren => {
                if let Some(due_at) = row.due_at {
                    effects.due_at(due_at);
                }
            }
            status if status.is_terminal() && !was.status.is_terminal() => {
                effects.ended.push(row.id);
                if status == Status::Cancelled && was.status == Status::Executing {
                    effects.cancelled.push(row.id);
                }
            }
            _ => {}
        }
        if row.kind == Kind::Workflow
            && (was.status, row.status) == (Status::Executing, Status::Executing)
            && (was.inbox.sequence < row.inbox.sequence || was.family.ended < row.family.ended)
        {
            effects.mailed.push(row.id);
        }
        let contends = |status| matches!(status, Status::Runnable | Status::Executing);
        if (was.status != row.status || was.behind != row.behind)
            && (contends(was.status) || contends(row.status))
        {
            partitions.extend(row.partition_key.clone());
        }
    }

    fn sort_into<'b>(&'b self, changes: &mut Changes<'b>) {
        let (was, row) = (&self.was, &self.row);
        if was == row && self.state.is_none() {
            return;
        }
        if was.scopes != row.scopes {
            changes.given_up.push(GivenUp {
                id: row.id,
                scopes: was.scopes.without(row.scopes),
            });
        }
        if was.lease != row.lease {
            let (id, lease) = (row.id, row.lease);
            changes.leases.push(Leased { id, lease });
            let lease = was.lease;
            if *was
                == (Row {
                    lease,
                    ..row.clone()
                })
                && self.state.is_none()
            {
                return;
            }
        }
        let executing = was.status == Status::Executing;
        let plain = |row: &Row| row.awaits.is_none() && !row.timed_out && row.last_error.is_none();
        // A child of an earlier barrier may end in the same commit, which changes the family.
        let untouched = was.family == row.family
            && was.attended == row.attended
            && (was.lease == row.lease || row.status.is_terminal())
            && was.inbox == row.inbox
            && was.kind == row.kind
            && was.aside.is_none()
            && row.aside.is_none();
        let advances = executing && row.status == Status::Executing && untouched;
        match self.state {
            state if advances && plain(was) && plain(row) && was.kind == row.kind => {
                changes.advances.push(Advance { row, state });
            }
            None if executing && row.status.is_terminal() && untouched => {
                changes.finishes.push(Finish {
                    row,
                    result: self.result,
                });
            }
            None if self.result.is_none() && is_wake(was, row) => changes.wakes.push(Wake { row }),
            state => changes.moves.push(Move {
                row,
                state,
                result: self.result,
            }),
        }
    }
}

/// Whether a change is that of a row which a signal has come to, and nothing else.
fn is_wake(was: &Row, row: &Row) -> bool {
    let (inbox, woken) = (was.inbox, row.inbox);
    (inbox.sequence, inbox.signals) != (woken.sequence, woken.signals)
        && *row
            == Row {
                status: row.status,
                due_at: row.due_at,
                behind: row.behind,
                cause: row.cause,
                history_seq: row.history_seq,
                inbox: row.inbox,
                ..was.clone()
            }
}
