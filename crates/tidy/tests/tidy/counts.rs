//! The size of the project, counted: each figure has a limit, a little above what it is now, so that it grows only on
//! purpose. `cargo test -p abide-tidy counts -- --nocapture` prints them.

use abide_tidy::source::{Source, is_test_file};
use abide_tidy::{files, report};

/// What is counted, in which folder, and the most lines that it may have. Lower a limit when the figure has gone down.
const LINES_MAX: &[(&str, &str, usize)] = &[
    ("all crates", "crates/", 102_500),
    ("the store for SQLite", "crates/sqlite/src/", 6_700),
    ("the store for PostgreSQL", "crates/postgres/src/", 10_250),
    ("the store in memory", "crates/kernel/src/memory/", 3_300),
];

/// The most methods that a store must implement.
const METHODS_MAX: usize = 22;

/// The folders whose SQL may not contain the number of a status: the names are in `sql::NAMES`.
const STORES: &[&str] = &["crates/sqlite/src/", "crates/postgres/src/"];

#[test]
fn the_project_grows_only_on_purpose() {
    let counted = LINES_MAX
        .iter()
        .map(|(what, folder, most)| (format!("lines of {what}"), lines(folder), *most));
    let methods = (
        "methods that a store must implement".to_owned(),
        methods(),
        METHODS_MAX,
    );
    let mut problems = Vec::new();
    for (what, count, most) in counted.chain([methods]) {
        println!("{what}: {count} (at most {most})");
        if count > most {
            problems.push(format!("{what}: {count}, and the limit is {most}"));
        }
    }
    report(
        &problems,
        "make it smaller, or raise the limit in tests/tidy/counts.rs and say in the commit what it is for.",
    );
}

#[test]
fn no_statement_contains_the_number_of_a_status() {
    let mut problems = Vec::new();
    for file in production(|file| STORES.iter().any(|store| file.starts_with(store))) {
        let text = files::read(&file);
        let source = Source::parse(&text);
        for ((number, parsed), line) in source.lines().zip(text.lines()) {
            if !parsed.is_test && !line.trim_start().starts_with("//") && has_number(line) {
                problems.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    report(
        &problems,
        "write the name, as in `status = @runnable`, and put the statement into `sql!`; `sql::NAMES` has the names.",
    );
}

/// `true` if a line compares or sets a status to a number.
fn has_number(line: &str) -> bool {
    let mut after = line.split("status").skip(1);
    after.any(|rest| {
        let rest = rest.trim_start_matches([')', ' ']);
        let operator = ["<>", ">=", "<=", "=", "<", ">", "in ("];
        let value = operator.iter().find_map(|one| rest.strip_prefix(one));
        value.is_some_and(|value| value.trim_start().starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// The number of lines that are not test code, with comments and empty lines.
fn lines(folder: &str) -> usize {
    let files = production(|file| file.starts_with(folder));
    let lines = |file: &String| {
        let source = Source::parse(&files::read(file));
        source.lines().filter(|(_, line)| !line.is_test).count()
    };
    files.iter().map(lines).sum()
}

/// The source files that are not only test code.
fn production(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut files = files::rust_sources();
    files.retain(|file| is_wanted(file) && !is_test_file(file));
    files
}

/// The methods of `Store` and `Txn` that have no default: their signatures end with `;`.
fn methods() -> usize {
    ["store.rs", "txn.rs"]
        .map(|file| files::read(&format!("crates/kernel/src/{file}")))
        .iter()
        .map(|text| required(&Source::parse(text).production_code()))
        .sum()
}

fn required(code: &str) -> usize {
    let traits = code.split("pub trait ").skip(1);
    let bodies = traits
        .filter(|one| one.starts_with("Store:") || one.starts_with("Txn:"))
        .filter_map(|one| one.split("\n}").next());
    let methods = bodies.flat_map(|body| body.split("fn ").skip(1));
    methods
        .filter(|method| match (method.find(';'), method.find('{')) {
            (Some(end), Some(body)) => end < body,
            (end, _) => end.is_some(),
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_a_status_is_found() {
        assert!(has_number("where i.status = 2 and"));
        assert!(has_number("coalesce(a, status) in (4, 5)"));
        assert!(!has_number("status = ?2, due_at = 1"));
        assert!(!has_number("status in (@parked)"));
    }

    #[test]
    fn methods_with_a_default_are_not_counted() {
        let code = "pub trait Txn: Send {\n    fn a(&self) -> u8;\n    fn b(&self) -> u8 {\n        1\n    }\n    fn c(&self);\n}\n";
        assert_eq!(required(code), 2);
    }
}
