//! The kernel's verbs, each forwarded to the file that contains its statement.

use abide_core::model::{
    BarrierNumber, Child, Claimed, Closing, Command, CommandId, CommandKind, ContractId, Declared,
    DocumentKind, Event, EventSequence, HistoryRow, InstanceId, Json, Key, Lane, Name, NewRow,
    Pending, Policies, Priority, RequestId, Row, Sequence, Started, Target, Timestamp, Waiter,
    Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;
use abide_kernel::{
    Changes, ClaimRequest, Cursor, EventLookup, EventPaths, Expiring, Found, FoundEvents, Holder,
    Lapsed, LookbackPath, MovedHistory, NewEvent, NewWorker, Partition, PathId, Recall, Result,
    Span, Surroundings, Term, Touched, Txn, TypeTotal,
};

use crate::txn::Transaction;
use crate::{
    around, claim, commands, contracts, documents, events, find, insert, keys, load, lookback,
    partition, requests, sweep, waiters, workers, write,
};

impl Txn for Transaction<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(self, rows).await
    }

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        load::declared(self, machines).await
    }

    async fn declare(&mut self, declared: &[Declared]) -> Result<()> {
        write::declare(self, declared)
    }

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock(self, ids).await
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        write::update(self, changes, now)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        write::append(self, rows)
    }

    async fn move_history(&mut self, rows: &[MovedHistory]) -> Result<()> {
        write::move_history(self, rows)
    }

    async fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Result<Vec<Claimed>> {
        claim::claim(self, request, now).await
    }

    // An engine's claim may be the last statement of its transaction and is the hottest one, so its bytes are not
    // limited.
    const CLAIMS_WITHIN: bool = false;

    async fn claim_within(
        &mut self,
        request: &ClaimRequest,
        most: usize,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        claim::claim_within(self, request, most, now).await
    }

    async fn waiting(&mut self, queue: &Name, lanes: &[Lane]) -> Result<Option<Priority>> {
        claim::waiting(self, queue, lanes).await
    }

    async fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, Child)>> {
        claim::children(self, barriers).await
    }

    async fn children_bytes(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> Result<Vec<(InstanceId, u64)>> {
        claim::children_bytes(self, barriers).await
    }

    async fn due(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Touched>> {
        load::due(self, now, skip, limit).await
    }

    async fn lapsed(&mut self, now: Timestamp, skip: usize, limit: usize) -> Result<Vec<Lapsed>> {
        load::lapsed(self, now, skip, limit).await
    }

    async fn due_after(&mut self, now: Timestamp) -> Result<Option<Timestamp>> {
        load::due_after(self, now).await
    }

    async fn lock_free(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock_free(self, ids).await
    }

    async fn reserved(&mut self, ids: &[InstanceId]) -> Result<Vec<InstanceId>> {
        load::reserved(self, ids).await
    }

    async fn lock_free_partitions(&mut self, keys: &[Key]) -> Result<Vec<Key>> {
        partition::lock_free_partitions(self, keys).await
    }

    async fn policies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Policies)>> {
        load::policies(self, ids).await
    }

    async fn lock_partitions(&mut self, keys: &[Key]) -> Result<()> {
        partition::lock_partitions(self, keys).await
    }

    async fn partitions(&mut self, keys: &[Key]) -> Result<Vec<Partition>> {
        partition::partitions(self, keys).await
    }

    async fn reorder(&mut self, back: &[InstanceId], front: &[InstanceId]) -> Result<()> {
        partition::reorder(self, back, front)
    }

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert_worker(self, worker, now).await
    }

    async fn workers_named(&mut self, name: &Name) -> Result<Vec<Worker>> {
        workers::workers_named(self, name).await
    }

    async fn dead_holders(&mut self, now: Timestamp) -> Result<Vec<(WorkerId, Option<Name>)>> {
        workers::dead_holders(self, now).await
    }

    async fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<WorkerId>> {
        workers::renew(self, workers, now, until).await
    }

    async fn rewrite_worker(&mut self, worker: &Worker) -> Result<()> {
        workers::rewrite_worker(self, worker)
    }

    async fn expire_workers(&mut self, workers: &[WorkerId], now: Timestamp) -> Result<()> {
        workers::expire_workers(self, workers, now)
    }

    async fn forget_workers(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        workers::forget_workers(self, before, limit).await
    }

    async fn held_by(
        &mut self,
        workers: &[WorkerId],
        limit: usize,
    ) -> Result<Vec<(WorkerId, Touched)>> {
        load::held_by(self, workers, limit).await
    }

    async fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        deaths: u32,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::held(self, worker, after, deaths, limit).await
    }

    async fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expiring(self, before, after, limit).await
    }

    async fn kin(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Kin)>> {
        sweep::kin(self, ids).await
    }

    async fn expired_children(
        &mut self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Expiring>> {
        sweep::expired_children(self, parents, before, limit).await
    }

    async fn trim(&mut self, ids: &[InstanceId], limit: usize) -> Result<usize> {
        sweep::trim(self, ids, limit).await
    }

    async fn forget_chains(&mut self, chains: &[InstanceId]) -> Result<()> {
        sweep::forget_chains(self, chains)
    }

    async fn delete(&mut self, ids: &[InstanceId]) -> Result<()> {
        sweep::delete(self, ids)
    }

    async fn define(&mut self, contracts: &[(ContractId, Json)], now: Timestamp) -> Result<()> {
        contracts::define(self, contracts, now)
    }

    async fn note_contracts(
        &mut self,
        ids: &[ContractId],
        before: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        contracts::note(self, ids, before, now)
    }

    async fn named_contracts(
        &mut self,
        above: InstanceId,
        limit: usize,
    ) -> Result<Vec<(InstanceId, Option<ContractId>)>> {
        contracts::named(self, above, limit).await
    }

    async fn unused_contracts(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<ContractId>> {
        contracts::unused(self, before, limit).await
    }

    async fn forget_contracts(&mut self, ids: &[ContractId]) -> Result<()> {
        contracts::forget(self, ids)
    }

    async fn keep(
        &mut self,
        documents: &[(DocumentKind, &Name, Option<&Json>)],
        now: Timestamp,
    ) -> Result<()> {
        documents::keep(self, documents, now)
    }

    async fn contracts(&mut self, ids: &[ContractId]) -> Result<Vec<(ContractId, Json)>> {
        contracts::contracts(self, ids).await
    }

    async fn lock_keys(&mut self, shared: &[Key], alone: &[Key]) -> Result<()> {
        find::lock_keys(self, shared, alone).await
    }

    async fn find(&mut self, targets: &[Target]) -> Result<Vec<Option<Found>>> {
        find::find(self, targets).await
    }

    async fn newest(&mut self, chains: &[InstanceId]) -> Result<Vec<(InstanceId, InstanceId)>> {
        find::newest(self, chains).await
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        commands::number(self, count).await
    }

    async fn deduped(&mut self, keys: &[(InstanceId, CommandKind, Name)]) -> Result<Vec<Command>> {
        commands::deduped(self, keys).await
    }

    async fn held_signals(&mut self, keys: &[Key]) -> Result<Vec<Command>> {
        commands::held_signals(self, keys).await
    }

    async fn held_sizes(&mut self, keys: &[Key], now: Timestamp) -> Result<Vec<(Key, usize, u64)>> {
        commands::held_sizes(self, keys, now).await
    }

    async fn pending_bytes(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, u64)>> {
        commands::pending_bytes(self, ids).await
    }

    async fn insert_commands(&mut self, records: &[Command]) -> Result<()> {
        commands::insert_commands(self, records)
    }

    async fn rewrite_commands(&mut self, records: &[Command]) -> Result<()> {
        commands::rewrite_commands(self, records)
    }

    async fn close(&mut self, closings: &[Closing], now: Timestamp) -> Result<()> {
        commands::close(self, closings, now)
    }

    async fn pending(
        &mut self,
        needs: &[(InstanceId, InboxNeeds)],
    ) -> Result<Vec<(InstanceId, Pending)>> {
        commands::pending(self, needs).await
    }

    async fn awaited(&mut self, of: &[(InstanceId, Vec<Name>, Sequence)]) -> Result<Vec<Command>> {
        commands::awaited(self, of).await
    }

    async fn updates(&mut self, of: &[InstanceId]) -> Result<Vec<Command>> {
        commands::updates(self, of).await
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        events::store_events(self, events, now).await
    }

    async fn event_paths(&mut self, types: &[Name]) -> Result<EventPaths> {
        waiters::event_paths(self, types).await
    }

    async fn waiters(&mut self, probes: &[(Name, String, String)]) -> Result<Vec<Waiter>> {
        waiters::waiters(self, probes).await
    }

    async fn open_waiters(&mut self, waiters: &[Waiter]) -> Result<()> {
        waiters::open_waiters(self, waiters)
    }

    async fn close_waiters(&mut self, instances: &[InstanceId]) -> Result<()> {
        waiters::close_waiters(self, instances)
    }

    async fn type_totals(&mut self, types: &[Name]) -> Result<Vec<(Name, TypeTotal)>> {
        waiters::type_totals(self, types).await
    }

    async fn look_up(
        &mut self,
        lookup: &EventLookup<'_>,
        span: Span,
    ) -> Result<Option<(LookbackPath, FoundEvents)>> {
        lookback::look_up(self, lookup, span).await
    }

    async fn newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        lookback::newest_events(self, event_type, span).await
    }

    async fn hold_newest_events(&mut self, event_type: &Name, span: Span) -> Result<FoundEvents> {
        lookback::hold_newest_events(self, event_type, span).await
    }

    async fn add_path(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> Result<Option<PathId>> {
        lookback::add_path(self, event_type, path, most, now).await
    }

    async fn use_path(&mut self, id: PathId, now: Timestamp) -> Result<()> {
        lookback::use_path(self, id, now)
    }

    async fn forget_paths(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        lookback::forget_paths(self, before, limit).await
    }

    async fn write_terms(&mut self, terms: &[Term]) -> Result<()> {
        lookback::write_terms(self, terms)
    }

    async fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> Result<Vec<Event>> {
        events::events_above(self, event_type, above, limit).await
    }

    async fn forget_events(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        events::forget_events(self, before, limit).await
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(self, ids).await
    }

    async fn remember(
        &mut self,
        answers: &[(&RequestId, Option<&str>)],
        now: Timestamp,
    ) -> Result<()> {
        requests::remember(self, answers, now)
    }

    async fn forget_requests(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        requests::forget(self, before, limit).await
    }

    async fn move_pending(&mut self, moves: &[(InstanceId, InstanceId)]) -> Result<()> {
        commands::move_pending(self, moves)
    }

    async fn expire_held(&mut self, now: Timestamp, limit: usize) -> Result<usize> {
        commands::expire_held(self, now, limit).await
    }

    async fn forget_records(&mut self, before: Timestamp, limit: usize) -> Result<usize> {
        commands::forget_records(self, before, limit).await
    }

    async fn copies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
        load::copies(self, ids).await
    }

    async fn supersede(&mut self, ids: &[InstanceId]) -> Result<()> {
        write::supersede(self, ids)
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        write::adopt(self, from, by).await
    }

    async fn holders(&mut self, ids: &[InstanceId]) -> Result<Vec<Holder>> {
        keys::holders(self, ids).await
    }

    async fn open(&mut self, id: InstanceId, row: &NewRow) -> Result<()> {
        insert::open(self, id, row)
    }

    async fn live_children(&mut self, parents: &[InstanceId]) -> Result<Vec<Touched>> {
        load::live_children(self, parents).await
    }

    async fn blocked(
        &mut self,
        lanes: &[Lane],
        unless: Option<&Name>,
        after: InstanceId,
        limit: usize,
    ) -> Result<Vec<Touched>> {
        load::blocked(self, lanes, unless, after, limit).await
    }

    async fn builds(&mut self, workers: &[WorkerId]) -> Result<Vec<(WorkerId, Name)>> {
        workers::builds(self, workers).await
    }

    async fn applied(&mut self, instance: InstanceId, step_sequence: u32) -> Result<Vec<Command>> {
        commands::applied(self, instance, step_sequence).await
    }

    async fn around(&mut self, ids: &[InstanceId]) -> Result<Vec<Surroundings>> {
        around::around(self, ids).await
    }

    async fn above(&mut self, after: InstanceId, limit: usize) -> Result<Vec<Touched>> {
        load::above(self, after, limit).await
    }
}
