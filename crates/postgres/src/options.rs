//! Options for opening a store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::Clock;

use crate::Timeouts;

/// Options for opening a store. The defaults suit most uses.
///
/// ```
/// use abide_postgres::{Listen, Options};
///
/// // Behind pgbouncer in transaction mode, notices have to come by another way.
/// let direct = Listen::At("postgres://abide@db.internal:5432/orders".into());
/// let options = Options { listen: direct, pool_size: 4, ..Options::default() };
/// assert_eq!(options.pool_size, 4);
/// ```
#[derive(Clone)]
pub struct Options {
    /// Source of the time. `None` means the database server's clock, so that all processes that use the database agree.
    pub clock: Option<Arc<dyn Clock>>,
    /// Size limits.
    pub limits: Limits,
    /// Maximum number of open connections, in addition to the one that listens.
    pub pool_size: usize,
    /// Source of notifications about commits of other processes.
    pub listen: Listen,
    /// If `true`, migrates the schema to the newest version. If `false`, an outdated schema is an error.
    pub migrate: bool,
    /// Determines on which connections the hot statements are prepared.
    pub prepare: Prepare,
    /// Time limit for making a connection.
    pub connect_timeout: Duration,
    /// Time limits for operations that would otherwise block others.
    pub timeouts: Timeouts,
    /// PEM file with the certificates of trusted authorities, unless the URL names one (`sslrootcert`). With it, every
    /// encrypted connection is checked at least as strictly as with `sslmode=verify-ca`.
    pub authorities: Option<PathBuf>,
}

/// Determines on which connections the hot statements are prepared. The server then does not plan them each time, which
/// is most of the work of a small batch. Do not prepare behind a pooler that assigns connections per transaction, such
/// as pgbouncer in transaction mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prepare {
    /// Prepares if the connection is direct: the server reports the address and port that were connected to as its own.
    #[default]
    Auto,
    /// Always prepares.
    Always,
    /// Never prepares.
    Never,
}

/// Source of notifications about commits of other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// The database itself, over a separate connection.
    #[default]
    Here,
    /// The same database under another URL. LISTEN does not work through pgbouncer in transaction mode; this URL
    /// bypasses it.
    At(String),
    /// None: the slow poll finds what other processes do.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: None,
            limits: Limits::default(),
            pool_size: 8,
            listen: Listen::Here,
            migrate: true,
            prepare: Prepare::Auto,
            connect_timeout: Duration::from_secs(10),
            timeouts: Timeouts::default(),
            authorities: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("limits", &self.limits)
            .field("pool_size", &self.pool_size)
            .field("migrate", &self.migrate)
            .field("prepare", &self.prepare)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}
