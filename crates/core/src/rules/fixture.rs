//! A row for the tests of rules.

use crate::model::{Epoch, InstanceId, Name, Row, Status, Timestamp};

/// An instance of a machine without keys, partition, parent or wait, in that status.
pub fn row(status: Status) -> Row {
    let [machine, step, queue] = ["m", "start", "default"].map(Name::stored);
    Row {
        status,
        epoch: Epoch(1),
        ..Row::new(InstanceId(7), machine, step, queue, Timestamp::MIN)
    }
}
