//! The thread that writes: it folds waiting requests into one transaction, commits once, and answers all of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide_core::model::Limits;
use abide_kernel::{Answer, Bus, Clock, Effects, Error, Op, Result, run_now};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::cache::Cache;
use crate::error::{classed, of_checkpoint};
use crate::log::Log;
use crate::poison::{Poison, keep_log};
use crate::session::Session;

/// Maximum number of requests in one transaction.
const REQUESTS_AT_ONCE: usize = 256;

/// Time during which a transaction takes in waiting requests: no caller waits much longer than this for others.
const FOLDING: Duration = Duration::from_millis(10);

/// A request to the thread.
pub(crate) enum Request {
    /// Runs operations in a transaction.
    Run(Run),
    /// Checks for commits of other connections.
    CheckForChanges,
    /// Runs the waiting requests and ends the thread.
    Close,
}

/// Operations, and the channel for their answers.
pub(crate) struct Run {
    pub ops: Arc<[Op]>,
    pub answer: oneshot::Sender<Result<Vec<Answer>>>,
}

/// The state of the thread.
pub(crate) struct Writer {
    conn: Connection,
    requests: mpsc::Receiver<Request>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    bus: Bus,
    commits: Arc<AtomicU64>,
    log: Log,
    cache: Cache,
    /// Changes when another connection commits.
    data_version: i64,
    /// The reason if nothing may be written any more.
    poison: Poison,
}

/// Result of a transaction with several requests.
enum Transacted {
    /// The transaction is committed. The answers are those of the first requests; a request that failed before it wrote
    /// anything gets its error.
    Done(Vec<Result<Vec<Answer>>>, Effects),
    /// The transaction was rolled back because the last of that many requests failed after it had written.
    Spoiled(usize, Error),
    /// None of that many requests is known to be committed.
    Failed(usize, Error),
}

impl Writer {
    pub fn new(
        mut conn: Connection,
        requests: mpsc::Receiver<Request>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        bus: Bus,
        commits: Arc<AtomicU64>,
        poison: Poison,
    ) -> Result<Self> {
        let log = Log::of(&mut conn).map_err(classed)?;
        let data_version = data_version(&conn).map_err(classed)?;
        Ok(Self {
            conn,
            requests,
            clock,
            limits,
            bus,
            commits,
            log,
            cache: Cache::default(),
            data_version,
            poison,
        })
    }

    /// Serves requests until it is closed, or until all senders are gone. Waiting requests are served first.
    pub fn serve(mut self) {
        let mut waiting = Vec::with_capacity(REQUESTS_AT_ONCE);
        while self
            .requests
            .blocking_recv_many(&mut waiting, REQUESTS_AT_ONCE)
            > 0
        {
            let mut runs = VecDeque::with_capacity(waiting.len());
            let mut check = false;
            for request in waiting.drain(..) {
                match request {
                    // The caller has gone away and needs no answer.
                    Request::Run(run) if run.answer.is_closed() => {}
                    Request::Run(run) => runs.push_back(run),
                    Request::CheckForChanges => check = true,
                    Request::Close => self.requests.close(),
                }
            }
            let idle = runs.is_empty();
            self.run_all(runs);
            if check && let Err(error) = self.check_for_changes() {
                tracing::debug!(%error, "could not check for commits of others");
            }
            if self.log.is_long(idle) {
                self.checkpoint(PASSIVE);
            }
        }
        self.finish();
    }

    /// Runs requests in as few transactions as possible, and answers each.
    fn run_all(&mut self, mut runs: VecDeque<Run>) {
        let mut alone = 0_usize;
        while !runs.is_empty() {
            if let Err(error) = self.poison.check() {
                return answer(runs.drain(..), || Err(error.again()));
            }
            let most = if alone > 0 { 1 } else { runs.len() };
            alone = alone.saturating_sub(1);
            let together = runs.make_contiguous();
            match self.transact(together.get(..most).unwrap_or_default()) {
                Transacted::Done(answers, effects) => {
                    let mut answers = answers.into_iter();
                    answer(runs.drain(..answers.len()), || {
                        answers.next().unwrap_or(Err(Error::Closed))
                    });
                    self.bus.tell(effects);
                }
                // One of several requests failed. So that the others are not affected, each now runs alone.
                Transacted::Spoiled(count, _) if count > 1 => alone = count,
                Transacted::Spoiled(count, error) | Transacted::Failed(count, error) => {
                    answer(runs.drain(..count.min(most)), || Err(error.again()));
                }
            }
        }
    }

