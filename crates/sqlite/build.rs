//! Finds out which release of rusqlite this is built with: its hook for the write-ahead log is fit for use from 0.41 on.
//!
//! A program links one SQLite, so that its own driver decides which of the accepted releases of rusqlite it gets. Cargo tells
//! a build script no version of a dependency; but libsqlite3-sys says where its headers are, its manifest lies beside them,
//! and release 0.n of it belongs to release 0.(n + 2) of rusqlite. Where that cannot be found, SQLite keeps its log by itself.

use std::path::Path;
use std::{env, fs};

/// The first release of libsqlite3-sys whose rusqlite has the hook.
const HOOKED: u32 = 39;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(wal_hook)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_SQLITE3_INCLUDE");
    let headers = env::var_os("DEP_SQLITE3_INCLUDE").unwrap_or_default();
    if release(Path::new(&headers)).is_some_and(|release| release >= HOOKED) {
        println!("cargo::rustc-cfg=wal_hook");
    }
}

/// The release of libsqlite3-sys, 0.n, whose headers these are.
fn release(headers: &Path) -> Option<u32> {
    let manifest = fs::read_to_string(headers.parent()?.join("Cargo.toml")).ok()?;
    let is_it = manifest
        .lines()
        .any(|line| line.trim() == r#"name = "libsqlite3-sys""#);
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix(r#"version = "0."#))?;
    let release = version.split('.').next()?.parse().ok()?;
    is_it.then_some(release)
}
