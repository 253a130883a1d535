//! The functions that an application calls: start an instance, send it signals and updates, wait for its result, read
//! it.

mod address;
mod handle;
mod once;
mod operate;
mod publish;
mod query;
mod signal;
mod start;
mod update;
mod waits;
mod watch;
mod within;

pub use address::Address;
pub use handle::{Handle, NotDone};
pub(crate) use once::{Calls, Repeatable, first};
pub use operate::{Cancelled, Cancelling, Description, Diagnosis, OperateError, Restarting};
pub(crate) use operate::{describe, describe_page, doctor, repair};
pub use publish::{Publication, event_of};
pub use query::QueryError;
pub(crate) use signal::receipt;
pub use signal::{Receipt, Rejected, SendError, SignalBuilder, new_signal, new_signal_named};
pub use start::{StartBuilder, StartError, new_start};
pub use update::{UpdateBuilder, UpdateError, UpdateHandle};
pub use waits::{OpenWait, WaitsFilter};
pub(crate) use watch::{Ends, Replies, Watch};
pub use within::Within;

use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide_core::model::{ContractId, Limits};
use abide_kernel::Store;
use abide_kernel::committer::{Committer, Deliveries, Events, Starts, Submit};

/// The client that every call goes through. A clone costs two reference counts; each call has its own clone.
#[derive(Clone)]
pub struct Client {
    parts: Arc<Parts>,
    /// The request that all calls belong to, if any.
    pub(crate) calls: Option<Arc<Calls>>,
}

impl Client {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts: Arc::new(parts),
            calls: None,
        }
    }
}

impl std::ops::Deref for Client {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// The parts that all calls on one store share.
pub struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) committer: Committer,
    /// Time that calls wait for an unavailable database.
    pub(crate) patience: Duration,
    pub(crate) submit: Submit<Starts>,
    pub(crate) commands: Submit<Deliveries>,
    pub(crate) events: Submit<Events>,
    /// Runs requests that may arrive more than once.
    pub(crate) repeatable: Repeatable,
    pub(crate) endings: Watch<Ends>,
    pub(crate) answers: Watch<Replies>,
    /// The contracts that this process has stored, and when it last sent each of them.
    pub(crate) stored: Arc<Mutex<HashMap<ContractId, Instant>>>,
    /// The last time at which a waiting call checked whether any worker can run what it waits for.
    pub(crate) checked_for_worker: AtomicI64,
    /// The limits in force, for operations that run in the caller's own transaction.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub(crate) limits: Limits,
}
