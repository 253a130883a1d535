//! A kernel transaction on a connection: every call runs one or a few statements, and is complete when it returns.

use abide_core::model::{
    BarrierNumber, Claimed, CommandId, EventSequence, HistoryRow, InstanceId, Name, NewRow,
    OutboxId, RequestId, Row, Scopes, Started, Status, Timestamp, Worker, WorkerId,
};
use abide_kernel::{
    Advance, Changes, ClaimRequest, Forget, Load, NewEvent, NewWorker, PathId, Recall, Result, Txn,
    Write,
};
use rusqlite::Connection;
use send_wrapper::SendWrapper;

use crate::cache::Cache;
use crate::error::classed;
use crate::sql::{
    around, children, claim, commands, contracts, documents, events, inbox, insert, keys, load,
    lookback, machines, outbox, partitions, requests, runs, sweep, update, waiters, workers,
};

/// A transaction that the caller has begun and will commit.
///
/// SQLite has one writer at a time, from `begin immediate` to the end, so a row that was read is locked.
pub(crate) struct Session<'s> {
    /// It never leaves its thread: the kernel's future is run to completion where it was created.
    conn: SendWrapper<&'s Connection>,
    cache: &'s mut Cache,
}

impl<'s> Session<'s> {
    pub fn new(conn: &'s Connection, cache: &'s mut Cache) -> Self {
        let conn = SendWrapper::new(conn);
        Self { conn, cache }
    }

    /// Loads rows, from the cache if they are in it.
    fn rows(&mut self, ids: &[InstanceId]) -> rusqlite::Result<Vec<Row>> {
        let mut loader = load::Loader::new(&self.conn);
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            let loaded = match self.cache.take(*id) {
                Some(row) => Some(row),
                None => loader.load(*id)?,
            };
            rows.extend(loaded);
        }
        Ok(rows)
    }

    /// Removes rows from the cache that are written without having been loaded first.
    fn forget_rows(&mut self, ids: &[InstanceId]) {
        for id in ids {
            self.cache.take(*id);
        }
    }

    fn change(&mut self, changes: &Changes<'_>, now: Timestamp) -> rusqlite::Result<()> {
        let Changes {
            given_up,
            advances,
            finishes,
            wakes,
            moves,
            leases,
        } = changes;
        // Rows whose change may affect a partition or a key; the other rows are not in those indexes.
        let guarded = |row: &Row| row.partition_key.is_some() || row.scopes != Scopes::NONE;
        if !given_up.is_empty() {
            keys::give_up(&self.conn, given_up)?;
        }
        if !advances.is_empty() {
            update::advance(&self.conn, advances, now)?;
        }
        if !finishes.is_empty() {
            update::finish(&self.conn, finishes, now, guarded)?;
        }
        if !wakes.is_empty() {
            update::wake(&self.conn, wakes, now, guarded)?;
        }
        if !moves.is_empty() {
            update::move_all(&self.conn, moves, now, guarded)?;
        }
        if !leases.is_empty() {
            update::lease(&self.conn, leases, now)?;
        }
        for Advance { row, .. } in advances {
            self.cache.keep((*row).clone());
        }
        for leased in leases {
            self.cache.take(leased.id);
        }
        Ok(())
    }

    fn read(&mut self, what: Load<'_>) -> rusqlite::Result<()> {
        let conn = *self.conn;
        match what {
            Load::Find(targets, found) => *found = runs::find(conn, targets)?,
            Load::Newest(chains, found) => *found = runs::newest(conn, chains)?,
            Load::Declared(machines, found) => *found = machines::declared(conn, machines)?,
            Load::Policies(ids, found) => *found = machines::policies(conn, ids)?,
            Load::Kin(ids, found) => *found = sweep::kin(conn, ids)?,
            Load::Copies(ids, found) => *found = runs::copies(conn, ids)?,
            Load::Holders(ids, found) => *found = keys::holders(conn, ids)?,
            Load::Reserved(ids, found) => {
                let rows = self.rows(ids)?.into_iter();
                let reserved = rows.filter(|row| row.status == Status::Reserved);
                *found = reserved.map(|row| row.id).collect();
            }
            Load::LiveChildren(parents, found) => *found = runs::live_children(conn, parents)?,
            Load::Above(after, limit, found) => *found = load::above(conn, after, limit)?,
            Load::Around(ids, found) => *found = around::around(conn, ids)?,
            Load::Children(barriers, found) => *found = children::of_all(conn, barriers)?,
            Load::ChildrenBytes(barriers, found) => {
                *found = children::bytes_of_all(conn, barriers)?
            }
            Load::Partitions(keys, found) => *found = partitions::partitions(conn, keys)?,
            Load::Waiting(queue, lanes, found) => *found = claim::waiting(conn, queue, lanes)?,
            Load::Due(now, skip, limit, found) => *found = load::due(conn, now, skip, limit)?,
            Load::DueAfter(now, found) => *found = load::due_after(conn, now)?,
            Load::Lapsed(now, skip, limit, found) => *found = load::lapsed(conn, now, skip, limit)?,
            Load::Blocked(lanes, unless, after, limit, found) => {
                *found = load::blocked(conn, lanes, unless, after, limit)?
            }
            Load::Held(worker, after, deaths, limit, found) => {
                *found = load::held(conn, worker, after, deaths, limit)?
            }
            Load::HeldBy(workers, limit, found) => *found = load::held_by(conn, workers, limit)?,
            Load::Expiring(before, after, limit, found) => {
                *found = sweep::expiring(conn, before, after, limit)?
            }
            Load::ExpiredChildren(parents, before, limit, found) => {
                *found = sweep::expired_children(conn, parents, before, limit)?
            }
            Load::WorkersNamed(name, found) => *found = workers::named(conn, name)?,
            Load::DeadHolders(now, found) => *found = workers::dead_holders(conn, now)?,
            Load::Builds(workers, found) => *found = workers::builds(conn, workers)?,
            Load::Pending(needs, found) => *found = inbox::pending(conn, needs)?,
            Load::PendingBytes(ids, found) => *found = inbox::bytes(conn, ids)?,
            Load::Awaited(of, found) => *found = inbox::awaited(conn, of)?,
            Load::Updates(of, found) => *found = inbox::updates(conn, of)?,
            Load::Applied(instance, step_sequence, found) => {
                *found = inbox::applied(conn, instance, step_sequence)?
            }
            Load::Deduped(keys, found) => *found = commands::deduped(conn, keys)?,
            Load::HeldSignals(keys, found) => *found = commands::held(conn, keys)?,
            Load::HeldSizes(keys, now, found) => *found = commands::held_sizes(conn, keys, now)?,
            Load::EventPaths(types, found) => {
                found.waiters = waiters::paths(conn, types)?;
                found.lookback = lookback::paths(conn, types)?;
            }
            Load::Waiters(probes, found) => *found = waiters::at(conn, probes)?,
            Load::TypeTotals(types, found) => *found = waiters::totals(conn, types)?,
            Load::LookUp(lookup, span, found) => *found = lookback::look_up(conn, lookup, span)?,
            Load::NewestEvents(event_type, span, found)
            | Load::HoldNewestEvents(event_type, span, found) => {
                *found = lookback::newest(conn, event_type, span)?
            }
            Load::EventsAbove(event_type, above, limit, found) => {
                *found = events::above(conn, event_type, above, limit)?
            }
            Load::Contracts(ids, found) => *found = contracts::contracts(conn, ids)?,
            Load::NamedContracts(above, limit, found) => {
                *found = contracts::named(conn, above, limit)?
            }
            Load::UnusedContracts(before, limit, found) => {
                *found = contracts::unused(conn, before, limit)?
            }
        }
        Ok(())
    }

    fn put(&mut self, what: Write<'_>) -> rusqlite::Result<()> {
        let conn = *self.conn;
        match what {
            Write::Declare(declared) => machines::declare(conn, declared),
            Write::MoveHistory(rows) => update::move_history(conn, rows),
            Write::Open(id, row) => {
                self.forget_rows(&[id]);
                insert::open(conn, id, row)
            }
            Write::Supersede(ids) => {
                self.forget_rows(ids);
                runs::supersede(conn, ids)
            }
            Write::Delete(ids) => sweep::delete(conn, ids),
            Write::ForgetChains(chains) => sweep::forget_chains(conn, chains),
            Write::Reorder { back, front } => partitions::reorder(conn, back, front),
            Write::RewriteWorker(worker) => workers::rewrite(conn, worker),
            Write::ExpireWorkers(ids, now) => workers::expire(conn, ids, now),
            Write::Define(contracts, now) => contracts::define(conn, contracts, now),
            Write::NoteContracts { ids, before, now } => contracts::note(conn, ids, before, now),
            Write::ForgetContracts(ids) => contracts::forget(conn, ids),
            Write::Keep(documents, now) => documents::keep(conn, documents, now),
            Write::InsertCommands(commands) => commands::insert(conn, commands),
            Write::RewriteCommands(commands) => commands::rewrite(conn, commands),
            Write::Close(closings, now) => commands::close(conn, closings, now),
            Write::MovePending(moves) => commands::move_pending(conn, moves),
            Write::OpenWaiters(waiters) => waiters::open(conn, waiters),
            Write::CloseWaiters(instances) => waiters::close(conn, instances),
            Write::UsePath(id, now) => lookback::used(conn, id, now),
            Write::WriteTerms(terms) => lookback::write(conn, terms),
            Write::Remember(answers, now) => requests::remember(conn, answers, now),
            Write::SettleOutbox { held, refused, now } => outbox::settle(conn, held, refused, now),
        }
    }
}

