//! Options for opening a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::Clock;

/// Options for opening a store. The defaults are durable and suitable for production.
///
/// ```
/// use abide_sqlite::{Options, Synchronous};
///
/// let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
/// assert_eq!(options.readers, 4);
/// ```
#[derive(Clone)]
pub struct Options {
    /// Source of the time; `None` means this computer's clock.
    pub clock: Option<Arc<dyn Clock>>,
    /// Size limits.
    pub limits: Limits,
    /// Durability after a loss of power.
    pub synchronous: Synchronous,
    /// Maximum wait for another process that is writing; then a transaction fails as a conflict.
    pub busy_timeout: Duration,
    /// Number of reads that may run in parallel; at least one.
    pub readers: usize,
    /// If `true`, creates a missing file and migrates its tables to the newest version. If `false`, a file whose tables
    /// are not those of this release is refused, and nothing is written to it.
    pub migrate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: None,
            limits: Limits::default(),
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            readers: 4,
            migrate: true,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("clock", &self.clock.as_ref().map(|_| "given"))
            .field("limits", &self.limits)
            .field("synchronous", &self.synchronous)
            .field("busy_timeout", &self.busy_timeout)
            .field("readers", &self.readers)
            .field("migrate", &self.migrate)
            .finish()
    }
}

/// Durability after a loss of power, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// Every commit is on the disk before it is acknowledged. Commits that wait at the same time share one sync.
    #[default]
    Full,
    /// A commit survives the end of the process at once, and a loss of power only some time later: the last commits may
    /// then be lost, all those after some point in time, but the file stays consistent. This is less than abide
    /// promises (rule 1.1); use it for tests, and for data that can be recreated.
    Normal,
}

impl Synchronous {
    pub(crate) const fn pragma(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}
