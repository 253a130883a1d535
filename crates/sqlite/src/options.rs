//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::Clock;

/// How a store is opened. The defaults are durable and fit for production.
///
/// ```
/// use abide_sqlite::{Options, Synchronous};
///
/// let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
/// assert_eq!(options.readers, 4);
/// ```
#[derive(Clone)]
pub struct Options {
    /// Where the time is taken from; this computer's clock when left out.
    pub clock: Option<Arc<dyn Clock>>,
    /// How large things may get.
    pub limits: Limits,
    /// What survives a loss of power.
    pub synchronous: Synchronous,
    /// How long to wait for another process that is writing, before a transaction is given up as a conflict.
    pub busy_timeout: Duration,
    /// How many reads may run side by side; at least one.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: None,
            limits: Limits::default(),
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            readers: 4,
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
            .finish()
    }
}

/// What survives a loss of power, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Every commit is on the disk before it is answered. Commits that wait together share one sync.
    #[default]
    Full,
    /// A commit survives the end of the process at once, and a loss of power some time later: the last commits may be
    /// lost then, all of what came after some moment, and the file stays sound. This is less than what abide promises
    /// (rule 1.1); it is for tests, and for data that can be had again.
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