impl Txn for Session<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(&self.conn, rows).map_err(classed)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        self.rows(ids).map_err(classed)
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        self.change(changes, now).map_err(classed)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        update::append(&self.conn, rows).map_err(classed)
    }

    async fn load(&mut self, what: Load<'_>) -> Result<()> {
        self.read(what).map_err(classed)
    }

    async fn write(&mut self, what: Write<'_>) -> Result<()> {
        self.put(what).map_err(classed)
    }

    async fn forget(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        sweep::forget(&self.conn, what, limit).map_err(classed)
    }

    async fn claim(
        &mut self,
        request: &ClaimRequest,
        most: Option<usize>,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        let keep = |row| self.cache.keep(row);
        let most = most.unwrap_or(usize::MAX);
        claim::claim(&self.conn, request, most, now, keep).map_err(classed)
    }

    const CLAIMS_WITHIN: bool = true;

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert(&self.conn, worker, now).map_err(classed)
    }

    async fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<WorkerId>> {
        workers::renew(&self.conn, workers, now, until).map_err(classed)
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        commands::number(&self.conn, count).map_err(classed)
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        events::store(&self.conn, events, now).map_err(classed)
    }

    async fn add_path(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<Option<PathId>> {
        lookback::add(&self.conn, event_type, path, most, now).map_err(classed)
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(&self.conn, ids).map_err(classed)
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        let children = runs::adopt(&self.conn, from, by).map_err(classed)?;
        self.forget_rows(&children);
        Ok(u32::try_from(children.len()).unwrap_or(u32::MAX))
    }

    async fn hold_outbox(&mut self, ids: &[OutboxId]) -> Result<Option<Vec<OutboxId>>> {
        outbox::hold(&self.conn, ids).map(Some).map_err(classed)
    }
}
