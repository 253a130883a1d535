//! Listings on pages: fenced code that is a file of the project, or a part of one.

/// A listing that names the file it is from.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// The file, from the root of the project.
    pub file: String,
    /// `true` if it is the whole file, but for the comment that it begins with.
    pub is_whole: bool,
    /// The code.
    pub code: String,
    /// The line of the page where it begins, counted from 1.
    pub line: usize,
}

/// The listings of a page that come after a line `<!-- file: PATH -->`, or `<!-- part of: PATH -->`.
#[must_use]
pub fn listings(page: &str) -> Vec<Listing> {
    let mut listings = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, _)) = lines.next() {
        let Some(mark) = line
            .trim()
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let (file, is_whole) = match (mark.strip_prefix("file: "), mark.strip_prefix("part of: ")) {
            (Some(file), _) => (file, true),
            (None, Some(file)) => (file, false),
            (None, None) => continue,
        };
        let Some((_, line)) = lines.find(|(line, _)| line.starts_with("```")) else {
            break;
        };
        let code = lines.by_ref().map(|(line, _)| line);
        let code: Vec<&str> = code.take_while(|line| !line.starts_with("```")).collect();
        listings.push(Listing {
            file: file.to_owned(),
            is_whole,
            code: code.join("\n"),
            line,
        });
    }
    listings
}

impl Listing {
    /// Returns true if the file has it.
    #[must_use]
    pub fn is_in(&self, file: &str) -> bool {
        if !self.is_whole {
            return !self.code.trim().is_empty() && file.contains(&self.code);
        }
        let code = |text: &str| -> Vec<String> {
            let lines = text.lines().skip_while(|line| {
                line.starts_with("//!")
                    || line.starts_with('#') && line.get(1..2) == Some(" ")
                    || line.is_empty()
            });
            lines.map(|line| line.trim_end().to_owned()).collect()
        };
        code(file) == code(&self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n<!-- file: src/main.rs -->\n```rust\n//! Says so.\n\nfn main() {}\n```\n\n<!-- a remark -->\n```sh\nls\n```\n\
                        <!-- part of: src/lib.rs -->\n\n```rust\n    fn one() {}\n```\n";

    #[test]
    fn a_listing_is_what_follows_its_mark() {
        let found = listings(PAGE);
        let fields: Vec<_> = found
            .iter()
            .map(|one| (one.file.as_str(), one.is_whole, one.code.as_str(), one.line))
            .collect();
        assert_eq!(
            fields,
            [
                ("src/main.rs", true, "//! Says so.\n\nfn main() {}", 4),
                ("src/lib.rs", false, "    fn one() {}", 16),
            ]
        );
    }

    #[test]
    fn a_whole_file_may_begin_with_another_comment_and_nothing_else_may_differ() {
        let found = listings(PAGE);
        assert!(found[0].is_in("//! What lives here.\n//! More.\n\nfn main() {}\n"));
        assert!(!found[0].is_in("fn main() { }\n"));
        assert!(!found[0].is_in("fn main() {}\nfn other() {}\n"));
        assert!(found[1].is_in("impl A {\n    fn one() {}\n}"));
        assert!(!found[1].is_in("fn one() {}"));
    }
}
