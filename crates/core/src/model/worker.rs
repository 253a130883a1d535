//! A worker process: who runs steps, what it has code for, and until when it is believed to live.

use serde::{Deserialize, Serialize};

use super::{Lane, Name, Timestamp, WorkerId};

/// A worker process as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number: a new one each time it registers, so that what an older process held is never taken for its own.
    pub id: WorkerId,
    /// Its name, unique among the living.
    pub name: Name,
    /// Until when it is believed to live.
    pub lease_until: Timestamp,
    /// When it was registered.
    pub started_at: Timestamp,
    /// The queues it serves.
    pub queues: Vec<Name>,
    /// What it has code for.
    pub lanes: Vec<Lane>,
}

/// What a worker learns when it says that it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heartbeat {
    /// Its lease is renewed.
    Renewed,
    /// Its lease had run out and its claims were given away, or another process has taken its name.
    Lost,
}
