//! Rust source, taken apart just far enough: code without comments and texts, comments without
//! code, and which lines are test code.

/// A Rust file with its code and its comments set apart, line by line.
pub struct Source {
    lines: Vec<Line>,
}

/// One line of a [`Source`].
#[derive(Debug, Default, Clone)]
pub struct Line {
    /// The code, with the insides of comments, strings and characters taken out.
    pub code: String,
    /// The text of the line's comments.
    pub comment: String,
    /// `true` if it is part of an inline test module or of another item under `#[cfg(test)]`.
    pub is_test: bool,
}

impl Source {
    /// Takes a file's text apart.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut lines = split(text);
        mark_tests(&mut lines);
        Self { lines }
    }

    /// Its lines with their numbers, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines
            .iter()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// The code that is not test code; each line stays where it was.
    #[must_use]
    pub fn production_code(&self) -> String {
        let mut code = String::new();
        for line in &self.lines {
            if !line.is_test {
                code.push_str(&line.code);
            }
            code.push('\n');
        }
        code
    }
}

/// Returns true if a file holds nothing but test code, judged by where it lies and what it is called.
#[must_use]
pub fn is_test_file(file: &str) -> bool {
    let mut parts: Vec<&str> = file.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    parts
        .iter()
        .any(|folder| ["tests", "conformance"].contains(folder))
        || ["tests.rs", "conformance.rs"].contains(&name)
        || name.ends_with("_test.rs")
        || name.ends_with("_tests.rs")
}

/// State of the reader.
enum Inside {
    Code,
    LineComment,
    BlockComment(u32),
    Text,
    RawText(usize),
}

fn split(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut inside = Inside::Code;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '\n' {
            if matches!(inside, Inside::LineComment) {
                inside = Inside::Code;
            }
            lines.push(std::mem::take(&mut line));
            rest = skip(rest, 1);
            continue;
        }
        let taken = match &mut inside {
            Inside::Code => {
                let (next, taken) = read_code(rest, &mut line);
                inside = next;
                taken
            }
            Inside::LineComment => {
                line.comment.push(c);
                c.len_utf8()
            }
            Inside::BlockComment(depth) => {
                if rest.starts_with("/*") {
                    *depth += 1;
                    2
                } else if rest.starts_with("*/") {
                    *depth -= 1;
                    if *depth == 0 {
                        inside = Inside::Code;
                    }
                    2
                } else {
                    line.comment.push(c);
                    c.len_utf8()
                }
            }
            Inside::Text => match c {
                // A line that ends in `\` keeps its newline for the counting above.
                '\\' if !rest.starts_with("\\\n") => {
                    1 + rest.chars().nth(1).map_or(0, char::len_utf8)
                }
                '"' => {
                    line.code.push('"');
                    inside = Inside::Code;
                    1
                }
                _ => c.len_utf8(),
            },
            Inside::RawText(hashes) => {
                let end = format!("\"{}", "#".repeat(*hashes));
                if rest.starts_with(&end) {
                    line.code.push('"');
                    inside = Inside::Code;
                    end.len()
                } else {
                    c.len_utf8()
                }
            }
        };
        rest = skip(rest, taken);
    }
    lines.push(line);
    lines
}

/// Reads one piece of code: what comes after it, and how many bytes it took.
fn read_code(rest: &str, line: &mut Line) -> (Inside, usize) {
    if rest.starts_with("//") {
        line.comment.push(' ');
        return (Inside::LineComment, 2);
    }
    if rest.starts_with("/*") {
        line.comment.push(' ');
        return (Inside::BlockComment(1), 2);
    }
    let begins_word = !line
        .code
        .ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if begins_word && let Some((hashes, taken)) = raw_text(rest) {
        line.code.push('"');
        return (Inside::RawText(hashes), taken);
    }
    if rest.starts_with('"') {
        line.code.push('"');
        return (Inside::Text, 1);
    }
    if let Some(taken) = character(rest) {
        line.code.push_str("' '");
        return (Inside::Code, taken);
    }
    let c = rest.chars().next().unwrap_or_default();
    line.code.push(c);
    (Inside::Code, c.len_utf8())
}

/// `r"`, `br##"` and the like: how many hashes, and how long the opening is.
fn raw_text(rest: &str) -> Option<(usize, usize)> {
    let after = ["br", "cr", "r"]
        .iter()
        .find_map(|start| rest.strip_prefix(start))?;
    let opened = after.trim_start_matches('#');
    let hashes = after.len() - opened.len();
    opened
        .starts_with('"')
        .then(|| (hashes, rest.len() - opened.len() + 1))
}

