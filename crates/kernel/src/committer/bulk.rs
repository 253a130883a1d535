//! Operations that choose their instances themselves, many at once: one that fails delays the others by a few attempts, and
//! is then passed over for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::InstanceId;
use tokio::time::Instant;

use super::Fault;
use crate::{Answer, Backoff, Error, Op, Result, Store};

/// By how much a batch that failed is made smaller, and by how much one that did not is made larger.
const SHRINK: usize = 8;
const GROW: usize = 2;
/// The most instances that are passed over at once. When there are more, something else is wrong.
const PASSED_MAX: usize = 1_000;
/// How long it is remembered that an instance was passed over: longer than the longest pause.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Such an operation, batch after batch.
#[derive(Debug)]
pub struct Bulk {
    /// How many instances a batch may have, at most and now.
    most: usize,
    limit: usize,
    passed: BTreeMap<InstanceId, Passed>,
}

/// An instance that failed alone.
#[derive(Debug)]
struct Passed {
    backoff: Backoff,
    /// Until when it is passed over.
    until: Instant,
}

impl Bulk {
    /// For batches of at most that many.
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            limit: most,
            passed: BTreeMap::new(),
        }
    }

    /// Runs the next batch, of as many as `op` is told. When it fails by what may be the fault of an instance in it, fewer
    /// are tried, and one that fails alone is passed over, at first for a second and in the end for a minute (rule 1.4).
    ///
    /// Errors: those that are nobody's fault. What was done before is done.
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

    /// Whether anything is passed over.
    pub fn is_incomplete(&self) -> bool {
        let now = Instant::now();
        self.passed.values().any(|passed| passed.until > now)
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
