//! A store that loses requests and answers, as networks do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{Answer, Clock, Error, Listener, Op, Query, QueryResult, Result, Store};

/// The fault of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It does not reach the database.
    Away,
    /// The database would not take it this time.
    Conflict,
    /// The database will never take it.
    Broken,
    /// Its outcome is unknown, and it was not committed.
    Lost,
    /// Its outcome is unknown, and it was committed.
    AnswerLost,
}

type Plan = dyn Fn(&[Op]) -> Option<Trouble> + Send + Sync;

/// A store with the faults of its plan.
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Box<Plan>,
    lists: AtomicUsize,
    reads: AtomicUsize,
    meanwhile: Mutex<Vec<Op>>,
}

impl Faulty {
    /// Wraps a store: the plan chooses the fault of a transaction by its operations.
    pub fn new(
        store: Arc<dyn Store>,
        plan: impl Fn(&[Op]) -> Option<Trouble> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let plan = Box::new(plan);
        Arc::new(Self {
            store,
            plan,
            lists: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            meanwhile: Mutex::default(),
        })
    }

    /// The number of reads that describe instances: of themselves, what is around them, workers, contracts.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Runs these operations before the next read of what is around instances: between the two reads of a list.
    pub fn meanwhile(&self, ops: Vec<Op>) {
        *self
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = ops;
    }

    /// The number of times that all documents of a kind were read.
    pub fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl Store for Faulty {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let trouble = (self.plan)(&ops);
            match trouble {
                None => self.store.run(ops).await,
                Some(Trouble::Away) => Err(Error::Unavailable("it was made so".into())),
                Some(Trouble::Conflict) => Err(Error::Conflict("it was made so".into())),
                Some(Trouble::Broken) => Err(Error::Broken("it was made so".into())),
                Some(Trouble::Lost) => Err(Error::Unknown("it was made so".into())),
                Some(Trouble::AnswerLost) => {
                    self.store.run(ops).await?;
                    Err(Error::Unknown("it was made so".into()))
                }
            }
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        Box::pin(async move {
            match &query {
                Query::Get(_) | Query::List { .. } | Query::Workers | Query::Contracts(_) => {
                    self.reads.fetch_add(1, Ordering::Relaxed);
                }
                Query::Around(_) => {
                    let ops = std::mem::take(
                        &mut *self
                            .meanwhile
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner),
                    );
                    if !ops.is_empty() {
                        self.store.run(ops.into()).await?;
                    }
                    self.reads.fetch_add(1, Ordering::Relaxed);
                }
                // An empty list of operations stands for a read.
                Query::Endings(_) if (self.plan)(&[]).is_some() => {
                    return Err(Error::Unavailable("it was made so".into()));
                }
                Query::Documents { .. } => {
                    self.lists.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            self.store.read(query).await
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self) -> Listener {
        self.store.listen()
    }

    fn writers(&self) -> usize {
        self.store.writers()
    }

    fn outbox_poll(&self) -> Option<Duration> {
        self.store.outbox_poll()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
