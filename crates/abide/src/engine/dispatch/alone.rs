//! Outcomes that share no transaction with others.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Commit, Committed, Outcome};
use abide_kernel::{Answer, Backoff, Op, OwnTransaction};
use futures_util::future::FutureExt;

use super::super::builder::Shared;
use super::super::stats::add;
use super::Dispatcher;
use super::batch::Landed;
use super::steps::{Finished, Outgoing, Sent, give_up, leave};
use crate::measured;

impl Dispatcher {
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

/// Commits an outcome in transactions of its own, until it is answered. A stuck outcome is sent after the delay. If the
/// engine stops before that, it is dropped.
async fn land_alone(outgoing: Outgoing, stuck: Option<Duration>, shared: Arc<Shared>) -> Landed {
    if let Some(delay) = stuck {
        tokio::select! {
            () = shared.stop.cancelled() => return Landed::Dropped(outgoing.waiter),
            () = tokio::time::sleep(delay) => {}
        }
    }
    let kind = shared.outcomes(std::slice::from_ref(&outgoing));
    let (sent, answer) = tokio::select! {
        () = shared.kill.cancelled() => return Landed::Dead,
        answered = shared.committer.alone(&kind, outgoing) => answered,
    };
    match answer.map(|each| each.into_iter().next()) {
        Ok(Some(committed)) => done(committed, sent),
        // The store was closed.
        _ => Landed::Dead,
    }
}

/// Commits an outcome in the transaction in which its step wrote its own rows: both, or neither (rule 17.2). If the
/// commit fails, or its result is unknown, the claim is forgotten, and claims that are held but not known are given
/// back. Then the step runs again, unless it was committed.
pub(super) async fn land_within(
    finished: Finished,
    within: Box<dyn OwnTransaction>,
    shared: Arc<Shared>,
) -> Landed {
    let mut outgoing = finished.send(&shared, shared.clock.now());
    // A workflow continues under its claim, because other steps of it may be running.
    let is_turn = |commit: &Commit| matches!(commit.outcome, Outcome::Workflow(_));
    if !outgoing.items.iter().any(is_turn) {
        give_up(&mut outgoing);
    }
    let (commits, sent) = (outgoing.items, outgoing.waiter);
    let op = Op::Commit {
        commits,
        serves: Vec::new(),
    };
    match within.finish(op).await {
        Ok(Answer::Committed(mut each)) => done(each.pop().unwrap_or(Committed::Stale), sent),
        Ok(_) => done(Committed::Stale, sent),
        Err(error) => {
            tracing::warn!(%error, instance = %sent.task.id, "a step's own transaction was not committed; it runs again");
            Landed::Lost(sent)
        }
    }
}

fn done(committed: Committed, sent: Sent) -> Landed {
    Landed::Done {
        commits: vec![(committed, sent)],
        claims: Vec::new(),
    }
}
