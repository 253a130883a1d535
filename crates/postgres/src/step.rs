//! A transaction in which a step writes its own rows, and its outcome is committed with them (rule 17.2).

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::{
    Answer, Bus, Clock, Effects, Error, Op, OwnTransaction, Result, run_lent, was_taken,
};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::begin::{self, COMMIT};
use crate::error::{Fate, classify};
use crate::notify::Notifier;
use crate::pool::{OwnedLoan, Pool, overdue};
use crate::txn::Transaction;

/// A transaction in the store's database. It is a [`Client`] with an open transaction: what is written through it is
/// committed together with the step's outcome. Do not begin or commit; abide does. If dropped before that, it is rolled
/// back.
pub struct StepTransaction {
    loan: OwnedLoan,
    home: Home,
}

/// The parts of the store that a transaction needs.
#[derive(Clone)]
pub(crate) struct Home {
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    pub bus: Bus,
    pub notifier: Arc<Notifier>,
}

impl Home {
    pub fn tell(&self, effects: Effects) {
        self.notifier.tell(&effects);
        self.bus.tell(effects);
    }
}

impl StepTransaction {
    pub(crate) async fn begin(
        pool: &Arc<Pool>,
        home: Home,
        limit: Option<Duration>,
    ) -> Result<Self> {
        let begin = || begin::step(pool.timeouts(), limit, pool.lineage().commits_async());
        let deadline = pool.timeouts().deadline();
        let mut loan = pool.lend().await?;
        let begun = timeout(deadline, loan.batch_execute(&begin())).await;
        if !matches!(begun, Ok(Ok(()))) {
            // The connection was idle, and the server may have ended it; a new one shows whether the server is
            // available.
            drop(loan);
            loan = pool.lend_new().await?;
            match timeout(deadline, loan.batch_execute(&begin())).await {
                Ok(begun) => begun.map_err(|error| classify(&error, Fate::Open))?,
                Err(_) => return Err(overdue(deadline)),
            }
        }
        Ok(Self { loan, home })
    }

    /// Commits an outcome in it. From here on it has the time limits of every transaction.
    async fn end(mut self, op: Op) -> Result<Answer> {
        let deadline = self.loan.timeouts().deadline();
        let (answer, effects) = match timeout(deadline, self.run(op)).await {
            Ok(done) => done?,
            Err(_) => return Err(overdue(deadline)),
        };
        if !was_taken(&answer) {
            let rolled_back = timeout(deadline, self.loan.batch_execute("rollback")).await;
            self.loan.clean = matches!(rolled_back, Ok(Ok(())));
            return Ok(answer);
        }
        let committed = match timeout(deadline, self.loan.batch_execute(COMMIT)).await {
            Ok(committed) => committed.map_err(|error| classify(&error, Fate::Committing)),
            Err(_) => Err(Error::Unknown(format!(
                "no answer to a COMMIT within {deadline:?}: the server or the network hangs"
            ))),
        };
        if let Err(error) = committed {
            self.home.tell(Effects::anything());
            return Err(error);
        }
        self.loan.clean = true;
        self.home.tell(effects);
        Ok(answer)
    }

    /// Runs an operation in it.
    async fn run(&self, op: Op) -> Result<(Answer, Effects)> {
        let (server, _) = self.loan.server()?;
        let bounded = begin::step_ends(self.loan.timeouts(), *server);
        let bounded = self.loan.batch_execute(&bounded).await;
        bounded.map_err(|error| classify(&error, Fate::Open))?;
        let ops = [op];
        let mut txn = Transaction::host(&self.loan, &ops);
        let (answers, effects) =
            run_lent(&mut txn, &ops, self.home.clock.now(), &self.home.limits).await?;
        txn.land().await?;
        drop(txn);
        let answer = answers
            .into_iter()
            .next()
            .ok_or_else(|| Error::Broken("an operation was not answered".into()))?;
        Ok((answer, effects))
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
