//! The texts that begin and end transactions: their isolation, and the time limits that keep one that hangs from holding
//! up others.
//!
//! The limits are set by the statement that begins a transaction, and for that transaction alone: so they hold behind
//! pgbouncer too, where the next transaction may have another connection.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Timeouts;
use crate::clock::Server;

/// Ends a transaction. The wait for a synchronous standby has no time limit: a server that gives it up says that all is
/// well, though the standby may not have what was committed.
pub(crate) const COMMIT: &str = "set local statement_timeout = 0; commit";

/// Has a COMMIT answered when it is durable, on a server whose default is otherwise (rule 1.6).
const DURABLE: &str = "set local synchronous_commit = on";

/// The texts that begin transactions on one server, and that a connection of our own begins with.
#[derive(Debug)]
pub(crate) struct Begin {
    /// A transaction of the store's.
    pub store: String,
    /// The same on a server that would acknowledge what it has not made durable (rule 1.6).
    pub durable: String,
    /// One that sends a notice. Word need not be durable: what it tells of is, and a slow poll finds it.
    pub notice: String,
    /// The time limits of statements outside of transactions. For connections that nobody else ever has.
    pub session: String,
}

impl Begin {
    pub fn new(timeouts: &Timeouts, server: Server) -> Self {
        let bounded = limits(timeouts, server, "set local");
        // Compiling a statement to machine code costs a hundred times what any of ours takes to run, and the server would
        // do it wherever it believes that there is much to read. Who has waited for a lock must see what its last holder
        // has committed, whatever the database's default is.
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

/// Begins a transaction in which a step writes its own rows. What the step does there, and how long it takes over it, is
/// the step's business up to its time limit; one that has none may be silent for as long as the timeouts say.
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

/// The limits of a step's transaction from the moment at which its outcome is committed: rows of ours are locked then.
pub(crate) fn step_ends(timeouts: &Timeouts, server: Server) -> String {
    let bounded = limits(timeouts, server, "set local");
    format!("set local jit = off{bounded}")
}

/// Begins a migration: it may take as long as it takes, but a process that is paused in the middle of it is given up on.
pub(crate) fn migration(timeouts: &Timeouts) -> String {
    let idle = millis(timeouts.idle);
    format!(
        "begin; set local lock_timeout = 0; set local statement_timeout = 0; \
         set local idle_in_transaction_session_timeout = {idle}"
    )
}

/// How long a migration waits for a lock on a table, from now on.
pub(crate) fn migration_locks(timeouts: &Timeouts) -> String {
    format!("set local lock_timeout = {}", millis(timeouts.lock))
}

/// The settings that bound how long a transaction can hold others up, each after a semicolon.
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
        // A process that is paused takes no answer: the server hangs while it sends one, where no other limit reaches it.
        let unread = millis(timeouts.idle.saturating_mul(2));
        let _ = write!(text, "; {set} tcp_user_timeout = {unread}");
    }
    text
}

/// A time as the server takes it: whole milliseconds, at least one, for none would mean no limit; no limit for none.
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
