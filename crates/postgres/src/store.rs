//! The store: what it is made of, and what it does for those who use it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Declared, Document, DocumentKind,
    EventSequence, HistoryRow, Instance, InstanceId, Json, Limits, Name, Timestamp, Worker,
};
use abide_kernel::{
    Answer, Bus, Clock, CommandFilter, CommandPage, Effects, Ending, Error, EventFilter, EventPage,
    Filter, Listener, Op, OwnTransaction, Page, QueueDepth, Result, Store, SystemClock, Target,
    WaiterFilter, WaiterPage, judge, run,
};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::Transaction as HostTransaction;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::connect::Connector;
use crate::notify::{Ear, Notifier, listen};
use crate::param::Param;
use crate::pool::{Loan, Pool};
use crate::step::{Home, StepTransaction};
use crate::txn::Transaction;
use crate::{
    Listen, Options, claim, clock, documents, events, migrate, read, waiters, within, workers,
};

/// After a start of so many at once, statistics of the table are gathered anew.
const ANALYZE_AFTER: usize = 10_000;
/// Gathers them, unless somebody else does: whoever has the lock that it wants is not waited for.
const ANALYZE: &str = "begin; set local lock_timeout = 1000; set local statement_timeout = 0; \
    analyze abide.instances; commit";
/// How long that may take.
const ANALYZING: Duration = Duration::from_secs(600);
/// How long to wait for connections to end.
const CLOSING: Duration = Duration::from_secs(5);

/// A store in a PostgreSQL database, in a schema called `abide`.
///
/// ```no_run
/// # async fn open() -> abide_kernel::Result<()> {
/// use abide_kernel::Store;
/// use abide_postgres::{Options, Postgres};
///
/// let store = Postgres::connect("postgres://abide@localhost/orders", Options::default()).await?;
/// assert!(store.next_due().await?.is_none());
/// store.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Postgres {
    pool: Arc<Pool>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    bus: Bus,
    notifier: Arc<Notifier>,
    /// Whether statistics are being gathered.
    analyzing: Arc<AtomicBool>,
    tasks: TaskTracker,
    stop: CancellationToken,
    #[expect(dead_code, reason = "held: tasks end when the store is dropped")]
    stop_when_dropped: DropGuard,
}

impl Postgres {
    /// Opens a store: connects, brings the schema up to date, and begins to listen.
    ///
    /// Any number of processes may open one database at once. Errors: a URL that cannot be used, a database that a newer
    /// release has migrated and a server older than PostgreSQL 14 are [`Broken`](Error::Broken), and the text says what
    /// to do; a server that cannot be reached is [`Unavailable`](Error::Unavailable).
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        let connector = Connector::new(url, &options)?;
        let ear = match &options.listen {
            Listen::Here => Some(Connector::new(url, &options)?),
            Listen::At(url) => Some(Connector::new(url, &options)?),
            Listen::Off => None,
        };
        let pool = Arc::new(Pool::new(connector, options.pool_size));
        let client = pool.get().await?;
        pool.meet(client.bounded(clock::check_server(&client)).await?);
        migrate::migrate(&client, options.migrate, pool.timeouts()).await?;
        pool.lineage().keep();
        client.bounded(pool.lineage().meet(&client)).await?;
        let prepare = async {
            pool.prepare(options.prepare, &client).await;
            Ok(())
        };
        client.bounded(prepare).await?;
        client.bound().await?;

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let stop_when_dropped = stop.clone().drop_guard();
        let clock: Arc<dyn Clock> = match options.clock {
            Some(clock) => clock,
            None => {
                let clock = Arc::new(SystemClock::default());
                client.bounded(clock::follow(&clock, &client)).await?;
                tasks.spawn(clock::keep_following(
                    clock.clone(),
                    pool.clone(),
                    stop.clone(),
                ));
                clock
            }
        };
        drop(client);

