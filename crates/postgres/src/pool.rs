//! A handful of connections, lent out one at a time.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use abide_kernel::{Error, Result};
use futures_util::future::try_join_all;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, Statement};

use crate::begin::Begin;
use crate::clock::Server;
use crate::connect::Connector;
use crate::error::{Fate, classify};
use crate::lineage::Lineage;
use crate::statements::HOT;
use crate::{Prepare, Timeouts};

/// A handful of connections, lent out one at a time. One that broke is dropped, and another made in its place when it
/// is wanted.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    /// What the server is, and the texts that begin transactions on it; known when it was asked.
    server: OnceLock<(Server, Begin)>,
    /// Whether each connection has the hot statements prepared.
    prepare: AtomicBool,
    permits: Semaphore,
    /// Which database it connects to.
    lineage: Lineage,
    /// Of steps that have a transaction of their own.
    steps: Arc<Semaphore>,
    /// Of those who renew a lease.
    renewals: Semaphore,
    /// The connections that nobody has, the one used last on top.
    idle: Mutex<Vec<Arc<Line>>>,
}

/// A connection, and the statements that were prepared on it.
#[derive(Debug)]
struct Line {
    client: Client,
    /// Ends the connection at once, whatever is under way on it.
    hang_up: AbortHandle,
    prepared: OnceCell<Prepared>,
}

/// Statements that were prepared, by their text.
pub(crate) type Prepared = Vec<(&'static str, Statement)>;

/// A connection on loan; given back when it is dropped, and ended when something may be under way on it then.
pub(crate) struct Loan<'p> {
    pool: &'p Pool,
    line: Arc<Line>,
    was_idle: bool,
    is_busy: AtomicBool,
    #[expect(dead_code, reason = "held: the loan lasts as long as this does")]
    permit: SemaphorePermit<'p>,
}

/// A connection that a step has for a transaction of its own. Given back when it is dropped, if it is clean.
pub(crate) struct OwnedLoan {
    pool: Arc<Pool>,
    line: Arc<Line>,
    /// Whether no transaction is open on it.
    pub clean: bool,
    #[expect(dead_code, reason = "held: the loan lasts as long as this does")]
    permit: OwnedSemaphorePermit,
}

impl OwnedLoan {
    /// How long what is asked may take.
    pub fn timeouts(&self) -> &Timeouts {
        self.pool.timeouts()
    }

    /// What the server is, and the texts that begin transactions on it.
    pub fn server(&self) -> Result<&(Server, Begin)> {
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
    /// A pool of that many connections, none of which is made yet.
    pub fn new(connector: Connector, size: usize) -> Self {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Semaphore::new(size);
        Self {
            connector,
            server: OnceLock::new(),
            prepare: AtomicBool::new(false),
            permits,
            lineage: Lineage::default(),
            steps: Arc::new(Semaphore::new(size)),
            renewals: Semaphore::new(1),
            idle: Mutex::default(),
        }
    }

    /// How long what is asked may take.
    pub fn timeouts(&self) -> &Timeouts {
        &self.connector.timeouts
    }

    /// Makes known what the server is; the first word counts.
    pub fn meet(&self, server: Server) {
        let begin = Begin::new(self.timeouts(), server);
        let _ = self.server.set((server, begin));
    }

    /// What the server is, and the texts that begin transactions on it.
    pub fn server(&self) -> Result<&(Server, Begin)> {
        let unknown = || Error::Broken("the server was not asked what it is".into());
        self.server.get().ok_or_else(unknown)
    }

    /// Has the hot statements prepared on every connection from now on, as the option says.
    pub async fn prepare(&self, prepare: Prepare, client: &Client) {
        let prepare = match prepare {
            Prepare::Auto => self.connector.is_direct(client).await,
            Prepare::Always => true,
            Prepare::Never => false,
        };
        self.prepare.store(prepare, Ordering::Relaxed);
    }

    /// Which database it connects to: looked at with every new connection, before anything is done on it.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// A connection; waits while all of them are lent out.
    pub async fn get(&self) -> Result<Loan<'_>> {
        let permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        self.lent(permit).await
    }

    async fn lent<'p>(&'p self, permit: SemaphorePermit<'p>) -> Result<Loan<'p>> {
        let (line, was_idle) = self.line().await?;
        Ok(Loan {
            pool: self,
            line,
            was_idle,
            is_busy: AtomicBool::new(false),
            permit,
        })
    }

