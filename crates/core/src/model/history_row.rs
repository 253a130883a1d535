//! The rows of a history: the events of one commit, packed as JSON.

use serde::{Deserialize, Serialize};

use super::json_text::{write_number, write_text};
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

/// Writes an event as serde writes it. Every step records `step_completed`, most instances end with `done`, and every
/// signal is recorded: these are written here, in a sixth of the time.
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
            write_number(packed, step_sequence);
            packed.push_str(r#","outcome":"#);
            write_text(packed, outcome)?;
            if let Some(next) = next {
                packed.push_str(r#","next":"#);
                write_text(packed, next.as_str())?;
            }
            packed.push_str(r#","attempt":"#);
            write_number(packed, attempt);
            packed.push_str(r#","duration_us":"#);
            write_number(packed, duration_us);
            packed.push_str("}}");
        }
        HistoryEvent::Done => packed.push_str(r#"{"kind":"done"}"#),
        HistoryEvent::SignalReceived {
            command_id,
            name,
            message_sequence,
            command_sequence,
            wait_id,
            source,
            claimed_source,
        } => {
            packed.push_str(r#"{"kind":"signal_received","data":{"command_id":"#);
            write_number(packed, command_id);
            packed.push_str(r#","name":"#);
            write_text(packed, name.as_str())?;
            packed.push_str(r#","message_sequence":"#);
            write_number(packed, message_sequence);
            if let Some(command_sequence) = command_sequence {
                packed.push_str(r#","command_sequence":"#);
                write_number(packed, command_sequence);
            }
            packed.push_str(r#","wait_id":"#);
            write_text(packed, wait_id.as_str())?;
            let sources = [
                (r#","source":"#, source),
                (r#","claimed_source":"#, claimed_source),
            ];
            for (member, sender) in sources {
                if let Some(sender) = sender {
                    packed.push_str(member);
                    write_text(packed, sender)?;
                }
            }
            packed.push_str("}}");
        }
        other => packed.push_str(&serde_json::to_string(other)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{BarrierNumber, CommandId, Name, Sequence, Status, WaitId};

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

    fn received() -> impl Strategy<Value = HistoryEvent> {
        let sender = || proptest::option::of(any::<String>());
        let numbers = (
            any::<i64>(),
            any::<i64>(),
            proptest::option::of(any::<i64>()),
        );
        (
            numbers,
            any::<String>(),
            any::<String>(),
            sender(),
            sender(),
        )
            .prop_map(
                |((id, sequence, command_sequence), name, wait_id, source, claimed_source)| {
                    HistoryEvent::SignalReceived {
                        command_id: CommandId(id),
                        name: Name::stored(name),
                        message_sequence: Sequence(sequence),
                        command_sequence: command_sequence.map(Sequence),
                        wait_id: WaitId::stored(wait_id),
                        source,
                        claimed_source,
                    }
                },
            )
    }

    proptest! {
        /// Whatever is in it: quotes, control characters, characters of many bytes, the largest numbers.
        #[test]
        fn events_are_packed_as_serde_writes_them(step in completed(), signal in received()) {
            let failed = HistoryEvent::Failed { error: "\"no\"\n".into() };
            let events = [step, HistoryEvent::Done, failed, signal];
            for events in [&events[..], &events[..1], &events[1..], &[]] {
                let row = HistoryRow::pack(InstanceId(1), 5, Timestamp::from_micros(9), events)?;
                prop_assert_eq!(row.events, serde_json::to_string(events)?);
            }
        }
    }
}
