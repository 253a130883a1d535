//! The read side of a store as data: `Query`, the reads, and `QueryResult`, their results.

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Refusal, Target, Timestamp,
    Worker,
};
use serde::{Deserialize, Serialize};

use crate::{
    CommandFilter, CommandPage, Contracts, DocumentPage, Endings, EventFilter, EventPage, Filter,
    MachinePage, OutboxDepth, OutboxRow, Page, QueueDepth, ReadyLane, Records, RefusedPage,
    Surroundings, Tally, WaiterFilter, WaiterPage,
};

/// The maximum number of items on one page, whatever a request from another process asks for.
pub const PAGE_MOST: usize = 100_000;
/// The maximum number of ids that one read from another process may name (rule 16.4).
pub const IDS_MOST: usize = 1_000;

/// A read of a store. [`Store`](crate::Store) has a method for each, which says what it returns.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// [`Store::get`](crate::Store::get): returns [`QueryResult::Instance`].
    Get(Target),
    /// [`Store::list`](crate::Store::list): returns [`QueryResult::Instances`].
    List {
        /// The conditions.
        filter: Filter,
        /// Only instances below this one.
        before: Option<InstanceId>,
        /// The maximum number of instances.
        limit: usize,
    },
    /// [`Store::around`](crate::Store::around).
    Around(Vec<InstanceId>),
    /// [`Store::history`](crate::Store::history).
    History {
        /// The instance.
        id: InstanceId,
        /// Only events after this one.
        after: u32,
        /// The maximum number of rows.
        limit: usize,
    },
    /// [`Store::children_page`](crate::Store::children_page).
    Children {
        /// The parent.
        parent: InstanceId,
        /// The barrier.
        barrier: BarrierNumber,
        /// Only children above this one.
        after: Option<InstanceId>,
    },
    /// [`Store::endings_page`](crate::Store::endings_page).
    Endings(Vec<InstanceId>),
    /// [`Store::commands`](crate::Store::commands).
    Commands {
        /// The conditions.
        filter: CommandFilter,
        /// Only records below this one.
        before: Option<CommandId>,
        /// The maximum number of records.
        limit: usize,
    },
    /// [`Store::records_page`](crate::Store::records_page).
    Records(Vec<CommandId>),
    /// [`Store::inbox`](crate::Store::inbox).
    Inbox(InstanceId),
    /// [`Store::events`](crate::Store::events).
    Events {
        /// The conditions.
        filter: EventFilter,
        /// Only events below this one.
        before: Option<EventSequence>,
        /// The maximum number of events.
        limit: usize,
    },
    /// [`Store::waiters`](crate::Store::waiters).
    Waiters {
        /// The conditions.
        filter: WaiterFilter,
        /// Only waits above this position.
        after: Option<(InstanceId, u32)>,
        /// The maximum number of waits.
        limit: usize,
    },
    /// [`Store::contract`](crate::Store::contract).
    Contract(ContractId),
    /// [`Store::contracts_page`](crate::Store::contracts_page).
    Contracts(Vec<ContractId>),
    /// [`Store::machines_page`](crate::Store::machines_page).
    Machines {
        /// Only declarations above this one.
        after: Option<Lane>,
        /// The maximum number of declarations.
        limit: usize,
    },
    /// [`Store::documents_page`](crate::Store::documents_page).
    Documents {
        /// Their kind.
        kind: DocumentKind,
        /// Only documents above this name.
        after: Option<Name>,
        /// The maximum number of documents.
        limit: usize,
    },
    /// [`Store::document`](crate::Store::document).
    Document {
        /// Its kind.
        kind: DocumentKind,
        /// Its name.
        name: Name,
    },
    /// [`Store::next_due`](crate::Store::next_due): returns [`QueryResult::Due`].
    NextDue,
    /// [`Store::workers`](crate::Store::workers).
    Workers,
    /// [`Store::depths`](crate::Store::depths).
    Depths,
    /// [`Store::outbox`](crate::Store::outbox).
    Outbox {
        /// The rows to leave out.
        except: Vec<OutboxId>,
        /// The maximum number of rows.
        limit: usize,
    },
    /// [`Store::refused`](crate::Store::refused).
    Refused {
        /// Only requests below this one.
        before: Option<OutboxId>,
        /// The maximum number of requests.
        limit: usize,
    },
    /// [`Store::outbox_depth`](crate::Store::outbox_depth).
    OutboxDepth,
    /// [`Store::ready_lanes`](crate::Store::ready_lanes).
    ReadyLanes,
    /// [`Store::tally`](crate::Store::tally).
    Tally,
}

/// The result of a [`Query`]. Each query has one kind of result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryResult {
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
    /// Rows of the outbox.
    Outbox(Vec<OutboxRow>),
    /// A page of refused requests of the outbox.
    Refused(RefusedPage),
    /// The number of waiting and refused requests of the outbox.
    OutboxDepth(OutboxDepth),
    /// The lanes that have something to claim.
    ReadyLanes(Vec<ReadyLane>),
    /// The number of blocked, failing and ended instances.
    Tally(Tally),
}

impl Query {
    /// Limits a query of another process: its pages get at most [`PAGE_MOST`] items. One that names more than [`IDS_MOST`] ids
    /// is refused, because it would keep a reader of the store busy for long (rule 16.4).
    pub fn limited(mut self) -> Result<Self, Refusal> {
        let ids = match &self {
            Self::Around(ids) | Self::Endings(ids) => ids.len(),
            Self::Records(ids) => ids.len(),
            Self::Contracts(ids) => ids.len(),
            Self::Outbox { except, .. } => except.len(),
            _ => 0,
        };
        if ids > IDS_MOST {
            return Err(Refusal::LimitExceeded {
                limit: "ids_per_read".into(),
                most: IDS_MOST,
                met: ids,
            });
        }
        match &mut self {
            Self::List { limit, .. }
            | Self::History { limit, .. }
            | Self::Commands { limit, .. }
            | Self::Events { limit, .. }
            | Self::Waiters { limit, .. }
            | Self::Machines { limit, .. }
            | Self::Documents { limit, .. }
            | Self::Outbox { limit, .. }
            | Self::Refused { limit, .. } => *limit = (*limit).min(PAGE_MOST),
            Self::Get(_)
            | Self::Around(_)
            | Self::Children { .. }
            | Self::Endings(_)
            | Self::Records(_)
            | Self::Inbox(_)
            | Self::Contract(_)
            | Self::Contracts(_)
            | Self::Document { .. }
            | Self::NextDue
            | Self::Workers
            | Self::Depths
            | Self::OutboxDepth
            | Self::ReadyLanes
            | Self::Tally => {}
        }
        Ok(self)
    }
}
