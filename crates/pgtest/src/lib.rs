//! A private PostgreSQL for tests and benches: started on first use, gone when the process is.
//!
//! ```
//! let url = abide_pgtest::server().fresh_database();
//! assert_eq!(abide_pgtest::psql(&url, "select 40 + 2"), "42");
//! ```
//!
//! The cluster lives in the system's temporary directory and listens on a loopback port of its own. A `sh` process owns
//! it and holds the read end of a pipe from this one: however this process ends, even by `kill -9`, the pipe closes,
//! the server is stopped and its directory removed.
//!
//! Everything here panics when it fails: a test that needs PostgreSQL fails without it, it is never skipped.

#![allow(
    clippy::panic,
    reason = "this crate serves tests: what cannot be set up must fail them"
)]

mod address;
mod binaries;
mod bouncer;
mod cluster;
mod pool;
mod psql;
mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use address::Address;
pub use bouncer::Bouncer;
use cluster::Cluster;
pub use pool::POOL_VARIABLE;
pub use psql::psql;

/// Names a server to use in place of a private one: a `postgres://` URL of a role that may create databases.
pub const URL_VARIABLE: &str = "ABIDE_TEST_POSTGRES";

/// A running PostgreSQL server.
#[derive(Debug)]
pub struct Server {
    address: Address,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// Somebody else started it.
    Elsewhere,
    /// Every test of this process uses it.
    Process {
        #[expect(dead_code, reason = "held: the server lives as long as this does")]
        cluster: Cluster,
    },
    /// One test has it for itself.
    Test(Cluster),
}

/// The server that all tests of this process share.
///
/// The first call starts it, which takes about a second; if `ABIDE_TEST_POSTGRES` is set, the server it names is used
/// instead, and the databases made there stay behind. It cannot be stopped: take [`Server::private`] for that.
///
/// # Panics
///
/// When PostgreSQL is not installed, or does not start.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(URL_VARIABLE) {
        Ok(url) => Server {
            address: Address::parse(&url)
                .unwrap_or_else(|mistake| panic!("{URL_VARIABLE} is not usable: {mistake}")),
            owner: Owner::Elsewhere,
        },
        Err(_) => {
            let cluster = Cluster::start_new(&[]);
            Server {
                address: Address::local(cluster.port()),
                owner: Owner::Process { cluster },
            }
        }
    })
}

impl Server {
    /// A server of one's own, for a test that stops it or a bench that sets it up; stopped and removed when dropped.
    ///
    /// The settings are those of `postgresql.conf` and win over this crate's own. It is always a new local server,
    /// whatever `ABIDE_TEST_POSTGRES` says.
    ///
    /// ```
    /// use abide_pgtest::{Server, psql};
    ///
    /// let server = Server::private(&[("work_mem", "5MB")]);
    /// assert_eq!(psql(&server.url("postgres"), "show work_mem"), "5MB");
    /// ```
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed, or does not start with these settings.
    pub fn private(settings: &[(&str, &str)]) -> Server {
        let cluster = Cluster::start_new(settings);
        Server {
            address: Address::local(cluster.port()),
            owner: Owner::Test(cluster),
        }
    }

    /// The same, with files of your own in its data directory: a certificate and its key, or another `pg_hba.conf`. Only the
    /// server may read them.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed, or does not start with these.
    pub fn private_with(settings: &[(&str, &str)], files: &[(&str, &[u8])]) -> Server {
        let cluster = Cluster::start_with(settings, files);
        Server {
            address: Address::local(cluster.port()),
            owner: Owner::Test(cluster),
        }
    }

    /// A standby of this server, made by a base backup, that receives what this one commits; it is asynchronous until this
    /// server's `synchronous_standby_names` says otherwise. Stopped and removed when dropped.
    ///
    /// # Panics
    ///
    /// When it cannot be made, or does not start.
    pub fn standby(&self) -> Server {
        let cluster = Cluster::start_standby(&self.address.admin_url());
        Server {
            address: Address::local(cluster.port()),
            owner: Owner::Test(cluster),
        }
    }

    /// Has a standby receive nothing any more: what its primary commits from now on, it lacks.
    ///
    /// # Panics
    ///
    /// When it is not running, or is not a [private](Server::private) server.
    pub fn cut_off(&self) {
        self.cluster().cut_off();
    }

