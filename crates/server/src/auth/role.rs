//! What a token allows.

use axum::http::Method;
use serde::{Deserialize, Serialize};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looking at everything.
    Read,
    /// Sending signals, updates and events, and looking at the updates sent.
    Send,
    /// Claiming and committing, and declaring the machines to work on.
    Work,
    /// Everything.
    Operate,
}

impl Role {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Send => "send",
            Self::Work => "work",
            Self::Operate => "operate",
        }
    }

    /// Whether it is enough for a route of that role. Who may read may read what others may read, too.
    pub fn may(self, needed: Self, method: &Method) -> bool {
        let looks = matches!(*method, Method::GET | Method::HEAD);
        self == Self::Operate
            || self == needed
            || (self == Self::Read && looks && needed == Self::Send)
    }
}
