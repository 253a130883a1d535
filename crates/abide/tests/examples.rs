//! Every example runs and prints the expected output, on every store.
#![cfg(any(feature = "sqlite", feature = "postgres"))]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// An example that was built along with the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    profile.join("examples").join(example)
}

/// The environment of an example: an empty directory and its own store.
struct Sandbox {
    store: String,
    directory: TempDir,
}

impl Sandbox {
    fn memory() -> Self {
        Self::on("memory:".to_owned())
    }

    /// A file in the directory.
    #[cfg(feature = "sqlite")]
    fn sqlite() -> Self {
        Self::on("sqlite:example.db".to_owned())
    }

    #[cfg(feature = "postgres")]
    fn postgres() -> Self {
        Self::on(abide_pgtest::server().emptied_database(&abide::postgres::plan(0)))
    }

    fn on(store: String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { store, directory }
    }

    /// Starts an example.
    fn start(&self, example: &str, arguments: &[&str]) -> Child {
        let built = built(example);
        let mut command = Command::new(&built);
        command.args(arguments).env("ABIDE_STORE", &self.store);
        command.current_dir(self.directory.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        started.unwrap_or_else(|error| panic!("{} does not run: {error}", built.display()))
    }

    /// Runs an example. Returns its output.
    fn run(&self, example: &str) -> String {
        let printed = ended(self.start(example, &[]));
        printed.unwrap_or_else(|complained| panic!("{example} failed: {complained}"))
    }

    /// Runs an example, and a second process of it with arguments until that prints the right output. Returns both outputs.
    fn run_two(
        &self,
        example: &str,
        arguments: &[&str],
        will_do: impl Fn(&str) -> bool,
    ) -> (String, String) {
        let mut waits = self.start(example, &[]);
        let mut second = Err("it never ran".to_owned());
        while waits.try_wait().unwrap().is_none() {
            second = ended(self.start(example, arguments));
            if second.as_deref().is_ok_and(&will_do) {
                break;
            }
        }
        let first = ended(waits).unwrap_or_else(|error| panic!("{example} failed: {error}"));
        (first, second.unwrap())
    }
}

/// The output of an example that succeeded; otherwise its errors.
fn ended(process: Child) -> Result<String, String> {
    let output = process.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// Makes three tests of one: on the store in memory, on SQLite, and on PostgreSQL.
macro_rules! on_every_store {
    (fn $name:ident($sandbox:ident: Sandbox) $body:block) => {
        mod $name {
            use super::*;

            fn test($sandbox: Sandbox) $body

            #[test]
            fn memory() {
                test(Sandbox::memory());
            }

            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                test(Sandbox::sqlite());
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                test(Sandbox::postgres());
            }
        }
    };
}

/// Makes two tests of one, whose processes share a database: on SQLite and on PostgreSQL. The function that it is given
/// makes another sandbox on a store of the same kind.
macro_rules! on_both_databases {
    (fn $name:ident($sandbox:ident: fn() -> Sandbox) $body:block) => {
        mod $name {
            use super::*;

            fn test($sandbox: fn() -> Sandbox) $body

            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                test(Sandbox::sqlite);
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                test(Sandbox::postgres);
            }
        }
    };
}

on_every_store! {
    fn first(sandbox: Sandbox) {
        let printed = sandbox.run("first");
        let lines: Vec<&str> = printed.lines().collect();
        let expected = ["charge", "pack", "ship", "kettle shipped, 100 paid"]
            .map(|what| format!("instance 1: {what}"));
        assert_eq!(lines, expected);
    }
}

#[test]
fn first_refuses_a_connection_string_that_is_none() {
    let refused = ended(Sandbox::on("mysql://orders".to_owned()).start("first", &[]));
    let complained = refused.unwrap_err();
    assert!(complained.contains("mysql://orders"), "{complained}");
}

on_both_databases! {
    fn hello_is_stopped_run_again_and_paid_by_another_process(new_sandbox: fn() -> Sandbox) {
        // The program of the README, as described there: stop it with ctrl-c, run it again.
        let sandbox = new_sandbox();
        let waits = |process: &mut Child| {
            let mut line = String::new();
            let output = process.stdout.as_mut().unwrap();
            BufReader::new(output).read_line(&mut line).unwrap();
            assert_eq!(line, "order 1 waits for its payment\n");
        };
        let mut first = sandbox.start("hello", &[]);
        waits(&mut first);
        first.kill().unwrap();
        first.wait().unwrap();
        let mut second = sandbox.start("hello", &[]);
        waits(&mut second);
        assert_eq!(ended(sandbox.start("hello", &["pay"])).unwrap(), "");
        assert_eq!(ended(second).unwrap(), "kettle shipped, 100 paid\n");
        // Sent twice, it counts once: the second is answered as the first was.
        assert_eq!(ended(sandbox.start("hello", &["pay"])).unwrap(), "");
        // A payment for nothing is an error that names the key, and says what to do.
        let unpaid = ended(new_sandbox().start("hello", &["pay"])).unwrap_err();
        assert!(
            unpaid.starts_with("Error: no instance with the id or key \"order:42\": start it first"),
            "{unpaid}"
        );
    }
}

