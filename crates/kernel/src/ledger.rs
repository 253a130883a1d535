//! The rows of one operation: as loaded, as they will be written, and their history events.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    BarrierNumber, HistoryEvent, HistoryRow, InstanceId, Json, Key, Kind, Row, Scopes, Status,
    Timestamp, Waiter,
};
use abide_core::rules::folding;
use abide_core::rules::graph;
use abide_core::rules::keys::taking;

use crate::ops::keys::{self, Holders};
use crate::run::Turn;
use crate::{
    Advance, Changes, Effects, Error, Finish, GivenUp, Leased, Loads, Move, MovedHistory, Result,
    Txn, Wake, Write,
};

/// The maximum number of graph states in memory at once when their runs end.
const GRAPHS_AT_ONCE: usize = 64;

/// The rows of one operation, by id.
#[derive(Debug, Default)]
pub(crate) struct Ledger<'a>(BTreeMap<InstanceId, Box<Account<'a>>>);

/// One row, before and after its change.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    was: Row,
    /// The new row.
    pub row: Row,
    /// The new state.
    pub state: Option<&'a Json>,
    /// The result.
    pub result: Option<&'a Json>,
    /// The history events to write.
    pub history_events: Vec<HistoryEvent>,
    /// The waiters to open for it.
    pub opens: Option<Vec<Waiter>>,
    /// `true` if the change consists only of a received signal or a refused command.
    is_wake: bool,
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
            history_events: Vec::new(),
            opens: None,
            is_wake: false,
        };
        self.0.insert(account.was.id, Box::new(account));
    }

    /// Locks and loads those of these rows that no other transaction has locked.
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
        self.0.get_mut(&id).map(|account| &mut **account)
    }

    /// Returns the rows that take a key with their change, except these, ordered by due time.
    pub fn taking(&self, except: &BTreeSet<InstanceId>) -> Vec<InstanceId> {
        let accounts = self.0.values().filter(|account| account.takes_key());
        let mut taking: Vec<_> = accounts
            .map(|account| (account.row.due_at, account.row.id))
            .filter(|(_, id)| !except.contains(id))
            .collect();
        taking.sort_unstable();
        taking.into_iter().map(|(_, id)| id).collect()
    }

    /// Writes the changes, and collects effects and the partitions to settle. First settles rows that would take a key
    /// that another instance holds (rule 2.8).
    pub async fn write<T: Txn>(&mut self, turn: &mut Turn<'_, T>) -> Result<()> {
        self.write_granted(turn, Holders::default()).await
    }

    /// Does the same for rows some of which were granted keys already.
    pub async fn write_granted<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        holders: Holders,
    ) -> Result<()> {
        keys::settle(turn, self, holders).await?;
        let (mut history, mut moved) = (Vec::new(), Vec::new());
        for account in self.0.values_mut() {
            account.close(turn.now, &mut history, &mut moved)?;
        }
        // Rows that leave a key are written before rows that take it, because the databases check each row as it is
        // written.
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
        self.cancel_graph_steps(turn).await?;
        turn.txn.append(&history).await?;
        if !moved.is_empty() {
            turn.txn.write(Write::MoveHistory(&moved)).await?;
        }
        self.keep_waiters(turn.txn).await
    }
}

impl Ledger<'_> {
    /// rule 15.4: when a run of a graph fails or is cancelled, its state shows the unfinished steps as cancelled, even
    /// if its code did not run for that. No other row's state is read.
    async fn cancel_graph_steps<T: Txn>(&self, turn: &mut Turn<'_, T>) -> Result<()> {
        let ended = self.0.values().filter(|account| account.ends_graph());
        let ended: Vec<InstanceId> = ended.map(|account| account.row.id).collect();
        for ids in ended.chunks(GRAPHS_AT_ONCE) {
            let stored = turn.txn.copies(ids).await?.into_iter();
            let states = stored.filter_map(|(id, copy)| Some((id, graph::ended(&copy.state)?)));
            let states: Vec<(InstanceId, Json)> = states.collect();
            let moves = states.iter().filter_map(|(id, state)| {
                Some(Move {
                    row: &self.0.get(id)?.row,
                    state: Some(state),
                    result: None,
                })
            });
            let changes = Changes {
                moves: moves.collect(),
                ..Changes::default()
            };
            if !changes.is_empty() {
                turn.txn.update(&changes, turn.now).await?;
            }
        }
        Ok(())
    }

    /// rule 14.7: an instance that no longer waits leaves no waiter behind.
    async fn keep_waiters<T: Txn>(&mut self, txn: &mut T) -> Result<()> {
        let gone = self.0.values().filter(|account| {
            account.was.has_waiters() && (account.opens.is_some() || !account.row.has_waiters())
        });
        let gone: Vec<InstanceId> = gone.map(|account| account.row.id).collect();
        if !gone.is_empty() {
            txn.write(Write::CloseWaiters(&gone)).await?;
        }
        // A wait that ended in the commit that opened it, for example by the end of a child, opens no waiter.
        let waits = self
            .0
            .values_mut()
            .filter(|account| account.row.has_waiters());
        let opens = waits.filter_map(|account| account.opens.take());
        let opens: Vec<Waiter> = opens.flatten().collect();
        if !opens.is_empty() {
            txn.write(Write::OpenWaiters(&opens)).await?;
        }
        Ok(())
    }
}

