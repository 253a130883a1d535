//! What comes to the dispatcher: outcomes of steps, and mail to deliver.

use abide_kernel::fold::{self, Mail, Request};
use futures_util::future::FutureExt;

use super::super::batch::{Batch, Finished, land_within};
use super::Dispatcher;
use crate::measured;

impl Dispatcher {
    /// Takes what has run, and waits for more only as long as the runtime has something else to do: so a batch fills
    /// by itself under load, and a single outcome waits for nobody.
    pub(super) async fn gather(&mut self, first: Finished) {
        self.take(first);
        let mut before = 0;
        while self.pending.len() > before && self.pending.len() < self.shared.settings.batch {
            before = self.pending.len();
            tokio::task::yield_now().await;
            self.take_what_came();
        }
    }

    /// Takes what is to be delivered, in the same way.
    pub(super) async fn gather_mail(&mut self, first: Request<Mail>) {
        self.take_letter(first);
        let mut before = 0;
        while self.mail.len() > before && self.mail.len() < self.shared.settings.batch {
            before = self.mail.len();
            tokio::task::yield_now().await;
            self.take_what_came();
        }
    }

    /// Takes all that has come, of both: neither may keep the other waiting.
    pub(super) fn take_what_came(&mut self) {
        while let Ok(finished) = self.finished.try_recv() {
            self.take(finished);
        }
        while let Ok(letter) = self.letters.try_recv() {
            self.take_letter(letter);
        }
    }

    pub(super) fn take_letter(&mut self, letter: Request<Mail>) {
        if self.mail.is_empty() {
            self.mail_since = tokio::time::Instant::now();
        }
        self.mail.push_back(letter);
    }

    /// Takes what has run: to be committed with others, or in a transaction of its own.
    pub(super) fn take(&mut self, finished: Finished) {
        measured::step(
            &finished.task.lane.machine,
            &finished.task.step,
            finished.took,
        );
        if finished.ran.within.is_none() {
            self.pending.push_back(finished);
            return;
        }
        let landing = land_within(finished, self.shared.clone());
        // It has its own connection, and takes no writer's place.
        self.beside.push(landing.boxed());
    }

    /// Hands what is not delivered to the task that would do it without an engine, and that knows how long each caller
    /// waits.
    pub(super) fn hand_mail_back(&mut self) {
        for letter in self.mail.drain(..) {
            // Nobody is left to tell when that is gone.
            let _ = self.shared.mail.fold(letter);
        }
    }

    pub(super) fn take_mail(&mut self, batch: &mut Batch, most: usize) {
        self.outcomes_next = true;
        batch.mail.extend(fold::take(&mut self.mail, most));
        self.mail_since = tokio::time::Instant::now();
    }
}
