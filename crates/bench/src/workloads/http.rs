//! HTTP: 20,000 parked instances, signalled over 64 connections to one server, against 64 callers of the library.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::w3b::{PARKED, accepted, park};
use crate::args::Plan;
use crate::cost::Meter;
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;
use crate::{Result, args};

const CONNECTIONS: usize = 64;

/// Signals accepted a second.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    if !cfg!(feature = "http") {
        return Ok(Measured::Skipped(NO_SERVER.to_owned()));
    }
    let parked = plan.of(PARKED);
    let meter = Meter::new(site);
    let library = async || accepted(&meter, plan, CONNECTIONS).await;
    let server = async || {
        let url = site.fresh().await?;
        let (abide, engine) = park(&url, parked).await?;
        engine.shutdown().await;
        abide.close().await;
        let server = Server::start(&url).await?;
        let took = signal_each(&server.address, parked).await?;
        server.stop().await?;
        Ok(parked as f64 / took.as_secs_f64())
    };
    let round = middle(plan, library, server).await?;
    Ok(round.figure("signals/s").into())
}

/// Signals each of them once, on each connection one after the other.
async fn signal_each(address: &str, parked: usize) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        connections.push(BufReader::new(TcpStream::connect(address).await?));
    }
    let begun = Instant::now();
    let mut tasks = Vec::with_capacity(CONNECTIONS);
    for mut connection in connections {
        let next = next.clone();
        tasks.push(tokio::spawn(async move {
            loop {
                let order = next.fetch_add(1, Ordering::Relaxed);
                if order >= parked {
                    return Ok::<(), crate::BoxError>(());
                }
                post(&mut connection, order).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(begun.elapsed())
}

/// One request and its answer, by hand: what is measured is the server and not a client.
async fn post(connection: &mut BufReader<TcpStream>, order: usize) -> Result<()> {
    const BODY: &str = r#"{"payload":1}"#;
    let request = format!(
        "POST /v1/instances/order%3A{order}/signals/go HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    connection.write_all(request.as_bytes()).await?;
    let (mut accepted, mut length, mut line) = (false, 0, String::new());
    loop {
        line.clear();
        if connection.read_line(&mut line).await? == 0 {
            return Err("the server closed the connection".into());
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if text.starts_with("HTTP/1.1 ") {
            accepted = text.starts_with("HTTP/1.1 202");
        } else if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    match accepted {
        true => Ok(()),
        false => Err(format!("refused: {}", String::from_utf8_lossy(&body)).into()),
    }
}

/// A server in a process of its own.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    async fn start(url: &str) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([args::SERVE, url])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let out = process.stdout.take().ok_or("the process has no output")?;
        let mut lines = BufReader::new(out).lines();
        let ready = lines.next_line().await?.ok_or("the server ended")?;
        let address = ready
            .split_once("http://")
            .and_then(|(_, rest)| rest.split([',', ' ']).next())
            .ok_or("the server does not say where it listens")?
            .to_owned();
        Ok(Self { process, address })
    }

    async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

const NO_SERVER: &str = "this build has no server: build abide-bench with its default features";

/// Stands in for the server in a build that leaves it out.
#[cfg(not(feature = "http"))]
pub async fn serve(_url: &str) -> Result<()> {
    Err(NO_SERVER.into())
}

/// The process of the server.
#[cfg(feature = "http")]
pub async fn serve(url: &str) -> Result<()> {
    let mut settings = abide_server::settings::Settings::default();
    settings.store = Some(url.to_owned());
    "127.0.0.1:0".clone_into(&mut settings.listen);
    let traces = abide_server::serve::observe(&settings)?;
    Ok(abide_server::serve::run(settings, traces).await?)
}
