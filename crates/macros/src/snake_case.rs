//! Converts the name of a variant to the name that is stored.

/// The snake_case of a variant: `AskAgain` is `ask_again`, `HTTPCall` is `http_call`, `Try2` is `try2`.
///
/// This is part of the stored format: a change here renames the steps of instances that already exist.
pub fn snake_case(variant: &str) -> String {
    let mut name = String::with_capacity(variant.len() + 4);
    let mut before: Option<char> = None;
    let mut chars = variant.chars().peekable();
    while let Some(char) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(|next| next.is_lowercase());
        if before.is_some_and(|before| begins_word(before, char, next_is_lower)) {
            name.push('_');
        }
        name.extend(char.to_lowercase());
        before = Some(char);
    }
    name
}

/// A capital begins a word after a small letter or a digit, and at the end of a run of capitals (`C` in `HTTPCall`).
fn begins_word(before: char, current: char, next_is_lower: bool) -> bool {
    current.is_uppercase() && before != '_' && (!before.is_uppercase() || next_is_lower)
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn words_are_split_where_a_reader_splits_them() {
        for (variant, name) in [
            ("Start", "start"),
            ("AskAgain", "ask_again"),
            ("HTTPCall", "http_call"),
            ("CallHTTP", "call_http"),
            ("Try2", "try2"),
            ("Try2Again", "try2_again"),
            ("V2HTTPCall", "v2_http_call"),
            ("A", "a"),
            ("AB", "ab"),
            ("AFit", "a_fit"),
            ("Ask_Again", "ask_again"),
            ("already_snake", "already_snake"),
            ("_Hidden", "_hidden"),
            ("ÜberWeg", "über_weg"),
        ] {
            assert_eq!(snake_case(variant), name, "of {variant}");
        }
    }
}
