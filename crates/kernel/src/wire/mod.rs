//! The whole of a store as a language in JSON: what a client asks of a server that keeps one, and what it is answered.
//!
//! A request is one call of [`Store`]: [`Request`] goes to `POST {base}/rpc/v1`, and [`Reply`] comes back, also when the
//! store has refused it. What commits have to tell comes as server-sent events from `GET {base}/rpc/v1/news`: the data
//! of each is one [`Effects`](crate::Effects).
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
mod right;

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Declared, Document, DocumentKind,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Name, Refusal, Target, Timestamp,
    Worker,
};
use serde::{Deserialize, Serialize};

use crate::{
    Answer, CommandFilter, CommandPage, Endings, EventFilter, EventPage, Filter, Op, Page,
    QueueDepth, Records, Result, Store, WaiterFilter, WaiterPage, judge,
};

pub use failure::{Failure, Malformed};
pub use right::Right;

/// Where requests are sent to, below a server's address.
pub const PATH: &str = "/rpc/v1";
/// Where news come from, below a server's address.
pub const NEWS: &str = "/rpc/v1/news";
/// How the `type` of every problem of a server begins.
pub const PROBLEMS: &str = "/problems/";
/// The only problem that says that nothing was written; any other that is not a refusal leaves that open.
pub const UNAVAILABLE: &str = "unavailable";
/// A server that has nothing to tell says so at least that often, with a comment.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most that a server gives on one page, whatever is asked for.
pub const PAGE_MOST: usize = 100_000;
/// The most ids that one read may name (rule 16.4).
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
        /// Which.
        filter: Filter,
        /// Those below that one.
        before: Option<InstanceId>,
        /// At most that many.
        limit: usize,
    },
    /// [`Store::history`].
    History {
        /// Whose.
        id: InstanceId,
        /// From the event after that one on.
        after: u32,
        /// At most that many rows.
        limit: usize,
    },
    /// [`Store::children_page`].
    Children {
        /// Whose.
        parent: InstanceId,
        /// Of which barrier.
        barrier: BarrierNumber,
        /// Those above that one.
        after: Option<InstanceId>,
    },
    /// [`Store::endings_page`].
    Endings(Vec<InstanceId>),
    /// [`Store::commands`].
    Commands {
        /// Which.
        filter: CommandFilter,
        /// Those below that one.
        before: Option<CommandId>,
        /// At most that many.
        limit: usize,
    },
    /// [`Store::records_page`].
    Records(Vec<CommandId>),
    /// [`Store::inbox`].
    Inbox(InstanceId),
    /// [`Store::events`].
    Events {
        /// Which.
        filter: EventFilter,
        /// Those below that one.
        before: Option<EventSequence>,
        /// At most that many.
        limit: usize,
    },
    /// [`Store::waiters`].
    Waiters {
        /// Which.
        filter: WaiterFilter,
        /// Those above that place.
        after: Option<(InstanceId, u32)>,
        /// At most that many.
        limit: usize,
    },
    /// [`Store::contract`].
    Contract(ContractId),
    /// [`Store::machines`].
    Machines,
    /// [`Store::documents`].
    Documents(DocumentKind),
    /// [`Store::document`].
    Document {
        /// Of which kind.
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
    /// The time, as the store's workers agree on it.
    Now,
    /// [`Store::writers`].
    Writers,
}

/// What a request is answered with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// What became of each operation, in order.
    Answers(Vec<Answer>),
    /// One instance, if there is one.
    Instance(Option<Box<Instance>>),
    /// A page of instances.
    Instances(Page<Instance>),
    /// Rows of a history.
    History(Vec<HistoryRow>),
    /// A page of children.
    Children(Page<Child>),
    /// How those ended that have, who is not there, and who is left to ask for.
    Endings(Endings),
    /// A page of records.
    Commands(CommandPage),
    /// Records, and which are left to ask for.
    Records(Records),
    /// What is pending in an inbox.
    Inbox(Vec<Command>),
    /// A page of events.
    Events(EventPage),
    /// A page of waits for events.
    Waiters(WaiterPage),
    /// A contract, if there is one.
    Contract(Option<Json>),
    /// All that is declared.
    Machines(Vec<Declared>),
    /// Documents.
    Documents(Vec<Document>),
    /// A document, if there is one.
    Document(Option<Document>),
    /// When something is due, if anything is.
    Due(Option<Timestamp>),
    /// Workers.
    Workers(Vec<Worker>),
    /// How many stand where.
    Depths(Vec<QueueDepth>),
    /// The time.
    Now(Timestamp),
    /// How many transactions may run side by side with profit.
    Writers(usize),
    /// The store has answered with an error.
    Failed(Failure),
}

impl Request {
    /// Sets who sends the requests in it that may arrive more than once: that is for the server to say.
    pub fn on_behalf_of(&mut self, caller: &str) {
        let Self::Run(ops) = self else { return };
        // A request that was just read shares them with no other.
        for op in Arc::get_mut(ops).unwrap_or_default() {
            if let Op::Once(requests) = op {
                for one in requests {
                    caller.clone_into(&mut one.id.caller);
                }
            }
        }
    }

    /// Sets the source of all that is sent in it to what the server knows of the caller (rule 7.3). A source that the
    /// caller names is its claim, and is kept beside it.
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
    // A request that was just read shares them with no other.
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
            _ => {}
        }
    }
}

/// Reads a request. What is wrong with one that is none is told with what was expected.
pub fn parse(body: &[u8]) -> Result<Request, Malformed> {
    serde_json::from_slice(body).map_err(Malformed)
}

/// Asks a store, and answers as it does.
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
        Request::Machines => Reply::Machines(store.machines().await?),
        Request::Documents(kind) => Reply::Documents(store.documents(kind).await?),
        Request::Document { kind, name } => Reply::Document(store.document(kind, &name).await?),
        Request::NextDue => Reply::Due(store.next_due().await?),
        Request::Workers => Reply::Workers(store.workers().await?),
        Request::Depths => Reply::Depths(store.depths().await?),
        Request::Now => Reply::Now(store.clock().now()),
        Request::Writers => Reply::Writers(store.writers()),
    })
}

/// Refuses a read that names too many (rule 16.4): it would keep a reader of the store busy for long.
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
