//! Claim tokens: a claim as text, which a worker gets and sends back. The token contains all that a server must know,
//! so any server of the same database can accept it, also after a restart.

use std::time::Duration;

use abide::InstanceId;
use abide::model::{CommandId, Key, Name, WorkerId};
use abide::time::Timestamp;
use abide_kernel::model::{Cause, Claim, Claimed, Epoch, Outcome, ParentRef};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::seal::{SEAL_BYTES, Sealer};
use crate::telemetry::{AttemptTrace, moment};

/// The first byte: the format of the rest. 2 is a seal, followed by JSON. The former format 1 had no seal and is
/// refused.
const FORMAT: u8 = 2;
/// Maximum length of a token.
const BYTES_MAX: usize = 8 << 10;
/// Maximum number of commands, and of children, that woke the step and are recorded in a token.
const WOKEN_BY_MAX: usize = 16;

/// A claim, its worker, and what is needed to report the attempt when its outcome arrives.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimToken {
    /// The claim.
    pub claim: Claim,
    /// The worker that got it.
    pub worker: Name,
    /// The time for which each heartbeat extends it.
    pub lease: Duration,
    /// The time when it was made.
    pub since: Timestamp,
    /// The step that runs under it.
    pub step: ClaimedStep,
}

/// The step that runs under a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedStep(
    /// The machine.
    pub Name,
    /// Its version.
    pub u32,
    /// The step.
    pub Name,
    /// The step's number in the run.
    pub u32,
    /// How often it was begun before.
    pub u32,
    /// The cause that woke it, as the code that databases store.
    pub i16,
    /// The first of the commands that woke it.
    pub Vec<CommandId>,
    /// The first of the children whose ends woke it.
    pub Vec<InstanceId>,
);

impl ClaimedStep {
    /// Describes the step of a claim.
    pub fn of(claimed: &Claimed) -> Self {
        let messages = claimed.awaited.iter().chain(&claimed.updates);
        let messages = messages.map(|message| message.id).take(WOKEN_BY_MAX);
        let children = claimed.children.iter().map(|child| child.id);
        Self(
            claimed.machine.clone(),
            claimed.version,
            claimed.step.clone(),
            claimed.step_seq,
            claimed.attempt,
            claimed.cause.code(),
            messages.collect(),
            children.take(WOKEN_BY_MAX).collect(),
        )
    }

    /// The cause that woke it.
    pub fn cause(&self) -> Cause {
        Cause::from_code(self.5).unwrap_or_default()
    }
}

/// The encoded form: an array instead of an object, to keep tokens short.
type Fields = (
    (InstanceId, Epoch, WorkerId),
    Option<Key>,
    Option<(InstanceId, Option<Key>)>,
    Name,
    u64,
    i64,
    ClaimedStep,
);

/// The token was not issued by a server of this database.
#[derive(PartialEq, Eq, thiserror::Error)]
#[error("invalid claim token; send the `claim` value back unchanged")]
pub struct InvalidToken;

abide_kernel::debug_is_display!(InvalidToken);

