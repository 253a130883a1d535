//! Runs operations, each batch in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_kernel::{Answer, Effects, Error, Op, Renewer, Result, run};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::pool::{Loan, Pool};
use crate::step::Home;
use crate::txn::Transaction;
use crate::workers;

/// Number of starts in one batch after which the statistics of the table are gathered anew.
const ANALYZE_AFTER: usize = 10_000;
/// Gathers statistics, unless another process does: it waits at most 1 s for the lock that it needs.
const ANALYZE: &str = "begin; set local lock_timeout = 1000; set local statement_timeout = 0; \
    analyze abide.instances; commit";
/// Time limit for gathering statistics.
const ANALYZING: Duration = Duration::from_secs(600);

/// Writes to the database.
pub(crate) struct Writer {
    pub pool: Arc<Pool>,
    pub home: Home,
    /// `true` while statistics are being gathered.
    analyzing: Arc<AtomicBool>,
    tasks: TaskTracker,
}

impl Writer {
    pub fn new(pool: Arc<Pool>, home: Home, tasks: TaskTracker) -> Self {
        Self {
            pool,
            home,
            analyzing: Arc::default(),
            tasks,
        }
    }

    /// Creates a writer with its own connection, for a thread with its own runtime.
    pub fn beside(&self) -> Self {
        Self::new(
            Arc::new(self.pool.beside()),
            self.home.clone(),
            self.tasks.clone(),
        )
    }

    /// Runs operations in one transaction; tries once more on another connection if the first was lost before anything
    /// can have been written.
    pub async fn write(&self, ops: &[Op]) -> Result<Vec<Answer>> {
        // All processes send this every few seconds, almost always without effect, so it first checks without a
        // transaction.
        if let [Op::Reclaim { .. }] = ops
            && !workers::some_are_dead(&self.pool, self.home.clock.now()).await?
        {
            return Ok(vec![Answer::Touched {
                count: 0,
                more: false,
            }]);
        }
        let client = match ops {
            [Op::Renew { .. }] => self.pool.get_for_renewal().await?,
            _ => self.pool.get().await?,
        };
        let was_idle = client.was_idle();
        match self.write_on(client, ops).await {
            Err(Error::Unavailable(_)) if was_idle => {
                self.write_on(self.pool.get_new().await?, ops).await
            }
            answer => answer,
        }
    }

    /// Runs operations in one transaction on that connection, and sends notifications.
    async fn write_on(&self, client: Loan<'_>, ops: &[Op]) -> Result<Vec<Answer>> {
        let prepared = client.bounded(client.prepared()).await?;
        let begin = client.begin()?;
        client.begun();
        let mut txn = Transaction::own(&client, prepared, begin, ops, self.pool.lineage());
        let deadline = self.pool.timeouts().deadline();
        let running = async {
            loop {
                match run(&mut txn, ops, self.home.clock.now(), &self.home.limits).await {
                    Ok(done) => return txn.commit().await.map(|()| done),
                    Err(_) if txn.begin_again().await? => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let done = match timeout(deadline, running).await {
            Ok(done) => done,
            Err(_) => Err(txn.overdue(deadline)),
        };
        match done {
            Ok((answers, effects)) => {
                drop(txn);
                client.ended();
                drop(client);
                self.home.tell(effects);
                self.analyze_after(&answers);
                Ok(answers)
            }
            Err(error) => {
                let lost = matches!(error, Error::Unavailable(_) | Error::Unknown(_));
                // The connection to a server that reports itself unusable is dropped: the next connection may reach a
                // better one.
                let clean = !lost && matches!(timeout(deadline, txn.roll_back()).await, Ok(true));
                drop(txn);
                if clean {
                    client.ended();
                }
                if let Error::Unknown(_) = error {
                    self.home.tell(Effects::anything());
                }
                Err(error)
            }
        }
    }

    /// Gathers statistics after so many starts that the old statistics mislead the planner. Nothing waits for it, and a
    /// failure does no harm: no hot statement depends on them.
    fn analyze_after(&self, answers: &[Answer]) {
        let started = |answer: &Answer| match answer {
            Answer::Started(each) => each.len(),
            _ => 0,
        };
        let many = answers.iter().map(started).sum::<usize>() >= ANALYZE_AFTER;
        if !many || self.analyzing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (pool, analyzing) = (self.pool.clone(), self.analyzing.clone());
        self.tasks.spawn(async move {
            if let Ok(client) = pool.get().await {
                client.begun();
                match timeout(ANALYZING, client.batch_execute(ANALYZE)).await {
                    Ok(Ok(())) => client.ended(),
                    Ok(Err(error)) => tracing::debug!(%error, "statistics were not gathered"),
                    Err(_) => tracing::debug!("statistics were not gathered within {ANALYZING:?}"),
                }
            }
            analyzing.store(false, Ordering::Relaxed);
        });
    }
}

/// Renews leases over a connection of its own.
pub(crate) struct Renewals(pub Writer);

impl Renewer for Renewals {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move { self.0.write(&ops).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.pool.close())
    }
}
