//! The project's documentation: links lead somewhere, the changelog keeps up, and no file
//! speaks of the place where it was made.

use std::path::{Component, Path, PathBuf};

use abide_tidy::listings::listings;
use abide_tidy::markdown::{anchors, links};
use abide_tidy::{files, report};

/// Words that no file may contain, in halves, so that this file does not contain them either.
const FORBIDDEN: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("SEMAN", "TICS.md"),
    ("DES", "IGN.md"),
    ("DEVEL", "OPERS.md"),
    ("artif", "actory"),
    ("Artif", "actory"),
];

#[test]
fn the_project_speaks_of_itself_alone() {
    let words: Vec<String> = FORBIDDEN.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut problems = Vec::new();
    for file in files::all() {
        // What is not text has no words.
        let Ok(text) = std::fs::read_to_string(files::root().join(&file)) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                problems.push(format!("{file}:{} has {word}", index + 1));
            }
        }
    }
    report(
        &problems,
        "say it without that word: a reader of the project has only the project. The table is \
         FORBIDDEN in crates/tidy/tests/tidy/docs.rs.",
    );
}

/// The pages whose tables name the tests that they rely on.
const PROOFS: [&str; 2] = ["docs/reliability.md", "docs/security.md"];

#[test]
fn the_tests_that_the_docs_rely_on_exist() {
    let all = files::all();
    let sources = all.iter().filter(|file| file.ends_with(".rs"));
    let sources: Vec<String> = sources.map(|file| files::read(file)).collect();
    let exists = |name: &str| match name.contains(['/', '.']) {
        true => all
            .iter()
            .any(|file| file == name || file.starts_with(&format!("{name}/"))),
        false => {
            let test = format!("fn {name}(");
            sources.iter().any(|source| source.contains(&test))
        }
    };
    let mut problems = Vec::new();
    for page in PROOFS {
        for (line, number) in files::read(page).lines().zip(1..) {
            let Some((_, last)) = line.trim_end_matches([' ', '|']).rsplit_once('|') else {
                continue;
            };
            let named = last.split('`').skip(1).step_by(2);
            let gone = named.filter(|name| !exists(name));
            problems.extend(gone.map(|name| format!("{page}:{number} names {name}")));
        }
    }
    report(
        &problems,
        "name the test, or the file, that checks this now; what no test checks is not to be promised.",
    );
}

#[test]
fn docs_links_resolve() {
    let all = files::all();
    let mut problems = Vec::new();
    for page in all.iter().filter(|file| file.ends_with(".md")) {
        for link in links(&files::read(page)) {
            if let Some(trouble) = trouble(page, &link.target) {
                problems.push(format!(
                    "{page}:{} links to {}: {trouble}",
                    link.line, link.target
                ));
            }
        }
    }
    report(
        &problems,
        "correct the link (it is relative to the page it stands on), or make what it leads to.",
    );
}

/// The pages whose programs are to be pasted and run.
const PASTED: [&str; 2] = ["README.md", "docs/tutorial.md"];

#[test]
fn listings_are_files_that_are_compiled() {
    let mut problems = Vec::new();
    for page in PASTED {
        let text = files::read(page);
        let found = listings(&text);
        let programs = text.lines().filter(|line| *line == "```rust").count();
        let named = found.iter().filter(|one| one.file.ends_with(".rs")).count();
        if named != programs {
            problems.push(format!(
                "{page} has {programs} Rust listings, and {named} say which file they are"
            ));
        }
        for listing in found {
            let whole = if listing.is_whole {
                "is not"
            } else {
                "is no part of"
            };
            match std::fs::read_to_string(files::root().join(&listing.file)) {
                Ok(file) if listing.is_in(&file) => {}
                Ok(_) => problems.push(format!("{page}:{} {whole} {}", listing.line, listing.file)),
                Err(error) => {
                    problems.push(format!("{page}:{} {}: {error}", listing.line, listing.file))
                }
            }
        }
    }
    report(
        &problems,
        "write `<!-- file: PATH -->` above a listing, or `<!-- part of: PATH -->`, and copy it from that file.",
    );
}

#[test]
fn the_program_of_the_readme_needs_no_other_crate() {
    let program = files::read("crates/abide/examples/hello.rs");
    let others = ["tokio", "serde", "schemars"];
    let problems: Vec<String> = others
        .iter()
        .filter(|name| program.contains(*name))
        .map(|name| format!("crates/abide/examples/hello.rs names {name}"))
        .collect();
    report(
        &problems,
        "a first program has `abide` alone among its dependencies: use what `abide` exports.",
    );
}

#[test]
fn the_index_leads_to_every_page() {
    const INDEX: &str = "docs/README.md";
    let linked: Vec<String> = links(&files::read(INDEX))
        .into_iter()
        .map(|link| link.target)
        .collect();
    let pages = files::all();
    let pages = pages.iter().filter_map(|file| file.strip_prefix("docs/"));
    let pages = pages.filter(|page| page.ends_with(".md") && *page != "README.md");
    let problems: Vec<String> = pages
        .filter(|page| !linked.iter().any(|target| target == page))
        .map(|page| format!("{INDEX} does not lead to {page}"))
        .collect();
    report(
        &problems,
        "add a line for it, under what its reader wants to do.",
    );
}

/// The problem of a link on a page; `None` when it leads somewhere or out of the project.
fn trouble(page: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => PathBuf::from(page),
        path => match path.strip_prefix('/') {
            Some(from_root) => PathBuf::from(from_root),
            None => normal(&Path::new(page).parent().unwrap_or(Path::new("")).join(path)),
        },
    };
    if !files::root().join(&file).exists() {
        return Some("there is no such file");
    }
    let name = file.to_string_lossy();
    let has_anchor = anchor.is_empty()
        || !name.ends_with(".md")
        || anchors(&files::read(&name)).contains(anchor);
    (!has_anchor).then_some("that page has no such heading")
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn changelog_has_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let page = std::fs::read_to_string(files::root().join("CHANGELOG.md")).unwrap_or_default();
    let has_entry = page.lines().any(|line| {
        let heading = line.strip_prefix("## ").unwrap_or_default();
        let name = heading.split_whitespace().next().unwrap_or_default();
        let name = name.trim_matches(['[', ']']).trim_start_matches('v');
        name == version || name.eq_ignore_ascii_case("unreleased")
    });
    let problem = format!("CHANGELOG.md has neither `## {version}` nor `## Unreleased`");
    let problems = if has_entry { vec![] } else { vec![problem] };
    report(
        &problems,
        "write down what changed for the user, under one of these headings.",
    );
}
