//! One instance as it lies in memory, and the shapes in which it is handed out.

use abide_core::model::{
    Child, Claim, Claimed, Epoch, Family, Instance, InstanceId, Json, Key, Lane, Name, NewRow,
    ParentRef, Row, Scope, Timestamp, UniqueKey, WaitKind,
};

/// One instance: the part that rules decide over, and all the rest. Cheap to clone, however large its state is.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub row: Row,
    pub key: Option<Key>,
    pub scope: Scope,
    pub unique_key: Option<UniqueKey>,
    pub unique_scope: Scope,
    pub lane: Lane,
    pub first_step: Name,
    pub state: Json,
    pub result: Option<Json>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Record {
    /// The record of a new row.
    pub fn new(id: InstanceId, new: &NewRow) -> Self {
        Self {
            row: Row {
                id,
                kind: new.kind,
                status: new.status,
                scopes: new.scopes(),
                step: new.step.clone(),
                step_seq: 1,
                attempt: 0,
                queue: new.queue.clone(),
                priority: new.priority,
                due_at: Some(new.due_at),
                partition_key: new.partition_key.clone(),
                behind: new.behind,
                worker: None,
                lease: None,
                epoch: Epoch(0),
                settled: Epoch(0),
                cause: new.cause,
                timed_out: false,
                awaits: None,
                attended: Vec::new(),
                aside: None,
                inbox: new.inbox,
                contract: new.contract,
                run: new.run,
                parent: new.parent,
                parent_barrier: new.parent_barrier,
                family: Family::default(),
                history: new.history,
                // Event 1 is `started`, which the row itself tells.
                history_seq: u32::from(new.history),
                last_error: None,
                finished_at: None,
            },
            key: new.key.clone(),
            scope: new.scope,
            unique_key: new.unique_key.clone(),
            unique_scope: new.unique_scope,
            lane: Lane {
                machine: new.machine.clone(),
                version: new.version,
            },
            first_step: new.step.clone(),
            state: new.state.clone(),
            result: None,
            created_at: new.created_at,
            updated_at: new.created_at,
        }
    }

    /// The row that it was made of, with the state that it has come to.
    pub fn to_new_row(&self) -> NewRow {
        let row = &self.row;
        NewRow {
            kind: row.kind,
            machine: self.lane.machine.clone(),
            version: self.lane.version,
            step: row.step.clone(),
            state: self.state.clone(),
            status: row.status,
            cause: row.cause,
            key: self.key.clone(),
            scope: self.scope,
            unique_key: self.unique_key.clone(),
            unique_scope: self.unique_scope,
            queue: row.queue.clone(),
            priority: row.priority,
            due_at: row.due_at.unwrap_or_default(),
            partition_key: row.partition_key.clone(),
            behind: row.behind,
            parent: row.parent,
            parent_barrier: row.parent_barrier,
            history: row.history,
            contract: row.contract,
            run: row.run,
            inbox: row.inbox,
            created_at: self.created_at,
        }
    }

    /// The record as readers see it.
    pub fn to_instance(&self) -> Instance {
        let row = &self.row;
        Instance {
            id: row.id,
            key: self.key.clone(),
            scope: self.scope,
            unique_key: self.unique_key.clone(),
            unique_scope: self.unique_scope,
            kind: row.kind,
            machine: self.lane.machine.clone(),
            version: self.lane.version,
            first_step: self.first_step.clone(),
            step: row.step.clone(),
            step_seq: row.step_seq,
            attempt: row.attempt,
            status: row.status,
            state: self.state.clone(),
            result: self.result.clone(),
            last_error: row.last_error.clone(),
            queue: row.queue.clone(),
            priority: row.priority,
            due_at: row.due_at,
            partition_key: row.partition_key.clone(),
            behind: row.behind,
            worker: row.worker,
            cause: row.cause,
            timed_out: row.timed_out,
            wait_kind: row.awaits.as_ref().map(|awaits| awaits.kind),
            awaits: row
                .awaits
                .as_ref()
                .map(|awaits| awaits.names.clone())
                .unwrap_or_default(),
            wait_since: row.awaits.as_ref().map(|awaits| awaits.since),
            wait_id: row.awaits.as_ref().and_then(|awaits| awaits.id.clone()),
            aside: row.aside,
            inbox: row.inbox,
            contract: row.contract,
            run: row.run,
            children_needed: row.family.needed,
            parent: row.parent,
            parent_barrier: row.parent_barrier,
            barrier: row.family.barrier,
            children_pending: row.family.pending,
            history: row.history,
            history_events: row.history_seq,
            created_at: self.created_at,
            updated_at: self.updated_at,
            finished_at: row.finished_at,
        }
    }

    /// The record as its parent sees it.
    pub fn to_child(&self) -> Child {
        Child {
            id: self.row.id,
            key: self.key.clone(),
            machine: self.lane.machine.clone(),
            status: self.row.status,
            state: self.state.clone(),
            result: self.result.clone(),
            last_error: self.row.last_error.clone(),
        }
    }

    /// The record as a claim hands it out, when a worker holds it.
    pub fn to_claimed(&self, parent: Option<ParentRef>) -> Option<Claimed> {
        let row = &self.row;
        let joins = row
            .awaits
            .as_ref()
            .filter(|awaits| awaits.kind == WaitKind::Children);
        Some(Claimed {
            claim: Claim::granted(
                row.id,
                row.epoch,
                row.worker?,
                row.partition_key.clone(),
                parent,
            ),
            key: self.key.clone(),
            kind: row.kind,
            machine: self.lane.machine.clone(),
            version: self.lane.version,
            step: row.step.clone(),
            step_seq: row.step_seq,
            attempt: row.attempt,
            state: self.state.clone(),
            queue: row.queue.clone(),
            priority: row.priority,
            due_at: row.due_at?,
            cause: row.cause,
            timed_out: row.timed_out,
            joins: joins.map(|_| row.family.barrier),
            children_pending: row.family.pending,
            children_ended: row.family.ended,
            children: Vec::new(),
            awaited: Vec::new(),
            updates: Vec::new(),
            aside: row.aside.is_some(),
            inbox: row.inbox,
            awaits: row
                .awaits
                .as_ref()
                .filter(|awaits| matches!(awaits.kind, WaitKind::Signal | WaitKind::Event))
                .map(|awaits| awaits.names.clone())
                .unwrap_or_default(),
        })
    }
}
