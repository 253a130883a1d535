//! Tests that are programs of their own, which are also the workers that they start and kill.

use std::panic::AssertUnwindSafe;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use abide::Abide;
use abide::engine::EngineBuilder;
use futures_util::future::LocalBoxFuture;
use tokio::runtime::Runtime;

/// Set to `program|url|name|lease in ms`, it makes the process a worker.
const WORKER: &str = "ABIDE_TEST_WORKER";

/// Tests, and the code of the workers that they start.
pub struct Program {
    pub name: &'static str,
    pub tests: &'static [Test],
    /// Gives an engine its code, under a name that may select more of its behaviour.
    pub code: fn(EngineBuilder, &str) -> EngineBuilder,
}

/// A test of such a program.
pub struct Test {
    pub name: &'static str,
    pub run: fn() -> LocalBoxFuture<'static, ()>,
}

/// The `main` of such programs. As a worker it runs the code of one of them. Otherwise it runs or lists the tests that the
/// arguments select, as test runners call them, each for at most `patience`.
pub fn main(programs: &[Program], patience: Duration) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    match std::env::var(WORKER) {
        Ok(given) => {
            runtime.block_on(work(&given, programs));
            ExitCode::SUCCESS
        }
        Err(_) => test(programs, patience, &runtime),
    }
}

fn test(programs: &[Program], patience: Duration, runtime: &Runtime) -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // The bug: nextest lists with `--format terse`. That word was taken for a filter, so it found no test and ran none.
    if let Some(at) = arguments.iter().position(|argument| argument == "--format") {
        arguments.drain(at..arguments.len().min(at + 2));
    }
    let has_flag = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let filters: Vec<_> = arguments
        .iter()
        .filter(|one| !one.starts_with('-'))
        .collect();
    let exactly = has_flag("--exact");
    let fits = |name: &str, filter: &str| match exactly {
        true => name == filter,
        false => name.contains(filter),
    };
    let tests = programs.iter().flat_map(|program| program.tests);
    let wanted = tests
        .filter(|test| filters.is_empty() || filters.iter().any(|filter| fits(test.name, filter)));
    if has_flag("--list") {
        let listed = wanted.filter(|_| !has_flag("--ignored"));
        listed.for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for test in wanted {
        let begun = Instant::now();
        let run = AssertUnwindSafe(|| {
            runtime.block_on(async { tokio::time::timeout(patience, (test.run)()).await.unwrap() });
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

/// Runs a worker, until it is killed or the test that started it is gone.
async fn work(given: &str, programs: &[Program]) {
    let [program, url, name, lease] = given.split('|').collect::<Vec<_>>()[..] else {
        panic!("{WORKER} is not program|url|name|lease: {given}");
    };
    let program = programs.iter().find(|one| one.name == program).unwrap();
    let abide = Abide::open(url).await.unwrap();
    let lease = Duration::from_millis(lease.parse().unwrap());
    let engine = (program.code)(abide.engine().name(name).lease(lease), name);
    let engine = engine.start().await.unwrap();
    // The other end of this pipe is the test's.
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    let _ = ended.await.unwrap();
    engine.shutdown().await;
}

/// A worker process. Killed when dropped.
pub struct Worker(Child);

impl Worker {
    pub fn start(program: &Program, url: &str, name: &str, lease: Duration) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(
                WORKER,
                format!("{}|{url}|{name}|{}", program.name, lease.as_millis()),
            )
            .stdin(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// The peak of its memory in kilobytes, if the system reports it.
    pub fn resident_max(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// `true` if it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// `kill -9`
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Lets it finish in order.
    pub fn stop(mut self) {
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
