//! A row for the tests of rules.

use crate::model::{
    BarrierNumber, Cause, Epoch, Family, Inbox, InstanceId, Kind, Name, Priority, Row, Run, Scopes,
    Settled, Status, Timestamp,
};

/// An instance of a machine without keys, partition, parent or wait, in that status.
pub fn row(status: Status) -> Row {
    Row {
        id: InstanceId(7),
        kind: Kind::Machine,
        machine: Name::stored("m"),
        created_at: Timestamp::MIN,
        status,
        scopes: Scopes::NONE,
        step: Name::stored("start"),
        step_seq: 1,
        attempt: 0,
        deaths: 0,
        queue: Name::stored("default"),
        priority: Priority::default(),
        due_at: None,
        partition_key: None,
        behind: false,
        worker: None,
        lease: None,
        epoch: Epoch(1),
        settled: Settled::default(),
        cause: Cause::Start,
        timed_out: false,
        awaits: None,
        attended: Vec::new(),
        aside: None,
        inbox: Inbox::default(),
        contract: None,
        run: Run::default(),
        parent: None,
        parent_barrier: BarrierNumber::default(),
        family: Family::default(),
        history: true,
        history_seq: 1,
        folding: Vec::new(),
        last_error: None,
        unfit: Vec::new(),
        finished_at: None,
    }
}
