//! Requests and responses as types, and how `/openapi.json` shows them.

mod claim;
mod command;
mod instance;
mod paging;
mod scalars;
mod start;

pub use abide::outbox::Wanted;
pub use claim::ClaimView;
pub use command::{SignalView, UpdateView};
pub use instance::{ConditionView, InstanceView, LivenessWord, views};
pub use paging::{LIMIT_MAX, Listed, decode, encode, limited};
pub use scalars::{
    AnyJson, ArgumentsJson, CommandStatusWord, IdempotencyKeyText, KeyText, Millis, NameText,
    OperatorWord, Problems, StatusWord, TargetText, WaitKindWord, given, waited,
};
pub use start::{Graphs, PolicyRequest, StartRequest};
