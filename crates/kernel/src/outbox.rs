//! The outbox: requests that callers insert as rows, in transactions of their own, by any driver (rule 17.3).

use std::borrow::Cow;

use abide_core::model::{OutboxId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::query::Listed;
use crate::{Op, Page};

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// Its position: rows are taken in this order.
    pub id: OutboxId,
    /// The request, as it was inserted.
    pub request: String,
    /// The database role that inserted it, where the database knows.
    pub role: Option<String>,
}

/// A request of the outbox to carry out, or to record as refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboxEntry {
    /// Its row.
    pub id: OutboxId,
    /// The action for it.
    #[serde(rename = "asked")]
    pub action: OutboxAction,
}

/// The action for a row of the outbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxAction {
    /// Carry out this operation: a start, a reservation, a signal or update, an event or a cancellation, with exactly
    /// one entry.
    Run(std::sync::Arc<Op>),
    /// Record the request as refused.
    Refuse(OutboxProblem),
}

/// The maximum length of a stored problem in bytes; a longer one is truncated.
const PROBLEM_BYTES_MAX: usize = 4 << 10;

/// The reason why a request of the outbox was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxProblem {
    /// A stable word for programs.
    pub reason: Cow<'static, str>,
    /// The reason as a text for people.
    pub problem: String,
}

impl OutboxProblem {
    /// Creates a problem with a reason and a description.
    pub fn new(reason: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> Self {
        let reason = reason.into();
        let problem: String = problem.into();
        // PostgreSQL texts cannot contain NUL, and an operator reads no more than this.
        let mut problem = problem.replace('\0', "\u{fffd}");
        if problem.len() > PROBLEM_BYTES_MAX {
            let fits = |at: &usize| problem.is_char_boundary(*at);
            let most = (0..=PROBLEM_BYTES_MAX).rev().find(fits);
            problem.truncate(most.unwrap_or_default());
        }
        Self { reason, problem }
    }
}

/// A request of the outbox that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// Its id among the refused requests.
    pub id: OutboxId,
    /// The id that its row had in the outbox.
    pub outbox_id: OutboxId,
    /// The request, as it was inserted.
    pub request: String,
    /// The database role that inserted it, where the database knows.
    pub role: Option<String>,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When it was refused.
    pub refused_at: Timestamp,
    /// The reason.
    #[serde(flatten)]
    pub problem: OutboxProblem,
}

impl Listed for RefusedRequest {
    fn bytes(&self) -> usize {
        self.request.len() + self.problem.problem.len()
    }
}

/// A page of refused requests.
pub type RefusedPage = Page<RefusedRequest, OutboxId>;

/// The number of waiting and of refused requests of the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxDepth {
    /// The number of waiting rows, counted up to [`COUNTED_MAX`](Self::COUNTED_MAX).
    pub waiting: u64,
    /// When the first of them was inserted.
    pub oldest: Option<Timestamp>,
    /// The number of refused requests that are still recorded, counted up to [`COUNTED_MAX`](Self::COUNTED_MAX).
    pub refused: u64,
}

impl OutboxDepth {
    /// The limit of the counts, so that counting a full outbox does not read all of it.
    pub const COUNTED_MAX: u64 = 10_000;
}
