//! What a store must be able to do inside a transaction: load rows under lock, and write them.

use std::future::Future;

use abide_core::model::{
    AnyKey, BarrierNumber, Child, Claimed, Closing, Command, CommandId, CommandKind, ContractId,
    Declared, DocumentKind, Event, EventSequence, Fingerprint, HistoryRow, InstanceId, Json, Key,
    Lane, Lease, Name, NewRow, ParentRef, Pending, Policy, Priority, RequestId, Row, Scopes,
    Sequence, Started, Status, Target, Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::Look;
use abide_core::rules::partition::Contender;
use abide_core::rules::retention::Kin;

use crate::{ClaimRequest, Cursor, NewWorker, Result};

/// A transaction of a store. Nothing here decides anything: what follows from what is the kernel's business.
///
/// Two matters are left to the database, which must be the referee between machines: claiming ([`claim`](Self::claim))
/// and uniqueness ([`insert`](Self::insert)). Locks are held to the end of the transaction. A store with several
/// connections may send writes without waiting for their answers, and must then check every answer before it says that
/// the transaction is committed; reads see the writes before them.
pub trait Txn: Send {
    /// Inserts rows; one whose key or unique key is taken is dropped and answered with the holder's id. In order;
    /// the first of two equals in one batch wins.
    fn insert(&mut self, rows: &[NewRow]) -> impl Future<Output = Result<Vec<Started>>> + Send;

    /// The declarations of the machines named.
    fn declared(&mut self, machines: &[Name])
    -> impl Future<Output = Result<Vec<Declared>>> + Send;

    /// Writes declarations, over those of the same machine and version.
    fn declare(&mut self, declared: &[Declared]) -> impl Future<Output = Result<()>> + Send;

    /// Locks the rows with these ids, which come sorted and distinct, in that order, and loads them; those that are not
    /// there are left out.
    fn lock(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// Writes rows that were locked, and marks them as updated `now`.
    fn update(
        &mut self,
        changes: &Changes<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Appends to histories.
    fn append(&mut self, rows: &[HistoryRow]) -> impl Future<Output = Result<()>> + Send;

    /// Claims the first rows of a queue that are runnable, not behind, and of one of the lanes, by priority, due time
    /// and id, passing over those that another transaction has locked. They become executing under the worker, their
    /// epoch one higher, and are marked as updated `now`; with a lease that begins `now` when the request has one.
    /// Answered in that order; without children.
    fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Claimed>>> + Send;

    /// The priority of the row that [`claim`](Self::claim) would take first.
    fn waiting(
        &mut self,
        queue: &Name,
        lanes: &[Lane],
    ) -> impl Future<Output = Result<Option<Priority>>> + Send;

    /// The children of each of these barriers, by id.
    fn children(
        &mut self,
        barriers: &[(InstanceId, BarrierNumber)],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Child)>>> + Send;

    /// The first rows, scheduled or awaiting, that are due, after so many of them; not locked.
    fn due(
        &mut self,
        now: Timestamp,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// The first executing rows whose own lease has run out, after so many of them, by when it did and by id; not locked.
    fn lapsed(
        &mut self,
        now: Timestamp,
        skip: usize,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Lapsed>>> + Send;

    /// The earliest moment after that one at which anything is due, or a lease runs out.
    fn due_after(
        &mut self,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<Timestamp>>> + Send;

    /// Locks and loads those of these rows, which come sorted and distinct, that no other transaction has locked; the
    /// others, and those that are not there, are left out. It never waits, and may be called when anything is locked. In a
    /// store whose transactions come one after the other that is [`lock`](Self::lock).
    fn lock_free(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Row>>> + Send {
        self.lock(ids)
    }

    /// Which of these rows, which come sorted and distinct, are reserved and not started; not locked. In a store whose
    /// transactions come one after the other it does not matter whether they are.
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

    /// Locks those of these partitions, which come sorted and distinct, that no other transaction has locked, and in
    /// which [`partitions`](Self::partitions) will not wait for a row; which they are. It never waits, and may be called
    /// when anything is locked.
    fn lock_free_partitions(
        &mut self,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Key>>> + Send {
        async move {
            self.lock_partitions(keys).await?;
            Ok(keys.to_vec())
        }
    }

    /// What the machines of these instances have declared of how their steps fail; those that have nothing are left out.
    fn policies(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Policy)>>> + Send;

    /// Serialises whoever changes who stands where in these partitions, which come sorted and distinct. Taken before
    /// any row is locked.
    fn lock_partitions(&mut self, keys: &[Key]) -> impl Future<Output = Result<()>> + Send;

    /// Who is at the front of each partition (runnable or executing, and not behind), and who is the first of its
    /// runnable rows; both locked.
    fn partitions(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<Partition>>> + Send;

    /// Puts the first ones behind, then the second ones in front.
    fn reorder(
        &mut self,
        back: &[InstanceId],
        front: &[InstanceId],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Inserts a worker.
    fn insert_worker(
        &mut self,
        worker: &NewWorker,
        now: Timestamp,
    ) -> impl Future<Output = Result<Worker>> + Send;

    /// The workers of that name, living or not, by id. Nobody else comes by that name before the transaction ends.
    fn workers_named(&mut self, name: &Name) -> impl Future<Output = Result<Vec<Worker>>> + Send;

    /// The workers that hold something and are not believed to live: their lease has run out, or they are not known (any
    /// more). By id, with the names of those that are known. What they hold is what this costs, and what the living hold;
    /// not how many have died.
    fn dead_holders(
        &mut self,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(WorkerId, Option<Name>)>>> + Send;

    /// Lets the leases of those of these workers, which come sorted and distinct, that have not run out run until that
    /// moment at least; which these are, in any order.
    fn renew(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
        until: Timestamp,
    ) -> impl Future<Output = Result<Vec<WorkerId>>> + Send;

    /// Writes a worker's lease, queues and lanes over those that it had.
    fn rewrite_worker(&mut self, worker: &Worker) -> impl Future<Output = Result<()>> + Send;

    /// Ends the leases of these workers.
    fn expire_workers(
        &mut self,
        workers: &[WorkerId],
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Deletes workers whose lease ran out before that moment and that hold nothing, at most that many; how many there
    /// were.
    fn forget_workers(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// What a worker holds, by id, above `after`; not locked.
    fn held(
        &mut self,
        worker: WorkerId,
        after: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// What these workers, which come sorted and distinct, hold, by worker and id, at most that many; not locked.
    fn held_by(
        &mut self,
        workers: &[WorkerId],
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(WorkerId, Touched)>>> + Send;

    /// The first rows that finished before that moment, after the cursor, in the order in which they did; passing over
    /// those that another transaction has locked.
    fn expiring(
        &mut self,
        before: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Expiring>>> + Send;

    /// How these instances stand in their families; those that are not there are left out. Not locked.
    fn kin(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Kin)>>> + Send;

    /// The children of these that finished before that moment and have their place at a barrier, in any order, at most
    /// that many; passing over those that another transaction has locked.
    fn expired_children(
        &mut self,
        parents: &[InstanceId],
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Expiring>>> + Send;

    /// Writes contracts, by id, as used now; those that are there stay as they are.
    fn define(
        &mut self,
        contracts: &[(ContractId, Json)],
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Notes that contracts are used now, where that was noted last before a moment. They come sorted.
    fn note_contracts(
        &mut self,
        ids: &[ContractId],
        before: Timestamp,
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The first instances above an id, by id, with the contract that each names.
    fn named_contracts(
        &mut self,
        above: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(InstanceId, Option<ContractId>)>>> + Send;

    /// Contracts that were noted as used last before a moment and that no machine declares, by id. They are locked.
    fn unused_contracts(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ContractId>>> + Send;

    /// Deletes contracts.
    fn forget_contracts(&mut self, ids: &[ContractId]) -> impl Future<Output = Result<()>> + Send;

    /// Writes documents over those of the same kind and name, or deletes those that have no body. They come sorted by
    /// kind and name, each once.
    fn keep(
        &mut self,
        documents: &[(DocumentKind, &Name, Option<&Json>)],
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The contracts with these ids.
    fn contracts(
        &mut self,
        ids: &[ContractId],
    ) -> impl Future<Output = Result<Vec<(ContractId, Json)>>> + Send;

    /// Serialises those who start something under a key with those who must know that nobody does: the first ones share
    /// a key, the second ones have it alone. Both come sorted and distinct, and a key is in one of them. Taken before
    /// anything else is locked. Other keys may be locked with them.
    fn lock_keys(
        &mut self,
        shared: &[Key],
        alone: &[Key],
    ) -> impl Future<Output = Result<()>> + Send;

    /// The run that each target stands for: the one with that id, or the newest with that key; not locked. In order.
    fn find(
        &mut self,
        targets: &[Target],
    ) -> impl Future<Output = Result<Vec<Option<Found>>>> + Send;

    /// The newest run of each of these chains, as chain and run; those of which there is none are left out.
    fn newest(
        &mut self,
        chains: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, InstanceId)>>> + Send;

    /// That many ids for records, rising, none of them ever given before.
    fn number(&mut self, count: usize) -> impl Future<Output = Result<Vec<CommandId>>> + Send;

    /// The records that were accepted in these chains with these dedup keys.
    fn deduped(
        &mut self,
        keys: &[(InstanceId, CommandKind, Name)],
    ) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// The records held for these keys, by id.
    fn held_signals(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// How many signals are held for each of these keys beyond a moment, and of how many bytes; a key that none are held
    /// for may be left out.
    fn held_sizes(
        &mut self,
        keys: &[Key],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(Key, usize, u64)>>> + Send;

    /// How many bytes of arguments are pending in each of these inboxes; one that is empty may be left out. The rows are
    /// locked.
    fn pending_bytes(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, u64)>>> + Send;

    /// Inserts records.
    fn insert_commands(&mut self, commands: &[Command]) -> impl Future<Output = Result<()>> + Send;

    /// Writes records that were held over, whole.
    fn rewrite_commands(&mut self, commands: &[Command])
    -> impl Future<Output = Result<()>> + Send;

    /// Ends the life of records that are pending, `now`.
    fn close(
        &mut self,
        closings: &[Closing],
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// What is pending in these inboxes, as far as each look asks, with the instance, by instance and sequence.
    fn pending(
        &mut self,
        looks: &[(InstanceId, Look)],
    ) -> impl Future<Output = Result<Vec<(InstanceId, Pending)>>> + Send;

    /// The pending signals with these names up to that sequence, whole, by instance and sequence.
    fn awaited(
        &mut self,
        of: &[(InstanceId, Vec<Name>, Sequence)],
    ) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// The pending updates and cancellations of these instances, whole, by instance and sequence.
    fn updates(&mut self, of: &[InstanceId]) -> impl Future<Output = Result<Vec<Command>>> + Send;

    /// Stores events, in order; each with its place, and whether it is new: one of a type and id that there is already,
    /// in the same batch too, has the place of the first.
    fn store_events(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(EventSequence, bool)>>> + Send;

    /// Under which paths waiters of these types stand in the index, the empty one for those that stand under none; and
    /// on which paths waits look back.
    fn event_paths(&mut self, types: &[Name]) -> impl Future<Output = Result<EventPaths>> + Send;

    /// The waiters at these places of the index: type, path and value; not locked.
    fn waiters(
        &mut self,
        probes: &[(Name, String, String)],
    ) -> impl Future<Output = Result<Vec<Waiter>>> + Send;

    /// Inserts waiters, and counts them.
    fn open_waiters(&mut self, waiters: &[Waiter]) -> impl Future<Output = Result<()>> + Send;

    /// Deletes the waiters of these instances, and counts them off.
    fn close_waiters(
        &mut self,
        instances: &[InstanceId],
    ) -> impl Future<Output = Result<()>> + Send;

    /// How many waiters of these types there are, and which event of each is the newest; exact for who has the types
    /// alone. Those of which there is nothing may be left out.
    fn type_totals(
        &mut self,
        types: &[Name],
    ) -> impl Future<Output = Result<Vec<(Name, TypeTotal)>>> + Send;

    /// Of the events that say one of these values at a path, a page; `None` when no wait looks back on that path. The
    /// type is locked.
    fn look_up(
        &mut self,
        look: &LookUp<'_>,
        span: Span,
    ) -> impl Future<Output = Result<Option<(LookedBack, Looked)>>> + Send;

    /// Of all events of a type, a page.
    fn newest_events(
        &mut self,
        event_type: &Name,
        span: Span,
    ) -> impl Future<Output = Result<Looked>> + Send;

    /// The same; what it answers is not deleted before this transaction ends, and what another is about to delete is left
    /// out.
    fn hold_newest_events(
        &mut self,
        event_type: &Name,
        span: Span,
    ) -> impl Future<Output = Result<Looked>> + Send;

    /// Notes that waits look back on a path, of which nothing is noted yet; `None` when that many paths of the type are
    /// noted already. Its id was never given before, also when the path was noted before and forgotten. The type is
    /// locked.
    fn add_path(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> impl Future<Output = Result<Option<PathId>>> + Send;

    /// Notes that a path is used, unless another transaction has it locked.
    fn use_path(&mut self, id: PathId, now: Timestamp) -> impl Future<Output = Result<()>> + Send;

    /// Forgets paths that were not used since a moment, at most that many; how many there were. Their terms stay until
    /// their events go.
    fn forget_paths(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Writes terms of events, none of which there is yet.
    fn write_terms(&mut self, terms: &[Term]) -> impl Future<Output = Result<()>> + Send;

    /// The first events of a type above a place, in order.
    fn events_above(
        &mut self,
        event_type: &Name,
        above: EventSequence,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Event>>> + Send;

    /// Deletes events that were published before that moment with their terms, at most that many; how many there were.
    fn forget_events(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Gives what is pending with the first of each pair to the second.
    fn move_pending(
        &mut self,
        moves: &[(InstanceId, InstanceId)],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Marks held records whose time was up by `now` as expired, at most that many; how many there were.
    fn expire_held(
        &mut self,
        now: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Deletes records that no instance has and that came before that moment and are not held, at most that many.
    fn forget_records(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// The rows with these ids as they would be inserted anew; its state is the last one. By id.
    fn copies(
        &mut self,
        ids: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<(InstanceId, NewRow)>>> + Send;

    /// Marks runs that another follows: they hold no key any more, and have no place at their parent's barrier (their
    /// `parent_barrier` becomes 0).
    fn supersede(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<()>> + Send;

    /// The keys and unique keys of these instances, as far as they have any, each with the instance that holds it.
    fn holders(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<Vec<Holder>>> + Send;

    /// Writes a start into a row that was reserved: all that [`insert`](Self::insert) would write.
    fn open(&mut self, id: InstanceId, row: &NewRow) -> impl Future<Output = Result<()>> + Send;

    /// The children of these, of whatever barrier, that have not ended, by id; not locked.
    fn offspring(
        &mut self,
        parents: &[InstanceId],
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// The first workflows of these lanes above an id that are `scheduled` and due at no time, by id; not locked.
    fn blocked(
        &mut self,
        lanes: &[Lane],
        after: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// Which of these workers there are, living or not.
    fn known_workers(
        &mut self,
        workers: &[WorkerId],
    ) -> impl Future<Output = Result<Vec<WorkerId>>> + Send;

    /// The first instances above an id, by id; not locked.
    fn above(
        &mut self,
        after: InstanceId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Touched>>> + Send;

    /// What is known of these requests, which come distinct; in order. One that is answered [`New`](Recall::New) belongs to
    /// this transaction: until it ends every other one that asks is answered [`Running`](Recall::Running). Never waits for
    /// another transaction.
    fn recall(&mut self, ids: &[&RequestId]) -> impl Future<Output = Result<Vec<Recall>>> + Send;

    /// Writes the answers to requests that were new, each in JSON; none is written of one that was too large.
    fn remember(
        &mut self,
        answers: &[(&RequestId, Option<&str>)],
        now: Timestamp,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Deletes the answers to requests that were carried out before that moment, at most that many; how many there were.
    fn forget_requests(
        &mut self,
        before: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Deletes the histories of instances, and the records of what was sent to them but those that were accepted with a
    /// dedup key, which belong to the chain; at most that many rows. How many there were.
    fn trim(
        &mut self,
        ids: &[InstanceId],
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Deletes the records that were accepted with a dedup key in these chains.
    fn forget_chains(&mut self, chains: &[InstanceId]) -> impl Future<Output = Result<()>> + Send;

    /// Deletes instances, of which no history and no records are left but those of their chains.
    fn delete(&mut self, ids: &[InstanceId]) -> impl Future<Output = Result<()>> + Send;
}

/// What a store knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recall {
    /// It was not carried out, and nobody else is about to.
    New,
    /// Another transaction is carrying it out.
    Running,
    /// It was carried out.
    Done {
        /// What it asked for.
        fingerprint: Fingerprint,
        /// What it was answered, in JSON; none when that was too large to be kept.
        answer: Option<String>,
    },
}

/// A row that an operation is about to touch, with the partition that has to be locked before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The instance.
    pub id: InstanceId,
    /// Its partition.
    pub partition: Option<Key>,
}

/// A row whose own lease has run out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// The instance, with its partition.
    pub touched: Touched,
    /// Its parent, if that is still there: it has to be told if this one ends.
    pub parent: Option<ParentRef>,
    /// The name of the worker that held it.
    pub worker: Name,
}

/// A key of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The instance that has it.
    pub of: InstanceId,
    /// The key.
    pub key: AnyKey,
    /// The instance that holds it, if one does: its status is in the key's scope.
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

/// What there is of a type of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeTotal {
    /// How many waiters stand for it.
    pub waiters: usize,
    /// The place of the newest event; 0 when none is kept.
    pub newest: EventSequence,
}

/// Where publishers look for what concerns their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventPaths {
    /// Under which paths of which types waiters stand.
    pub waiters: Vec<(Name, String)>,
    /// On which paths of which types waits look back.
    pub looked_back: Vec<(Name, String, PathId)>,
}

impl EventPaths {
    /// Whether nothing concerns them.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.looked_back.is_empty()
    }
}

/// Which path of which type waits look back on. One that is forgotten and noted again has another id, so that nothing is
/// found under it that was written when terms were not written of all events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub i64);

/// A path that waits look back on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedBack {
    /// Its id.
    pub id: PathId,
    /// When a wait looked back on it, or a little earlier.
    pub used_at: Timestamp,
}

/// What an event says at a path that waits look back on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The path.
    pub path: PathId,
    /// What stands there, as in the index of waiters.
    pub value: String,
    /// The event.
    pub sequence: EventSequence,
    /// When it was published.
    pub published_at: Timestamp,
}

/// What a wait looks back for: events of a type that say one of these values at a path.
#[derive(Clone, Copy, Debug)]
pub struct LookUp<'a> {
    /// The type.
    pub event_type: &'a Name,
    /// The path.
    pub path: &'a str,
    /// The values, as in the index; distinct.
    pub values: &'a [String],
}

/// A page of events, newest first.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Below that place.
    pub below: EventSequence,
    /// Of those that were published earlier the page tells only that they are there.
    pub since: Timestamp,
    /// At most so many.
    pub limit: usize,
    /// It ends with the payload that makes this many bytes of them, all together.
    pub bytes: usize,
}

/// What was found on a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Those that were published since the moment asked for, newest first.
    pub events: Vec<Event>,
    /// How many there were with those that were published earlier.
    pub count: usize,
    /// The last of them; `None` when there are no more.
    pub last: Option<EventSequence>,
    /// How many bytes the payloads have, all together.
    pub bytes: usize,
}

impl Looked {
    /// Puts the next one on the page; `None` stands for one that was published too early. Whether the page has room for
    /// another.
    pub fn push(&mut self, sequence: EventSequence, event: Option<Event>, span: &Span) -> bool {
        self.last = Some(sequence);
        self.count += 1;
        self.bytes += event.as_ref().map_or(0, |event| event.payload.size());
        self.events.extend(event);
        self.count < span.limit && self.bytes < span.bytes
    }
}

/// An event that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Its type.
    pub event_type: Name,
    /// What it is known by.
    pub event_id: Name,
    /// What it says.
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

/// Who stands where in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The one at the front.
    pub front: Option<Contender>,
    /// The first in order of those that are runnable, with its queue.
    pub first: Option<(Contender, Name)>,
}

/// A finished instance whose retention is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiring {
    /// When it finished, and which it is.
    pub cursor: Cursor,
    /// The first run of its chain.
    pub chain: InstanceId,
    /// The parent at one of whose barriers it has its place.
    pub parent: Option<InstanceId>,
}

/// Rows to write, by shape: the three that are hot have statements of their own, which touch as little as they can.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// Scopes that have become smaller, to be written before all else.
    pub given_up: Vec<GivenUp>,
    /// Steps that went on under the same worker.
    pub advances: Vec<Advance<'a>>,
    /// Instances that ended.
    pub finishes: Vec<Finish<'a>>,
    /// Instances that a signal has come to.
    pub wakes: Vec<Wake<'a>>,
    /// All others: every column that can change but those of the lease.
    pub moves: Vec<Move<'a>>,
    /// Those whose lease differs, whatever else does. None that is not executing has one.
    pub leases: Vec<Leased>,
}

impl Changes<'_> {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.given_up.is_empty()
            && self.advances.is_empty()
            && self.finishes.is_empty()
            && self.wakes.is_empty()
            && self.moves.is_empty()
            && self.leases.is_empty()
    }
}

/// An instance that does not hold its keys any more in some of the statuses in which it did (rule 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The instance.
    pub id: InstanceId,
    /// These statuses.
    pub scopes: Scopes,
}

/// An instance whose hold has another lease than before, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The instance.
    pub id: InstanceId,
    /// The lease.
    pub lease: Option<Lease>,
}

/// A step that went on under the same worker. Only `step`, `step_seq`, `attempt`, `epoch`, `settled`, `cause`,
/// `history_seq` and the state differ, none of which is in any index.
#[derive(Debug)]
pub struct Advance<'a> {
    /// The row as it is to be.
    pub row: &'a Row,
    /// The new state; the old one stays when there is none.
    pub state: Option<&'a Json>,
}

/// An instance that was executing and has ended. Only `status`, `epoch`, `settled`, `history_seq`, `last_error`,
/// `finished_at` and the result differ; `worker`, `due_at` and what it waited for become null, `behind` false.
#[derive(Debug)]
pub struct Finish<'a> {
    /// The row as it is to be.
    pub row: &'a Row,
    /// What it came to.
    pub result: Option<&'a Json>,
}

/// An instance that a signal has come to. Only `status`, `due_at`, `behind`, `cause`, `history_seq` and the inbox differ.
#[derive(Debug)]
pub struct Wake<'a> {
    /// The row as it is to be.
    pub row: &'a Row,
}

/// Any other change.
#[derive(Debug)]
pub struct Move<'a> {
    /// The row as it is to be.
    pub row: &'a Row,
    /// The new state; the old one stays when there is none.
    pub state: Option<&'a Json>,
    /// What it came to; there is none before when there is none now.
    pub result: Option<&'a Json>,
}
