//! Expressions of Prometheus, as far as the metrics and labels that they name.

use std::collections::BTreeSet;

/// Metrics and labels that an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Each metric, with the labels that its selector names.
    pub metrics: Vec<(String, BTreeSet<String>)>,
    /// The labels that it groups by.
    pub groups: BTreeSet<String>,
}

/// Reads an expression.
///
/// # Errors
/// When its brackets or quotes do not match.
pub fn read(expression: &str) -> Result<Query, String> {
    let tokens = tokens(expression)?;
    balanced(&tokens)?;
    let mut query = Query::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let Token::Word(word) = token else { continue };
        let next = tokens.get(at);
        if ["by", "without", "on", "ignoring"].contains(&word.as_str()) {
            query.groups.extend(words(&tokens, at, ')'));
            at = after(&tokens, at, ')');
        } else if next == Some(&Token::Sign('{')) {
            let labels = words(&tokens, at, '}').collect();
            query.metrics.push((word.clone(), labels));
            at = after(&tokens, at, '}');
        } else if next != Some(&Token::Sign('(')) && word.contains('_') && !word.starts_with('$') {
            query.metrics.push((word.clone(), BTreeSet::new()));
        }
    }
    Ok(query)
}

/// The words from here to that bracket, texts and signs left out.
fn words(tokens: &[Token], at: usize, end: char) -> impl Iterator<Item = String> {
    tokens
        .iter()
        .skip(at)
        .take_while(move |token| **token != Token::Sign(end))
        .filter_map(|token| match token {
            Token::Word(word) => Some(word.clone()),
            _ => None,
        })
}

fn after(tokens: &[Token], at: usize, end: char) -> usize {
    let found = tokens.iter().skip(at).position(|t| *t == Token::Sign(end));
    found.map_or(at, |position| at + position + 1)
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text,
    Sign(char),
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = expression.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '"' {
            let mut is_closed = false;
            while let Some(inner) = rest.next() {
                match inner {
                    '\\' => drop(rest.next()),
                    '"' => {
                        is_closed = true;
                        break;
                    }
                    _ => {}
                }
            }
            if !is_closed {
                return Err("a quote is not closed".to_owned());
            }
            tokens.push(Token::Text);
        } else if c.is_alphabetic() || c == '_' || c == '$' {
            let mut word = String::from(c);
            while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || "_:".contains(*c)) {
                word.push(c);
            }
            tokens.push(Token::Word(word));
        } else if c.is_ascii_digit() {
            // A number or a time such as `5m`.
            while rest.next_if(|c| c.is_alphanumeric() || *c == '.').is_some() {}
        } else if !c.is_whitespace() {
            tokens.push(Token::Sign(c));
        }
    }
    Ok(tokens)
}

fn balanced(tokens: &[Token]) -> Result<(), String> {
    let mut open = Vec::new();
    for token in tokens {
        let Token::Sign(sign) = token else { continue };
        match sign {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(*sign) => {
                return Err(format!("`{sign}` closes nothing"));
            }
            _ => {}
        }
    }
    match open.pop() {
        Some(sign) => Err(format!("`{sign}` is missing")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn metrics_their_labels_and_groups_are_found() {
        let query = read(
            "histogram_quantile(0.99, sum by (queue, le) (rate(a_seconds_bucket{job=\"x\", queue=~\"b_c|d\"}[5m]))) > 1 \
             or max without (instance) (e_total) / vector(0) and up{job=\"x\"} == 0",
        )
        .unwrap();
        assert_eq!(
            query.metrics,
            [
                ("a_seconds_bucket".to_owned(), set(&["job", "queue"])),
                ("e_total".to_owned(), set(&[])),
                ("up".to_owned(), set(&["job"])),
            ]
        );
        assert_eq!(query.groups, set(&["queue", "le", "instance"]));
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for wrong in ["sum(a_b", "a_b{c=\"d}", "a_b[5m))", "rate(a_b]5m[)"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
