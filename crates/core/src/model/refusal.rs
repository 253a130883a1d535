//! Why a request was refused: the caller's mistake, named, with what to do about it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Name;

/// Why a request was refused. Nothing of it was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// A text is not fit to be a name or a key.
    #[error("{text:?} cannot be a name or a key: {problem}")]
    BadName {
        /// The text, or its beginning.
        text: String,
        /// What is wrong with it.
        problem: Cow<'static, str>,
    },
    /// A text that a caller of a server claims to be its source, and that is not kept (rule 7.3).
    #[error(
        "invalid source {text:?}: {problem}; send 1 to 255 bytes without control characters, or none"
    )]
    BadSource {
        /// The text, or its beginning.
        text: String,
        /// What is wrong with it.
        problem: Cow<'static, str>,
    },
    /// Something is larger than its limit.
    #[error("{met} is over the limit {limit} of {most}: make it smaller or raise that limit")]
    LimitExceeded {
        /// The limit's name in the configuration.
        limit: Cow<'static, str>,
        /// What it allows.
        most: usize,
        /// What was met.
        met: usize,
    },
    /// More waits for events of one type than may be.
    #[error(
        "{met} waits for events of type {:?} are over the limit waiters_per_type of {most}: wait for fewer at once or raise that limit",
        event_type.as_str()
    )]
    TooManyWaiters {
        /// The type.
        event_type: Name,
        /// How many may be.
        most: usize,
        /// How many there would be.
        met: usize,
    },
    /// An outcome contradicts itself.
    #[error("the outcome cannot be taken: {problem}")]
    BadOutcome {
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A version that no machine can have.
    #[error(
        "{version} is no version of a machine: versions are whole numbers from 1 to 2147483647"
    )]
    BadVersion {
        /// The number.
        version: u32,
    },
    /// A transaction of a store that is no database.
    #[error(
        "this store is no database that a step could write its own rows in, and neither is a server: open SQLite or PostgreSQL \
         itself"
    )]
    NoDatabase,
    /// A start that cannot be made so.
    #[error("nothing can be started so: {problem}")]
    BadStart {
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A key that is taken, where only a new instance would do.
    #[error("{} is taken by instance {holder}", named(key.as_ref()))]
    KeyTaken {
        /// Who has it.
        holder: super::InstanceId,
        /// Which key it is, where that is known.
        #[serde(default, flatten)]
        key: Option<super::AnyKey>,
    },
    /// An event, or a wait for one, that cannot be.
    #[error("{problem}")]
    BadEvent {
        /// All that is wrong with it, and what would be right.
        problem: String,
    },
    /// A contract that contradicts itself or cannot be read.
    #[error("the contract cannot be taken: {}", problems.join("; "))]
    BadContract {
        /// All that is wrong with it.
        problems: Vec<String>,
    },
    /// A machine whose declaration cannot be.
    #[error("{machine} cannot be declared so: {}", problems.join("; "))]
    BadDeclaration {
        /// The machine.
        machine: super::Name,
        /// All that is wrong with it, and what would be right.
        problems: Vec<String>,
    },
    /// Something that a server does not let this caller do, or does not take.
    #[error("the server refuses: {problem}")]
    Denied {
        /// Why, and what to do about it.
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
    /// A request under the same key is being carried out at this moment (rule 1.5).
    #[error(
        "a request with the idempotency key {key:?} is being carried out; send this one again to get its answer"
    )]
    RequestRunning {
        /// The key.
        key: super::Name,
    },
    /// A request was carried out before, and its answer was too large to be remembered (rule 1.5).
    #[error(
        "the request with the idempotency key {key:?} was carried out before, and its answer was too large to be kept; look \
         at what it did instead of sending it again"
    )]
    AnswerNotKept {
        /// The key.
        key: super::Name,
    },
    /// A message whose validation takes longer than a transaction may wait for, and that is not validated yet. The
    /// kernel validates it outside and sends it again; who is answered this found all who validate busy.
    #[error(
        "validation took too long: the checks against contract {contract} are busy with other messages; try again later"
    )]
    Unjudged {
        /// The contract that it is to be validated against.
        contract: super::ContractId,
    },
    /// A scope under which claiming could meet a key that is taken.
    #[error(
        "a scope with executing in it needs runnable too: an instance that waits for a worker could otherwise lose its \
         key to another before it runs; to let one run at a time, use a partition"
    )]
    BadScope,
}

impl Refusal {
    /// A stable word for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "bad_name",
            Self::BadSource { .. } => "bad_source",
            Self::LimitExceeded { .. } | Self::TooManyWaiters { .. } => "limit_exceeded",
            Self::BadOutcome { .. } => "bad_outcome",
            Self::BadVersion { .. } => "bad_version",
            Self::NoDatabase => "no_database",
            Self::BadStart { .. } => "bad_start",
            Self::KeyTaken { .. } => "key_taken",
            Self::BadEvent { .. } => "bad_event",
            Self::BadContract { .. } => "bad_contract",
            Self::BadDeclaration { .. } => "bad_declaration",
            Self::Denied { .. } => "denied",
            Self::RequestReused { .. } => "idempotency_key_reused",
            Self::RequestRunning { .. } => "request_in_progress",
            Self::AnswerNotKept { .. } => "answer_not_kept",
            Self::Unjudged { .. } => "validation_busy",
            Self::BadScope => "bad_scope",
        }
    }
}

/// A key that is taken, as a message names it.
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
