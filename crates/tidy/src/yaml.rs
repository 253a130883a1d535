//! A strict reader of the plain part of YAML that `deploy/` is written in: block mappings and lists, scalars on one line,
//! quoted texts, `|-` texts, comments on lines of their own. What people misread is refused: flow collections, anchors,
//! tags, tabs, duplicate keys, words such as `no` that are a boolean to some readers and a text to others.

use serde_json::{Map, Number, Value};

/// The documents of a file, or what is wrong with it and in which line.
///
/// # Errors
/// The first line that is not of this part of YAML, and why.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut lines = Vec::new();
    for (number, raw) in (1..).zip(text.lines()) {
        if raw.contains('\t') {
            return Err(format!("line {number}: a tab; indent with spaces"));
        }
        lines.push(Line {
            number,
            indent: raw.len() - raw.trim_start().len(),
            text: raw.trim_end(),
        });
    }
    lines
        .split(|line| line.text == "---")
        .map(|lines| Reader { lines, at: 0 }.document())
        .collect()
}

#[derive(Clone, Copy)]
struct Line<'t> {
    number: usize,
    indent: usize,
    text: &'t str,
}

impl<'t> Line<'t> {
    fn content(&self) -> &'t str {
        self.text.trim_start()
    }

    fn trouble(&self, what: impl std::fmt::Display) -> String {
        format!("line {}: {what}", self.number)
    }
}

struct Reader<'t> {
    lines: &'t [Line<'t>],
    at: usize,
}

impl<'t> Reader<'t> {
    fn document(mut self) -> Result<Value, String> {
        let indent = self.peek().map_or(0, |line| line.indent);
        let value = self.block(indent)?;
        match self.peek() {
            None => Ok(value),
            Some(line) => Err(line.trouble("not indented as what comes before it")),
        }
    }

    /// The next line that is not empty or a comment.
    fn peek(&mut self) -> Option<Line<'t>> {
        while let Some(line) = self.lines.get(self.at) {
            if !line.content().is_empty() && !line.content().starts_with('#') {
                return Some(*line);
            }
            self.at += 1;
        }
        None
    }

    /// The mapping or the list that begins here, at that indentation.
    fn block(&mut self, indent: usize) -> Result<Value, String> {
        match self.peek() {
            Some(line) if is_item(line.content()) => self.list(indent),
            Some(_) => self.mapping(indent, None),
            None => Ok(Value::Null),
        }
    }

    fn list(&mut self, indent: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        while let Some(line) = self.peek() {
            if line.indent != indent || !is_item(line.content()) {
                break;
            }
            self.at += 1;
            let rest = line.content().get(1..).unwrap_or_default();
            let content = rest.trim_start();
            let inner = indent + 1 + (rest.len() - content.len());
            items.push(if content.is_empty() {
                self.nested(&line)?
            } else if key_of(content).is_some() {
                let first = Line {
                    indent: inner,
                    text: content,
                    ..line
                };
                self.mapping(inner, Some(first))?
            } else {
                scalar(&line, content)?
            });
        }
        Ok(Value::Array(items))
    }

    /// A mapping; its first line may stand behind the dash of a list.
    fn mapping(&mut self, indent: usize, mut first: Option<Line<'t>>) -> Result<Value, String> {
        let mut map = Map::new();
        loop {
            let line = match first.take() {
                Some(line) => line,
                None => match self.peek() {
                    Some(line) if line.indent == indent && !is_item(line.content()) => {
                        self.at += 1;
                        line
                    }
                    _ => break,
                },
            };
            let (key, rest) = key_of(line.content())
                .ok_or_else(|| line.trouble("neither `key: value` nor an item of a list"))?;
            let value = match rest {
                "" => self.nested(&line)?,
                "|-" => Value::String(self.literal(indent)),
                rest => scalar(&line, rest)?,
            };
            if map.insert(key.to_owned(), value).is_some() {
                return Err(line.trouble(format!("`{key}` a second time")));
            }
        }
        Ok(Value::Object(map))
    }

    /// The block below a key or a dash, further in.
    fn nested(&mut self, above: &Line<'_>) -> Result<Value, String> {
        match self.peek() {
            Some(line) if line.indent > above.indent => self.block(line.indent),
            _ => Err(above.trouble("nothing below it; write a value")),
        }
    }

    fn literal(&mut self, above: usize) -> String {
        let mut text: Vec<&str> = Vec::new();
        let mut indent = None;
        while let Some(line) = self.lines.get(self.at) {
            if !line.content().is_empty() && line.indent <= above {
                break;
            }
            let cut = *indent.get_or_insert(line.indent);
            text.push(line.text.get(cut..).unwrap_or_default());
            self.at += 1;
        }
        text.join("\n").trim_end().to_owned()
    }
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// The key that a line begins with, and what follows it.
fn key_of(content: &str) -> Option<(&str, &str)> {
    let (key, rest) = content.split_once(':')?;
    let is_key = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || "._-/".contains(c));
    let is_value = rest.is_empty() || rest.starts_with(' ');
    (is_key && is_value).then_some((key, rest.trim()))
}

fn scalar(line: &Line<'_>, text: &str) -> Result<Value, String> {
    const MISREAD: [&str; 8] = ["yes", "no", "on", "off", "y", "n", "~", "null"];
    if text.starts_with('"') {
        let read: Result<String, _> = serde_json::from_str(text);
        return read
            .map(Value::String)
            .map_err(|error| line.trouble(format!("not one quoted text: {error}")));
    }
    if let Some(inner) = text.strip_prefix('\'') {
        return match inner.strip_suffix('\'') {
            Some(inner) if !inner.contains('\'') => Ok(Value::String(inner.to_owned())),
            _ => Err(line.trouble("not one quoted text")),
        };
    }
    let special = text.starts_with(|c| "[]{}&*!|>%@`,?#".contains(c));
    if special || text.contains(": ") || text.contains(" #") || text.ends_with(':') {
        return Err(line.trouble(format!("`{text}` needs quotes")));
    }
    if MISREAD.contains(&text.to_lowercase().as_str()) {
        return Err(line.trouble(format!(
            "`{text}` is not a text to every reader; quote it, or write true or false"
        )));
    }
    Ok(match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        text => text
            .parse::<i64>()
            .map(|number| Value::Number(Number::from(number)))
            .unwrap_or_else(|_| Value::String(text.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mappings_lists_and_texts_are_read() {
        let text = "# a comment\na: 1\nb:\n  - c: x y\n    d: true\n  - \"e: 2\"\n  -\n    f: 0.1.0\n\
                    g: |-\n  one\n    two\n\nh: 'it is: so'\n---\ni:\n  - j\n";
        let expected = [
            json!({"a": 1, "b": [{"c": "x y", "d": true}, "e: 2", {"f": "0.1.0"}], "g": "one\n  two", "h": "it is: so"}),
            json!({"i": ["j"]}),
        ];
        assert_eq!(documents(text).unwrap(), expected);
    }

    #[test]
    fn what_people_misread_is_refused() {
        for (text, why) in [
            ("a: no", "quote it"),
            ("a: 1\na: 2", "a second time"),
            ("a:\n\tb: 1", "tab"),
            ("a: [1, 2]", "needs quotes"),
            ("a: b: c", "needs quotes"),
            ("a: b # c", "needs quotes"),
            ("a:\nb: 1", "nothing below"),
            ("a: \"b", "quoted"),
            ("a: 1\n  b: 2", "not indented"),
            ("just words", "neither"),
        ] {
            let error = documents(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
