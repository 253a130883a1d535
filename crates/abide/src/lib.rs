//! Durable execution: programs that wait, and go on after any crash.
//!
//! You write a [`Machine`], steps that answer what comes next, a [`Flow`], straight-line code, or a [`Graph`], data. Every step is committed
//! to a database before the next one runs; what waits is a row, not a process. SQLite is inside for a start with nothing to set up; PostgreSQL
//! carries many workers on many machines.
//!
//! ```
//! use abide::{Abide, Context, Machine, Outcome, Step, done, next};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { item: String, paid: u32 }
//!
//! #[derive(Step)]
//! enum At { Charge, Ship }
//!
//! struct Checkout;
//!
//! impl Machine for Checkout {
//!     const NAME: &'static str = "checkout";
//!     type Step = At;
//!     type State = Order;
//!     type Output = String;
//!
//!     async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
//!         match at {
//!             At::Charge => {
//!                 ctx.state_mut().paid = 100;         // committed before `Ship` runs
//!                 next(At::Ship)
//!             }
//!             At::Ship => done(format!("{} shipped, {} paid", ctx.state().item, ctx.state().paid)),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let abide = Abide::open("memory:").await?;          // or "sqlite:orders.db", "postgres://…"
//! let engine = abide.engine().machine(Checkout).start().await?;
//! let order = abide.start(Checkout, Order { item: "kettle".into(), paid: 0 }).key("order:42").await?;
//! assert_eq!(order.result().await?, "kettle shipped, 100 paid");
//! engine.shutdown().await;
//! # Ok(())
//! # }
//! ```

// The Step derive speaks of `::abide`, in this crate's own tests and examples too.
extern crate self as abide;

mod client;
mod engine;
mod error;
mod graph;
mod history;
mod machine;
mod measured;
mod message;
mod named;
mod open;
mod talk;
pub mod testing;
mod time;
#[doc(hidden)]
pub mod unfit;
mod workflow;

pub use abide_core::model::Event as StoredEvent;
pub use abide_core::model::{
    Accepts, Arguments, BarrierNumber, Blocked, Cause, Child, Command, CommandId, CommandKind,
    CommandStatus, Completed, Condition as EventCondition, Contract, Declared, Ending, Entry,
    EventSequence, Exceeded, Fingerprint, GraphProblem, GraphSpec, Happening, Instance, InstanceId,
    Json, Key, Kind, Limits, Name, NotJson, Offer, Opened, OperationKind, Operator, Parameter,
    Path, Priority, Published, Refusal, Rejection, RequestId, RetrySpec, Scope, Sequence,
    Signature, Start, Started, Status, StepSpec, StepStatus, Timestamp, TriedAgain, TypeSpec,
    UniqueKey, WaitId, WaitKind, Waiter, When, Worker, WorkerId,
};
pub use abide_core::rules::contract::{Problem, ValidationErrors};
pub use abide_core::rules::liveness::{Liveness, Waiting};
pub use abide_core::rules::retry::Retry;
pub use abide_kernel::Ending as RunEnding;
pub use abide_kernel::{
    Backoff, CommandFilter, CommandPage, EventFilter, EventPage, Filter, Finding, Page, QueueDepth,
    Store, Target, WaiterFilter, WaiterPage,
};
pub use abide_macros::Step;
pub use client::{
    Address, Asked, Cancelled, Cancelling, Client, Diagnosis, Handle, Letter, Look, NotDone,
    OpenWait, OperateError, Publication, QueryError, Receipt, Rejected, Request, Restarting,
    SendError, Spec, StartError, UpdateError, WaitsFilter, Within, event_of, letter, letter_named,
    spec,
};
pub use engine::{Engine, EngineBuilder, Retention, Stats};
pub use error::{BoxError, Error};
pub use graph::{BadGraph, Graph, GraphBuilder, Reference, input, output};
pub use machine::{
    Agreement, Answer, Call, Context, Definition, Fault, FaultKind, Job, Machine, Messages, Move,
    Outcome, Reply, SignalName, Sleep, Spawn, Step, WaitFor, continue_as_new, continue_as_version,
    done, next, next_in, reply, retry_in, stop,
};
pub use message::{
    Event, Query, Signal, Test, Update, eq, eq_typed, exists, gt, gte, lt, lte, ne, one_of,
};
pub use open::{Abide, OpenError, OpenOptions};
pub use schemars;
pub use time::{days, hours, millis, minutes, secs};
pub use workflow::{
    Attempt, AwaitedSignal, Branches, ChildRun, ChildrenRun, Condition, EventAwaited, Flow,
    NotUndone, OneOf, OperationError, RunHistory, Saga, SignalWait, Sleeping, State, StepRun,
    Timed, TimedCondition, Workflow, WorkflowCode,
};

#[cfg(feature = "postgres")]
pub use abide_postgres as postgres;
#[cfg(feature = "remote")]
pub use abide_remote as remote;
#[cfg(feature = "sqlite")]
pub use abide_sqlite as sqlite;

/// The guides' examples are compiled and run with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/machines.md")]
    struct Machines;
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../../docs/signals.md")]
    struct Signals;
    #[doc = include_str!("../../../docs/events.md")]
    struct Events;
    #[doc = include_str!("../../../docs/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../../../docs/contracts.md")]
    struct Contracts;
    #[doc = include_str!("../../../docs/updates.md")]
    struct Updates;
    #[doc = include_str!("../../../docs/workflows.md")]
    struct Workflows;
    #[doc = include_str!("../../../docs/runs.md")]
    struct Runs;
    #[doc = include_str!("../../../docs/operating.md")]
    struct Operating;
    #[doc = include_str!("../../../docs/children.md")]
    struct Children;
    #[doc = include_str!("../../../docs/queues.md")]
    struct Queues;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[cfg(all(feature = "sqlite", feature = "postgres"))]
    #[doc = include_str!("../../../docs/stores.md")]
    struct Stores;
}
