//! Runs every workload through the binary with tiny numbers, so that none of them rots. The figures mean nothing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What the binary prints, and what went wrong if it fails.
fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_abide-bench"))
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Measures all workloads on a store, and returns the report; the plots are in that directory.
fn measured(store: &str, plots: &Path) -> Value {
    let plots = plots.to_str().unwrap();
    let report = bench(&[
        "--tiny", "--rounds", "1", "--json", "--store", store, "--plots", plots,
    ]);
    serde_json::from_str(&report).unwrap()
}

/// The names of what has a figure, and those of what has none.
fn names<'a>(report: &'a Value, of: &str) -> Vec<&'a str> {
    let rows = report[of].as_array().unwrap().iter();
    let mut names: Vec<&str> = rows.map(|row| row["workload"].as_str().unwrap()).collect();
    names.dedup();
    names
}

/// Figures that are no numbers, or none that could have been measured.
fn odd(report: &Value) -> Vec<&Value> {
    let rows = report["rows"].as_array().unwrap().iter();
    let odd = rows.filter(|row| {
        let number = |name: &str| row[name].as_f64().is_some_and(f64::is_finite);
        // There should be no deadlock, an engine may be idle, and few instances may need no more memory than was there.
        let may_be_none = row["part"] == "deadlocks"
            || ["DISK", "CACHE", "IDLE"].contains(&row["workload"].as_str().unwrap());
        !(number("ratio") && number("floor") && (may_be_none || row["ours"].as_f64() > Some(0.0)))
    });
    odd.collect()
}

/// What a step of a workload costs.
fn cost<'a>(report: &'a Value, workload: &str) -> &'a Value {
    let mut rows = report["rows"].as_array().unwrap().iter();
    &rows.find(|row| row["workload"] == workload).unwrap()["cost"]
}

/// What all stores have, in the order of the table; a build without the server measures no HTTP.
fn common() -> Vec<&'static str> {
    let all = [
        "W1",
        "W2",
        "W2F",
        "START",
        "W3a",
        "W3a-2",
        "W3b",
        "W3b-1k",
        "W3b-done",
        "HTTP",
        "W4-size",
        "W4-batch",
        "W5",
        "W6",
        "W6-held",
        "W7",
        "W8",
        "DISK",
        "CACHE",
        "MEM",
        "OUTBOX",
        "DUE",
        "REPLAY",
        "REPLAY-db",
        "IDLE",
    ];
    let measured = |name: &&str| *name != "HTTP" || cfg!(feature = "http");
    all.into_iter().filter(measured).collect()
}

#[test]
fn every_workload_runs_on_postgresql() {
    let plots = tempfile::tempdir().unwrap();
    let report = measured("postgres", plots.path());
    let skipped = names(&report, "skipped");
    // Where PostgreSQL's contrib package is missing, nothing counts statements.
    let counts = !skipped.contains(&"IDLE");
    let expected = common()
        .into_iter()
        .filter(|name| counts || *name != "IDLE");
    assert_eq!(names(&report, "rows"), expected.collect::<Vec<_>>());
    assert_eq!(odd(&report), Vec::<&Value>::new());
    for workload in ["W1", "W2", "W2F", "W3b"] {
        let cost = cost(&report, workload);
        let counted = |name: &str| cost[name].as_f64() > Some(0.0);
        assert!(
            counted("engine_cpu_s") && counted("log_bytes"),
            "{workload}: {cost}"
        );
        assert!(
            counted("database_cpu_s") && counted("statements") == counts,
            "{workload}: {cost}"
        );
        assert!(
            (0.0..=1.0).contains(&cost["hot_ratio"].as_f64().unwrap()),
            "{workload}: {cost}"
        );
    }
    for plot in ["rates-postgres", "cpu", "latency", "engines", "held"] {
        let svg = std::fs::read_to_string(plots.path().join(format!("{plot}.svg"))).unwrap();
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{plot}"
        );
    }
}

#[test]
fn every_workload_runs_on_sqlite() {
    let plots = tempfile::tempdir().unwrap();
    let report = measured("sqlite", plots.path());
    let without = ["W3a-2", "W8", "IDLE"];
    let expected = common().into_iter().filter(|name| !without.contains(name));
    assert_eq!(names(&report, "rows"), expected.collect::<Vec<_>>());
    assert_eq!(odd(&report), Vec::<&Value>::new());
    for workload in ["W1", "W2", "W2F", "W3b"] {
        let cost = cost(&report, workload);
        let counted = |name: &str| cost[name].as_f64() > Some(0.0);
        assert!(
            counted("engine_cpu_s") && counted("log_bytes"),
            "{workload}: {cost}"
        );
        assert!(
            cost["database_cpu_s"].is_null() && cost["statements"].is_null(),
            "{workload}: {cost}"
        );
    }
    assert!(plots.path().join("rates-sqlite.svg").exists());
}

#[test]
fn the_section_of_the_documentation_has_the_figures() {
    let section = bench(&[
        "--tiny",
        "--rounds",
        "1",
        "--only",
        "W1,DISK",
        "--store",
        "sqlite",
        "--markdown",
    ]);
    let has = |text: &str| section.lines().any(|line| line.starts_with(text));
    for line in [
        "- **computer**: ",
        "| workload |",
        "| W1 | sqlite |",
        "| DISK | sqlite |",
        "- **DISK on sqlite**: ",
    ] {
        assert!(has(line), "{line} is not in\n{section}");
    }
}
