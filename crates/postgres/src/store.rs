//! The store: its parts, and its implementation of `Store`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_kernel::{
    Answer, Bus, Clock, Listener, OUTBOX_POLL, Op, OwnTransaction, Query, QueryResult, Renewer,
    Result, Store, SystemClock, judge,
};
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use tokio_postgres::Transaction as HostTransaction;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::connect::Connector;
use crate::notify::{ListenConnection, Notifier, listen};
use crate::pool::Pool;
use crate::step::{Home, StepTransaction};
use crate::writer::{Renewals, Writer};
use crate::{Listen, Options, clock, migrate, query, within};

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
        let listen_connector = match &options.listen {
            Listen::Here => Some(Connector::new(url, &options)?),
            Listen::At(url) => Some(Connector::new(url, &options)?),
            Listen::Off => None,
        };
        let pool = Arc::new(Pool::new(connector, options.pool_size));
        let client = pool.get().await?;
        pool.meet(client.bounded(clock::check_server(&client)).await?);
        migrate::migrate(&client, options.migrate, pool.timeouts()).await?;
        pool.lineage().keep(&pool.server()?.1.shared);
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

        if let Some(connector) = listen_connector.map(Arc::new) {
            let connection = ListenConnection::open(&connector).await?;
            tasks.spawn(listen(
                connection,
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

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        let now = self.writer.home.clock.now();
        Box::pin(query::find(self.pool(), query, now, self.page_bytes()))
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

    fn outbox_poll(&self) -> Option<Duration> {
        Some(match self.looks_for_outbox.load(Ordering::Relaxed) {
            true => LOOKED_FOR,
            false => OUTBOX_POLL,
        })
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
