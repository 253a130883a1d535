//! `abide demo`: a server, workers that one can kill, and traffic, in one command.

mod file;
mod keys;
mod output;
mod picture;

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use abide::Abide;
use abide::engine::Retention;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Global;
use super::failure::{Exit, Failure, Result, shell_quoted};
use super::out::Out;
use super::serve::failed;
use super::text::counted;
use crate::demo::{self, Crew, Scene, Summary, TICK, Traffic};
use crate::serve::{Ready, ServeError, StopSignals};
use crate::settings::Settings;
use crate::telemetry::Traces;
use file::DemoFile;
use keys::Typed;
use output::Voice;

/// Show abide at work: a server, workers that you kill, and nothing is lost
///
/// Serves a fresh SQLite file on loopback, starts worker processes that run sample machines, and makes a little traffic:
/// orders that wait for their payment, approvals, albums with children, parcels as a graph. Kill a worker, with kill -9 or by
/// typing its number: others go on with what it ran. Nothing is left of it afterwards, unless --keep names a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  abide demo
  abide demo --listen 127.0.0.1:0 --workers 3
  abide demo --keep demo.db
  abide demo --json | jq -r .steps_per_second")]
pub struct Args {
    /// The address and port to listen on; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: String,
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
    /// The SQLite file to use and to keep; a later demo with the same file continues
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A worker process, which the demo starts with its own binary.
#[derive(Debug)]
pub struct Worker {
    /// Its server.
    store: String,
    number: u32,
}

impl Worker {
    /// Returns the worker if the process was started as one: `demo-worker URL NUMBER`.
    pub fn called() -> Option<Self> {
        let mut args = std::env::args().skip(1);
        let is_one = args.next()? == demo::WORKER;
        let (store, number) = (args.next()?, args.next()?.parse().ok()?);
        is_one.then_some(Self { store, number })
    }

