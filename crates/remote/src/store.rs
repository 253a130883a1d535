//! The store: each call is a request.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_core::model::{Fingerprint, Name, Refusal, RequestId};
use abide_kernel::wire::{Reply, Request};
use abide_kernel::{
    Answer, Backoff, Bus, Clock, Effects, Error, IDS_MOST, Listener, Once, Op, Query, QueryResult,
    Renewer, Result, Store, SystemClock,
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
        let stream = caller.notifications().await?;
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
        let count = ops.len();
        let id = self.ids.next()?;
        let request = Request::Run(Arc::from([Op::Once(vec![Once { id, ops }])]));
        let mut backoff = Backoff::away();
        let mut deadline = None;
        loop {
            let error = match self.ask(&request).await {
                Ok(reply) => match carried_out(reply, count) {
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
            let count = ops.len();
            match self.0.ask(&Request::Run(ops)).await? {
                Reply::Answers(answers) if answers.len() == count => Ok(answers),
                _ => Err(Error::unexpected_answer()),
            }
        })
    }

    /// Its connections end with the runtime that they belong to.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The answers to operations that were sent under an id.
fn carried_out(reply: Reply, count: usize) -> Result<Vec<Answer>> {
    let Reply::Answers(answers) = reply else {
        return Err(Error::unexpected_answer());
    };
    match answers.into_iter().next() {
        Some(Answer::Once(each)) => match each.into_iter().next() {
            Some(Ok(one)) if one.answers.len() == count => Ok(one.answers),
            Some(Err(refusal)) => Err(refusal.into()),
            _ => Err(Error::unexpected_answer()),
        },
        _ => Err(Error::unexpected_answer()),
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

/// Splits a query that names more ids than one request may (rule 16.4): the part to send now, and the rest.
fn split(mut query: Query) -> (Query, Option<Query>) {
    fn rest<I>(ids: &mut Vec<I>) -> Option<Vec<I>> {
        (ids.len() > IDS_MOST).then(|| ids.split_off(IDS_MOST))
    }
    let others = match &mut query {
        Query::Around(ids) => rest(ids).map(Query::Around),
        Query::Endings(ids) => rest(ids).map(Query::Endings),
        Query::Records(ids) => rest(ids).map(Query::Records),
        Query::Contracts(ids) => rest(ids).map(Query::Contracts),
        _ => None,
    };
    (query, others)
}

impl Store for Remote {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let count = ops.len();
            // Operations that are harmless to repeat need no id, and the server need not keep their answers.
            if !ops.iter().all(Op::is_repeatable) {
                return self.run_once(ops).await;
            }
            match self.ask(&Request::Run(ops)).await? {
                Reply::Answers(answers) if answers.len() == count => Ok(answers),
                _ => Err(Error::unexpected_answer()),
            }
        })
    }

    /// A query may name more ids than one request: the results are those of several requests.
    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        Box::pin(async move {
            let (query, others) = split(query);
            let mut result = match self.ask(&Request::Read(query)).await? {
                Reply::Found(result) => result,
                _ => return Err(Error::unexpected_answer()),
            };
            match (&mut result, others) {
                (QueryResult::Around(all), Some(others)) => match self.read(others).await? {
                    QueryResult::Around(found) => all.extend(found),
                    _ => return Err(Error::unexpected_answer()),
                },
                (QueryResult::Endings(page), Some(Query::Endings(ids))) => page.rest.extend(ids),
                (QueryResult::Records(page), Some(Query::Records(ids))) => page.rest.extend(ids),
                (QueryResult::Contracts(page), Some(Query::Contracts(ids))) => {
                    page.rest.extend(ids)
                }
                (_, Some(_)) => return Err(Error::unexpected_answer()),
                (_, None) => {}
            }
            Ok(result)
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
