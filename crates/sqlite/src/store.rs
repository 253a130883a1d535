//! The store: its threads, and its implementation of `Store`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use abide_core::model::Limits;
use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Timestamp, Waiter, Worker,
};
use abide_kernel::{
    Answer, Bus, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, Error,
    EventFilter, EventPage, Filter, Listener, MachinePage, Op, OutboxDepth, OutboxRow,
    OwnTransaction, Page, QueueDepth, ReadyLane, Records, RefusedPage, Result, Store, Surroundings,
    SystemClock, Tally, Target, WaiterFilter, WaiterPage, judge,
};
use futures_util::future::BoxFuture;
use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::exclusive::Lone;
use crate::open;
use crate::options::Options;
use crate::poison::Poison;
use crate::read::{Readers, spawn};
use crate::sql::{
    around, census, children, commands, contracts, documents, events, inbox, machines, outbox,
    query, waiters, workers,
};
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

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        let target = target.clone();
        Box::pin(self.readers.read(move |conn| query::get(conn, &target)))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        let filter = filter.clone();
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = self
                .readers
                .read(move |conn| query::list(conn, &filter, before, one_more, most));
            Ok(page(read.await?, limit, |one| one.id).within(most, |one| one.id))
        })
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        let ids = ids.to_vec();
        Box::pin(self.readers.read(move |conn| around::around(conn, &ids)))
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        Box::pin(
            self.readers
                .read(move |conn| query::history(conn, id, after, limit)),
        )
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        let after = after.unwrap_or(InstanceId(i64::MIN));
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let read = self
                .readers
                .read(move |conn| children::above(conn, parent, barrier, after, most));
            let (items, next) = (read.await?, None);
            Ok(Page { items, next }.within(most, |last| last.id))
        })
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        let (ids, most) = (ids.to_vec(), self.limits.page_bytes);
        let read = move |conn: &_| query::endings(conn, &ids, most);
        Box::pin(self.readers.read(read))
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        let filter = filter.clone();
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = self
                .readers
                .read(move |conn| commands::list(conn, &filter, before, one_more, most));
            Ok(page(read.await?, limit, |one| one.id).within(most, |one| one.id))
        })
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        let (ids, most) = (ids.to_vec(), self.limits.page_bytes);
        let read = move |conn: &_| commands::by_ids(conn, &ids, most);
        Box::pin(self.readers.read(read))
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        Box::pin(self.readers.read(move |conn| inbox::whole(conn, id)))
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        let filter = filter.clone();
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = self
                .readers
                .read(move |conn| events::list(conn, &filter, before, one_more, most));
            Ok(page(read.await?, limit, |one| one.sequence).within(most, |one| one.sequence))
        })
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        let filter = filter.clone();
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = self
                .readers
                .read(move |conn| waiters::list(conn, &filter, after, one_more, most));
            let place = |waiter: &Waiter| (waiter.instance, waiter.place);
            Ok(page(read.await?, limit, place).within(most, place))
        })
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        Box::pin(self.readers.read(move |conn| contracts::contract(conn, id)))
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        let (ids, most) = (ids.to_vec(), self.limits.page_bytes);
        let read = move |conn: &_| contracts::by_ids(conn, &ids, most);
        Box::pin(self.readers.read(read))
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = move |conn: &_| machines::list(conn, after.as_ref(), one_more, most);
            let found = self.readers.read(read).await?;
            Ok(page(found, limit, machines::lane).within(most, machines::lane))
        })
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = move |conn: &_| documents::list(conn, kind, after.as_ref(), one_more, most);
            let found = self.readers.read(read).await?;
            let place = |one: &Document| one.name.clone();
            Ok(page(found, limit, place).within(most, place))
        })
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        let name = name.clone();
        Box::pin(
            self.readers
                .read(move |conn| documents::document(conn, kind, &name)),
        )
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(self.readers.read(query::next_due))
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        let now = self.clock.now();
        Box::pin(self.readers.read(move |conn| workers::living(conn, now)))
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        Box::pin(self.readers.read(query::depths))
    }

    fn takes_outbox(&self) -> bool {
        true
    }

    fn outbox<'a>(
        &'a self,
        passed_over: &'a [OutboxId],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        let (passed_over, most) = (passed_over.to_vec(), self.limits.page_bytes);
        let read = move |conn: &_| outbox::rows(conn, &passed_over, limit, most);
        Box::pin(self.readers.read(read))
    }

    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        let before = before.unwrap_or(OutboxId(i64::MAX));
        let most = self.limits.page_bytes;
        Box::pin(async move {
            let one_more = limit.saturating_add(1);
            let read = self
                .readers
                .read(move |conn| outbox::refused(conn, before, one_more, most));
            Ok(page(read.await?, limit, |one| one.id).within(most, |one| one.id))
        })
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        Box::pin(self.readers.read(outbox::depth))
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        Box::pin(self.readers.read(census::ready_lanes))
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        Box::pin(self.readers.read(census::tally))
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

/// Makes a page of the items, which are one more than the limit if there is a next page.
fn page<T, C>(mut items: Vec<T>, limit: usize, place: fn(&T) -> C) -> Page<T, C> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().map(place).filter(|_| more);
    Page { items, next }
}

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
