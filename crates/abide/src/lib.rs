//! Durable execution: programs that can wait, and that continue after any crash.
//!
//! A program is a [machine](macro@machine) (steps, each of which returns what comes next), a [`Flow`] (straight-line
//! code) or a [`Graph`] (data). Every step is committed to a database before the next one runs. A program that waits is
//! a row, not a process. SQLite is included and needs no setup; PostgreSQL serves many workers on many computers.
//!
//! ```
//! use abide::{Abide, Context, Outcome, done, machine, next};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { item: String, paid: u32 }
//!
//! struct Checkout;
//!
//! #[machine(steps = At, state = Order, output = String)]
//! impl Checkout {
//!     async fn charge(ctx: &mut Context<Self>) -> Outcome<Self> {
//!         ctx.state_mut().paid = 100;                 // committed before `ship` runs
//!         next(At::Ship)
//!     }
//!
//!     async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
//!         let Order { item, paid } = ctx.state();
//!         done(format!("{item} shipped, {paid} paid"))
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

// The macros expand to paths that begin with `::abide`, also in this crate's own tests and examples.
extern crate self as abide;

mod by_name;
mod client;
mod engine;
mod error;
mod graph;
mod history;
mod instances;
mod machine;
mod measured;
mod message;
mod open;
pub mod outbox;
pub mod testing;
mod time;
#[doc(hidden)]
pub mod unfit;
mod workflow;

pub use abide_core::model::Event as StoredEvent;
pub use abide_core::model::{
    Accepts, Arguments, BarrierNumber, Blocked, Cause, Child, Command, CommandId, CommandKind,
    CommandStatus, Completed, Condition as EventCondition, Contract, Declared, Ending, Entry,
    EventSequence, Exceeded, Fingerprint, Folded, GraphProblem, GraphSpec, HistoryEvent, Instance,
    InstanceId, Json, Key, Kind, Limits, Name, NotJson, Offer, Opened, OperationKind,
    OperationWait, Operator, OutboxId, Parameter, Path, Policy, Priority, Published, Refusal,
    Rejection, RequestId, ResumeKind, ResumeSource, RetrySpec, Scope, Sequence, Signature, Start,
    Started, Status, StepSpec, StepStatus, Timestamp, TriedAgain, TypeSpec, UniqueKey, WaitId,
    WaitKind, Waiter, When, Worker, WorkerId,
};
pub use abide_core::rules::contract::{Problem, ValidationErrors};
pub use abide_core::rules::liveness::{Code as ReasonCode, Liveness, Reason, Waiting};
pub use abide_core::rules::retry::Retry;
pub use abide_kernel::Ending as RunEnding;
pub use abide_kernel::{
    Backoff, CommandFilter, CommandPage, EventFilter, EventPage, Filter, Finding, OutboxDepth,
    OutboxProblem, Page, QueueDepth, RefusedPage, RefusedRequest, Store, Tally, Target,
    WaiterFilter, WaiterPage,
};
pub use abide_macros::{Message, Step, main};
pub use client::{
    Address, Cancelled, Cancelling, Client, Description, Diagnosis, Handle, NotDone, OpenWait,
    OperateError, Publication, QueryError, Receipt, Rejected, Restarting, SendError, SignalBuilder,
    StartBuilder, StartError, UpdateBuilder, UpdateError, UpdateHandle, WaitsFilter, Within,
    event_of, new_signal, new_signal_named, new_start,
};
pub use engine::{Check, Engine, EngineBuilder, Retention, Stats, Unfit};
pub use error::{BoxError, Error};
pub use graph::{BadGraph, Graph, GraphBuilder, Reference, input, output};
pub use machine::{
    Agreement, Answer, Call, Context, Definition, Fault, FaultKind, Job, Machine, Messages, Move,
    Outcome, Reply, SignalName, Sleep, Spawn, Step, WaitFor, continue_as_new, continue_as_version,
    done, machine, next, next_in, reply, retry_in, stop,
};
pub use message::{
    Event, Message, Query, Signal, Test, Update, eq, eq_typed, exists, gt, gte, lt, lte, ne, one_of,
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

/// Crates that the expanded macros refer to, so that a program does not need them among its own dependencies.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use tokio;
}

/// The guides, whose examples are compiled and run with the tests.
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
