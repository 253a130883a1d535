//! Runs operations, each batch of them in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_kernel::{Answer, Effects, Error, Op, Result, run};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::pool::{Loan, Pool};
use crate::step::Home;
use crate::txn::Transaction;
use crate::workers;

/// After a start of so many at once, statistics of the table are gathered anew.
const ANALYZE_AFTER: usize = 10_000;
/// Gathers them, unless somebody else does: whoever has the lock that it wants is not waited for.
const ANALYZE: &str = "begin; set local lock_timeout = 1000; set local statement_timeout = 0; \
    analyze abide.instances; commit";
/// How long that may take.
const ANALYZING: Duration = Duration::from_secs(600);

/// What writes to the database.
pub(crate) struct Writer {
    pub pool: Arc<Pool>,
    pub home: Home,
    /// Whether statistics are being gathered.
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

    /// Runs operations in one transaction; once more on another connection when the first was lost before anything can
    /// have been written.
    pub async fn write(&self, ops: &[Op]) -> Result<Vec<Answer>> {
        // Asked every few seconds by everyone, and nearly always in vain: that needs no transaction.
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

    /// Runs operations in one transaction on that connection and tells whoever waits.
    async fn write_on(&self, client: Loan<'_>, ops: &[Op]) -> Result<Vec<Answer>> {
        let prepared = client.bounded(client.prepared()).await?;
        let (_, begin) = self.pool.server()?;
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
                // A server that says that it cannot be used is left: the next connection may find a better one.
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

    /// Has statistics gathered when so much was started at once that the old ones mislead. Nothing waits for it, and
    /// when it fails nothing is lost: no hot statement hangs on them.
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
