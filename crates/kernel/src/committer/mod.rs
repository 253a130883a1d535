//! Commits what many ask for: gathers it into batches, runs each batch as one transaction, and when one fails, sees to it
//! that an entry which is at fault touches no other (rule 1.4).
//!
//! An [`Entry`] is what one caller asks for, or one outcome of an engine. Its way is the same for all:
//!
//! 1. **Gather.** Entries that come together wait in an [`Intake`]; folding waits for the runtime to have nothing else to
//!    do, never for a clock ([`gather`]).
//! 2. **Land.** A batch is tried once ([`land`]).
//! 3. **Separate.** When it fails by what may be one entry's fault, each of its entries goes alone, side by side, and those
//!    that come meanwhile go in fresh batches. An entry that fails alone is tried a bounded number of times with back-off
//!    ([`Committer::alone`]), and holds no writer while it waits. Then it is answered. Further entries about the same
//!    instance go alone from the start for a while.
//! 4. **Keep.** When the database is away, all of them wait, callers as long as their patience and outcomes for ever. They
//!    are tried in smaller batches and in turn, in case it is one of them that drives it away.
//!
//! | failure | is | then |
//! |---|---|---|
//! | [`Conflict`](Error::Conflict) | possibly an entry's fault, and may pass | alone, 16 attempts with back-off |
//! | [`Refused`](Error::Refused), [`Broken`](Error::Broken) | an entry's fault, and will not pass | alone, one attempt |
//! | [`Unavailable`](Error::Unavailable) | nobody's: the database is away | kept |
//! | [`Unknown`](Error::Unknown) | perhaps committed | alone again when it may be repeated, else answered so |
//! | [`Closed`](Error::Closed) | the end | answered |
//!
//! [`Submit`] is the way in for callers, one for each kind of request: [`Starts`], [`Mail`], [`Events`], [`Commits`],
//! [`Extensions`] and [`Requests`]. An engine gathers for itself, since it claims in the same transaction.

mod alone;
mod batch;
mod bulk;
mod intake;
mod kinds;
mod submit;

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{Error, Store};

pub use alone::Patience;
pub use batch::{Entry, Landing, land};
pub use bulk::Bulk;
pub use intake::{Failed, Intake, Taken, Waiter, gather};
pub use kinds::{Commits, Events, Extensions, Mail, Requests, Starts};
pub use submit::{Caller, Folded, Request, Submit};

use alone::Suspects;

/// The most entries that go alone for the first time, side by side: some may hold their transaction until it times out,
/// and their neighbours must not wait for that.
const ALONE: usize = 4;

/// What entries are committed by. Cheap to clone; all clones share who is suspected.
#[derive(Clone)]
pub struct Committer {
    store: Arc<dyn Store>,
    /// Places for entries that go alone for the first time, and for those that have failed so.
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
    /// Commits on that store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let writers = store.writers().max(1);
        Self {
            store,
            first: Arc::new(Semaphore::new(writers.max(ALONE))),
            again: Arc::new(Semaphore::new(writers)),
            suspects: Arc::default(),
        }
    }

    /// The store.
    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Whose fault it is that a transaction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// That of an entry in it, or possibly so: nothing was written, and others must not suffer from it.
    Entry,
    /// Nobody's in it: the database is away, and nothing was written.
    Store,
    /// It is not known whether it was written.
    Unknown,
    /// The store was closed.
    Closed,
}

impl Error {
    /// Whose fault it is when a transaction fails with it.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Refused(_) | Self::Conflict(_) | Self::Broken(_) | Self::Unjudged(_) => {
                Fault::Entry
            }
            Self::Unavailable(_) => Fault::Store,
            Self::Unknown(_) => Fault::Unknown,
            Self::Closed => Fault::Closed,
        }
    }
}
