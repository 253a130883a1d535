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
//!
//! Most programs begin with `use abide::prelude::*;`. The root has the main names; the others are in the module of their
//! subject: [`client`], [`engine`], [`machine`](mod@machine), [`workflow`], [`graph`], [`message`], [`contract`],
//! [`history`], [`outbox`], [`store`], [`time`] and [`testing`]. The data types that they share are in [`model`].

// The macros expand to paths that begin with `::abide`, also in this crate's own tests and examples.
extern crate self as abide;

mod by_name;
pub mod client;
pub mod contract;
pub mod engine;
mod error;
pub mod graph;
pub mod history;
mod instances;
pub mod machine;
mod measured;
pub mod message;
pub mod model;
mod open;
pub mod outbox;
pub mod prelude;
pub mod store;
pub mod testing;
pub mod time;
mod unfit;
pub mod workflow;

pub use abide_macros::{Message, Step, main};
pub use error::{BoxError, Error};
pub use graph::Graph;
pub use machine::{Context, Job, Machine, Outcome, Step, done, machine, next, stop};
pub use message::{Event, Message, Signal, Update};
pub use model::{InstanceId, Status};
pub use open::Abide;
pub use schemars;
pub use workflow::{Flow, Workflow};

#[cfg(feature = "postgres")]
pub use abide_postgres as postgres;
#[cfg(feature = "remote")]
pub use abide_remote as remote;
#[cfg(feature = "sqlite")]
pub use abide_sqlite as sqlite;

/// Crates that the expanded macros refer to, so that a program does not need them among its own dependencies, and what
/// `abide-server` shares with this crate.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use tokio;

    /// Explains why JSON does not match a type.
    pub mod unfit {
        pub use crate::unfit::{field, fit, query, quoted, shown, why};
    }
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
