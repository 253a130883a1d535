//! Time limits that keep a hanging process or server from blocking others, and their settings.

use std::time::Duration;

use abide_kernel::{Error, Result};

/// Time limits that keep a hanging process or server from blocking others (rule 6.8). Zero means no limit.
///
/// Each can also be set in the connection string, in milliseconds, which takes precedence:
/// `postgres://abide@localhost/orders?lock_timeout_ms=1000&idle_timeout_ms=2000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum wait of a transaction for one lock; then it is rolled back and tried again (`lock_timeout_ms`). Default:
    /// 3 s.
    pub lock: Duration,
    /// Maximum idle time of a process within a transaction; then the server rolls it back (`idle_timeout_ms`). Default:
    /// 5 s. A paused process holds its locks no longer than this. If the process does not read the results that it is
    /// sent, the server ends the connection after twice this time.
    pub idle: Duration,
    /// Maximum duration of a transaction, or of a read (`transaction_timeout_ms`). Default: 30 s. The server then ends
    /// the statement, and also the transaction (PostgreSQL 17 and later). If the server does not respond by then, the
    /// connection is closed.
    pub transaction: Duration,
    /// Maximum idle time of a step without a time limit in a [transaction of its own](crate::StepTransaction)
    /// (`step_idle_timeout_ms`). Default: 10 min. A step with a time limit may be idle for that time.
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

/// Extra time that the client waits for a response after the server's limit, because the server's own error says more.
const SLACK: Duration = Duration::from_secs(1);
/// A duration that is never reached.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Timeouts {
    /// Time limit of the client for requests that the server ends itself after [`transaction`](Self::transaction).
    pub(crate) fn deadline(&self) -> Duration {
        match self.transaction {
            Duration::ZERO => NEVER,
            limit => limit.saturating_add(SLACK).min(NEVER),
        }
    }

    /// Extracts the time limits of a connection string; also returns the string without them.
    pub(crate) fn taken_from(url: &str, mut timeouts: Self) -> Result<(String, Self)> {
        let Some((base, parameters)) = url.split_once('?') else {
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
            true => base.to_owned(),
            false => format!("{base}?{}", others.join("&")),
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
