//! The names at the root of the library: few enough to read, the rest in modules.

use std::collections::BTreeSet;

use abide_tidy::source::Source;
use abide_tidy::{files, report};

/// The root of the library.
const LIB: &str = "crates/abide/src/lib.rs";

/// The root has at most this many names. A module is one; a trait and its derive are one.
const NAMES_MAX: usize = 40;

/// What a public item begins with, after `pub`.
const ITEMS: &[&str] = &[
    "mod", "struct", "enum", "union", "trait", "type", "const", "static", "fn",
];

/// The public names at the top of a file, hidden ones too; `*` for each glob.
fn names(text: &str) -> Vec<String> {
    let code = Source::parse(text).production_code();
    let (mut names, mut globs) = (BTreeSet::new(), Vec::new());
    for item in items(&code) {
        let words: Vec<&str> = item.split_whitespace().collect();
        let Some(public) = words.iter().position(|word| *word == "pub") else {
            continue;
        };
        let words = words.get(public + 1..).unwrap_or_default();
        if let Some((&"use", paths)) = words.split_first() {
            for name in paths.join(" ").split([',', '{', '}']).map(leaf) {
                match name {
                    "" => {}
                    "*" => globs.push(name.to_owned()),
                    name => drop(names.insert(name.to_owned())),
                }
            }
        } else if let Some(kind) = words.iter().position(|word| ITEMS.contains(word)) {
            // `const fn`: the name follows the last of them.
            let after = words.iter().skip(kind);
            let name = after.copied().find(|word| !ITEMS.contains(word));
            let name = name.unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            names.insert(
                name.get(..end.unwrap_or(name.len()))
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
    names.into_iter().chain(globs).collect()
}

/// The items at the top of a file, each as its text, without what is in its braces. Those of a `use` stay.
fn items(code: &str) -> Vec<String> {
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0_usize);
    for c in code.chars() {
        let is_use = item.split_whitespace().any(|word| word == "use");
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = depth == 0 && (c == ';' || c == '}' && !is_use);
        if ends {
            items.push(std::mem::take(&mut item));
        } else if depth == 0 || is_use {
            item.push(c);
        }
    }
    items
}

/// The name that one path of a `use` brings in; empty if it only begins a group.
fn leaf(path: &str) -> &str {
    let name = path.rsplit_once(" as ").map_or(path, |(_, alias)| alias);
    name.rsplit("::").next().unwrap_or_default().trim()
}

#[test]
fn the_root_of_the_library_has_few_names() {
    let names = names(&files::read(LIB));
    println!("{LIB} has {} names: {}", names.len(), names.join(" "));
    let mut problems = Vec::new();
    if names.len() > NAMES_MAX {
        problems.push(format!(
            "{LIB} has {} public names, and may have {NAMES_MAX}: {}",
            names.len(),
            names.join(", ")
        ));
    }
    if names.iter().any(|name| name == "*") {
        problems.push(format!("{LIB} exports a glob, whose names are not counted"));
    }
    report(
        &problems,
        "export the new name from the module that it belongs to (`abide::client`, `abide::machine`, …), not from the root.",
    );
}

#[test]
fn names_are_found_however_they_are_exported() {
    let text = "//! pub use not::this;\npub mod a;\nmod b;\n#[cfg(feature = \"c\")]\npub mod c { pub use d::E; }\n\
                pub use crate::f::{g::{H}, I as J,\n    K};\npub use l;\npub use m::*;\npub(crate) use n::O;\n\
                pub const fn p() -> u8 { 0 }\npub struct Q<T>(T);\nstruct R;\nfn s() { let pub_ = 1; }\n\
                #[cfg(test)]\npub mod tests {}\npub use t::K;\n";
    assert_eq!(names(text), ["H", "J", "K", "Q", "a", "c", "l", "p", "*"]);
}
