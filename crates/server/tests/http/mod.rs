//! The resources of `/v1`, through the real binary, over both databases: each call, its refusals and its records.

mod batches;
mod cart;
mod decisions;
mod described;
mod events;
mod graphs;
mod lists;
mod looking;
mod machines;
mod mistakes;
mod odd;
mod operating;
mod outbox;
mod paths;
mod resuming;
mod starting;
mod streaming;
mod updating;

/// Runs each test over a SQLite file and over PostgreSQL.
macro_rules! on_both {
    ($( $(#[$attr:meta])* async fn $name:ident($server:ident) $body:block )*) => { $(
        mod $name {
            #[allow(unused_imports, reason = "a test may need none of them")]
            use super::*;

            async fn proof($server: &crate::common::Server) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                proof(&crate::common::server().start()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                proof(&crate::common::server().over(crate::common::postgres()).start()).await;
            }
        }
    )* };
}
pub(crate) use on_both;
