//! The server's settings: from flags, the environment, a file, or the defaults, in this order of precedence.

mod keys;
mod layers;
mod paths;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide::Abide;
use abide::engine::Retention;
use abide::model::{Limits, Name};
use abide::postgres::Timeouts;
use abide::store::OpenOptions;
use abide_kernel::rules::leases;

use crate::hooks::Hook;
use crate::nats::Nats;
use crate::serve::TestClock;
use crate::telemetry::Protocol;

pub use keys::{KEYS, SettingKey};
pub use layers::{Flags, Given, Source};
pub use paths::{default_store, hidden, prepare};

/// The server's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's connection string. `None` if none was given and the user has no home directory for the default.
    pub store: Option<String>,
    /// The address to listen on: a host and a port.
    pub listen: String,
    /// The files of TLS.
    pub tls: TlsFiles,
    /// How long a start waits for a store that is unavailable.
    pub store_wait: Duration,
    /// The server's name among the workers; by default its host and address.
    pub name: Option<Name>,
    /// Maximum size of a request body, in bytes.
    pub body_bytes: usize,
    /// Time limit for a request, and for its body to arrive. Long polls have a limit of their own.
    pub request_timeout: Duration,
    /// Time limit for the head of a request to arrive.
    pub header_timeout: Duration,
    /// Maximum number of open connections.
    pub connections: usize,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of a response.
    pub write_timeout: Duration,
    /// Maximum number of concurrent requests of one kind and role.
    pub in_flight: usize,
    /// Maximum number of long polls, and of streams, of one role.
    pub long_polls: usize,
    /// Maximum number of bytes of request bodies that are held at once.
    pub receiving_bytes: usize,
    /// How long the server still answers after it was asked to stop, while it reports that it is not ready.
    pub drain: Duration,
    /// How long a shutdown waits for running requests and steps.
    pub grace: Duration,
    /// How long finished instances are kept.
    pub retention: Retention,
    /// Default lease of a remote worker's claim after each heartbeat.
    pub lease: Duration,
    /// Time limits for hanging transactions in PostgreSQL.
    pub timeouts: Timeouts,
    /// Size limits.
    pub limits: Limits,
    /// A token with the role `operate` that is valid from the start.
    pub bootstrap_token: Option<String>,
    /// The log format. If absent: text on a terminal, JSON otherwise.
    pub log_format: Option<LogFormat>,
    /// The log level, or directives such as `info,abide=debug`.
    pub log_level: String,
    /// The OTLP endpoint for traces.
    pub otel_endpoint: Option<String>,
    /// The protocol for traces.
    pub otel_protocol: Option<Protocol>,
    /// The sources of webhooks.
    pub hooks: Vec<Hook>,
    /// The source of events over NATS.
    pub nats: Nats,
    /// Variables that begin with `ABIDE_` and are not settings. The server logs a warning about them.
    pub ignored_variables: Vec<String>,
    /// A clock that callers may advance, for tests. Only a flag of `abide serve` sets it.
    pub test_clock: Option<Arc<TestClock>>,
    sources: BTreeMap<&'static str, Source>,
}

/// The files of TLS, in PEM.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The server's certificate, with its chain.
    pub cert: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
    /// The authorities to trust if the store is a server.
    pub ca: Option<PathBuf>,
}

impl TlsFiles {
    /// The certificate and its key, if TLS is to be used.
    pub fn pair(&self) -> Option<(&Path, &Path)> {
        Some((self.cert.as_deref()?, self.key.as_deref()?))
    }
}

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text lines for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// A wrong setting: its name, where it was set, and what was expected.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub String);

abide_kernel::debug_is_display!(SettingError);

impl Default for Settings {
    /// The default settings.
    fn default() -> Self {
        Self {
            store: default_store(),
            listen: "127.0.0.1:7070".to_owned(),
            tls: TlsFiles::default(),
            store_wait: Duration::from_secs(60),
            name: None,
            body_bytes: 16 << 20,
            request_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            connections: 10_000,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(60),
            in_flight: 1_024,
            long_polls: 8_192,
            receiving_bytes: 256 << 20,
            drain: Duration::ZERO,
            grace: Duration::from_secs(20),
            retention: Retention::default(),
            lease: leases::REMOTE,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            bootstrap_token: None,
            log_format: None,
            log_level: "info".to_owned(),
            otel_endpoint: None,
            otel_protocol: None,
            hooks: Vec::new(),
            nats: Nats::default(),
            ignored_variables: Vec::new(),
            test_clock: None,
            sources: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Reads all settings: from the flags, the environment, and the file that the flags or the environment name, or
    /// else the one in the user's directory. An unknown key is an error, and so is a variable that is nearly a setting.
    pub fn load(flags: &Flags) -> Result<Self, SettingError> {
        Self::from(flags, std::env::vars_os())
    }

    fn from(
        flags: &Flags,
        environment: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<Self, SettingError> {
        let (found, ignored_variables) = layers::gather(flags, environment)?;
        let mut settings = Self {
            ignored_variables,
            ..Self::default()
        };
        // Values with higher precedence come last, and overwrite.
        for (key, given, source) in found {
            (key.set)(&mut settings, &given).map_err(|expected| {
                SettingError(format!(
                    "{} = {} ({source}): {expected}",
                    key.name,
                    given.shown(key)
                ))
            })?;
            settings.sources.insert(key.name, source);
        }
        settings.check()?;
        Ok(settings)
    }

    /// The source of a value.
    pub fn source(&self, key: &SettingKey) -> Source {
        self.sources
            .get(key.name)
            .cloned()
            .unwrap_or(Source::Default)
    }

    /// The store's connection string. Returns an error if none was given and there is no default.
    pub fn store(&self) -> Result<&str, SettingError> {
        self.store.as_deref().ok_or_else(|| {
            SettingError(
                "no store is named, and there is no default: neither XDG_DATA_HOME nor HOME is set to an absolute path; \
                 set --store or ABIDE_STORE"
                    .to_owned(),
            )
        })
    }

    /// The options for opening the store.
    pub fn open_options(&self) -> OpenOptions {
        let postgres = abide::postgres::Options {
            timeouts: self.timeouts,
            ..abide::postgres::Options::default()
        };
        let options = Abide::options()
            .limits(self.limits.clone())
            .postgres(postgres);
        match &self.tls.ca {
            Some(file) => options.authorities(file),
            None => options,
        }
    }

    /// Checks what involves more than one key.
    fn check(&self) -> Result<(), SettingError> {
        if self.body_bytes < self.limits.payload_bytes.max(self.limits.state_bytes) {
            return Err(SettingError(format!(
                "body_bytes = {} is below limits.payload_bytes = {} or limits.state_bytes = {}: what they allow could not be sent; raise it",
                self.body_bytes, self.limits.payload_bytes, self.limits.state_bytes
            )));
        }
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return Err(SettingError(
                "tls.cert and tls.key belong together: give both".to_owned(),
            ));
        }
        self.nats.check().map_err(SettingError)?;
        let mut sources: Vec<&str> = self.hooks.iter().map(|hook| hook.source.as_str()).collect();
        sources.sort_unstable();
        match sources.windows(2).find(|two| two.first() == two.last()) {
            Some(two) => Err(SettingError(format!(
                "the source {:?} has two [[hooks]]: give one of them another name",
                two.first().copied().unwrap_or_default()
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
