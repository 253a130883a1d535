//! A kernel transaction on a connection: every call runs one or a few statements, and is complete when it returns.

use abide_core::model::{
    BarrierNumber, Child, Claimed, Command, CommandId, CommandKind, ContractId, Declared, Event,
    EventSequence, HistoryRow, InstanceId, Json, Key, Lane, Name, NewRow, OutboxId, Pending,
    Policies, Priority, RequestId, Row, Scopes, Sequence, Started, Target, Timestamp, Waiter,
    Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;
use abide_kernel::{
    Advance, Changes, ClaimRequest, Cursor, EventLookup, EventPaths, Expiring, Forget, Found,
    FoundEvents, Holder, Lapsed, LookbackPath, NewEvent, NewWorker, Partition, PathId, Recall,
    Result, Span, Surroundings, Touched, Txn, TypeTotal, Write,
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

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        machines::declared(&self.conn, machines).map_err(classed)
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

    async fn write(&mut self, what: Write<'_>) -> Result<()> {
        self.put(what).map_err(classed)
    }

    async fn forget(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        sweep::forget(&self.conn, what, limit).map_err(classed)
    }

    async fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Result<Vec<Claimed>> {
        Ok(self.claim_within(request, usize::MAX, now).await?.0)
    }

    const CLAIMS_WITHIN: bool = true;

    async fn claim_within(
        &mut self,
        request: &ClaimRequest,
        most: usize,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        let keep = |row| self.cache.keep(row);
        claim::claim(&self.conn, request, most, now, keep).map_err(classed)
    }

    async fn waiting(&mut self, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
        claim::waiting(&self.conn, queue, lanes).map_err(classed)
    }

    async fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, Child)>> {
        children::of_all(&self.conn, barriers).map_err(classed)
    }

    async fn children_bytes(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, u64)>> {
        children::bytes_of_all(&self.conn, barriers).map_err(classed)
    }

    async fn due(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Touched>> {
        load::due(&self.conn, now, skip, limit).map_err(classed)
    }

    async fn lapsed(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Lapsed>> {
        load::lapsed(&self.conn, now, skip, limit).map_err(classed)
    }

    async fn due_after(&mut self, now: Timestamp) -> Result<Option<Timestamp>> {
        load::due_after(&self.conn, now).map_err(classed)
    }

    async fn policies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Policies)>> {
        machines::policies(&self.conn, ids).map_err(classed)
    }

    async fn lock_partitions(&mut self, _keys: &[Key]) -> Result<()> {
        Ok(())
    }

    async fn partitions(&mut self, keys: &[Key]) -> Result<Vec<Partition>> {
        partitions::partitions(&self.conn, keys).map_err(classed)
    }

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert(&self.conn, worker, now).map_err(classed)
    }

    async fn workers_named(&mut self, name: &Name) -> Result<Vec<Worker>> {
        workers::named(&self.conn, name).map_err(classed)
    }

    async fn dead_holders(&mut self, now: Timestamp) -> Result<Vec<(WorkerId, Option<Name>)>> {
        workers::dead_holders(&self.conn, now).map_err(classed)
    }

    async fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<WorkerId>> {
        workers::renew(&self.conn, workers, now, until).map_err(classed)
    }

    async fn held_by(
        &mut self,
        workers: &[WorkerId],
        limit: usize,
    ) -> Result<Vec<(WorkerId, Touched)>> {
        load::held_by(&self.conn, workers, limit).map_err(classed)
    }

    async fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        deaths: u32,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::held(&self.conn, worker, after, deaths, limit).map_err(classed)
    }

    async fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expiring(&self.conn, before, after, limit).map_err(classed)
    }

    async fn kin(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Kin)>> {
        sweep::kin(&self.conn, ids).map_err(classed)
    }

    async fn expired_children(
        &mut self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expired_children(&self.conn, parents, before, limit).map_err(classed)
    }

    async fn named_contracts(
        &mut self,
        above: InstanceId,
        limit: usize,
    ) -> Result<Vec<(InstanceId, Option<ContractId>)>> {
        contracts::named(&self.conn, above, limit).map_err(classed)
    }

    async fn unused_contracts(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<ContractId>> {
        contracts::unused(&self.conn, before, limit).map_err(classed)
    }

    async fn contracts(&mut self, ids: &[ContractId]) -> Result<Vec<(ContractId, Json)>> {
        contracts::contracts(&self.conn, ids).map_err(classed)
    }

    async fn lock_keys(&mut self, _shared: &[Key], _alone: &[Key]) -> Result<()> {
        Ok(())
    }

    async fn find(&mut self, targets: &[Target]) -> Result<Vec<Option<Found>>> {
        runs::find(&self.conn, targets).map_err(classed)
    }

    async fn newest(&mut self, chains: &[InstanceId]) -> Result<Vec<(InstanceId, InstanceId)>> {
        runs::newest(&self.conn, chains).map_err(classed)
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        commands::number(&self.conn, count).map_err(classed)
    }

    async fn deduped(&mut self, keys: &[(InstanceId, CommandKind, Name)]) -> Result<Vec<Command>> {
        commands::deduped(&self.conn, keys).map_err(classed)
    }

    async fn held_signals(&mut self, keys: &[Key]) -> Result<Vec<Command>> {
        commands::held(&self.conn, keys).map_err(classed)
    }

    async fn held_sizes(&mut self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, usize, u64)>> {
        commands::held_sizes(&self.conn, keys, now).map_err(classed)
    }

    async fn pending_bytes(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, u64)>> {
        inbox::bytes(&self.conn, ids).map_err(classed)
    }

    async fn pending(
        &mut self,
        needs: &[(InstanceId, InboxNeeds)],
    ) -> Result<Vec<(InstanceId, Pending)>> {
        inbox::pending(&self.conn, needs).map_err(classed)
    }

    async fn awaited(&mut self, of: &[(InstanceId, Vec<Name>, Sequence)]) -> Result<Vec<Command>> {
        inbox::awaited(&self.conn, of).map_err(classed)
    }

    async fn updates(&mut self, of: &[InstanceId]) -> Result<Vec<Command>> {
        inbox::updates(&self.conn, of).map_err(classed)
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        events::store(&self.conn, events, now).map_err(classed)
    }

    async fn event_paths(&mut self, types: &[Name]) -> Result<EventPaths> {
        Ok(EventPaths {
            waiters: waiters::paths(&self.conn, types).map_err(classed)?,
            lookback: lookback::paths(&self.conn, types).map_err(classed)?,
        })
    }

    async fn waiters(&mut self, probes: &[(Name, String, String)]) -> Result<Vec<Waiter>> {
        waiters::at(&self.conn, probes).map_err(classed)
    }

    async fn type_totals(&mut self, types: &[Name]) -> Result<Vec<(Name, TypeTotal)>> {
        waiters::totals(&self.conn, types).map_err(classed)
    }

    async fn look_up(
        &mut self,
        lookup: &EventLookup<'_>,
        span: Span,
    ) -> Result<Option<(LookbackPath, FoundEvents)>> {
        lookback::look_up(&self.conn, lookup, span).map_err(classed)
    }

    async fn newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        lookback::newest(&self.conn, event_type, span).map_err(classed)
    }

    async fn hold_newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        lookback::newest(&self.conn, event_type, span).map_err(classed)
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

    async fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> Result<Vec<Event>> {
        events::above(&self.conn, event_type, above, limit).map_err(classed)
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(&self.conn, ids).map_err(classed)
    }

    async fn copies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
        runs::copies(&self.conn, ids).map_err(classed)
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        let children = runs::adopt(&self.conn, from, by).map_err(classed)?;
        self.forget_rows(&children);
        Ok(u32::try_from(children.len()).unwrap_or(u32::MAX))
    }

    async fn holders(&mut self, ids: &[InstanceId]) -> Result<Vec<Holder>> {
        keys::holders(&self.conn, ids).map_err(classed)
    }

    async fn live_children(&mut self, parents: &[InstanceId]) -> Result<Vec<Touched>> {
        runs::live_children(&self.conn, parents).map_err(classed)
    }

    async fn blocked(
        &mut self,
        lanes: &[Lane],
        unless: Option<&Name>,
        after: InstanceId,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::blocked(&self.conn, lanes, unless, after, limit).map_err(classed)
    }

    async fn builds(&mut self, workers: &[WorkerId]) -> Result<Vec<(WorkerId, Name)>> {
        workers::builds(&self.conn, workers).map_err(classed)
    }

    async fn applied(&mut self, instance: InstanceId, step_sequence: u32) -> Result<Vec<Command>> {
        inbox::applied(&self.conn, instance, step_sequence).map_err(classed)
    }

    async fn around(&mut self, ids: &[InstanceId]) -> Result<Vec<Surroundings>> {
        around::around(&self.conn, ids).map_err(classed)
    }

    async fn above(&mut self, after: InstanceId, limit: usize) -> Result<Vec<Touched>> {
        load::above(&self.conn, after, limit).map_err(classed)
    }

    async fn hold_outbox(&mut self, ids: &[OutboxId]) -> Result<Option<Vec<OutboxId>>> {
        outbox::hold(&self.conn, ids).map(Some).map_err(classed)
    }
}