    /// A connection for renewing a lease (rule 6.4). When all of them are lent out there is one more: who waits for a
    /// connection for too long loses all that it holds, and it is then that the others are busy.
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

    /// A new connection, after one was lost: whatever ended that has ended the idle ones too, as a rule.
    pub async fn get_new(&self) -> Result<Loan<'_>> {
        self.idle().clear();
        self.get().await
    }

    /// A connection for a step's own transaction. There are as many of these as of the others, and beside them: a step
    /// that has one may well ask for something that needs another.
    pub async fn lend(self: &Arc<Self>) -> Result<OwnedLoan> {
        let permit = self.steps.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Error::Closed)?;
        let line = self.line().await?.0;
        Ok(OwnedLoan {
            pool: self.clone(),
            line,
            clean: false,
            permit,
        })
    }

    /// A new one of these, after one was lost.
    pub async fn lend_new(self: &Arc<Self>) -> Result<OwnedLoan> {
        self.idle().clear();
        self.lend().await
    }

    /// A connection that nobody has, and whether it was idle before.
    async fn line(&self) -> Result<(Arc<Line>, bool)> {
        let idle = std::iter::from_fn(|| self.idle().pop()).find(|line| !line.client.is_closed());
        if let Some(line) = idle {
            return Ok((line, true));
        }
        let (client, hang_up) = self.connector.connect(None).await?;
        let line = Line {
            client,
            hang_up,
            prepared: OnceCell::new(),
        };
        self.introduce(&line).await?;
        Ok((Arc::new(line), false))
    }

    /// Looks at which database a new connection leads to, and bounds what is asked over it.
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

    /// Bounds how long statements outside of transactions take, where a connection is ours alone.
    async fn bound(&self, line: &Line) -> Result<()> {
        let Some((_, begin)) = self.server.get() else {
            return Ok(());
        };
        if !self.prepare.load(Ordering::Relaxed) {
            return Ok(());
        }
        let bounded = line.client.batch_execute(&begin.session).await;
        bounded.map_err(|error| classify(&error, Fate::Open))
    }

    fn take_back(&self, line: &Arc<Line>) {
        if !line.client.is_closed() && !self.permits.is_closed() {
            self.idle().push(Arc::clone(line));
        }
    }

    /// Lends out nothing any more, and ends the connections when those on loan are back.
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
    /// The statements that are prepared on this connection; prepares them when it is asked for the first time, all in
    /// one round trip.
    pub async fn prepared(&self) -> Result<&Prepared> {
        let prepare = async || {
            let prepare = self.pool.prepare.load(Ordering::Relaxed);
            let hot = HOT.iter().filter(|_| prepare);
            let prepared = hot.map(async |sql| Ok((*sql, self.line.client.prepare(sql).await?)));
            try_join_all(prepared)
                .await
                .map_err(|error| classify(&error, Fate::Open))
        };
        self.line.prepared.get_or_try_init(prepare).await
    }

    /// Whether it was made some time ago: then it may have been lost meanwhile, and nobody has noticed.
    pub fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// From now on something is under way, a transaction perhaps: a caller that is cancelled before it
    /// [ends](Self::ended) leaves a connection that nobody else may use.
    pub fn begun(&self) {
        self.is_busy.store(true, Ordering::Relaxed);
    }

    /// Nothing is under way any more.
    pub fn ended(&self) {
        self.is_busy.store(false, Ordering::Relaxed);
    }

    /// Bounds how long statements outside of transactions take, on a connection that was made before the server was
    /// known.
    pub async fn bound(&self) -> Result<()> {
        self.pool.bound(&self.line).await
    }

    /// How long an answer may take.
    pub fn deadline(&self) -> Duration {
        self.pool.timeouts().deadline()
    }

    /// Waits for what is asked over it, which writes nothing, for as long as the timeouts allow; then hangs up.
    pub async fn bounded<T>(&self, asked: impl Future<Output = Result<T>>) -> Result<T> {
        self.begun();
        let deadline = self.pool.timeouts().deadline();
        match timeout(deadline, asked).await {
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

/// What a caller is told to whom the server has not answered in time, and to whom nothing was committed.
pub(crate) fn overdue(deadline: Duration) -> Error {
    Error::Unavailable(format!(
        "no answer from the database within {deadline:?}: the server or the network hangs; retry"
    ))
}
