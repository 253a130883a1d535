//! The reads of a transaction as data: `Load`, and `Loads`, its typed form.

use std::future::Future;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandKind, ContractId, Declared, Event, EventSequence,
    InstanceId, Json, Key, Lane, Name, NewRow, Pending, Policies, Priority, Sequence, Target,
    Timestamp, Waiter, Worker, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_core::rules::retention::Kin;

use crate::{
    Cursor, EventLookup, EventPaths, Expiring, Found, FoundEvents, Holder, Lapsed, LookbackPath,
    Partition, Result, Span, Surroundings, Touched, Txn, TypeTotal,
};

/// Declares the reads: each is a variant of [`Load`] with a place for its result, and a method of [`Loads`].
macro_rules! loads {
    ($($(#[$doc:meta])* $method:ident = $variant:ident($($name:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// A read of a transaction. The last field of each is the place for its result. [`Loads`] has a
        /// method for each.
        #[derive(Debug)]
        pub enum Load<'r> {
            $($(#[$doc])* $variant($($kind,)* &'r mut $result),)*
        }

        /// The reads of a transaction. Unless one says otherwise, it locks nothing.
        pub trait Loads: Txn {
            $(
                $(#[$doc])*
                fn $method<'r>(
                    &'r mut self,
                    $($name: $kind,)*
                ) -> impl Future<Output = Result<$result>> + Send + 'r {
                    async move {
                        let mut found = <$result>::default();
                        self.load(Load::$variant($($name,)* &mut found)).await?;
                        Ok(found)
                    }
                }
            )*
        }
    };
}

impl<T: Txn> Loads for T {}

loads! {
    /// Returns the run that each target refers to: the run with that id, or the newest with that key. In order.
    find = Find(targets: &'r [Target]) -> Vec<Option<Found>>;

    /// Returns the newest run of each of these chains, as (chain, run). Chains without a run are left out.
    newest = Newest(chains: &'r [InstanceId]) -> Vec<(InstanceId, InstanceId)>;

    /// Returns the declarations of these machines.
    declared = Declared(machines: &'r [Name]) -> Vec<Declared>;

    /// Returns the error policies of these instances: those given at the start, and those that the machine has
    /// declared. Instances with neither are left out.
    policies = Policies(ids: &'r [InstanceId]) -> Vec<(InstanceId, Policies)>;

    /// Returns the status and parent of these instances. Instances that do not exist are left out.
    kin = Kin(ids: &'r [InstanceId]) -> Vec<(InstanceId, Kin)>;

    /// Returns the rows with these ids in the form in which they would be inserted anew, by id. The state is the last
    /// one.
    copies = Copies(ids: &'r [InstanceId]) -> Vec<(InstanceId, NewRow)>;

    /// Returns the keys and unique keys that these instances have, each with the instance that holds it.
    holders = Holders(ids: &'r [InstanceId]) -> Vec<Holder>;

    /// Returns those of these rows that are reserved and not started. The ids must be sorted and distinct.
    reserved = Reserved(ids: &'r [InstanceId]) -> Vec<InstanceId>;

    /// Returns the children of these parents, at any barrier, that have not ended, by id.
    live_children = LiveChildren(parents: &'r [InstanceId]) -> Vec<Touched>;

    /// Returns the first instances above an id, by id.
    above = Above(after: InstanceId, limit: usize) -> Vec<Touched>;

    /// Returns the surroundings of these instances, in any order; see [`Store::around`](crate::Store::around). The
    /// instances must be locked and distinct.
    around = Around(ids: &'r [InstanceId]) -> Vec<Surroundings>;

    /// Returns the children of each of these barriers, by id.
    children = Children(barriers: &'r [(InstanceId, BarrierNumber)]) -> Vec<(InstanceId, Child)>;

    /// Returns the total size in bytes of the states, results and errors of each barrier's children. A barrier without
    /// children may be left out. Reads only sizes.
    children_bytes = ChildrenBytes(barriers: &'r [(InstanceId, BarrierNumber)]) -> Vec<(InstanceId, u64)>;

    /// Returns, for each partition, the row at the front (runnable or executing, and not behind) and the first of its
    /// runnable rows. Both are locked.
    partitions = Partitions(keys: &'r [Key]) -> Vec<Partition>;

    /// Returns the priority of the row that [`claim`](Txn::claim) would take first.
    waiting = Waiting(queue: &'r Name, lanes: &'r [Lane]) -> Option<Priority>;

    /// Returns the first rows, `scheduled` or `awaiting`, that are due, after skipping `skip` of them.
    due = Due(now: Timestamp, skip: usize, limit: usize) -> Vec<Touched>;

    /// Returns the earliest time after `now` at which a row is due or a lease expires.
    due_after = DueAfter(now: Timestamp) -> Option<Timestamp>;

    /// Returns the first `executing` rows whose own lease has expired, after skipping `skip` of them, ordered by expiry
    /// time and id.
    lapsed = Lapsed(now: Timestamp, skip: usize, limit: usize) -> Vec<Lapsed>;

    /// Returns the first instances of these lanes above an id that are `scheduled` without a due time, by id, except
    /// those that are [`unfit`](abide_core::model::Row::unfit) for the build `unless`.
    blocked = Blocked(lanes: &'r [Lane], unless: Option<&'r Name>, after: InstanceId, limit: usize) -> Vec<Touched>;

    /// Returns the rows that a worker holds above `after`, by id, in whose step workers have died at least `deaths`
    /// times.
    held = Held(worker: WorkerId, after: InstanceId, deaths: u32, limit: usize) -> Vec<Touched>;

    /// Returns at most `limit` rows that these workers hold, by worker and id. The workers must be sorted and distinct.
    held_by = HeldBy(workers: &'r [WorkerId], limit: usize) -> Vec<(WorkerId, Touched)>;

    /// Returns the first rows that finished before `before`, after the cursor, in the order in which they finished.
    /// Skips rows that another transaction has locked.
    expiring = Expiring(before: Timestamp, after: Option<Cursor>, limit: usize) -> Vec<Expiring>;

    /// Returns at most `limit` children of these parents that finished before `before` and have a place at a barrier,
    /// in any order. Skips rows that another transaction has locked.
    expired_children = ExpiredChildren(parents: &'r [InstanceId], before: Timestamp, limit: usize) -> Vec<Expiring>;

    /// Returns the workers with this name, living or not, by id. No other transaction can add a worker with this name
    /// before this one ends.
    workers_named = WorkersNamed(name: &'r Name) -> Vec<Worker>;

    /// Returns the workers that hold claims and are not alive: their lease has expired, or they are not (or no longer)
    /// known. Ordered by id, with the names of those that are known. The cost depends on how many claims dead and
    /// living workers hold, not on how many workers have died.
    dead_holders = DeadHolders(now: Timestamp) -> Vec<(WorkerId, Option<Name>)>;

    /// Returns the [builds](Worker::build) of those of these workers that are known, living or not, in any order.
    builds = Builds(workers: &'r [WorkerId]) -> Vec<(WorkerId, Name)>;

    /// Returns the pending commands of these inboxes that each selection needs, with the instance, by instance and
    /// sequence.
    pending = Pending(needs: &'r [(InstanceId, InboxNeeds)]) -> Vec<(InstanceId, Pending)>;

    /// Returns the total size in bytes of the pending arguments in each of these inboxes. An empty inbox may be left
    /// out. The rows must be locked.
    pending_bytes = PendingBytes(ids: &'r [InstanceId]) -> Vec<(InstanceId, u64)>;

    /// Returns the pending signals with these names up to that sequence, complete, by instance and sequence.
    awaited = Awaited(of: &'r [(InstanceId, Vec<Name>, Sequence)]) -> Vec<Command>;

    /// Returns the pending updates and cancellations of these instances, complete, by instance and sequence.
    updates = Updates(of: &'r [InstanceId]) -> Vec<Command>;

    /// Returns the signals that a step of an instance has consumed, by sequence.
    applied = Applied(instance: InstanceId, step_sequence: u32) -> Vec<Command>;

    /// Returns the records that were accepted in these chains with these dedup keys.
    deduped = Deduped(keys: &'r [(InstanceId, CommandKind, Name)]) -> Vec<Command>;

    /// Returns the records held for these keys, by id.
    held_signals = HeldSignals(keys: &'r [Key]) -> Vec<Command>;

    /// Returns the number and total size in bytes of the signals that are held for each of these keys until after
    /// `now`. A key without held signals may be left out.
    held_sizes = HeldSizes(keys: &'r [Key], now: Timestamp) -> Vec<(Key, usize, u64)>;

    /// Returns the paths under which waiters of these types are indexed, the empty path for those indexed under none,
    /// and the paths on which waits look back.
    event_paths = EventPaths(types: &'r [Name]) -> EventPaths;

    /// Returns the waiters at these entries of the index: type, path and value.
    waiters = Waiters(probes: &'r [(Name, String, String)]) -> Vec<Waiter>;

    /// Returns the number of waiters and the newest event of each of these types. The totals are exact if this
    /// transaction has locked the types alone. Types without waiters and events may be left out.
    type_totals = TypeTotals(types: &'r [Name]) -> Vec<(Name, TypeTotal)>;

    /// Returns a page of the events that have one of these values at a path. Returns `None` if no wait looks back on
    /// that path. The type must be locked.
    look_up = LookUp(lookup: &'r EventLookup<'r>, span: Span) -> Option<(LookbackPath, FoundEvents)>;

    /// Returns a page of all events of a type.
    newest_events = NewestEvents(event_type: &'r Name, span: Span) -> FoundEvents;

    /// Returns the same as `newest_events`. The returned events are not deleted before this transaction ends; events
    /// that another transaction is about to delete are left out.
    hold_newest_events = HoldNewestEvents(event_type: &'r Name, span: Span) -> FoundEvents;

    /// Returns the first events of a type above a sequence, in order.
    events_above = EventsAbove(event_type: &'r Name, above: EventSequence, limit: usize) -> Vec<Event>;

    /// Returns the contracts with these ids.
    contracts = Contracts(ids: &'r [ContractId]) -> Vec<(ContractId, Json)>;

    /// Returns the first instances above an id, by id, each with the contract that it names.
    named_contracts = NamedContracts(above: InstanceId, limit: usize) -> Vec<(InstanceId, Option<ContractId>)>;

    /// Returns and locks the contracts whose last recorded use is before `before` and that no machine declares, by id.
    unused_contracts = UnusedContracts(before: Timestamp, limit: usize) -> Vec<ContractId>;
}
