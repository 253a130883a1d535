//! The roles of tokens.

use axum::http::Method;
use serde::{Deserialize, Serialize};

/// The role of a token.
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

    /// `true` if this role may use a route that needs `needed`. The role `read` may also read what a route for `send`
    /// returns.
    pub fn may(self, needed: Self, method: &Method) -> bool {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        self == Self::Operate
            || self == needed
            || (self == Self::Read && is_read && needed == Self::Send)
    }
}
