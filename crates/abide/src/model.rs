//! The data types that calls take and return: instances, their names and keys, commands, stored events, waits, workers
//! and health. They are plain values, most of which can be serialised. A [`Refusal`] names the rule that a request broke.

pub use abide_core::model::{
    BarrierNumber, Cause, Child, Command, CommandId, CommandKind, CommandStatus, Condition,
    Declared, Event, EventSequence, Exceeded, Fingerprint, Instance, InstanceId, Json, Key, Kind,
    Limits, Name, NotJson, Offer, OperationWait, Operator, Path, Policy, Priority, Published,
    Refusal, Rejection, RequestId, ResumeKind, ResumeSource, Scope, Sequence, Start, Started,
    Status, Target, UniqueKey, WaitId, WaitKind, Waiter, When, Worker, WorkerId,
};
pub use abide_core::rules::liveness::{Code as ReasonCode, Liveness, Reason, Waiting};
