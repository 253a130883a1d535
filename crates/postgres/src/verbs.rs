//! The kernel's verbs, each forwarded to the file that contains its statement.

use abide_core::model::{
    BarrierNumber, Child, Claimed, Command, CommandId, CommandKind, ContractId, Declared, Event,
    EventSequence, HistoryRow, InstanceId, Json, Key, Lane, Name, NewRow, OutboxId, Pending,
    Policies, Priority, RequestId, Row, Sequence, Started, Target, Timestamp, Waiter, Worker,
    WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;
use abide_kernel::{
    Changes, ClaimRequest, Cursor, EventLookup, EventPaths, Expiring, Forget, Found, FoundEvents,
    Holder, Lapsed, LookbackPath, NewEvent, NewWorker, Partition, PathId, Recall, Result, Span,
    Surroundings, Touched, Txn, TypeTotal, Write,
};

use crate::txn::Transaction;
use crate::{
    around, claim, commands, contracts, documents, events, find, insert, keys, load, lookback,
    outbox, partition, requests, sweep, waiters, workers, write,
};

impl Txn for Transaction<'_> {
    async fn insert(&mut self, rows: &[NewRow]) -> Result<Vec<Started>> {
        insert::insert(self, rows).await
    }

    async fn declared(&mut self, machines: &[Name]) -> Result<Vec<Declared>> {
        load::declared(self, machines).await
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

    async fn write(&mut self, what: Write<'_>) -> Result<()> {
        match what {
            Write::Declare(declared) => write::declare(self, declared),
            Write::MoveHistory(rows) => write::move_history(self, rows),
            Write::Open(id, row) => insert::open(self, id, row),
            Write::Supersede(ids) => write::supersede(self, ids),
            Write::Delete(ids) => sweep::delete(self, ids),
            Write::ForgetChains(chains) => sweep::forget_chains(self, chains),
            Write::Reorder { back, front } => partition::reorder(self, back, front),
            Write::RewriteWorker(worker) => workers::rewrite_worker(self, worker),
            Write::ExpireWorkers(ids, now) => workers::expire_workers(self, ids, now),
            Write::Define(contracts, now) => contracts::define(self, contracts, now),
            Write::NoteContracts { ids, before, now } => contracts::note(self, ids, before, now),
            Write::ForgetContracts(ids) => contracts::forget(self, ids),
            Write::Keep(documents, now) => documents::keep(self, documents, now),
            Write::InsertCommands(records) => commands::insert_commands(self, records),
            Write::RewriteCommands(records) => commands::rewrite_commands(self, records),
            Write::Close(closings, now) => commands::close(self, closings, now),
            Write::MovePending(moves) => commands::move_pending(self, moves),
            Write::OpenWaiters(waiters) => waiters::open_waiters(self, waiters),
            Write::CloseWaiters(instances) => waiters::close_waiters(self, instances),
            Write::UsePath(id, now) => lookback::use_path(self, id, now),
            Write::WriteTerms(terms) => lookback::write_terms(self, terms),
            Write::Remember(answers, now) => requests::remember(self, answers, now),
            Write::SettleOutbox { held, refused, now } => outbox::settle(self, held, refused, now),
        }
    }

    async fn forget(&mut self, what: Forget<'_>, limit: usize) -> Result<usize> {
        sweep::forget(self, what, limit).await
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

    async fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> Result<Vec<Event>> {
        events::events_above(self, event_type, above, limit).await
    }

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(self, ids).await
    }

    async fn copies(&mut self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, NewRow)>> {
        load::copies(self, ids).await
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        write::adopt(self, from, by).await
    }

    async fn holders(&mut self, ids: &[InstanceId]) -> Result<Vec<Holder>> {
        keys::holders(self, ids).await
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

    async fn hold_outbox(&mut self, ids: &[OutboxId]) -> Result<Option<Vec<OutboxId>>> {
        outbox::hold(self, ids).await
    }
}
