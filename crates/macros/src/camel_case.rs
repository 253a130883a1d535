//! Converts the name of a step function to that of its variant.

/// The CamelCase of a function: `ask_again` is `AskAgain`, `try2` is `Try2`.
///
/// It may be something that is not an identifier, such as `2nd` for `_2nd`.
pub fn camel_case(function: &str) -> String {
    let mut name = String::with_capacity(function.len());
    for word in function.split('_') {
        let mut chars = word.chars();
        name.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        name.push_str(chars.as_str());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::camel_case;

    #[test]
    fn words_are_joined_with_capitals() {
        for (function, variant) in [
            ("start", "Start"),
            ("ask_again", "AskAgain"),
            ("ask__again", "AskAgain"),
            ("http_call", "HttpCall"),
            ("try2", "Try2"),
            ("try_2", "Try2"),
            ("_hidden", "Hidden"),
            ("über_weg", "ÜberWeg"),
            ("_2nd", "2nd"),
            ("_", ""),
        ] {
            assert_eq!(camel_case(function), variant, "of {function}");
        }
    }
}
