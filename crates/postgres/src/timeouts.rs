//! How long something that hangs may hold others up, and where that is said.

use std::time::Duration;

use abide_kernel::{Error, Result};

/// How long something that hangs may hold others up (rule 6.8). Zero is no limit.
///
/// Each can be given in the connection string too, in milliseconds, which goes before what is said here:
/// `postgres://abide@localhost/orders?lock_timeout_ms=1000&idle_timeout_ms=2000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// How long a transaction waits for one lock before it is rolled back and tried again (`lock_timeout_ms`); 3 s.
    pub lock: Duration,
    /// How long a process may be silent in the middle of a transaction before the server rolls that back
    /// (`idle_timeout_ms`); 5 s. A process that is paused while it holds locks holds them for no longer. One that has
    /// been sent more than it takes is given up on after twice that.
    pub idle: Duration,
    /// How long a transaction, or a read, may take in all (`transaction_timeout_ms`); 30 s. The server ends a statement
    /// then, and the transaction (PostgreSQL 17 and later); one that does not answer by then is hung up on.
    pub transaction: Duration,
    /// How long a step that has no time limit may be silent in a [transaction of its own](crate::StepTransaction)
    /// (`step_idle_timeout_ms`); 10 min. One that has a limit may be for as long as that.
    pub step_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(3),
            idle: Duration::from_secs(5),
            transaction: Duration::from_secs(30),
            step_idle: Duration::from_secs(600),
        }
    }
}

/// How much longer than the server this side waits for an answer: the server's own says more.
const SLACK: Duration = Duration::from_secs(1);
/// A time that no clock comes to.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Timeouts {
    /// How long this side waits for what the server ends by itself after [`transaction`](Self::transaction).
    pub(crate) fn deadline(&self) -> Duration {
        match self.transaction {
            Duration::ZERO => NEVER,
            limit => limit.saturating_add(SLACK).min(NEVER),
        }
    }

    /// Takes what a connection string says of them; the string without it.
    pub(crate) fn taken_from(url: &str, mut timeouts: Self) -> Result<(String, Self)> {
        let Some((place, parameters)) = url.split_once('?') else {
            return Ok((url.to_owned(), timeouts));
        };
        let mut others = Vec::new();
        for parameter in parameters.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let timeout = match name {
                "lock_timeout_ms" => &mut timeouts.lock,
                "idle_timeout_ms" => &mut timeouts.idle,
                "transaction_timeout_ms" => &mut timeouts.transaction,
                "step_idle_timeout_ms" => &mut timeouts.step_idle,
                _ => {
                    others.push(parameter);
                    continue;
                }
            };
            let millis = value.parse().map_err(|_| {
                Error::Broken(format!(
                    "invalid database URL: `{name}` is {value:?}; write a number of milliseconds, such as `{name}=5000`"
                ))
            })?;
            *timeout = Duration::from_millis(millis);
        }
        let url = match others.is_empty() {
            true => place.to_owned(),
            false => format!("{place}?{}", others.join("&")),
        };
        Ok((url, timeouts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_may_say_them_and_is_otherwise_left_as_it_is() {
        let url = "postgres://u:p@h/d?sslmode=require&lock_timeout_ms=70&application_name=x&idle_timeout_ms=0";
        let (rest, timeouts) = Timeouts::taken_from(url, Timeouts::default()).unwrap();
        assert_eq!(
            rest,
            "postgres://u:p@h/d?sslmode=require&application_name=x"
        );
        let expected = Timeouts {
            lock: Duration::from_millis(70),
            idle: Duration::ZERO,
            ..Timeouts::default()
        };
        assert_eq!(timeouts, expected);
        let url = "postgres://h/d?transaction_timeout_ms=9";
        let (rest, _) = Timeouts::taken_from(url, Timeouts::default()).unwrap();
        assert_eq!(rest, "postgres://h/d");
    }

    #[test]
    fn one_that_is_not_a_number_is_refused_without_the_password() {
        let url = "postgres://u:secret@h/d?lock_timeout_ms=3s";
        let error = Timeouts::taken_from(url, Timeouts::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("`lock_timeout_ms` is \"3s\""), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn no_limit_is_none_on_this_side_either() {
        let unlimited = Timeouts {
            transaction: Duration::ZERO,
            ..Timeouts::default()
        };
        assert_eq!(unlimited.deadline(), NEVER);
        assert_eq!(Timeouts::default().deadline(), Duration::from_secs(31));
    }
}
