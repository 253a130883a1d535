//! A store that loses requests and answers, as networks do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Timestamp, Worker,
};
use futures_util::future::BoxFuture;

use crate::{
    Answer, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, Error,
    EventFilter, EventPage, Filter, Listener, MachinePage, Op, OutboxDepth, OutboxRow, Page,
    QueueDepth, ReadyLane, Records, RefusedPage, Result, Store, Surroundings, Tally, Target,
    WaiterFilter, WaiterPage,
};

/// What goes wrong with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not reach the database.
    Away,
    /// The database would not take it this time.
    Conflict,
    /// The database will never take it.
    Broken,
    /// Nobody knows whether it was committed, and it was not.
    Lost,
    /// Nobody knows whether it was committed, and it was.
    AnswerLost,
}

type Plan = dyn Fn(&[Op]) -> Option<Trouble> + Send + Sync;

/// A store with trouble, as its plan says.
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Box<Plan>,
    lists: AtomicUsize,
    reads: AtomicUsize,
    meanwhile: Mutex<Vec<Op>>,
}

impl Faulty {
    /// That store, in which transactions go wrong as the plan says of their operations.
    pub fn new(
        store: Arc<dyn Store>,
        plan: impl Fn(&[Op]) -> Option<Trouble> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let plan = Box::new(plan);
        Arc::new(Self {
            store,
            plan,
            lists: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            meanwhile: Mutex::default(),
        })
    }

    /// How often it was asked for what a look at instances needs: themselves, what lies around them, workers, contracts.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Runs these operations before the next look at what lies around instances: between the two reads of a list.
    pub fn meanwhile(&self, ops: Vec<Op>) {
        *self
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = ops;
    }

    fn read(&self) -> &dyn Store {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &*self.store
    }

    /// How often all documents of a kind were read.
    pub fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl Store for Faulty {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let trouble = (self.plan)(&ops);
            match trouble {
                None => self.store.run(ops).await,
                Some(Trouble::Away) => Err(Error::Unavailable("it was made so".into())),
                Some(Trouble::Conflict) => Err(Error::Conflict("it was made so".into())),
                Some(Trouble::Broken) => Err(Error::Broken("it was made so".into())),
                Some(Trouble::Lost) => Err(Error::Unknown("it was made so".into())),
                Some(Trouble::AnswerLost) => {
                    self.store.run(ops).await?;
                    Err(Error::Unknown("it was made so".into()))
                }
            }
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self) -> Listener {
        self.store.listen()
    }

    fn writers(&self) -> usize {
        self.store.writers()
    }

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        self.read().get(target)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        self.read().list(filter, before, limit)
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        let ops = std::mem::take(
            &mut *self
                .meanwhile
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        Box::pin(async move {
            if !ops.is_empty() {
                self.store.run(ops.into()).await?;
            }
            self.read().around(ids).await
        })
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        self.store.history(id, after, limit)
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        self.store.children_page(parent, barrier, after)
    }

    /// An empty list of operations stands for a read.
    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        match (self.plan)(&[]) {
            None => self.store.endings_page(ids),
            Some(_) => Box::pin(async { Err(Error::Unavailable("it was made so".into())) }),
        }
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        self.store.commands(filter, before, limit)
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        self.store.records_page(ids)
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        self.store.inbox(id)
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        self.store.events(filter, before, limit)
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        self.store.waiters(filter, after, limit)
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        self.store.contract(id)
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.store.next_due()
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        self.read().workers()
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        self.read().contracts_page(ids)
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        self.store.machines_page(after, limit)
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        self.store.document(kind, name)
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.store.documents_page(kind, after, limit)
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        self.store.depths()
    }

    fn takes_outbox(&self) -> bool {
        self.store.takes_outbox()
    }

    fn outbox_poll(&self) -> Duration {
        self.store.outbox_poll()
    }

    fn outbox<'a>(
        &'a self,
        passed_over: &'a [OutboxId],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        self.store.outbox(passed_over, limit)
    }

    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        self.store.refused(before, limit)
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        self.store.outbox_depth()
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        self.store.ready_lanes()
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        self.store.tally()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
