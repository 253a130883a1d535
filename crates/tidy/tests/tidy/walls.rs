//! Allowed dependencies: between the crates, between the modules inside one, and what `core` may
//! not touch. To change a wall, change its table.

use std::collections::BTreeMap;

use abide_tidy::cargo::members;
use abide_tidy::paths::{in_code, module_of, reexports, resolve};
use abide_tidy::source::{Source, is_test_file};
use abide_tidy::{files, report};

/// Dependencies that one crate may have.
struct Crate {
    name: &'static str,
    /// Which of ours it may use.
    uses: &'static [&'static str],
    /// Which of ours its tests may use besides.
    tests_use: &'static [&'static str],
    /// Which of others' it may not use, not even in tests.
    avoids: &'static [&'static str],
}

const SQL: &[&str] = &[
    "rusqlite",
    "libsqlite3-sys",
    "tokio-postgres",
    "postgres",
    "deadpool-postgres",
    "sqlx",
];

const CRATES: &[Crate] = &[
    Crate {
        name: "abide-core",
        uses: &[],
        tests_use: &[],
        avoids: &[
            "tokio",
            "rusqlite",
            "tokio-postgres",
            "rand",
            "fastrand",
            "getrandom",
        ],
    },
    Crate {
        name: "abide-macros",
        uses: &[],
        tests_use: &[],
        avoids: SQL,
    },
    Crate {
        name: "abide-pgtest",
        uses: &[],
        tests_use: &[],
        avoids: &["rusqlite"],
    },
    Crate {
        name: "abide-kernel",
        uses: &["abide-core"],
        tests_use: &[],
        avoids: SQL,
    },
    Crate {
        name: "abide-sqlite",
        uses: &["abide-core", "abide-kernel"],
        tests_use: &[],
        avoids: &["tokio-postgres"],
    },
    Crate {
        name: "abide-postgres",
        uses: &["abide-core", "abide-kernel"],
        tests_use: &["abide-pgtest"],
        avoids: &["rusqlite"],
    },
    Crate {
        name: "abide-remote",
        uses: &["abide-core", "abide-kernel"],
        tests_use: &["abide", "abide-sqlite"],
        avoids: SQL,
    },
    Crate {
        name: "abide",
        uses: &[
            "abide-remote",
            "abide-core",
            "abide-kernel",
            "abide-macros",
            "abide-sqlite",
            "abide-postgres",
        ],
        tests_use: &["abide-pgtest"],
        avoids: &["axum", "clap"],
    },
    Crate {
        name: "abide-nats",
        uses: &["abide"],
        tests_use: &["abide-kernel"],
        avoids: SQL,
    },
    Crate {
        name: "abide-server",
        uses: &["abide", "abide-core", "abide-kernel", "abide-nats"],
        tests_use: &["abide-pgtest"],
        avoids: SQL,
    },
    Crate {
        name: "orders",
        uses: &["abide"],
        tests_use: &[],
        avoids: SQL,
    },
    Crate {
        name: "abide-bench",
        uses: &[
            "abide",
            "abide-core",
            "abide-kernel",
            "abide-sqlite",
            "abide-postgres",
            "abide-pgtest",
            "abide-server",
        ],
        tests_use: &[],
        avoids: &[],
    },
    Crate {
        name: "abide-instructions",
        uses: &["abide-kernel"],
        tests_use: &[],
        avoids: SQL,
    },
    Crate {
        name: "abide-tidy",
        uses: &[],
        tests_use: &[],
        avoids: &[],
    },
];

/// A path that may not use some modules of its own crate. A path is a folder or a file, without
/// `.rs`; test code is free.
struct Wall {
    path: &'static str,
    avoids: &'static [&'static str],
    why: &'static str,
}

const WALLS: &[Wall] = &[
    Wall {
        path: "crates/core/src/model",
        avoids: &["crate::rules"],
        why: "the nouns know nothing of what follows from them",
    },
    Wall {
        path: "crates/kernel/src/store",
        avoids: &["crate::ops", "crate::memory", "crate::conformance"],
        why: "the traits know neither their callers nor their implementations",
    },
    Wall {
        path: "crates/kernel/src/ops",
        avoids: &["crate::memory", "crate::conformance"],
        why: "an operation is the same on every store",
    },
    Wall {
        path: "crates/abide/src/engine",
        avoids: &["crate::machine", "crate::client", "crate::testing"],
        why: "the engine knows a Runner, not what is behind it or what started it",
    },
    Wall {
        path: "crates/abide/src/machine",
        avoids: &["crate::client", "crate::testing"],
        why: "a front is run by the engine and does not call the application's side",
    },
];

