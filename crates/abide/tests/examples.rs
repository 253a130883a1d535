//! Every example runs and says what it should, on every store.
#![cfg(any(feature = "sqlite", feature = "postgres"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

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

/// Where an example runs: in an empty directory, on a store of its own.
struct Place {
    store: String,
    directory: TempDir,
}

impl Place {
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
        Self::on(abide_pgtest::server().fresh_database())
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

    /// Runs an example; what it printed.
    fn run(&self, example: &str) -> String {
        let printed = ended(self.start(example, &[]));
        printed.unwrap_or_else(|complained| panic!("{example} failed: {complained}"))
    }

    /// Runs an example, and a second process of it with arguments until what that prints will do; what both printed.
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

/// What an example printed that ended well; else what it complained of.
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
    (fn $name:ident($place:ident: Place) $body:block) => {
        mod $name {
            use super::*;

            fn test($place: Place) $body

            #[test]
            fn memory() {
                test(Place::memory());
            }

            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                test(Place::sqlite());
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                test(Place::postgres());
            }
        }
    };
}

/// Makes two tests of one, whose processes share a database: on SQLite and on PostgreSQL. The function that it is given
/// makes another place on a store of the same kind.
macro_rules! on_both_databases {
    (fn $name:ident($place:ident: fn() -> Place) $body:block) => {
        mod $name {
            use super::*;

            fn test($place: fn() -> Place) $body

            #[cfg(feature = "sqlite")]
            #[test]
            fn sqlite() {
                test(Place::sqlite);
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                test(Place::postgres);
            }
        }
    };
}

on_every_store! {
    fn first(place: Place) {
        let printed = place.run("first");
        let lines: Vec<&str> = printed.lines().collect();
        let expected = ["charge", "pack", "ship", "kettle shipped, 100 paid"]
            .map(|what| format!("instance 1: {what}"));
        assert_eq!(lines, expected);
    }
}

#[test]
fn first_refuses_a_connection_string_that_is_none() {
    let refused = ended(Place::on("mysql://orders".to_owned()).start("first", &[]));
    let complained = refused.unwrap_err();
    assert!(complained.contains("mysql://orders"), "{complained}");
}

on_both_databases! {
    fn hello_is_stopped_run_again_and_paid_by_another_process(new_place: fn() -> Place) {
        // The program of the README, as it says: stop it with ctrl-c, run it again.
        let place = new_place();
        let waits = |process: &mut Child| {
            let mut said = String::new();
            let output = process.stdout.as_mut().unwrap();
            BufReader::new(output).read_line(&mut said).unwrap();
            assert_eq!(said, "order 1 waits for its payment\n");
        };
        let mut first = place.start("hello", &[]);
        waits(&mut first);
        first.kill().unwrap();
        first.wait().unwrap();
        let mut second = place.start("hello", &[]);
        waits(&mut second);
        assert_eq!(ended(place.start("hello", &["pay"])).unwrap(), "");
        assert_eq!(ended(second).unwrap(), "kettle shipped, 100 paid\n");
        // Sent twice, it counts once: the second is answered as the first was.
        assert_eq!(ended(place.start("hello", &["pay"])).unwrap(), "");
        // A payment for nothing is an error that names the key, and says what to do.
        let unpaid = ended(new_place().start("hello", &["pay"])).unwrap_err();
        assert!(
            unpaid.starts_with("Error: no instance with the id or key \"order:42\": start it first"),
            "{unpaid}"
        );
    }
}

on_every_store! {
    fn jobs(place: Place) {
        let printed = place.run("jobs");
        assert!(
            printed.starts_with("kettle.small.png\n1000 more, in "),
            "{printed}"
        );
    }
}

on_every_store! {
    fn children(place: Place) {
        assert_eq!(place.run("children"), "500 words\n");
    }
}

on_every_store! {
    fn errors(place: Place) {
        let printed = place.run("errors");
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
    fn payment(place: Place) {
        let printed = place.run("payment");
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
        let told: Vec<&str> = lines[5..].iter().map(|line| line[4..].trim()).collect();
        assert_eq!(told.first(), Some(&"started"), "{printed}");
        for kind in ["update_completed", "signal_received", "signal_applied"] {
            assert!(told.contains(&kind), "{printed}");
        }
        assert_eq!(told.last(), Some(&"done"), "{printed}");
    }
}

on_every_store! {
    fn trip(place: Place) {
        let printed = place.run("trip");
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
    fn ship_order(place: Place) {
        assert_eq!(place.run("ship_order"), "{\"paid\":100}\n");
    }
}

on_every_store! {
    fn collect_pack(place: Place) {
        assert_eq!(place.run("collect_pack"), "42\n");
    }
}

#[test]
fn decide_by_deadline() {
    // It runs on the test kit, which is in memory.
    let printed = Place::memory().run("decide_by_deadline");
    let expected = "shipped\nErr(\"instance 2 failed: payment never came\")\n";
    assert_eq!(printed, expected);
}

on_every_store! {
    fn approval_ready(place: Place) {
        let expected =
            "Ready { ready: false }\nwaiting_for_condition: approval.ready\n{\"ready\":true}\n";
        assert_eq!(place.run("approval_ready"), expected);
    }
}

on_both_databases! {
    fn order_approval_is_approved_from_another_process(new_place: fn() -> Place) {
        // A signal to a key that is not there yet is refused, and the process that sent it fails.
        let (waits, approves) = new_place().run_two("order_approval", &["Taylor"], |_| true);
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
    fn webhook_handler_goes_on_when_another_process_publishes(new_place: fn() -> Place) {
        // An event that was published before the graph waits for it does not count.
        let is_matched = |printed: &str| printed == "1 waited for it\n";
        let (handles, _) = new_place().run_two("webhook_handler", &["99.99"], is_matched);
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
