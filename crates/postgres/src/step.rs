//! A transaction in which a step writes its own rows, and its outcome is committed with them (rule 17.2).

use std::ops::Deref;
use std::sync::Arc;

use abide_core::model::Limits;
use abide_kernel::{
    Answer, Bus, Clock, Effects, Error, Op, OwnTransaction, Result, run_lent, was_taken,
};
use futures_util::future::BoxFuture;
use tokio_postgres::Client;

use crate::error::{Fate, classify};
use crate::notify::Notifier;
use crate::pool::{OwnedLoan, Pool};
use crate::txn::Transaction;

/// Opens one. Who has waited for a lock must see what its last holder has committed.
const BEGIN: &str = "begin isolation level read committed";

/// The same on a server that would acknowledge what it has not made durable (rule 1.6).
const BEGIN_DURABLE: &str =
    "begin isolation level read committed; set local synchronous_commit = on";

/// A transaction of the store's database. It is a [`Client`] on which one is open: what is written through it is
/// committed together with the step's outcome. Leave beginning and committing to abide. Dropped before that, it is
/// rolled back.
pub struct StepTransaction {
    loan: OwnedLoan,
    home: Home,
}

/// What a transaction needs of the store that it is of.
#[derive(Clone)]
pub(crate) struct Home {
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub bus: Bus,
    pub notifier: Arc<Notifier>,
}

impl Home {
    fn tell(&self, effects: Effects) {
        self.notifier.tell(&effects);
        self.bus.tell(effects);
    }
}

impl StepTransaction {
    pub(crate) async fn begin(pool: &Arc<Pool>, home: Home) -> Result<Self> {
        let mut loan = pool.lend().await?;
        let begin = || match pool.lineage().commits_async() {
            true => BEGIN_DURABLE,
            false => BEGIN,
        };
        if loan.batch_execute(begin()).await.is_err() {
            // It was idle for long, and the server may have ended it; a new one tells whether it is there.
            drop(loan);
            loan = pool.lend_new().await?;
            loan.batch_execute(begin())
                .await
                .map_err(|error| classify(&error, Fate::Open))?;
        }
        Ok(Self { loan, home })
    }

    async fn end(mut self, op: Op) -> Result<Answer> {
        let ops = [op];
        let mut txn = Transaction::host(&self.loan, &ops);
        let run = run_lent(&mut txn, &ops, self.home.clock.now(), &self.home.limits).await;
        let (answers, effects) = match run {
            Ok(done) => {
                txn.land().await?;
                done
            }
            Err(error) => return Err(error),
        };
        drop(txn);
        let answer = answers
            .into_iter()
            .next()
            .ok_or_else(|| Error::Broken("an operation was not answered".into()))?;
        if !was_taken(&answer) {
            self.loan.clean = self.loan.batch_execute("rollback").await.is_ok();
            return Ok(answer);
        }
        let committed = self.loan.simple_query("commit").await;
        let committed = committed.map_err(|error| classify(&error, Fate::Committing));
        if let Err(error) = committed {
            self.home.tell(Effects::anything());
            return Err(error);
        }
        self.loan.clean = true;
        self.home.tell(effects);
        Ok(answer)
    }
}

impl Deref for StepTransaction {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.loan
    }
}

impl OwnTransaction for StepTransaction {
    fn finish(self: Box<Self>, op: Op) -> BoxFuture<'static, Result<Answer>> {
        Box::pin(self.end(op))
    }
}

impl std::fmt::Debug for StepTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepTransaction").finish_non_exhaustive()
    }
}
