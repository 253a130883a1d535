//! Requests and responses as types, and how `/openapi.json` shows them.

mod claim;
mod command;
mod instance;
mod paging;
mod scalars;
mod start;

pub use claim::ClaimView;
pub use command::{SignalView, UpdateView};
pub use instance::{InstanceView, views};
pub use paging::{LIMIT_MAX, Listed, asked, decode, encode};
pub use scalars::{IdempotencyKeyText, Millis, Problems, given, waited};
pub use start::{Graphs, wanted};