/// Items that the code of `core` may not name: it has no clock, no randomness, no I/O.
const IMPURE_PATHS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::fs",
    "std::net",
    "std::env",
    "std::io",
    "std::process",
    "std::thread",
    "rand",
    "tokio",
];

/// Words that the code of `core` may not have.
const IMPURE_WORDS: &[&str] = &["async fn", "async move", ".await"];

#[test]
fn walls_hold_between_crates() {
    let mut problems = Vec::new();
    let packages = members();
    let ours: Vec<&str> = packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    for package in &packages {
        let Some(wall) = CRATES.iter().find(|wall| wall.name == package.name) else {
            problems.push(format!("{} is not in the table of crates", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let fits = wall.uses.contains(&name)
                || (dependency.is_dev && (wall.tests_use.contains(&name) || name == package.name));
            if ours.contains(&name) && !fits {
                problems.push(format!("{} may not depend on {name}", package.name));
            }
            if wall.avoids.contains(&name) {
                problems.push(format!(
                    "{} may not depend on {name}, not even in tests",
                    package.name
                ));
            }
        }
    }
    report(
        &problems,
        "move the code to the crate that may know both, or hand it in through a trait. A new crate \
         gets a line in CRATES in crates/tidy/tests/tidy/walls.rs.",
    );
}

#[test]
fn walls_hold_inside_crates() {
    let mut problems = Vec::new();
    let sources = files::rust_sources();
    let mut roots: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for wall in WALLS {
        let files: Vec<&String> = sources
            .iter()
            .filter(|file| files::is_within(file, wall.path))
            .collect();
        if files.is_empty() {
            problems.push(format!("the wall at {} stands around nothing", wall.path));
        }
        for file in files.into_iter().filter(|file| !is_test_file(file)) {
            let Some((home, path_in_src)) = file.split_once("/src/") else {
                continue;
            };
            let exported = roots.entry(home.to_owned()).or_insert_with(|| {
                let lib = format!("{home}/src/lib.rs");
                reexports(&Source::parse(&files::read(&lib)).production_code())
            });
            let module = module_of(path_in_src);
            for named in in_code(&Source::parse(&files::read(file)).production_code()) {
                let mut path = resolve(&named.path, &module);
                // `crate::Client` is really `crate::client::Client`.
                if let [root, name, ..] = path.as_slice()
                    && root == "crate"
                    && let Some(real) = exported.get(name)
                {
                    path.clone_from(real);
                }
                let path = path.join("::");
                if wall
                    .avoids
                    .iter()
                    .any(|avoided| begins_with(&path, avoided))
                {
                    let line = named.line;
                    problems.push(format!("{file}:{line} uses {path}, but {}", wall.why));
                }
            }
        }
    }
    report(
        &problems,
        "turn the dependency around: move what both need downward, or hand it in as an argument or a \
         trait. If a path was renamed, change WALLS in crates/tidy/tests/tidy/walls.rs.",
    );
}

#[test]
fn core_is_pure() {
    let mut problems = Vec::new();
    let sources = files::rust_sources();
    for file in sources
        .iter()
        .filter(|file| file.starts_with("crates/core/"))
    {
        if is_test_file(file) {
            continue;
        }
        let code = Source::parse(&files::read(file)).production_code();
        for named in in_code(&code) {
            let path = named.path.join("::");
            if let Some(impure) = IMPURE_PATHS.iter().find(|impure| names(&path, impure)) {
                problems.push(format!("{file}:{} names {impure}", named.line));
            }
        }
        for (index, line) in code.lines().enumerate() {
            for word in IMPURE_WORDS.iter().filter(|word| has_word(line, word)) {
                problems.push(format!("{file}:{} has `{word}`", index + 1));
            }
        }
    }
    report(
        &problems,
        "core decides and does nothing: take the time, the random number or the contents as an \
         argument, and let the kernel or the engine fetch it.",
    );
}

/// Returns true if a path is `start` or lies in it.
fn begins_with(path: &str, start: &str) -> bool {
    path.strip_prefix(start)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Returns true if a path is in `wanted`, or, for a type's function, ends with it: `jiff::Timestamp::now`.
fn names(path: &str, wanted: &str) -> bool {
    begins_with(path, wanted) || path.ends_with(&format!("::{wanted}")) && wanted.contains("::")
}

/// Returns true if code has a word, and not only the beginning of a longer one.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let after = code.get(at + word.len()..).unwrap_or_default();
        !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    })
}
