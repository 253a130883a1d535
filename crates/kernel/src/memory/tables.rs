//! The tables, and the undo log for a transaction that fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::model::{
    Command, CommandId, ContractId, Declared, Document, DocumentKind, Event, EventSequence,
    Fingerprint, HistoryRow, Instance, InstanceId, Json, Lane, Name, Timestamp, Waiter, Worker,
    WorkerId,
};

use super::commands::Commands;
use super::events::{Events, Spot};
use super::index::Index;
use super::lookback::{Lookback, TermKey};
use crate::{Error, LookbackPath, PathId, Result};

/// All data of the store.
#[derive(Debug, Default)]
pub(super) struct Tables {
    records: BTreeMap<InstanceId, Arc<Instance>>,
    history: BTreeMap<InstanceId, Vec<Noted>>,
    workers: BTreeMap<WorkerId, Worker>,
    declared: BTreeMap<Lane, Declared>,
    commands: Commands,
    contracts: BTreeMap<ContractId, (Json, Timestamp)>,
    documents: BTreeMap<(DocumentKind, Name), Document>,
    requests: BTreeMap<RequestKey, Carried>,
    events: Events,
    lookback: Lookback,
    index: Index,
    /// The last numbers issued. They never decrease, even if a transaction is rolled back.
    last_id: i64,
    last_worker: i64,
    last_command: i64,
}

/// A history row, and the number of its last event.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub row: HistoryRow,
    pub last: u32,
}

/// The identity of a request: caller, key and part.
pub(super) type RequestKey = (String, Name, u32);

/// A request that was carried out.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub fingerprint: Fingerprint,
    pub answer: Option<String>,
    pub at: Timestamp,
}

/// One change, as the data that was there before it.
#[derive(Debug)]
pub(super) enum Undo {
    Record(InstanceId, Option<Arc<Instance>>),
    /// The number of the new history row.
    Appended(InstanceId, u32),
    /// The history row that was replaced by the row with this number.
    Moved(InstanceId, Noted, u32),
    /// The whole history, which was deleted.
    Forgotten(InstanceId, Vec<Noted>),
    Worker(WorkerId, Option<Worker>),
    Declared(Lane, Option<Declared>),
    Command(CommandId, Option<Arc<Command>>),
    Contract(ContractId, Option<(Json, Timestamp)>),
    Document((DocumentKind, Name), Option<Document>),
    Request(RequestKey, Option<Carried>),
    Event(EventSequence, Option<Event>),
    Waiter(Spot, Option<Box<Waiter>>),
    Path((Name, String), Option<LookbackPath>),
    Term(TermKey, Option<Timestamp>),
}

impl Tables {
    pub fn records(&self) -> &BTreeMap<InstanceId, Arc<Instance>> {
        &self.records
    }

    pub fn workers(&self) -> &BTreeMap<WorkerId, Worker> {
        &self.workers
    }