    /// Makes a standby a primary. Returns when it takes writes.
    ///
    /// # Panics
    ///
    /// When it is not a running standby.
    pub fn promote(&self) {
        self.cluster().promote();
    }

    /// Ends the server at once (SIGKILL), as a machine that loses its power does.
    ///
    /// # Panics
    ///
    /// When it is stopped already, or is not a [private](Server::private) server.
    pub fn kill(&self) {
        self.cluster().kill();
    }

    /// The URL of a database of this server, or of another when that is the one that takes writes.
    pub fn url_with(&self, other: &Server, database: &str) -> String {
        self.address.url_with(&other.address, database)
    }

    /// The URL of a database of this server, which need not exist. It stays the same over a restart.
    pub fn url(&self, database: &str) -> String {
        self.address.url(database)
    }

    /// Creates an empty database under a name that no other has, and returns its URL.
    ///
    /// # Panics
    ///
    /// When the server is not running, or the role may not create databases.
    pub fn fresh_database(&self) -> String {
        let name = fresh_name();
        psql(
            &self.address.admin_url(),
            &format!("create database {name}"),
        );
        self.url(&name)
    }

    /// Returns the URL of a database with abide's schema and no rows, which no other process uses until this one ends.
    ///
    /// If `abide-pgtest` runs the tests, the database comes from a pool: it is emptied here, and `schema`, the script that
    /// makes the tables, runs only if the database is new or an earlier test has changed more than rows. Otherwise, it is a
    /// [fresh database](Server::fresh_database), and the schema is left to the caller.
    ///
    /// # Panics
    ///
    /// When the server is not running, or the schema cannot be made.
    pub fn emptied_database(&self, schema: &str) -> String {
        match (&self.owner, std::env::var_os(POOL_VARIABLE)) {
            (Owner::Elsewhere, Some(pool)) => {
                let admin_url = self.address.admin_url();
                let name = pool::take(Path::new(&pool), &admin_url, |name| self.url(name), schema);
                self.url(&name)
            }
            _ => self.fresh_database(),
        }
    }

    /// Makes the directory of a pool of databases, which is removed with the server; see
    /// [`emptied_database`](Server::emptied_database).
    ///
    /// # Panics
    ///
    /// When it is there already, or this is not a [private](Server::private) server.
    pub fn make_pool(&self) -> PathBuf {
        let pool = pool::make_directory(&self.cluster().directory());
        pool.unwrap_or_else(|error| panic!("cannot make a pool of databases: {error}"))
    }

    /// The process id of the server, for a test that freezes it with SIGSTOP; `None` while it is stopped.
    ///
    /// # Panics
    ///
    /// When this is not a [private](Server::private) server.
    pub fn pid(&self) -> Option<u32> {
        self.cluster().pid()
    }

    /// Shuts the server down in order (SIGINT): open transactions are rolled back, connections closed. Returns when it
    /// has ended; connections are refused until [`start`](Server::start).
    ///
    /// # Panics
    ///
    /// When it is stopped already, or is not a [private](Server::private) server.
    pub fn stop(&self) {
        self.cluster().stop();
    }

    /// Ends the server like a crash (SIGQUIT): no checkpoint is written, so the next start replays the log. What was
    /// committed is kept.
    ///
    /// # Panics
    ///
    /// When it is stopped already, or is not a [private](Server::private) server.
    pub fn crash(&self) {
        self.cluster().crash();
    }

    /// Starts a stopped server again, at the same address. Returns when it accepts connections.
    ///
    /// # Panics
    ///
    /// When it is running, does not start, or is not a [private](Server::private) server.
    pub fn start(&self) {
        self.cluster().start();
    }

    /// [Stops](Server::stop) and [starts](Server::start) the server.
    ///
    /// # Panics
    ///
    /// As those do.
    pub fn restart(&self) {
        self.stop();
        self.start();
    }

    fn cluster(&self) -> &Cluster {
        match &self.owner {
            Owner::Test(cluster) => cluster,
            Owner::Process { .. } | Owner::Elsewhere => {
                panic!("other tests use this server: take `Server::private` to control one")
            }
        }
    }
}

/// Unique among the processes that share a server: the time parts runs on different machines, the count parts threads.
fn fresh_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("abide_{nanos:x}_{}_{count}", std::process::id())
}
