//! The trait `Txn`: the statements that a store provides inside a transaction. They load rows under lock and write
//! rows.

use std::future::Future;

use abide_core::model::{
    AnyKey, BarrierNumber, Child, Claimed, Command, CommandId, CommandKind, ContractId, Declared,
    Event, EventSequence, Fingerprint, HistoryRow, InstanceId, Json, Key, Lane, Name, NewRow,
    OutboxId, ParentRef, Pending, Policies, Priority, RequestId, Row, Sequence, Started, Status,
    Target, Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::partition::Contender;
use abide_core::rules::retention::Kin;

use crate::{Changes, ClaimRequest, Cursor, Forget, NewWorker, Result, Surroundings, Write};

/// A transaction of a store. It makes no decisions: the kernel decides what must change.
///
/// Two things are left to the database, because only it can arbitrate between computers: claiming
/// ([`claim`](Self::claim)) and uniqueness ([`insert`](Self::insert)). Locks are held until the end of the transaction.
/// A store with several connections may send writes without waiting for their responses. It must then check every
/// response before it reports the transaction as committed. Reads see the writes before them.
pub trait Txn: Send {
    /// Inserts rows, and returns one result per row, in order. A row whose key or unique key is taken is not inserted;
    /// its result has the holder's id. Of two rows in the batch with the same key, the first is inserted.
    fn insert(&mut self, rows: &[NewRow]) -> impl Future<Output = Result<Vec<Started>>> + Send;

    /// Returns the declarations of these machines.
    fn declared(&mut self, machines: &[Name])
    -> impl Future<Output = Result<Vec<Declared>>> + Send;

    /// Locks the rows with these ids in order, and loads them. The ids must be sorted and distinct. Ids that do not
    /// exist are left out.
    fn lock(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// Writes locked rows, and sets their update time to `now`.
    fn update(
        &mut self,
        changes: &Changes<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Appends rows to histories.
    fn append(&mut self, rows: &[HistoryRow]) -> impl Future<Output = Result<()>> + Send;

    /// Carries out a write without an answer.
    fn write(&mut self, what: Write<'_>) -> impl Future<Output = Result<()>> + Send;

    /// Deletes at most `limit` of these rows. Returns how many.
    fn forget(
        &mut self,
        what: Forget<'_>,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Claims the first rows of a queue that are runnable, not behind, and in one of the lanes, ordered by priority,
    /// due time and id. Skips rows that another transaction has locked. The rows become `executing` under the worker,
    /// their epoch increases by one, and their update time is `now`. If the request has a lease, each gets a lease that
    /// begins `now`. Returns the rows in that order, without children.
    fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Claimed>>> + Send;

    /// Claims like [`claim`](Self::claim), but stops before the row that would exceed `most` bytes in total, as counted
    /// by [`claimed_bytes`](crate::claimed_bytes). The first row is claimed whatever its size. Of the rows beyond the
    /// limit, only the sizes are read, or at most one row. Returns the claimed rows, and `true` if rows were left
    /// because of the limit.
    fn claim_within(
        &mut self,
        request: &ClaimRequest,
        most: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Vec<Claimed>, bool)>> + Send;

    /// `true` if [`claim_within`](Self::claim_within) costs no more than [`claim`](Self::claim). Then every claim is
    /// bounded.
    const CLAIMS_WITHIN: bool;

    /// Returns the priority of the row that [`claim`](Self::claim) would take first.
    fn waiting(
        &mut self,
        queue: &Name,
        lanes: &[Lane],
    ) -> impl Future<Output = Result<Option<Priority>>> + Send;

    /// Returns the children of each of these barriers, by id.
    fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Child)>>> + Send;

    /// Returns the total size in bytes of the states, results and errors of each barrier's children. A barrier without
    /// children may be left out. Reads only sizes.
    fn children_bytes(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> impl Future<Output = Result<Vec<(InstanceId, u64)>>> + Send;

    /// Returns the first rows, `scheduled` or `awaiting`, that are due, after skipping `skip` of them. Does not lock
    /// them.
    fn due(
        &mut self,
        now: Timestamp,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Returns the first `executing` rows whose own lease has expired, after skipping `skip` of them, ordered by expiry
    /// time and id. Does not lock them.
    fn lapsed(
        &mut self,
        now: Timestamp,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Lapsed>>> + Send;

    /// Returns the earliest time after `now` at which a row is due or a lease expires.
    fn due_after(
        &mut self,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<Timestamp>>> + Send;

    /// Locks and loads those of these rows that no other transaction has locked. The ids must be sorted and distinct.
    /// Locked and missing rows are left out. It never waits, and may be called whatever is locked already. In a store
    /// that runs transactions one after the other, this is [`lock`](Self::lock).
    fn lock_free(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send {
        self.lock(ids)
    }

    /// Returns those of these rows that are reserved and not started. The ids must be sorted and distinct. Does not
    /// lock them. In a store that runs transactions one after the other, locking makes no difference.
    fn reserved(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<InstanceId>>> + Send {
        async move {
            let rows = self.lock(ids).await?.into_iter();
            let reserved = rows.filter(|row| row.status == Status::Reserved);
            Ok(reserved.map(|row| row.id).collect())
        }
    }

    /// Locks those of these partitions that no other transaction has locked and in which
    /// [`partitions`](Self::partitions) will not wait for a row. Returns their keys. The keys must be sorted and
    /// distinct. It never waits, and may be called whatever is locked already.
    fn lock_free_partitions(
        &mut self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Key>>> + Send {
        async move {
            self.lock_partitions(keys).await?;
            Ok(keys.to_vec())
        }
    }

    /// Returns the error policies of these instances: those given at the start, and those that the machine has
    /// declared. Instances with neither are left out.
    fn policies(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Policies)>>> + Send;

    /// Locks these partitions, so that transactions that change their order run one after the other. The keys must be
    /// sorted and distinct. Called before any row is locked.
    fn lock_partitions(&mut self, keys: &[Key]) -> impl Future<Output = Result<()>> + Send;

    /// Returns, for each partition, the row at the front (runnable or executing, and not behind) and the first of its
    /// runnable rows. Both are locked.
    fn partitions(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<Partition>>> + Send;

    /// Inserts a worker.
    fn insert_worker(
        &mut self,
        worker: &NewWorker,
        now: Timestamp,
    ) -> impl Future<Output = Result<Worker>> + Send;

    /// Returns the workers with this name, living or not, by id. No other transaction can add a worker with this name
    /// before this one ends.
    fn workers_named(&mut self, name: &Name) -> impl Future<Output = Result<Vec<Worker>>> + Send;

    /// Returns the workers that hold claims and are not alive: their lease has expired, or they are not (or no longer)
    /// known. Ordered by id, with the names of those that are known. The cost depends on how many claims dead and
    /// living workers hold, not on how many workers have died.
    fn dead_holders(
        &mut self,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(WorkerId, Option<Name>)>>> + Send;

    /// Extends the leases of those of these workers whose lease has not expired, so that they last at least until
    /// `until`. The ids must be sorted and distinct. Returns the extended workers, in any order.
    fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Result<Vec<WorkerId>>> + Send;

    /// Returns the rows that a worker holds above `after`, by id, in whose step workers have died at least `deaths`
    /// times. Does not lock them.
    fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        deaths: u32,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Returns at most `limit` rows that these workers hold, by worker and id. The workers must be sorted and distinct.
    /// Does not lock the rows.
    fn held_by(
        &mut self,
        workers: &[WorkerId],
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(WorkerId, Touched)>>> + Send;

    /// Returns the first rows that finished before `before`, after the cursor, in the order in which they finished.
    /// Skips rows that another transaction has locked.
    fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Expiring>>> + Send;

    /// Returns the status and parent of these instances. Instances that do not exist are left out. Does not lock them.
    fn kin(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Kin)>>> + Send;

    /// Returns at most `limit` children of these parents that finished before `before` and have a place at a barrier,
    /// in any order. Skips rows that another transaction has locked.
    fn expired_children(
        &mut self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Expiring>>> + Send;

    /// Returns the first instances above an id, by id, each with the contract that it names.
    fn named_contracts(
        &mut self,
        above: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(InstanceId, Option<ContractId>)>>> + Send;

    /// Returns and locks the contracts whose last recorded use is before `before` and that no machine declares, by id.
    fn unused_contracts(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ContractId>>> + Send;

    /// Returns the contracts with these ids.
    fn contracts(
        &mut self,
        ids: &[ContractId],
    ) -> impl Future<Output = Result<Vec<(ContractId, Json)>>> + Send;

    /// Locks keys, so that transactions that start an instance under a key run one after the other with transactions
    /// that must know that no instance has the key: the former lock `shared`, the latter `alone`. Both lists must be
    /// sorted and distinct, and a key may be in only one of them. Called before anything else is locked. Other keys may
    /// get locked with them.
    fn lock_keys(
        &mut self,
        shared: &[Key],
        alone: &[Key],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Returns the run that each target refers to: the run with that id, or the newest with that key. In order; does
    /// not lock them.
    fn find(
        &mut self,
        targets: &[Target],
    ) -> impl Future<Output = Result<Vec<Option<Found>>>> + Send;

    /// Returns the newest run of each of these chains, as (chain, run). Chains without a run are left out.
    fn newest(
        &mut self,
        chains: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, InstanceId)>>> + Send;

    /// Returns `count` new ids for records, ascending. None of them was ever issued before.
    fn number(&mut self, count: usize) -> impl Future<Output = Result<Vec<CommandId>>> + Send;

    /// Returns the records that were accepted in these chains with these dedup keys.
    fn deduped(
        &mut self,
        keys: &[(InstanceId, CommandKind, Name)],
    ) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Returns the records held for these keys, by id.
    fn held_signals(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Returns the number and total size in bytes of the signals that are held for each of these keys until after
    /// `now`. A key without held signals may be left out.
    fn held_sizes(
        &mut self,
        keys: &[Key],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(Key, usize, u64)>>> + Send;

    /// Returns the total size in bytes of the pending arguments in each of these inboxes. An empty inbox may be left
    /// out. The rows must be locked.
    fn pending_bytes(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, u64)>>> + Send;

    /// Returns the pending commands of these inboxes that each selection needs, with the instance, by instance and
    /// sequence.
    fn pending(
        &mut self,
        needs: &[(InstanceId, InboxNeeds)],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Pending)>>> + Send;

    /// Returns the pending signals with these names up to that sequence, complete, by instance and sequence.
    fn awaited(
        &mut self,
        of: &[(InstanceId, Vec<Name>, Sequence)],
    ) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Returns the pending updates and cancellations of these instances, complete, by instance and sequence.
    fn updates(&mut self, of: &[InstanceId]) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Stores events, in order. Returns the sequence of each, and `true` if it is new. An event whose type and id exist
    /// already, also in the same batch, gets the sequence of the first.
    fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(EventSequence, bool)>>> + Send;

    /// Returns the paths under which waiters of these types are indexed, the empty path for those indexed under none,
    /// and the paths on which waits look back.
    fn event_paths(&mut self, types: &[Name]) -> impl Future<Output = Result<EventPaths>> + Send;

    /// Returns the waiters at these entries of the index: type, path and value. Does not lock them.
    fn waiters(
        &mut self,
        probes: &[(Name, String, String)],
    ) -> impl Future<Output = Result<Vec<Waiter>>> + Send;

    /// Returns the number of waiters and the newest event of each of these types. The totals are exact if this
    /// transaction has locked the types alone. Types without waiters and events may be left out.
    fn type_totals(
        &mut self,
        types: &[Name],
    ) -> impl Future<Output = Result<Vec<(Name, TypeTotal)>>> + Send;

    /// Returns a page of the events that have one of these values at a path. Returns `None` if no wait looks back on
    /// that path. The type must be locked.
    fn look_up(
        &mut self,
        lookup: &EventLookup<'_>,
        span: Span,
    ) -> impl Future<Output = Result<Option<(LookbackPath, FoundEvents)>>> + Send;

    /// Returns a page of all events of a type.
    fn newest_events(
        &mut self,
        event_type: &Name,
        span: Span,
    ) -> impl Future<Output = Result<FoundEvents>> + Send;

    /// Returns the same as `newest_events`. The returned events are not deleted before this transaction ends; events
    /// that another transaction is about to delete are left out.
    fn hold_newest_events(
        &mut self,
        event_type: &Name,
        span: Span,
    ) -> impl Future<Output = Result<FoundEvents>> + Send;

    /// Records that waits look back on a path that is not recorded yet. Returns `None` if the type already has `most`
    /// recorded paths. The id was never issued before, even if the path was recorded before and forgotten. The type
    /// must be locked.
    fn add_path(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<PathId>>> + Send;

    /// Returns the first events of a type above a sequence, in order.
    fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Event>>> + Send;

    /// Returns the rows with these ids in the form in which they would be inserted anew, by id. The state is the last
    /// one.
    fn copies(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, NewRow)>>> + Send;

    /// Gives the children of a barrier to another parent, at the barrier of the same number. Returns how many. Those
    /// that have not ended are locked already.
    fn adopt(
        &mut self,
        from: (InstanceId, BarrierNumber),
        by: InstanceId,
    ) -> impl Future<Output = Result<u32>> + Send;

    /// Returns the keys and unique keys that these instances have, each with the instance that holds it.
    fn holders(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Holder>>> + Send;

    /// Returns the children of these parents, at any barrier, that have not ended, by id. Does not lock them.
    fn live_children(
        &mut self,
        parents: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Returns the first instances of these lanes above an id that are `scheduled` without a due time, by id, except
    /// those that are [`unfit`](abide_core::model::Row::unfit) for the build `unless`. Does not lock them.
    fn blocked(
        &mut self,
        lanes: &[Lane],
        unless: Option<&Name>,
        after: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Returns the [builds](Worker::build) of those of these workers that are known, living or not, in any order.
    fn builds(
        &mut self,
        workers: &[WorkerId],
    ) -> impl Future<Output = Result<Vec<(WorkerId, Name)>>> + Send;

    /// Returns the signals that a step of an instance has consumed, by sequence.
    fn applied(
        &mut self,
        instance: InstanceId,
        step_sequence: u32,
    ) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Returns the surroundings of these instances, in any order; see [`Store::around`](crate::Store::around). The
    /// instances must be locked and distinct.
    fn around(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Surroundings>>> + Send;

    /// Returns the first instances above an id, by id. Does not lock them.
    fn above(
        &mut self,
        after: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Returns the store's knowledge about these requests, in order. The ids must be distinct. A request that is
    /// returned as [`New`](Recall::New) belongs to this transaction: until it ends, every other transaction gets
    /// [`Running`](Recall::Running) for it. Never waits for another transaction.
    fn recall(&mut self, ids: &[&RequestId]) -> impl Future<Output = Result<Vec<Recall>>> + Send;

    /// Locks those of these rows of the outbox that exist, and prevents all other transactions from taking rows until
    /// this one ends. Returns `None` if another transaction has that lock. The ids must be sorted and distinct. It never
    /// waits, and is called before anything else is locked. A store that is not a database has no outbox.
    fn hold_outbox(
        &mut self,
        ids: &[OutboxId],
    ) -> impl Future<Output = Result<Option<Vec<OutboxId>>>> + Send {
        let _ = ids;
        async { Ok(Some(Vec::new())) }
    }
}

/// The store's knowledge about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recall {
    /// The request was not carried out, and no other transaction is carrying it out.
    New,
    /// Another transaction is carrying it out.
    Running,
    /// It was carried out.
    Done {
        /// The fingerprint of the request.
        fingerprint: Fingerprint,
        /// The answer as JSON; `None` if it was too large to store.
        answer: Option<String>,
    },
}

/// A row that an operation is about to change, with the partition that must be locked before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The instance.
    pub id: InstanceId,
    /// Its partition.
    pub partition: Option<Key>,
}

/// A row whose own lease has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// The instance, with its partition.
    pub touched: Touched,
    /// Its parent, if it still exists. The parent must be notified if this instance ends.
    pub parent: Option<ParentRef>,
    /// The name of the worker that held it.
    pub worker: Name,
}

/// A key or unique key of an instance, and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The instance that has the key.
    pub of: InstanceId,
    /// The key.
    pub key: AnyKey,
    /// The instance that holds the key, if any: its status is in the key's scope.
    pub holder: Option<InstanceId>,
}

/// A run that was found by its id or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The run.
    pub id: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// Its partition.
    pub partition: Option<Key>,
}

/// Totals of an event type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeTotal {
    /// The number of waiters for this type.
    pub waiters: usize,
    /// The sequence of the newest event; 0 if no event is stored.
    pub newest: EventSequence,
}

/// The paths that a publisher must evaluate for its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPaths {
    /// The types and paths under which waiters are indexed.
    pub waiters: Vec<(Name, String)>,
    /// The types and paths on which waits look back.
    pub lookback: Vec<(Name, String, PathId)>,
}

impl EventPaths {
    /// `true` if there are no paths.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.lookback.is_empty()
    }
}

/// The id of a path on which waits look back. A path that is forgotten and recorded again gets a new id. So a lookup
/// never finds terms from a time when terms were not written for all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub i64);

/// A path on which waits look back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookbackPath {
    /// Its id.
    pub id: PathId,
    /// When a wait last looked back on it, or slightly earlier.
    pub used_at: Timestamp,
}

/// The value of an event at a path on which waits look back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The path.
    pub path: PathId,
    /// The value at the path, in the form of the waiter index.
    pub value: String,
    /// The event.
    pub sequence: EventSequence,
    /// When the event was published.
    pub published_at: Timestamp,
}

/// The search of a wait that looks back: events of a type that have one of these values at a path.
#[derive(Clone, Copy, Debug)]
pub struct EventLookup<'a> {
    /// The type.
    pub event_type: &'a Name,
    /// The path.
    pub path: &'a str,
    /// The values, in the form of the waiter index; distinct.
    pub values: &'a [String],
}

/// The bounds of a page of events, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Only events below this sequence.
    pub below: EventSequence,
    /// Events that were published earlier are counted, but not returned.
    pub since: Timestamp,
    /// The maximum number of events.
    pub limit: usize,
    /// The page ends with the event whose payload brings the total size to this many bytes.
    pub bytes: usize,
}

/// The events found on a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundEvents {
    /// The events that were published since `since`, newest first.
    pub events: Vec<Event>,
    /// The number of events on the page, including those that were published earlier.
    pub count: usize,
    /// The last event of the page; `None` if there are no more.
    pub last: Option<EventSequence>,
    /// The total size of the payloads in bytes.
    pub bytes: usize,
}

impl FoundEvents {
    /// Adds the next event to the page; `None` stands for one that was published too early. Returns `true` if the page
    /// has room for another.
    pub fn push(&mut self, sequence: EventSequence, event: Option<Event>, span: &Span) -> bool {
        self.last = Some(sequence);
        self.count += 1;
        self.bytes += event.as_ref().map_or(0, |event| event.payload.size());
        self.events.extend(event);
        self.count < span.limit && self.bytes < span.bytes
    }
}

/// An event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub event_type: Name,
    /// Its id.
    pub event_id: Name,
    /// Its payload.
    pub payload: Json,
}

impl From<Event> for NewEvent {
    fn from(event: Event) -> Self {
        Self {
            event_type: event.event_type,
            event_id: event.event_id,
            payload: event.payload,
        }
    }
}

/// The rows that matter for the order of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The row at the front.
    pub front: Option<Contender>,
    /// The first of the runnable rows in order, with its queue.
    pub first: Option<(Contender, Name)>,
}

/// A finished instance whose retention is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// When it finished, and its id.
    pub cursor: Cursor,
    /// The first run of its chain.
    pub chain: InstanceId,
    /// The parent at one of whose barriers it has a place.
    pub parent: Option<InstanceId>,
}
