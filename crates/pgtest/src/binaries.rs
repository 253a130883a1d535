//! Where PostgreSQL is installed.

use std::path::{Path, PathBuf};

/// The message when a program is missing.
const INSTALL: &str = "run `make setup`, or install PostgreSQL (the Debian package is `postgresql`) and put its programs in PATH";

/// Where Debian keeps its versions, `15/bin` and so on; most of them are not in PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory that holds `initdb` and `postgres`: that of PATH, else the newest of Debian's.
pub fn server_directory() -> PathBuf {
    server_directories()
        .find(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
        .unwrap_or_else(|| panic!("no PostgreSQL server: `initdb` and `postgres` are neither in PATH nor in {DEBIAN}: {INSTALL}"))
}

/// The client `psql`: the one beside the server, else that of PATH.
pub fn psql() -> PathBuf {
    server_directories()
        .chain(path_directories())
        .map(|bin| bin.join("psql"))
        .find(|psql| psql.is_file())
        .unwrap_or_else(|| panic!("no `psql`, neither in PATH nor in {DEBIAN}: {INSTALL}"))
}

fn server_directories() -> impl Iterator<Item = PathBuf> {
    path_directories()
        .into_iter()
        .filter_map(|directory| real_directory(&directory.join("initdb")))
        .chain(newest_first(Path::new(DEBIAN)))
}

fn path_directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

/// The directory a program really is in: links to `initdb` are common, and `postgres` need not be linked beside it.
fn real_directory(program: &Path) -> Option<PathBuf> {
    let program = program.canonicalize().ok()?;
    program.parent().map(Path::to_path_buf)
}

/// The `bin` directories of the versions below `root`.
fn newest_first(root: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let major = entry
                .file_name()
                .to_str()?
                .split('.')
                .next()?
                .parse()
                .ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

#[cfg(test)]
mod tests {
    use super::newest_first;

    #[test]
    fn versions_are_ordered_as_numbers() {
        let root =
            std::env::temp_dir().join(format!("abide-pgtest-versions-{}", std::process::id()));
        for version in ["9.6", "10", "17", "2", "lost+found"] {
            std::fs::create_dir_all(root.join(version)).unwrap();
        }
        let found = newest_first(&root);
        std::fs::remove_dir_all(&root).unwrap();
        let expected: Vec<_> = ["17", "10", "9.6", "2"]
            .map(|version| root.join(version).join("bin"))
            .into();
        assert_eq!(found, expected);
    }

    #[test]
    fn no_directory_means_no_versions() {
        assert!(newest_first("/nonexistent/abide".as_ref()).is_empty());
    }
}
