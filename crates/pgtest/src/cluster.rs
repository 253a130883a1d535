//! One PostgreSQL cluster of ours: its settings, its port, its state.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::supervisor::{Supervisor, is_root, unprivileged_user};

/// Durable as in production, because durability is what the tests are about; sized for a small machine.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("shared_buffers", "256MB"),
    ("max_connections", "300"),
    ("min_wal_size", "256MB"),
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "15min"),
];

/// Below the ports the kernel gives to outgoing connections: while the server is stopped no client can be given its
/// port, nor connect to itself there, which a client that retries on loopback otherwise does once in a while.
const PORTS: Range<u16> = 16_384..32_768;

/// Number of other ports that are tried, when somebody takes the one that was free a moment ago.
const PORTS_MAX: u32 = 8;

/// A cluster and the process that owns it; stopped and removed when dropped.
#[derive(Debug)]
pub struct Cluster {
    supervisor: Mutex<Supervisor>,
    port: u16,
}

impl Cluster {
    pub fn start_new(settings: &[(&str, &str)]) -> Cluster {
        Self::start_with(settings, &[])
    }

    /// Starts one whose data directory has these files, too.
    pub fn start_with(settings: &[(&str, &str)], files: &[(&str, &[u8])]) -> Cluster {
        let supervisor = Supervisor::spawn(None);
        for (name, content) in files {
            write_own(&supervisor.directory().join("data").join(name), content);
        }
        configure(supervisor.directory(), SETTINGS);
        configure(supervisor.directory(), settings);
        Self::start_at_some_port(supervisor)
    }

    /// Starts a standby of the server at that URL.
    pub fn start_standby(primary: &str) -> Cluster {
        Self::start_at_some_port(Supervisor::spawn(Some(primary)))
    }

    fn start_at_some_port(mut supervisor: Supervisor) -> Cluster {
        let mut tried = 0;
        let port = loop {
            let port = free_port();
            configure(supervisor.directory(), &[("port", &port.to_string())]);
            tried += 1;
            match supervisor.run("start") {
                Ok(()) => break port,
                Err(error) => assert!(
                    tried < PORTS_MAX && error.contains("could not bind"),
                    "PostgreSQL is there but did not start: {error}"
                ),
            }
        };
        Cluster {
            supervisor: Mutex::new(supervisor),
            port,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From the file the server itself keeps while it runs.
    pub fn pid(&self) -> Option<u32> {
        let file = self.supervisor().directory().join("data/postmaster.pid");
        std::fs::read_to_string(file)
            .ok()?
            .lines()
            .next()?
            .parse()
            .ok()
    }

    /// The directory that is removed with the cluster.
    pub fn directory(&self) -> PathBuf {
        self.supervisor().directory().to_path_buf()
    }

    pub fn start(&self) {
        self.run("start");
    }

    pub fn stop(&self) {
        self.run("stop");
    }

    pub fn crash(&self) {
        self.run("crash");
    }

    pub fn kill(&self) {
        self.run("kill");
    }

    pub fn promote(&self) {
        self.run("promote");
    }

    /// The base backup has written down where to receive from; of what is written twice, the last counts.
    pub fn cut_off(&self) {
        let file = self
            .supervisor()
            .directory()
            .join("data/postgresql.auto.conf");
        append(&file, "primary_conninfo = ''\n");
        self.run("reload");
    }

    fn run(&self, command: &str) {
        let answer = self.supervisor().run(command);
        answer.unwrap_or_else(|error| panic!("cannot {command} PostgreSQL: {error}"));
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        // A test that panicked while it held the lock leaves nothing half done: the supervisor answers or is gone.
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends settings: of one that is written twice, the last counts.
fn configure(directory: &Path, settings: &[(&str, &str)]) {
    let file = directory.join("data/postgresql.conf");
    let lines: String = settings
        .iter()
        .map(|(name, value)| format!("{name} = '{}'\n", value.replace('\'', "''")))
        .collect();
    append(&file, &lines);
}

fn append(file: &Path, lines: &str) {
    OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut conf| conf.write_all(lines.as_bytes()))
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

/// Writes a file that only the server may read: it takes a key in no other.
fn write_own(path: &Path, content: &[u8]) {
    use std::os::unix::fs::{PermissionsExt, chown};
    let written = std::fs::write(path, content).and_then(|()| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        match is_root() {
            true => {
                let (uid, gid) = unprivileged_user();
                chown(path, Some(uid), Some(gid))
            }
            false => Ok(()),
        }
    });
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// A port that is free just now; the search begins at a random one, so that processes that start together do not meet.
pub fn free_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let offset = (random % PORTS.len() as u64) as u16;
    (PORTS.start + offset..PORTS.end)
        .chain(PORTS)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| {
            panic!("no free port in {PORTS:?}: end some of the servers that listen there")
        })
}
