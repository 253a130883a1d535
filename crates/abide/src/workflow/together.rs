//! Several operations at a time: wait for all of them, or for the first.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use abide_core::model::{Json, OperationKind};

use super::Workflow;
use super::operation::Group;

impl Workflow {
    /// Runs several operations at a time, and waits for all: a tuple, or a list. Their steps run in parallel.
    ///
    /// ```
    /// # use abide::{Signal, Workflow, BoxError};
    /// # async fn fetch(what: &str) -> Result<String, BoxError> { Ok(what.to_owned()) }
    /// # const PAID: Signal<u32> = Signal::new("paid");
    /// async fn order(wf: Workflow, _: ()) -> Result<(), BoxError> {
    ///     let (stock, paid) = wf.all((wf.step("stock", || fetch("stock")), wf.signal(PAID))).await;
    ///     let pages = (1..=3).map(|n| wf.step(format!("page {n}"), move || async move { Ok::<_, BoxError>(n) }));
    ///     let pages = wf.all(pages.collect::<Vec<_>>()).await;
    /// #   let _ = (stock?, paid?, pages);
    ///     Ok(())
    /// }
    /// ```
    pub async fn all<B: Branches>(&self, branches: B) -> B::All {
        let group = Group::open(&self.journal, OperationKind::All);
        let all = branches.all().await;
        group.close(Json::null());
        all
    }

    /// Runs several operations at a time, and continues with the first one that has ended. The waits of the others are
    /// closed in the same commit. If several are ready, the first in order is taken.
    ///
    /// ```
    /// # use abide::prelude::*;
    /// # use abide::workflow::OneOf;
    /// # const PAID: Signal<u32> = Signal::new("paid");
    /// async fn order(wf: Workflow, _: ()) -> Result<u32, BoxError> {
    ///     match wf.select((wf.signal(PAID), wf.sleep(hours(1)))).await {
    ///         OneOf::First(amount) => Ok(amount?),
    ///         OneOf::Second(_) => Err("payment never came".into()),
    ///     }
    /// }
    /// ```
    pub async fn select<B: Branches>(&self, branches: B) -> B::First {
        let group = Group::open(&self.journal, OperationKind::Select);
        let (position, first) = branches.first().await;
        group.close(Json::of(&position).unwrap_or_default());
        first
    }
}

/// The first to end of two to four operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneOf<A, B, C = Infallible, D = Infallible> {
    /// The first operation in order.
    First(A),
    /// The second operation.
    Second(B),
    /// The third operation.
    Third(C),
    /// The fourth operation.
    Fourth(D),
}

/// Several operations that a workflow runs at a time: a tuple of two to four, or a `Vec`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not several operations",
    note = "give a tuple of two to four operations, or a `Vec` of them"
)]
pub trait Branches: Sized {
    /// The results of all of them.
    type All;
    /// The result of the first one to end.
    type First;

    /// Waits for all of them.
    fn all(self) -> impl Future<Output = Self::All> + Send;

    /// Waits for the first one to end. Returns its position and its result.
    fn first(self) -> impl Future<Output = (usize, Self::First)> + Send;
}

macro_rules! tuple {
    ($($branch:ident $variant:ident $position:literal)*) => {
        impl<$($branch),*> Branches for ($($branch,)*)
        where
            $($branch: IntoFuture<IntoFuture: Send, Output: Send> + Send),*
        {
            type All = ($($branch::Output,)*);
            type First = OneOf<$($branch::Output),*>;

            #[allow(non_snake_case)]
            async fn all(self) -> Self::All {
                let ($($branch,)*) = self;
                $(let mut $branch = pin!($branch.into_future());)*
                $(let mut $variant = None;)*
                poll_fn(|cx| {
                    // Always in the same order, because it determines the numbers of the operations.
                    $(if $variant.is_none() && let Poll::Ready(value) = $branch.as_mut().poll(cx) {
                        $variant = Some(value);
                    })*
                    if $($variant.is_some())&&* && let ($(Some($variant),)*) = ($($variant.take(),)*) {
                        return Poll::Ready(($($variant,)*));
                    }
                    Poll::Pending
                })
                .await
            }

            #[allow(non_snake_case)]
            async fn first(self) -> (usize, Self::First) {
                let ($($branch,)*) = self;
                $(let mut $branch = pin!($branch.into_future());)*
                poll_fn(|cx| {
                    $(if let Poll::Ready(value) = $branch.as_mut().poll(cx) {
                        return Poll::Ready(($position, OneOf::$variant(value)));
                    })*
                    Poll::Pending
                })
                .await
            }
        }
    };
}

tuple!(A First 0 B Second 1);
tuple!(A First 0 B Second 1 C Third 2);
tuple!(A First 0 B Second 1 C Third 2 D Fourth 3);

impl<F> Branches for Vec<F>
where
    F: IntoFuture<IntoFuture: Send, Output: Send> + Send,
{
    type All = Vec<F::Output>;
    /// The position in the list, and the result.
    type First = (usize, F::Output);

    async fn all(self) -> Self::All {
        let mut branches: Vec<_> = begun(self).into_iter().map(Some).collect();
        let mut outputs: Vec<Option<F::Output>> = branches.iter().map(|_| None).collect();
        poll_fn(|cx| {
            for (branch, output) in branches.iter_mut().zip(&mut outputs) {
                if let Some(running) = branch
                    && let Poll::Ready(value) = running.as_mut().poll(cx)
                {
                    (*branch, *output) = (None, Some(value));
                }
            }
            if branches.iter().any(Option::is_some) {
                return Poll::Pending;
            }
            Poll::Ready(outputs.drain(..).flatten().collect())
        })
        .await
    }

    async fn first(self) -> (usize, Self::First) {
        let mut branches = begun(self);
        poll_fn(|cx| {
            for (position, branch) in branches.iter_mut().enumerate() {
                if let Poll::Ready(value) = branch.as_mut().poll(cx) {
                    return Poll::Ready((position, (position, value)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn begun<F: IntoFuture>(branches: Vec<F>) -> Vec<Pin<Box<F::IntoFuture>>> {
    let branches = branches.into_iter();
    branches
        .map(|branch| Box::pin(branch.into_future()))
        .collect()
}
