//! How the dispatcher ends, and what it gives back.

use std::sync::Arc;

use abide_core::model::Claimed;
use abide_kernel::Op;
use futures_util::StreamExt;
use futures_util::future::FutureExt;
use tokio::time::Instant;

use super::super::batch::Landed;
use super::super::lease;
use super::Dispatcher;

impl Dispatcher {
    /// Gives back at once what was claimed while the engine was told to stop (rule 6.7). What cannot be given back now is
    /// when the worker signs off.
    pub(super) fn give_back(&mut self, claimed: Vec<Claimed>) {
        if claimed.is_empty() {
            return;
        }
        let claims = claimed.into_iter().map(|one| one.claim).collect();
        let store = self.shared.store.clone();
        let given = async move {
            if let Err(error) = store.run(Arc::from([Op::GiveBack(claims)])).await {
                tracing::warn!(%error, "claims are given back when the worker signs off");
            }
            Landed::default()
        };
        self.under_way.push(given.boxed());
    }

    /// Commits what still finishes within the grace time, drops the rest, and gives it back (rule 6.7).
    pub(super) async fn finish_up(mut self) {
        self.letters.close();
        while let Ok(letter) = self.letters.try_recv() {
            self.mail.push(letter);
        }
        self.hand_mail_back();
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
            if !self.shared.kill.is_cancelled() {
                self.send_what_there_is();
            }
            let rest = self.rest();
            tokio::select! {
                Some(landed) = self.under_way.next(), if !self.under_way.is_empty() => self.settle(landed),
                Some(landed) = self.beside.next(), if !self.beside.is_empty() => self.settle(landed),
                () = tokio::time::sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {}
                // What runs may be cancelled still.
                Some(effects) = self.news.next() => self.hear(&effects),
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
            // A dead worker's timers and heartbeats die with it, and it signs nothing off.
            self.shared.stop.cancel();
            return;
        }
        if let Err(error) = lease::sign_off(&self.shared, self.shared.worker()).await {
            tracing::warn!(%error, "the worker could not sign off; what it held is freed with its lease");
        }
    }
}
