//! The files of the workspace: where it is, which ones there are, and what they say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace: two levels above this crate.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The text of a file, named from the workspace's root.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn read(relative: &str) -> String {
    std::fs::read_to_string(root().join(relative))
        .unwrap_or_else(|error| panic!("{relative} cannot be read: {error}"))
}

/// All files that belong to the project, named from its root with `/`, in order: what git tracks or
/// would track, or, outside a git checkout, everything but build output and hidden folders.
#[must_use]
pub fn all() -> Vec<String> {
    let mut files: BTreeSet<String> = match from_git() {
        Some(files) => files,
        None => {
            let mut found = BTreeSet::new();
            walk(&root(), "", &mut found);
            found
        }
    };
    files.retain(|file| root().join(file).is_file());
    files.into_iter().collect()
}

/// The `.rs` files under `crates/`, test code and examples included.
#[must_use]
pub fn rust() -> Vec<String> {
    let mut files = all();
    files.retain(|file| file.starts_with("crates/") && file.ends_with(".rs"));
    files
}

/// The `.rs` files under `crates/*/src`.
#[must_use]
pub fn rust_sources() -> Vec<String> {
    let mut files = rust();
    files.retain(|file| file.split('/').nth(2) == Some("src"));
    files
}

/// Returns true if a file is at `path` or in the folder `path`; a path without `.rs` also means the file
/// of that name, so that `src/ops` covers `src/ops.rs` and `src/ops/claim.rs`.
#[must_use]
pub fn is_within(file: &str, path: &str) -> bool {
    match file.strip_prefix(path) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || rest == ".rs",
        None => false,
    }
}

fn from_git() -> Option<BTreeSet<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let files: BTreeSet<String> = text
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    (!files.is_empty()).then_some(files)
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if path.is_file() {
            found.insert(format!("{prefix}{name}"));
        } else if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            walk(&path, &format!("{prefix}{name}/"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(read("Cargo.toml").contains("[workspace]"));
    }

    #[test]
    fn a_place_is_a_file_or_a_folder_but_not_a_prefix_of_a_name() {
        assert!(is_within("a/src/ops.rs", "a/src/ops"));
        assert!(is_within("a/src/ops/claim.rs", "a/src/ops"));
        assert!(is_within("a/src/store.rs", "a/src/store.rs"));
        assert!(!is_within("a/src/operator.rs", "a/src/op"));
    }
}
