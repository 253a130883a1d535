//! What a store is to those who use it.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Declared, Document, DocumentKind,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Name, Refusal, Timestamp, Worker,
};
use futures_util::future::BoxFuture;

use crate::{
    Answer, Clock, CommandFilter, CommandPage, Ending, Endings, Error, EventFilter, EventPage,
    Filter, Listener, Op, OwnTransaction, Page, QueueDepth, Records, Result, Target, WaiterFilter,
    WaiterPage,
};

/// A place where instances live. The whole write side is [`run`](Store::run); the read side is a handful of queries.
///
/// Reads see what was committed, outside of any transaction of the writers.
pub trait Store: Send + Sync + 'static {
    /// Runs the operations in order in one transaction, and answers each.
    ///
    /// Atomic: all of them are durable when the answer comes, or none. A crash leaves all or nothing. Errors:
    /// [`Conflict`](crate::Error::Conflict) and [`Unavailable`](crate::Error::Unavailable) say that nothing was
    /// written, [`Unknown`](crate::Error::Unknown) that it may have been. That one entry is refused is an answer, not
    /// an error, and touches no other.
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>>;

    /// Opens a transaction for a step that writes rows of its own (rule 17.2), and that has that time limit, if it has
    /// one. A store that is no database refuses.
    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        let _ = limit;
        Box::pin(async { Err(Error::Refused(Refusal::NoDatabase)) })
    }

    /// The time, as this store's workers agree on it.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Listens to what commits have to tell, in this process and, where the database can carry it, in others.
    fn listen(&self) -> Listener;

    /// How many transactions may run side by side with profit.
    fn writers(&self) -> usize;

    /// One instance.
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>>;

    /// A page of instances, newest first, beginning below `before`.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>>;

    /// The rows of an instance's history whose last event is after `after`, oldest first, at most `limit` rows.
    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>>;

    /// A page of the children of one barrier, by id, beginning above `after`.
    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>>;

    /// All children of one barrier, by id, page by page.
    fn children(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
    ) -> BoxFuture<'_, Result<Vec<Child>>> {
        Box::pin(async move {
            let mut page = self.children_page(parent, barrier, None).await?;
            let mut all = page.items;
            while let Some(after) = page.next {
                page = self.children_page(parent, barrier, Some(after)).await?;
                all.append(&mut page.items);
            }
            Ok(all)
        })
    }

    /// How the first of the instances named ended, as many as fit on a page.
    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>>;

    /// How those of the instances named ended that have; an instance that is not there is named in the second list.
    fn endings<'a>(
        &'a self,
        ids: &'a [InstanceId],
    ) -> BoxFuture<'a, Result<(Vec<Ending>, Vec<InstanceId>)>> {
        Box::pin(async move {
            let mut all = self.endings_page(ids).await?;
            while !all.rest.is_empty() {
                let mut page = self.endings_page(&all.rest).await?;
                all.ended.append(&mut page.ended);
                all.missing.append(&mut page.missing);
                all.rest = page.rest;
            }
            Ok((all.ended, all.missing))
        })
    }

    /// A page of records of signals and updates, newest first, beginning below `before`.
    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>>;

    /// The first of the records with these ids, as many as fit on a page; those that are not there are left out.
    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>>;

    /// The records with these ids; those that are not there are left out.
    fn records<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Vec<Command>>> {
        Box::pin(async move {
            let mut all = self.records_page(ids).await?;
            while !all.rest.is_empty() {
                let mut page = self.records_page(&all.rest).await?;
                all.found.append(&mut page.found);
                all.rest = page.rest;
            }
            Ok(all.found)
        })
    }

    /// What is pending in an inbox, signals and updates alike, by sequence.
    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>>;

    /// A page of events, newest first, beginning below `before`.
    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>>;

    /// A page of waits for events, by instance and place, beginning above `after`. One that stands at several places of
    /// the index, because it asks for one of a list, is told once.
    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>>;

    /// A contract.
    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>>;

    /// All that is declared, by machine and version.
    fn machines(&self) -> BoxFuture<'_, Result<Vec<Declared>>>;

    /// The documents of a kind, by name.
    fn documents(&self, kind: DocumentKind) -> BoxFuture<'_, Result<Vec<Document>>>;

    /// The document of a kind and a name, if there is one.
    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>>;

    /// The earliest moment at which anything is due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// The workers that are believed to live.
    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>>;

    /// How many instances stand where and wait for what, queue by queue; finished ones are not counted.
    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>>;

    /// Finishes what was begun and lets go of files, threads and connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The instance at a target; of one without a key, whose id is its only address, the newest run of its chain (rule 2.5).
pub async fn newest_run(store: &dyn Store, target: &Target) -> Result<Option<Instance>> {
    let found = store.get(target).await?;
    let chain = match (&found, target) {
        (Some(run), Target::Id(_)) if run.key.is_none() && run.status.is_terminal() => run.chain(),
        // The first run may have been deleted; its id still names the chain.
        (None, Target::Id(id)) => *id,
        _ => return Ok(found),
    };
    let filter = Filter {
        chain: Some(chain),
        ..Filter::default()
    };
    let newest = store.list(&filter, None, 1).await?.items.pop();
    Ok(newest.filter(|run| run.key.is_none()).or(found))
}
