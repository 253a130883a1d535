//! The application's side: builders of starts, signals, updates and events, [`Handle`]s of instances, and the errors of
//! these calls. [`Abide`](crate::Abide) returns the builders; [`new_start`], [`new_signal`] and [`event_of`] make them for
//! batches and for your own transactions.

mod address;
mod handle;
mod once;
mod operate;
mod parts;
mod publish;
mod query;
mod signal;
mod start;
mod update;
mod waits;
mod watch;
mod within;

pub use abide_kernel::Ending;
pub use address::Address;
pub use handle::{Handle, NotDone};
pub(crate) use once::{Calls, Repeatable, first};
pub use operate::{Cancelled, Cancelling, Description, Diagnosis, OperateError, Restarting};
pub(crate) use operate::{describe, describe_page, doctor, repair};
pub(crate) use parts::Parts;
pub use publish::{Publication, event_of};
pub use query::QueryError;
pub(crate) use signal::receipt;
pub use signal::{Receipt, Rejected, SendError, SignalBuilder, new_signal};
pub use start::{StartBuilder, StartError, new_start};
pub use update::{UpdateBuilder, UpdateError, UpdateHandle};
pub use waits::{OpenWait, WaitsFilter};
pub(crate) use watch::{Ends, Replies, Watch};
pub use within::Within;

use std::sync::Arc;

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
