//! Rows that the writer need not read again, because it knows what is in them.

use std::collections::HashMap;

use abide_core::model::{InstanceId, Row};

/// How many rows are kept at most; more executing ones are read when they are needed.
const ROWS_MAX: usize = 16_384;

/// Rows that are executing, as this connection wrote them last: when their outcome comes, they need not be read again.
///
/// SQLite has one writer at a time. So a row is as this connection left it unless another connection has committed
/// since, which `pragma data_version` tells, or the transaction that left it so was rolled back. In both cases all is
/// forgotten. Whoever loads a row to change it takes it out.
#[derive(Default)]
pub(crate) struct Cache(HashMap<InstanceId, Row>);

impl Cache {
    pub fn take(&mut self, id: InstanceId) -> Option<Row> {
        self.0.remove(&id)
    }

    pub fn keep(&mut self, row: Row) {
        if self.0.len() < ROWS_MAX {
            self.0.insert(row.id, row);
        }
    }

    pub fn forget(&mut self) {
        self.0.clear();
    }
}
