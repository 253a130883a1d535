//! A store in plain maps: for tests, for experiments, and as the model that the databases are compared with.

mod around;
mod claim;
mod commands;
mod definitions;
mod events;
mod index;
mod lookback;
mod pieces;
mod reads;
mod record;
mod shapes;
mod tables;
#[cfg(feature = "conformance")]
mod tamper;
mod txn;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Declared, Document, DocumentKind, Event,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Lane, Limits, Name, OutboxId, Timestamp,
    Waiter, Worker,
};
use futures_util::future::BoxFuture;

use crate::{
    Answer, Bus, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, Error,
    EventFilter, EventPage, Filter, Listener, MachinePage, Op, OutboxDepth, OutboxRow, OutboxRows,
    Page, QueueDepth, ReadyLane, Records, RefusedPage, Result, Store, Surroundings, SystemClock,
    Tally, Target, WaiterFilter, WaiterPage, gather, judge, look_up, run_now,
};
use pieces::MemoryTxn;
use tables::Tables;

/// A store that keeps all data in memory and loses it when it is dropped.
///
/// It follows every rule that the databases follow, except that nothing survives the process. A transaction holds one
/// lock from beginning to end and never waits inside it.
///
/// ```
/// use abide_kernel::memory::Memory;
/// use abide_kernel::model::{Json, Name, Start, Status};
/// use abide_kernel::{Answer, Op, Store};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store = Memory::default();
/// let start = Start::of(Name::new("checkout")?, Json::null());
/// let answers = store.run([Op::Start(vec![start])].into()).await?;
/// assert!(matches!(answers.as_slice(), [Answer::Started(each)] if each.len() == 1));
/// # Ok::<(), abide_kernel::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory {
    clock: Arc<dyn Clock>,
    limits: Limits,
    bus: Bus,
    tables: Mutex<Option<Tables>>,
}

impl Memory {
    /// Creates an empty store that uses this clock.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self {
            clock,
            limits,
            bus: Bus::new(),
            tables: Mutex::new(Some(Tables::default())),
        }
    }

    /// Locks the tables, which are `None` if the store was closed. A panic while they were locked has rolled its
    /// transaction back, so a poisoned lock can be ignored.
    fn locked(&self) -> MutexGuard<'_, Option<Tables>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, ops: &[Op]) -> Result<Vec<Answer>> {
        let mut guard = self.locked();
        let tables = guard.as_mut().ok_or(Error::Closed)?;
        let mut txn = MemoryTxn::begin(tables);
        let (answers, effects) = run_now(&mut txn, ops, self.clock.now(), &self.limits)?;
        txn.commit();
        drop(guard);
        self.bus.tell(effects);
        Ok(answers)
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        look: impl FnOnce(&Tables) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move { self.locked().as_ref().map(look).ok_or(Error::Closed) })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::default()), Limits::default())
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Without SQL no rows can be inserted, so there is no outbox.
impl OutboxRows for MemoryTxn<'_> {}

