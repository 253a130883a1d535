//! The data types: instances, the outcomes of steps, claims, commands, events, history.

mod claim;
mod coded;
mod command;
mod contract;
mod document;
mod event;
mod extra;
mod graph;
mod history;
mod history_row;
mod ids;
mod instance;
mod json;
mod json_text;
mod limits;
mod machine;
mod offer;
mod operate;
mod operation;
mod outbox;
mod outcome;
mod refusal;
mod request;
mod row;
#[cfg(feature = "openapi")]
mod schema;
mod start;
mod status;
mod time;
mod worker;

pub use claim::{Cause, Claim, Claimed, Lane, Lease, ParentRef};
pub use command::{
    Answered, Closing, Command, CommandKind, CommandStatus, Delivered, Exceeded, NewCommand,
    Pending, Rejection, Target, Verdict,
};
pub use contract::{Accepts, Arguments, Contract, ContractId, Parameter, TypeSpec};
pub(crate) use contract::{Decimal, Parsed, Shape, canonical, is_whole};
pub use document::{Document, DocumentKind};
pub use event::{
    Condition, Event, EventSequence, EventWait, Operator, Path, Publish, Published, Waiter,
};
pub use extra::Extra;
pub use graph::{
    EventSpec, GraphProblem, GraphSpec, GraphState, MatchSpec, Matches, RetrySpec, Right,
    SignalSpec, SkipIf, SleepSpec, StepSpec, StepState, StepStatus, SubGraph,
};
pub use history::{Entry, Folded, HandedSignal, HistoryEvent};
pub use history_row::HistoryRow;
pub use ids::{
    AnyKey, BarrierNumber, CommandId, Epoch, InstanceId, Key, Name, OutboxId, Priority, Sequence,
    UniqueKey, WaitId, WorkerId, check_claimed_source,
};
pub use instance::{Child, Instance, ResumeKind, ResumeSource, WaitKind};
pub use json::{Json, NotJson};
pub use limits::{AT_ONCE, DURATION_MS_MAX, Limits, OUTBOX_REQUEST_BYTES_MAX};
pub use machine::{Declared, Kind, Policies, Policy};
pub use offer::Offer;
pub use operate::{Cancel, Children, Operated};
pub use operation::{
    Blocked, ChildStarts, Completed, ConditionWait, Ending, Opened, Operation, OperationKind, Park,
    SignalWait, Signature, Taken, Then, TriedAgain, Unended, WorkflowTurn,
};
pub use outbox::{
    CancelRequest, OutboxRequest, SignalRequest, SignalWithStartRequest, StartRequest, Wanted,
};
pub use outcome::{Commit, Committed, Join, Outcome, Wait};
pub use refusal::Refusal;
pub use request::{Fingerprint, RequestId};
pub use row::{
    Aside, Attended, Awaits, Family, Folding, Inbox, OperationWait, Row, Run, Scopes, Settled,
};
pub use start::{Contracted, NewRow, Start, Started, When};
pub use status::{Scope, Status, UnknownStatus};
pub use time::Timestamp;
pub use worker::{Heartbeat, Worker};
