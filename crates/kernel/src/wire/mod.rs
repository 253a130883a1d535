//! The whole interface of a store as JSON: the requests of a client to a server that has a store, and the replies.
//!
//! A request is one call of [`Store`]. A client sends [`Request`] to `POST {base}/rpc/v1` and receives [`Reply`], also
//! if the store has refused the call. The effects of commits arrive as server-sent events from
//! `GET {base}/rpc/v1/news`; the data of each event is one [`Effects`](crate::Effects).
//!
//! ```
//! use abide_kernel::memory::Memory;
//! use abide_kernel::wire::{Reply, Right, answer, parse};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let store = Memory::default();
//! let request = parse(br#"{"get": {"key": "order:42"}}"#)?;
//! assert_eq!(request.needs(), [Right::Read].into());
//! assert!(matches!(answer(&store, request).await, Reply::Instance(None)));
//! # Ok::<(), abide_kernel::wire::Malformed>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod failure;
mod permission;

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Refusal, Target, Timestamp,
    Worker,
};
use serde::{Deserialize, Serialize};

use crate::{
    Answer, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, EventFilter, EventPage,
    Filter, MachinePage, Op, OutboxDepth, Page, QueueDepth, ReadyLane, Records, RefusedPage,
    Result, Store, Surroundings, Tally, WaiterFilter, WaiterPage, judge,
};

pub use failure::{Failure, Malformed};
pub use permission::Right;

/// The path for requests, relative to a server's address.
pub const PATH: &str = "/rpc/v1";
/// The path for notifications, relative to a server's address.
pub const NEWS: &str = "/rpc/v1/news";
/// The prefix of the `type` of every problem that a server returns.
pub const PROBLEMS: &str = "/problems/";
/// The only problem which says that nothing was written. For any other that is not a refusal, the outcome is unknown.
pub const UNAVAILABLE: &str = "unavailable";
/// The maximum time between two messages of the event stream. A server without effects to send sends a comment.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// The maximum number of items that a server returns on one page, whatever the request asks for.
pub const PAGE_MOST: usize = 100_000;
/// The maximum number of ids that one read may name (rule 16.4).
pub const IDS_MOST: usize = 1_000;

