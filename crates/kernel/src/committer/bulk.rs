//! Operations that choose many instances themselves. An instance that fails delays the others by a few attempts, and is
//! then skipped for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::InstanceId;
use tokio::time::Instant;

use super::Fault;
use crate::{Answer, Backoff, Error, Op, Result, Store};

/// The factors by which a batch shrinks after a failure and grows after a success.
const SHRINK: usize = 8;
const GROW: usize = 2;
/// The maximum number of instances that are skipped at once. If there are more, something else is wrong.
const PASSED_MAX: usize = 1_000;
/// The time for which a skipped instance is remembered: longer than the longest pause.
const REMEMBERED: Duration = Duration::from_secs(300);

/// An operation that chooses its instances itself, run batch by batch.
#[derive(Debug)]
pub struct Bulk {
    /// The maximum and the current number of instances in a batch.
    most: usize,
    limit: usize,
    passed: BTreeMap<InstanceId, Passed>,
}

/// An instance that failed alone.
#[derive(Debug)]
struct Passed {
    backoff: Backoff,
    /// Until when it is skipped.
    until: Instant,
}

impl Bulk {
    /// Creates batches of at most `most` instances.
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            limit: most,
            passed: BTreeMap::new(),
        }
    }

    /// Runs the next batch; `op` gets the number of instances. If the batch fails and an instance in it may be the
    /// cause, smaller batches are tried. An instance that fails alone is skipped, at first for a second and finally for
    /// a minute (rule 1.4).
    ///
    /// Errors: those that no instance has caused. Batches that were committed before stay committed.
    pub async fn run(
        &mut self,
        store: &Arc<dyn Store>,
        op: impl Fn(usize) -> Op,
    ) -> Result<Answer> {
        loop {
            let error = match self.attempt(store, op(self.limit), false).await {
                Ok(answer) => {
                    let now = Instant::now();
                    self.passed
                        .retain(|_, passed| passed.until + REMEMBERED > now);
                    self.limit = self.limit.saturating_mul(GROW).min(self.most);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if error.fault() != Fault::Entry || self.passed.len() >= PASSED_MAX {
                return Err(error);
            }
            if self.limit > 1 {
                tracing::debug!(%error, limit = self.limit, "instances fail together; fewer are tried");
                self.limit = (self.limit / SHRINK).max(1);
                continue;
            }
            match self.attempt(store, op(1), true).await? {
                Answer::Named(ids) if ids.is_empty() => return Err(error),
                Answer::Named(ids) => ids.into_iter().for_each(|id| self.pass_over(id, &error)),
                _ => return Err(error),
            }
        }
    }

    /// `true` if any instance is skipped at the moment.
    pub fn is_incomplete(&self) -> bool {
        let now = Instant::now();
        self.passed.values().any(|passed| passed.until > now)
    }

    /// Returns when the first of the instances that are skipped at the moment may be tried again.
    pub fn retries_at(&self) -> Option<Instant> {
        let now = Instant::now();
        let until = self.passed.values().map(|passed| passed.until);
        until.filter(|until| *until > now).min()
    }

    async fn attempt(&self, store: &Arc<dyn Store>, op: Op, name_only: bool) -> Result<Answer> {
        let now = Instant::now();
        let passed = self.passed.iter().filter(|(_, passed)| passed.until > now);
        let instances: Vec<InstanceId> = passed.map(|(id, _)| *id).collect();
        let around = (name_only || !instances.is_empty()).then_some(Op::PassOver {
            instances,
            name_only,
        });
        let ops: Arc<[Op]> = around.into_iter().chain([op]).collect();
        let answers = store.run(ops).await?;
        answers
            .into_iter()
            .next_back()
            .ok_or_else(|| Error::Broken("an operation was not answered".into()))
    }

    fn pass_over(&mut self, id: InstanceId, error: &Error) {
        let passed = self.passed.entry(id).or_insert_with(|| Passed {
            backoff: Backoff::stuck(),
            until: Instant::now(),
        });
        let delay = passed.backoff.failed().unwrap_or_default();
        passed.until = Instant::now() + delay;
        metrics::counter!("abide_passed_over_total").increment(1);
        tracing::error!(
            %error, instance = %id, again_in = ?delay,
            "an instance cannot be fired, taken back or released; it is passed over"
        );
    }
}
