//! Worker processes: the lanes that they have code for, and their leases.

use serde::{Deserialize, Serialize};

use super::{Lane, Name, Timestamp, WorkerId};

/// A worker process, as stored in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Its number: a new one each time it registers, so that a claim of an older process is never taken for its own.
    pub id: WorkerId,
    /// Its name, unique among live workers.
    pub name: Name,
    /// When its lease expires.
    pub lease_until: Timestamp,
    /// When it was registered.
    pub started_at: Timestamp,
    /// The queues it serves.
    pub queues: Vec<Name>,
    /// The lanes that it has code for.
    pub lanes: Vec<Lane>,
    /// The build of that code, as the worker reports it; see [`build`](Self::build).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Name>,
}

impl Worker {
    /// Returns its build. A worker that reports none is a build of its own.
    pub fn build(&self) -> &Name {
        self.build.as_ref().unwrap_or(&self.name)
    }
}

/// The answer to a worker's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heartbeat {
    /// Its lease is renewed.
    Renewed,
    /// Its lease had expired and its claims were given away, or another process has taken its name.
    Lost,
}