impl Account<'_> {
    /// Returns the row as it was loaded.
    pub fn was(&self) -> &Row {
        &self.was
    }

    /// `true` if it holds a key that it did not hold before.
    pub fn takes_key(&self) -> bool {
        taking(&self.was, &self.row).any()
    }

    /// `true` if this change fails or cancels a run of a graph.
    fn ends_graph(&self) -> bool {
        matches!(self.row.status, Status::Failed | Status::Cancelled)
            && !self.was.status.is_terminal()
            && graph::graph_of(self.row.machine.as_str()).is_some()
    }

    /// Records that a newer run, already written, follows: it has taken over the keys and the place at the barrier.
    pub fn supersede(&mut self) {
        (self.was.scopes, self.row.scopes) = (Scopes::NONE, Scopes::NONE);
        self.row.parent_barrier = BarrierNumber::default();
    }

    /// Numbers and packs the history events as history rows: new rows, and rows that replace others (rule 16.1).
    fn close(
        &mut self,
        now: Timestamp,
        history: &mut Vec<HistoryRow>,
        moved: &mut Vec<MovedHistory>,
    ) -> Result<()> {
        let id = self.row.id;
        let events = std::mem::take(&mut self.history_events);
        for written in folding::write(&mut self.row, events, now) {
            let row = HistoryRow::pack(id, written.seq, now, &written.events).map_err(|error| {
                Error::Broken(format!(
                    "history of instance {id} cannot be written: {error}"
                ))
            })?;
            match written.replaces {
                Some(was) => moved.push(MovedHistory { was, row }),
                None => history.push(row),
            }
        }
        self.is_wake = self.state.is_none() && self.result.is_none() && self.is_only_woken();
        Ok(())
    }

    /// `true` if the rows differ only in what a received signal or a refused command changes. What they wait for is put
    /// aside for the comparison, because copying it is slow.
    fn is_only_woken(&mut self) -> bool {
        let (was, row) = (&mut self.was, &mut self.row);
        let counts = |row: &Row| (row.inbox.sequence, row.inbox.signals, row.inbox.commands);
        // A new wait is written whole.
        if counts(was) == counts(row) || was.awaits.is_some() != row.awaits.is_some() {
            return false;
        }
        let waits = (was.awaits.take(), row.awaits.take());
        let is_same = *row
            == Row {
                status: row.status,
                due_at: row.due_at,
                behind: row.behind,
                cause: row.cause,
                history_seq: row.history_seq,
                inbox: row.inbox,
                ..was.clone()
            };
        (was.awaits, row.awaits) = waits;
        is_same
    }

    fn note(&self, effects: &mut Effects, partitions: &mut Vec<Key>) {
        let (was, row) = (&self.was, &self.row);
        match row.status {
            // Also if it was runnable before: the row has changed, and a transaction that was about to claim the old
            // version skips it.
            Status::Runnable if !row.behind => {
                effects.ready.insert(row.queue.clone());
            }
            status if status.is_parked() => {
                effects.blocked |= row.is_blocked() && was.status == Status::Executing;
                if let Some(due_at) = row.due_at {
                    effects.due_at(due_at);
                }
            }
            status if status.is_terminal() && !was.status.is_terminal() => {
                effects.ended.push(row.id);
                effects.turnover.ended(row);
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
            effects.received.push(row.id);
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
            let with_lease = || Row {
                lease,
                ..row.clone()
            };
            if self.state.is_none() && *was == with_lease() {
                return;
            }
        }
        let executing = was.status == Status::Executing;
        let plain = |row: &Row| row.awaits.is_none() && !row.timed_out && row.last_error.is_none();
        // A child of an earlier barrier may end in the same commit, and that changes the family.
        let untouched = was.family == row.family
            && was.deaths == row.deaths
            && was.folding == row.folding
            && was.attended == row.attended
            && was.unfit == row.unfit
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
            None if executing && row.status.is_terminal() && untouched && row.awaits.is_none() => {
                changes.finishes.push(Finish {
                    row,
                    result: self.result,
                });
            }
            None if self.is_wake => changes.wakes.push(Wake { row }),
            state => changes.moves.push(Move {
                row,
                state,
                result: self.result,
            }),
        }
    }
}
