//! A pgbouncer in transaction mode before a database, for tests of what must work through one.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::cluster::free_port;
use crate::supervisor::{is_root, unprivileged_user};

/// Longest time that it may take to start.
const START: Duration = Duration::from_secs(10);

/// A running pgbouncer in transaction mode: a connection of a client is given a server's only from BEGIN to COMMIT, and
/// nothing that a session would remember survives. Ended when dropped, and when this process ends.
#[derive(Debug)]
pub struct Bouncer {
    process: Child,
    url: String,
}

impl Bouncer {
    /// Starts one before the database that the URL names.
    ///
    /// # Panics
    ///
    /// When pgbouncer is not installed (`make setup`), or does not start.
    pub fn before(url: &str) -> Bouncer {
        let address =
            Address::parse(url).unwrap_or_else(|mistake| panic!("{url} is not usable: {mistake}"));
        let database = address.database();
        let port = free_port();
        let settings = format!(
            "[databases]\n{database} = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\n",
            server = address.for_pgbouncer(database),
        );
        // The shell holds the read end of our pipe: when that closes, however we end, it ends pgbouncer.
        let script = "settings=$(mktemp) && printf '%s' \"$1\" >\"$settings\" && exec 3<&0 && \
             { \"$2\" -q \"$settings\" </dev/null & } && bouncer=$! && cat <&3 >/dev/null; \
             kill -TERM \"$bouncer\"; wait; rm -f \"$settings\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "bouncer", &settings])
            .arg(program())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        if is_root() {
            let (uid, gid) = unprivileged_user();
            command.uid(uid).gid(gid);
        }
        let process = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run `sh` to watch over pgbouncer: {error}"));
        let bouncer = Bouncer {
            process,
            url: Address::local(port).url(database),
        };
        bouncer.wait(SocketAddr::from(([127, 0, 0, 1], port)));
        bouncer
    }

    /// The URL that leads through it.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn wait(&self, address: SocketAddr) {
        let until = Instant::now() + START;
        while TcpStream::connect(address)
            .and_then(|mut to| to.flush())
            .is_err()
        {
            assert!(
                Instant::now() < until,
                "pgbouncer did not start within {START:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends by itself now; that it could not be waited for would not help anybody.
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    folders
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.is_file())
        .unwrap_or_else(|| {
            panic!(
                "pgbouncer is not installed: run `make setup`, or install the package `pgbouncer`"
            )
        })
}
