//! The trait `Txn`: what a store provides inside a transaction. It loads rows under lock and writes rows.

use std::future::Future;

use abide_core::model::{
    AnyKey, BarrierNumber, Claimed, CommandId, Event, EventSequence, Fingerprint, HistoryRow,
    InstanceId, Json, Key, Name, NewRow, OutboxId, ParentRef, RequestId, Row, Started, Timestamp,
    Worker, WorkerId,
};
use abide_core::rules::partition::Contender;

use crate::{Changes, ClaimRequest, Cursor, Forget, Load, NewWorker, Result, Write};

/// A transaction of a store. It makes no decisions: the kernel decides what must change.
///
/// Two things are left to the database, because only it can arbitrate between computers: claiming
/// ([`claim`](Self::claim)) and uniqueness ([`insert`](Self::insert)). Locks are held until the end of the transaction.
/// A store with several connections may send writes without waiting for their responses. It must then check every
/// response before it reports the transaction as committed. Reads see the writes before them.
pub trait Txn: Send {
    /// Locks keys, so that transactions that start an instance under a key run one after the other with transactions
    /// that must know that no instance has the key: the former lock `shared`, the latter `alone`. Both lists must be
    /// sorted and distinct, and a key may be in only one of them. Called before anything else is locked. Other keys may
    /// get locked with them. A store that runs transactions one after the other locks nothing.
    fn lock_keys(
        &mut self,
        shared: &[Key],
        alone: &[Key],
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (shared, alone);
        async { Ok(()) }
    }

    /// Locks these partitions, so that transactions that change their order run one after the other. The keys must be
    /// sorted and distinct. Called before any row is locked. A store that runs transactions one after the other locks
    /// nothing.
    fn lock_partitions(&mut self, keys: &[Key]) -> impl Future<Output = Result<()>> + Send {
        let _ = keys;
        async { Ok(()) }
    }

    /// Locks those of these partitions that no other transaction has locked and in which
    /// [`partitions`](crate::Loads::partitions) will not wait for a row. Returns their keys. The keys must be sorted and
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

    /// Locks the rows with these ids in order, and loads them. The ids must be sorted and distinct. Ids that do not
    /// exist are left out.
    fn lock(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// Locks and loads those of these rows that no other transaction has locked. The ids must be sorted and distinct.
    /// Locked and missing rows are left out. It never waits, and may be called whatever is locked already. In a store
    /// that runs transactions one after the other, this is [`lock`](Self::lock).
    fn lock_free(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send {
        self.lock(ids)
    }

    /// Reads rows or facts about them. [`Loads`](crate::Loads) has a method for each read.
    fn load(&mut self, what: Load<'_>) -> impl Future<Output = Result<()>> + Send;

    /// Inserts rows, and returns one result per row, in order. A row whose key or unique key is taken is not inserted;
    /// its result has the holder's id. Of two rows in the batch with the same key, the first is inserted.
    fn insert(&mut self, rows: &[NewRow]) -> impl Future<Output = Result<Vec<Started>>> + Send;

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
    ///
    /// With a limit `most`, stops before the row that would exceed that many bytes in total, as counted by
    /// [`claimed_bytes`](crate::claimed_bytes), and then also returns `true`. The first row is claimed whatever its
    /// size. Of the rows beyond the limit, only the sizes are read, or at most one row.
    fn claim(
        &mut self,
        request: &ClaimRequest,
        most: Option<usize>,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Vec<Claimed>, bool)>> + Send;

    /// `true` if a limited [`claim`](Self::claim) costs no more than one without a limit. Then every claim is limited.
    const CLAIMS_WITHIN: bool;

    /// Returns `count` new ids for records, ascending. None of them was ever issued before.
    fn number(&mut self, count: usize) -> impl Future<Output = Result<Vec<CommandId>>> + Send;

    /// Stores events, in order. Returns the sequence of each, and `true` if it is new. An event whose type and id exist
    /// already, also in the same batch, gets the sequence of the first.
    fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(EventSequence, bool)>>> + Send;

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

    /// Gives the children of a barrier to another parent, at the barrier of the same number. Returns how many. Those
    /// that have not ended are locked already.
    fn adopt(
        &mut self,
        from: (InstanceId, BarrierNumber),
        by: InstanceId,
    ) -> impl Future<Output = Result<u32>> + Send;

    /// Inserts a worker.
    fn insert_worker(
        &mut self,
        worker: &NewWorker,
        now: Timestamp,
    ) -> impl Future<Output = Result<Worker>> + Send;

    /// Extends the leases of those of these workers whose lease has not expired, so that they last at least until
    /// `until`. The ids must be sorted and distinct. Returns the extended workers, in any order.
    fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Result<Vec<WorkerId>>> + Send;

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
