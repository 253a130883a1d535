//! Statements through the `psql` client, so that no driver is needed here.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::binaries;

/// Runs one statement in the database at `url` and returns its rows: one line each, columns parted by `|`.
///
/// Meant for setting up and for looking: each call starts a process.
///
/// # Panics
///
/// When `psql` is not installed, the server cannot be reached, or the statement fails.
pub fn psql(url: &str, statement: &str) -> String {
    static PSQL: OnceLock<PathBuf> = OnceLock::new();
    let psql = PSQL.get_or_init(binaries::psql);
    let output = Command::new(psql)
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
        .args(["-d", url, "-c", statement])
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", psql.display()));
    assert!(
        output.status.success(),
        "psql failed on `{statement}`: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}
