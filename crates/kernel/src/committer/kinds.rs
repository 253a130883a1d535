//! The kinds of entries that can be committed in batches.

use abide_core::model::{
    Commit, Committed, ContractId, Delivered, Epoch, Heartbeat, InstanceId, Lane, Name, NewCommand,
    Publish, Published, Refusal, Start, Started, Target,
};

use super::Folded;
use crate::{Answer, Error, Extension, Once, Op, Remembered, Result};

/// Defines a simple kind of entry: its items, the answer to each, and whether it may be repeated; then the operation,
/// the copy of an item, and the instance that it concerns.
macro_rules! kind {
    (
        $(#[$doc:meta])* $kind:ident($item:ty) -> $each:ty, repeatable: $repeatable:literal;
        $op:ident, $answer:ident; |$one:ident| $again:expr; |$about:ident| $subject:expr
        $(; judged: $unjudged:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $kind;

        impl Folded for $kind {
            type Item = $item;
            type Each = $each;
            const REPEATABLE: bool = $repeatable;

            $(
                const IS_JUDGED: bool = true;

                fn unjudged<'i>(
                    item: &'i $item,
                    each: &$each,
                ) -> Option<(ContractId, &'i NewCommand)> {
                    $unjudged(item, each)
                }
            )?

            fn op(&self, items: Vec<$item>) -> Op {
                Op::$op(items)
            }

            fn items(op: &Op) -> &[$item] {
                match op {
                    Op::$op(items) => items,
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

            fn subject($about: &$item) -> Option<Target> {
                $subject
            }
        }
    };
}

kind! {
    /// Starts of instances.
    Starts(Start) -> Result<Started, Refusal>, repeatable: false;
    Start, Started; |one| one.clone(); |one| one.key.clone().map(Target::Key)
}

kind! {
    /// Signals and updates.
    Deliveries(NewCommand) -> Result<Delivered, Refusal>, repeatable: false;
    Deliver, Delivered; |one| one.clone(); |one| Some(one.target.clone());
    judged: unjudged
}

fn unjudged<'i>(
    delivery: &'i NewCommand,
    each: &Result<Delivered, Refusal>,
) -> Option<(ContractId, &'i NewCommand)> {
    match each {
        Err(Refusal::Unjudged { contract }) => Some((*contract, delivery)),
        _ => None,
    }
}

kind! {
    /// Events.
    Events(Publish) -> Result<Published, Refusal>, repeatable: false;
    Publish, Published; |one| one.clone(); |_one| None
}

kind! {
    /// Renewals of claims that are still held.
    Extensions(Extension) -> Heartbeat, repeatable: true;
    Extend, Extended; |one| one.again(); |one| Some(Target::Id(one.claim.id()))
}

kind! {
    /// Requests that may arrive more than once. A request that was carried out gets the same answer again, by its id
    /// (rule 1.5).
    Requests(Once) -> Result<Remembered, Refusal>, repeatable: true;
    Once, Once; |one| one.clone(); |one| match one.ops.first()? {
        Op::Start(starts) => starts.first()?.key.clone().map(Target::Key),
        Op::Deliver(deliveries) => Some(deliveries.first()?.target.clone()),
        _ => None,
    }
}

/// Outcomes. An outcome that was committed gets the same answer again, by its epoch.
#[derive(Clone, Debug, Default)]
pub struct Commits {
    /// The queues and lanes that the worker serves. Before a claim is kept, they are checked for more urgent work.
    /// Empty for workers that do not get their next step in the answer.
    pub serves: Vec<(Name, Vec<Lane>)>,
}

impl Folded for Commits {
    type Item = Commit;
    type Each = Committed;
    const REPEATABLE: bool = true;

    fn op(&self, commits: Vec<Commit>) -> Op {
        let serves = self.serves.clone();
        Op::Commit { commits, serves }
    }

    fn items(op: &Op) -> &[Commit] {
        match op {
            Op::Commit { commits, .. } => commits,
            _ => &[],
        }
    }

    fn again(one: &Commit) -> Commit {
        one.again()
    }

    fn answers(answer: Answer) -> Option<Vec<Committed>> {
        match answer {
            Answer::Committed(each) => Some(each),
            _ => None,
        }
    }

    fn subject(one: &Commit) -> Option<Target> {
        Some(Target::Id(one.claim.id()))
    }

    fn claim(one: &Commit) -> Option<(InstanceId, Epoch)> {
        Some((one.claim.id(), one.claim.epoch()))
    }

    /// rule 4.2: an outcome that cannot be stored is refused, and the claim stays as it was.
    fn refused(error: &Error) -> Option<Committed> {
        let problem = error.to_string();
        Some(Committed::Refused(Refusal::BadOutcome { problem }))
    }
}
