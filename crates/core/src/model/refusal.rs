//! Reasons for refusing a request: the caller's mistake, and what to do about it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Exceeded, Name};

/// The reason why a request was refused. No part of it was written.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// A text is not a valid name or key.
    #[error("{text:?} cannot be a name or a key: {problem}")]
    BadName {
        /// The text, or its beginning.
        text: String,
        /// The problem.
        problem: Cow<'static, str>,
    },
    /// A text that a caller of a server claims as its source is invalid, and is not stored (rule 7.3).
    #[error(
        "invalid source {text:?}: {problem}; send 1 to 255 bytes without control characters, or none"
    )]
    BadSource {
        /// The text, or its beginning.
        text: String,
        /// The problem.
        problem: Cow<'static, str>,
    },
    /// Something is larger than its limit.
    #[error("{met} is over the limit {limit} of {most}: make it smaller or raise that limit")]
    LimitExceeded {
        /// The limit's name in the configuration.
        limit: Cow<'static, str>,
        /// The largest value that it allows.
        most: usize,
        /// The size or number that was found.
        met: usize,
    },
    /// There are too many waits for events of one type.
    #[error(
        "{met} waits for events of type {:?} are over the limit waiters_per_type of {most}: wait for fewer at once or raise that limit",
        event_type.as_str()
    )]
    TooManyWaiters {
        /// The type.
        event_type: Name,
        /// The limit.
        most: usize,
        /// The number that there would be.
        met: usize,
    },
    /// An outcome is not consistent.
    #[error("the outcome cannot be taken: {problem}")]
    BadOutcome {
        /// The problem, and what is expected instead.
        problem: String,
    },
    /// The outcome waits for a signal that the contract of the run does not declare (rule 8.6).
    #[error(
        "the outcome cannot be taken: it waits for the signal {:?}, which the contract of this run does not declare, so that it \
         cannot be sent: declare it, and start or continue a run",
        signal.as_str()
    )]
    UndeclaredSignal {
        /// The signal.
        signal: Name,
        /// The operation of a workflow that waits for it.
        operation: Option<u32>,
    },
    /// The version is not a valid version of a machine.
    #[error("{version} is not a machine version: versions are whole numbers from 1 to 2147483647")]
    BadVersion {
        /// The number.
        version: u32,
    },
    /// A transaction was requested of a store that is not a database.
    #[error("this store does not support step transactions; open SQLite or PostgreSQL directly")]
    NoDatabase,
    /// A start is invalid.
    #[error("nothing can be started so: {problem}")]
    BadStart {
        /// The problem, and what is expected instead.
        problem: String,
    },
    /// A request cannot be read, or is not consistent.
    #[error("invalid request: {problem}")]
    BadRequest {
        /// The problem, and what is expected instead.
        problem: String,
    },
    /// A key is taken, and the request needs a new instance.
    #[error("{} is taken by instance {holder}", named(key.as_ref()))]
    KeyTaken {
        /// The instance that holds it.
        holder: super::InstanceId,
        /// The key, if it is known.
        #[serde(default, flatten)]
        key: Option<super::AnyKey>,
    },
    /// An event, or a wait for one, is invalid.
    #[error("{problem}")]
    BadEvent {
        /// All problems, and what is expected instead.
        problem: String,
    },
    /// A contract is not consistent or cannot be read.
    #[error("the contract cannot be taken: {}", problems.join("; "))]
    BadContract {
        /// All problems.
        problems: Vec<String>,
    },
    /// The declaration of a machine is invalid.
    #[error("{machine} cannot be declared so: {}", problems.join("; "))]
    BadDeclaration {
        /// The machine.
        machine: super::Name,
        /// All problems, and what is expected instead.
        problems: Vec<String>,
    },
    /// An engine has nothing to run, or cannot do what it is asked for.
    #[error("invalid engine: {problem}")]
    BadEngine {
        /// The problem, and what is expected instead.
        problem: String,
    },
    /// The policy of an instance is invalid.
    #[error("invalid policy: {}", problems.join("; "))]
    BadPolicy {
        /// All problems, and what is expected instead.
        problems: Vec<String>,
    },
    /// The server does not allow this caller to do this, or does not accept it.
    #[error("the server refuses: {problem}")]
    Denied {
        /// The reason, and what to do about it.
        problem: String,
    },
    /// The key of a request was used for another one (rule 1.5).
    #[error(
        "the idempotency key {key:?} was used for another request; send this one under a key of its own"
    )]
    RequestReused {
        /// The key.
        key: super::Name,
    },
    /// A request with the same key is being carried out at this moment (rule 1.5).
    #[error(
        "a request with the idempotency key {key:?} is being carried out; send this one again to get its answer"
    )]
    RequestRunning {
        /// The key.
        key: super::Name,
    },
    /// A request was carried out before, and its answer was too large to be stored (rule 1.5).
    #[error(
        "the request with the idempotency key {key:?} was carried out before, and its answer was too large to be kept; check \
         its effect instead of sending it again"
    )]
    AnswerNotKept {
        /// The key.
        key: super::Name,
    },
    /// Validating a command takes longer than a transaction may wait, and it is not validated yet. The kernel validates
    /// it outside the transaction and sends it again. A caller gets this answer if all validators were busy.
    #[error(
        "validation took too long: the checks against contract {contract} are busy with other messages; try again later"
    )]
    Unjudged {
        /// The contract to validate it against.
        contract: super::ContractId,
    },
    /// A scope under which a claim could take a key that another instance holds.
    #[error(
        "a scope with executing in it needs runnable too: an instance that waits for a worker could otherwise lose its \
         key to another before it runs; to let one run at a time, use a partition"
    )]
    BadScope,
}

