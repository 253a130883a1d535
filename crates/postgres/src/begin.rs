//! The texts that begin and end transactions: isolation, and the time limits that keep a hanging transaction from
//! blocking others.
//!
//! The statement that begins a transaction sets the limits, for that transaction only. So they also hold behind
//! pgbouncer, where the next transaction may use another connection.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Timeouts;
use crate::clock::Server;

/// Ends a transaction. The wait for a synchronous standby has no time limit: a server that gives up that wait reports
/// success, although the standby may not have the commit.
pub(crate) const COMMIT: &str = "set local statement_timeout = 0; commit";

/// Makes COMMIT return only after the commit is durable, on a server with another default (rule 1.6).
const DURABLE: &str = "set local synchronous_commit = on";

/// The texts that begin transactions on one server, and the text that begins a connection of the store.
#[derive(Debug)]
pub(crate) struct Begin {
    /// Begins a transaction of the store.
    pub store: String,
    /// The same, for a server that would acknowledge commits before they are durable (rule 1.6).
    pub durable: String,
    /// Begins a transaction that sends a notification. It need not be durable: the change it announces is, and the slow
    /// poll finds that.
    pub notice: String,
    /// The time limits of statements outside transactions. Only for connections that no other process uses.
    pub session: String,
}

impl Begin {
    pub fn new(timeouts: &Timeouts, server: Server) -> Self {
        let bounded = limits(timeouts, server, "set local");
        // JIT compilation takes a hundred times as long as any of our statements, and the server would do it wherever
        // it expects to read much. Read committed, whatever the database's default is: a transaction that has waited
        // for a lock must see the commit of the previous holder.
        let store = format!("begin isolation level read committed; set local jit = off{bounded}");
        Self {
            durable: format!("{store}; {DURABLE}"),
            store,
            notice: format!("begin; set local synchronous_commit = off{bounded}"),
            session: limits(timeouts, server, "set")
                .trim_start_matches("; ")
                .to_owned(),
        }
    }
}

/// Begins a transaction in which a step writes its own rows. Up to its time limit, the step may do what it wants and
/// take as long as it wants; a step without a limit may be idle for as long as the timeouts allow.
pub(crate) fn step(timeouts: &Timeouts, limit: Option<Duration>, durable: bool) -> String {
    let silent = limit.map_or(timeouts.step_idle, |limit| limit + timeouts.idle);
    let busy = limit.map_or(Duration::ZERO, |limit| limit + timeouts.idle);
    let (silent, busy) = (millis(silent), millis(busy));
    let mut text = format!(
        "begin isolation level read committed; set local lock_timeout = 0; \
         set local statement_timeout = {busy}; \
         set local idle_in_transaction_session_timeout = {silent}"
    );
    if durable {
        let _ = write!(text, "; {DURABLE}");
    }
    text
}

/// The limits of a step's transaction from the commit of its outcome on: from then on it locks rows of the store.
pub(crate) fn step_ends(timeouts: &Timeouts, server: Server) -> String {
    let bounded = limits(timeouts, server, "set local");
    format!("set local jit = off{bounded}")
}

/// Begins a migration. It may take any time, but the server ends it if the process pauses in the middle.
pub(crate) fn migration(timeouts: &Timeouts) -> String {
    let idle = millis(timeouts.idle);
    format!(
        "begin; set local lock_timeout = 0; set local statement_timeout = 0; \
         set local idle_in_transaction_session_timeout = {idle}"
    )
}

/// Sets how long a migration waits for a table lock, from now on.
pub(crate) fn migration_locks(timeouts: &Timeouts) -> String {
    format!("set local lock_timeout = {}", millis(timeouts.lock))
}

/// The settings that limit how long a transaction can block others, each after a semicolon.
fn limits(timeouts: &Timeouts, server: Server, set: &str) -> String {
    let (lock, idle) = (millis(timeouts.lock), millis(timeouts.idle));
    let transaction = millis(timeouts.transaction);
    let mut text = format!(
        "; {set} lock_timeout = {lock}; {set} statement_timeout = {transaction}; \
         {set} idle_in_transaction_session_timeout = {idle}"
    );
    if server.has_transaction_timeout() && set == "set local" {
        let _ = write!(text, "; {set} transaction_timeout = {transaction}");
    }
    if server.is_linux {
        // A paused process does not read results: the server blocks while it sends one, and no other limit applies
        // there.
        let unread = millis(timeouts.idle.saturating_mul(2));
        let _ = write!(text, "; {set} tcp_user_timeout = {unread}");
    }
    text
}

/// A duration for the server, in whole milliseconds: at least 1, because 0 means no limit; 0 stays 0.
fn millis(time: Duration) -> i32 {
    match i32::try_from(time.as_millis()) {
        Ok(0) if !time.is_zero() => 1,
        Ok(millis) => millis,
        Err(_) => i32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Server = Server {
        version: 170_002,
        is_linux: true,
    };

    #[test]
    fn a_transaction_begins_with_its_time_limits() {
        let begin = Begin::new(&Timeouts::default(), SERVER).store;
        for setting in [
            "lock_timeout = 3000",
            "statement_timeout = 30000",
            "idle_in_transaction_session_timeout = 5000",
            "transaction_timeout = 30000",
            "tcp_user_timeout = 10000",
        ] {
            assert!(begin.contains(&format!("; set local {setting}")), "{begin}");
        }
    }

    #[test]
    fn a_server_is_not_asked_for_what_it_has_not() {
        let old = Server {
            version: 160_009,
            is_linux: false,
        };
        let begin = Begin::new(&Timeouts::default(), old).store;
        assert!(!begin.contains(" transaction_timeout"), "{begin}");
        assert!(!begin.contains("tcp_user_timeout"), "{begin}");
    }

    #[test]
    fn a_step_may_be_silent_for_as_long_as_it_may_take() {
        let timeouts = Timeouts::default();
        let limited = step(&timeouts, Some(Duration::from_secs(60)), false);
        assert!(
            limited.contains("idle_in_transaction_session_timeout = 65000"),
            "{limited}"
        );
        let unlimited = step(&timeouts, None, true);
        assert!(unlimited.ends_with(DURABLE), "{unlimited}");
        assert!(unlimited.contains("statement_timeout = 0"), "{unlimited}");
        assert!(
            unlimited.contains("idle_in_transaction_session_timeout = 600000"),
            "{unlimited}"
        );
    }

    #[test]
    fn a_limit_too_short_to_count_is_not_taken_for_none() {
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::MAX), i32::MAX);
    }
}
