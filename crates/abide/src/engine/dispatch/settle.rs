//! What follows from the results of transactions.

use std::sync::Arc;

use abide_core::model::{Claimed, Committed};
use abide_kernel::committer::{Failed, Fault};

use super::super::Follow;
use super::super::settings::Crash;
use super::super::stats::add;
use super::Dispatcher;
use super::batch::{Ask, Entries, Failure, Landed, Size};
use super::steps::{Sent, Start};

impl Dispatcher {
    /// Processes the result of a transaction of this size.
    pub(super) fn settle_batch(&mut self, size: Size, landed: Landed) {
        self.entries_under_way -= size.entries;
        self.claims_under_way -= size.claims;
        self.settle(landed);
    }

    /// Processes what has happened in the database.
    pub(super) fn settle(&mut self, landed: Landed) {
        match landed {
            Landed::Done { commits, claims } => {
                if let Some(crash) = &self.shared.settings.crash
                    && commits
                        .iter()
                        .any(|(_, sent)| crash(&sent.task, Crash::AfterCommit))
                {
                    return self.shared.kill.cancel();
                }
                if !commits.is_empty() {
                    self.pending.landed();
                }
                for (committed, sent) in commits {
                    self.settle_one(committed, sent);
                }
                self.settle_claims(claims);
            }
            Landed::Failed(failure) => self.settle_failed(failure),
            Landed::Lost(sent) => {
                self.search_again();
                self.settle_one(Committed::Stale, sent);
            }
            Landed::Dropped(sent) => self.let_go(&sent),
            Landed::Searched => self.searching = false,
            Landed::Checked(ended) => {
                self.checking = false;
                for id in &ended {
                    if let Some(held) = self.held.get(id) {
                        held.cancelled.cancel();
                    }
                }
            }
            Landed::GivenBack(next) => {
                if let Some(next) = next {
                    self.begin(next, &mut Start::at(self.shared.clock.now()));
                }
            }
            Landed::Dead => return,
        }
        self.ask_handlers();
    }

    /// Processes the claims of a transaction.
    fn settle_claims(&mut self, claims: Vec<(Ask, Vec<Claimed>)>) {
        if !claims.is_empty() {
            self.claims_pause.reset();
            self.claims_apart = false;
        }
        for (ask, claimed) in claims {
            add(&self.shared.counters.claimed, claimed.len());
            if let Some(queue) = self
                .queues
                .iter_mut()
                .find(|queue| queue.name == ask.request.queue)
            {
                queue.taken -= ask.request.limit - claimed.len();
                let all = claimed.len() == ask.request.limit;
                queue.demand.end(ask.begun, all);
            }
            if self.shared.stop.is_cancelled() {
                self.give_back(claimed);
                continue;
            }
            let mut start = Start::at(self.shared.clock.now());
            for one in self.keep_one_suspect(claimed) {
                self.hold(&one);
                self.begin(one, &mut start);
            }
        }
    }

    /// Processes a failed transaction: its entries are kept or separated, and nothing was claimed.
    fn settle_failed(&mut self, failure: Failure) {
        if failure.may_have_claimed() {
            self.search_again();
        }
        let Failure {
            entries,
            claims,
            error,
        } = failure;
        for ask in &claims {
            let queues = self.queues.iter_mut();
            for queue in queues.filter(|queue| queue.name == ask.request.queue) {
                queue.taken -= ask.request.limit;
                queue.demand.fail();
            }
        }
        if !claims.is_empty() {
            tracing::warn!(%error, "nothing could be claimed; trying again");
            self.claims_pause.failed();
            self.claims_apart |= error.fault() == Fault::Entry;
        }
        let outcomes = match entries {
            Entries::Outcomes(outcomes) => outcomes,
            Entries::Commands(commands) => return self.shared.commands.failed(commands, &error),
        };
        if outcomes.is_empty() {
            return;
        }
        let unknown = error.fault() == Fault::Unknown;
        match self.pending.failed(outcomes, error) {
            Failed::Kept => {}
            Failed::Alone(outcomes) if unknown => {
                outcomes.into_iter().for_each(|one| self.repeat(one));
            }
            Failed::Alone(outcomes) => {
                let separated = outcomes.len() - usize::from(outcomes.len() == 1);
                add(&self.shared.counters.separated, separated);
                outcomes.into_iter().for_each(|one| self.separate(one));
            }
            // The store was closed, and everything that is held is lost with it.
            Failed::Over(..) => {}
        }
    }

    fn settle_one(&mut self, committed: Committed, mut sent: Sent) {
        let landed = !matches!(committed, Committed::Stale | Committed::Refused(_));
        sent.task.runner.settled(&sent.task, landed);
        let counters = &self.shared.counters;
        match committed {
            Committed::Kept(claim, inbox) => {
                add(&counters.committed, 1);
                let follows = sent.follows.take().map(|follows| match follows {
                    Follow::Turn { .. } => Follow::Turn { inbox },
                    follows => follows,
                });
                if let Some(held) = self.held.get_mut(&sent.task.id) {
                    // When the instance moves on, its deaths are forgotten.
                    held.is_suspect &= matches!(follows, Some(Follow::Same { .. }));
                }
                match follows {
                    Some(next) => self.start(claim, Arc::new(sent.task.followed_by(next))),
                    // A claim is kept only if something follows.
                    None => self.let_go(&sent),
                }
            }
            Committed::Moved(_) | Committed::Repeated(_) => {
                add(&counters.committed, 1);
                self.let_go(&sent);
            }
            Committed::Stale => {
                add(&counters.stale, 1);
                tracing::warn!(instance = %sent.task.id, step = %sent.task.step, "the claim was lost; the outcome is dropped");
                self.let_go(&sent);
            }
            Committed::Refused(refusal) => {
                add(&counters.refused, 1);
                if let Some(reason) = sent.stopped.clone() {
                    return self.insist(sent, reason, &refusal.to_string());
                }
                let mut queues = self.queues.iter_mut();
                if let Some(queue) = queues.find(|queue| queue.name == sent.task.queue) {
                    // Its error handler runs, and needs a slot.
                    queue.taken += usize::from(!sent.has_slot);
                    sent.has_slot = true;
                    queue.refused.push_back((refusal, sent));
                }
            }
        }
    }
}
