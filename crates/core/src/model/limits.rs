//! Limits on sizes and numbers.

use serde::{Deserialize, Serialize};

use super::{Arguments, Condition, EventWait, Json, Name, Refusal};

/// Number of entries that one transaction of background work handles, and that one page of an internal read has: enough
/// that a round trip costs little for each, and few enough that others do not wait long for the locks.
pub const AT_ONCE: usize = 500;

/// Maximum size of a request in the outbox, in bytes of JSON. Both databases refuse a larger one when it is inserted.
pub const OUTBOX_REQUEST_BYTES_MAX: usize = 16 << 20;

/// The longest duration that a request may contain, in milliseconds: a hundred years.
pub const DURATION_MS_MAX: u64 = 100 * 365 * 24 * 3_600_000;

/// Limits on sizes and numbers. Each limit has a default and an error that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest state, in bytes of JSON.
    pub state_bytes: usize,
    /// The largest result, in bytes of JSON.
    pub result_bytes: usize,
    /// The longest error text that is stored, in bytes; a longer one is truncated.
    pub error_bytes: usize,
    /// Maximum number of children of one `spawn`.
    pub children_per_barrier: usize,
    /// Maximum number of signals that one `wait` names.
    pub names_per_wait: usize,
    /// Maximum total size of the conditions of one wait for events, in bytes.
    pub conditions_bytes: usize,
    /// Maximum number of levels of arrays and objects in a document; the content of the innermost counts as one.
    pub json_depth: usize,
    /// Maximum number of entries of one batch.
    pub batch_entries: usize,
    /// Maximum number of messages that are pending in one inbox.
    pub inbox_pending: usize,
    /// Maximum total size of the messages that are pending in one inbox, in bytes of JSON.
    pub inbox_bytes: usize,
    /// Maximum number of signals that are held for one key.
    pub held_per_key: usize,
    /// Maximum total size of the signals that are held for one key, in bytes of JSON.
    pub held_bytes: usize,
    /// Maximum size of a page of a list, in bytes of its entries. A larger page ends earlier, but has at least one
    /// entry.
    pub page_bytes: usize,
    /// Maximum size of the answer to a claim, in bytes of states, messages and children. A larger answer has fewer
    /// instances, but at least one.
    pub claim_bytes: usize,
    /// Maximum size of the arguments of a signal or an update, and of the answer to one, in bytes of JSON.
    pub payload_bytes: usize,
    /// Maximum number of waiters for events of one type.
    pub waiters_per_type: usize,
    /// Maximum number of events that one wait looks back at; older ones are not found.
    pub lookback_events: usize,
    /// Maximum total size of the payloads that one wait looks back at, in bytes of JSON.
    pub lookback_bytes: usize,
    /// Number of history events from which on a workflow is advised to continue as new.
    pub history_events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            state_bytes: 1 << 20,
            result_bytes: 1 << 20,
            error_bytes: 16 << 10,
            children_per_barrier: 10_000,
            names_per_wait: 100,
            conditions_bytes: 64 << 10,
            json_depth: 128,
            batch_entries: 100_000,
            inbox_pending: 5_000,
            inbox_bytes: 16 << 20,
            held_per_key: 1_000,
            held_bytes: 16 << 20,
            page_bytes: 4 << 20,
            claim_bytes: 16 << 20,
            payload_bytes: 1 << 20,
            waiters_per_type: 1_000_000,
            lookback_events: 10_000,
            lookback_bytes: 64 << 20,
            history_events: 10_000,
        }
    }
}

impl Limits {
    /// Refuses a state that is too large.
    pub fn check_state(&self, state: &Json) -> Result<(), Refusal> {
        at_most("state_bytes", self.state_bytes, state.size())?;
        self.check_depth(state)
    }

    /// Refuses a result that is too large.
    pub fn check_result(&self, result: &Json) -> Result<(), Refusal> {
        at_most("result_bytes", self.result_bytes, result.size())?;
        self.check_depth(result)
    }

    /// Refuses arguments, or a result of an update, that are too large.
    pub fn check_payload(&self, payload: &Json) -> Result<(), Refusal> {
        at_most("payload_bytes", self.payload_bytes, payload.size())?;
        self.check_depth(payload)
    }

