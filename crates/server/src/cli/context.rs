//! The context of every command: the store, opened for reading or for writing, and the output.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use abide::client::{Address, Description};
use abide::model::{Instance, Limits, Target};
use abide::store::OpenError;
use abide::time::Timestamp;
use abide::{Abide, Error};

use super::failure::{Exit, Failure, Result, WHICH_STORE};
use super::out::Out;
use crate::settings;

/// The context of every command.
#[derive(Debug)]
pub struct Context {
    /// The store's connection string.
    pub store: String,
    /// Bearer token for the server.
    pub token: Option<String>,
    /// The size limits.
    pub limits: Limits,
    /// The file of the authorities that a server is trusted by.
    authorities: Option<PathBuf>,
    /// The output.
    pub out: Out,
    /// The open store, to be closed at the end.
    opened: Mutex<Vec<Opened>>,
}

/// A store that is open.
struct Opened(Abide);

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an open store")
    }
}

impl Context {
    /// Makes the context of a process.
    pub fn new(store: String, token: Option<String>, limits: Limits, out: Out) -> Self {
        Self {
            store,
            token,
            limits,
            authorities: None,
            out,
            opened: Mutex::default(),
        }
    }

    /// The same, trusting servers by the authorities in that file.
    pub fn trusting(mut self, authorities: Option<PathBuf>) -> Self {
        self.authorities = authorities;
        self
    }

    /// Closes the store, so that its files are left in order.
    pub async fn close(&self) {
        let opened =
            std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for Opened(abide) in opened {
            abide.close().await;
        }
    }

    fn keep(&self, abide: Abide) -> Abide {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.push(Opened(abide.clone()));
        abide
    }

    /// Opens the store for a command that writes. Creates the file if it does not exist.
    pub async fn write(&self) -> Result<Abide> {
        settings::prepare(&self.store).map_err(|error| {
            let text = format!("cannot create the directory of the store: {error}");
            Failure::new(Exit::Unreachable, "unavailable", text).next("abide config")
        })?;
        Ok(self.keep(self.open().await?))
    }

    /// Opens a store that exists. Creates and migrates nothing.
    pub async fn open_existing(&self) -> Result<Abide> {
        if let Some(file) = self.file().filter(|file| !file.exists()) {
            let text = format!(
                "there is no store at {} yet: `abide serve` makes one, and so does the first `abide start`",
                file.display()
            );
            return Err(Failure::new(Exit::Unreachable, "unavailable", text).next(WHICH_STORE));
        }
        if let Some(file) = self.file() {
            let options = abide::sqlite::Options {
                limits: self.limits.clone(),
                migrate: false,
                ..abide::sqlite::Options::default()
            };
            let opened =
                tokio::task::spawn_blocking(move || abide::sqlite::Sqlite::open(file, options));
            let opened = opened
                .await
                .map_err(|_| Error::Broken("opening the file panicked".into()));
            let store = opened?.map_err(|error| self.not_opened(Error::from(error)))?;
            return Ok(self.keep(Abide::options().limits(self.limits.clone()).on(store)));
        }
        if self.is_postgres() {
            let options = abide::postgres::Options {
                limits: self.limits.clone(),
                migrate: false,
                ..abide::postgres::Options::default()
            };
            let store = abide::postgres::Postgres::connect(&self.store, options)
                .await
                .map_err(|error| self.not_opened(Error::from(error)))?;
            return Ok(self.keep(
                Abide::options()
                    .limits(self.limits.clone())
                    .on(Arc::new(store)),
            ));
        }
        Ok(self.keep(self.open().await?))
    }

    async fn open(&self) -> Result<Abide> {
        let mut options = Abide::options().limits(self.limits.clone());
        if let Some(token) = self.token()? {
            options = options.token(token);
        }
        if let Some(file) = &self.authorities {
            options = options.authorities(file);
        }
        Ok(options.open(&self.store).await?)
    }

    /// The token for a server: that of the command line, else that of the environment. A file that cannot be read is wrong
    /// usage, but only where a token is sent.
    fn token(&self) -> Result<Option<String>> {
        if !self.is_server() {
            return Ok(None);
        }
        let options = abide::remote::Options {
            token: self.token.clone(),
            ..abide::remote::Options::default()
        };
        options.token().map_err(|error| {
            Failure::usage(error.to_string())
                .next("abide token create --role operate      (beside the server's store)")
        })
    }

    fn not_opened(&self, error: Error) -> Failure {
        let unmigrated = matches!(&error, Error::Broken(text) if text.contains("`abide migrate`"));
        let failure = Failure::from(OpenError::from(error));
        match unmigrated {
            true => {
                failure.next("abide migrate --plan      (what would be done; without --plan it is)")
            }
            false => failure,
        }
    }

    /// The SQLite file; `None` if the store is not a file.
    pub fn file(&self) -> Option<PathBuf> {
        let path = self.store.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        (!path.is_empty()).then(|| Path::new(path).to_owned())
    }

    /// `true` if the store is a PostgreSQL database.
    pub fn is_postgres(&self) -> bool {
        self.store.starts_with("postgres://") || self.store.starts_with("postgresql://")
    }

    /// `true` if the store is a server.
    pub fn is_server(&self) -> bool {
        self.store.starts_with("http://") || self.store.starts_with("https://")
    }
}

/// The time, as the store's workers agree on it.
pub fn now(abide: &Abide) -> Timestamp {
    abide.store().clock().now()
}

/// An instance that must be there: of one without a key, the newest run.
pub async fn current(abide: &Abide, target: &str) -> Result<Instance> {
    let there = abide.current(target_of(target)?).await?;
    there.ok_or_else(|| Failure::nothing_at(target))
}

/// Reads an instance. Returns a failure if it does not exist.
pub async fn found(abide: &Abide, target: &str) -> Result<Instance> {
    let there = abide.get(target_of(target)?).await?;
    there.ok_or_else(|| Failure::nothing_at(target))
}

/// Describes an instance. Returns a failure if it does not exist.
pub async fn described(abide: &Abide, target: &str) -> Result<Description> {
    let there = abide.describe(target_of(target)?).await?;
    there.ok_or_else(|| Failure::nothing_at(target))
}

/// Parses an id or a key. Anything else is wrong usage.
pub fn target_of(text: &str) -> Result<Target> {
    text.target().map_err(|refusal| {
        Failure::usage(refusal.to_string()).next("abide list      (ids and keys)")
    })
}
