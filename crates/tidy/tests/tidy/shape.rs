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
