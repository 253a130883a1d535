//! Small documents that a server stores beside the instances: graphs, tokens and keys.

use serde::{Deserialize, Serialize};

use super::{Json, Name, Timestamp};

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DocumentKind {
    /// A stored graph.
    Graph = 0,
    /// A token: its hash and its role.
    Token = 1,
    /// A secret key that only the servers of a database share.
    Secret = 2,
    /// A document that a server writes to check that it can write.
    Probe = 3,
}

impl DocumentKind {
    /// The number that the databases store for it.
    pub const fn code(self) -> i16 {
        self as i16
    }
}

/// A small document, found by its kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its kind.
    pub kind: DocumentKind,
    /// Its name, unique within its kind.
    pub name: Name,
    /// Its content.
    pub body: Json,
    /// When it was last written.
    pub updated_at: Timestamp,
}
