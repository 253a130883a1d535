//! A transaction of the store's database that a step writes its own rows in.

use std::any::Any;

use abide_core::model::Committed;
use futures_util::future::BoxFuture;

use crate::{Answer, Op, Result};

/// A transaction of a store's database, open: whoever asked for it writes rows of their own in it, and then has an
/// outcome committed together with them (rule 17.2). Dropped before that, it is rolled back.
pub trait OwnTransaction: Any + Send {
    /// Runs an operation in it. It is committed when that [was taken](was_taken), and rolled back when not, with all
    /// that was written in it.
    fn finish(self: Box<Self>, op: Op) -> BoxFuture<'static, Result<Answer>>;
}

/// Whether every outcome of an operation was committed by it: none was stale, refused or committed before, with the rows
/// that its step wrote then.
pub fn was_taken(answer: &Answer) -> bool {
    match answer {
        Answer::Committed(each) => each
            .iter()
            .all(|one| matches!(one, Committed::Moved(_) | Committed::Kept(_, _))),
        _ => false,
    }
}
