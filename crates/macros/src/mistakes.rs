//! Mistakes that are reported together, so that one build shows them all.

use syn::{Error, Result};

/// The mistakes found so far.
#[derive(Default)]
pub struct Mistakes(Option<Error>);

impl Mistakes {
    pub fn add(&mut self, mistake: Error) {
        match &mut self.0 {
            Some(first) => first.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    /// Returns the value, or adds the mistake to the list.
    pub fn take<T>(&mut self, found: Result<T>) -> Option<T> {
        found.map_err(|mistake| self.add(mistake)).ok()
    }

    pub fn none_or_err(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
