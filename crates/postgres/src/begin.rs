//! The texts that begin and end transactions: isolation, and the time limits that keep a hanging transaction from
//! blocking others.
//!
//! On a connection that no other process uses, the session has the limits. Otherwise the statement that begins a
//! transaction sets them, for that transaction only. So they also hold behind pgbouncer, where the next transaction may
//! use another connection.

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
pub(crate) struct Begins {
    /// For a connection that other processes may use too.
    pub shared: Begin,
    /// For a connection on which `session` was sent.
    pub own: Begin,
    /// Sets the limits of all transactions and statements. Only for connections that no other process uses.
    pub session: String,
}

/// The texts that begin transactions on one connection.
#[derive(Debug)]
pub(crate) struct Begin {
    /// Begins a transaction of the store.
    pub store: String,
    /// The same, for a server that would acknowledge commits before they are durable (rule 1.6).
    pub durable: String,
    /// Begins a transaction that sends a notification. It need not be durable: the change it announces is, and the slow
    /// poll finds that.
    pub notice: String,
}

impl Begins {
    pub fn new(timeouts: &Timeouts, server: Server) -> Self {
        let whole = whole(timeouts, server);
        let each = limits(timeouts, server, "set local");
        Self {
            shared: Begin::new(&format!("; {each}{whole}")),
            own: Begin::new(&whole),
            session: limits(timeouts, server, "set"),
        }
    }
}

impl Begin {
    /// Makes the texts that set these settings.
    fn new(settings: &str) -> Self {
        // Read committed, whatever the database's default is: a transaction that has waited for a lock must see the
        // commit of the previous holder.
        let store = format!("begin isolation level read committed{settings}");
        Self {
            durable: format!("{store}; {DURABLE}"),
            store,
            notice: format!("begin; set local synchronous_commit = off{settings}"),
        }
    }
}

/// Begins a transaction in which a step writes its own rows. Up to its time limit, the step may do what it wants and
/// take as long as it wants; a step without a limit may be idle for as long as the timeouts allow. Its own statements
/// get the server's default for JIT compilation.
pub(crate) fn step(timeouts: &Timeouts, limit: Option<Duration>, durable: bool) -> String {
    let silent = limit.map_or(timeouts.step_idle, |limit| limit + timeouts.idle);
    let busy = limit.map_or(Duration::ZERO, |limit| limit + timeouts.idle);
    let (silent, busy) = (millis(silent), millis(busy));
    let mut text = format!(
        "begin isolation level read committed; set local lock_timeout = 0; \
         set local statement_timeout = {busy}; set local jit to default; \
         set local idle_in_transaction_session_timeout = {silent}"
    );
    if durable {
        let _ = write!(text, "; {DURABLE}");
    }
    text
}

/// The limits of a step's transaction from the commit of its outcome on: from then on it locks rows of the store.
pub(crate) fn step_ends(timeouts: &Timeouts, server: Server) -> String {
    let (each, whole) = (
        limits(timeouts, server, "set local"),
        whole(timeouts, server),
    );
    format!("{each}{whole}")
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

/// The settings that limit how long a transaction can block others.
///
/// JIT compilation is off in all of them: it takes a hundred times as long as any of our statements, and the server
/// would do it wherever it expects to read much.
fn limits(timeouts: &Timeouts, server: Server, set: &str) -> String {
    let (lock, idle) = (millis(timeouts.lock), millis(timeouts.idle));
    let statement = millis(timeouts.transaction);
    let mut text = format!(
        "{set} jit = off; {set} lock_timeout = {lock}; {set} statement_timeout = {statement}; \
         {set} idle_in_transaction_session_timeout = {idle}"
    );
    if server.is_linux {
        // A paused process does not read results: the server blocks while it sends one, and no other limit applies
        // there.
        let unread = millis(timeouts.idle.saturating_mul(2));
        let _ = write!(text, "; {set} tcp_user_timeout = {unread}");
    }
    text
}

/// The limit of a whole transaction, after a semicolon; empty if the server has none. A session does not have it: some
/// transactions of a session may take any time.
fn whole(timeouts: &Timeouts, server: Server) -> String {
    match server.has_transaction_timeout() {
        true => format!(
            "; set local transaction_timeout = {}",
            millis(timeouts.transaction)
        ),
        false => String::new(),
    }
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
        let begins = Begins::new(&Timeouts::default(), SERVER);
        let limits = [
            "jit = off",
            "lock_timeout = 3000",
            "statement_timeout = 30000",
            "idle_in_transaction_session_timeout = 5000",
            "tcp_user_timeout = 10000",
        ];
        for limit in limits {
            for shared in [&begins.shared.store, &begins.shared.notice] {
                assert!(shared.contains(&format!("; set local {limit}")), "{shared}");
            }
            let session = format!("; {}", begins.session);
            assert!(session.contains(&format!("; set {limit}")), "{session}");
            assert!(!begins.own.store.contains(limit), "{}", begins.own.store);
        }
        for each in [&begins.shared, &begins.own] {
            let whole = "; set local transaction_timeout = 30000";
            assert!(each.store.contains(whole), "{}", each.store);
            assert_eq!(each.durable, format!("{}; {DURABLE}", each.store));
        }
    }

    #[test]
    fn a_server_is_not_asked_for_what_it_has_not() {
        let old = Server {
            version: 160_009,
            is_linux: false,
        };
        let begins = Begins::new(&Timeouts::default(), old);
        for text in [&begins.shared.store, &begins.own.store, &begins.session] {
            assert!(!text.contains("transaction_timeout"), "{text}");
            assert!(!text.contains("tcp_user_timeout"), "{text}");
        }
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
