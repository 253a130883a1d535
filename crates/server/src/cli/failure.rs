//! Failures of commands: the problem, the command to try next, and the exit code.

use std::io;
use std::process::ExitCode;

use abide::Error;
use abide::client::{OperateError, SendError, StartError};
use abide::model::Refusal;
use abide::store::OpenError;
use serde_json::Value;

use super::text::clean;
use crate::http::{self, Problem};
use crate::settings::SettingError;

/// The exit code of the process. The help of every command lists the same codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It was done.
    Done = 0,
    /// A rule refused it, or there is no such instance, or the instance did not end well.
    Refused = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The store cannot be reached, or is not fit to be used.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit codes, for the help.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused by a rule, or there is no such instance, or it did not end well
  2  wrong usage
  3  the store cannot be reached";

/// The next command to try if a store is not found.
pub const WHICH_STORE: &str = "abide config      (which store is used, and where that is set)";

/// The reason why a command was not carried out.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The problem.
    pub text: String,
    /// Further lines of the message.
    pub lines: Vec<String>,
    /// The command to try next.
    pub next: Option<String>,
    /// The output of `--json`; `None` if the output is closed.
    pub document: Option<Value>,
}

/// A result of a command.
pub type Result<T = Exit, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Makes a failure. `kind` is the name by which programs recognize it.
    pub fn new(exit: Exit, kind: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        let document = serde_json::json!({
            "type": format!("/problems/{kind}"),
            "title": kind.replace('_', " "),
            "detail": text,
        });
        Self {
            exit,
            text,
            lines: Vec::new(),
            next: None,
            document: Some(document),
        }
    }

    /// The command line is wrong.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", text)
    }

    /// The instance does not exist.
    pub fn nothing_at(target: &str) -> Self {
        let text = format!("no instance with the id or key {}", quoted(target));
        let mut failure = Self::new(Exit::Refused, "not_found", text)
            .answered_as(http::instances::not_found(target));
        let is_id = target.bytes().all(|byte| byte.is_ascii_digit());
        failure.next = Some(match is_id {
            true => "abide list".to_owned(),
            false => {
                let known: String = target.chars().take_while(|c| *c != ':').collect();
                format!("abide list --key-prefix {}", shell_quoted(&known))
            }
        });
        failure
    }

    /// Sets the JSON output to the problem that a server answers with.
    #[must_use]
    pub fn answered_as(mut self, problem: Problem) -> Self {
        self.document = serde_json::to_value(problem).ok();
        self
    }

    /// Adds the command to try next.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }

    /// Adds a field to the JSON output.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl serde::Serialize) -> Self {
        if let (Some(Value::Object(fields)), Ok(value)) =
            (&mut self.document, serde_json::to_value(value))
        {
            fields.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds a line to the message.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The output was closed, as `| head` does.
    fn unread() -> Self {
        Self {
            exit: Exit::Done,
            text: String::new(),
            lines: Vec::new(),
            next: None,
            document: None,
        }
    }

    /// The text for people, without control characters.
    pub fn message(&self) -> String {
        if self.document.is_none() {
            return String::new();
        }
        let mut message = format!("abide: {}\n", clean(&self.text));
        for line in &self.lines {
            message.push_str(&format!("  {}\n", clean(line)));
        }
        if let Some(next) = &self.next {
            message.push_str(&format!("try: {}\n", clean(next)));
        }
        message
    }
}

/// No store is named, and there is no default.
pub fn no_store(error: &SettingError) -> Failure {
    Failure::usage(error.to_string()).next("export ABIDE_STORE=sqlite:/var/lib/abide/abide.db")
}

/// A word as a shell takes it.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A text in quotes, as an error shows it.
pub fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::unread(),
            _ => Self::new(
                Exit::Refused,
                "output",
                format!("the output could not be written: {error}"),
            )
            .next("the same with its output sent elsewhere"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (exit, next) = match &error {
            Error::Refused(Refusal::Denied { .. }) => (
                Exit::Refused,
                "abide token create --role operate      (beside the server's store; it prints what to put into ABIDE_TOKEN)",
            ),
            Error::Refused(_) | Error::Mismatch { .. } => (Exit::Refused, "abide help"),
            Error::Unknown(_) => (Exit::Unreachable, "abide list"),
            Error::Unavailable(_) => (Exit::Unreachable, WHICH_STORE),
            _ => (Exit::Unreachable, "abide doctor"),
        };
        // The same document that a server answers with.
        let document = serde_json::to_value(Problem::from(error)).ok();
        Self {
            document,
            ..Self::new(exit, "failed", text).next(next)
        }
    }
}

