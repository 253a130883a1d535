//! The paths that Rust code names (`crate::engine::Lease`), with `use` groups written out.

use std::collections::BTreeMap;

/// A path that code names, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its segments: `["crate", "engine", "Lease"]`.
    pub path: Vec<String>,
    /// The line, counted from 1.
    pub line: usize,
}

/// All paths of two or more segments in code that has no comments or texts left. A group such as
/// `crate::{a, b::{c, d}}` gives one path for each of its ends.
#[must_use]
pub fn in_code(code: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        found: Vec::new(),
    };
    while let Some((token, _)) = reader.peek() {
        if token.is_word() {
            reader.path(&[]);
        } else {
            reader.at += 1;
        }
    }
    reader.found.retain(|named| named.path.len() > 1);
    reader.found
}

/// The module a file of a crate holds, from its path under `src`: `engine/lease.rs` is
/// `["crate", "engine", "lease"]`.
#[must_use]
pub fn module_of(path_in_src: &str) -> Vec<String> {
    let mut module = vec!["crate".to_owned()];
    let path_in_src = path_in_src.strip_suffix(".rs").unwrap_or(path_in_src);
    module.extend(path_in_src.split('/').map(str::to_owned));
    if ["mod", "lib", "main"]
        .iter()
        .any(|name| module.last().is_some_and(|last| last == name))
    {
        module.pop();
    }
    module
}

/// A path with a leading `self` or `super` resolved, seen from `module`.
#[must_use]
pub fn resolve(path: &[String], module: &[String]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("self" | "super") => {}
        _ => return path.to_vec(),
    }
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => {
                base.pop();
            }
            _ => break,
        }
        rest = others;
    }
    base.extend(rest.iter().cloned());
    base
}

/// The items that a crate's root re-exports by name, from the code of its `lib.rs`: `Client` is
/// `crate::client::Client`. Globs are not followed.
#[must_use]
pub fn reexports(lib: &str) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    for statement in lib.split(';') {
        let Some((_, used)) = statement.split_once("pub use ") else {
            continue;
        };
        for Named { mut path, .. } in in_code(used) {
            if !["crate", "self"]
                .iter()
                .any(|root| path.first().is_some_and(|first| first == root))
            {
                path.insert(0, "crate".to_owned());
            }
            if let Some(first) = path.first_mut() {
                "crate".clone_into(first);
            }
            if let Some(name) = path.last().cloned() {
                names.insert(name, path);
            }
        }
    }
    names
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Colons,
    Sign(char),
}

impl Token {
    fn is_word(&self) -> bool {
        matches!(self, Self::Word(_))
    }
}

fn tokens(code: &str) -> Vec<(Token, usize)> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = code.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\n' {
            line += 1;
        } else if c.is_alphanumeric() || c == '_' {
            let mut word = String::from(c);
            while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                word.push(c);
            }
            tokens.push((Token::Word(word), line));
        } else if c == ':' && rest.next_if_eq(&':').is_some() {
            tokens.push((Token::Colons, line));
        } else if !c.is_whitespace() {
            tokens.push((Token::Sign(c), line));
        }
    }
    tokens
}

struct Reader<'a> {
    tokens: &'a [(Token, usize)],
    at: usize,
    found: Vec<Named>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&(Token, usize)> {
        self.tokens.get(self.at)
    }

    /// Reads `word (:: word)* (:: group)?` and notes where it leads.
    fn path(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        let line = self.peek().map_or(0, |(_, line)| *line);
        while let Some((Token::Word(word), _)) = self.peek() {
            path.push(word.clone());
            self.at += 1;
            if !matches!(self.peek(), Some((Token::Colons, _))) {
                break;
            }
            self.at += 1;
            if matches!(self.peek(), Some((Token::Sign('{'), _))) {
                self.group(&path);
                return;
            }
        }
        self.found.push(Named { path, line });
    }

    fn group(&mut self, prefix: &[String]) {
        self.at += 1;
        while let Some((token, line)) = self.peek() {
            match token {
                Token::Sign('}') => {
                    self.at += 1;
                    return;
                }
                // `{self, …}` names the group's own module.
                Token::Word(word) if word == "self" => {
                    let named = Named {
                        path: prefix.to_vec(),
                        line: *line,
                    };
                    self.found.push(named);
                    self.at += 1;
                }
                // `… as name`: the new name is not a path.
                Token::Word(word) if word == "as" => self.at += 2,
                Token::Word(_) => self.path(prefix),
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str) -> Vec<String> {
        in_code(code)
            .into_iter()
            .map(|named| named.path.join("::"))
            .collect()
    }

    #[test]
    fn groups_are_written_out() {
        assert_eq!(
            named("use crate::{machine, engine::{self, lease::Lease as L, *}};"),
            [
                "crate::machine",
                "crate::engine",
                "crate::engine::lease::Lease"
            ]
        );
        assert_eq!(
            named("let x = std::fs::read(a::<B>());"),
            ["std::fs::read", "a"].get(..1).unwrap()
        );
    }

    #[test]
    fn lines_are_counted() {
        assert_eq!(
            in_code("\n\na::b\n").first().map(|named| named.line),
            Some(3)
        );
    }

    #[test]
    fn relative_paths_are_resolved() {
        let module = module_of("engine/lease.rs");
        let path = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            resolve(&path("super::super::machine::X"), &module),
            path("crate::machine::X")
        );
        assert_eq!(
            resolve(&path("self::x"), &module),
            path("crate::engine::lease::x")
        );
        assert_eq!(resolve(&path("crate::x"), &module), path("crate::x"));
        assert_eq!(module_of("engine/mod.rs"), path("crate::engine"));
        assert_eq!(module_of("lib.rs"), path("crate"));
    }

    #[test]
    fn reexports_lead_to_their_modules() {
        let names =
            reexports("pub mod a;\npub use client::{Client, Handle};\npub use crate::x::Y;");
        assert_eq!(names["Client"], ["crate", "client", "Client"]);
        assert_eq!(names["Y"], ["crate", "x", "Y"]);
    }
}
