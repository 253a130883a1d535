//! The numbered rules of `docs/rules.md`, and the lines of the code that name them.

use std::collections::BTreeMap;
use std::fmt;

use crate::source::{Source, is_test_file};

/// The number of a rule, such as 6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32, pub u32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Number {
    /// Reads a number from the beginning of a text; with what follows it.
    #[must_use]
    pub fn read(text: &str) -> Option<(Self, &str)> {
        let (section, rest) = digits(text)?;
        let (rule, rest) = digits(rest.strip_prefix('.')?)?;
        Some((Self(section, rule), rest))
    }
}

/// A rule as the page has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub number: Number,
    /// `true` if the page marks it as planned.
    pub is_planned: bool,
}

/// The rules of the page: every line that begins with a number in bold.
#[must_use]
pub fn in_page(page: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    for line in page.lines() {
        let Some((number, rest)) = line.strip_prefix("**").and_then(Number::read) else {
            continue;
        };
        if let Some(rest) = rest.strip_prefix("**") {
            rules.push(Rule {
                number,
                is_planned: rest.trim_start().starts_with("*(planned)*"),
            });
        }
    }
    rules
}

/// Where rules are named in comments: in test code, and anywhere.
#[derive(Debug, Default)]
pub struct Mentions {
    /// The lines of test code that name a rule.
    pub in_tests: BTreeMap<Number, Vec<String>>,
    /// All lines that name a rule.
    pub anywhere: BTreeMap<Number, Vec<String>>,
}

impl Mentions {
    /// Adds the rules that one file names.
    pub fn add(&mut self, file: &str, text: &str) {
        let all_test = is_test_file(file);
        for (number, line) in Source::parse(text).lines() {
            for rule in in_comment(&line.comment) {
                let location = format!("{file}:{number}");
                if all_test || line.is_test {
                    self.in_tests
                        .entry(rule)
                        .or_default()
                        .push(location.clone());
                }
                self.anywhere.entry(rule).or_default().push(location);
            }
        }
    }
}

/// The rules that a comment names: `rule 6.3`, `rules 6.3, 6.4 and 7.1`.
#[must_use]
pub fn in_comment(comment: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let lower = comment.to_lowercase();
    for (at, word) in lower.match_indices("rule") {
        let (head, tail) = lower.split_at(at);
        if head.ends_with(char::is_alphanumeric) {
            continue;
        }
        let tail = tail.strip_prefix(word).unwrap_or_default();
        let mut list = tail.strip_prefix('s').unwrap_or(tail);
        while let Some((number, after)) = separated(list).and_then(Number::read) {
            found.push(number);
            list = after;
        }
    }
    found
}

/// The text after the separators of a list; `None` when there are none.
fn separated(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let next = rest.trim_start_matches([' ', ',', ';', '(', '/']);
        let next = next
            .strip_prefix("and ")
            .or_else(|| next.strip_prefix("or "))
            .unwrap_or(next);
        if next.len() == rest.len() {
            break;
        }
        rest = next;
    }
    (rest.len() < text.len()).then_some(rest)
}

fn digits(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.get(..text.len() - rest.len())?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_gives_numbers_and_plans() {
        let page = "**1.1** a **2.2** b\n**2.4** *(planned)* c\n**bold** d\ne **3.1** f";
        assert_eq!(
            in_page(page),
            [
                Rule {
                    number: Number(1, 1),
                    is_planned: false
                },
                Rule {
                    number: Number(2, 4),
                    is_planned: true
                },
            ]
        );
    }

    #[test]
    fn comments_name_one_rule_or_several() {
        assert_eq!(in_comment(" rule 6.3: because"), [Number(6, 3)]);
        assert_eq!(in_comment("Rule 6.3."), [Number(6, 3)]);
        assert_eq!(
            in_comment("rules 6.3, 6.4 and 10.1; see rule 7.2"),
            [Number(6, 3), Number(6, 4), Number(10, 1), Number(7, 2)]
        );
        assert_eq!(in_comment("(rule 17.1)"), [Number(17, 1)]);
        assert!(in_comment("the rules hold; ferrule 1.1; rule of thumb; version 1.1").is_empty());
    }

    #[test]
    fn only_test_code_counts_as_a_test() {
        let mut mentions = Mentions::default();
        let text = "// rule 1.1: why\nmod tests {\n    // rule 1.2\n}\nlet x = \"rule 1.3\";";
        mentions.add("crates/a/src/x.rs", text);
        assert_eq!(
            mentions.in_tests.keys().copied().collect::<Vec<_>>(),
            [Number(1, 2)]
        );
        assert_eq!(mentions.anywhere.len(), 2);
    }
}
