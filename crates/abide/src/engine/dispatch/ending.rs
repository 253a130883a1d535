//! The end of the dispatcher, and the claims that it gives back.

use std::sync::Arc;

use abide_core::model::{AT_ONCE, Claimed, InstanceId};
use abide_kernel::committer::{Bulk, Fault};
use abide_kernel::{Answer, Backoff, Error, Op};
use futures_util::StreamExt;
use futures_util::future::FutureExt;
use tokio::time::Instant;

use super::super::builder::Shared;
use super::super::lease;
use super::Dispatcher;
use super::batch::Landed;

impl Dispatcher {
    /// Gives back at once what was claimed while the engine was stopping (rule 6.7). What cannot be given back now is
    /// given back when the worker signs off.
    pub(super) fn give_back(&mut self, claimed: Vec<Claimed>) {
        if !claimed.is_empty() {
            self.clear_away(claimed, None);
        }
    }

    /// Gives back claims that must not run here now. `next` runs only after that. An engine that is stopping tries
    /// once: what it still holds is given back when the worker signs off.
    pub(super) fn clear_away(&mut self, claimed: Vec<Claimed>, next: Option<Claimed>) {
        let claims = claimed.into_iter().map(|one| one.claim).collect();
        let ops: Arc<[Op]> = Arc::from([Op::GiveBack(claims)]);
        let shared = self.shared.clone();
        let given = async move {
            let mut backoff = Backoff::away();
            while let Err(error) = shared.store.run(ops.clone()).await {
                tracing::warn!(%error, "claims could not be given back");
                let is_over = shared.stop.is_cancelled() || shared.kill.is_cancelled();
                if is_over || matches!(error, Error::Closed) {
                    break;
                }
                backoff.pause().await;
            }
            Landed::GivenBack(next)
        };
        // It may be repeated for long, and does not occupy a writer meanwhile.
        self.beside.push(given.boxed());
    }

    /// Commits the steps that finish within the grace time, drops the others, and gives their claims back (rule 6.7).
    pub(super) async fn finish_up(mut self) {
        self.incoming.close();
        while let Ok(command) = self.incoming.try_recv() {
            self.undelivered.push(command);
        }
        self.return_commands();
        let died = self.shared.kill.is_cancelled();
        let grace = tokio::time::sleep(self.shared.settings.grace);
        tokio::pin!(grace);
        while !self.held.is_empty() || !self.under_way.is_empty() || !self.beside.is_empty() {
            if self.shared.kill.is_cancelled()
                && self.under_way.is_empty()
                && self.beside.is_empty()
            {
                break;
            }
            let rest = self.rest();
            if !self.shared.kill.is_cancelled() {
                self.send_what_there_is();
            }
            tokio::select! {
                Some((size, landed)) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.settle_batch(size, landed);
                }
                Some(landed) = self.beside.next(), if !self.beside.is_empty() => self.settle(landed),
                () = tokio::time::sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {}
                // Running steps may still be cancelled.
                Some(effects) = self.notifications.next() => self.hear(&effects),
                Some(finished) = self.finished.recv(), if !self.shared.kill.is_cancelled() => {
                    self.gather(finished).await;
                }
                () = &mut grace, if !self.shared.kill.is_cancelled() => {
                    tracing::warn!(steps = self.held.len(), "the grace time is over: the steps that run are given back");
                    self.shared.kill.cancel();
                }
            }
        }
        self.shared.kill.cancel();
        self.steps.close();
        self.steps.wait().await;
        self.shared.over.cancel();
        if died {
            // The timers and heartbeats of a dead worker end with it, and it does not sign off.
            self.shared.stop.cancel();
            return;
        }
        if let Err(error) = lease::sign_off(&self.shared, self.shared.worker()).await {
            tracing::warn!(%error, "the worker could not sign off; its claims are free when its lease expires");
        }
    }
}

/// Gives back claims that this worker holds but does not know of, because their answers were lost.
pub(super) async fn search(shared: Arc<Shared>, known: Vec<InstanceId>) -> Landed {
    let (mut bulk, mut backoff) = (Bulk::new(AT_ONCE), Backoff::away());
    let give_back = |limit| Op::GiveBackExcept {
        worker: shared.worker(),
        known: known.clone(),
        limit,
    };
    loop {
        let ran = tokio::select! {
            () = shared.kill.cancelled() => Err(Error::Closed),
            ran = bulk.run(&shared.store, give_back) => ran,
        };
        match ran {
            Ok(Answer::Touched { more: true, .. }) => {}
            Ok(_) | Err(Error::Closed) => return Landed::Searched,
            Err(error) if error.fault() == Fault::Entry => {
                tracing::error!(%error, "lost claims could not be looked for; they are free when this worker ends");
                return Landed::Searched;
            }
            Err(error) => {
                tracing::warn!(%error, "lost claims cannot be looked for; trying again");
                backoff.pause().await;
            }
        }
    }
}
