//! Breaks a copy of abide on purpose, in each way that the list names, and checks whether the fast tests notice: the unit
//! tests of core and kernel, the conformance suite on the memory store, and the simulation with its fixed seeds.
//!
//! `cargo run -p abide-tidy --bin mutants` tries all of them, `… -- 7 12` those two, `… -- --seconds 300` as many as there is
//! time for, in an order that is another each time. One that survives is a test that is missing: the program says which,
//! and fails.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command"
)]

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use abide_tidy::files::{all, read, root};
use abide_tidy::mutants::{LIST, Mutant, SWITCH, build_in, parse};

/// Longest time of one program of tests; a mutant that runs on for ever is noticed by that.
const PATIENCE: Duration = Duration::from_secs(180);
/// The programs of tests that must notice; those that take longest come last.
const PROGRAMS: [&str; 4] = ["abide_kernel", "integration", "abide_core", "simulation"];
/// Arguments with which cargo builds them.
const PACKAGES: [&str; 5] = ["-p", "abide-core", "-p", "abide-kernel", "--lib"];
/// The tests among them that take new seeds each time, which a mutant must not be tried with.
const NEW_SEEDS: &str = "new_programs";

fn main() -> ExitCode {
    match run() {
        Ok(survivors) if survivors.is_empty() => ExitCode::SUCCESS,
        Ok(survivors) => {
            eprintln!(
                "\n{} survived; write the test that is missing:",
                survivors.len()
            );
            for survivor in survivors {
                eprintln!("  {survivor}");
            }
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("mutants: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>, String> {
    let mutants = parse(&read(LIST))?;
    let (order, time) = selected(mutants.len())?;
    let copy = copy(&mutants)?;
    let programs = build(&copy)?;
    println!(
        "{} programs of tests; first without a mutant",
        programs.len()
    );
    if let Some(noticed) = notice(&programs, &copy, None)? {
        return Err(format!("the tests fail as they are: {noticed}"));
    }
    let began = Instant::now();
    let (mut survivors, mut tried) = (Vec::new(), 0);
    for number in order {
        if time.is_some_and(|time| began.elapsed() > time) {
            break;
        }
        let Some(Mutant { breaks, file, .. }) = mutants.get(number - 1) else {
            return Err(format!(
                "there is no mutant {number}: the last is {}",
                mutants.len()
            ));
        };
        tried += 1;
        let began = Instant::now();
        match notice(&programs, &copy, Some(number))? {
            Some(by) => println!(
                "{number:>3} caught in {:.1?} by {by}: {breaks}",
                began.elapsed()
            ),
            None => {
                println!("{number:>3} SURVIVED: {breaks}");
                survivors.push(format!("{number} ({file}): {breaks}"));
            }
        }
    }
    println!(
        "{tried} of {} tried in {:.0?}",
        mutants.len(),
        began.elapsed()
    );
    Ok(survivors)
}

/// The mutants to try, counted from 1, and the time limit.
fn selected(count: usize) -> Result<(Vec<usize>, Option<Duration>), String> {
    let number = |text: String| {
        let number = text.parse::<usize>();
        number.map_err(|_| format!("expected a number or `--seconds` and one, and met {text:?}"))
    };
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("--seconds").is_some() {
        let seconds = args
            .next()
            .ok_or("how many seconds?")
            .map_err(String::from)?;
        let mut order: Vec<usize> = (1..=count).collect();
        let random = RandomState::new();
        order.sort_by_cached_key(|one| random.hash_one(one));
        return Ok((order, Some(Duration::from_secs(number(seconds)? as u64))));
    }
    let named: Vec<usize> = args.map(number).collect::<Result<_, _>>()?;
    match named.is_empty() {
        true => Ok(((1..=count).collect(), None)),
        false => Ok((named, None)),
    }
}

/// Copies the project with all mutants built in to a folder that keeps what it has built for the next time.
fn copy(mutants: &[Mutant]) -> Result<PathBuf, String> {
    let copy = target().join("mutants");
    let mut problems = Vec::new();
    for file in all() {
        let bytes =
            std::fs::read(root().join(&file)).map_err(|error| format!("{file}: {error}"))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => match build_in(&file, text, mutants) {
                Ok(text) => text.into_bytes(),
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            },
            Err(binary) => binary.into_bytes(),
        };
        let to = copy.join(&file);
        // What is the same keeps its time, and need not be built again.
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(&copy);
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&to, bytes));
        written.map_err(|error| format!("{}: {error}", to.display()))?;
    }
    match problems.is_empty() {
        true => Ok(copy),
        false => Err(problems.join("\n")),
    }
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds the tests; the programs, in the order in which they are to run.
fn build(copy: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let tests = PROGRAMS.iter().filter(|name| !name.starts_with("abide_"));
    let built = Command::new("cargo")
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(PACKAGES)
        .args(tests.flat_map(|test| ["--test", test]))
        .current_dir(copy)
        // What it depends on is built already.
        .env("CARGO_TARGET_DIR", target())
        .output();
    let built = built.map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        let stderr = String::from_utf8_lossy(&built.stderr);
        return Err(format!("a mutant does not compile:\n{stderr}"));
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let text = |at| message.pointer(at).and_then(|text| text.as_str());
        if let (Some(name), Some(program)) = (text("/target/name"), text("/executable")) {
            programs.push((name.to_owned(), PathBuf::from(program)));
        }
    }
    programs.sort_by_key(|(name, _)| PROGRAMS.iter().position(|program| program == name));
    Ok(programs)
}

/// The first test that fails with that mutant.
fn notice(
    programs: &[(String, PathBuf)],
    copy: &Path,
    number: Option<usize>,
) -> Result<Option<String>, String> {
    for (name, program) in programs {
        let mut command = Command::new(program);
        command
            .args(["--skip", NEW_SEEDS])
            .current_dir(copy)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(number) = number {
            command.env(SWITCH, number.to_string());
        }
        let child = command.spawn();
        let child = child.map_err(|error| format!("{name}: {error}"))?;
        let noticed = wait(child).map_err(|error| format!("{name}: {error}"))?;
        if let Some(test) = noticed {
            return Ok(Some(format!("{name} {test}")));
        }
    }
    Ok(None)
}

/// The first test of a program that fails; the rest of them need not run.
fn wait(mut child: Child) -> std::io::Result<Option<String>> {
    let (failed, first) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                let test = line.strip_suffix(" ... FAILED");
                if let Some(test) = test.and_then(|line| line.strip_prefix("test ")) {
                    // The receiver is gone after the first.
                    let _ = failed.send(test.to_owned());
                }
            }
        });
    }
    let began = Instant::now();
    let noticed = loop {
        match first.recv_timeout(Duration::from_millis(20)) {
            Ok(test) => break Some(test),
            // The program has ended, and its output was read.
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
            Err(mpsc::RecvTimeoutError::Timeout) if began.elapsed() > PATIENCE => {
                break Some("that does not end".to_owned());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    };
    if noticed.is_some() {
        child.kill()?;
    }
    let succeeds = child.wait()?.success();
    Ok(noticed.or_else(|| (!succeeds).then(|| "as a whole".to_owned())))
}