on_every_store! {
    fn jobs(sandbox: Sandbox) {
        let printed = sandbox.run("jobs");
        assert!(
            printed.starts_with("kettle.small.png\n1000 more, in "),
            "{printed}"
        );
    }
}

on_every_store! {
    fn children(sandbox: Sandbox) {
        assert_eq!(sandbox.run("children"), "500 words\n");
    }
}

on_every_store! {
    fn errors(sandbox: Sandbox) {
        let printed = sandbox.run("errors");
        assert!(
            printed.contains("attempt 2: the card is declined\nnot paid, and sorry\n"),
            "{printed}"
        );
        assert!(
            printed.ends_with("6 step_failed\n  7 step_completed\n  8 done\n"),
            "{printed}"
        );
    }
}

on_every_store! {
    fn payment(sandbox: Sandbox) {
        let printed = sandbox.run("payment");
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[0], "it was to go to the old house");
        assert!(
            lines[1].starts_with("refused: the arguments break the contract: amount"),
            "{printed}"
        );
        // The update was message 1; sent twice, the signal is one.
        assert!(
            lines[2].ends_with("sent before: false") && lines[3].ends_with("sent before: true"),
            "{printed}"
        );
        assert_eq!(lines[4], "kettle shipped to the new house, 100 paid");
        let kinds: Vec<&str> = lines[5..].iter().map(|line| line[4..].trim()).collect();
        assert_eq!(kinds.first(), Some(&"started"), "{printed}");
        for kind in ["update_completed", "signal_received", "signal_applied"] {
            assert!(kinds.contains(&kind), "{printed}");
        }
        assert_eq!(kinds.last(), Some(&"done"), "{printed}");
    }
}

on_every_store! {
    fn trip(sandbox: Sandbox) {
        let printed = sandbox.run("trip");
        let undone =
            "  cancelled the hotel to Atlantis\n  cancelled the flight to Atlantis\n  not done: ";
        assert!(
            printed.contains("  done: flight to Lisbon, hotel to Lisbon, car to Lisbon\n"),
            "{printed}"
        );
        assert!(
            printed.contains(undone) && printed.contains("no cars in Atlantis"),
            "{printed}"
        );
    }
}

on_every_store! {
    fn ship_order(sandbox: Sandbox) {
        assert_eq!(sandbox.run("ship_order"), "{\"paid\":100}\n");
    }
}

on_every_store! {
    fn collect_pack(sandbox: Sandbox) {
        assert_eq!(sandbox.run("collect_pack"), "42\n");
    }
}

#[test]
fn decide_by_deadline() {
    // It runs on the test kit, which is in memory.
    let printed = Sandbox::memory().run("decide_by_deadline");
    let expected = "shipped\nErr(\"instance 2 failed: payment never came\")\n";
    assert_eq!(printed, expected);
}

on_every_store! {
    fn approval_ready(sandbox: Sandbox) {
        let expected =
            "Ready { ready: false }\nwaiting_for_condition: approval.ready\n{\"ready\":true}\n";
        assert_eq!(sandbox.run("approval_ready"), expected);
    }
}

on_both_databases! {
    fn order_approval_is_approved_from_another_process(new_sandbox: fn() -> Sandbox) {
        // A signal to a key that is not there yet is refused, and the process that sent it fails.
        let (waits, approves) = new_sandbox().run_two("order_approval", &["Taylor"], |_| true);
        // The number is not the first after such a refusal.
        assert!(
            approves.starts_with("signal_received, command "),
            "{approves}"
        );
        let (waited, approved) = waits.trim_end().split_once('\n').unwrap();
        assert_eq!(waited, "order-123 waits for its approval");
        let expected = json!({"approved_by": "Taylor", "workflow_id": "order-123", "run_id": 1});
        assert_eq!(approved.parse::<Value>().unwrap(), expected);
    }
}

on_both_databases! {
    fn webhook_handler_goes_on_when_another_process_publishes(new_sandbox: fn() -> Sandbox) {
        // An event that was published before the graph waits for it does not count.
        let is_matched = |printed: &str| printed == "1 waited for it\n";
        let (handles, _) = new_sandbox().run_two("webhook_handler", &["99.99"], is_matched);
        assert_eq!(handles, "{\"fulfill\":99.99}\n");
    }
}

#[test]
fn every_example_is_run_and_listed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = std::fs::read_to_string(here.join("tests/examples.rs")).unwrap();
    let list = std::fs::read_to_string(here.join("../../docs/examples.md")).unwrap();
    for file in std::fs::read_dir(here.join("examples")).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let name = file.trim_end_matches(".rs");
        assert!(
            tests.contains(&format!("run(\"{name}\""))
                || tests.contains(&format!("start(\"{name}\""))
                || tests.contains(&format!("run_two(\"{name}\"")),
            "{name} is not run"
        );
        assert!(
            list.contains(&format!("examples/{file})")),
            "{name} is not listed"
        );
    }
}
