//! What is said of arguments that do not fit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::meter::Steps;

/// The most problems that are told of one command; what is sent can be wrong in more ways than anybody reads.
const PROBLEMS_MAX: usize = 100;
/// The longest name of a field and the longest message, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// Where problems are told that belong to no parameter.
pub(super) const ARGUMENTS: &str = "arguments";

/// Why a signal or an update is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The machine does not declare it.
    #[error("the machine declares others, and not this one")]
    Unknown,
    /// It is not sent with what it is declared to be sent with.
    #[error("the arguments do not fit: {0}")]
    Invalid(#[from] ValidationErrors),
    /// Whether it is sent with what it is declared to be sent with could not be found out in that many steps.
    #[error("validation took too long: more than {most} steps")]
    TooLong {
        /// The steps that it may take.
        most: u64,
    },
}

impl Unfit {
    /// A validation that took too long, as its sender is told of it (rule 8.5).
    pub fn too_long(most: u64, bytes: usize) -> ValidationErrors {
        let message = format!(
            "validation took too long: more than {most} steps for {bytes} bytes; send less, or declare a simpler \
             schema"
        );
        let problem = Problem::new("validation_too_long", message);
        ValidationErrors([(ARGUMENTS.to_owned(), vec![problem])].into())
    }
}

/// All that is wrong with arguments, by the parameter it is wrong with.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValidationErrors(BTreeMap<String, Vec<Problem>>);

/// One thing that is wrong with an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A stable word for programs: `missing`, `unknown`, `wrong_type`, `null_not_allowed`,
    /// `too_many`, `given_twice`, `invalid_value` (the type is right, but the schema asks for more),
    /// `unreadable` (nested too deeply, or a number or a text that is none), `validation_too_long` (it cannot be known in
    /// bounded time) or `more` (there is more than is listed).
    pub code: Cow<'static, str>,
    /// The same for people.
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

    /// Whether nothing is wrong.
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
        for (place, (field, problem)) in all.enumerate() {
            let between = if place > 0 { "; " } else { "" };
            write!(f, "{between}{field} {}", problem.message)?;
        }
        Ok(())
    }
}

/// Collects problems, up to as many as are told, in as many steps as there are.
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

    /// Whether the steps are spent, so that it is not known what is wrong.
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

    /// The errors, when there are any.
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

/// A text as a message can carry it.
fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
