//! Requirements of the registry for a crate, and what a reader there expects of it.

use std::collections::BTreeMap;

use abide_tidy::cargo::{Package, members, outsiders};
use abide_tidy::{files, report};

/// The registry takes no more keywords.
const KEYWORDS_MAX: usize = 5;

/// The crates that are published, by name.
fn published() -> BTreeMap<String, Package> {
    let all = members().into_iter().chain(outsiders());
    let published = all.filter(|one| one.is_published);
    published.map(|one| (one.name.clone(), one)).collect()
}

#[test]
fn each_published_crate_says_what_the_registry_asks_for() {
    let published = published();
    for name in ["abide", "abide-server", "abide-sqlx"] {
        assert!(published.contains_key(name), "{name} is published");
    }
    let mut problems = Vec::new();
    for (name, package) in &published {
        let missing = [
            ("description", package.description.is_none()),
            ("license", package.licence.is_none()),
            ("readme", package.readme.is_none()),
            ("rust-version", package.rust_version.is_none()),
            ("keywords", package.keywords.is_empty()),
            ("categories", package.categories.is_empty()),
        ];
        let missing = missing.iter().filter(|(_, is_missing)| *is_missing);
        problems.extend(missing.map(|(field, _)| format!("{name} has no {field}")));
        if package.keywords.len() > KEYWORDS_MAX {
            problems.push(format!("{name} has more than {KEYWORDS_MAX} keywords"));
        }
        for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
            // A link that a checkout has lost is a file with a path in it.
            match std::fs::read_to_string(package.folder.join(file)) {
                Ok(text) if text == files::read(file) => {}
                Ok(_) => problems.push(format!("{name} has another {file} than the root")),
                Err(_) => problems.push(format!("{name} has no {file}")),
            }
        }
    }
    report(
        &problems,
        "take it from the workspace in the crate's Cargo.toml (`readme.workspace = true`); copy the licences from the root. A \
         crate that is not meant for others has `publish = false`.",
    );
}

#[test]
fn published_crates_name_a_version_of_each_other() {
    let published = published();
    let own: Vec<String> = members().into_iter().map(|one| one.name).collect();
    let mut problems = Vec::new();
    for (name, package) in &published {
        for dependency in package.dependencies.iter().filter(|one| !one.is_dev) {
            let other = &dependency.name;
            match published.get(other) {
                Some(package) => {
                    let expected = format!("^{}", package.version);
                    if dependency.versions != expected {
                        let versions = &dependency.versions;
                        problems.push(format!(
                            "{name} asks for {other} {versions:?}, which is not {expected:?}"
                        ));
                    }
                }
                None if own.contains(other) => {
                    problems.push(format!("{name} needs {other}, which is not published"));
                }
                None => {}
            }
        }
    }
    report(
        &problems,
        "give path and version in the root's Cargo.toml: abide = { path = \"crates/abide\", version = \"0.1.0\" }.",
    );
}
