//! The store: each call is a request.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, ContractId, Document, DocumentKind, EventSequence,
    Fingerprint, HistoryRow, Instance, InstanceId, Json, Lane, Name, OutboxId, Refusal, RequestId,
    Timestamp, Worker,
};
use abide_kernel::wire::{IDS_MOST, Reply, Request};
use abide_kernel::{
    Answer, Backoff, Bus, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Effects,
    Endings, Error, EventFilter, EventPage, Filter, Listener, MachinePage, Once, Op, OutboxDepth,
    OutboxRow, Page, QueueDepth, ReadyLane, Records, RefusedPage, Renewer, Result, Store,
    Surroundings, SystemClock, Tally, Target, WaiterFilter, WaiterPage,
};
use futures_util::future::BoxFuture;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::address::Address;
use crate::caller::Caller;
use crate::options::Options;
use crate::{clock, notifications};

/// Number of requests that are useful in parallel: one waits for the network while another is written.
const WRITERS: usize = 4;
/// Time that closing waits for running requests.
const CLOSING: Duration = Duration::from_secs(10);

/// A store on a server.
pub struct Remote {
    caller: Arc<Caller>,
    clock: Arc<dyn Clock>,
    bus: Bus,
    tasks: TaskTracker,
    stop: CancellationToken,
    ids: Ids,
    patience: Duration,
    /// The options that it was opened with.
    options: Options,
    #[expect(dead_code, reason = "held: tasks end when the store is dropped")]
    stop_when_dropped: DropGuard,
}

impl Remote {
    /// Connects to a server: reads its time, and starts to listen.
    ///
    /// Errors: an invalid address, and a server that is not an abide server, are [`Broken`](Error::Broken); a server
    /// that cannot be reached is [`Unavailable`](Error::Unavailable); a token that it does not accept is
    /// [`Refused`](Error::Refused).
    pub async fn connect(url: &str, options: Options) -> Result<Arc<Self>> {
        let caller = Arc::new(Caller::new(Address::new(url)?, &options)?);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let stop_when_dropped = stop.clone().drop_guard();
        let clock: Arc<dyn Clock> = match options.clock.clone() {
            Some(clock) => clock,
            None => {
                let clock = Arc::new(SystemClock::default());
                clock::follow(&clock, &caller).await?;
                let following = clock::keep_following(clock.clone(), caller.clone(), stop.clone());
                tasks.spawn(following);
                clock
            }
        };
        let bus = Bus::new();
        let stream = caller.news().await?;
        tasks.spawn(notifications::listen(
            stream,
            caller.clone(),
            bus.clone(),
            stop.clone(),
        ));
        Ok(Arc::new(Self {
            caller,
            clock,
            bus,
            tasks,
            stop,
            ids: Ids::new(),
            patience: options.patience,
            options,
            stop_when_dropped,
        }))
    }

    async fn ask(&self, request: &Request) -> Result<Reply> {
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        // Closing waits for running requests.
        let _begun = self.tasks.token();
        let answer = self.caller.ask(request).await;
        if let Err(Error::Unknown(_)) = answer {
            self.bus.tell(Effects::anything());
        }
        answer
    }
}

impl Remote {
    /// Runs operations under one id, however often they are sent: the server carries them out once (rule 1.5).
    ///
    /// After an attempt with an unknown outcome they are sent again, as long as the patience lasts. From then on only
    /// the server's own answer counts: that a later attempt could not be sent does not mean that the first was not
    /// written.
    async fn run_once(&self, ops: Arc<[Op]>) -> Result<Vec<Answer>> {
        let asked = ops.len();
        let id = self.ids.next()?;
        let request = Request::Run(Arc::from([Op::Once(vec![Once { id, ops }])]));
        let mut backoff = Backoff::away();
        let mut deadline = None;
        loop {
            let error = match self.ask(&request).await {
                Ok(reply) => match carried_out(reply, asked) {
                    Err(Error::Refused(running @ Refusal::RequestRunning { .. })) => {
                        Error::Unknown(running.to_string())
                    }
                    carried_out => return carried_out,
                },
                Err(error) => error,
            };
            let until = match (deadline, &error) {
                (Some(until), _) => until,
                (None, Error::Unknown(_)) => *deadline.insert(Instant::now() + self.patience),
                (None, _) => return Err(error),
            };
            let retry = error.is_passing() || matches!(error, Error::Unknown(_));
            if !retry || Instant::now() >= until {
                return Err(match error {
                    unknown @ Error::Unknown(_) => unknown,
                    other => Error::Unknown(other.to_string()),
                });
            }
            backoff.pause().await;
        }
    }
}

/// Renews leases over connections of its own.
struct Renewals(Caller);

impl Renewer for Renewals {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let asked = ops.len();
            match self.0.ask(&Request::Run(ops)).await? {
                Reply::Answers(answers) if answers.len() == asked => Ok(answers),
                _ => Err(unexpected()),
            }
        })
    }

    /// Its connections end with the runtime that they belong to.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The answers to operations that were sent under an id.
