//! The transaction in which a step of a workflow writes its own rows. The end of the step is committed in it
//! (rule 17.2).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_core::model::Refusal;
use abide_kernel::{Answer, Op, OwnTransaction, Store};
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::journal::Journal;
use super::step::Attempt;
use crate::machine::begin_own;
use crate::{BoxError, Error};

impl Attempt {
    /// Opens a transaction of the store's database, to write your own rows and commit them together with the end of
    /// this step. For those rows the step runs exactly once. If the claim was lost meanwhile, nothing of it is
    /// committed.
    ///
    /// The type determines the database: `abide::sqlite::StepTransaction` or `abide::postgres::StepTransaction`. Finish
    /// it with [`commit_with`](Self::commit_with); if it is dropped before that, it is rolled back. Parallel steps of
    /// one workflow have their transactions one after the other: each waits here for the one before it.
    ///
    /// ```
    /// # use abide::sqlite::StepTransaction;
    /// # use abide::{BoxError, Workflow};
    /// async fn book(wf: Workflow, amount: u32) -> Result<u32, BoxError> {
    ///     let booked = wf
    ///         .step_with("book", |attempt| async move {
    ///             let mut transaction: StepTransaction = attempt.transaction().await?;
    ///             transaction.with(|db| db.execute("insert into ledger values (?1)", [amount]))?;
    ///             attempt.commit_with(transaction, amount)        // the row and the step's end, or neither
    ///         })
    ///         .await?;
    ///     Ok(booked)
    /// }
    /// ```
    pub async fn transaction<T: OwnTransaction>(&self) -> Result<T, Error> {
        let own = &self.own;
        let store = own.store.clone().ok_or(Refusal::NoDatabase)?;
        own.take_turn().await?;
        begin_own(&*store, own.limit).await
    }

    /// Returns the result of the step, to be committed in this transaction together with the rows written in it:
    /// `attempt.commit_with(transaction, receipt)`. If the step fails after this, the transaction is rolled back.
    pub fn commit_with<T>(
        &self,
        transaction: impl OwnTransaction,
        value: T,
    ) -> Result<T, BoxError> {
        let mut slot = self.own.slot();
        if slot.turn.is_none() {
            return Err(foreign().into());
        }
        slot.transaction = Some(Box::new(transaction));
        Ok(value)
    }
}

fn foreign() -> Refusal {
    Refusal::BadOutcome {
        problem: "its transaction is not of this attempt, or the attempt is over; open one with `attempt.transaction()` in the step's own code".into(),
    }
}

/// The state that an attempt needs for its own transaction.
pub(super) struct Own {
    store: Option<Arc<dyn Store>>,
    limit: Option<Duration>,
    writing: Arc<Semaphore>,
    /// Locked while the attempt waits for its turn, so that it takes only one, however often it requests one.
    requesting: tokio::sync::Mutex<()>,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    /// While it is set, no other step of the workflow opens a transaction.
    turn: Option<OwnedSemaphorePermit>,
    /// The transaction in which the step's end must be committed.
    transaction: Option<Box<dyn OwnTransaction>>,
    over: bool,
}

impl Own {
    pub fn new(journal: &Journal, limit: Option<Duration>) -> Arc<Self> {
        Arc::new(Self {
            store: journal.about.store.clone(),
            limit,
            writing: journal.writing.clone(),
            requesting: tokio::sync::Mutex::default(),
            slot: Mutex::default(),
        })
    }

    async fn take_turn(&self) -> Result<(), Error> {
        let _one = self.requesting.lock().await;
        if self.slot().turn.is_some() {
            return Ok(());
        }
        let turn = self.writing.clone().acquire_owned().await;
        let turn = turn.map_err(|_| foreign())?;
        let mut slot = self.slot();
        if slot.over {
            return Err(foreign().into());
        }
        slot.turn = Some(turn);
        Ok(())
    }

    /// Ends the attempt, and returns the transaction in which its end must be committed. Other transactions that it
    /// opened can no longer be committed.
    pub fn close(&self) -> Option<Box<dyn OwnTransaction>> {
        let mut slot = self.slot();
        slot.over = true;
        let turn = slot.turn.take();
        let transaction = slot.transaction.take()?;
        Some(Box::new(Lent { transaction, turn }))
    }

    /// Locks the slot. A panic leaves nothing in it half done.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

/// A step's transaction with its turn, which ends with the transaction.
struct Lent {
    transaction: Box<dyn OwnTransaction>,
    turn: Option<OwnedSemaphorePermit>,
}

impl OwnTransaction for Lent {
    fn finish(self: Box<Self>, op: Op) -> BoxFuture<'static, abide_kernel::Result<Answer>> {
        Box::pin(async move {
            let Self { transaction, turn } = *self;
            let answer = transaction.finish(op).await;
            drop(turn);
            answer
        })
    }
}
