//! No server is left behind, however the process that started it ends.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use abide_pgtest::psql;

/// A process with a private server, whose files are all below a directory of its own.
struct Process {
    child: Child,
    url: String,
    files: PathBuf,
}

impl Process {
    /// Starts it; its server is still being made.
    fn spawn(name: &str) -> Process {
        let files =
            std::env::temp_dir().join(format!("abide-pgtest-{name}-{}", std::process::id()));
        std::fs::create_dir(&files).unwrap();
        std::fs::set_permissions(&files, Permissions::from_mode(0o1777)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_abide-pgtest"))
            .env("TMPDIR", &files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Process {
            child,
            url: String::new(),
            files,
        }
    }

    /// Starts it and waits for its server.
    fn start(name: &str) -> Process {
        let mut process = Process::spawn(name);
        let output = process.child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut process.url).unwrap();
        process.url = process.url.trim().into();
        process
    }

    fn assert_nothing_is_left(&self) {
        self.assert_no_file_is_left();
        let refused = std::panic::catch_unwind(|| psql(&self.url, "select 1")).unwrap_err();
        assert!(
            refused
                .downcast_ref::<String>()
                .unwrap()
                .contains("refused")
        );
    }

    /// The cluster's directory is removed last, when the server has ended.
    fn assert_no_file_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_empty(&self.files) {
            assert!(
                Instant::now() < deadline,
                "{} is not empty",
                self.files.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_dir(&self.files).unwrap();
    }

    fn postmaster(&self) -> String {
        let cluster = std::fs::read_dir(&self.files)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let file = std::fs::read_to_string(cluster.join("data/postmaster.pid")).unwrap();
        file.lines().next().unwrap().into()
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

fn is_alive(pid: &str) -> bool {
    Command::new("kill")
        .args(["-0", pid])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn a_killed_process_takes_its_server_with_it() {
    let mut process = Process::start("killed");
    let postmaster = process.postmaster();
    assert!(is_alive(&postmaster));
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    process.assert_nothing_is_left();
    assert!(!is_alive(&postmaster));
}

#[test]
fn a_process_killed_while_its_server_is_busy_takes_it_too() {
    let mut process = Process::start("busy");
    let url = process.url.clone();
    let session = std::thread::spawn(move || psql(&url, "select pg_sleep(60)"));
    let sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    while psql(&process.url, sleeping) == "0" {}
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    process.assert_nothing_is_left();
    assert!(session.join().is_err());
}

#[test]
fn a_process_that_ends_in_order_waits_until_its_server_is_gone() {
    let mut process = Process::start("ended");
    drop(process.child.stdin.take());
    assert!(process.child.wait().unwrap().success());
    assert!(is_empty(&process.files));
    process.assert_nothing_is_left();
}

#[test]
fn a_process_killed_while_it_makes_its_server_leaves_nothing() {
    let mut process = Process::spawn("early");
    while is_empty(&process.files) {
        std::thread::sleep(Duration::from_millis(1));
    }
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    process.assert_no_file_is_left();
}
