//! What can be folded.

use abide_core::model::{
    Commit, Committed, Delivered, Delivery, Heartbeat, Publish, Published, Refusal, Start, Started,
};

use super::Folded;
use crate::{Answer, Extension, Op, Result};

/// A kind of request: its items, what becomes of each, whether it may be asked for twice; then the operation made of items,
/// the items in an operation, one of them once more, and the answer.
macro_rules! kind {
    (
        $(#[$doc:meta])* $kind:ident($item:ty) -> $each:ty, repeatable: $repeatable:literal;
        |$new:ident| $op:expr; $found:pat => $items:expr; |$one:ident| $again:expr; $answer:ident
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $kind;

        impl Folded for $kind {
            type Item = $item;
            type Each = $each;
            const REPEATABLE: bool = $repeatable;

            fn op($new: Vec<$item>) -> Op {
                $op
            }

            fn items(op: &Op) -> &[$item] {
                match op {
                    $found => $items,
                    _ => &[],
                }
            }

            fn again($one: &$item) -> $item {
                $again
            }

            fn answers(answer: Answer) -> Option<Vec<$each>> {
                match answer {
                    Answer::$answer(each) => Some(each),
                    _ => None,
                }
            }
        }
    };
}

kind! {
    /// Starts of instances.
    Starts(Start) -> Result<Started, Refusal>, repeatable: false;
    |items| Op::Start(items); Op::Start(items) => items; |one| one.clone(); Started
}

kind! {
    /// Signals and updates.
    Mail(Delivery) -> Result<Delivered, Refusal>, repeatable: false;
    |items| Op::Deliver(items); Op::Deliver(items) => items; |one| one.clone(); Delivered
}

kind! {
    /// Events.
    Events(Publish) -> Result<Published, Refusal>, repeatable: false;
    |items| Op::Publish(items); Op::Publish(items) => items; |one| one.clone(); Published
}

kind! {
    /// Outcomes, of workers who will not be told what to run next: what was committed answers so again, by its epoch.
    Commits(Commit) -> Committed, repeatable: true;
    |commits| Op::Commit { commits, serves: Vec::new() };
    Op::Commit { commits, .. } => commits; |one| one.again(); Committed
}

kind! {
    /// Claims that are still held.
    Extensions(Extension) -> Heartbeat, repeatable: true;
    |claims| Op::Extend(claims); Op::Extend(claims) => claims; |one| one.again(); Extended
}