fn carried_out(reply: Reply, asked: usize) -> Result<Vec<Answer>> {
    let Reply::Answers(answers) = reply else {
        return Err(unexpected());
    };
    match answers.into_iter().next() {
        Some(Answer::Once(each)) => match each.into_iter().next() {
            Some(Ok(one)) if one.answers.len() == asked => Ok(one.answers),
            Some(Err(refusal)) => Err(refusal.into()),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// Generates unique request ids: 128 random bits of this store, and a number.
struct Ids {
    prefix: String,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Self {
        // Each hasher has random keys from the system.
        let random = || RandomState::new().hash_one(Instant::now());
        Self {
            prefix: format!("{:016x}{:016x}", random(), random()),
            next: AtomicU64::new(0),
        }
    }

    fn next(&self) -> Result<RequestId> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = Name::new(format!("{}-{number}", self.prefix))?;
        // No other request has that key, so it also serves as the fingerprint. The server determines the caller.
        let fingerprint = Fingerprint::of([key.as_str()]);
        Ok(RequestId::new("", key, fingerprint))
    }
}

/// The error for a reply of the wrong kind.
pub(crate) fn unexpected() -> Error {
    Error::Broken("the server sent an unexpected answer: it is of another release".into())
}

/// The first ids, as many as one read may contain (rule 16.4), and the rest.
fn named<I: Copy>(ids: &[I]) -> (Vec<I>, &[I]) {
    let (first, rest) = ids.split_at(ids.len().min(IDS_MOST));
    (first.to_vec(), rest)
}

/// Sends a request, and accepts only the matching kind of reply.
macro_rules! asking {
    ($self:ident, $request:expr, $pattern:pat => $found:expr) => {
        Box::pin(async move {
            match $self.ask(&$request).await? {
                $pattern => Ok($found),
                _ => Err(unexpected()),
            }
        })
    };
}

impl Store for Remote {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let asked = ops.len();
            // Operations that are harmless to repeat need no id, and the server need not keep their answers.
            if !ops.iter().all(Op::is_repeatable) {
                return self.run_once(ops).await;
            }
            match self.ask(&Request::Run(ops)).await? {
                Reply::Answers(answers) if answers.len() == asked => Ok(answers),
                _ => Err(unexpected()),
            }
        })
    }

    fn renewer(&self) -> Result<Option<Box<dyn Renewer>>> {
        let caller = self.caller.another(&self.options)?;
        Ok(Some(Box::new(Renewals(caller))))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn listen(&self) -> Listener {
        self.bus.listen()
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        asking!(self, Request::Get(target.clone()), Reply::Instance(found) => found.map(|found| *found))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        let filter = filter.clone();
        asking!(self, Request::List { filter, before, limit }, Reply::Instances(page) => page)
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(ids.len());
            for some in ids.chunks(IDS_MOST) {
                match self.ask(&Request::Around(some.to_vec())).await? {
                    Reply::Around(found) => all.extend(found),
                    _ => return Err(unexpected()),
                }
            }
            Ok(all)
        })
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        asking!(self, Request::History { id, after, limit }, Reply::History(rows) => rows)
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        asking!(self, Request::Children { parent, barrier, after }, Reply::Children(page) => page)
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        Box::pin(async move {
            let (first, others) = named(ids);
            match self.ask(&Request::Endings(first)).await? {
                Reply::Endings(mut page) => {
                    page.rest.extend_from_slice(others);
                    Ok(page)
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        let filter = filter.clone();
        asking!(self, Request::Commands { filter, before, limit }, Reply::Commands(page) => page)
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        Box::pin(async move {
            let (first, others) = named(ids);
            match self.ask(&Request::Records(first)).await? {
                Reply::Records(mut page) => {
                    page.rest.extend_from_slice(others);
                    Ok(page)
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        asking!(self, Request::Inbox(id), Reply::Inbox(found) => found)
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        let filter = filter.clone();
        asking!(self, Request::Events { filter, before, limit }, Reply::Events(page) => page)
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        let filter = filter.clone();
        asking!(self, Request::Waiters { filter, after, limit }, Reply::Waiters(page) => page)
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        asking!(self, Request::Contract(id), Reply::Contract(found) => found)
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        Box::pin(async move {
            let (first, others) = named(ids);
            match self.ask(&Request::Contracts(first)).await? {
                Reply::Contracts(mut page) => {
                    page.rest.extend_from_slice(others);
                    Ok(page)
                }
                _ => Err(unexpected()),
            }
        })
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        asking!(self, Request::Machines { after, limit }, Reply::Machines(page) => page)
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        asking!(self, Request::Documents { kind, after, limit }, Reply::Documents(page) => page)
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        let name = name.clone();
        asking!(self, Request::Document { kind, name }, Reply::Document(found) => found)
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        asking!(self, Request::NextDue, Reply::Due(due) => due)
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        asking!(self, Request::Workers, Reply::Workers(found) => found)
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        asking!(self, Request::Depths, Reply::Depths(found) => found)
    }

    // The server takes the rows itself.
    fn outbox<'a>(&'a self, _: &'a [OutboxId], _: usize) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        let request = Request::Refused { before, limit };
        asking!(self, request, Reply::Refused(found) => found)
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        asking!(self, Request::OutboxDepth, Reply::OutboxDepth(found) => found)
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        asking!(self, Request::ReadyLanes, Reply::ReadyLanes(found) => found)
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        asking!(self, Request::Tally, Reply::Tally(found) => found)
    }

    /// Closes the connections; the server's store stays open.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.stop.cancel();
            self.tasks.close();
            if tokio::time::timeout(CLOSING, self.tasks.wait())
                .await
                .is_err()
            {
                tracing::warn!("requests were not answered within {CLOSING:?}; left to themselves");
            }
        })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("server", &self.caller.server())
            .finish_non_exhaustive()
    }
}
