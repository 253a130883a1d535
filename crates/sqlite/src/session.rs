//! A kernel transaction on a connection: every call runs one or a few statements, and is complete when it returns.

use abide_core::model::{
    BarrierNumber, Child, Claimed, Closing, Command, CommandId, CommandKind, ContractId, Declared,
    DocumentKind, Event, EventSequence, HistoryRow, InstanceId, Json, Key, Lane, Name, NewRow,
    OutboxId, Pending, Policies, Priority, RequestId, Row, Scopes, Sequence, Started, Target,
    Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;
use abide_kernel::{
    Advance, Changes, ClaimRequest, Cursor, EventLookup, EventPaths, Expiring, Found, FoundEvents,
    Holder, Lapsed, LookbackPath, MovedHistory, NewEvent, NewWorker, OutboxProblem, OutboxRows,
    Partition, PathId, Recall, Result, Span, Surroundings, Term, Touched, Txn, TypeTotal,
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
    fn load(&mut self, ids: &[InstanceId]) -> rusqlite::Result<Vec<Row>> {
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
    fn forget(&mut self, ids: &[InstanceId]) {
        for id in ids {
            self.cache.take(*id);
        }
    }

    fn write(&mut self, changes: &Changes<'_>, now: Timestamp) -> rusqlite::Result<()> {
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
}

impl OutboxRows for Session<'_> {
    async fn hold_outbox(&mut self, ids: &[OutboxId]) -> Result<Option<Vec<OutboxId>>> {
        outbox::hold(&self.conn, ids).map(Some).map_err(classed)
    }

    async fn settle_outbox(
        &mut self,
        held: &[OutboxId],
        refused: &[(OutboxId, OutboxProblem)],
        now: Timestamp,
    ) -> Result<()> {
        outbox::settle(&self.conn, held, refused, now).map_err(classed)
    }

    async fn settle_refused(&mut self, ids: &[OutboxId], again: bool) -> Result<usize> {
        outbox::settle_refused(&self.conn, ids, again).map_err(classed)
    }

    async fn forget_refused(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        outbox::forget_refused(&self.conn, before, limit).map_err(classed)
    }
}

impl Txn for Session<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(&self.conn, rows).map_err(classed)
    }

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        machines::declared(&self.conn, machines).map_err(classed)
    }

    async fn declare(&mut self, declared: &[Declared]) -> Result<()> {
        machines::declare(&self.conn, declared).map_err(classed)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        self.load(ids).map_err(classed)
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        self.write(changes, now).map_err(classed)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        update::append(&self.conn, rows).map_err(classed)
    }

    async fn move_history(&mut self, rows: &[MovedHistory]) -> Result<()> {
        update::move_history(&self.conn, rows).map_err(classed)
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

    async fn reorder(&mut self, back: &[InstanceId], front: &[InstanceId]) -> Result<()> {
        partitions::reorder(&self.conn, back, front).map_err(classed)
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

    async fn rewrite_worker(&mut self, worker: &Worker) -> Result<()> {
        workers::rewrite(&self.conn, worker).map_err(classed)
    }

    async fn expire_workers(&mut self, workers: &[WorkerId], now: Timestamp) -> Result<()> {
        workers::expire(&self.conn, workers, now).map_err(classed)
    }

    async fn forget_workers(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        workers::forget(&self.conn, before, limit).map_err(classed)
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

    async fn trim(&mut self, ids: &[InstanceId], limit: usize) -> Result<usize> {
        sweep::trim(&self.conn, ids, limit).map_err(classed)
    }

    async fn forget_chains(&mut self, chains: &[InstanceId]) -> Result<()> {
        sweep::forget_chains(&self.conn, chains).map_err(classed)
    }

    async fn delete(&mut self, ids: &[InstanceId]) -> Result<()> {
        sweep::delete(&self.conn, ids).map_err(classed)
    }

    async fn define(&mut self, contracts: &[(ContractId, Json)], now: Timestamp) -> Result<()> {
        contracts::define(&self.conn, contracts, now).map_err(classed)
    }

    async fn note_contracts(
        &mut self,
        ids: &[ContractId],
        before: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        contracts::note(&self.conn, ids, before, now).map_err(classed)
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

    async fn forget_contracts(&mut self, ids: &[ContractId]) -> Result<()> {
        contracts::forget(&self.conn, ids).map_err(classed)
    }

    async fn keep(
        &mut self,
        documents: &[(DocumentKind, &Name, Option<&Json>)],
        now: Timestamp,
    ) -> Result<()> {
        documents::keep(&self.conn, documents, now).map_err(classed)
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

    async fn insert_commands(&mut self, commands: &[Command]) -> Result<()> {
        commands::insert(&self.conn, commands).map_err(classed)
    }

    async fn rewrite_commands(&mut self, commands: &[Command]) -> Result<()> {
        commands::rewrite(&self.conn, commands).map_err(classed)
    }

    async fn close(&mut self, closings: &[Closing], now: Timestamp) -> Result<()> {
        commands::close(&self.conn, closings, now).map_err(classed)
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

    async fn open_waiters(&mut self, waiters: &[Waiter]) -> Result<()> {
        waiters::open(&self.conn, waiters).map_err(classed)
    }

    async fn close_waiters(&mut self, instances: &[InstanceId]) -> Result<()> {
        waiters::close(&self.conn, instances).map_err(classed)
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

    async fn use_path(&mut self, id: PathId, now: Timestamp) -> Result<()> {
        lookback::used(&self.conn, id, now).map_err(classed)
    }

    async fn forget_paths(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        lookback::forget(&self.conn, before, limit).map_err(classed)
    }

    async fn write_terms(&mut self, terms: &[Term]) -> Result<()> {
        lookback::write(&self.conn, terms).map_err(classed)
    }

    async fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> Result<Vec<Event>> {
        events::above(&self.conn, event_type, above, limit).map_err(classed)
    }

    async fn forget_events(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        events::forget(&self.conn, before, limit).map_err(classed)
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(&self.conn, ids).map_err(classed)
    }

    async fn remember(
        &mut self,
        answers: &[(&RequestId, Option<&str>)],
        now: Timestamp,
    ) -> Result<()> {
        requests::remember(&self.conn, answers, now).map_err(classed)
    }

    async fn forget_requests(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        requests::forget(&self.conn, before, limit).map_err(classed)
    }

    async fn move_pending(&mut self, moves: &[(InstanceId, InstanceId)]) -> Result<()> {
        commands::move_pending(&self.conn, moves).map_err(classed)
    }

    async fn expire_held(&mut self, now: Timestamp, limit: usize) -> Result<usize> {
        commands::expire_held(&self.conn, now, limit).map_err(classed)
    }

    async fn forget_records(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        commands::forget(&self.conn, before, limit).map_err(classed)
    }

    async fn copies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
        runs::copies(&self.conn, ids).map_err(classed)
    }

    async fn supersede(&mut self, ids: &[InstanceId]) -> Result<()> {
        self.forget(ids);
        runs::supersede(&self.conn, ids).map_err(classed)
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        let children = runs::adopt(&self.conn, from, by).map_err(classed)?;
        self.forget(&children);
        Ok(u32::try_from(children.len()).unwrap_or(u32::MAX))
    }

    async fn holders(&mut self, ids: &[InstanceId]) -> Result<Vec<Holder>> {
        keys::holders(&self.conn, ids).map_err(classed)
    }

    async fn open(&mut self, id: InstanceId, row: &NewRow) -> Result<()> {
        self.forget(&[id]);
        insert::open(&self.conn, id, row).map_err(classed)
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
}
