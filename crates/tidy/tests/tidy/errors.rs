//! Printing of our errors: a `main` that returns one, and an `unwrap`, print `Debug`, and must show readable text.

use abide_tidy::source::{Source, is_test_file};
use abide_tidy::{files, report};

/// The public types of a file that are errors: their names, and whether `Debug` is derived.
fn errors(text: &str) -> Vec<(String, bool)> {
    let code = Source::parse(text).production_code();
    let mut found = Vec::new();
    let mut derived: Vec<&str> = Vec::new();
    let mut lines = code.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(list) = line.strip_prefix("#[derive(") {
            // A long list goes on over the next lines.
            let mut list = Some(list);
            while let Some(some) = list {
                derived.extend(
                    some.split([',', ')', ']', ' '])
                        .filter(|one| !one.is_empty()),
                );
                list = if some.contains(")]") {
                    None
                } else {
                    lines.next()
                };
            }
        } else if let Some(item) = line
            .strip_prefix("pub struct ")
            .or(line.strip_prefix("pub enum "))
        {
            let name = item
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            let is_error = derived
                .iter()
                .any(|one| *one == "Error" || one.ends_with("::Error"))
                || code.contains(&format!("error::Error for {name} "));
            if is_error {
                found.push((name.to_owned(), derived.contains(&"Debug")));
            }
            derived.clear();
        } else if [
            "fn ",
            "impl ",
            "struct ",
            "enum ",
            "pub(crate)",
            "pub(super)",
        ]
        .iter()
        .any(|one| line.starts_with(one))
        {
            derived.clear();
        }
    }
    found
}

#[test]
fn errors_print_their_text_as_debug_too() {
    let (mut problems, mut known) = (Vec::new(), Vec::new());
    for file in files::rust_sources() {
        let is_ours = ["bench", "pgtest", "tidy", "tutorial"];
        if is_test_file(&file)
            || is_ours
                .iter()
                .any(|one| file.starts_with(&format!("crates/{one}/")))
        {
            continue;
        }
        for (name, derives) in errors(&files::read(&file)) {
            if derives {
                problems.push(format!("{file}: `{name}` derives `Debug`"));
            }
            known.push(name);
        }
    }
    for name in [
        "BadGraph",
        "Error",
        "NotDone",
        "NotJson",
        "NotUndone",
        "Refusal",
        "ValidationErrors",
    ] {
        assert!(
            known.iter().any(|one| one == name),
            "{name} is not among {known:?}"
        );
    }
    report(
        &problems,
        "`fn main() -> Result<(), Box<dyn Error>>` prints `Debug`: take it from the derives and write \
         `abide_core::debug_is_display!(Name);` under the type, so that the text for people is printed.",
    );
}

#[test]
fn errors_are_found_however_they_are_written() {
    let text = "#[derive(\n    Clone,\n    Debug,\n    thiserror::Error,\n)]\n#[error(\"no\")]\npub struct One;\n\
                #[derive(thiserror::Error)]\npub enum Two {}\n\
                #[derive(Debug)]\npub struct Three(u8);\nimpl std::error::Error for Three {}\n\
                #[derive(Debug)]\npub struct Plain;\n\
                #[derive(Debug, thiserror::Error)]\npub(crate) struct Own;\npub struct Next;\n";
    let found = [("One", true), ("Two", false), ("Three", true)];
    assert_eq!(
        errors(text),
        found.map(|(name, derives)| (name.to_owned(), derives))
    );
}
