//! The suite that every store must pass: what the rules promise, tested through the public interface of a store.
//!
//! A store's own tests are three lines: how to make one, and [`conformance_tests!`](crate::conformance_tests). Each
//! behaviour becomes a test of its own, named by a sentence. After each of them the whole store is checked for
//! [`violations`](invariants::violations).
//!
//! ```ignore
//! use abide_kernel::conformance::{Setup, Subject};
//!
//! async fn make(setup: Setup) -> Subject {
//!     let dir = tempfile::tempdir().unwrap();
//!     let store = MyStore::open(dir.path(), setup.clock, setup.limits).await.unwrap();
//!     Subject::new(store).with(dir)                 // the directory goes when the test is over
//! }
//!
//! abide_kernel::conformance_tests!(make);
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "this is test code, though it is compiled as a library"
)]
#![allow(missing_docs, reason = "the names of the tests are sentences")]

mod build;
mod coding;
mod eventing;
mod harness;
mod lab;
mod list;
mod list_later;
mod renaming;

pub mod answering;
pub mod blocking;
pub mod bounds;
pub mod cancelling;
pub mod cancelling_code;
pub mod children;
pub mod claim_bytes;
pub mod claiming;
pub mod committing;
pub mod concurrency;
pub mod contracts;
pub mod contradicting;
pub mod deaths;
pub mod deciding;
pub mod deploying;
pub mod differential;
pub mod documents;
pub mod enlisting;
pub mod event_endings;
pub mod event_lists;
pub mod event_races;
pub mod event_waits;
pub mod events_while_awake;
pub mod failing;
pub mod faulty;
pub mod fencing;
pub mod folding;
pub mod held_updates;
pub mod history;
pub mod holding;
pub mod inboxes;
pub mod interleaving;
pub mod invariants;
pub mod joining;
pub mod keeping;
pub mod keys;
pub mod lookback;
pub mod lookback_cost;
pub mod messages;
pub mod near_misses;
pub mod numbering;
pub mod once;
pub mod own_policies;
pub mod packs;
pub mod partitions;
pub mod passing;
pub mod publishing;
pub mod random;
pub mod random_steps;
pub mod random_turns;
pub mod reading;
pub mod remote_claims;
pub mod repairing;
pub mod reserving;
pub mod restarted_children;
pub mod restarted_signals;
pub mod restarting;
pub mod resuming;
pub mod runs;
pub mod signals;
pub mod starting;
pub mod sweeping;
pub mod taken_batches;
pub mod taken_keys;
pub mod taken_wakes;
pub mod timeouts;
pub mod timers;
pub mod updates;
pub mod validating;
pub mod wait_ids;
pub mod waiters;
pub mod waiting;
pub mod waking;
pub mod with_start;
pub mod workers;
pub mod workflow_children;
pub mod workflow_runs;
pub mod workflow_waits;
pub mod workflows;

pub use lab::{Lab, Setup, Subject, check};
