//! Where is measured: a PostgreSQL server or a directory for SQLite files, and fresh stores there.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
            Store::Postgres => Ok(Self::Postgres(Databases::prepare(postgres).await?)),
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

/// The number of rows that the shared buffers of the private server hold is not what is measured. The extension that counts
/// statements does so only where a database asks for it: counting takes time.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "1GB"),
    ("compute_query_id", "off"),
    ("pg_stat_statements.track", "none"),
];

/// Extension that counts statements.
pub const COUNTER: &str = "pg_stat_statements";

/// Databases of one server.
pub struct Databases {
    /// The one that is connected to for creating others.
    admin: String,
    /// Held: a server of our own lives as long as this does.
    server: Option<Box<Server>>,
    made: Mutex<Vec<String>>,
    /// `true` if the server can count statements.
    counts: bool,
}

impl Databases {
    async fn prepare(url: Option<&str>) -> Result<Self> {
        let (admin, server) = match url {
            Some(url) => (url.to_owned(), None),
            None => {
                let server = Server::private(SETTINGS);
                (server.url("postgres"), Some(Box::new(server)))
            }
        };
        let mut databases = Self {
            admin,
            server,
            made: Mutex::new(Vec::new()),
            counts: false,
        };
        databases.counts = databases.preload().await?;
        Ok(databases)
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

    /// Loads the counter of statements into the server, which restarts for it; `false` when it is not there, or the server
    /// is not ours and has not loaded it.
    async fn preload(&self) -> Result<bool> {
        let admin = self.admin().await?;
        let loaded = admin.query_one("select current_setting('shared_preload_libraries')", &[]);
        if !loaded.await?.try_get::<_, String>(0)?.contains(COUNTER) {
            let there = "select from pg_available_extensions where name = $1";
            let there = admin.query_opt(there, &[&COUNTER]).await?.is_some();
            let Some(server) = self.server.as_ref().filter(|_| there) else {
                return Ok(false);
            };
            let set = format!("alter system set shared_preload_libraries = '{COUNTER}'");
            admin.batch_execute(&set).await?;
            drop(admin);
            server.restart();
        }
        let create = format!("create extension if not exists {COUNTER}");
        Ok(self.admin().await?.batch_execute(&create).await.is_ok())
    }

    /// Has the statements of a database counted, on connections that are opened from now on.
    pub async fn count_statements(&self, url: &str) -> Result<()> {
        let name = database_of(url)?;
        let set = format!(
            "alter database {name} set {COUNTER}.track = 'top'; alter database {name} set compute_query_id = on"
        );
        if self.counts && self.admin().await?.batch_execute(&set).await.is_err() {
            eprintln!(
                "this role may not set {COUNTER}.track: statements are counted as the server is set"
            );
        }
        Ok(())
    }

    /// Number of statements that a database has run so far, BEGIN, COMMIT and the like among them, as far as they were
    /// counted; `None` if the server cannot count.
    pub async fn statements(&self, url: &str) -> Result<Option<f64>> {
        const COUNT: &str = "select coalesce(sum(s.calls), 0)::float8 from pg_stat_statements s \
            join pg_database d on d.oid = s.dbid where d.datname = $1";
        if !self.counts {
            return Ok(None);
        }
        let admin = self.admin().await?;
        let count = admin.query_one(COUNT, &[&database_of(url)?]).await?;
        Ok(Some(count.try_get(0)?))
    }

    /// Number of deadlocks in a database so far.
    pub async fn deadlocks(&self, url: &str) -> Result<f64> {
        const COUNT: &str = "select deadlocks::float8 from pg_stat_database where datname = $1";
        let admin = self.admin().await?;
        Ok(admin
            .query_one(COUNT, &[&database_of(url)?])
            .await?
            .try_get(0)?)
    }

    /// Waits until no other connection to a database is open: what they did is then in its statistics.
    pub async fn left_alone(&self, url: &str) -> Result<()> {
        const OPEN: &str = "select count(*) from pg_stat_activity \
            where datname = $1 and backend_type = 'client backend'";
        const PATIENCE: Duration = Duration::from_secs(10);
        let (admin, begun) = (self.admin().await?, Instant::now());
        loop {
            let open = admin.query_one(OPEN, &[&database_of(url)?]).await?;
            match open.try_get::<_, i64>(0)? {
                0 => return Ok(()),
                open if begun.elapsed() > PATIENCE => {
                    return Err(format!("{open} connections to {url} are still open").into());
                }
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// The first process of the private server.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref()?.pid()
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

/// The database that a URL names.
fn database_of(url: &str) -> Result<String> {
    let config: tokio_postgres::Config = url.parse()?;
    Ok(config.get_dbname().unwrap_or_default().to_owned())
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
