//! What an application calls: start an instance, send it signals and updates, wait for what it comes to, look at it.

mod address;
mod handle;
mod once;
mod operate;
mod publish;
mod query;
mod signal;
mod spec;
mod update;
mod waits;
mod watch;
mod within;

pub use address::Address;
pub use handle::{Handle, NotDone};
pub(crate) use once::{Calls, Repeatable, first};
pub use operate::{Cancelled, Cancelling, Diagnosis, Look, OperateError, Restarting};
pub(crate) use operate::{doctor, look, look_page, repair};
pub use publish::{Publication, event_of};
pub use query::QueryError;
pub(crate) use query::exported;
pub(crate) use signal::receipt;
pub use signal::{Letter, Receipt, Rejected, SendError, letter, letter_named};
pub use spec::{Spec, StartError, spec};
pub use update::{Asked, Request, UpdateError};
pub use waits::{OpenWait, WaitsFilter};
pub(crate) use watch::{Ends, Replies, Watch};
pub use within::Within;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide_core::model::{ContractId, Limits};
use abide_kernel::Store;
use abide_kernel::committer::{Committer, Events, Mail, Starts, Submit};

/// What every call goes through.
#[derive(Clone)]
pub struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) committer: Committer,
    /// How long calls wait for a database that is away.
    pub(crate) patience: Duration,
    pub(crate) submit: Submit<Starts>,
    pub(crate) mail: Submit<Mail>,
    pub(crate) events: Submit<Events>,
    /// Where requests go that may arrive more than once.
    pub(crate) repeatable: Repeatable,
    /// The request that all calls belong to, if they belong to one.
    pub(crate) calls: Option<Arc<Calls>>,
    pub(crate) endings: Watch<Ends>,
    pub(crate) answers: Watch<Replies>,
    /// The contracts that this process has stored, and when it sent each.
    pub(crate) stored: Arc<Mutex<HashMap<ContractId, Instant>>>,
    /// The limits in force, for what runs in a transaction of the caller's.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub(crate) limits: Limits,
}
