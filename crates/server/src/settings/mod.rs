//! What the server is told: by flags, by the environment, by a file, else by its defaults, in that order.

mod keys;
mod layers;
mod place;

use std::collections::BTreeMap;
use std::time::Duration;

use abide::postgres::Timeouts;
use abide::{Abide, Limits, Name, OpenOptions, Retention};

use crate::hooks::Hook;
use crate::nats::Nats;

pub use keys::{KEYS, Key};
pub use layers::{Flags, Given, Source};
pub use place::{default_store, hidden, prepare};

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's connection string.
    pub store: String,
    /// Where to listen: an address and a port.
    pub listen: String,
    /// What it is called among the workers; its host and address unless given.
    pub name: Option<Name>,
    /// The largest body of a request, in bytes.
    pub body_bytes: usize,
    /// How long a request may take, and its body to arrive; long polls have their own time.
    pub request_timeout: Duration,
    /// How long the head of a request may take to arrive.
    pub header_timeout: Duration,
    /// The most connections at once.
    pub connections: usize,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub write_timeout: Duration,
    /// The most requests of one kind that are worked on at once.
    pub in_flight: usize,
    /// The most long polls, and the most streams, of one role at once.
    pub long_polls: usize,
    /// The most bytes of bodies that are taken in at once.
    pub receiving_bytes: usize,
    /// How long a shutdown waits for requests and steps that run.
    pub grace: Duration,
    /// How long finished instances are kept.
    pub retention: Retention,
    /// How long a remote worker's claim is believed after its last heartbeat, unless it says otherwise.
    pub lease: Duration,
    /// How long something that hangs in PostgreSQL may hold others up.
    pub timeouts: Timeouts,
    /// How large things may get.
    pub limits: Limits,
    /// How the log is written; by itself: text on a terminal, JSON else.
    pub log_format: Option<LogFormat>,
    /// What is logged: a level, or directives such as `info,abide=debug`.
    pub log_level: String,
    /// Where traces go over OTLP.
    pub otel_endpoint: Option<String>,
    /// Where webhooks come from.
    pub hooks: Vec<Hook>,
    /// Where events come from over NATS.
    pub nats: Nats,
    sources: BTreeMap<&'static str, Source>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line, for programs.
    Json,
}

/// A setting that is wrong: what, where, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(pub String);

impl Default for Settings {
    /// The settings with nothing given.
    fn default() -> Self {
        Self {
            store: default_store(),
            listen: "127.0.0.1:7070".to_owned(),
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
            grace: Duration::from_secs(20),
            retention: Retention::default(),
            lease: Duration::from_secs(30),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            log_format: None,
            log_level: "info".to_owned(),
            otel_endpoint: None,
            hooks: Vec::new(),
            nats: Nats::default(),
            sources: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Reads all of them: those flags, the environment, and the file that the flags, the environment or the user's
    /// directory name. A key that is unknown is an error.
    pub fn load(flags: &Flags) -> Result<Self, SettingError> {
        Self::from(flags, std::env::vars_os())
    }

    fn from(
        flags: &Flags,
        environment: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        // The strongest come last and overwrite.
        for (key, given, source) in layers::gather(flags, environment)? {
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

    /// Where a value came from.
    pub fn source(&self, key: &Key) -> Source {
        self.sources
            .get(key.name)
            .cloned()
            .unwrap_or(Source::Default)
    }

    /// How the store is opened.
    pub fn open_options(&self) -> OpenOptions {
        let postgres = abide::postgres::Options {
            timeouts: self.timeouts,
            ..abide::postgres::Options::default()
        };
        Abide::options()
            .limits(self.limits.clone())
            .postgres(postgres)
    }

    /// What no key alone can tell.
    fn check(&self) -> Result<(), SettingError> {
        if self.body_bytes < self.limits.payload_bytes.max(self.limits.state_bytes) {
            return Err(SettingError(format!(
                "body_bytes = {} is below limits.payload_bytes = {} or limits.state_bytes = {}: what they allow could not be sent; raise it",
                self.body_bytes, self.limits.payload_bytes, self.limits.state_bytes
            )));
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