    /// Runs steps until its parent is gone.
    pub async fn run(self) -> Result {
        demo::worker::run(&self.store, self.number).await?;
        Ok(Exit::Done)
    }
}

/// How long finished instances are kept.
const KEPT: Duration = Duration::from_secs(300);
/// How long a shutdown waits for running work.
const GRACE: Duration = Duration::from_secs(2);
/// How many ticks there are between two pictures.
const PICTURE: u64 = 4;
/// How long the worker processes may take to start.
const START: Duration = Duration::from_secs(10);

/// Runs the demo until it is asked to stop.
pub async fn run(args: Args, global: &Global) -> Result {
    if global.store.is_some() {
        let text =
            "the demo has a store of its own, and takes no --store; --keep FILE keeps its file";
        return Err(Failure::usage(text).next("abide demo --keep demo.db"));
    }
    guarded(&args.listen)?;
    // The handlers are installed before there is anything to clean up.
    let mut signals = StopSignals::listen().map_err(failed)?;
    let file = DemoFile::new(args.keep.as_deref())?;
    let abide = Abide::open(&file.store())
        .await
        .map_err(|error| Failure::from(error).next("abide demo --keep demo.db"))?;
    let ended = serve(&abide, &args, &file, global.out(), &mut signals).await;
    abide.close().await;
    // Removes the files, unless they are kept.
    drop(file);
    ended
}

/// No token is required, so only this machine may reach it.
fn guarded(listen: &str) -> Result<()> {
    let addresses = listen.to_socket_addrs().map_err(|error| {
        Failure::usage(format!(
            "invalid address to listen on, {listen:?}: {error}; write HOST:PORT"
        ))
        .next("abide demo --listen 127.0.0.1:0      (any free port)")
    })?;
    let mut outside = addresses.filter(|address| !address.ip().is_loopback());
    match outside.next() {
        None => Ok(()),
        Some(address) => {
            let text = format!(
                "{address} is reachable from other machines, and the demo requires no token: listen on 127.0.0.1"
            );
            Err(Failure::new(Exit::Refused, "no_token", text)
                .next("abide demo --listen 127.0.0.1:0"))
        }
    }
}

/// Serves, and shows the scene until it is over.
async fn serve(
    abide: &Abide,
    args: &Args,
    file: &DemoFile,
    out: Out,
    signals: &mut StopSignals,
) -> Result {
    file.wait_for_others(abide).await?;
    let graph = demo::parcel::parcel()
        .map_err(|error| Failure::new(Exit::Refused, "demo", error.to_string()))?;
    abide.keep_graph(&graph).await?;
    let mut settings = Settings::default();
    (settings.store, settings.listen) = (Some(file.store()), args.listen.clone());
    (settings.retention, settings.grace) = (Retention::For(KEPT), GRACE);
    let ready = Ready::over(abide, settings, Traces::off())
        .await
        .map_err(not_served)?;
    let url = format!("http://{}", ready.address());
    let stop = CancellationToken::new();
    let until = stop.clone();
    let server = tokio::spawn(async move { ready.serve(until.cancelled()).await });

    let mut traffic = Traffic::over(abide, graph).await?;
    traffic.begin().await?;
    let exe = std::env::current_exe()?;
    let crew = Crew::start(exe, &url, args.workers);
    let scene = Scene::new(abide, crew, args.workers, traffic);
    let ended = show(scene, file, &url, out, signals).await;
    stop.cancel();
    // A panic of the task was already reported.
    let _ = server.await;
    ended
}

fn not_served(error: ServeError) -> Failure {
    let is_taken = matches!(&error, ServeError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse);
    let failure = failed(error).next("abide demo --listen 127.0.0.1:0      (any free port)");
    match is_taken {
        true => failure.line("another program has that port, perhaps a server or a demo of yours"),
        false => failure,
    }
}

/// Shows the scene until the user ends it, and then the summary.
async fn show(
    mut scene: Scene,
    file: &DemoFile,
    url: &str,
    out: Out,
    signals: &mut StopSignals,
) -> Result {
    let mut hangup = signal(SignalKind::hangup())?;
    // The demo stops between two actions, never in the middle of one, so that its counts stay right.
    let stop = async {
        tokio::select! {
            () = signals.stop() => {}
            _ = hangup.recv() => {}
        }
    };
    let played = play(&mut scene, file, url, out, stop).await;
    if out.terminal && !out.json {
        // Below the input line. A closed output is not an error.
        let _ = out.raw("\n\n");
    }
    let summary = tokio::select! {
        summary = scene.end() => summary?,
        // A second request to stop: the workers are killed, and nothing is counted.
        () = signals.stop_again() => return Ok(Exit::Refused),
    };
    played?;
    // The terminal may have another width by now.
    output::last(&Out::new(out.json, out.utc), &summary, file)?;
    Ok(match summary.wrong.is_empty() {
        true => Exit::Done,
        false => Exit::Refused,
    })
}

/// Runs the demo until `stop` completes, or until the user types q.
async fn play(
    scene: &mut Scene,
    file: &DemoFile,
    url: &str,
    out: Out,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let mut stop = std::pin::pin!(stop);
    let started = async {
        while scene.workers().iter().any(|worker| worker.pid.is_none()) {
            let Some((number, change)) = scene.next_change().await else {
                break;
            };
            scene.handle(number, change).await?;
        }
        Ok::<_, Failure>(())
    };
    if let Ok(started) = tokio::time::timeout(START, started).await {
        started?;
    }
    let begun = Instant::now();
    let mut typed = keys::typed(&out);
    let abide = called(url);
    let mut voice = Voice::new(out, url, &abide, typed.is_some());
    voice.first(scene, file, &commands(scene, &abide))?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut count = 0_u64;
    loop {
        let is_turn = tokio::select! {
            () = &mut stop => return Ok(()),
            _ = ticks.tick() => {
                for event in scene.tick().await? {
                    voice.note(begun.elapsed(), &event)?;
                }
                count += 1;
                count % PICTURE == 1
            }
            change = scene.next_change() => match change {
                Some((number, change)) => match scene.handle(number, change).await? {
                    Some(event) => {
                        voice.note(begun.elapsed(), &event)?;
                        voice.is_live()
                    }
                    None => false,
                },
                None => return Ok(()),
            },
            typed = keys::next(&mut typed) => match typed {
                Typed::Quit => return Ok(()),
                Typed::Number(number) => {
                    let hint = (!scene.kill(number)).then(|| format!("there is no worker {number} > "));
                    voice.entered(hint);
                    true
                }
                Typed::Other => {
                    voice.entered(None);
                    true
                }
            },
        };
        if is_turn {
            let shown = scene.shown().await?;
            voice.tick(begun.elapsed(), &shown)?;
        }
    }
}

/// The command line that calls the binary for the demo: with the path that it was called by, or as the shell finds it.
fn called(url: &str) -> String {
    let called = std::env::args().next().unwrap_or_default();
    let abide = match called.contains('/') {
        true => shell_quoted(&called),
        false => "abide".to_owned(),
    };
    format!("{abide} --store {url}")
}

/// Commands for the user to copy.
fn commands(scene: &Scene, abide: &str) -> Vec<(String, String)> {
    let mut commands = vec![(format!("{abide} list"), "what there is".to_owned())];
    let mut left = scene
        .left()
        .filter_map(|one| Some((one.key(), one.deed()?)));
    if let Some((key, deed)) = left.next() {
        commands.push((format!("{abide} show {key}"), "how it stands".to_owned()));
        commands.push((format!("{abide} watch {key}"), "the same, live".to_owned()));
        commands.push((format!("{abide} {deed}"), "pay it".to_owned()));
    }
    if let Some(pid) = scene.workers().iter().find_map(|worker| worker.pid) {
        commands.push((format!("kill -9 {pid}"), "a worker".to_owned()));
    }
    commands
}

/// The summary in one sentence.
fn sentence(summary: &Summary) -> String {
    let found = match summary.found {
        0 => String::new(),
        count => format!(", {count} were there before"),
    };
    let killed = match (summary.killed, summary.cut) {
        (0, _) => "no worker was killed".to_owned(),
        (killed, cut) => {
            let killed = counted(killed, "worker was", "workers were");
            match cut {
                0 => format!("{killed} killed while nothing ran there"),
                cut => format!(
                    "{killed} killed in the middle of {}",
                    counted(cut, "step", "steps")
                ),
            }
        }
    };
    let again = match summary.again {
        0 => String::new(),
        1 => ", also the one that had to run again".to_owned(),
        count => format!(", also the {count} that had to run again"),
    };
    let lost = match (summary.wrong.len(), summary.ended) {
        (0, 0) => "nothing has ended, so there is nothing to check".to_owned(),
        (0, ended) => format!(
            "no step was lost: the histories of all {ended} that ended hold each of their {} steps exactly once{again}",
            summary.steps
        ),
        (1, _) => "one history is not as it must be".to_owned(),
        (count, _) => format!("{count} histories are not as they must be"),
    };
    format!(
        "{} began{found}, {} ended, {} wait or would go on; {killed}, and {lost}.",
        summary.began, summary.ended, summary.open
    )
}
