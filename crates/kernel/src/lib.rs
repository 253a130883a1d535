//! The kernel of abide: all operations that change an instance, each one transaction, on any store.
//!
//! An operation loads the rows it needs under lock, asks [`abide_core::rules`] what must change, and writes the change.
//! A store loads and writes rows ([`Txn`]) and runs a list of [`Op`]s as one transaction ([`Store`]); it does not know
//! the meaning of a status. [`memory::Memory`] is a store in this crate. The databases have their own crates, and all
//! stores pass the same conformance suite (feature `conformance`).

mod census;
mod changes;
mod claim_bytes;
mod clock;
pub mod committer;
mod demand;
mod error;
mod health;
pub mod judge;
mod label;
mod ledger;
mod load;
mod manual_clock;
pub mod memory;
mod op;
mod ops;
mod outbox;
mod own;
mod pass;
mod query;
mod read;
mod retry;
mod run;
mod store;
mod terms;
mod turnover;
mod txn;
mod wake;
pub mod wire;
mod write;

#[cfg(feature = "conformance")]
pub mod conformance;

#[doc(hidden)]
pub use abide_core::debug_is_display;
pub use abide_core::model;
pub use abide_core::model::Target;
pub use abide_core::rules;
pub use census::{ENDED_COUNTED, READY_LANES, ReadyLane, Tally};
pub use changes::{Advance, Changes, Finish, GivenUp, Leased, Move, MovedHistory, Wake};
pub use claim_bytes::{ClaimRoom, INBOX_WHOLE_BYTES, claimed_bytes};
pub use clock::{Clock, SystemClock};
pub use demand::{Begun, Demand};
pub use error::{Error, Result};
pub use health::{describe, describe_page};
pub use label::label;
pub use load::{Load, Loads};
pub use manual_clock::ManualClock;
pub use op::{
    Answer, ClaimRequest, Cursor, Extension, Finding, NewWorker, Once, Op, Remembered, Survey,
    SweepRequest,
};
pub use outbox::{
    OutboxAction, OutboxDepth, OutboxEntry, OutboxProblem, OutboxRow, RefusedPage, RefusedRequest,
};
pub use own::{OwnTransaction, was_taken};
pub use pass::SweepPass;
pub use query::{
    CommandFilter, CommandPage, Contracts, DocumentPage, Ending, Endings, EventFilter, EventPage,
    Filter, HISTORY_BYTES, Listed, MachinePage, Page, QueueDepth, Records, Stamp, Surroundings,
    WaiterFilter, WaiterPage, gather, is_full, look_up, read_pending_names, read_siblings,
    read_unmatched,
};
pub use read::{IDS_MOST, PAGE_MOST, Query, QueryResult};
pub use retry::{Backoff, Pause};
pub use run::{run, run_lent, run_now, run_now_lent};
pub use store::{OUTBOX_POLL, Renewer, Store, newest_run};
pub use turnover::Turnover;
pub use txn::{
    EventLookup, EventPaths, Expiring, Found, FoundEvents, Holder, Lapsed, LookbackPath, NewEvent,
    Partition, PathId, Recall, Span, Term, Touched, Txn, TypeTotal,
};
pub use wake::{Bus, Effects, Listener};
pub use write::{Forget, Write};
