//! The outbox: requests that callers insert as rows, in their own transactions, with any driver (rule 17.3).
//!
//! Every engine that has opened the database takes them. A row is read outside of any transaction, only to learn what
//! it requests. The transaction that carries the request out checks that its row still exists, and deletes it.
//!
//! The types here represent such requests; `abide-sqlx` inserts them.
//!
//! ```
//! use abide::model::{Json, Key, Name};
//! use abide::outbox::{OutboxRequest, StartRequest};
//!
//! let start = StartRequest {
//!     key: Some(Key::new("order:42")?),
//!     ..StartRequest::machine(Name::new("checkout")?, Json::of(&100)?)
//! };
//! let request = serde_json::to_string(&OutboxRequest::Start(Box::new(start)))?;
//! assert_eq!(request, r#"{"start":{"machine":"checkout","key":"order:42","state":100}}"#);
//! // insert into abide.outbox (request) values ($1)
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod operate;
mod read;
mod take;

pub use abide_core::model::OutboxId;
pub use abide_core::model::{
    CancelRequest, OutboxRequest, Publish as PublishRequest, SignalRequest, SignalWithStartRequest,
    StartRequest, Wanted,
};
pub use abide_kernel::{OutboxDepth, OutboxProblem, RefusedPage, RefusedRequest};
pub(crate) use take::keep_taken;