impl ClaimToken {
    /// Encodes the token. The seal proves that a server of this database made it.
    pub fn encode(&self, sealer: &Sealer) -> String {
        let claim = &self.claim;
        let written: Fields = (
            (claim.id(), claim.epoch(), claim.worker()),
            claim.partition().cloned(),
            claim
                .parent()
                .map(|parent| (parent.id, parent.partition.clone())),
            self.worker.clone(),
            u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            self.since.as_micros(),
            self.step.clone(),
        );
        // Numbers and texts can always be encoded.
        let json = serde_json::to_vec(&written).unwrap_or_default();
        let mut bytes = vec![FORMAT];
        bytes.extend(sealer.seal(&json));
        bytes.extend(json);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The attempt that ended with `outcome` at `now`, for a trace.
    pub fn attempt(&self, outcome: &Outcome, now: Timestamp) -> AttemptTrace {
        let ClaimedStep(machine, version, step, step_sequence, attempt, _, woken_by, joined) =
            &self.step;
        AttemptTrace {
            instance: self.claim.id(),
            machine: machine.to_string(),
            version: *version,
            step: step.to_string(),
            step_sequence: *step_sequence,
            attempt: *attempt,
            cause: Some(self.step.cause()),
            woken_by: woken_by.clone(),
            joined: joined.clone(),
            worker: self.worker.to_string(),
            began: moment(self.since),
            ended: moment(now),
            outcome: outcome.last().name().to_owned(),
            error: match outcome.last() {
                Outcome::Stop { reason } => Some(reason.clone()),
                Outcome::Fail { error } => Some(error.clone()),
                _ => None,
            },
        }
    }

    /// Decodes a token, and checks its seal.
    pub fn decode(text: &str, sealer: &Sealer) -> Result<Self, InvalidToken> {
        if text.len() > BYTES_MAX {
            return Err(InvalidToken);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidToken)?;
        let Some((&FORMAT, sealed)) = bytes.split_first() else {
            return Err(InvalidToken);
        };
        let (seal, json) = sealed.split_at_checked(SEAL_BYTES).ok_or(InvalidToken)?;
        if !sealer.is_sealed(json, seal) {
            return Err(InvalidToken);
        }
        let (held, partition, parent, worker, lease_ms, since, step): Fields =
            serde_json::from_slice(json).map_err(|_| InvalidToken)?;
        let (id, epoch, number) = held;
        let parent = parent.map(|(id, partition)| ParentRef { id, partition });
        Ok(Self {
            claim: Claim::granted(id, epoch, number, partition, parent),
            worker,
            lease: Duration::from_millis(lease_ms),
            since: Timestamp::from_micros(since),
            step,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(partition: Option<&str>, parent: Option<i64>) -> ClaimToken {
        let key = |text: &str| Key::new(text).unwrap();
        let name = |text: &str| Name::new(text).unwrap();
        let parent = parent.map(|id| ParentRef {
            id: InstanceId(id),
            partition: partition.map(key),
        });
        ClaimToken {
            claim: Claim::granted(
                InstanceId(7),
                Epoch(3),
                WorkerId(9),
                partition.map(key),
                parent,
            ),
            worker: name("wörker/1"),
            lease: Duration::from_secs(30),
            since: Timestamp::from_micros(1_700_000_000_123_456),
            step: ClaimedStep(
                name("m"),
                1,
                name("s"),
                4,
                0,
                Cause::Signal.code(),
                vec![CommandId(5)],
                Vec::new(),
            ),
        }
    }

    #[test]
    fn a_claim_survives_the_way_to_a_worker_and_back() {
        for token in [
            token(None, None),
            token(Some("kunde:ä"), None),
            token(Some("p x"), Some(8)),
        ] {
            let sealer = Sealer::of(&[[7; 32]]);
            let text = token.encode(&sealer);
            assert!(
                text.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
                "{text}"
            );
            assert_eq!(ClaimToken::decode(&text, &sealer), Ok(token));
        }
    }

    #[test]
    fn a_token_that_no_server_issued_is_refused() {
        let sealer = Sealer::of(&[[7; 32]]);
        let good = token(None, None).encode(&sealer);
        let cut = good.get(..good.len() - 2).unwrap();
        let other = URL_SAFE_NO_PAD.encode([2, b'[', b']']);
        for bad in [
            "",
            "AQ",
            "x y",
            "ÄÖ",
            cut,
            &other,
            &format!("{good}="),
            &"A".repeat(BYTES_MAX + 1),
        ] {
            assert_eq!(ClaimToken::decode(bad, &sealer), Err(InvalidToken), "{bad}");
        }
    }

    #[test]
    fn a_token_that_was_altered_or_sealed_with_another_key_is_refused() {
        // A claim token is all that stands between a worker and an instance that it was never given.
        let (ours, theirs) = (Sealer::of(&[[7; 32]]), Sealer::of(&[[8; 32]]));
        let good = token(None, None).encode(&ours);
        let bytes = URL_SAFE_NO_PAD.decode(&good).unwrap();
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            let altered = URL_SAFE_NO_PAD.encode(&altered);
            assert_eq!(
                ClaimToken::decode(&altered, &ours),
                Err(InvalidToken),
                "byte {at}"
            );
        }
        assert_eq!(ClaimToken::decode(&good, &theirs), Err(InvalidToken));
        // Two servers that began at once may each have made a key, and know both.
        let both = Sealer::of(&[[8; 32], [7; 32]]);
        assert!(ClaimToken::decode(&good, &both).is_ok());
        let before = [&[1][..], &bytes[1 + SEAL_BYTES..]].concat();
        let unsealed = URL_SAFE_NO_PAD.encode(before);
        assert_eq!(ClaimToken::decode(&unsealed, &ours), Err(InvalidToken));
    }
}
