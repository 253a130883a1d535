//! Input of the dispatcher, and its routing: outcomes of steps, and commands to deliver.

use std::time::Duration;

use abide_core::model::{Commit, Outcome, Timestamp};
use abide_kernel::Backoff;
use abide_kernel::committer::{self, Deliveries, Request};
use futures_util::future::FutureExt;

use super::super::batch::{Batch, Finished, Outgoing, Sent, land_alone, land_within, leave};
use super::super::stats::add;
use super::Dispatcher;
use crate::measured;

impl Dispatcher {
    /// Gathers a finished step, and everything that arrives together with it.
    pub(super) async fn gather(&mut self, first: Finished) {
        self.take(first, self.shared.clock.now());
        committer::gather(self.shared.settings.batch, || {
            self.take_what_came();
            self.pending.len()
        })
        .await;
    }

    /// Gathers a command to deliver, in the same way.
    pub(super) async fn gather_commands(&mut self, first: Request<Deliveries>) {
        self.take_command(first);
        committer::gather(self.shared.settings.batch, || {
            self.take_what_came();
            self.undelivered.len()
        })
        .await;
    }

    /// Takes all finished steps and all commands that have arrived: neither kind may delay the other.
    pub(super) fn take_what_came(&mut self) {
        self.step_meter.refresh();
        let now = self.shared.clock.now();
        while let Ok(finished) = self.finished.try_recv() {
            self.take(finished, now);
        }
        while let Ok(command) = self.incoming.try_recv() {
            self.take_command(command);
        }
    }

    pub(super) fn take_command(&mut self, command: Request<Deliveries>) {
        if self.undelivered.is_empty() {
            self.undelivered_since = tokio::time::Instant::now();
        }
        self.undelivered.push(command);
    }

    /// Takes a finished step, to be committed with others or in a transaction of its own.
    pub(super) fn take(&mut self, finished: Finished, now: Timestamp) {
        self.step_meter.record(
            &finished.task.lane.machine,
            &finished.task.step,
            finished.took,
            finished.ran.error.is_some(),
        );
        if finished.ran.within.is_none() {
            self.pending.push(finished.send(&self.shared, now));
            return;
        }
        let landing = land_within(finished, self.shared.clone());
        // It has its own connection, and does not occupy a writer.
        self.beside.push(landing.boxed());
    }

    /// Returns undelivered commands to the task that delivers them when there is no engine, and that knows how long
    /// each caller waits.
    pub(super) fn return_commands(&mut self) {
        for command in self.undelivered.drain() {
            self.shared.commands.fold(command);
        }
    }

    /// Takes commands for a transaction. Those that are known to fail are sent separately.
    pub(super) fn take_commands(&mut self, batch: &mut Batch) {
        self.outcomes_next = true;
        let taken = self.undelivered.take(&self.shared.committer);
        batch.commands = taken.together;
        for command in taken.alone {
            self.shared.commands.separate(command);
        }
        self.undelivered_since = tokio::time::Instant::now();
    }

    /// Takes outcomes for a transaction. Those that are known to fail are committed alone.
    pub(super) fn take_outcomes(&mut self, batch: &mut Batch) {
        self.outcomes_next = false;
        let taken = self.pending.take(&self.shared.committer);
        batch.outcomes = taken.together;
        if self.shared.stop.is_cancelled() {
            batch.outcomes.iter_mut().for_each(|one| {
                leave(one);
            });
        }
        for outgoing in taken.alone {
            self.separate(outgoing);
        }
    }

    /// Commits an outcome alone. It needs no slot in its queue meanwhile, because its step has run.
    pub(super) fn separate(&mut self, mut outgoing: Outgoing) {
        if leave(&mut outgoing) {
            self.leave_slot(&mut outgoing.waiter);
        }
        self.go_alone(outgoing, None);
    }

    /// Commits an outcome alone that may already be committed. It is sent unchanged, so that it gets the same answer.
    pub(super) fn repeat(&mut self, outgoing: Outgoing) {
        self.go_alone(outgoing, None);
    }

    /// Sends a stop that the database refused again later. It keeps everything it holds except its slot in the queue.
    /// A stop breaks no rule, so it can succeed only after the problem in the database is solved.
    pub(super) fn insist(&mut self, mut sent: Sent, reason: String, why: &str) {
        let first = sent.stuck.is_none();
        let mut backoff = sent.stuck.take().unwrap_or_else(Backoff::stuck);
        let delay = backoff.failed().unwrap_or_default();
        if first {
            add(&self.shared.counters.stuck, 1);
            measured::stuck();
        }
        tracing::error!(
            instance = %sent.task.id, step = %sent.task.step, why, again_in = ?delay,
            "not even the failure of an instance can be stored; it stays as it is until the database has it"
        );
        sent.stuck = Some(backoff);
        self.leave_slot(&mut sent);
        let commit = Commit {
            claim: sent.claim.again(),
            outcome: Outcome::Stop { reason },
            keep: false,
            took: Duration::ZERO,
            error: sent.error.clone(),
        };
        let outgoing = Outgoing {
            items: vec![commit],
            waiter: sent,
        };
        self.go_alone(outgoing, Some(delay));
    }

    fn go_alone(&mut self, outgoing: Outgoing, stuck: Option<Duration>) {
        // It has its own transactions, and does not occupy a writer while it waits.
        let landing = land_alone(outgoing, stuck, self.shared.clone());
        self.beside.push(landing.boxed());
    }
}
