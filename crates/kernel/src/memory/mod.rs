//! A store in plain maps: for tests, for experiments, and as the model that the databases are compared with.

mod around;
mod claim;
mod commands;
mod definitions;
mod events;
mod index;
mod load;
mod lookback;
mod pieces;
mod query;
mod reads;
mod record;
mod shapes;
mod tables;
#[cfg(feature = "conformance")]
mod tamper;
mod txn;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_core::model::Limits;
use futures_util::future::BoxFuture;

use crate::{
    Answer, Bus, Clock, Error, Listener, Op, Query, QueryResult, Result, Store, SystemClock, judge,
    run_now,
};
use pieces::MemoryTxn;
use tables::Tables;

/// A store that keeps all data in memory and loses it when it is dropped.
///
/// It follows every rule that the databases follow, except that nothing survives the process. A transaction holds one
/// lock from beginning to end and never waits inside it.
///
/// ```
/// use abide_kernel::memory::Memory;
/// use abide_kernel::model::{Json, Name, Start, Status};
/// use abide_kernel::{Answer, Op, Store};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store = Memory::default();
/// let start = Start::of(Name::new("checkout")?, Json::null());
/// let answers = store.run([Op::Start(vec![start])].into()).await?;
/// assert!(matches!(answers.as_slice(), [Answer::Started(each)] if each.len() == 1));
/// # Ok::<(), abide_kernel::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory {
    clock: Arc<dyn Clock>,
    limits: Limits,
    bus: Bus,
    tables: Mutex<Option<Tables>>,
}

impl Memory {
    /// Creates an empty store that uses this clock.
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self {
            clock,
            limits,
            bus: Bus::new(),
            tables: Mutex::new(Some(Tables::default())),
        }
    }

    /// Locks the tables, which are `None` if the store was closed. A panic while they were locked has rolled its
    /// transaction back, so a poisoned lock can be ignored.
    fn locked(&self) -> MutexGuard<'_, Option<Tables>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, ops: &[Op]) -> Result<Vec<Answer>> {
        let mut guard = self.locked();
        let tables = guard.as_mut().ok_or(Error::Closed)?;
        let mut txn = MemoryTxn::begin(tables);
        let (answers, effects) = run_now(&mut txn, ops, self.clock.now(), &self.limits)?;
        txn.commit();
        drop(guard);
        self.bus.tell(effects);
        Ok(answers)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::default()), Limits::default())
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Store for Memory {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move { judge::with_held(|| async { self.write(&ops) }).await })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        Box::pin(async move {
            let (now, guard) = (self.clock.now(), self.locked());
            let tables = guard.as_ref().ok_or(Error::Closed)?;
            Ok(tables.read(query, now, self.limits.page_bytes))
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn listen(&self) -> Listener {
        self.bus.listen()
    }

    fn writers(&self) -> usize {
        1
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            *self.locked() = None;
        })
    }
}
