//! The parts of a client that all its clones share.

use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide_core::model::{ContractId, Limits};
use abide_kernel::Store;
use abide_kernel::committer::{Committer, Deliveries, Events, Starts, Submit};

use super::{Ends, Repeatable, Replies, Watch};

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
