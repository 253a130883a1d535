//! Commits the requests of many callers: gathers them into batches, runs each batch as one transaction, and ensures
//! that a failing entry does not affect the others (rule 1.4).
//!
//! An [`Entry`] is the request of one caller, or one outcome of an engine. All entries are processed in the same way:
//!
//! 1. **Gather.** Entries that arrive together wait in an [`Intake`]. Folding waits until the runtime has nothing else
//!    to do, never for a clock ([`gather`]).
//! 2. **Land.** A batch is tried once ([`land`]).
//! 3. **Separate.** If it fails for a reason that one entry may have caused, each of its entries runs alone, in
//!    parallel, and entries that arrive meanwhile go into new batches. An entry that fails alone is tried a bounded
//!    number of times with back-off ([`Committer::alone`]), and holds no writer while it waits. Then it is answered.
//!    Further entries for the same instance run alone from the start for a while.
//! 4. **Keep.** If the database is unavailable, all entries wait: callers as long as their patience, outcomes forever.
//!    They are tried in smaller batches and in turn, because one of them may cause the outage.
//!
//! | failure | cause | action |
//! |---|---|---|
//! | [`Conflict`](Error::Conflict) | possibly an entry; may pass | alone, 16 attempts with back-off |
//! | [`Refused`](Error::Refused), [`NotSetUp`](Error::NotSetUp) | an entry; does not pass | alone, one attempt |
//! | [`Broken`](Error::Broken) | an entry; does not pass | alone, one attempt |
//! | [`Unavailable`](Error::Unavailable) | the database is unavailable | kept |
//! | [`Unknown`](Error::Unknown) | possibly committed | alone again if it may be repeated, otherwise answered so |
//! | [`Closed`](Error::Closed) | the store was closed | answered |
//!
//! [`Submit`] is the entry point for callers, one for each kind of request: [`Starts`], [`Deliveries`], [`Events`],
//! [`Commits`], [`Extensions`] and [`Requests`]. An engine gathers its own entries, because it claims in the same
//! transaction.

mod batch;
mod bulk;
mod intake;
mod isolation;
mod kinds;
mod submit;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{Error, Store};

pub use batch::{Answers, Entry, Landing, land};
pub use bulk::Bulk;
pub use intake::{Failed, Intake, Taken, Waiter, gather};
pub use isolation::Patience;
pub use kinds::{Commits, Deliveries, Events, Extensions, Requests, Starts};
pub use submit::{Caller, Folded, Request, Submit};

use isolation::Suspects;

/// The maximum number of entries that run alone for the first time in parallel. Some may hold their transaction until
/// it times out, and the others must not wait for that.
const ALONE: usize = 4;

/// Commits entries on a store. Cheap to clone; all clones share the suspected instances.
#[derive(Clone)]
pub struct Committer {
    store: Arc<dyn Store>,
    /// Places for entries that run alone for the first time, and for those that have failed alone.
    first: Arc<Semaphore>,
    again: Arc<Semaphore>,
    suspects: Arc<Suspects>,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").finish_non_exhaustive()
    }
}

impl Committer {
    /// Creates a committer for this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let writers = store.writers().max(1);
        Self {
            store,
            first: Arc::new(Semaphore::new(writers.max(ALONE))),
            again: Arc::new(Semaphore::new(writers)),
            suspects: Arc::default(),
        }
    }

    /// Returns the store.
    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// The cause of a failed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An entry in it, at least possibly. Nothing was written, and other entries must not be affected.
    Entry,
    /// No entry: the database is unavailable, and nothing was written.
    Store,
    /// It is unknown if the transaction was committed.
    Unknown,
    /// The store was closed.
    Closed,
}

impl Error {
    /// Returns the cause of a transaction's failure with this error.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Refused(_)
            | Self::Conflict(_)
            | Self::NotSetUp(_)
            | Self::Broken(_)
            | Self::Unjudged(_) => Fault::Entry,
            Self::Unavailable(_) => Fault::Store,
            Self::Unknown(_) => Fault::Unknown,
            Self::Closed => Fault::Closed,
        }
    }
}
