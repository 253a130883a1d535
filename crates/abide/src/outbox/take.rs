//! Takes rows of the outbox, page by page, until none is left. A row that fails affects no other (rule 1.4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{AT_ONCE, OutboxId, Refusal};
use abide_kernel::committer::Fault;
use abide_kernel::{
    Answer, Backoff, Error, Listener, OUTBOX_POLL, Op, OutboxAction, OutboxEntry, OutboxProblem,
    Result, Store,
};
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::read::entries;

/// The maximum number of rows that wait for a retry. If there are more, the rows behind them wait too.
const PASSED_OVER_MAX: usize = 1_000;

/// Takes rows until `stop` is cancelled or the store is closed.
pub(crate) async fn keep_taken(store: Arc<dyn Store>, stop: CancellationToken) {
    let mut notifications = store.listen();
    let mut taker = Taker::new(store);
    let mut backoff = Backoff::away();
    loop {
        // This read finds everything that was announced so far.
        while let Some(effects) = notifications.next().now_or_never() {
            if effects.is_none() {
                return;
            }
        }
        let pause = match taker.take_all(&stop).await {
            Ok(()) => {
                backoff.reset();
                taker.until_next()
            }
            Err(Error::Closed) => return,
            Err(error) => {
                // An operator must complete the setup, so this is logged once, and then less and less often.
                if backoff.failures().is_power_of_two() || backoff.failures() == 0 {
                    tracing::warn!(%error, "requests of the outbox cannot be taken; trying again");
                }
                backoff.failed().unwrap_or(OUTBOX_POLL)
            }
        };
        if wait(&mut notifications, &stop, pause, backoff.failures() == 0)
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Waits for `pause`, or until a notification of rows arrives if `listens` is set. Returns `None` when it must stop.
async fn wait(
    notifications: &mut Listener,
    stop: &CancellationToken,
    pause: Duration,
    listens: bool,
) -> Option<()> {
    let until = Instant::now() + pause;
    loop {
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep_until(until) => return Some(()),
            effects = notifications.next(), if listens => {
                let effects = effects?;
                if effects.outbox || effects.anything {
                    return Some(());
                }
            }
        }
    }
}

/// Takes the rows of one store.
struct Taker {
    store: Arc<dyn Store>,
    /// Rows that failed for a reason that they may have caused, and the time of the next attempt.
    failing: BTreeMap<OutboxId, (Backoff, Instant)>,
}

/// The result of a transaction.
enum Ran {
    /// Its rows were taken now or before.
    Taken,
    /// Another process takes rows, and continues until none is left.
    Busy,
}

impl Taker {
    fn new(store: Arc<dyn Store>) -> Self {
        let failing = BTreeMap::new();
        Self { store, failing }
    }

    /// The time to wait for a notification of rows: until the next retry of a failed row, but not longer than the poll
    /// interval.
    fn until_next(&self) -> Duration {
        let poll = self.store.outbox_poll().unwrap_or(OUTBOX_POLL);
        let next = self.failing.values().map(|(_, at)| *at).min();
        next.map_or(poll, |at| {
            poll.min(at.saturating_duration_since(Instant::now()))
        })
    }

    /// Takes all rows, except those that are skipped for a while.
    async fn take_all(&mut self, stop: &CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            let now = Instant::now();
            let passed_over = self.failing.iter().filter(|(_, (_, at))| *at > now);
            let passed_over: Vec<OutboxId> = passed_over.map(|(id, _)| *id).collect();
            if passed_over.len() >= PASSED_OVER_MAX {
                return Ok(());
            }
            let rows = self.store.outbox(&passed_over, AT_ONCE).await?;
            if rows.is_empty() {
                // Failed rows that were due for a retry and were not read have been taken by others, or deleted.
                self.failing.retain(|id, _| passed_over.contains(id));
                return Ok(());
            }
            let entries = entries(&*self.store, rows).await?;
            if let Ran::Busy = self.take(entries).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes rows in one transaction. If that fails for a reason that one of them may have caused, takes each in its
    /// own transaction, in order.
    async fn take(&mut self, entries: Vec<OutboxEntry>) -> Result<Ran> {
        let failed_before = |entry: &OutboxEntry| self.failing.contains_key(&entry.id);
        if !entries.iter().any(failed_before) {
            match self.run(entries.clone()).await {
                Err(error) if is_own(&error) => {
                    tracing::debug!(%error, "rows of the outbox go one by one");
                }
                ran => return ran,
            }
        }
        for entry in entries {
            let id = entry.id;
            match self.run(vec![entry]).await {
                Ok(Ran::Taken) => drop(self.failing.remove(&id)),
                Ok(Ran::Busy) => return Ok(Ran::Busy),
                Err(error) if is_own(&error) => self.failed(id, &error).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(Ran::Taken)
    }

    /// Notes that a row failed alone. It is retried later, or recorded as refused if a retry is useless.
    async fn failed(&mut self, id: OutboxId, error: &Error) -> Result<()> {
        let again = || (Backoff::conflict(), Instant::now());
        let (backoff, at) = self.failing.entry(id).or_insert_with(again);
        let pause = backoff.failed();
        let hopeless = pause.is_none() || !may_pass(error);
        *at = Instant::now() + pause.unwrap_or(OUTBOX_POLL);
        if !hopeless {
            return Ok(());
        }
        let problem = OutboxProblem::new("not_stored", error.to_string());
        let action = OutboxAction::Refuse(problem);
        match self.run(vec![OutboxEntry { id, action }]).await {
            Ok(Ran::Taken) => drop(self.failing.remove(&id)),
            Ok(Ran::Busy) => {}
            // Not even the refusal can be stored: the row stays, and is retried at growing intervals.
            Err(error) if is_own(&error) => {
                tracing::error!(%error, row = id.0, "a row of the outbox can be neither taken nor refused");
                let mut backoff = Backoff::stuck();
                let pause = backoff.failed().unwrap_or(OUTBOX_POLL);
                self.failing.insert(id, (backoff, Instant::now() + pause));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn run(&self, entries: Vec<OutboxEntry>) -> Result<Ran> {
        let answers = self.store.run(Arc::from([Op::Outbox(entries)])).await?;
        match answers.first() {
            Some(Answer::Outbox { busy: true, .. }) => Ok(Ran::Busy),
            Some(Answer::Outbox { refused, .. }) => {
                if *refused > 0 {
                    tracing::warn!(
                        refused,
                        "requests of the outbox were refused; run `abide outbox` to see why"
                    );
                }
                Ok(Ran::Taken)
            }
            _ => Err(Error::unexpected_answer()),
        }
    }
}

/// `true` if the same row may succeed later: the database rejected it for now, or all validators were busy.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict(_) | Error::Unjudged(_) | Error::Refused(Refusal::Unjudged { .. })
    )
}

/// `true` if a row may have caused the failure. If the database is not set up, no row is the cause.
fn is_own(error: &Error) -> bool {
    error.fault() == Fault::Entry && !matches!(error, Error::NotSetUp(_))
}
