//! Errors for arguments that do not match a contract.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::meter::Steps;

/// Maximum number of problems that are reported for one command; arguments can have more problems than a person reads.
const PROBLEMS_MAX: usize = 100;
/// Maximum length of a field name and of a message, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// The field for problems that belong to no parameter.
pub(super) const ARGUMENTS: &str = "arguments";

/// The reason why a signal or an update is not accepted.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The machine does not declare it.
    #[error("the machine declares others, and not this one")]
    Unknown,
    /// Its arguments do not match the declaration.
    #[error("the arguments do not fit: {0}")]
    Invalid(#[from] ValidationErrors),
    /// The arguments could not be validated in that many steps.
    #[error("validation took too long: more than {most} steps")]
    TooLong {
        /// Maximum number of steps.
        most: u64,
    },
}

crate::debug_is_display!(Unfit);

impl Unfit {
    /// Returns the errors for a validation that took too long, as its sender gets them (rule 8.5).
    pub fn too_long(most: u64, bytes: usize) -> ValidationErrors {
        let message = format!(
            "validation took too long: more than {most} steps for {bytes} bytes; send less, or declare a simpler \
             schema"
        );
        let problem = Problem::new("validation_too_long", message);
        ValidationErrors([(ARGUMENTS.to_owned(), vec![problem])].into())
    }
}

/// All problems of the arguments, by parameter.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValidationErrors(BTreeMap<String, Vec<Problem>>);

crate::debug_is_display!(ValidationErrors);

/// One problem of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A stable code for programs: `missing`, `unknown`, `wrong_type`, `null_not_allowed`, `too_many`, `given_twice`,
    /// `invalid_value` (the type is right, but the schema is not satisfied), `unreadable` (nested too deeply, or not a
    /// valid number or text), `validation_too_long` (it cannot be checked in bounded time) or `more` (there are more
    /// problems than are listed).
    pub code: Cow<'static, str>,
    /// The message for people.
    pub message: String,
}

impl Problem {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: cut(message.into()),
        }
    }
}

impl ValidationErrors {
    /// The problems, by field.
    pub fn problems(&self) -> &BTreeMap<String, Vec<Problem>> {
        &self.0
    }

    /// The messages alone: `{field: [message…]}`.
    pub fn messages(&self) -> BTreeMap<&str, Vec<&str>> {
        self.0
            .iter()
            .map(|(field, problems)| {
                let messages = problems.iter().map(|problem| problem.message.as_str());
                (field.as_str(), messages.collect())
            })
            .collect()
    }

    /// `true` if there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::error::Error for ValidationErrors {}

impl std::fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self
            .0
            .iter()
            .flat_map(|(field, problems)| problems.iter().map(move |problem| (field, problem)));
        for (position, (field, problem)) in all.enumerate() {
            let between = if position > 0 { "; " } else { "" };
            write!(f, "{between}{field} {}", problem.message)?;
        }
        Ok(())
    }
}

/// Collects problems, up to the limit, in the given number of steps.
pub(super) struct Problems<'s> {
    errors: ValidationErrors,
    count: usize,
    steps: &'s mut Steps,
}

impl<'s> Problems<'s> {
    pub(super) fn new(steps: &'s mut Steps) -> Self {
        Self {
            errors: ValidationErrors::default(),
            count: 0,
            steps,
        }
    }

    pub(super) fn steps(&mut self) -> &mut Steps {
        self.steps
    }

    /// `true` if the steps are spent, so that the problems are not known.
    pub(super) fn are_unknown(&self) -> bool {
        self.steps.are_spent()
    }

    pub(super) fn add(&mut self, field: &str, problem: Problem) {
        self.count += 1;
        if self.count <= PROBLEMS_MAX {
            let problems = self.errors.0.entry(cut(field.to_owned())).or_default();
            problems.push(problem);
        }
    }

    /// Returns the errors, if there are any.
    pub(super) fn finish(mut self) -> Result<(), Unfit> {
        if self.are_unknown() {
            let most = self.steps.most();
            return Err(Unfit::TooLong { most });
        }
        if let Some(more @ 1..) = self.count.checked_sub(PROBLEMS_MAX) {
            let message = format!("have {more} more problems, which are not listed");
            let problems = self.errors.0.entry(ARGUMENTS.into()).or_default();
            problems.push(Problem::new("more", message));
        }
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors.into())
        }
    }
}

/// Shortens a text for a message.
fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
