//! The changes of rows that a transaction writes.

use abide_core::model::{HistoryRow, InstanceId, Json, Lease, Row, Scopes};

/// Rows to write, by shape. The three most frequent shapes have their own statements, which write as few columns as
/// possible.
#[derive(Debug, Default)]
pub struct Changes<'a> {
    /// Scopes that became smaller. They are written before everything else.
    pub given_up: Vec<GivenUp>,
    /// Steps that continue under the same worker.
    pub advances: Vec<Advance<'a>>,
    /// Instances that ended.
    pub finishes: Vec<Finish<'a>>,
    /// Instances that received a signal.
    pub wakes: Vec<Wake<'a>>,
    /// All other changes: they write every column that can change, except those of the lease.
    pub moves: Vec<Move<'a>>,
    /// Rows whose lease differs, whatever else does. Only executing rows have a lease.
    pub leases: Vec<Leased>,
}

impl Changes<'_> {
    /// `true` if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.given_up.is_empty()
            && self.advances.is_empty()
            && self.finishes.is_empty()
            && self.wakes.is_empty()
            && self.moves.is_empty()
            && self.leases.is_empty()
    }
}

/// An instance that no longer holds its keys in some of the statuses in which it did (rule 2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// The instance.
    pub id: InstanceId,
    /// The statuses in which it no longer holds them.
    pub scopes: Scopes,
}

/// An instance whose claim has a different lease than before, or no lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The instance.
    pub id: InstanceId,
    /// The lease.
    pub lease: Option<Lease>,
}

/// A history row that replaces another (rule 16.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedHistory {
    /// The number of the row that is replaced.
    pub was: u32,
    /// The new row, which has a higher number.
    pub row: HistoryRow,
}

/// A step that continues under the same worker. Only `step`, `step_seq`, `attempt`, `epoch`, `settled`, `cause`,
/// `history_seq` and the state differ. None of them is in an index.
#[derive(Debug)]
pub struct Advance<'a> {
    /// The new row.
    pub row: &'a Row,
    /// The new state; `None` keeps the old one.
    pub state: Option<&'a Json>,
}

/// An instance that was executing and has ended. Only `status`, `epoch`, `settled`, `history_seq`, `last_error`,
/// `finished_at` and the result differ. `worker`, `due_at` and the columns of its wait become null, `behind` becomes
/// false.
#[derive(Debug)]
pub struct Finish<'a> {
    /// The new row.
    pub row: &'a Row,
    /// The result of the instance.
    pub result: Option<&'a Json>,
}

/// An instance that received a signal, or that refused a command. Only `status`, `due_at`, `behind`, `cause`,
/// `history_seq` and the inbox differ, and `waits` and `resumed` of its wait.
#[derive(Debug)]
pub struct Wake<'a> {
    /// The new row.
    pub row: &'a Row,
}

/// Any other change.
#[derive(Debug)]
pub struct Move<'a> {
    /// The new row.
    pub row: &'a Row,
    /// The new state; `None` keeps the old one.
    pub state: Option<&'a Json>,
    /// The result of the instance. `None` means that the row had no result before.
    pub result: Option<&'a Json>,
}
