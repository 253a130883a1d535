//! The process that owns a cluster and outlives this one for just long enough to remove it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::binaries;

/// Its program; the commands it knows are described there.
const SCRIPT: &str = include_str!("supervise.sh");

/// The users to run PostgreSQL as when we are root, which it refuses to be run by.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Part of the server's log that a failure shows.
const LOG_LINES: usize = 20;

/// A handle on the owner of one cluster. Dropping it waits until the server is stopped and its directory removed.
#[derive(Debug)]
pub struct Supervisor {
    process: Child,
    /// Its input: the cluster lives until this closes. Always there, but for the last moment of `drop`.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Supervisor {
    /// Makes a new cluster, or a standby of the one at that URL, which is not started yet.
    pub fn spawn(primary: Option<&str>) -> Supervisor {
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "supervise"])
            .arg(binaries::server_directory())
            .arg(std::env::temp_dir())
            .arg(primary.unwrap_or_default())
            .current_dir("/")
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Out of the terminal's reach: an interrupt ends the tests, and thereby the server, in that order.
            .process_group(0);
        if is_root() {
            let (uid, gid) = unprivileged_user();
            command.uid(uid).gid(gid);
        }
        let mut process = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run `sh` to watch over PostgreSQL: {error}"));
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            unreachable!("both were asked to be pipes");
        };
        let mut supervisor = Supervisor {
            process,
            commands: Some(commands),
            answers: BufReader::new(answers),
            directory: PathBuf::new(),
        };
        let answer = supervisor.answer();
        let Some(directory) = answer.strip_prefix("ok ") else {
            panic!(
                "cannot make a PostgreSQL cluster below {}: {answer}",
                std::env::temp_dir().display()
            );
        };
        supervisor.directory = PathBuf::from(directory);
        supervisor
    }

    /// Where the cluster is: `data`, its data directory, and `log`, what the server printed.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives a command and waits until it is done.
    pub fn run(&mut self, command: &str) -> Result<(), String> {
        let Some(commands) = &mut self.commands else {
            unreachable!("it is closed in `drop` only");
        };
        let sent = writeln!(commands, "{command}").and_then(|()| commands.flush());
        sent.map_err(|error| format!("its supervisor is gone: {error}"))?;
        match self.answer() {
            answer if answer == "ok" => Ok(()),
            answer => Err(format!("{answer}; its log ends:\n{}", self.log_end())),
        }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => "its supervisor is gone".into(),
            Ok(_) => line.trim_end().into(),
            Err(error) => format!("its supervisor does not answer: {error}"),
        }
    }

    fn log_end(&self) -> String {
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(LOG_LINES)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.commands.take());
        // It ends by itself now; that it could not be waited for would not help anybody.
        let _ = self.process.wait();
    }
}

/// The user and group to run servers as, because they do not run as root.
pub fn unprivileged_user() -> (u32, u32) {
    USERS
        .iter()
        .find_map(|user| Some((id(&["-u", user])?, id(&["-g", user])?)))
        .unwrap_or_else(|| {
            panic!(
                "PostgreSQL does not run as root, and there is no user {}: add one",
                USERS.join(" or ")
            )
        })
}

/// Returns true if we are root.
pub fn is_root() -> bool {
    id(&["-u"]) == Some(0)
}

/// The number that the program `id` prints of us, or of a user; `None` when there is no such user.
fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id")
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
