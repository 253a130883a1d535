//! One instance in memory, and the forms in which it is returned.

use abide_core::model::{
    Child, Claim, Claimed, Command, Declared, Epoch, Family, Instance, InstanceId, Json, Key, Lane,
    Name, NewRow, ParentRef, Pending, Policies, Policy, Row, Scope, Settled, Timestamp, UniqueKey,
    WaitKind,
};

/// One instance: the row that the rules decide on, and all other data. Cheap to clone, however large its state is.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub row: Row,
    pub key: Option<Key>,
    pub scope: Scope,
    pub unique_key: Option<UniqueKey>,
    pub unique_scope: Scope,
    pub lane: Lane,
    pub first_step: Name,
    pub policy: Option<Policy>,
    pub state: Json,
    pub result: Option<Json>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Converts a pending command to the form that the rules use.
pub(super) fn to_pending(command: &Command) -> Pending {
    Pending {
        id: command.id,
        kind: command.kind,
        name: command.name.clone(),
        sequence: command.sequence.unwrap_or_default(),
        command_sequence: command.command_sequence,
        wait_id: command.wait_id.clone(),
    }
}

impl Record {
    /// Creates the record of a new row.
    pub fn new(id: InstanceId, new: &NewRow) -> Self {
        Self {
            row: Row {
                id,
                kind: new.kind,
                machine: new.machine.clone(),
                created_at: new.created_at,
                status: new.status,
                scopes: new.scopes(),
                step: new.step.clone(),
                step_seq: 1,
                attempt: 0,
                deaths: 0,
                queue: new.queue.clone(),
                priority: new.priority,
                due_at: Some(new.due_at),
                partition_key: new.partition_key.clone(),
                behind: new.behind,
                worker: None,
                lease: None,
                epoch: Epoch(0),
                settled: Settled::default(),
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
                // Event 1 is `started`, which the row itself represents.
                history_seq: u32::from(new.history),
                folding: Vec::new(),
                last_error: None,
                unfit: Vec::new(),
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
            policy: new.policy.clone(),
            state: new.state.clone(),
            result: None,
            created_at: new.created_at,
            updated_at: new.created_at,
        }
    }

    /// Returns the row from which it was created, with the current state.
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
            policy: self.policy.clone(),
            run: row.run,
            inbox: row.inbox,
            created_at: self.created_at,
        }
    }

    /// Returns the record in the form for readers.
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
            deaths: row.deaths,
            status: row.status,
            state: self.state.clone(),
            result: self.result.clone(),
            last_error: row.last_error.clone(),
            unfit: row.unfit.clone(),
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
            waits: row
                .awaits
                .as_ref()
                .map(|awaits| awaits.waits.clone())
                .unwrap_or_default(),
            resume_source: row.awaits.as_ref().and_then(|awaits| awaits.resumed),
            aside: row.aside,
            inbox: row.inbox,
            contract: row.contract,
            policy: self.policy.clone(),
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

    /// Returns its error policies; `None` if neither it nor its machine has any.
    pub fn policies(&self, declared: Option<&Declared>) -> Option<Policies> {
        let of = Policies {
            own: self.policy.clone(),
            declared: declared.and_then(Declared::policy),
        };
        (of != Policies::default()).then_some(of)
    }

    /// Returns the record in the form for its parent.
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

    /// Returns the record in the form of a claim, if a worker holds it.
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
            deaths: row.deaths,
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
            policy: self.policy.clone(),
        })
    }
}
