//! The rows of a history: the events of one commit, packed as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Entry, HistoryEvent, InstanceId, NotJson, Timestamp};

/// The history events that one commit adds to one instance, in order, stored as one row.
///
/// A commit usually records two events (`step_completed`, then the effect), and one row for both costs the databases
/// half as much as two rows. `started` is not stored here: it is derived from the instance's own row, which is written
/// in the same commit, and is always event 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The instance.
    pub instance: InstanceId,
    /// The number of the first event.
    pub seq: u32,
    /// When it was committed.
    pub at: Timestamp,
    /// The events, as a JSON array.
    pub events: String,
}

impl HistoryRow {
    /// Packs the events of one commit.
    pub fn pack(
        instance: InstanceId,
        seq: u32,
        at: Timestamp,
        events: &[HistoryEvent],
    ) -> Result<Self, NotJson> {
        let mut packed = String::with_capacity(192);
        packed.push('[');
        for (place, event) in events.iter().enumerate() {
            if place > 0 {
                packed.push(',');
            }
            write_event(&mut packed, event)?;
        }
        packed.push(']');
        Ok(Self {
            instance,
            seq,
            at,
            events: packed,
        })
    }

    /// Returns the events, one by one.
    pub fn unpack(&self) -> Result<Vec<Entry>, NotJson> {
        let events: Vec<HistoryEvent> = serde_json::from_str(&self.events)?;
        let at = self.at;
        let entries = (self.seq..).zip(events);
        Ok(entries.map(|(seq, what)| Entry { seq, at, what }).collect())
    }

    /// Returns the number of the last event.
    pub fn last(&self) -> Result<u32, NotJson> {
        let events: Vec<serde::de::IgnoredAny> = serde_json::from_str(&self.events)?;
        let after = events.len().saturating_sub(1);
        Ok(self
            .seq
            .saturating_add(u32::try_from(after).unwrap_or(u32::MAX)))
    }
}

/// Writes an event as serde writes it. Every step records `step_completed`, and most instances end with `done`: these
/// two are written here, in a sixth of the time.
fn write_event(packed: &mut String, event: &HistoryEvent) -> Result<(), NotJson> {
    match event {
        HistoryEvent::StepCompleted {
            step,
            step_sequence,
            outcome,
            next,
            attempt,
            duration_us,
        } => {
            packed.push_str(r#"{"kind":"step_completed","data":{"step":"#);
            write_text(packed, step.as_str())?;
            packed.push_str(r#","step_sequence":"#);
            write_number(packed, u64::from(*step_sequence));
            packed.push_str(r#","outcome":"#);
            write_text(packed, outcome)?;
            if let Some(next) = next {
                packed.push_str(r#","next":"#);
                write_text(packed, next.as_str())?;
            }
            packed.push_str(r#","attempt":"#);
            write_number(packed, u64::from(*attempt));
            packed.push_str(r#","duration_us":"#);
            write_number(packed, *duration_us);
            packed.push_str("}}");
        }
        HistoryEvent::Done => packed.push_str(r#"{"kind":"done"}"#),
        other => packed.push_str(&serde_json::to_string(other)?),
    }
    Ok(())
}

fn write_text(packed: &mut String, text: &str) -> Result<(), NotJson> {
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    if text.as_bytes().iter().all(is_plain) {
        packed.push('"');
        packed.push_str(text);
        packed.push('"');
    } else {
        packed.push_str(&serde_json::to_string(text)?);
    }
    Ok(())
}

fn write_number(packed: &mut String, number: u64) {
    // Writing to a string cannot fail.
    let _ = write!(packed, "{number}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{BarrierNumber, Name, Status};

    #[test]
    fn events_are_packed_and_read_back_in_order() {
        // rule 16.1
        let events = vec![
            HistoryEvent::ChildEnded {
                child: InstanceId(7),
                barrier: BarrierNumber(1),
                status: Status::Failed,
            },
            HistoryEvent::Done,
        ];
        let row = HistoryRow::pack(InstanceId(1), 5, Timestamp::from_micros(9), &events).unwrap();
        let read = row.unpack().unwrap();
        assert_eq!(
            read.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
            [5, 6]
        );
        assert_eq!(
            read.into_iter().map(|entry| entry.what).collect::<Vec<_>>(),
            events
        );
    }

    fn completed() -> impl Strategy<Value = HistoryEvent> {
        let name = || any::<String>().prop_map(Name::stored);
        let numbers = (any::<u32>(), any::<u32>(), any::<u64>());
        (
            name(),
            any::<String>(),
            proptest::option::of(name()),
            numbers,
        )
            .prop_map(
                |(step, outcome, next, (step_sequence, attempt, duration_us))| {
                    HistoryEvent::StepCompleted {
                        step,
                        step_sequence,
                        outcome,
                        next,
                        attempt,
                        duration_us,
                    }
                },
            )
    }

    proptest! {
        /// Whatever is in it: quotes, control characters, characters of many bytes, the largest numbers.
        #[test]
        fn events_are_packed_as_serde_writes_them(step in completed()) {
            let failed = HistoryEvent::Failed { error: "\"no\"\n".into() };
            let events = [step, HistoryEvent::Done, failed];
            for events in [&events[..], &events[..1], &events[1..], &[]] {
                let row = HistoryRow::pack(InstanceId(1), 5, Timestamp::from_micros(9), events)?;
                prop_assert_eq!(row.events, serde_json::to_string(events)?);
            }
        }
    }
}