    /// Runs requests, one after the other, in one transaction.
    fn transact(&mut self, runs: &[Run]) -> Transacted {
        if let Err(error) = self.begin() {
            // Another process has been writing for as long as the busy timeout: no request is the cause.
            let error = match classed(error) {
                Error::Conflict(text) => Error::Unavailable(text),
                error => error,
            };
            return Transacted::Failed(runs.len(), error);
        }
        let (begun, now) = (Instant::now(), self.clock.now());
        let mut answers = Vec::with_capacity(runs.len());
        let mut effects = Effects::default();
        for run in runs {
            let before = self.conn.total_changes();
            let answered = {
                let mut session = Session::new(&self.conn, &mut self.cache);
                run_now(&mut session, &run.ops, now, &self.limits)
            };
            match answered {
                Ok((answer, notified)) => {
                    answers.push(Ok(answer));
                    effects.merge(notified);
                }
                Err(error) if self.conn.total_changes() == before && !self.conn.is_autocommit() => {
                    answers.push(Err(error));
                }
                Err(error) => {
                    self.roll_back();
                    return Transacted::Spoiled(answers.len() + 1, error);
                }
            }
            if begun.elapsed() > FOLDING {
                break;
            }
        }
        match self.poison.commit(&self.conn) {
            Ok(()) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                Transacted::Done(answers, effects)
            }
            Err(error) => {
                self.roll_back();
                Transacted::Failed(answers.len(), error)
            }
        }
    }

    /// Begins a write transaction, which excludes all other writers until it ends.
    fn begin(&mut self) -> rusqlite::Result<()> {
        self.execute("begin immediate")?;
        let checked = self.check_for_changes();
        if checked.is_err() {
            self.roll_back();
        }
        checked
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// Ends a failed transaction, unless SQLite has ended it already.
    fn roll_back(&mut self) {
        self.cache.forget();
        if !self.conn.is_autocommit()
            && let Err(error) = self.execute("rollback")
        {
            self.poison(Some(format!(
                "a transaction could not be rolled back ({error}): open the store again"
            )));
        }
    }

    /// Stops all writing, including the checkpoint at the end: the log is the evidence.
    pub(crate) fn poison(&mut self, why: Option<String>) {
        let Some(why) = why else { return };
        keep_log(&self.conn);
        self.poison.set(why);
    }

    /// If another connection has committed since the last check: clears the cache, and notifies all listeners that
    /// anything may have changed.
    fn check_for_changes(&mut self) -> rusqlite::Result<()> {
        let version = data_version(&self.conn)?;
        if version != self.data_version {
            self.data_version = version;
            self.cache.forget();
            self.bus.tell(Effects::anything());
        }
        Ok(())
    }

    /// Copies the log into the database (a checkpoint), as far as readers allow. All callers have been answered before.
    /// If readers prevent a part of it, that is not an error: the pragma reports it, and the next attempt copies the
    /// rest.
    fn checkpoint(&mut self, sql: &str) {
        if self.poison.check().is_ok()
            && let Err(error) = self.conn.query_row(sql, [], |_| Ok(()))
        {
            tracing::debug!(%error, "the log was not carried over this time");
            self.poison(of_checkpoint(&error));
        }
    }

    fn finish(mut self) {
        self.checkpoint(TRUNCATE);
        if self.poison.check().is_err() {
            keep_log(&self.conn);
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the connection did not close cleanly");
        }
    }
}

fn answer(runs: impl Iterator<Item = Run>, mut with: impl FnMut() -> Result<Vec<Answer>>) {
    for run in runs {
        // The caller may have gone away.
        let _ = run.answer.send(with());
    }
}

/// Checkpoints: one that copies what it can without waiting, and one that copies the rest and empties the log.
const PASSIVE: &str = "pragma wal_checkpoint(passive)";
const TRUNCATE: &str = "pragma wal_checkpoint(truncate)";

/// Changes when another connection commits, but not when this one does.
fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("pragma data_version")?
        .query_row([], |row| row.get(0))
}
