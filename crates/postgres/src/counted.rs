//! Metrics of the connections.

use std::time::Duration;

use metrics::{Gauge, gauge, histogram};

/// An item that a gauge counts until it is dropped.
#[must_use]
pub(crate) struct Counted(Gauge);

impl Counted {
    /// Counts an open connection to the server, of any kind.
    pub fn open() -> Self {
        Self::new(gauge!("abide_pool_open"))
    }

    /// Counts a lent connection of the pool.
    pub fn in_use() -> Self {
        Self::new(gauge!("abide_pool_in_use"))
    }

    fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Reports the size of the pool. Repeated for each new connection, because a recorder may be installed later.
pub(crate) fn size(connections: usize) {
    gauge!("abide_pool_size").set(connections as f64);
}

/// Reports how long a caller has waited for a connection of the pool.
pub(crate) fn waited(time: Duration) {
    histogram!("abide_pool_wait_seconds").record(time);
}
