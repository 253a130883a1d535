//! Dependencies: every one has a licence that `deny.toml` allows and comes from the registry. `cargo deny` checks the same and
//! more, where it is installed.

use abide_tidy::licence::is_met;
use abide_tidy::{cargo, files, report};

/// The one registry that packages come from, as cargo names it in `Cargo.lock`.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn licences_are_allowed() {
    let settings: toml::Table = files::read("deny.toml").parse().unwrap();
    let allowed = settings["licenses"]["allow"].as_array().unwrap();
    let allows = |licence: &str| allowed.iter().any(|one| one.as_str() == Some(licence));
    let mut problems = Vec::new();
    for package in cargo::everything() {
        let package_id = format!("{} {}", package.name, package.version);
        let Some(licence) = package.licence else {
            problems.push(format!("{package_id} states no licence"));
            continue;
        };
        match is_met(&licence, &allows) {
            Ok(true) => {}
            Ok(false) => problems.push(format!("{package_id} is under `{licence}`")),
            Err(error) => problems.push(format!("{package_id} states `{licence}`: {error}")),
        }
    }
    report(
        &problems,
        "find another dependency, or, if the licence is as free as those we have, add it to `allow` \
         in deny.toml (`cargo tree -i <name>` shows what brings it in).",
    );
}

#[test]
fn dependencies_come_from_the_registry() {
    let mut problems = Vec::new();
    for package in cargo::everything() {
        if let Some(source) = package.source.filter(|source| source != REGISTRY) {
            problems.push(format!(
                "{} {} comes from {source}",
                package.name, package.version
            ));
        }
    }
    // The lock file also has what other platforms need.
    for line in files::read("Cargo.lock").lines() {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != REGISTRY
        {
            problems.push(format!("Cargo.lock has a package from {source}"));
        }
    }
    report(
        &problems,
        "depend on a released version from crates.io instead of a git or other source.",
    );
}
