//! A transaction of the store's database in which a step writes its own rows.

use std::any::Any;

use abide_core::model::Committed;
use futures_util::future::BoxFuture;

use crate::{Answer, Op, Result};

/// An open transaction of a store's database. Its owner writes its own rows in it, and then commits an outcome together
/// with them (rule 17.2). If it is dropped before that, it is rolled back.
pub trait OwnTransaction: Any + Send {
    /// Runs an operation in the transaction. Commits the transaction if the operation [was taken](was_taken); otherwise
    /// rolls back everything that was written in it.
    fn finish(self: Box<Self>, op: Op) -> BoxFuture<'static, Result<Answer>>;
}

/// `true` if the operation itself committed all its outcomes: none was stale, refused, or committed earlier together
/// with the rows that its step wrote then.
pub fn was_taken(answer: &Answer) -> bool {
    match answer {
        Answer::Committed(each) => each
            .iter()
            .all(|one| matches!(one, Committed::Moved(_) | Committed::Kept(_, _))),
        _ => false,
    }
}