/// One call of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// [`Store::run`].
    Run(Arc<[Op]>),
    /// [`Store::get`].
    Get(Target),
    /// [`Store::list`].
    List {
        /// The conditions.
        filter: Filter,
        /// Only instances below this one.
        before: Option<InstanceId>,
        /// The maximum number of instances.
        limit: usize,
    },
    /// [`Store::around`].
    Around(Vec<InstanceId>),
    /// [`Store::history`].
    History {
        /// The instance.
        id: InstanceId,
        /// Only events after this one.
        after: u32,
        /// The maximum number of rows.
        limit: usize,
    },
    /// [`Store::children_page`].
    Children {
        /// The parent.
        parent: InstanceId,
        /// The barrier.
        barrier: BarrierNumber,
        /// Only children above this one.
        after: Option<InstanceId>,
    },
    /// [`Store::endings_page`].
    Endings(Vec<InstanceId>),
    /// [`Store::commands`].
    Commands {
        /// The conditions.
        filter: CommandFilter,
        /// Only records below this one.
        before: Option<CommandId>,
        /// The maximum number of records.
        limit: usize,
    },
    /// [`Store::records_page`].
    Records(Vec<CommandId>),
    /// [`Store::inbox`].
    Inbox(InstanceId),
    /// [`Store::events`].
    Events {
        /// The conditions.
        filter: EventFilter,
        /// Only events below this one.
        before: Option<EventSequence>,
        /// The maximum number of events.
        limit: usize,
    },
    /// [`Store::waiters`].
    Waiters {
        /// The conditions.
        filter: WaiterFilter,
        /// Only waits above this position.
        after: Option<(InstanceId, u32)>,
        /// The maximum number of waits.
        limit: usize,
    },
    /// [`Store::contract`].
    Contract(ContractId),
    /// [`Store::contracts_page`].
    Contracts(Vec<ContractId>),
    /// [`Store::machines_page`].
    Machines {
        /// Only declarations above this one.
        after: Option<Lane>,
        /// The maximum number of declarations.
        limit: usize,
    },
    /// [`Store::documents_page`].
    Documents {
        /// Their kind.
        kind: DocumentKind,
        /// Only documents above this name.
        after: Option<Name>,
        /// The maximum number of documents.
        limit: usize,
    },
    /// [`Store::document`].
    Document {
        /// Its kind.
        kind: DocumentKind,
        /// Its name.
        name: Name,
    },
    /// [`Store::next_due`].
    NextDue,
    /// [`Store::workers`].
    Workers,
    /// [`Store::depths`].
    Depths,
    /// [`Store::refused`].
    Refused {
        /// Only requests below this one.
        before: Option<OutboxId>,
        /// The maximum number of requests.
        limit: usize,
    },
    /// [`Store::outbox_depth`].
    OutboxDepth,
    /// [`Store::ready_lanes`].
    ReadyLanes,
    /// [`Store::tally`].
    Tally,
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
    /// One instance, if it exists.
    Instance(Option<Box<Instance>>),
    /// A page of instances.
    Instances(Page<Instance>),
    /// Surroundings of instances.
    Around(Vec<Surroundings>),
    /// Rows of a history.
    History(Vec<HistoryRow>),
    /// A page of children.
    Children(Page<Child>),
    /// The endings of instances that have ended, the instances that do not exist, and those still to ask for.
    Endings(Endings),
    /// A page of records.
    Commands(CommandPage),
    /// Records, and those still to ask for.
    Records(Records),
    /// The pending commands of an inbox.
    Inbox(Vec<Command>),
    /// A page of events.
    Events(EventPage),
    /// A page of waits for events.
    Waiters(WaiterPage),
    /// A contract, if it exists.
    Contract(Option<Json>),
    /// Contracts, and those still to ask for.
    Contracts(Contracts),
    /// A page of declarations.
    Machines(MachinePage),
    /// A page of documents.
    Documents(DocumentPage),
    /// A document, if it exists.
    Document(Option<Document>),
    /// The next due time, if there is one.
    Due(Option<Timestamp>),
    /// Workers.
    Workers(Vec<Worker>),
    /// The number of instances per queue, status and kind of wait.
    Depths(Vec<QueueDepth>),
    /// A page of refused requests of the outbox.
    Refused(RefusedPage),
    /// The number of waiting and refused requests of the outbox.
    OutboxDepth(OutboxDepth),
    /// The lanes that have something to claim.
    ReadyLanes(Vec<ReadyLane>),
    /// The number of blocked, failing and ended instances.
    Tally(Tally),
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
        if let Some(said) = source.replace(known.to_owned()) {
            *claimed = Some(said);
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
    let most = |limit: usize| limit.min(PAGE_MOST);
    Ok(match request {
        Request::Run(ops) => Reply::Answers(judge::run(store, ops).await?),
        Request::Get(target) => Reply::Instance(store.get(&target).await?.map(Box::new)),
        Request::List {
            filter,
            before,
            limit,
        } => Reply::Instances(store.list(&filter, before, most(limit)).await?),
        Request::Around(ids) => {
            check_ids(ids.len())?;
            Reply::Around(store.around(&ids).await?)
        }
        Request::History { id, after, limit } => {
            Reply::History(store.history(id, after, most(limit)).await?)
        }
        Request::Children {
            parent,
            barrier,
            after,
        } => Reply::Children(store.children_page(parent, barrier, after).await?),
        Request::Endings(ids) => {
            check_ids(ids.len())?;
            Reply::Endings(store.endings_page(&ids).await?)
        }
        Request::Commands {
            filter,
            before,
            limit,
        } => Reply::Commands(store.commands(&filter, before, most(limit)).await?),
        Request::Records(ids) => {
            check_ids(ids.len())?;
            Reply::Records(store.records_page(&ids).await?)
        }
        Request::Inbox(id) => Reply::Inbox(store.inbox(id).await?),
        Request::Events {
            filter,
            before,
            limit,
        } => Reply::Events(store.events(&filter, before, most(limit)).await?),
        Request::Waiters {
            filter,
            after,
            limit,
        } => Reply::Waiters(store.waiters(&filter, after, most(limit)).await?),
        Request::Contract(id) => Reply::Contract(store.contract(id).await?),
        Request::Contracts(ids) => {
            check_ids(ids.len())?;
            Reply::Contracts(store.contracts_page(&ids).await?)
        }
        Request::Machines { after, limit } => {
            Reply::Machines(store.machines_page(after, most(limit)).await?)
        }
        Request::Documents { kind, after, limit } => {
            Reply::Documents(store.documents_page(kind, after, most(limit)).await?)
        }
        Request::Document { kind, name } => Reply::Document(store.document(kind, &name).await?),
        Request::NextDue => Reply::Due(store.next_due().await?),
        Request::Workers => Reply::Workers(store.workers().await?),
        Request::Depths => Reply::Depths(store.depths().await?),
        Request::Refused { before, limit } => {
            Reply::Refused(store.refused(before, most(limit)).await?)
        }
        Request::OutboxDepth => Reply::OutboxDepth(store.outbox_depth().await?),
        Request::ReadyLanes => Reply::ReadyLanes(store.ready_lanes().await?),
        Request::Tally => Reply::Tally(store.tally().await?),
        Request::Now => Reply::Now(store.clock().now()),
        Request::Writers => Reply::Writers(store.writers()),
    })
}

/// Refuses a read that names too many ids, because it would keep a reader of the store busy for long (rule 16.4).
fn check_ids(met: usize) -> Result<(), Refusal> {
    match met <= IDS_MOST {
        true => Ok(()),
        false => Err(Refusal::LimitExceeded {
            limit: "ids_per_read".into(),
            most: IDS_MOST,
            met,
        }),
    }
}

#[cfg(test)]
mod tests;
