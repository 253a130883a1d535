//! How to reach a server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abide_kernel::Clock;

/// The environment variable that a token is taken from.
pub const TOKEN: &str = "ABIDE_TOKEN";

/// How to reach a server.
#[derive(Clone)]
pub struct Options {
    /// The token that the server asks for; without one, what the environment variable `ABIDE_TOKEN` says.
    pub token: Option<String>,
    /// How long an answer is waited for; 30 s unless given. The outcome of a write that is not answered by then is unknown.
    pub timeout: Duration,
    /// How long a write is tried again whose outcome is unknown; 10 s unless given, zero to be told at once. Each try has the
    /// same id, so that it is carried out once (rule 1.5).
    pub patience: Duration,
    /// How long a connection may take to come about; 5 s unless given.
    pub connect_timeout: Duration,
    /// A file of certificates (PEM) of the authorities to trust; without one, those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// Where to take the time from; without one the server's clock is followed, as its workers must agree on the time.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            authorities: None,
            clock: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("timeout", &self.timeout)
            .field("patience", &self.patience)
            .field("connect_timeout", &self.connect_timeout)
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}
