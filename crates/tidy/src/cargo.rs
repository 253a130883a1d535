//! The workspace as cargo knows it: its packages and their dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::files::root;

/// A package that cargo knows.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence expression, if it states one.
    pub licence: Option<String>,
    /// Its description, if it has one.
    pub description: Option<String>,
    /// The file that tells more, from its folder on.
    pub readme: Option<String>,
    /// The oldest Rust that it is built with.
    pub rust_version: Option<String>,
    /// Words to find it by.
    pub keywords: Vec<String>,
    /// The categories that it is in.
    pub categories: Vec<String>,
    /// `true` if it is published.
    pub is_published: bool,
    /// Its folder.
    pub folder: PathBuf,
    /// Where it comes from; `None` is a path in the workspace.
    pub source: Option<String>,
    /// The dependencies of its manifest.
    pub dependencies: Vec<Dependency>,
}

/// A dependency as a manifest states it.
#[derive(Debug)]
pub struct Dependency {
    /// The name of the package, not what it may be renamed to.
    pub name: String,
    /// `true` if only tests, examples and benches have it.
    pub is_dev: bool,
    /// The versions that are allowed; `*` when none are stated.
    pub versions: String,
}

/// The workspace's own packages.
///
/// # Panics
/// When cargo fails.
#[must_use]
pub fn members() -> Vec<Package> {
    match metadata(&["--no-deps"]) {
        Ok(packages) => packages,
        Err(error) => panic!("cargo metadata failed:\n{error}"),
    }
}

/// The project's packages that are not members, because they have a workspace of their own.
///
/// # Panics
/// When cargo fails.
#[must_use]
pub fn outsiders() -> Vec<Package> {
    let read = |folder: &str| {
        let manifest = root().join(folder).join("Cargo.toml");
        let manifest = manifest.to_string_lossy().into_owned();
        match metadata(&["--no-deps", "--manifest-path", &manifest]) {
            Ok(packages) => packages,
            Err(error) => panic!("cargo metadata failed for {folder}:\n{error}"),
        }
    };
    ["crates/sqlx"].into_iter().flat_map(read).collect()
}

/// Every package that the workspace can be built from, with all features: for all platforms if
/// cargo has them at hand, else for this one.
///
/// # Panics
/// When cargo fails for this platform too.
#[must_use]
pub fn everything() -> Vec<Package> {
    if let Ok(packages) = metadata(&["--all-features"]) {
        return packages;
    }
    let host = host();
    println!("note: not all platforms' packages are at hand; looking at those for {host} only");
    match metadata(&["--all-features", "--filter-platform", &host]) {
        Ok(packages) => packages,
        Err(error) => panic!("cargo metadata failed (run `cargo fetch` once?):\n{error}"),
    }
}

fn metadata(options: &[&str]) -> Result<Vec<Package>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(options)
        .current_dir(root())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(list(&metadata, "packages").map(package).collect())
}

fn package(value: &Value) -> Package {
    Package {
        name: text(value, "name").unwrap_or_default(),
        version: text(value, "version").unwrap_or_default(),
        licence: text(value, "license"),
        description: text(value, "description"),
        readme: text(value, "readme"),
        rust_version: text(value, "rust_version"),
        keywords: texts(value, "keywords"),
        categories: texts(value, "categories"),
        // No list means no limit; an empty one is nowhere.
        is_published: value.get("publish").is_none_or(Value::is_null),
        folder: Path::new(&text(value, "manifest_path").unwrap_or_default())
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default(),
        source: text(value, "source"),
        dependencies: list(value, "dependencies")
            .map(|dependency| Dependency {
                name: text(dependency, "name").unwrap_or_default(),
                is_dev: text(dependency, "kind").as_deref() == Some("dev"),
                versions: text(dependency, "req").unwrap_or_default(),
            })
            .collect(),
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field)?.as_str().map(str::to_owned)
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let texts = list(value, field).filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn host() -> String {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("-vV").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.unwrap_or("x86_64-unknown-linux-gnu").to_owned()
}
