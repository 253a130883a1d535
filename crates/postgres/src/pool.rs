//! A pool of a few connections, each lent to one caller at a time.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use abide_kernel::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Statement};

use crate::begin::{Begin, Begins};
use crate::clock::Server;
use crate::connect::Connector;
use crate::counted::{self, Counted};
use crate::error::{Fate, classify};
use crate::lineage::Lineage;
use crate::param::Param;
use crate::prepared::Prepared;
use crate::{Prepare, Timeouts};

/// A pool of a few connections, each lent to one caller at a time. A broken connection is dropped, and replaced when
/// one is needed.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    /// The server's properties, and the texts that begin transactions on it; set after the server was queried.
    server: OnceLock<(Server, Begins)>,
    /// `true` if the connections belong to this process and lead to no pooler. Then the hot statements are prepared on
    /// each, and its session has the time limits.
    prepare: AtomicBool,
    permits: Semaphore,
    /// Number of connections.
    size: usize,
    /// Identity of the database.
    lineage: Arc<Lineage>,
    /// Permits for steps with a transaction of their own.
    steps: Arc<Semaphore>,
    /// Permits for lease renewals.
    renewals: Semaphore,
    /// The connections that are not lent, the most recently used one last.
    idle: Mutex<Vec<Arc<Line>>>,
}

/// A connection, and the statements that were prepared on it.
#[derive(Debug)]
struct Line {
    client: Client,
    /// Ends the connection at once, even during a statement.
    hang_up: AbortHandle,
    prepared: Prepared,
    /// `true` if its session has the time limits.
    is_bounded: AtomicBool,
}

/// A lent connection. It is returned when dropped, and ended if a statement may still be running on it.
pub(crate) struct Loan<'p> {
    pool: &'p Pool,
    line: Arc<Line>,
    was_idle: bool,
    is_busy: AtomicBool,
    #[expect(dead_code, reason = "held: the loan is counted as long as this lives")]
    counted: Counted,
    #[expect(dead_code, reason = "held: the loan lasts as long as this does")]
    permit: SemaphorePermit<'p>,
}

/// A connection lent to a step for a transaction of its own. It is returned when dropped, if it is clean.
pub(crate) struct OwnedLoan {
    pool: Arc<Pool>,
    line: Arc<Line>,
    /// `true` if no transaction is open on it.
    pub clean: bool,
    #[expect(dead_code, reason = "held: the loan is counted as long as this lives")]
    counted: Counted,
    #[expect(dead_code, reason = "held: the loan lasts as long as this does")]
    permit: OwnedSemaphorePermit,
}

impl OwnedLoan {
    /// Time limits of statements.
    pub fn timeouts(&self) -> &Timeouts {
        self.pool.timeouts()
    }

    /// The server's properties, and the texts that begin transactions on it.
    pub fn server(&self) -> Result<&(Server, Begins)> {
        self.pool.server()
    }
}

impl Deref for OwnedLoan {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.line.client
    }
}

impl Drop for OwnedLoan {
    fn drop(&mut self) {
        match self.clean {
            true => self.pool.take_back(&self.line),
            false => self.line.hang_up.abort(),
        }
    }
}

impl Pool {
    /// Creates a pool of that many connections, none of which is made yet.
    pub fn new(connector: Connector, size: usize) -> Self {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Semaphore::new(size);
        Self {
            connector,
            server: OnceLock::new(),
            prepare: AtomicBool::new(false),
            permits,
            size,
            lineage: Arc::default(),
            steps: Arc::new(Semaphore::new(size)),
            renewals: Semaphore::new(1),
            idle: Mutex::default(),
        }
    }

    /// Creates a pool of one connection to the same database, independent of this pool's runtime: the connection
    /// belongs to the runtime that first uses it.
    pub fn beside(&self) -> Self {
        let beside = Self::new(self.connector.another(), 1);
        if let Some((server, _)) = self.server.get() {
            beside.meet(*server);
        }
        Self {
            prepare: AtomicBool::new(self.prepare.load(Ordering::Relaxed)),
            lineage: self.lineage.clone(),
            ..beside
        }
    }

