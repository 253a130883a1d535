//! Every example runs and says what it should.
#![cfg(feature = "sqlite")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

use std::path::PathBuf;
use std::process::Command;

/// Runs an example that was built along with the tests, in an empty directory; what it printed.
fn run(example: &str, arguments: &[&str]) -> String {
    let deps = std::env::current_exe().unwrap();
    let built: PathBuf = deps
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(example);
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(&built)
        .args(arguments)
        .current_dir(&empty)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{} does not run: {error}", built.display()));
    let printed = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example} failed: {complained}");
    printed
}

#[test]
fn first() {
    let printed = run("first", &[]);
    let lines: Vec<&str> = printed.lines().collect();
    let expected = ["charge", "pack", "ship", "kettle shipped, 100 paid"]
        .map(|what| format!("instance 1: {what}"));
    assert_eq!(lines, expected);
}

#[test]
fn first_refuses_a_connection_string_that_is_none() {
    let examples = std::env::current_exe().unwrap();
    let built = examples
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/first");
    let output = Command::new(built).arg("mysql://orders").output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complained.contains("mysql://orders"),
        "{complained}"
    );
}

#[test]
fn jobs() {
    let printed = run("jobs", &[]);
    assert!(
        printed.starts_with("kettle.small.png\n1000 more, in "),
        "{printed}"
    );
}

#[test]
fn children() {
    assert_eq!(run("children", &[]), "500 words\n");
}

#[test]
fn errors() {
    let printed = run("errors", &[]);
    assert!(
        printed.contains("attempt 2: the card is declined\nnot paid, and sorry\n"),
        "{printed}"
    );
    assert!(
        printed.ends_with("6 step_failed\n  7 step_completed\n  8 done\n"),
        "{printed}"
    );
}

#[test]
fn payment() {
    let printed = run("payment", &[]);
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

#[test]
fn trip() {
    let printed = run("trip", &[]);
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

#[test]
fn approval_ready() {
    let expected =
        "set to false\nwaiting_for_condition: approval.ready\nset to true\nready: true\n";
    assert_eq!(run("approval_ready", &[]), expected);
}

#[test]
fn order_approval_is_approved_from_another_process() {
    let deps = std::env::current_exe().unwrap();
    let built = deps
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/order_approval");
    let empty = tempfile::tempdir().unwrap();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&built);
        command.args(arguments).current_dir(&empty);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let waits = start(&[]);
    // Whoever signals a key that nobody has yet is told so.
    let approved = (0..200).find_map(|_| {
        let output = start(&["approve", "Taylor"]).wait_with_output().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    });
    // The number is not the first when somebody asked too early.
    assert!(approved.unwrap().starts_with("signal_received, command "));
    let output = waits.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.ends_with("Approved { approved_by: \"Taylor\", key: \"order-123\", run: \"1\" }\n"),
        "{printed} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