    /// Refuses a document that is nested too deeply for its readers: many languages read only about a hundred levels,
    /// and a document that a worker cannot read would stop the worker.
    pub fn check_depth(&self, document: &Json) -> Result<(), Refusal> {
        // Each level takes at least two bytes.
        if document.size() / 2 < self.json_depth {
            return Ok(());
        }
        at_most("json_depth", self.json_depth, document.depth())
    }

    /// Refuses arguments that are nested too deeply. They are stored in a list or an object, which is one more level.
    pub fn check_arguments_depth(&self, arguments: &Arguments) -> Result<(), Refusal> {
        let inner = Self {
            json_depth: self.json_depth.saturating_sub(1),
            ..self.clone()
        };
        let check = |value: &Json| {
            inner
                .check_depth(value)
                .map_err(|_| Refusal::LimitExceeded {
                    limit: "json_depth".into(),
                    most: self.json_depth,
                    met: value.depth() + 1,
                })
        };
        match arguments {
            Arguments::Payload(value) => check(value),
            Arguments::Positional(values) => values.iter().try_for_each(check),
            Arguments::Named(values) => values.iter().try_for_each(|(_, value)| check(value)),
        }
    }

    /// Refuses a wait whose conditions are too large, because every event of the type is checked against them, or too
    /// deeply nested.
    pub fn check_conditions<'w>(
        &self,
        waits: impl Iterator<Item = &'w EventWait> + Clone,
    ) -> Result<(), Refusal> {
        let conditions = waits.flat_map(|wait| &wait.conditions);
        conditions
            .clone()
            .try_for_each(|one| self.check_depth(&one.right))?;
        let size = |one: &Condition| one.left.as_str().len() + one.right.size();
        let met = conditions.map(size).sum();
        at_most("conditions_bytes", self.conditions_bytes, met)
    }

    /// Refuses too many children in one spawn.
    pub fn check_children(&self, count: usize) -> Result<(), Refusal> {
        at_most("children_per_barrier", self.children_per_barrier, count)
    }

    /// Refuses a wait for too many names.
    pub fn check_names(&self, count: usize) -> Result<(), Refusal> {
        at_most("names_per_wait", self.names_per_wait, count)
    }

    /// Refuses too many waiters for events of one type.
    pub fn check_waiters(&self, event_type: &Name, count: usize) -> Result<(), Refusal> {
        at_most("waiters_per_type", self.waiters_per_type, count).map_err(|_| {
            Refusal::TooManyWaiters {
                event_type: event_type.clone(),
                most: self.waiters_per_type,
                met: count,
            }
        })
    }

    /// Refuses a batch that has too many entries.
    pub fn check_batch(&self, count: usize) -> Result<(), Refusal> {
        at_most("batch_entries", self.batch_entries, count)
    }

    /// Makes an error text storable: truncates it at a character boundary if it is too long, and replaces NUL
    /// characters, which PostgreSQL does not accept in a text, by U+FFFD.
    pub fn cut_error(&self, text: &str) -> String {
        let text = &text.replace('\0', "\u{fffd}");
        let mut end = self.error_bytes.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        match text.get(..end) {
            Some(head) if end < text.len() => format!("{head}… ({} bytes in all)", text.len()),
            _ => text.to_owned(),
        }
    }
}

fn at_most(limit: &'static str, most: usize, met: usize) -> Result<(), Refusal> {
    if met <= most {
        Ok(())
    } else {
        Err(Refusal::LimitExceeded {
            limit: limit.into(),
            most,
            met,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_over_the_limit_names_it_and_the_size_met() {
        // rule 16.3
        let limits = Limits {
            state_bytes: 4,
            ..Limits::default()
        };
        let error = limits
            .check_state(&Json::of("hello").unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("state_bytes") && error.contains('4') && error.contains('7'),
            "{error}"
        );
        assert!(limits.check_state(&Json::null()).is_ok());
    }

    #[test]
    fn a_long_error_text_is_cut_at_a_character() {
        let limits = Limits {
            error_bytes: 4,
            ..Limits::default()
        };
        assert_eq!(limits.cut_error("ééé"), "éé… (6 bytes in all)");
        assert_eq!(limits.cut_error("éa"), "éa");
        let odd = Limits {
            error_bytes: 3,
            ..Limits::default()
        };
        assert_eq!(odd.cut_error("ééé"), "é… (6 bytes in all)");
        assert_eq!(Limits::default().cut_error("a\0b"), "a\u{fffd}b");
    }
}