        let (bus, notifier) = (Bus::new(), Arc::new(Notifier::new()));
        if let Some(connector) = ear.map(Arc::new) {
            let ear = Ear::open(&connector).await?;
            tasks.spawn(listen(
                ear,
                connector,
                bus.clone(),
                notifier.clone(),
                stop.clone(),
            ));
        }
        tasks.spawn({
            let (notifier, pool, stop) = (notifier.clone(), pool.clone(), stop.clone());
            async move { notifier.run(&pool, stop).await }
        });
        let (limits, analyzing) = (options.limits, Arc::default());
        Ok(Self {
            pool,
            clock,
            limits,
            bus,
            notifier,
            analyzing,
            tasks,
            stop,
            stop_when_dropped,
        })
    }

    /// Runs operations in a transaction that the host has opened on this database, with this store's clock and limits;
    /// see [`run_within`](crate::run_within).
    pub async fn run_within(
        &self,
        transaction: &HostTransaction<'_>,
        ops: &[Op],
    ) -> Result<Vec<Answer>> {
        within::run_within(transaction, ops, self.clock.now(), &self.limits).await
    }

    /// Runs operations in one transaction; once more on another connection when the first was lost before anything can
    /// have been written.
    async fn write(&self, ops: &[Op]) -> Result<Vec<Answer>> {
        // Asked every few seconds by everyone, and nearly always in vain: that needs no transaction.
        if let [Op::Reclaim { .. }] = ops
            && !workers::some_are_dead(&self.pool, self.clock.now()).await?
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
                match run(&mut txn, ops, self.clock.now(), &self.limits).await {
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
                self.tell(effects);
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
                    self.tell(Effects::anything());
                }
                Err(error)
            }
        }
    }

    fn tell(&self, effects: Effects) {
        self.notifier.tell(&effects);
        self.bus.tell(effects);
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

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Store for Postgres {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move { judge::with_held(|| self.write(&ops)).await })
    }

    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        Box::pin(async move {
            let home = Home {
                clock: self.clock.clone(),
                limits: self.limits.clone(),
                bus: self.bus.clone(),
                notifier: self.notifier.clone(),
            };
            let begun = StepTransaction::begin(&self.pool, home, limit).await?;
            Ok(Box::new(begun) as Box<dyn OwnTransaction>)
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn listen(&self) -> Listener {
        self.bus.listen()
    }

    fn writers(&self) -> usize {
        2
    }

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        Box::pin(async move { read::get(&self.pool, target).await })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        Box::pin(async move {
            read::list(&self.pool, filter, before, limit, self.limits.page_bytes).await
        })
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        Box::pin(async move { read::history(&self.pool, id, after, limit).await })
    }

    fn children(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
    ) -> BoxFuture<'_, Result<Vec<Child>>> {
        Box::pin(async move {
            let params = claim::children_params(&[(parent, barrier)]);
            let rows = read::ask(&self.pool, claim::CHILDREN, params).await?;
            Ok(claim::read_children(&rows)?
                .into_iter()
                .map(|(_, child)| child)
                .collect())
        })
    }

    fn endings<'a>(
        &'a self,
        ids: &'a [InstanceId],
    ) -> BoxFuture<'a, Result<(Vec<Ending>, Vec<InstanceId>)>> {
        Box::pin(async move { read::endings(&self.pool, ids).await })
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        Box::pin(async move {
            read::commands(&self.pool, filter, before, limit, self.limits.page_bytes).await
        })
    }

    fn records<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Vec<Command>>> {
        Box::pin(async move { read::records(&self.pool, ids).await })
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        Box::pin(async move { read::inbox(&self.pool, id).await })
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        Box::pin(async move {
            events::list(&self.pool, filter, before, limit, self.limits.page_bytes).await
        })
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        Box::pin(async move { waiters::list(&self.pool, filter, after, limit).await })
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        Box::pin(async move { read::contract(&self.pool, id).await })
    }

    fn machines(&self) -> BoxFuture<'_, Result<Vec<Declared>>> {
        Box::pin(async move { read::machines(&self.pool).await })
    }

    fn documents(&self, kind: DocumentKind) -> BoxFuture<'_, Result<Vec<Document>>> {
        Box::pin(async move { documents::documents(&self.pool, kind).await })
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        Box::pin(async move { documents::document(&self.pool, kind, name).await })
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(async move { read::next_due(&self.pool).await })
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        Box::pin(async move {
            let now = Param::one(self.clock.now());
            workers::read_workers(&read::ask(&self.pool, workers::LIVING_WORKERS, vec![now]).await?)
        })
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        Box::pin(async move { read::depths(&self.pool).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The notifier has a last word, then nothing new begins, then the connections end.
            self.stop.cancel();
            self.tasks.close();
            let closing = async {
                self.tasks.wait().await;
                self.pool.close().await;
            };
            if timeout(CLOSING, closing).await.is_err() {
                tracing::warn!("connections did not end within {CLOSING:?}; left to themselves");
                // Nobody gets a connection any more all the same.
                drop(timeout(Duration::ZERO, self.pool.close()).await);
            }
        })
    }
}
