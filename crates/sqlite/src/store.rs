//! The store: its threads, and its implementation of `Store`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use abide_core::model::Limits;
use abide_kernel::{
    Answer, Bus, Clock, Error, Listener, OUTBOX_POLL, Op, OwnTransaction, Query, QueryResult,
    Result, Store, SystemClock, judge,
};
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::exclusive::Lone;
use crate::open;
use crate::options::Options;
use crate::poison::Poison;
use crate::read::{Readers, spawn};
use crate::sql;
use crate::step::StepTransaction;
use crate::watch::Watch;
use crate::within::run_within;
use crate::writer::{Request, Run, Writer};

/// Maximum number of requests in the writer's queue; further callers wait to enter it.
const WAITING_MAX: usize = 4096;

/// A store in an SQLite file.
pub struct Sqlite {
    path: PathBuf,
    lone: Arc<Lone>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// The options that it was opened with.
    settings: Options,
    bus: Bus,
    writer: mpsc::Sender<Request>,
    readers: Readers,
    commits: Arc<AtomicU64>,
    poison: Poison,
    stop: Arc<AtomicBool>,
    threads: Mutex<Threads>,
}

/// The threads, in the order in which they end.
#[derive(Default)]
struct Threads {
    watch: Option<JoinHandle<()>>,
    readers: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Sqlite {
    /// Opens a file, creates it if it does not exist, and migrates its tables to the newest version.
    ///
    /// Blocks meanwhile, which takes milliseconds unless another process is writing. A crash during this leaves a file
    /// that can be opened.
    ///
    /// Errors: [`Unavailable`](Error::Unavailable) if the file cannot be opened or created;
    /// [`Conflict`](Error::Conflict) if another process wrote for longer than the busy timeout;
    /// [`Broken`](Error::Broken) if it is not an SQLite database, or a newer release of abide has written to it. In all
    /// these cases nothing was changed.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<Self>> {
        let path = std::path::absolute(path)
            .map_err(|error| Error::Unavailable(format!("the path of the database: {error}")))?;
        let conn = open::writer(&path, &options)?;
        let (readers, reading) = Readers::start(&path, &options)?;
        let settings = options.clone();
        let lone = Arc::new(Lone::beside(&path));
        // Its time is written for other processes only if it is the computer's.
        let (clock, noted) = match options.clock {
            Some(clock) => (clock, None),
            None => {
                let clock: Arc<dyn Clock> = Arc::new(begun(&path, &lone));
                (clock.clone(), Some(clock))
            }
        };
        let bus = Bus::new();
        let commits = Arc::new(AtomicU64::new(0));
        let poison = Poison::default();
        let stop = Arc::new(AtomicBool::new(false));

        let (writer, requests) = mpsc::channel(WAITING_MAX);
        let (ending, beside) = (Arc::clone(&stop), Arc::clone(&lone));
        let watch = Watch::new(&path, writer.downgrade(), ending, noted, beside);
        let writing = Writer::new(
            conn,
            requests,
            Arc::clone(&clock),
            options.limits.clone(),
            bus.clone(),
            Arc::clone(&commits),
            poison.clone(),
        )?;
        let threads = Threads {
            writer: Some(spawn("abide-write", move || writing.serve())?),
            readers: reading,
            watch: Some(spawn("abide-watch", move || watch.serve())?),
        };
        Ok(Arc::new(Self {
            lone,
            path,
            clock,
            limits: options.limits,
            settings,
            bus,
            writer,
            readers,
            commits,
            poison,
            stop,
            threads: Mutex::new(threads),
        }))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of transactions that this store has committed since it was opened: fewer than the requests if callers
    /// shared transactions.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Runs operations inside a transaction of the caller, with this store's clock and limits: see [`run_within`].
    pub fn run_within(&self, conn: &Connection, ops: &[Op]) -> Result<Vec<Answer>> {
        run_within(conn, ops, self.clock.now(), &self.limits)
    }

    async fn request(&self, ops: Arc<[Op]>) -> Result<Vec<Answer>> {
        let (answer, answered) = oneshot::channel();
        let run = Request::Run(Run { ops, answer });
        self.writer.send(run).await.map_err(|_| Error::Closed)?;
        // If the thread does not answer, it has ended, and the operations with it, or it panicked and rolled back.
        answered.await.unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Store for Sqlite {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        if ops.iter().any(|op| matches!(op, Op::Register(_))) {
            self.lone.worker_registers(&self.path);
        }
        Box::pin(judge::with_held(move || self.request(ops.clone())))
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        let (now, most) = (self.clock.now(), self.limits.page_bytes);
        let read = move |conn: &_| sql::find(conn, query, now, most);
        Box::pin(self.readers.read(read))
    }

    fn begin(&self, _: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        Box::pin(async move {
            let (path, settings) = (self.path.clone(), self.settings.clone());
            let (clock, limits) = (Arc::clone(&self.clock), self.limits.clone());
            let (bus, poison) = (self.bus.clone(), self.poison.clone());
            let begun = tokio::task::spawn_blocking(move || {
                let conn = open::another(&path, &settings)?;
                StepTransaction::begin(conn, clock, limits, bus, poison)
            });
            let begun = begun.await.map_err(|_| Error::Closed)??;
            Ok(Box::new(begun) as Box<dyn OwnTransaction>)
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn listen(&self) -> Listener {
        self.bus.listen()
    }

    fn writers(&self) -> usize {
        // One thread writes. A second transaction is ready when the first is done, or shares its commit.
        2
    }

    fn outbox_poll(&self) -> Option<Duration> {
        Some(OUTBOX_POLL)
    }

    /// Ends the watch and the readers first, so that no reader keeps the log from being checkpointed; then the writer,
    /// after it has run the waiting requests.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut threads = self.threads.lock().await;
            self.stop.store(true, Ordering::Release);
            if let Some(watch) = &threads.watch {
                watch.thread().unpark();
            }
            self.readers.close();
            let Threads {
                watch,
                readers,
                writer,
            } = std::mem::take(&mut *threads);
            join(watch.into_iter().chain(readers)).await;
            // The thread may have ended already.
            let _ = self.writer.send(Request::Close).await;
            join(writer).await;
            self.lone.let_go();
        })
    }
}

/// Creates a clock that starts with the time of other processes on the file, or otherwise with the wall clock (rule
/// 6.9).
fn begun(path: &Path, lone: &Lone) -> SystemClock {
    let Some(time) = lone.time() else {
        return SystemClock::default();
    };
    let wall = SystemClock::here();
    let off = wall.since(time).max(time.since(wall));
    if off > NOTICEABLE {
        tracing::warn!(
            file = %path.display(), ?off,
            "the wall clock was set while processes worked on this SQLite file: the time here is theirs, and comes after the wall \
             clock slowly; to follow it at once, stop all of them before you start one again"
        );
    }
    SystemClock::beginning_with(time)
}

/// Difference to the wall clock from which on a warning is logged.
const NOTICEABLE: Duration = Duration::from_secs(1);

/// Waits until threads have ended, without blocking the calling thread.
async fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    let threads: Vec<_> = threads.into_iter().collect();
    if threads.is_empty() {
        return;
    }
    let (ended, all_ended) = oneshot::channel::<()>();
    let joining = thread::Builder::new()
        .name("abide-close".to_owned())
        .spawn(move || {
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store had panicked");
                }
            }
            drop(ended);
        });
    if joining.is_ok() {
        let _ = all_ended.await;
    }
}
