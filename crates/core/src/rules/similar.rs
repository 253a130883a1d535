//! Similar names: finds the name that a sender may have meant.

use crate::model::Name;

/// Maximum number of letters by which two similar names differ.
const LETTERS: usize = 2;

/// Returns the most similar name, if `name` may be a misspelling of it.
fn nearest<'a>(name: &Name, among: impl IntoIterator<Item = &'a Name>) -> Option<&'a Name> {
    let near = among.into_iter().filter_map(|other| {
        let apart = distance(name.as_str(), other.as_str());
        let shorter = name.as_str().chars().count();
        let shorter = shorter.min(other.as_str().chars().count());
        (other != name && apart <= LETTERS && apart < shorter).then_some((apart, other))
    });
    near.min_by_key(|(apart, _)| *apart).map(|(_, other)| other)
}

/// Returns the signal that a parked instance waits for, if `name` may be a misspelling of it and is not awaited itself.
pub fn meant<'a>(name: &Name, awaited: &'a [Name]) -> Option<&'a Name> {
    if awaited.contains(name) {
        return None;
    }
    nearest(
        name,
        awaited.iter().filter(|one| one.event_type().is_none()),
    )
}

/// Counts the letters that must be changed, added, removed or swapped with their neighbour to turn one text into the
/// other. Upper and lower case count as the same letter, and so do `_`, `-`, `.` and a space.
pub fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (letters(one), letters(other));
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        let mut left = i + 1;
        row.push(left);
        for (j, b) in other.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&above, j) + usize::from(a != b))
                .min(at(&above, j + 1) + 1)
                .min(left + 1);
            let swapped =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if swapped {
                least = least.min(at(&before, j - 1) + 1);
            }
            left = least;
            row.push(left);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or_default()
}

fn letters(text: &str) -> Vec<char> {
    let letters = text.chars().flat_map(char::to_lowercase);
    letters
        .map(|letter| match letter {
            '-' | '.' | ' ' => '_',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("paid", "paid", 0),
            ("paid", "Paid", 0),
            ("order-paid", "order_paid", 0),
            ("piad", "paid", 1),
            ("payed", "paid", 2),
            ("pay", "paid", 2),
            ("kitten", "sitting", 3),
            ("größe", "grösse", 2),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_slip_is_known_by_the_name_that_was_meant() {
        let names = ["paid", "approved-by", "b"].map(Name::stored);
        let nearest = |text: &str| nearest(&Name::stored(text), &names).map(Name::as_str);
        assert_eq!(nearest("piad"), Some("paid"));
        assert_eq!(nearest("Paid"), Some("paid"));
        assert_eq!(nearest("approved_by"), Some("approved-by"));
        assert_eq!(nearest("paid"), None, "that is the name itself");
        assert_eq!(nearest("a"), None, "one letter is like no other");
        assert_eq!(nearest("shipped"), None);
        assert_eq!(nearest(""), None);
    }

    #[test]
    fn what_is_awaited_itself_was_meant() {
        let awaited = ["paid", "payed"].map(Name::stored);
        assert_eq!(meant(&Name::stored("payed"), &awaited), None);
        assert_eq!(meant(&Name::stored("piad"), &awaited), awaited.first());
        let event = [Name::of_event(&Name::stored("paid"))];
        assert_eq!(meant(&Name::stored("piad"), &event), None);
    }
}
