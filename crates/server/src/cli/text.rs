//! Makes texts of others fit for the terminal: without control characters, and JSON with line breaks.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns a text on one line, in which nothing can move the cursor, change colours or change the direction of writing.
pub fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text, is_unsafe)
}

/// Like `clean`, for a text of several lines.
pub fn clean_lines(text: &str) -> Cow<'_, str> {
    cleaned(text, |c| is_unsafe(c) && c != '\n')
}

fn cleaned(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match is_bad(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// `true` if a character has an effect on a terminal other than being shown.
fn is_unsafe(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Formats JSON over several lines. Numbers and strings stay as they are written.
pub fn pretty(json: &str) -> String {
    let mut pretty = String::with_capacity(json.len() * 2);
    let mut depth = 0usize;
    let mut chars = json.chars().peekable();
    let newline = |pretty: &mut String, depth: usize| {
        // Writing to a text cannot fail.
        let _ = write!(pretty, "\n{:width$}", "", width = depth * 2);
    };
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                pretty.push(c);
                while let Some(c) = chars.next() {
                    pretty.push(c);
                    match c {
                        '\\' => pretty.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                pretty.push(c);
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    pretty.push(end);
                } else {
                    depth += 1;
                    newline(&mut pretty, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                newline(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => pretty.push(c),
        }
    }
    pretty
}

/// Shortens a text to `columns`.
pub fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut cut = String::new();
    for c in text.chars() {
        match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => left = rest,
            None => break,
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

/// Shortens a text to `columns` in its middle, because the cause of an error is at its end.
pub fn cut_middle(text: &str, columns: usize) -> String {
    const GAP: &str = " … ";
    if text.width() <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(GAP.width());
    let (head, tail) = (room - room / 2, room / 2);
    let taken = |chars: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut left = room;
        let fits = |c: &char| match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        chars.take_while(fits).collect()
    };
    let head: String = taken(&mut text.chars(), head).into_iter().collect();
    let tail: String = taken(&mut text.chars().rev(), tail)
        .into_iter()
        .rev()
        .collect();
    format!("{}{GAP}{}", head.trim_end(), tail.trim_start())
}

/// Wraps a text between words into lines of `columns`. A longer word gets a line of its own.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Like `wrapped`, but also breaks longer words.
pub fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for long in wrapped(text, columns) {
        let mut line = String::new();
        for c in long.chars() {
            if line.width() + c.width().unwrap_or(0) > columns && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
        lines.push(line);
    }
    lines
}

/// Formats a count: `1 worker`, `2 workers`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_raw() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(clean("\u{9b}31m\u{202e}x"), "\\u{9b}31m\\u{202e}x");
        assert_eq!(clean("grüße, 日本"), "grüße, 日本");
        assert_eq!(clean_lines("a\n\tb"), "a\n\\tb");
    }

    #[test]
    fn json_is_laid_out_and_its_values_are_kept_as_written() {
        let text =
            r#"{"n":123456789012345678901234567890.10,"e":[],"o":{ },"l":[1,{"t":"a\",{b"}]}"#;
        let expected = "{\n  \"n\": 123456789012345678901234567890.10,\n  \"e\": [],\n  \"o\": {},\n  \"l\": [\n    1,\n    {\n      \"t\": \"a\\\",{b\"\n    }\n  ]\n}";
        assert_eq!(pretty(text), expected);
        assert_eq!(pretty("null"), "null");
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(cut("größer", 4), "grö…");
        assert_eq!(cut("grö", 3), "grö");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(
            wrapped("waits for signal paid", 10),
            ["waits for", "signal", "paid"]
        );
        assert_eq!(wrapped("日本 語", 5), ["日本", "語"]);
        assert_eq!(folded("a 日本語 bc", 5), ["a", "日本", "語", "bc"]);
    }

    #[test]
    fn the_end_of_a_text_is_kept_where_its_middle_is_cut() {
        let error = "the order was not paid: the bank did not answer: connection refused";
        assert_eq!(
            cut_middle(error, 40),
            "the order was not p … connection refused"
        );
        assert_eq!(cut_middle("grö", 3), "grö");
        assert_eq!(cut_middle("日本語日本語", 9), "日 … 語");
        // No room at all.
        assert_eq!(cut_middle("abcdef", 2), " … ");
    }
}
