//! Rows that the writer need not read again, because it knows their content.

use std::collections::HashMap;

use abide_core::model::{InstanceId, Row};

/// Maximum number of cached rows; further executing rows are read when needed.
const ROWS_MAX: usize = 16_384;

/// Rows that are executing, as this connection wrote them last: they need not be read again for their outcome.
///
/// SQLite has one writer at a time. So a row is unchanged since this connection wrote it, unless another connection has
/// committed since, which `pragma data_version` shows, or the transaction that wrote it was rolled back. In both cases
/// the whole cache is cleared. Loading a row to change it removes it from the cache.
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