    /// Time limits of statements.
    pub fn timeouts(&self) -> &Timeouts {
        &self.connector.timeouts
    }

    /// Sets the server's properties; later calls have no effect.
    pub fn meet(&self, server: Server) {
        let begins = Begins::new(self.timeouts(), server);
        let _ = self.server.set((server, begins));
    }

    /// The server's properties, and the texts that begin transactions on it.
    pub fn server(&self) -> Result<&(Server, Begins)> {
        let unknown = || Error::Broken("the version of the server is unknown".into());
        self.server.get().ok_or_else(unknown)
    }

    /// Prepares the hot statements on every connection from now on, as the option says.
    pub async fn prepare(&self, prepare: Prepare, client: &Client) {
        let prepare = match prepare {
            Prepare::Auto => self.connector.is_direct(client).await,
            Prepare::Always => true,
            Prepare::Never => false,
        };
        self.prepare.store(prepare, Ordering::Relaxed);
    }

    /// Identity of the database, checked on every new connection before it is used.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Lends a connection; waits while all of them are lent.
    pub async fn get(&self) -> Result<Loan<'_>> {
        let began = Instant::now();
        let permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        counted::waited(began.elapsed());
        self.lent(permit).await
    }

    async fn lent<'p>(&'p self, permit: SemaphorePermit<'p>) -> Result<Loan<'p>> {
        let (line, was_idle) = self.line().await?;
        Ok(Loan {
            pool: self,
            line,
            was_idle,
            is_busy: AtomicBool::new(false),
            counted: Counted::in_use(),
            permit,
        })
    }

    /// Lends a connection for renewing a lease (rule 6.4). There is one extra connection if all others are lent: a
    /// worker that waits too long for a connection loses all its claims, and that happens exactly when the other
    /// connections are busy.
    pub async fn get_for_renewal(&self) -> Result<Loan<'_>> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => tokio::select! {
                permit = self.renewals.acquire() => permit,
                permit = self.permits.acquire() => permit,
            }
            .map_err(|_| Error::Closed)?,
        };
        self.lent(permit).await
    }

    /// Lends a new connection after one was lost: the cause has usually ended the idle connections too.
    pub async fn get_new(&self) -> Result<Loan<'_>> {
        self.idle().clear();
        self.get().await
    }

    /// Lends a connection for a step's own transaction. There are as many of these as of the others, in addition to
    /// them: a step that has one may call an operation that needs another.
    pub async fn lend(self: &Arc<Self>) -> Result<OwnedLoan> {
        let permit = self.steps.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Error::Closed)?;
        let line = self.line().await?.0;
        // The step may change the settings of the session.
        line.is_bounded.store(false, Ordering::Relaxed);
        Ok(OwnedLoan {
            pool: self.clone(),
            line,
            clean: false,
            counted: Counted::in_use(),
            permit,
        })
    }

    /// Lends a new connection for a step after one was lost.
    pub async fn lend_new(self: &Arc<Self>) -> Result<OwnedLoan> {
        self.idle().clear();
        self.lend().await
    }

    /// A connection that is not lent, and `true` if it was idle before.
    async fn line(&self) -> Result<(Arc<Line>, bool)> {
        let idle = std::iter::from_fn(|| self.idle().pop()).find(|line| !line.client.is_closed());
        if let Some(line) = idle {
            return Ok((line, true));
        }
        counted::size(self.size);
        let (client, hang_up) = self.connector.connect(None).await?;
        let line = Line {
            client,
            hang_up,
            prepared: Prepared::default(),
            is_bounded: AtomicBool::new(false),
        };
        self.introduce(&line).await?;
        Ok((Arc::new(line), false))
    }

    /// Checks to which database a new connection leads, and sets its time limits.
    async fn introduce(&self, line: &Line) -> Result<()> {
        let introduced = async {
            self.lineage.meet(&line.client).await?;
            self.bound(line).await
        };
        match timeout(self.timeouts().deadline(), introduced).await {
            Ok(introduced) => introduced,
            Err(_) => {
                line.hang_up.abort();
                Err(overdue(self.timeouts().deadline()))
            }
        }
    }

    /// Sets the time limits of a session, if no other process uses the connection.
    async fn bound(&self, line: &Line) -> Result<()> {
        let Some((_, begins)) = self.server.get() else {
            return Ok(());
        };
        if !self.prepare.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bounded = line.client.batch_execute(&begins.session).await;
        bounded.map_err(|error| classify(&error, Fate::Open))?;
        line.is_bounded.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn take_back(&self, line: &Arc<Line>) {
        if !line.client.is_closed() && !self.permits.is_closed() {
            self.idle().push(Arc::clone(line));
        }
    }

    /// Stops lending, and ends the connections when the lent ones are returned.
    pub async fn close(&self) {
        self.permits.close();
        self.steps.close();
        self.renewals.close();
        self.idle().clear();
        self.connector.wait().await;
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    /// The statements that are prepared on this connection, if any may be. Prepares those that the last transaction
    /// used unprepared.
    pub async fn prepared(&self) -> Result<Option<&Prepared>> {
        if !self.pool.prepare.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Line {
            client, prepared, ..
        } = &*self.line;
        let done = prepared.prepare_wanted(client).await;
        done.map_err(|error| classify(&error, Fate::Open))?;
        Ok(Some(prepared))
    }

    /// The prepared statement of a text, if this connection has one.
    pub async fn find_prepared(
        &self,
        sql: &'static str,
        params: &[Param],
    ) -> Result<Option<Statement>> {
        let prepared = self.prepared().await?;
        Ok(prepared.and_then(|prepared| prepared.find(sql, params)))
    }

    /// The texts that begin transactions on this connection.
    pub fn begin(&self) -> Result<&Begin> {
        let (_, begins) = self.pool.server()?;
        Ok(match self.line.is_bounded.load(Ordering::Relaxed) {
            true => &begins.own,
            false => &begins.shared,
        })
    }

    /// `true` if the connection was made earlier: it may have been lost since, without notice.
    pub fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Marks the connection as busy, perhaps with a transaction. If the caller is cancelled before it
    /// [ends](Self::ended), no other caller may use the connection.
    pub fn begun(&self) {
        self.is_busy.store(true, Ordering::Relaxed);
    }

    /// Marks the connection as no longer busy.
    pub fn ended(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Sets the time limits of the session, on a connection that was made before the server's properties were known.
    pub async fn bound(&self) -> Result<()> {
        self.pool.bound(&self.line).await
    }

    /// Time limit for a response.
    pub fn deadline(&self) -> Duration {
        self.pool.timeouts().deadline()
    }

    /// Waits for a request that writes nothing, up to the time limit; then ends the connection.
    pub async fn bounded<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.begun();
        let deadline = self.pool.timeouts().deadline();
        match timeout(deadline, request).await {
            Ok(Err(lost @ Error::Unavailable(_))) => Err(lost),
            Ok(answer) => {
                self.ended();
                answer
            }
            Err(_) => Err(overdue(deadline)),
        }
    }
}

impl Deref for Loan<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.line.client
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        match self.is_busy.load(Ordering::Relaxed) {
            false => self.pool.take_back(&self.line),
            true => self.line.hang_up.abort(),
        }
    }
}

/// The error if the server has not responded in time and nothing was committed.
pub(crate) fn overdue(deadline: Duration) -> Error {
    Error::Unavailable(format!(
        "no answer from the database within {deadline:?}: the server or the network hangs; retry"
    ))
}
