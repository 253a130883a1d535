//! The names that a sender could have used instead.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Name;

/// The names that a machine declares, or the first of them, for a sender that used an unknown name.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offer {
    /// The first names, in their order.
    pub names: Vec<Name>,
    /// Number of further names.
    pub more: usize,
}

impl Offer {
    /// Maximum number of names that are shown.
    const SHOWN: usize = 10;

    /// Creates an offer of these names.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n Name>) -> Self {
        let mut names = names.into_iter();
        Self {
            names: names.by_ref().take(Self::SHOWN).cloned().collect(),
            more: names.count(),
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return f.write_str("none");
        }
        for (at, name) in self.names.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_shows_a_few_and_counts_the_rest() {
        let names = |count: usize| -> Vec<Name> {
            let each = (0..count).map(|n| Name::new(format!("n{n}")));
            each.collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(Offer::of(&names(0)).to_string(), "none");
        assert_eq!(Offer::of(&names(2)).to_string(), "n0, n1");
        let many = Offer::of(&names(22)).to_string();
        assert!(many.ends_with(", n9 and 12 more"), "{many}");
    }
}
