//! Requests that may arrive more than once: all calls of one request share its id and are carried out once (rule 1.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use abide_core::model::{
    Delivered, NewCommand, Publish, Published, Refusal, RequestId, Start, Started,
};
use abide_kernel::committer::{Committer, Patience, Requests, Submit};
use abide_kernel::{Answer, Backoff, Error, Once, Op, Result};
use tokio::time::Instant;

use super::Client;
use crate::Abide;

/// The most entries that a request may have to share a transaction with other requests.
const SHARED_ENTRIES: usize = 100;

/// Runs requests that may arrive more than once. Requests of the same kind that arrive at the same time share a
/// transaction. Different kinds do not, because each kind takes locks in its own order.
#[derive(Clone)]
pub(crate) struct Repeatable {
    committer: Committer,
    patience: Duration,
    starts: Submit<Requests>,
    deliveries: Submit<Requests>,
    publishes: Submit<Requests>,
}

impl Repeatable {
    pub fn begin(committer: &Committer, patience: Duration) -> Self {
        let submit = || Submit::begin(committer, patience);
        Self {
            committer: committer.clone(),
            patience,
            starts: submit(),
            deliveries: submit(),
            publishes: submit(),
        }
    }

    /// Carries out a request, or returns its earlier answer. The flag is `true` if the answer is an earlier one.
    ///
    /// A transaction whose outcome is unknown is tried again: because of its id, it is carried out once. While the same
    /// request is being carried out elsewhere, this waits, for as long as it would wait for an unavailable database.
    async fn run(&self, id: &RequestId, ops: Arc<[Op]>) -> Result<(Vec<Answer>, bool)> {
        let until = Instant::now().checked_add(self.patience);
        let mut backoff = Backoff::away();
        loop {
            let once = Once {
                id: id.clone(),
                ops: ops.clone(),
            };
            let running = match self.ask(once).await? {
                Ok((answers, replayed)) => return Ok((answers, replayed)),
                Err(refusal @ Refusal::RequestRunning { .. }) => refusal,
                Err(refusal) => return Err(refusal.into()),
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(running.into());
            }
            backoff.pause().await;
        }
    }

    async fn ask(&self, once: Once) -> Result<Result<(Vec<Answer>, bool), Refusal>> {
        let shared = match &*once.ops {
            [Op::Start(entries)] if entries.len() <= SHARED_ENTRIES => &self.starts,
            [Op::Deliver(entries)] if entries.len() <= SHARED_ENTRIES => &self.deliveries,
            [Op::Publish(entries)] if entries.len() <= SHARED_ENTRIES => &self.publishes,
            _ => return self.alone(once).await,
        };
        let remembered = shared.ask_one(once).await?;
        Ok(remembered.map(|one| (one.answers, one.replayed)))
    }

    /// Carries out a request in a transaction of its own.
    async fn alone(&self, once: Once) -> Result<Result<(Vec<Answer>, bool), Refusal>> {
        let ops: Arc<[Op]> = Arc::from([Op::Once(vec![once])]);
        let until = Instant::now().checked_add(self.patience);
        let patience = Patience::until(until, true);
        let answers = self.committer.run(&ops, patience).await?;
        match answers.into_iter().next() {
            Some(Answer::Once(each)) => {
                let one = each
                    .into_iter()
                    .next()
                    .ok_or_else(Error::unexpected_answer)?;
                Ok(one.map(|one| (one.answers, one.replayed)))
            }
            _ => Err(Error::unexpected_answer()),
        }
    }
}

/// The calls of one request, in the order in which they are made.
pub(crate) struct Calls {
    id: RequestId,
    next: AtomicU32,
    replayed: AtomicBool,
}

impl Calls {
    /// Runs the operations of the next call.
    async fn run(&self, repeatable: &Repeatable, ops: Vec<Op>) -> Result<Vec<Answer>> {
        let id = RequestId {
            part: self.next.fetch_add(1, Ordering::Relaxed),
            ..self.id.clone()
        };
        let (answers, replayed) = repeatable.run(&id, ops.into()).await?;
        self.replayed.fetch_or(replayed, Ordering::Relaxed);
        Ok(answers)
    }
}

impl Abide {
    /// Returns the same store, for the calls of one request that may be repeated. A call that was carried out before
    /// under that id gets the same answer as then (rule 1.5). Calls are identified by their order, so make them in the
    /// same order each time, one after the other.
    ///
    /// Errors of its calls: an id that was used for a different request is [`Refused`](crate::Error::Refused). So is an
    /// id whose request is being carried out elsewhere for longer than the patience that the store was opened with.
    ///
    /// ```
    /// # use abide::model::{Fingerprint, Name, RequestId};
    /// # use abide::{Abide, Job};
    /// # const MAIL: Job<u32> = Job::new("mail");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// let id = RequestId::new("importer", Name::new("row-7")?, Fingerprint::of(["mail", "7"]));
    /// let first = abide.once(id.clone()).start(MAIL, 7).await?;
    /// let again = abide.once(id).start(MAIL, 7).await?;
    /// assert_eq!(first.id(), again.id());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn once(&self, id: RequestId) -> Self {
        let calls = Calls {
            id,
            next: AtomicU32::new(0),
            replayed: AtomicBool::new(false),
        };
        let mut client = self.client().clone();
        client.calls = Some(Arc::new(calls));
        Self::over(client)
    }

    /// `true` if a call of this request got an earlier answer; always `false` without [`once`](Self::once).
    pub fn is_replayed(&self) -> bool {
        let calls = self.client().calls.as_ref();
        calls.is_some_and(|calls| calls.replayed.load(Ordering::Relaxed))
    }
}

/// Defines a function that submits entries: folded with those of other callers, or as a call of a request.
macro_rules! submitting {
    ($(#[$doc:meta])* $name:ident($entry:ty) -> $each:ty, $submit:ident, $op:ident, $answer:ident) => {
        $(#[$doc])*
        pub(crate) async fn $name(&self, entries: Vec<$entry>) -> Result<Vec<$each>> {
            let Some(calls) = &self.calls else {
                return self.$submit.ask(entries).await;
            };
            // Boxed, because most calls belong to no request and their futures should not contain this one.
            let call = Box::pin(calls.run(&self.repeatable, vec![Op::$op(entries)]));
            let answers = call.await?;
            match answers.into_iter().next() {
                Some(Answer::$answer(each)) => Ok(each),
                _ => Err(Error::unexpected_answer()),
            }
        }
    };
}

impl Client {
    submitting! {
        /// Starts instances.
        start(Start) -> Result<Started, Refusal>, submit, Start, Started
    }
    submitting! {
        /// Delivers signals and updates.
        deliver(NewCommand) -> Result<Delivered, Refusal>, commands, Deliver, Delivered
    }
    submitting! {
        /// Publishes events.
        publish(Publish) -> Result<Published, Refusal>, events, Publish, Published
    }

    /// Runs operations as the next call of the request that this client belongs to. Returns them if it belongs to none.
    pub(crate) async fn run_once(&self, ops: Vec<Op>) -> Result<Result<Vec<Answer>>, Vec<Op>> {
        match &self.calls {
            Some(calls) => Ok(calls.run(&self.repeatable, ops).await),
            None => Err(ops),
        }
    }
}

/// Returns the answer to the only entry.
pub(crate) fn first<E>(each: Vec<E>) -> Result<E> {
    each.into_iter().next().ok_or(Error::Closed)
}