impl Store for Memory {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move { judge::with_held(|| async { self.write(&ops) }).await })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn listen(&self) -> Listener {
        self.bus.listen()
    }

    fn writers(&self) -> usize {
        1
    }

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        self.read(move |tables| tables.get(target))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let page = tables.list(filter, before, limit);
            page.within(most, |last| last.id)
        })
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        self.read(move |tables| ids.iter().filter_map(|id| tables.around(*id)).collect())
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        self.read(move |tables| tables.history_after(id, after, limit))
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let after = after.unwrap_or(InstanceId(i64::MIN));
            let children = tables.children_above(parent, barrier, after);
            let Ok(items) = gather(children.map(Ok::<_, Infallible>), most);
            Page { items, next: None }.within(most, |last| last.id)
        })
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| tables.endings(ids, most))
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let is_there = |id| tables.records().contains_key(&id);
            let page = tables.commands().page(filter, before, limit, is_there);
            page.within(most, |last| last.id)
        })
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let mut found = Vec::new();
            let look = |id| {
                let command = tables.commands().get(id);
                Ok::<_, Infallible>(command.map(|command| Command::clone(command)))
            };
            let Ok(rest) = look_up(ids, most, look, |command| found.push(command));
            Records { found, rest }
        })
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        self.read(move |tables| {
            let pending = tables.commands().pending(id);
            pending.map(|command| Command::clone(command)).collect()
        })
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let below = before.unwrap_or(EventSequence(i64::MAX));
            let events = tables.events().events().range(..below).rev();
            let wanted = |event: &&Event| {
                let of_type = filter.event_type.as_ref();
                of_type.is_none_or(|of_type| event.event_type == *of_type)
            };
            let found = events.map(|(_, event)| event).filter(wanted).cloned();
            let place = |event: &Event| event.sequence;
            page(found, limit, place).within(most, place)
        })
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let mut found: BTreeMap<(InstanceId, u32), &Waiter> = BTreeMap::new();
            for waiter in tables.events().waiters().values() {
                let at = (waiter.instance, waiter.place);
                let of_type = filter.event_type.as_ref();
                let wanted = of_type.is_none_or(|of_type| waiter.event_type == *of_type)
                    && filter.instance.is_none_or(|id| id == waiter.instance)
                    && after.is_none_or(|after| at > after);
                if wanted {
                    found.entry(at).or_insert(waiter);
                }
            }
            let more = found.len() > limit;
            let items: Vec<Waiter> = found.into_values().take(limit).cloned().collect();
            let place = |waiter: &Waiter| (waiter.instance, waiter.place);
            let next = items.last().map(place).filter(|_| more);
            Page { items, next }.within(most, place)
        })
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        self.read(move |tables| {
            tables
                .contracts()
                .get(&id)
                .map(|(contract, _)| contract.clone())
        })
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let mut found = Vec::new();
            let look = |id| {
                let stored = tables.contracts().get(&id);
                Ok::<_, Infallible>(stored.map(|(contract, _)| (id, contract.clone())))
            };
            let Ok(rest) = look_up(ids, most, look, |one| found.push(one));
            Contracts { found, rest }
        })
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let found = tables.declared().range((from, Bound::Unbounded));
            let found = found.map(|(_, declared)| declared.clone());
            let lane = |one: &Declared| Lane {
                machine: one.machine.clone(),
                version: one.version,
            };
            page(found, limit, lane).within(most, lane)
        })
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        let most = self.limits.page_bytes;
        self.read(move |tables| {
            let above = |one: &&Document| {
                one.kind == kind && after.as_ref().is_none_or(|after| one.name > *after)
            };
            let found = tables.documents().values().filter(above).cloned();
            let place = |one: &Document| one.name.clone();
            page(found, limit, place).within(most, place)
        })
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        self.read(move |tables| tables.documents().get(&(kind, name.clone())).cloned())
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.read(Tables::next_due)
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        self.read(|tables| tables.living_workers(self.clock.now()))
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        self.read(Tables::depths)
    }

    fn outbox<'a>(&'a self, _: &'a [OutboxId], _: usize) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn refused(&self, _: Option<OutboxId>, _: usize) -> BoxFuture<'_, Result<RefusedPage>> {
        let (items, next) = (Vec::new(), None);
        Box::pin(async move { Ok(RefusedPage { items, next }) })
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        Box::pin(async { Ok(OutboxDepth::default()) })
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        self.read(Tables::ready_lanes)
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        self.read(Tables::tally)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            *self.locked() = None;
        })
    }
}

/// The first `limit` of these entries, and the position where the next page begins.
fn page<T, C>(found: impl Iterator<Item = T>, limit: usize, place: impl Fn(&T) -> C) -> Page<T, C> {
    let mut items: Vec<T> = found.take(limit.saturating_add(1)).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().map(place).filter(|_| more);
    Page { items, next }
}
