//! Markdown, as far as its links and headings.

use std::collections::BTreeSet;

/// A link to somewhere, and the line it is on, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads, as written, without a title.
    pub target: String,
    /// The line.
    pub line: usize,
}

/// The links of a page, images and reference definitions included; code has no links.
#[must_use]
pub fn links(page: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, text) in prose(page) {
        let text = without_code(text);
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            rest = after;
            let target = after.split(')').next().unwrap_or_default();
            links.extend(link(target, line));
        }
        if let Some((_, target)) = text
            .trim_start()
            .strip_prefix('[')
            .and_then(|t| t.split_once("]:"))
        {
            links.extend(link(target, line));
        }
    }
    links
}

/// The anchors a page offers: its headings as the usual hosts name them, and explicit ids.
#[must_use]
pub fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, text) in prose(page) {
        if text.starts_with('#') {
            let base = anchor(text.trim_start_matches('#').trim());
            let repeated = (1..).map(|n| format!("{base}-{n}"));
            let free = std::iter::once(base.clone())
                .chain(repeated)
                .find(|a| !anchors.contains(a));
            anchors.extend(free);
        }
        for mark in ["id=\"", "name=\""] {
            for part in text.split(mark).skip(1) {
                anchors.extend(part.split('"').next().map(str::to_owned));
            }
        }
    }
    anchors
}

/// The anchor of a heading.
#[must_use]
pub fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn link(target: &str, line: usize) -> Option<Link> {
    let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
    Some(Link {
        target: target.to_owned(),
        line,
    })
}

/// The lines outside fenced code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<String> = None;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        let ticks: String = start
            .chars()
            .take_while(|c| start.starts_with(*c) && ['`', '~'].contains(c))
            .collect();
        match &fence {
            Some(open) if ticks.starts_with(open.as_str()) => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => return Some((index + 1, line)),
        }
        None
    })
}

fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    parts.into_iter().step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_code_is_not() {
        let page = "[a](b.md) ![c](d.png \"t\") `[x](y)`\n```\n[no](no)\n```\n[r]: e.md#f";
        let found: Vec<(String, usize)> = links(page)
            .into_iter()
            .map(|link| (link.target, link.line))
            .collect();
        assert_eq!(
            found,
            [
                ("b.md".to_owned(), 1),
                ("d.png".to_owned(), 1),
                ("e.md#f".to_owned(), 5)
            ]
        );
    }

    #[test]
    fn headings_become_anchors() {
        let anchors =
            anchors("# The rules\n## 2 Keys, `runs`\n## 2 Keys, `runs`\n<a id=\"x\"></a>");
        let expected = ["the-rules", "2-keys-runs", "2-keys-runs-1", "x"];
        assert_eq!(anchors, expected.into_iter().map(str::to_owned).collect());
    }
}
