//! Tools of the engine tests: a store for each test, scripted machines, and waits that end.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

mod gate;
mod killable;
mod lab;
mod script;
mod wait;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod written;

pub use abide_kernel::conformance::faulty::{Faulty, Trouble};
pub use gate::{Gate, Log, Most};
pub use killable::KillableEngine;
pub use lab::Lab;
pub use script::{At, Script};
pub use wait::{eventually, soon};

/// Makes three tests of one: on the store in memory, on SQLite, and on PostgreSQL. After each of them the whole store is
/// checked for violated invariants.
#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! on_every_store {
    (async fn $name:ident($lab:ident: Lab) $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all of them")]
            use super::*;

            async fn test($lab: Lab) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                Lab::memory().await.check(test).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Lab::sqlite().await.check(test).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Lab::postgres().await.check(test).await;
            }
        }
    };
}
