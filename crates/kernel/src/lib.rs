//! The kernel of abide: every operation that changes an instance, each of them one transaction, over any store.
//!
//! An operation loads under lock the rows it concerns, asks [`abide_core::rules`] what must change, and writes the
//! change. A store knows how to load and write rows ([`Txn`]) and how to make a transaction of a list of [`Op`]s
//! ([`Store`]); it knows nothing of what a status means. [`memory::Memory`] is one, in this crate; the databases have
//! crates of their own, and all of them pass the same conformance suite (feature `conformance`).

mod clock;
pub mod committer;
mod error;
pub mod judge;
mod ledger;
mod manual_clock;
pub mod memory;
mod op;
mod ops;
mod own;
mod pass;
mod query;
mod retry;
mod run;
mod store;
mod terms;
mod txn;
mod wake;
pub mod wire;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use abide_core::model;
pub use abide_core::model::Target;
pub use abide_core::rules;
pub use clock::{Clock, SystemClock};
pub use error::{Error, Result};
pub use manual_clock::ManualClock;
pub use op::{
    Answer, ClaimRequest, Cursor, Extension, Finding, NewWorker, Once, Op, Remembered, Survey,
    SweepRequest,
};
pub use own::{OwnTransaction, was_taken};
pub use pass::SweepPass;
pub use query::{
    CommandFilter, CommandPage, Ending, Endings, EventFilter, EventPage, Filter, HISTORY_BYTES,
    Listed, Page, QueueDepth, Records, WaiterFilter, WaiterPage, gather, is_full, look_up,
};
pub use retry::Backoff;
pub use run::{run, run_lent, run_now, run_now_lent};
pub use store::{Store, newest_run};
pub use txn::{
    Advance, Changes, EventPaths, Expiring, Finish, Found, GivenUp, Holder, Lapsed, Leased, LookUp,
    Looked, LookedBack, Move, NewEvent, Partition, PathId, Recall, Span, Term, Touched, Txn,
    TypeTotal, Wake,
};
pub use wake::{Bus, Effects, Listener};
