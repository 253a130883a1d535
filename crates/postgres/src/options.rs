//! How a store is opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::Clock;

use crate::Timeouts;

/// How a store is opened. The defaults are right for most.
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
    /// Where the time comes from; the database server's clock when left out, so that all who use it agree.
    pub clock: Option<Arc<dyn Clock>>,
    /// How large things may get.
    pub limits: Limits,
    /// How many connections are open at most, besides the one that listens.
    pub pool_size: usize,
    /// Where word of other processes' commits comes from.
    pub listen: Listen,
    /// Whether to bring the schema up to date. When `false`, a schema that is not is an error.
    pub migrate: bool,
    /// Whether each connection has the hot statements prepared.
    pub prepare: Prepare,
    /// How long to wait for a connection to come about.
    pub connect_timeout: Duration,
    /// How long something that hangs may hold others up.
    pub timeouts: Timeouts,
    /// A PEM file with the certificates of the authorities to trust when the URL asks for TLS; those that the system
    /// trusts when left out.
    pub authorities: Option<PathBuf>,
}

/// Whether each connection has the hot statements prepared. That spares the server from planning them anew each time,
/// which for a small batch is most of the work; but it must not be behind a pool that gives every transaction another
/// connection, like pgbouncer in transaction mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prepare {
    /// When the server says that it is the one that was connected to: that the address and the port are its own.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where word of other processes' commits comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// From the database itself, by a connection of its own.
    #[default]
    Here,
    /// From the same database under another URL: LISTEN does not work through pgbouncer in transaction mode, so this
    /// leads past it.
    At(String),
    /// From nowhere: what other processes do is found by the slow poll.
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
