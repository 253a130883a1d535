//! What a commit has to tell those who wait: which queues have work, who has ended, what is due next.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_core::model::{CommandId, InstanceId, Name, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// What a commit has to tell those who wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Effects {
    /// The queues in which something became runnable.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ready: BTreeSet<Name>,
    /// The instances that have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<InstanceId>,
    /// The updates that have been answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answered: Vec<CommandId>,
    /// Whether some have ended, or been answered, that are not named here, in another process.
    #[serde(skip_serializing_if = "is_false")]
    pub ended_elsewhere: bool,
    /// The instances that were cancelled while a worker ran them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<InstanceId>,
    /// The workflows to which a message came, or whose child ended, while a worker ran them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mailed: Vec<InstanceId>,
    /// The earliest moment at which something that was parked or scheduled is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// Whether anything at all may have changed, because word of it was lost.
    #[serde(skip_serializing_if = "is_false")]
    pub anything: bool,
}

fn is_false(told: &bool) -> bool {
    !told
}

impl Effects {
    /// That anything may have changed.
    pub fn anything() -> Self {
        Self {
            anything: true,
            ..Self::default()
        }
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.ended.is_empty()
            && self.answered.is_empty()
            && self.cancelled.is_empty()
            && self.mailed.is_empty()
            && self.due.is_none()
            && !self.ended_elsewhere
            && !self.anything
    }

    /// Notes that something is due at that moment.
    pub fn due_at(&mut self, moment: Timestamp) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Takes what others have to tell as well.
    pub fn merge(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.ended.extend(other.ended);
        self.answered.extend(other.answered);
        self.cancelled.extend(other.cancelled);
        self.mailed.extend(other.mailed);
        self.ended_elsewhere |= other.ended_elsewhere;
        self.anything |= other.anything;
        if let Some(due) = other.due {
            self.due_at(due);
        }
    }
}

/// Carries effects to whoever listens in this process. Who is too slow is told that anything may have changed.
#[derive(Clone, Debug)]
pub struct Bus(broadcast::Sender<Arc<Effects>>);

impl Bus {
    const BACKLOG: usize = 1024;

    /// A bus nobody listens to yet.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(Self::BACKLOG))
    }

    /// Tells everybody who listens.
    pub fn tell(&self, effects: Effects) {
        if !effects.is_empty() {
            // Nobody listening is no error: a process that only starts instances has no engine.
            let _ = self.0.send(Arc::new(effects));
        }
    }

    /// Listens from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

/// One who listens to a [`Bus`].
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Arc<Effects>>);

impl Listener {
    /// The next effects; `None` when the store is gone.
    pub async fn next(&mut self) -> Option<Arc<Effects>> {
        match self.0.recv().await {
            Ok(effects) => Some(effects),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(Arc::new(Effects::anything())),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