    pub fn declared(&self) -> &BTreeMap<Lane, Declared> {
        &self.declared
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn history(&self, id: InstanceId) -> &[Noted] {
        self.history.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn next_id(&mut self) -> InstanceId {
        self.last_id += 1;
        InstanceId(self.last_id)
    }

    pub fn next_worker(&mut self) -> WorkerId {
        self.last_worker += 1;
        WorkerId(self.last_worker)
    }

    /// Writes or removes a record. If it is refused, nothing has changed.
    pub fn put(&mut self, id: InstanceId, record: Option<Arc<Instance>>) -> Result<Undo> {
        let was = self.records.get(&id);
        self.index.change(was.map(Arc::as_ref), record.as_deref())?;
        let was = match record {
            Some(record) => self.records.insert(id, record),
            None => self.records.remove(&id),
        };
        Ok(Undo::Record(id, was))
    }

    /// Writes a row into a history, whose rows are ordered by number: nearly always at the end.
    pub fn append(&mut self, id: InstanceId, noted: Noted) -> Undo {
        let seq = noted.row.seq;
        let rows = self.history.entry(id).or_default();
        let at = rows.partition_point(|before| before.row.seq < seq);
        rows.insert(at, noted);
        Undo::Appended(id, seq)
    }

    /// Replaces a row of a history.
    pub fn move_row(&mut self, id: InstanceId, was: u32, noted: Noted) -> Result<Undo> {
        let Some(gone) = self.take_row(id, was) else {
            let problem = format!("the history of instance {id} has no row {was}");
            return Err(Error::Broken(problem));
        };
        let seq = noted.row.seq;
        self.append(id, noted);
        Ok(Undo::Moved(id, gone, seq))
    }

    fn take_row(&mut self, id: InstanceId, seq: u32) -> Option<Noted> {
        let rows = self.history.get_mut(&id)?;
        let at = rows
            .binary_search_by_key(&seq, |noted| noted.row.seq)
            .ok()?;
        let gone = rows.remove(at);
        if rows.is_empty() {
            self.history.remove(&id);
        }
        Some(gone)
    }

    pub fn forget(&mut self, id: InstanceId) -> Option<Undo> {
        self.history
            .remove(&id)
            .map(|rows| Undo::Forgotten(id, rows))
    }

    pub fn put_worker(&mut self, id: WorkerId, worker: Option<Worker>) -> Undo {
        Undo::Worker(id, put(&mut self.workers, &id, worker))
    }

    pub fn put_declared(&mut self, lane: Lane, declared: Option<Declared>) -> Undo {
        let was = put(&mut self.declared, &lane, declared);
        Undo::Declared(lane, was)
    }

    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    pub fn next_command(&mut self) -> CommandId {
        self.last_command += 1;
        CommandId(self.last_command)
    }

    pub fn put_command(&mut self, id: CommandId, command: Option<Arc<Command>>) -> Result<Undo> {
        Ok(Undo::Command(id, self.commands.put(id, command)?))
    }

    /// Returns the contracts, each with its last recorded use.
    pub fn contracts(&self) -> &BTreeMap<ContractId, (Json, Timestamp)> {
        &self.contracts
    }

    pub fn put_contract(&mut self, id: ContractId, contract: Option<(Json, Timestamp)>) -> Undo {
        Undo::Contract(id, put(&mut self.contracts, &id, contract))
    }

    pub fn documents(&self) -> &BTreeMap<(DocumentKind, Name), Document> {
        &self.documents
    }

    pub fn put_document(&mut self, at: (DocumentKind, Name), document: Option<Document>) -> Undo {
        let was = put(&mut self.documents, &at, document);
        Undo::Document(at, was)
    }

    pub fn requests(&self) -> &BTreeMap<RequestKey, Carried> {
        &self.requests
    }

    pub fn put_request(&mut self, key: RequestKey, carried: Option<Carried>) -> Undo {
        let was = put(&mut self.requests, &key, carried);
        Undo::Request(key, was)
    }

    pub fn events(&self) -> &Events {
        &self.events
    }

    pub fn next_event(&mut self) -> EventSequence {
        self.events.next()
    }

    pub fn put_event(&mut self, at: EventSequence, event: Option<Event>) -> Undo {
        Undo::Event(at, self.events.put(at, event))
    }

    pub fn put_waiter(&mut self, spot: Spot, waiter: Option<Waiter>) -> Undo {
        let was = self.events.put_waiter(&spot, waiter);
        Undo::Waiter(spot, was.map(Box::new))
    }

    pub fn lookback(&self) -> &Lookback {
        &self.lookback
    }

    pub fn next_path(&mut self) -> PathId {
        self.lookback.next()
    }

    pub fn put_path(&mut self, at: (Name, String), path: Option<LookbackPath>) -> Undo {
        let was = self.lookback.put_path(&at, path);
        Undo::Path(at, was)
    }

    pub fn put_term(&mut self, at: TermKey, published_at: Option<Timestamp>) -> Undo {
        let was = self.lookback.put_term(&at, published_at);
        Undo::Term(at, was)
    }

    /// Undoes changes, the last one first.
    pub fn undo(&mut self, log: &mut Vec<Undo>) {
        while let Some(undo) = log.pop() {
            match undo {
                Undo::Record(id, was) => {
                    // The previous record was valid, so it is valid again.
                    let restored = self.put(id, was);
                    debug_assert!(restored.is_ok(), "{restored:?}");
                }
                Undo::Appended(id, seq) => {
                    let taken = self.take_row(id, seq);
                    debug_assert!(taken.is_some(), "row {seq} of instance {id}");
                }
                Undo::Moved(id, was, seq) => {
                    let moved = self.move_row(id, seq, was);
                    debug_assert!(moved.is_ok(), "{moved:?}");
                }
                Undo::Forgotten(id, rows) => {
                    self.history.insert(id, rows);
                }
                Undo::Worker(id, was) => {
                    self.put_worker(id, was);
                }
                Undo::Command(id, was) => {
                    let restored = self.put_command(id, was);
                    debug_assert!(restored.is_ok(), "{restored:?}");
                }
                Undo::Contract(id, was) => {
                    self.put_contract(id, was);
                }
                Undo::Document(at, was) => {
                    self.put_document(at, was);
                }
                Undo::Request(key, was) => {
                    self.put_request(key, was);
                }
                Undo::Event(at, was) => {
                    self.put_event(at, was);
                }
                Undo::Waiter(spot, was) => {
                    self.put_waiter(spot, was.map(|was| *was));
                }
                Undo::Path(at, was) => {
                    self.put_path(at, was);
                }
                Undo::Term(at, was) => {
                    self.put_term(at, was);
                }
                Undo::Declared(lane, was) => {
                    self.put_declared(lane, was);
                }
            }
        }
    }
}

fn put<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    }
}
