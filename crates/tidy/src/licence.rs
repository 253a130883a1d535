//! Licence expressions (SPDX, and the old `MIT/Apache-2.0` form): can one be met with what we allow?

/// Returns true if an expression can be satisfied by choosing among licences for which `allows` is true. An
/// exception is part of its licence: `Apache-2.0 WITH LLVM-exception` is passed to `allows` as that.
///
/// # Errors
/// When it is not an expression: with what was expected.
pub fn is_met(expression: &str, allows: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    // In the old form a slash means a choice.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        at: 0,
        allows,
    };
    let met = reader.any_of()?;
    match reader.peek() {
        None => Ok(met),
        Some(word) => Err(format!("expected the end of the expression, not `{word}`")),
    }
}

/// Reads `a OR b AND (c OR d)`; AND binds closer than OR.
struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
    allows: &'a dyn Fn(&str) -> bool,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_it = self
            .peek()
            .is_some_and(|next| next.eq_ignore_ascii_case(word));
        self.at += usize::from(is_it);
        is_it
    }

    fn any_of(&mut self) -> Result<bool, String> {
        let mut met = self.all_of()?;
        while self.takes("OR") {
            met |= self.all_of()?;
        }
        Ok(met)
    }

    fn all_of(&mut self) -> Result<bool, String> {
        let mut met = self.one()?;
        while self.takes("AND") {
            met &= self.one()?;
        }
        Ok(met)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.takes("(") {
            let met = self.any_of()?;
            return if self.takes(")") {
                Ok(met)
            } else {
                Err("expected `)`".to_owned())
            };
        }
        let licence = self.name("a licence")?;
        if self.takes("WITH") {
            let exception = self.name("an exception")?;
            return Ok((self.allows)(&format!("{licence} WITH {exception}")));
        }
        Ok((self.allows)(licence))
    }

    fn name(&mut self, what: &str) -> Result<&'a str, String> {
        match self.peek() {
            Some(word)
                if !["(", ")", "OR", "AND", "WITH"].contains(&word.to_uppercase().as_str()) =>
            {
                self.at += 1;
                Ok(word)
            }
            Some(word) => Err(format!("expected {what}, not `{word}`")),
            None => Err(format!("expected {what}, not the end of the expression")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> Result<bool, String> {
        let allowed = ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"];
        is_met(expression, &|licence| allowed.contains(&licence))
    }

    #[test]
    fn one_licence_is_allowed_or_not() {
        assert_eq!(met("MIT"), Ok(true));
        assert_eq!(met("GPL-3.0-only"), Ok(false));
    }

    #[test]
    fn a_choice_needs_one_and_a_sum_needs_all() {
        assert_eq!(met("GPL-3.0-only OR MIT"), Ok(true));
        assert_eq!(met("GPL-3.0-only AND MIT"), Ok(false));
        assert_eq!(met("MIT AND ISC"), Ok(true));
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert_eq!(met("MIT OR GPL-3.0-only AND Foo"), Ok(true));
        assert_eq!(met("(MIT OR GPL-3.0-only) AND Foo"), Ok(false));
        assert_eq!(met("(MIT OR Foo) AND (ISC OR Bar)"), Ok(true));
    }

    #[test]
    fn the_old_form_is_a_choice() {
        assert_eq!(met("GPL-3.0/MIT"), Ok(true));
        assert_eq!(met("Foo / Bar"), Ok(false));
    }

    #[test]
    fn an_exception_belongs_to_its_licence() {
        assert_eq!(met("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(met("Apache-2.0 WITH Other-exception"), Ok(false));
        assert_eq!(met("Foo OR Apache-2.0 WITH LLVM-exception"), Ok(true));
    }

    #[test]
    fn an_invalid_expression_is_an_error() {
        for broken in [
            "", "MIT OR", "(MIT", "MIT)", "MIT ISC", "AND MIT", "MIT WITH",
        ] {
            assert!(met(broken).is_err(), "{broken:?}");
        }
    }
}