crate::debug_is_display!(Refusal);

impl Refusal {
    /// Returns the limit that was exceeded, if that is the reason.
    pub fn exceeded(&self) -> Option<Exceeded> {
        let (limit, most, met) = match self {
            Self::LimitExceeded { limit, most, met } => (limit.clone(), *most, *met),
            Self::TooManyWaiters { most, met, .. } => ("waiters_per_type".into(), *most, *met),
            _ => return None,
        };
        Some(Exceeded { limit, most, met })
    }

    /// A stable reason code for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "bad_name",
            Self::BadSource { .. } => "bad_source",
            Self::LimitExceeded { .. } | Self::TooManyWaiters { .. } => "limit_exceeded",
            Self::BadOutcome { .. } | Self::UndeclaredSignal { .. } => "bad_outcome",
            Self::BadVersion { .. } => "bad_version",
            Self::NoDatabase => "no_database",
            Self::BadStart { .. } => "bad_start",
            Self::BadRequest { .. } => "bad_request",
            Self::KeyTaken { .. } => "key_taken",
            Self::BadEvent { .. } => "bad_event",
            Self::BadContract { .. } => "bad_contract",
            Self::BadDeclaration { .. } => "bad_declaration",
            Self::BadEngine { .. } => "bad_engine",
            Self::BadPolicy { .. } => "bad_policy",
            Self::Denied { .. } => "denied",
            Self::RequestReused { .. } => "idempotency_key_reused",
            Self::RequestRunning { .. } => "request_in_progress",
            Self::AnswerNotKept { .. } => "answer_not_kept",
            Self::Unjudged { .. } => "validation_busy",
            Self::BadScope => "bad_scope",
        }
    }
}

/// Returns a taken key in the form that messages use.
fn named(key: Option<&super::AnyKey>) -> String {
    key.map_or_else(
        || "the key, or the unique key,".to_owned(),
        super::AnyKey::to_string,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AnyKey, InstanceId, Key, UniqueKey};

    #[test]
    fn a_taken_key_is_read_back_and_named() {
        // rule 2.8: over the wire, also from one who does not say which key it was.
        let holder = InstanceId(7);
        let keys = [
            (None, "the key, or the unique key, is taken by instance 7"),
            (
                Some(AnyKey::Key(Key::stored("order:\"42\""))),
                "key \"order:\\\"42\\\"\" is taken by instance 7",
            ),
            (
                Some(AnyKey::UniqueKey(UniqueKey::stored(vec![0, 255, b'u']))),
                "unique key \"\\x00\\xffu\" is taken by instance 7",
            ),
        ];
        for (key, text) in keys {
            let refusal = Refusal::KeyTaken { holder, key };
            assert_eq!(refusal.to_string(), text);
            let written = serde_json::to_string(&refusal).unwrap();
            let read: Refusal = serde_json::from_str(&written).unwrap();
            assert_eq!(read, refusal, "{written}");
        }
        let old = r#"{"reason":"key_taken","holder":7}"#;
        let read: Refusal = serde_json::from_str(old).unwrap();
        assert_eq!(read, Refusal::KeyTaken { holder, key: None });
    }
}