impl From<abide_kernel::Error> for Failure {
    fn from(error: abide_kernel::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Error::from(refusal).into()
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            // It was reached, and does not let us in.
            OpenError::Error(error @ Error::Refused(Refusal::Denied { .. })) => error.into(),
            OpenError::Error(error) => Self {
                exit: Exit::Unreachable,
                ..Self::from(error)
            }
            .next(WHICH_STORE),
            other => Self::usage(other.to_string()).next("abide list --store sqlite:orders.db"),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Duplicate { holder } => duplicate(holder),
            StartError::Error(error) => error.into(),
            other => Self::new(Exit::Refused, "refused", other.to_string()).next("abide list"),
        }
    }
}

/// The key of a start is taken.
pub fn duplicate(holder: abide::InstanceId) -> Failure {
    let text = format!("the key, or the unique key, is taken by instance {holder}");
    Failure::new(Exit::Refused, "duplicate", text)
        .answered_as(http::starts::duplicate(holder))
        .next(format!("abide show {holder}"))
}

/// A signal or an update that was not accepted; `id` is what a server calls its record.
pub fn not_sent(error: SendError, target: &str, name: &str, id: &str) -> Failure {
    let quoted_target = shell_quoted(target);
    let mut failure = match &error {
        // Only a signal to a key can be held.
        SendError::NoTarget(_)
            if id == "update_id" || target.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            return Failure::nothing_at(target);
        }
        SendError::NoTarget(_) => {
            let hold = "      (holds it for the instance that starts with the key)";
            let next = format!(
                "abide signal {quoted_target} {} --hold-for 1h{hold}",
                shell_quoted(name)
            );
            return Failure::nothing_at(target).next(next);
        }
        SendError::Rejected(rejected) => {
            let text = rejected.why.to_string();
            Failure::new(Exit::Refused, "refused", text).next(format!("abide show {quoted_target}"))
        }
        SendError::Error(_) => match error {
            SendError::Error(error) => return error.into(),
            _ => return Failure::nothing_at(target),
        },
        other => Failure::new(Exit::Refused, "refused", other.to_string())
            .next(format!("abide show {quoted_target}")),
    };
    if let SendError::Rejected(rejected) = &error {
        if let Some(current) = rejected.current {
            failure = failure
                .line(format!("the newest run is {current}"))
                .next(format!("abide show {current}"));
        }
        if let Some(errors) = rejected.validation_errors() {
            for (field, problems) in errors.messages() {
                for problem in problems {
                    failure = failure.line(format!("{field}: {problem}"));
                }
            }
            failure = failure.next("abide machines --json      (what the machine declares)");
        }
    }
    failure.answered_as(http::signals::refused(error, target, id))
}

/// A cancellation, a restart or a repair that was refused.
pub fn not_operated(error: OperateError, target: &str) -> Failure {
    let next = match &error {
        OperateError::NoTarget(_) => return Failure::nothing_at(target),
        OperateError::NotCurrent { current } => format!("abide show {current}"),
        OperateError::KeyTaken { holder } => format!("abide show {holder}"),
        _ => format!("abide show {}", shell_quoted(target)),
    };
    match error {
        OperateError::Error(error) => error.into(),
        error => Failure::new(Exit::Refused, "refused", error.to_string())
            .next(next)
            .answered_as(http::operate::refused(error, target)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_no_control_characters_and_ends_with_the_command_to_try() {
        let message = Failure::nothing_at("order:\u{1b}[31m1").message();
        assert!(!message.contains('\u{1b}'), "{message:?}");
        assert!(
            message.ends_with("try: abide list --key-prefix order\n"),
            "{message}"
        );
    }

    #[test]
    fn words_are_quoted_for_the_shell_when_they_must_be() {
        assert_eq!(shell_quoted("order:42"), "order:42");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }
}
