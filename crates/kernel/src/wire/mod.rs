//! The whole interface of a store as JSON: the requests of a client to a server that has a store, and the replies.
//!
//! A request is one call of [`Store`]. A client sends [`Request`] to `POST {base}/rpc/v1` and receives [`Reply`], also
//! if the store has refused the call. The effects of commits arrive as server-sent events from
//! `GET {base}/rpc/v1/notifications`; the data of each event is one [`Effects`](crate::Effects).
//!
//! ```
//! use abide_kernel::QueryResult;
//! use abide_kernel::memory::Memory;
//! use abide_kernel::wire::{Reply, Permission, answer, parse};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let store = Memory::default();
//! let request = parse(br#"{"read": {"get": {"key": "order:42"}}}"#)?;
//! assert_eq!(request.needs(), [Permission::Read].into());
//! assert!(matches!(answer(&store, request).await, Reply::Found(QueryResult::Instance(None))));
//! # Ok::<(), abide_kernel::wire::Malformed>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod failure;
mod permission;

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Answer, Op, Query, QueryResult, Result, Store, judge};

pub use failure::{Failure, Malformed};
pub use permission::Permission;

/// The path for requests, relative to a server's address.
pub const PATH: &str = "/rpc/v1";
/// The path for notifications, relative to a server's address.
pub const NOTIFICATIONS: &str = "/rpc/v1/notifications";
/// The prefix of the `type` of every problem that a server returns.
pub const PROBLEMS: &str = "/problems/";
/// The only problem which says that nothing was written. For any other that is not a refusal, the outcome is unknown.
pub const UNAVAILABLE: &str = "unavailable";
/// The maximum time between two messages of the event stream. A server without effects to send sends a comment.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// One call of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// [`Store::run`].
    Run(Arc<[Op]>),
    /// [`Store::read`].
    Read(Query),
    /// The time of the clock that the store's workers share.
    Now,
    /// [`Store::writers`].
    Writers,
}

/// The reply to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer to each operation, in order.
    Answers(Vec<Answer>),
    /// The result of a query.
    Found(QueryResult),
    /// The time.
    Now(Timestamp),
    /// The number of transactions that can usefully run in parallel.
    Writers(usize),
    /// The store returned an error.
    Failed(Failure),
}

impl Request {
    /// Sets the caller of all requests in it that may arrive more than once. Only the server may decide this.
    pub fn on_behalf_of(&mut self, caller: &str) {
        let Self::Run(ops) = self else { return };
        // A request that was just parsed does not share its operations.
        for op in Arc::get_mut(ops).unwrap_or_default() {
            if let Op::Once(requests) = op {
                for one in requests {
                    caller.clone_into(&mut one.id.caller);
                }
            }
        }
    }

    /// Sets the source of all commands in it to what the server knows about the caller (rule 7.3). A source that the
    /// caller names is only a claim, and is stored in addition.
    pub fn sent_by(&mut self, source: &str) {
        if let Self::Run(ops) = self {
            send_by(ops, source);
        }
    }
}

fn send_by(ops: &mut Arc<[Op]>, known: &str) {
    let set = |source: &mut Option<String>, claimed: &mut Option<String>| {
        if let Some(given) = source.replace(known.to_owned()) {
            *claimed = Some(given);
        }
    };
    // A request that was just parsed does not share its operations.
    for op in Arc::get_mut(ops).unwrap_or_default() {
        match op {
            Op::Deliver(deliveries) => {
                for one in deliveries {
                    set(&mut one.source, &mut one.claimed_source);
                }
            }
            Op::Cancel(cancels) => {
                for one in cancels {
                    set(&mut one.source, &mut one.claimed_source);
                }
            }
            Op::Once(requests) => {
                for one in requests {
                    send_by(&mut one.ops, known);
                }
            }
            // Outbox rows carry the role that inserted them; only a server takes them.
            _ => {}
        }
    }
}

/// Parses a request. The error for an invalid request says what was expected.
pub fn parse(body: &[u8]) -> Result<Request, Malformed> {
    serde_json::from_slice(body).map_err(Malformed)
}

/// Runs a request on a store, and returns its reply.
pub async fn answer(store: &dyn Store, request: Request) -> Reply {
    match ask(store, request).await {
        Ok(reply) => reply,
        Err(error) => Reply::Failed(error.into()),
    }
}

async fn ask(store: &dyn Store, request: Request) -> Result<Reply> {
    Ok(match request {
        Request::Run(ops) => Reply::Answers(judge::run(store, ops).await?),
        Request::Read(query) => Reply::Found(store.read(query.limited()?).await?),
        Request::Now => Reply::Now(store.clock().now()),
        Request::Writers => Reply::Writers(store.writers()),
    })
}

#[cfg(test)]
mod tests;
