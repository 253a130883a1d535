//! Small documents that a server keeps beside the instances: graphs that were put there, and tokens.

use serde::{Deserialize, Serialize};

use super::{Json, Name, Timestamp};

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DocumentKind {
    /// A graph, as it was put there.
    Graph = 0,
    /// What is known of a token: its hash and its role.
    Token = 1,
    /// A key that the servers of a database share and nobody else is told.
    Secret = 2,
    /// What a server writes to see whether it can.
    Probe = 3,
}

impl DocumentKind {
    /// The number that stands for it in the databases.
    pub const fn code(self) -> i16 {
        self as i16
    }
}

/// A small document, found by what it is and by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// What it is.
    pub kind: DocumentKind,
    /// Its name, which no other of its kind has.
    pub name: Name,
    /// What it says.
    pub body: Json,
    /// When it was last written.
    pub updated_at: Timestamp,
}
