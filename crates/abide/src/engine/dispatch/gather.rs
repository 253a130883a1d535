//! The input of the dispatcher, and the next transaction: what goes into it, and when it is worthwhile.

use abide_core::model::Timestamp;
use abide_kernel::ClaimRequest;
use abide_kernel::committer::{self, Deliveries, Request};
use futures_util::future::FutureExt;
use tokio::time::Instant;

use super::super::settings::Crash;
use super::super::stats::add;
use super::Dispatcher;
use super::alone::land_within;
use super::batch::{Ask, Batch, Entries, Size};
use super::ending::search;
use super::steps::{Finished, leave, leaves};

/// The number of outcomes, of commands or of free slots that always justifies another transaction beside one in
/// progress.
const SECOND: usize = 64;

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
    fn take_what_came(&mut self) {
        self.step_meter.refresh();
        let now = self.shared.clock.now();
        while let Ok(finished) = self.finished.try_recv() {
            self.take(finished, now);
        }
        while let Ok(command) = self.incoming.try_recv() {
            self.take_command(command);
        }
    }

    fn take_command(&mut self, command: Request<Deliveries>) {
        if self.undelivered.is_empty() {
            self.undelivered_since = tokio::time::Instant::now();
        }
        self.undelivered.push(command);
    }

    /// Takes a finished step, to be committed with others or in a transaction of its own.
    fn take(&mut self, mut finished: Finished, now: Timestamp) {
        self.step_meter.record(
            &finished.task.lane.machine,
            &finished.task.step,
            finished.took,
            finished.ran.error.is_some(),
        );
        match finished.ran.within.take() {
            None => self.pending.push(finished.send(&self.shared, now)),
            Some(within) => {
                let landing = land_within(finished, within, self.shared.clone());
                // It has its own connection, and does not occupy a writer.
                self.beside.push(landing.boxed());
            }
        }
    }

    /// Opens as many transactions as are worthwhile.
    pub(super) fn send_what_there_is(&mut self) {
        if self.unsure && self.claims_under_way == 0 && !self.searching {
            (self.unsure, self.searching) = (false, true);
            let known = self.held.keys().copied().collect();
            let searching = search(self.shared.clone(), known);
            let searching = async move { (Size::default(), searching.await) };
            self.under_way.push(searching.boxed());
        }
        while self.under_way.len() < self.shared.store.writers() {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            add(&self.shared.counters.batches, 1);
            if let Some(crash) = &self.shared.settings.crash
                && batch
                    .entries
                    .outcomes()
                    .iter()
                    .any(|one| crash(&one.waiter.task, Crash::BeforeCommit))
            {
                self.shared.kill.cancel();
                return;
            }
            let size = batch.size();
            self.entries_under_way += size.entries;
            self.claims_under_way += size.claims;
            let landing = batch.land(self.shared.clone());
            let landing = async move { (size, landing.await) };
            self.under_way.push(landing.boxed());
        }
    }

    /// The time at which an unavailable database may be tried again.
    pub(super) fn rest(&self) -> Option<Instant> {
        let hungry = || self.queues.iter().any(|queue| queue.demand.is_hungry());
        let claims = self.claims_pause.until().filter(|_| hungry());
        self.pending.wakes_at().into_iter().chain(claims).min()
    }

    /// The next transaction; empty if none is worthwhile. One beside another is worthwhile if as many entries wait as
    /// are under way: with fewer, a batch would only be split.
    fn next_batch(&mut self) -> Batch {
        let (worth, slots) = match self.under_way.is_empty() {
            true => (1, 1),
            false => (self.entries_under_way.clamp(1, SECOND), SECOND),
        };
        let mut batch = Batch::default();
        let may_claim = !self.unsure
            && !self.searching
            && self.claims_pause.until().is_none()
            && self.shared.is_believed();
        if self.claims_apart && may_claim && self.claims_under_way == 0 {
            self.claim(&mut batch, slots);
            if !batch.is_empty() {
                return batch;
            }
        }
        let pending = match self.pending.resting() {
            Some(_) => 0,
            None => self.pending.len(),
        };
        let commands_first = !self.outcomes_next || pending < worth;
        if self.undelivered.len() >= worth && commands_first {
            batch.entries = self.take_commands();
        } else if pending >= worth {
            batch.entries = self.take_outcomes();
        }
        if may_claim && !self.claims_apart {
            self.claim(&mut batch, slots);
        }
        batch
    }

    /// Returns undelivered commands to the task that delivers them when there is no engine, and that knows how long
    /// each caller waits.
    pub(super) fn return_commands(&mut self) {
        for command in self.undelivered.drain() {
            self.shared.commands.fold(command);
        }
    }

    /// Takes commands for a transaction. Those that are known to fail are sent separately.
    fn take_commands(&mut self) -> Entries {
        self.outcomes_next = true;
        let taken = self.undelivered.take(&self.shared.committer);
        for command in taken.alone {
            self.shared.commands.separate(command);
        }
        self.undelivered_since = Instant::now();
        Entries::Commands(taken.together)
    }

    /// Takes outcomes for a transaction. Those that are known to fail are committed alone.
    fn take_outcomes(&mut self) -> Entries {
        self.outcomes_next = false;
        let mut taken = self.pending.take(&self.shared.committer);
        if self.shared.stop.is_cancelled() {
            taken.together.iter_mut().for_each(|one| {
                leave(one);
            });
        }
        for outgoing in taken.alone {
            self.separate(outgoing);
        }
        Entries::Outcomes(taken.together)
    }

    /// Adds claims to a transaction. Without entries, it is worthwhile for that many free slots.
    fn claim(&mut self, batch: &mut Batch, worth: usize) {
        let most = self.shared.settings.batch;
        let lanes = self.shared.lanes();
        if lanes.is_empty() {
            // There is no code to run.
            self.queues
                .iter_mut()
                .for_each(|queue| queue.demand.clear());
        }
        if self.shared.stop.is_cancelled() || lanes.is_empty() {
            return;
        }
        let is_delivering = matches!(&batch.entries, Entries::Commands(one) if !one.is_empty());
        let busy = !batch.entries.is_empty();
        for queue in &mut self.queues {
            // Slots that this transaction frees can be claimed in the same transaction.
            let outcomes = batch.entries.outcomes().iter();
            let leaving = outcomes
                .filter(|one| one.waiter.task.queue == queue.name)
                .filter(|one| one.items.iter().all(|commit| leaves(&commit.outcome)))
                .count();
            let free = (queue.slots + leaving).saturating_sub(queue.taken);
            // Instances that the commands wake are claimed in the same commit.
            let hungry = queue.demand.is_hungry() || is_delivering;
            if hungry && free > 0 && (free >= worth || busy) {
                let limit = free.min(most);
                queue.taken += limit;
                let request = ClaimRequest {
                    worker: self.shared.worker(),
                    queue: queue.name.clone(),
                    lanes: lanes.clone(),
                    limit,
                    lease: None,
                };
                batch.claims.push(Ask {
                    request,
                    begun: queue.demand.begin(),
                });
            }
        }
    }
}
