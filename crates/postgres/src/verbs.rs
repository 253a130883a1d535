//! The kernel's verbs, each forwarded to the file that contains its statement.

use abide_core::model::{
    BarrierNumber, Claimed, CommandId, EventSequence, HistoryRow, InstanceId, Key, Name, NewRow,
    OutboxId, RequestId, Row, Started, Timestamp, Worker, WorkerId,
};
use abide_kernel::{
    Changes, ClaimRequest, Forget, Load, NewEvent, NewWorker, PathId, Recall, Result, Txn, Write,
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

    async fn lock(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock(self, ids).await
    }

    async fn update(&mut self, changes: &Changes<'_>, now: Timestamp) -> Result<()> {
        write::update(self, changes, now)
    }

    async fn append(&mut self, rows: &[HistoryRow]) -> Result<()> {
        write::append(self, rows)
    }

    async fn load(&mut self, what: Load<'_>) -> Result<()> {
        match what {
            Load::Find(targets, found) => *found = find::find(self, targets).await?,
            Load::Newest(chains, found) => *found = find::newest(self, chains).await?,
            Load::Declared(machines, found) => *found = load::declared(self, machines).await?,
            Load::Policies(ids, found) => *found = load::policies(self, ids).await?,
            Load::Kin(ids, found) => *found = sweep::kin(self, ids).await?,
            Load::Copies(ids, found) => *found = load::copies(self, ids).await?,
            Load::Holders(ids, found) => *found = keys::holders(self, ids).await?,
            Load::Reserved(ids, found) => *found = load::reserved(self, ids).await?,
            Load::LiveChildren(parents, found) => {
                *found = load::live_children(self, parents).await?
            }
            Load::Above(after, limit, found) => *found = load::above(self, after, limit).await?,
            Load::Around(ids, found) => *found = around::around(self, ids).await?,
            Load::Children(barriers, found) => *found = claim::children(self, barriers).await?,
            Load::ChildrenBytes(barriers, found) => {
                *found = claim::children_bytes(self, barriers).await?
            }
            Load::Partitions(keys, found) => *found = partition::partitions(self, keys).await?,
            Load::Waiting(queue, lanes, found) => {
                *found = claim::waiting(self, queue, lanes).await?
            }
            Load::Due(now, skip, limit, found) => {
                *found = load::due(self, now, skip, limit).await?
            }
            Load::DueAfter(now, found) => *found = load::due_after(self, now).await?,
            Load::Lapsed(now, skip, limit, found) => {
                *found = load::lapsed(self, now, skip, limit).await?
            }
            Load::Blocked(lanes, unless, after, limit, found) => {
                *found = load::blocked(self, lanes, unless, after, limit).await?
            }
            Load::Held(worker, after, deaths, limit, found) => {
                *found = load::held(self, worker, after, deaths, limit).await?
            }
            Load::HeldBy(workers, limit, found) => {
                *found = load::held_by(self, workers, limit).await?
            }
            Load::Expiring(before, after, limit, found) => {
                *found = sweep::expiring(self, before, after, limit).await?
            }
            Load::ExpiredChildren(parents, before, limit, found) => {
                *found = sweep::expired_children(self, parents, before, limit).await?
            }
            Load::WorkersNamed(name, found) => *found = workers::workers_named(self, name).await?,
            Load::DeadHolders(now, found) => *found = workers::dead_holders(self, now).await?,
            Load::Builds(workers, found) => *found = workers::builds(self, workers).await?,
            Load::Pending(needs, found) => *found = commands::pending(self, needs).await?,
            Load::PendingBytes(ids, found) => *found = commands::pending_bytes(self, ids).await?,
            Load::Awaited(of, found) => *found = commands::awaited(self, of).await?,
            Load::Updates(of, found) => *found = commands::updates(self, of).await?,
            Load::Applied(instance, step_sequence, found) => {
                *found = commands::applied(self, instance, step_sequence).await?
            }
            Load::Deduped(keys, found) => *found = commands::deduped(self, keys).await?,
            Load::HeldSignals(keys, found) => *found = commands::held_signals(self, keys).await?,
            Load::HeldSizes(keys, now, found) => {
                *found = commands::held_sizes(self, keys, now).await?
            }
            Load::EventPaths(types, found) => *found = waiters::event_paths(self, types).await?,
            Load::Waiters(probes, found) => *found = waiters::waiters(self, probes).await?,
            Load::TypeTotals(types, found) => *found = waiters::type_totals(self, types).await?,
            Load::LookUp(lookup, span, found) => {
                *found = lookback::look_up(self, lookup, span).await?
            }
            Load::NewestEvents(event_type, span, found) => {
                *found = lookback::newest_events(self, event_type, span).await?
            }
            Load::HoldNewestEvents(event_type, span, found) => {
                *found = lookback::hold_newest_events(self, event_type, span).await?
            }
            Load::EventsAbove(event_type, above, limit, found) => {
                *found = events::events_above(self, event_type, above, limit).await?
            }
            Load::Contracts(ids, found) => *found = contracts::contracts(self, ids).await?,
            Load::NamedContracts(above, limit, found) => {
                *found = contracts::named(self, above, limit).await?
            }
            Load::UnusedContracts(before, limit, found) => {
                *found = contracts::unused(self, before, limit).await?
            }
        }
        Ok(())
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

    async fn claim(
        &mut self,
        request: &ClaimRequest,
        most: Option<usize>,
        now: Timestamp,
    ) -> Result<(Vec<Claimed>, bool)> {
        match most {
            Some(most) => claim::claim_within(self, request, most, now).await,
            None => Ok((claim::claim(self, request, now).await?, false)),
        }
    }

    // An engine's claim may be the last statement of its transaction and is the hottest one, so its bytes are not
    // limited.
    const CLAIMS_WITHIN: bool = false;

    async fn lock_free(&mut self, ids: &[InstanceId]) -> Result<Vec<Row>> {
        load::lock_free(self, ids).await
    }

    async fn lock_free_partitions(&mut self, keys: &[Key]) -> Result<Vec<Key>> {
        partition::lock_free_partitions(self, keys).await
    }

    async fn lock_partitions(&mut self, keys: &[Key]) -> Result<()> {
        partition::lock_partitions(self, keys).await
    }

    async fn insert_worker(&mut self, worker: &NewWorker, now: Timestamp) -> Result<Worker> {
        workers::insert_worker(self, worker, now).await
    }

    async fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<WorkerId>> {
        workers::renew(self, workers, now, until).await
    }

    async fn lock_keys(&mut self, shared: &[Key], alone: &[Key]) -> Result<()> {
        find::lock_keys(self, shared, alone).await
    }

    async fn number(&mut self, count: usize) -> Result<Vec<CommandId>> {
        commands::number(self, count).await
    }

    async fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<(EventSequence, bool)>> {
        events::store_events(self, events, now).await
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

    async fn recall(&mut self, ids: &[&RequestId]) -> Result<Vec<Recall>> {
        requests::recall(self, ids).await
    }

    async fn adopt(&mut self, from: (InstanceId, BarrierNumber), by: InstanceId) -> Result<u32> {
        write::adopt(self, from, by).await
    }

    async fn hold_outbox(&mut self, ids: &[OutboxId]) -> Result<Option<Vec<OutboxId>>> {
        outbox::hold(self, ids).await
    }
}
