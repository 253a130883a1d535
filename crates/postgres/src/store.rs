//! The store: its parts, and its implementation of `Store`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Timestamp, Worker,
};
use abide_kernel::{
    Answer, Bus, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, EventFilter,
    EventPage, Filter, Listener, MachinePage, OUTBOX_POLL, Op, OutboxDepth, OutboxRow,
    OwnTransaction, Page, QueueDepth, ReadyLane, Records, RefusedPage, Renewer, Result, Store,
    Surroundings, SystemClock, Tally, Target, WaiterFilter, WaiterPage, judge,
};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::Transaction as HostTransaction;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::connect::Connector;
use crate::notify::{ListenConnection, Notifier, listen};
use crate::param::Param;
use crate::pool::Pool;
use crate::step::{Home, StepTransaction};
use crate::writer::{Renewals, Writer};
use crate::{
    Listen, Options, around, census, clock, documents, events, migrate, outbox, read, waiters,
    within, workers,
};

/// Interval between reads of the outbox while the clock task also checks for rows, about every second.
const LOOKED_FOR: Duration = Duration::from_secs(30);

/// Time limit for closing the connections.
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
    writer: Arc<Writer>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// `true` while the task that follows the server's clock also checks for outbox rows.
    looks_for_outbox: Arc<AtomicBool>,
    #[expect(dead_code, reason = "held: tasks end when the store is dropped")]
    stop_when_dropped: DropGuard,
}

impl Postgres {
    /// Opens a store: connects, migrates the schema to the newest version, and starts to listen.
    ///
    /// Any number of processes may open one database at the same time. Errors: an invalid URL, a database that a newer
    /// release has migrated and a server older than PostgreSQL 14 are [`Broken`](abide_kernel::Error::Broken), and the
    /// text says what to do; a server that cannot be reached is [`Unavailable`](abide_kernel::Error::Unavailable).
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
        pool.lineage().keep(&pool.server()?.1);
        client.bounded(pool.lineage().meet(&client)).await?;
        let prepare = async {
            pool.prepare(options.prepare, &client).await;
            Ok(())
        };
        client.bounded(prepare).await?;
        client.bound().await?;

        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let stop_when_dropped = stop.clone().drop_guard();
        let (bus, notifier) = (Bus::new(), Arc::new(Notifier::new()));
        let looks_for_outbox = Arc::new(AtomicBool::new(false));
        let clock: Arc<dyn Clock> = match options.clock {
            Some(clock) => clock,
            None => {
                let clock = Arc::new(SystemClock::default());
                client.bounded(clock::follow(&clock, &client)).await?;
                tasks.spawn(clock::keep_following(
                    clock.clone(),
                    pool.clone(),
                    bus.clone(),
                    looks_for_outbox.clone(),
                    stop.clone(),
                ));
                clock
            }
        };
        drop(client);

        if let Some(connector) = ear.map(Arc::new) {
            let ear = ListenConnection::open(&connector).await?;
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
        let home = Home {
            clock,
            limits: options.limits,
            bus,
            notifier,
        };
        Ok(Self {
            writer: Arc::new(Writer::new(pool, home, tasks.clone())),
            tasks,
            stop,
            looks_for_outbox,
            stop_when_dropped,
        })
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.writer.pool
    }

    /// Size limit of a page, in bytes.
    fn page_bytes(&self) -> usize {
        self.writer.home.limits.page_bytes
    }

    /// Runs operations in a transaction that the host has opened on this database, with this store's clock and limits;
    /// see [`run_within`](crate::run_within).
    pub async fn run_within(
        &self,
        transaction: &HostTransaction<'_>,
        ops: &[Op],
    ) -> Result<Vec<Answer>> {
        within::run_within(
            transaction,
            ops,
            self.writer.home.clock.now(),
            &self.writer.home.limits,
        )
        .await
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("limits", &self.writer.home.limits)
            .finish_non_exhaustive()
    }
}

