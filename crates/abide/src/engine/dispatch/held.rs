//! The instances that this worker holds.

use std::sync::Arc;

use abide_core::model::{Claimed, InstanceId, Lane, Name};
use abide_core::rules::deaths::{self, MAX_DEATHS, give_up_suspects};
use futures_util::future::FutureExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Dispatcher;
use super::batch::Landed;
use super::steps::{Sent, Start};

/// State of an instance that this worker holds.
#[derive(Default)]
pub(super) struct Held {
    /// The number of claims of the instance held here. After a claim is lost, the instance may be claimed again before
    /// the step of the lost claim has ended.
    times: usize,
    /// Cancelled when the instance is cancelled.
    pub cancelled: CancellationToken,
    /// Notified when a command arrives for the instance.
    pub command_arrived: Arc<Notify>,
    /// `true` if the answer to a later claim of it may have been lost. That claim is searched for when this one is
    /// over.
    doubted: bool,
    /// `true` if it is at a step that is suspected of killing its workers (rule 5.6).
    pub is_suspect: bool,
}

impl Dispatcher {
    /// Notes that this worker holds an instance.
    pub(super) fn hold(&mut self, claimed: &Claimed) -> &mut Held {
        let held = self.held.entry(claimed.claim.id()).or_default();
        held.times += 1;
        held
    }

    /// Releases the claim of an outcome.
    pub(super) fn let_go(&mut self, sent: &Sent) {
        if let Some(held) = self.held.get_mut(&sent.task.id) {
            held.times -= 1;
            if held.times == 0 {
                self.unsure |= held.doubted;
                self.held.remove(&sent.task.id);
            }
        }
        if sent.has_slot {
            self.free_slot(&sent.task.queue);
        }
    }

    /// Gives up the slot in the queue of a step that no longer runs.
    pub(super) fn leave_slot(&mut self, sent: &mut Sent) {
        if std::mem::take(&mut sent.has_slot) {
            self.free_slot(&sent.task.queue);
        }
    }

    pub(super) fn free_slot(&mut self, name: &Name) {
        let queues = self.queues.iter_mut();
        for queue in queues.filter(|queue| queue.name == *name) {
            queue.taken = queue.taken.saturating_sub(1);
        }
    }

    /// Requests a search for claims whose answer was lost. One of them may be of an instance that is held now, because
    /// an outcome that is being committed can return its instance to the queue, where it can be claimed again. That
    /// claim is found when the older one is released.
    pub(super) fn doubt(&mut self) {
        self.unsure = true;
        self.held.values_mut().for_each(|held| held.doubted = true);
    }

    /// Requests the search now and once more with the next poll, because a lost transaction may commit later.
    pub(super) fn search_again(&mut self) {
        self.was_unsure = true;
        self.doubt();
    }

    /// Checks if instances that run here were cancelled elsewhere without a notification.
    pub(super) fn check_for_ended(&mut self) {
        if self.held.is_empty() || self.checking {
            return;
        }
        self.checking = true;
        let ids: Vec<InstanceId> = self.held.keys().copied().collect();
        let store = self.shared.store.clone();
        let check = async move {
            // After an error, the next poll checks again.
            let ended = store.endings(&ids).await.unwrap_or_default().0;
            Landed::Checked(ended.into_iter().map(|ending| ending.id).collect())
        };
        self.beside.push(check.boxed());
    }

    /// Keeps at most one step that is suspected of killing its workers, and none while one is held here: if that one is
    /// guilty, the others would die with it. The others are given back before the first one runs, and wait again
    /// (rule 5.6). Returns the claims that can run at once.
    pub(super) fn keep_one_suspect(&mut self, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
        if !claimed.iter().any(|one| self.is_suspect(one)) {
            return claimed;
        }
        let holds_one = self.held.values().any(|held| held.is_suspect);
        let surplus = give_up_suspects(&mut claimed, holds_one, |one| self.is_suspect(one));
        let first = claimed.iter().position(|one| self.is_suspect(one));
        let first = first.map(|at| claimed.remove(at));
        for one in &surplus {
            self.free_slot(&one.queue);
        }
        if let Some(first) = &first {
            self.hold(first).is_suspect = true;
        }
        if surplus.is_empty() {
            let mut start = Start::at(self.shared.clock.now());
            first
                .into_iter()
                .for_each(|one| self.begin(one, &mut start));
        } else {
            self.clear_away(surplus, first);
        }
        claimed
    }

    fn is_suspect(&self, claimed: &Claimed) -> bool {
        // Most instances have no deaths, and need no further check.
        deaths::is_suspected(claimed.deaths, MAX_DEATHS) && {
            let own = claimed.policy.as_ref().and_then(|own| own.max_deaths);
            let lane = Lane {
                machine: claimed.machine.clone(),
                version: claimed.version,
            };
            let declared = || self.shared.runner(&lane)?.declared().ok()?.0.max_deaths;
            let most = own.or_else(declared).unwrap_or(MAX_DEATHS);
            deaths::is_suspected(claimed.deaths, most)
        }
    }
}
