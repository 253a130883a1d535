//! Where is measured: a PostgreSQL server or a directory for SQLite files, and fresh stores there.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use abide_pgtest::Server;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::Result;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Postgres,
    Sqlite,
}

impl Store {
    pub const ALL: &'static [Self] = &[Self::Postgres, Self::Sqlite];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

/// A source of fresh stores.
pub enum Site {
    Postgres(Databases),
    Sqlite(Files),
}

impl Site {
    /// Makes ready; without a URL, PostgreSQL is started here.
    pub async fn prepare(store: Store, postgres: Option<&str>) -> Result<Self> {
        match store {
            Store::Postgres => Ok(Self::Postgres(Databases::prepare(postgres))),
            Store::Sqlite => Ok(Self::Sqlite(Files::prepare()?)),
        }
    }

    /// The connection string of an empty store.
    pub async fn fresh(&self) -> Result<String> {
        match self {
            Self::Postgres(databases) => databases.fresh().await,
            Self::Sqlite(files) => Ok(format!("sqlite:{}", files.fresh().display())),
        }
    }

    /// The connection string of the database that was made last.
    pub fn last(&self) -> Option<String> {
        match self {
            Self::Postgres(databases) => databases.last(),
            Self::Sqlite(_) => None,
        }
    }

    /// A description of it for readers of the figures.
    pub async fn described(&self) -> Result<String> {
        match self {
            Self::Postgres(databases) => databases.described().await,
            Self::Sqlite(_) => Ok(format!(
                "{}, write-ahead log, synchronous=full",
                rusqlite::version()
            )),
        }
    }

    /// Removes what was made.
    pub async fn leave(self) -> Result<()> {
        match self {
            Self::Postgres(databases) => databases.leave().await,
            Self::Sqlite(files) => Ok(files.directory.close()?),
        }
    }
}

/// The number of rows that the shared buffers of the private server hold is not what is measured.
const SETTINGS: &[(&str, &str)] = &[("shared_buffers", "1GB")];

/// Databases of one server.
pub struct Databases {
    /// The one that is connected to for creating others.
    admin: String,
    /// Held: a server of our own lives as long as this does.
    server: Option<Box<Server>>,
    made: Mutex<Vec<String>>,
}

impl Databases {
    fn prepare(url: Option<&str>) -> Self {
        let (admin, server) = match url {
            Some(url) => (url.to_owned(), None),
            None => {
                let server = Server::private(SETTINGS);
                (server.url("postgres"), Some(Box::new(server)))
            }
        };
        Self {
            admin,
            server,
            made: Mutex::new(Vec::new()),
        }
    }

    async fn fresh(&self) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("abide_bench_{}_{count}", std::process::id());
        let admin = connect(&self.admin).await?;
        admin
            .batch_execute(&format!("create database {name}"))
            .await?;
        let url = with_database(&self.admin, &name);
        if let Ok(mut made) = self.made.lock() {
            made.push(name);
        }
        Ok(url)
    }

    fn last(&self) -> Option<String> {
        let made = self.made.lock().ok()?;
        Some(with_database(&self.admin, made.last()?))
    }

    async fn described(&self) -> Result<String> {
        let admin = connect(&self.admin).await?;
        let mut settings = Vec::new();
        for name in [
            "server_version",
            "fsync",
            "synchronous_commit",
            "shared_buffers",
        ] {
            let row = admin
                .query_one("select current_setting($1)", &[&name])
                .await?;
            settings.push(format!("{name} {}", row.try_get::<_, String>(0)?));
        }
        let whose = if self.server.is_some() {
            "private"
        } else {
            "given"
        };
        Ok(format!("{whose}, {}", settings.join(", ")))
    }

    /// A connection to another database of the server.
    pub async fn admin(&self) -> Result<Client> {
        connect(&self.admin).await
    }

    /// Loads a library into the server, which restarts for it; `false` when it is not there, or the server is not ours.
    pub async fn preload(&self, library: &str) -> Result<bool> {
        let admin = self.admin().await?;
        let loaded = admin.query_one("select current_setting('shared_preload_libraries')", &[]);
        if loaded.await?.try_get::<_, String>(0)?.contains(library) {
            return Ok(true);
        }
        let there = "select from pg_available_extensions where name = $1";
        let there = admin.query_opt(there, &[&library]).await?.is_some();
        let Some(server) = self.server.as_ref().filter(|_| there) else {
            return Ok(false);
        };
        let set = format!("alter system set shared_preload_libraries = '{library}'");
        admin.batch_execute(&set).await?;
        drop(admin);
        server.restart();
        Ok(true)
    }

    async fn leave(self) -> Result<()> {
        if self.server.is_none() {
            let admin = self.admin().await?;
            for name in self.made.into_inner().unwrap_or_default() {
                admin
                    .batch_execute(&format!("drop database {name} with (force)"))
                    .await?;
            }
        }
        Ok(())
    }
}

/// Connects, and has the connection served until its client is dropped.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection broke: {error}");
        }
    });
    Ok(client)
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    let (location, parameters) = match url.split_once('?') {
        Some((location, parameters)) => (location, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let (scheme, rest) = location.split_once("://").unwrap_or(("postgres", location));
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    format!("{scheme}://{host}/{name}{parameters}")
}

/// Files in a directory of their own.
pub struct Files {
    directory: TempDir,
    count: AtomicU32,
}

impl Files {
    fn prepare() -> Result<Self> {
        Ok(Self {
            directory: tempfile::Builder::new().prefix("abide-bench").tempdir()?,
            count: AtomicU32::new(0),
        })
    }

    pub fn fresh(&self) -> PathBuf {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        self.directory.path().join(format!("{count}.db"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_led_to_another_database() {
        for (url, led) in [
            ("postgres://me@host:5432", "postgres://me@host:5432/new"),
            ("postgres://me@host/old", "postgres://me@host/new"),
            (
                "postgresql://host/old?sslmode=disable",
                "postgresql://host/new?sslmode=disable",
            ),
        ] {
            assert_eq!(with_database(url, "new"), led);
        }
    }
}