impl Store for Postgres {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move { judge::with_held(|| self.writer.write(&ops)).await })
    }

    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        Box::pin(async move {
            let Writer { pool, home, .. } = &*self.writer;
            let begun = StepTransaction::begin(pool, home.clone(), limit).await?;
            Ok(Box::new(begun) as Box<dyn OwnTransaction>)
        })
    }

    fn renewer(&self) -> Result<Option<Box<dyn Renewer>>> {
        Ok(Some(Box::new(Renewals(self.writer.beside()))))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.writer.home.clock.clone()
    }

    fn listen(&self) -> Listener {
        self.writer.home.bus.listen()
    }

    fn writers(&self) -> usize {
        2
    }

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        Box::pin(async move { read::get(self.pool(), target).await })
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        Box::pin(
            async move { read::list(self.pool(), filter, before, limit, self.page_bytes()).await },
        )
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        Box::pin(async move { around::of_pool(self.pool(), ids).await })
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        Box::pin(async move { read::history(self.pool(), id, after, limit).await })
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        Box::pin(async move {
            read::children(self.pool(), parent, barrier, after, self.page_bytes()).await
        })
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        Box::pin(async move { read::endings(self.pool(), ids, self.page_bytes()).await })
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        Box::pin(async move {
            read::commands(self.pool(), filter, before, limit, self.page_bytes()).await
        })
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        Box::pin(async move { read::records(self.pool(), ids, self.page_bytes()).await })
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        Box::pin(async move { read::inbox(self.pool(), id).await })
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        Box::pin(async move {
            events::list(self.pool(), filter, before, limit, self.page_bytes()).await
        })
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        Box::pin(async move {
            waiters::list(self.pool(), filter, after, limit, self.page_bytes()).await
        })
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        Box::pin(async move { read::contract(self.pool(), id).await })
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        Box::pin(async move { read::contracts(self.pool(), ids, self.page_bytes()).await })
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        Box::pin(async move {
            read::machines(self.pool(), after.as_ref(), limit, self.page_bytes()).await
        })
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        Box::pin(async move {
            let (after, most) = (after.as_ref(), self.page_bytes());
            documents::list(self.pool(), kind, after, limit, most).await
        })
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        Box::pin(async move { documents::document(self.pool(), kind, name).await })
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(async move { read::next_due(self.pool()).await })
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        Box::pin(async move {
            let now = Param::one(self.writer.home.clock.now());
            workers::read_workers(
                &read::ask(self.pool(), workers::LIVING_WORKERS, vec![now]).await?,
            )
        })
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        Box::pin(async move { read::depths(self.pool()).await })
    }

    fn takes_outbox(&self) -> bool {
        true
    }

    fn outbox_poll(&self) -> Duration {
        match self.looks_for_outbox.load(Ordering::Relaxed) {
            true => LOOKED_FOR,
            false => OUTBOX_POLL,
        }
    }

    fn outbox<'a>(
        &'a self,
        passed_over: &'a [OutboxId],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        Box::pin(
            async move { outbox::rows(self.pool(), passed_over, limit, self.page_bytes()).await },
        )
    }

    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        Box::pin(
            async move { outbox::refused(self.pool(), before, limit, self.page_bytes()).await },
        )
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        Box::pin(async move { outbox::depth(self.pool()).await })
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        Box::pin(async move { census::ready_lanes(self.pool()).await })
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        Box::pin(async move { census::tally(self.pool()).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Order: the notifier sends its last notification, no new work begins, then the connections end.
            self.stop.cancel();
            self.tasks.close();
            let closing = async {
                self.tasks.wait().await;
                self.pool().close().await;
            };
            if timeout(CLOSING, closing).await.is_err() {
                tracing::warn!("connections did not end within {CLOSING:?}; left to themselves");
                // The pool hands out no connections from now on, even though the wait was given up.
                drop(timeout(Duration::ZERO, self.pool().close()).await);
            }
        })
    }
}
