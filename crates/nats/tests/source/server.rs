//! A private nats-server with JetStream, on the loopback, that can be killed and started again with what it had stored.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::{self, Context, stream};
use tempfile::TempDir;

use super::wait::PATIENCE;

/// Where it may listen: below what systems take for outgoing connections, so that the port is free after a restart too.
const PORTS: Range<u16> = 16_384..32_768;

/// A running server; killed when dropped, and when this process ends.
pub struct Server {
    directory: TempDir,
    port: u16,
    process: Option<Child>,
    options: fn() -> ConnectOptions,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with("", ConnectOptions::new).await
    }

    /// Starts one with these lines of configuration, which its own clients connect to in that way.
    pub async fn start_with(config: &str, options: fn() -> ConnectOptions) -> Self {
        let mut server = Self {
            directory: tempfile::tempdir().unwrap(),
            port: free_port(),
            process: None,
            options,
        };
        std::fs::write(server.directory.path().join("config"), config).unwrap();
        server.start_again().await;
        server
    }

    pub fn url(&self) -> String {
        format!("nats://localhost:{}", self.port)
    }

    /// Ends it like a crash (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    /// Starts it, with all that it had stored, at the same address.
    pub async fn start_again(&mut self) {
        self.kill();
        // The shell holds the read end of our pipe: when that closes, however we end, it kills the server.
        let script = "exec 3<&0; \"$@\" </dev/null & server=$!; cat <&3 >/dev/null; kill -KILL \"$server\"; wait";
        let log = self.directory.path().join("log");
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "watch"])
            .arg(program())
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js"])
            .arg("-sd")
            .arg(self.directory.path())
            .arg("-l")
            .arg(&log)
            .arg("-c")
            .arg(self.directory.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        self.process = Some(command.spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while let Err(error) = self.ping().await {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(
                Instant::now() < until,
                "nats-server did not start: {error}: {text}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks that it answers.
    async fn ping(&self) -> Result<(), async_nats::Error> {
        let client = (self.options)().connect(self.url()).await?;
        let nothing = jetstream::new(client).get_stream("NOTHING").await;
        match nothing.map_err(|error| (error.kind(), error)) {
            Ok(_) | Err((GetStreamErrorKind::JetStream(_), _)) => Ok(()),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// A client of its own, to send and to read with.
    pub async fn jetstream(&self) -> Context {
        jetstream::new((self.options)().connect(self.url()).await.unwrap())
    }

    /// A stream `ORDERS` of the subjects `orders.>`.
    pub async fn with_orders(&self) -> Context {
        self.with_stream("ORDERS", "orders.>").await
    }

    /// A stream of that name and subject.
    pub async fn with_stream(&self, name: &str, subject: &str) -> Context {
        let context = self.jetstream().await;
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
        context
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let random = RandomState::new().build_hasher().finish();
    let offset = (random % PORTS.len() as u64) as u16;
    let mut ports = (PORTS.start + offset..PORTS.end).chain(PORTS);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("a free port")
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    folders
        .map(|folder| folder.join("nats-server"))
        .find(|program| program.is_file())
        .expect(
            "nats-server is not installed: run `make setup`, or install the package `nats-server`",
        )
}
