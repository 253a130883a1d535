//! Worker processes that are killed with `kill -9` while they work, again and again.
//!
//! Not a test of the usual harness: this program is the test, and, when an environment variable says so, one of the
//! workers that the test starts and kills.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]
#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(
        dead_code,
        unused_imports,
        reason = "what is in memory dies with its process"
    )
)]

mod common;

use std::panic::AssertUnwindSafe;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use abide::{Abide, Context, Happening, InstanceId, Machine, Outcome, Status, Step};
use abide::{done, millis, next, spec};
use common::{Lab, eventually};
use futures_util::future::LocalBoxFuture;

/// Set to `url|name|lease in ms`, it makes this program a worker.
const WORKER: &str = "ABIDE_TEST_WORKER";
/// How many instances a test runs.
const INSTANCES: usize = 1_000;
/// How often it kills a worker.
const KILLS: usize = 6;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Ten steps, each of which adds its name to the state.
struct Relay;

#[derive(Step)]
enum Leg {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Seventh,
    Eighth,
    Ninth,
    Tenth,
}

impl Machine for Relay {
    const NAME: &'static str = "relay";
    type Step = Leg;
    type State = Vec<String>;
    type Output = Vec<String>;

    async fn step(&self, at: Leg, ctx: &mut Context<Self>) -> Outcome<Self> {
        tokio::time::sleep(millis(2)).await;
        ctx.state_mut().push(at.name().to_owned());
        match Leg::ALL.get(ctx.state().len()) {
            Some(leg) => next(*leg),
            None => done(ctx.state().clone()),
        }
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    match std::env::var(WORKER) {
        Ok(given) => {
            runtime.block_on(work(&given));
            ExitCode::SUCCESS
        }
        Err(_) => test(&runtime),
    }
}

struct Test {
    name: &'static str,
    run: fn() -> LocalBoxFuture<'static, ()>,
}

const TESTS: &[Test] = &[
    #[cfg(feature = "sqlite")]
    Test {
        name: "sqlite_outlives_its_only_worker_again_and_again",
        run: || Box::pin(sqlite()),
    },
    #[cfg(feature = "postgres")]
    Test {
        name: "postgres_outlives_either_of_its_workers_again_and_again",
        run: || Box::pin(postgres()),
    },
];

/// Runs what the arguments do not filter out, and tells what became of it.
fn test(runtime: &tokio::runtime::Runtime) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asks = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let filters: Vec<_> = arguments
        .iter()
        .filter(|one| !one.starts_with('-'))
        .collect();
    let wanted = TESTS.iter().filter(|test| {
        filters.is_empty()
            || filters
                .iter()
                .any(|filter| test.name.contains(filter.as_str()))
    });
    if asks("--list") {
        let listed = wanted.filter(|_| !asks("--ignored"));
        listed.for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for test in wanted {
        let begun = Instant::now();
        let run = AssertUnwindSafe(|| {
            runtime.block_on(async { tokio::time::timeout(PATIENCE, (test.run)()).await.unwrap() });
        });
        let (count, how) = match std::panic::catch_unwind(run) {
            Ok(()) => (&mut passed, "ok"),
            Err(_) => (&mut failed, "FAILED"),
        };
        *count += 1;
        println!(
            "test {} ... {how} ({:.1} s)",
            test.name,
            begun.elapsed().as_secs_f64()
        );
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Is a worker, until it is killed or the test that started it is gone.
async fn work(given: &str) {
    let [url, name, lease] = given.split('|').collect::<Vec<_>>()[..] else {
        panic!("{WORKER} is not url|name|lease: {given}");
    };
    let abide = Abide::open(url).await.unwrap();
    let lease = millis(lease.parse().unwrap());
    let engine = abide.engine().name(name).lease(lease).machine(Relay);
    let engine = engine.start().await.unwrap();
    // The other end of this pipe is the test's.
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    let _ = ended.await.unwrap();
    engine.shutdown().await;
}

/// A worker process. Killed when dropped.
struct Worker(Child);

impl Worker {
    fn start(url: &str, name: &str, lease: Duration) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(WORKER, format!("{url}|{name}|{}", lease.as_millis()))
            .stdin(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// `kill -9`
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Lets it finish in order.
    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One worker at a time: the next one takes up at once what the killed one held, under its name (rule 5.3).
#[cfg(feature = "sqlite")]
async fn sqlite() {
    // rules 1.1, 1.3, 5.3
    let lab = Lab::sqlite().await;
    let lease = Duration::from_secs(3_600);
    let ids = start_relays(&lab).await;
    let mut worker = Worker::start(lab.url(), "w", lease);
    for kill in 1..=KILLS {
        left(&lab, INSTANCES - kill * INSTANCES / (KILLS + 2)).await;
        worker.kill();
        worker = Worker::start(lab.url(), "w", lease);
    }
    left(&lab, 0).await;
    worker.stop();
    audit(&lab, &ids).await;
}

/// Two workers: the survivor takes over when the lease has run out, or the killed one comes back under its name.
#[cfg(feature = "postgres")]
async fn postgres() {
    // rules 1.1, 1.3, 5.3, 6.1
    let lab = Lab::postgres().await;
    let lease = Duration::from_secs(2);
    let ids = start_relays(&lab).await;
    let start = |name: &str| Worker::start(lab.url(), name, lease);
    let mut workers = [start("a0"), start("b0")];
    for kill in 1..=KILLS {
        left(&lab, INSTANCES - kill * INSTANCES / (KILLS + 2)).await;
        let (at, letter) = if kill % 2 == 0 { (0, 'a') } else { (1, 'b') };
        workers[at].kill();
        // Half of them come back under their old name, the others as strangers.
        let name = if kill % 4 < 2 { 0 } else { kill };
        workers[at] = start(&format!("{letter}{name}"));
    }
    left(&lab, 0).await;
    workers.into_iter().for_each(Worker::stop);
    audit(&lab, &ids).await;
}

async fn start_relays(lab: &Lab) -> Vec<InstanceId> {
    let starts = (0..INSTANCES).map(|_| spec(Relay, Vec::new()));
    let started = lab.start_all(starts).await.unwrap();
    started.into_iter().map(|one| one.unwrap().id()).collect()
}

/// Waits until no more than that many have not ended.
async fn left(lab: &Lab, most: usize) {
    eventually(&format!("{most} to be left"), async || {
        let depths = lab.depths().await.unwrap();
        depths.iter().map(|one| one.count).sum::<u64>() <= most as u64
    })
    .await;
}

/// Every instance has ended, its committed steps are the full sequence once, and each began where the last one ended.
async fn audit(lab: &Lab, ids: &[InstanceId]) {
    let names: Vec<String> = Leg::ALL.iter().map(|leg| leg.name().to_owned()).collect();
    let expected: Vec<_> = names.iter().cloned().zip(1..).collect();
    let mut reclaimed = 0;
    for id in ids {
        let row = lab.now(*id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(*id).await);
        assert_eq!(row.result.unwrap().to::<Vec<String>>().unwrap(), names);
        assert_eq!(
            lab.committed(*id).await,
            expected,
            "{}",
            lab.standing(*id).await
        );
        let events = lab.events(*id).await;
        assert!(events.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        let lost = events
            .iter()
            .filter(|entry| matches!(entry.what, Happening::Reclaimed { .. }));
        reclaimed += lost.count();
    }
    assert!(
        reclaimed > KILLS,
        "the workers were killed in the middle of nothing: {reclaimed} reclaimed"
    );
    println!("     {reclaimed} steps were taken back from {KILLS} killed workers");
}
