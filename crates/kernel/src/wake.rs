//! The notifications of a commit: the queues that have work, the instances that ended, the next due time.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_core::model::{CommandId, InstanceId, Name, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::Turnover;

/// The notifications of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Effects {
    /// The queues that have new runnable instances.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ready: BTreeSet<Name>,
    /// The instances that ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<InstanceId>,
    /// The updates that were answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<CommandId>,
    /// `true` if instances ended, or updates were answered, in another process that are not named here.
    #[serde(skip_serializing_if = "is_false")]
    pub ended_elsewhere: bool,
    /// The instances that were cancelled while a worker executed them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<InstanceId>,
    /// The workflows that received a command, or whose child ended, while a worker executed them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub received: Vec<InstanceId>,
    /// The earliest due time of the instances that were parked or scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// `true` if there may be rows in the outbox.
    #[serde(skip_serializing_if = "is_false")]
    pub outbox: bool,
    /// `true` if a build could not run an instance that other builds may run (rule 12.4).
    #[serde(skip_serializing_if = "is_false")]
    pub blocked: bool,
    /// `true` if anything may have changed, because notifications were lost.
    #[serde(skip_serializing_if = "is_false")]
    pub anything: bool,
    /// The starts and ends of this commit. They are counted in this process only.
    #[serde(skip)]
    pub turnover: Turnover,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Effects {
    /// Returns effects which say that anything may have changed.
    pub fn anything() -> Self {
        Self {
            anything: true,
            ..Self::default()
        }
    }

    /// `true` if there is nothing to notify.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.ended.is_empty()
            && self.answered.is_empty()
            && self.cancelled.is_empty()
            && self.received.is_empty()
            && self.due.is_none()
            && !self.ended_elsewhere
            && !self.outbox
            && !self.blocked
            && !self.anything
    }

    /// Adds a due time, and keeps the earliest.
    pub fn due_at(&mut self, moment: Timestamp) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Adds other effects to these.
    pub fn merge(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.ended.extend(other.ended);
        self.answered.extend(other.answered);
        self.cancelled.extend(other.cancelled);
        self.received.extend(other.received);
        self.ended_elsewhere |= other.ended_elsewhere;
        self.outbox |= other.outbox;
        self.blocked |= other.blocked;
        self.anything |= other.anything;
        self.turnover.merge(other.turnover);
        if let Some(due) = other.due {
            self.due_at(due);
        }
    }
}

/// Distributes effects to the listeners in this process. A listener that is too slow is notified that anything may have
/// changed.
#[derive(Clone, Debug)]
pub struct Bus(broadcast::Sender<Arc<Effects>>);

impl Bus {
    const BACKLOG: usize = 1024;

    /// Creates a bus without listeners.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(Self::BACKLOG))
    }

    /// Sends committed effects to all listeners, and counts the starts and ends.
    pub fn tell(&self, mut effects: Effects) {
        std::mem::take(&mut effects.turnover).count();
        if !effects.is_empty() {
            // No listener is not an error: a process that only starts instances has no engine.
            let _ = self.0.send(Arc::new(effects));
        }
    }

    /// Subscribes to effects from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

/// A subscription to a [`Bus`].
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Arc<Effects>>);

impl Listener {
    /// Returns the next effects; `None` if the store is gone.
    pub async fn next(&mut self) -> Option<Arc<Effects>> {
        match self.0.recv().await {
            Ok(effects) => Some(effects),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Arc::new(Effects::anything())),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