/// The length of a character literal; `None` when there is none, or when it is a lifetime.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if inner.starts_with('\\') {
        // The escaped character may itself be a quote.
        return inner.get(2..)?.find('\'').map(|end| 1 + 2 + end + 1);
    }
    let c = inner.chars().next()?;
    inner
        .get(c.len_utf8()..)?
        .starts_with('\'')
        .then(|| 1 + c.len_utf8() + 1)
}

fn skip(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

/// Marks the items under `#[cfg(test)]`, and inline modules called `tests`, up to their last brace.
fn mark_tests(lines: &mut [Line]) {
    let mut depth = 0_usize;
    // The depth outside the test item we are in, and whether its first brace has been met.
    let mut item: Option<(usize, bool)> = None;
    for line in lines {
        let code = line.code.trim();
        if item.is_none() && begins_tests(code) {
            item = Some((depth, false));
        }
        line.is_test = item.is_some();
        for c in code.chars() {
            match c {
                '{' => {
                    depth += 1;
                    if let Some((_, entered)) = &mut item {
                        *entered = true;
                    }
                }
                '}' => {
                    depth = depth.saturating_sub(1);
                    if item.is_some_and(|(outer, entered)| entered && depth <= outer) {
                        item = None;
                    }
                }
                // `mod tests;` has no braces: the item ends here.
                ';' if item.is_some_and(|(outer, entered)| !entered && depth == outer) => {
                    item = None;
                }
                _ => {}
            }
        }
    }
}

fn begins_tests(code: &str) -> bool {
    if code.starts_with("#[cfg(") && code.contains("test") && !code.contains("not(") {
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        return words.into_iter().any(|word| word == "test");
    }
    code.starts_with("mod tests {")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::parse(text)
            .lines()
            .map(|(_, line)| line.code.clone())
            .collect::<Vec<_>>()
            .join("|")
    }

    #[test]
    fn texts_and_comments_are_not_code() {
        assert_eq!(code("a(\"// {\"); // b"), "a(\"\"); ");
        assert_eq!(code("a /* b /* c */ d */ e"), "a  e");
        assert_eq!(code("x(r#\"}\n\"}\"#);y"), "x(\"|\");y");
        assert_eq!(
            code("x('{', '\\'', 'a, \"\\\"{\")"),
            "x(' ', ' ', 'a, \"\")"
        );
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::parse("a(); // why\n/// what\nb();");
        let comments: Vec<String> = source
            .lines()
            .map(|(_, line)| line.comment.trim().to_owned())
            .collect();
        assert_eq!(comments, ["why", "/ what", ""]);
    }

    #[test]
    fn a_test_module_ends_at_its_own_brace() {
        let source = Source::parse(
            "fn a() {}\n#[cfg(test)]\nmod checks {\n  const X: &str = \"}\";\n  fn b() {}\n}\nfn c() {}",
        );
        let marks: Vec<bool> = source.lines().map(|(_, line)| line.is_test).collect();
        assert_eq!(marks, [false, true, true, true, true, true, false]);
        assert_eq!(
            source.production_code().trim_end(),
            "fn a() {}\n\n\n\n\n\nfn c() {}"
        );
    }

    #[test]
    fn a_test_module_in_its_own_file_marks_only_its_declaration() {
        let source = Source::parse("#[cfg(test)]\nmod tests;\nfn a() {}");
        let marks: Vec<bool> = source.lines().map(|(_, line)| line.is_test).collect();
        assert_eq!(marks, [true, true, false]);
    }

    #[test]
    fn code_for_other_builds_is_not_test_code() {
        assert!(begins_tests("#[cfg(all(test, unix))]"));
        assert!(!begins_tests("#[cfg(not(test))]"));
        assert!(!begins_tests("#[cfg(feature = \"\")] mod testing;"));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        assert!(is_test_file("crates/abide/tests/children.rs"));
        assert!(is_test_file("crates/kernel/src/conformance/claim.rs"));
        assert!(is_test_file("crates/core/src/rules/commit_test.rs"));
        assert!(is_test_file("crates/core/src/rules/tests.rs"));
        assert!(!is_test_file("crates/abide/src/testing/clock.rs"));
    }
}
