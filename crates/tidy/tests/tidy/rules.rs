//! Every rule of `docs/rules.md` is pinned by a test that names it in a comment.

use std::collections::{BTreeMap, BTreeSet};

use abide_tidy::rules::{Mentions, Number, in_page};
use abide_tidy::{files, report};

/// The page that has the rules.
const PAGE: &str = "docs/rules.md";

/// This crate speaks of rules in general and tests none of them.
const NOT_LOOKED_AT: &str = "crates/tidy/";

/// The rules that have no test yet, and why. The page marks the same ones as planned. This list only
/// shrinks: a change that builds a feature takes its rules out of here, and the mark off the page.
const OPEN: &[(&[Number], &str)] = &[];

fn open() -> BTreeMap<Number, &'static str> {
    OPEN.iter()
        .flat_map(|(rules, why)| rules.iter().map(|rule| (*rule, *why)))
        .collect()
}

fn mentions() -> Mentions {
    let mut mentions = Mentions::default();
    for file in files::rust() {
        if !file.starts_with(NOT_LOOKED_AT) {
            mentions.add(&file, &files::read(&file));
        }
    }
    mentions
}

#[test]
fn every_rule_has_a_test() {
    let (open, mentions) = (open(), mentions());
    let mut problems = Vec::new();
    for rule in in_page(&files::read(PAGE)) {
        match (open.get(&rule.number), mentions.in_tests.get(&rule.number)) {
            (None, None) => problems.push(format!("rule {} has no test", rule.number)),
            (Some(why), Some(locations)) => problems.push(format!(
                "rule {} is listed as open (\"{why}\") but has a test: {}",
                rule.number,
                locations.join(", "),
            )),
            _ => {}
        }
    }
    report(
        &problems,
        "a rule without a test needs one, in test code (a file under tests/ or conformance/, \
         tests.rs, *_test.rs, *_tests.rs, or an inline `mod tests`), with a comment such as \
         `// rule 6.3` or `// rules 6.3, 6.4` next to it. A rule that got its test leaves OPEN in \
         crates/tidy/tests/tidy/rules.rs, and its *(planned)* mark in docs/rules.md goes too; if \
         the test only touches on that rule, do not name its number there.",
    );
}

#[test]
fn no_comment_names_a_rule_that_does_not_exist() {
    let known: BTreeSet<Number> = in_page(&files::read(PAGE))
        .into_iter()
        .map(|rule| rule.number)
        .collect();
    let mut problems: Vec<String> = mentions()
        .anywhere
        .into_iter()
        .filter(|(rule, _)| !known.contains(rule))
        .map(|(rule, locations)| {
            format!("there is no rule {rule}, named at {}", locations.join(", "))
        })
        .collect();
    let unknown = open().into_keys().filter(|rule| !known.contains(rule));
    problems.extend(unknown.map(|rule| format!("there is no rule {rule}, named in OPEN")));
    report(
        &problems,
        "correct the number in the comment, or write the rule into docs/rules.md.",
    );
}

#[test]
fn the_page_marks_as_planned_what_is_open() {
    let open = open();
    let problems: Vec<String> = in_page(&files::read(PAGE))
        .into_iter()
        .filter(|rule| rule.is_planned != open.contains_key(&rule.number))
        .map(|rule| match rule.is_planned {
            true => format!(
                "rule {} is marked as planned on the page but is not in OPEN",
                rule.number
            ),
            false => format!(
                "rule {} is in OPEN but is not marked as planned on the page",
                rule.number
            ),
        })
        .collect();
    report(
        &problems,
        "the *(planned)* marks in docs/rules.md and the list OPEN in crates/tidy/tests/tidy/rules.rs \
         must tell the same: change the one that is wrong.",
    );
}

#[test]
fn the_numbers_of_the_page_are_in_order() {
    let numbers: Vec<Number> = in_page(&files::read(PAGE))
        .iter()
        .map(|rule| rule.number)
        .collect();
    let mut problems = Vec::new();
    for pair in numbers.windows(2) {
        if let [Number(section, rule), next] = *pair
            && next != Number(section, rule + 1)
            && next != Number(section + 1, 1)
        {
            problems.push(format!("rule {section}.{rule} is followed by rule {next}"));
        }
    }
    if numbers.first() != Some(&Number(1, 1)) {
        problems.push("the first rule is not 1.1".to_owned());
    }
    report(
        &problems,
        "each rule of docs/rules.md begins a line with its number in bold, in order and without \
         gaps. A rule that was given up keeps its number and says so.",
    );
}
