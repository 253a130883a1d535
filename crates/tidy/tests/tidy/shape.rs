//! The form of every source file: it says what lives there, and it is not too long.

use abide_tidy::{files, report};

/// No source file has more lines than this.
const LINES_MAX: usize = 900;

/// Files with more lines than this are listed, to be reviewed.
const LINES_TO_LOOK_AT: usize = 500;

#[test]
fn every_file_says_what_lives_there() {
    let problems: Vec<String> = files::rust_sources()
        .into_iter()
        .filter(|file| {
            let text = files::read(file);
            let first = text.lines().next().unwrap_or_default();
            first
                .strip_prefix("//!")
                .is_none_or(|text| text.trim().is_empty())
        })
        .collect();
    report(
        &problems,
        "begin each of these files with a line `//! …` that says what lives there.",
    );
}

#[test]
fn no_file_is_too_long() {
    let mut problems = Vec::new();
    for file in files::rust_sources() {
        let lines = files::read(&file).lines().count();
        if lines > LINES_MAX {
            problems.push(format!("{file} has {lines} lines"));
        } else if lines > LINES_TO_LOOK_AT {
            println!("look twice: {file} has {lines} lines");
        }
    }
    let advice = format!("split it by ideas: a source file has at most {LINES_MAX} lines.");
    report(&problems, &advice);
}

/// The file is in a test binary: a `mod` line names it, or its crate's `Cargo.toml` does.
#[test]
fn every_test_file_is_compiled() {
    let mut problems = Vec::new();
    let mut files = files::rust();
    files.retain(|file| file.split('/').nth(2) == Some("tests"));
    for file in &files {
        let folder = file.split_inclusive('/').take(3).collect::<String>();
        let manifest = files::read(&folder.replace("tests/", "Cargo.toml"));
        let (_, path) = file.split_at(folder.len());
        let is_root = manifest.contains(&format!("path = \"tests/{path}\""));
        if is_root || !manifest.contains("autotests = false") {
            continue;
        }
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let (parent, name) = module.rsplit_once('/').unwrap_or(("", module));
        let line = format!("mod {name};");
        let roots = [format!("{parent}/mod.rs"), format!("{parent}/main.rs")];
        let says = |root: &String| files::read(root).lines().any(|one| one.ends_with(&line));
        if !roots.iter().any(|root| files.contains(root) && says(root)) {
            problems.push(file.clone());
        }
    }
    report(
        &problems,
        "these files are in no test binary: add a `mod` line for each to the `main.rs` or `mod.rs` beside it.",
    );
}
