//! The trait `Store`: the interface through which all other modules use a store.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Declared, Document, DocumentKind,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Refusal,
    Timestamp, Worker,
};
use futures_util::future::BoxFuture;

use crate::{
    Answer, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Ending, Endings, Error,
    EventFilter, EventPage, Filter, Listener, MachinePage, Op, OutboxDepth, OutboxRow,
    OwnTransaction, Page, Query, QueryResult, QueueDepth, ReadyLane, Records, RefusedPage, Result,
    Surroundings, Tally, Target, WaiterFilter, WaiterPage,
};

/// The number of entries of a page when a whole list is read.
const READ_AT_ONCE: usize = 1_000;

/// The interval between polls of the outbox. Rows are taken within a second (rule 17.3).
pub const OUTBOX_POLL: Duration = Duration::from_millis(950);

/// Runs a query, and takes its one kind of result.
macro_rules! found {
    ($store:ident, $query:expr, $kind:ident) => {{
        let reading = $store.read($query);
        Box::pin(async move {
            match reading.await? {
                QueryResult::$kind(found) => Ok(found),
                _ => Err(Error::unexpected_answer()),
            }
        })
    }};
}

/// A store of instances. [`run`](Store::run) is the whole write side, and [`read`](Store::read) the
/// whole read side; the other reads are typed forms of it.
///
/// Reads see committed data only, and run outside the writers' transactions.
pub trait Store: Send + Sync + 'static {
    /// Runs the operations in order in one transaction, and returns one answer per operation.
    ///
    /// Atomic: when the answers arrive, all operations are durable; otherwise none is. A crash leaves all or nothing.
    /// Errors: [`Conflict`](crate::Error::Conflict) and [`Unavailable`](crate::Error::Unavailable) mean that nothing
    /// was written, [`Unknown`](crate::Error::Unknown) that the operations may have been written. A refused entry is an
    /// answer, not an error, and does not affect other entries.
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>>;

    /// Runs a query, and returns its kind of result.
    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>>;

    /// Opens a transaction for a step that writes its own rows (rule 17.2); `limit` is the step's time limit, if it has
    /// one. A store that is not a database refuses.
    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        let _ = limit;
        Box::pin(async { Err(Error::Refused(Refusal::NoDatabase)) })
    }

    /// Returns a renewer of leases that uses nothing of the runtime on which this store is used (rule 6.4). It is for a
    /// thread with its own runtime, which then owns the renewer's connections and tasks. Returns `None` if
    /// [`run`](Store::run) itself has this property.
    ///
    /// Errors: settings that were valid when the store was opened and are not valid any more.
    fn renewer(&self) -> Result<Option<Box<dyn Renewer>>> {
        Ok(None)
    }

    /// Returns the clock that this store's workers share.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Subscribes to the effects of commits, in this process and, if the database can transport them, in other
    /// processes.
    fn listen(&self) -> Listener;

    /// Returns the number of transactions that can usefully run in parallel.
    fn writers(&self) -> usize;

    /// Returns the interval at which to poll the outbox when there is no notification. `None` if the processes that have
    /// this store open take no rows from its outbox (rule 17.3): only databases have one, and a server takes the rows of
    /// its own database.
    fn outbox_poll(&self) -> Option<Duration> {
        None
    }

    /// Finishes the work in progress, and releases files, threads and connections.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Returns one instance.
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        let query = Query::Get(target.clone());
        Box::pin(async move {
            let found = found!(self, query, Instance).await?;
            Ok(found.map(|found| *found))
        })
    }

    /// Returns a page of instances, newest first, below `before`.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        found!(
            self,
            Query::List {
                filter: filter.clone(),
                before,
                limit,
            },
            Instances
        )
    }

    /// Returns the surroundings of these instances, in any order. The ids must be distinct. The surroundings of an
    /// instance and its row are read at the same moment. Instances that do not exist are left out. It reads only their
    /// pending messages, through an index, and their [newest children](abide_core::rules::liveness::CHILDREN_SEEN).
    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        found!(self, Query::Around(ids.to_vec()), Around)
    }

    /// Returns the rows of an instance's history whose last event is after `after`, oldest first, at most `limit` rows.
    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        found!(self, Query::History { id, after, limit }, History)
    }

    /// Returns a page of the children of one barrier, by id, above `after`.
    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        found!(
            self,
            Query::Children {
                parent,
                barrier,
                after,
            },
            Children
        )
    }

    /// Returns all children of one barrier, by id. Reads them page by page.
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

    /// Returns the endings of the first of these instances, as many as fit on a page.
    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        found!(self, Query::Endings(ids.to_vec()), Endings)
    }

    /// Returns the endings of those of these instances that have ended. The second list contains the instances that do
    /// not exist.
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

    /// Returns a page of records of signals and updates, newest first, below `before`.
    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        found!(
            self,
            Query::Commands {
                filter: filter.clone(),
                before,
                limit,
            },
            Commands
        )
    }

    /// Returns the first of the records with these ids, as many as fit on a page. Records that do not exist are left
    /// out.
    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        found!(self, Query::Records(ids.to_vec()), Records)
    }

    /// Returns the records with these ids. Records that do not exist are left out.
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

    /// Returns the pending commands of an inbox, signals and updates alike, by sequence.
    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        found!(self, Query::Inbox(id), Inbox)
    }

    /// Returns a page of events, newest first, below `before`.
    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        found!(
            self,
            Query::Events {
                filter: filter.clone(),
                before,
                limit,
            },
            Events
        )
    }

    /// Returns a page of waits for events, by instance and position, above `after`. A wait that has several index
    /// entries, because it asks for one value of a list, is returned once.
    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        found!(
            self,
            Query::Waiters {
                filter: filter.clone(),
                after,
                limit,
            },
            Waiters
        )
    }

    /// Returns a contract.
    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        found!(self, Query::Contract(id), Contract)
    }

    /// Returns the first of the contracts with these ids, as many as fit on a page. Contracts that do not exist are
    /// left out.
    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        found!(self, Query::Contracts(ids.to_vec()), Contracts)
    }

    /// Returns a page of the declarations, by machine and version, above `after`.
    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        found!(self, Query::Machines { after, limit }, Machines)
    }

    /// Returns all declarations, by machine and version.
    fn machines(&self) -> BoxFuture<'_, Result<Vec<Declared>>> {
        Box::pin(async move {
            let mut page = self.machines_page(None, READ_AT_ONCE).await?;
            let mut all = page.items;
            while let Some(after) = page.next {
                page = self.machines_page(Some(after), READ_AT_ONCE).await?;
                all.append(&mut page.items);
            }
            Ok(all)
        })
    }

    /// Returns a page of the documents of a kind, by name, above `after`.
    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        found!(self, Query::Documents { kind, after, limit }, Documents)
    }

    /// Returns all documents of a kind, by name.
    fn documents(&self, kind: DocumentKind) -> BoxFuture<'_, Result<Vec<Document>>> {
        Box::pin(async move {
            let mut page = self.documents_page(kind, None, READ_AT_ONCE).await?;
            let mut all = page.items;
            while let Some(after) = page.next {
                let next = self.documents_page(kind, Some(after), READ_AT_ONCE);
                page = next.await?;
                all.append(&mut page.items);
            }
            Ok(all)
        })
    }

    /// Returns the document of a kind and a name, if it exists.
    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        found!(
            self,
            Query::Document {
                kind,
                name: name.clone(),
            },
            Document
        )
    }

    /// Returns the earliest time at which anything is due.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        found!(self, Query::NextDue, Due)
    }

    /// Returns the workers whose lease has not expired.
    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        found!(self, Query::Workers, Workers)
    }

    /// Returns the number of instances per queue, status and kind of wait. Finished instances are not counted.
    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        found!(self, Query::Depths, Depths)
    }

    /// Returns the first rows of the outbox except these, in order, as many as fit on a page. A row that commits later
    /// than rows behind it is included as soon as it is committed.
    fn outbox<'a>(
        &'a self,
        passed_over: &'a [OutboxId],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        found!(
            self,
            Query::Outbox {
                except: passed_over.to_vec(),
                limit,
            },
            Outbox
        )
    }

    /// Returns a page of the refused requests of the outbox, newest first, below `before`.
    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        found!(self, Query::Refused { before, limit }, Refused)
    }

    /// Returns the number of waiting and of refused requests of the outbox.
    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        found!(self, Query::OutboxDepth, OutboxDepth)
    }

    /// Returns the lanes that have something to claim, by queue, machine and version, at most
    /// [`READY_LANES`](crate::READY_LANES). The cost is one step of an index per lane, however many instances are
    /// ready.
    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        found!(self, Query::ReadyLanes, ReadyLanes)
    }

    /// Returns the number of blocked and failing instances, which reads all open instances, and the number of ended
    /// instances, counted up to a limit.
    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        found!(self, Query::Tally, Tally)
    }
}

/// Renews leases from a thread of its own.
pub trait Renewer: Send + Sync {
    /// Runs operations that renew leases, as [`Store::run`] does.
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>>;

    /// Closes its connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Returns the instance at a target. For an instance without a key, whose only address is its id, returns the newest
/// run of its chain (rule 2.5).
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
