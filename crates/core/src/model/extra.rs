//! The values of a row that are the default in nearly every row: stores keep them together, in one column.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::json_text::{write_number, write_text};
use super::row::{Aside, Attended, Awaits, Family, Folding, Inbox, OperationWait, Row, Run};
use super::{
    BarrierNumber, Cause, InstanceId, Name, NewRow, ResumeSource, Status, Timestamp, WaitId,
    WaitKind,
};

/// The values of a row that are the default in nearly every row. They share a column, because every column makes every
/// statement that reads or writes the row slower.
///
/// It is stored as JSON without the defaults, and as null if nothing is left. SQL reads into it by these names. All texts
/// in it are names, so it has no NUL, which PostgreSQL could not read as `jsonb`: one such row would fail every claim.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extra {
    #[serde(skip_serializing_if = "is_default")]
    awaits: Option<StoredAwaits>,
    /// The counters of its inbox.
    #[serde(skip_serializing_if = "is_default")]
    pub inbox: Inbox,
    /// The counters of its children.
    #[serde(skip_serializing_if = "is_default", with = "StoredFamily")]
    pub family: Family,
    #[serde(skip_serializing_if = "is_default")]
    aside: Option<StoredAside>,
    /// For each operation that waits for events, the event up to which it has missed none.
    #[serde(skip_serializing_if = "is_default")]
    pub attended: Vec<Attended>,
    /// The builds that could not run its step.
    #[serde(skip_serializing_if = "is_default")]
    pub unfit: Vec<Name>,
    /// Number of attempts at its step in which the worker died.
    #[serde(skip_serializing_if = "is_default")]
    pub deaths: u32,
    /// The history events that combine several attempts.
    #[serde(skip_serializing_if = "is_default")]
    pub folding: Vec<Folding>,
    /// `true` if its wait timed out.
    #[serde(skip_serializing_if = "is_default")]
    pub timed_out: bool,
    /// Number of runs before it in its chain.
    #[serde(skip_serializing_if = "is_default")]
    earlier_runs: u32,
}

impl Extra {
    /// Reads the stored form.
    pub fn read(stored: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(stored)
    }

    /// Returns the stored form; `None` if it has only defaults.
    pub fn stored(&self) -> Result<Option<String>, serde_json::Error> {
        if is_default(self) {
            return Ok(None);
        }
        match self.is_usual() {
            true => self.usual().map(Some),
            false => serde_json::to_string(self).map(Some),
        }
    }

    /// `true` if it has a machine's wait and an inbox, and the rest are defaults: so it is after nearly every signal.
    fn is_usual(&self) -> bool {
        let Self {
            awaits: Some(StoredAwaits(awaits)),
            inbox,
            family,
            aside: None,
            attended,
            unfit,
            deaths: 0,
            folding,
            timed_out: false,
            earlier_runs: 0,
        } = self
        else {
            return false;
        };
        let lists = [attended.is_empty(), unfit.is_empty(), folding.is_empty()];
        awaits.waits.is_empty()
            && awaits.resumed.is_none()
            && !is_default(inbox)
            && is_default(family)
            && lists == [true; 3]
    }

    /// Writes it as serde writes it, in a fraction of the time.
    fn usual(&self) -> Result<String, serde_json::Error> {
        let mut stored = String::with_capacity(256);
        if let Some(StoredAwaits(awaits)) = &self.awaits {
            stored.push_str(r#"{"awaits":{"kind":"#);
            write_text(&mut stored, awaits.kind.name())?;
            for (place, name) in awaits.names.iter().enumerate() {
                stored.push_str(if place == 0 { r#","names":["# } else { "," });
                write_text(&mut stored, name.as_str())?;
            }
            if !awaits.names.is_empty() {
                stored.push(']');
            }
            stored.push_str(r#","since_us":"#);
            write_number(&mut stored, awaits.since.as_micros());
            if let Some(id) = &awaits.id {
                stored.push_str(r#","id":"#);
                write_text(&mut stored, id.as_str())?;
            }
        }
        let Inbox {
            sequence,
            cursor,
            signals,
            updates,
            handed,
            bytes,
            commands,
        } = self.inbox;
        // Writing to a string cannot fail.
        let _ = write!(
            stored,
            r#"}},"inbox":{{"sequence":{sequence},"cursor":{cursor},"signals":{signals},"updates":{updates},"handed":{handed},"bytes":{bytes},"commands":{commands}}}}}"#
        );
        Ok(stored)
    }

    /// Sets these values in a row that has the defaults.
    pub fn fill_row(mut self, row: &mut Row) {
        row.awaits = self.awaits();
        row.aside = self.aside();
        row.run = self.run(row.run.first);
        (row.inbox, row.family) = (self.inbox, self.family);
        (row.deaths, row.timed_out) = (self.deaths, self.timed_out);
        (row.attended, row.folding, row.unfit) = (self.attended, self.folding, self.unfit);
    }

    /// Takes out the wait.
    pub fn awaits(&mut self) -> Option<Awaits> {
        self.awaits.take().map(|stored| stored.0)
    }

    /// Returns the status that it returns to after it has run only for updates.
    pub fn aside(&self) -> Option<Aside> {
        self.aside.map(|stored| stored.0)
    }

    /// Returns the run's position in its chain, given the chain's first run.
    pub fn run(&self, first: Option<InstanceId>) -> Run {
        let number = self.earlier_runs.saturating_add(1);
        Run { number, first }
    }
}

impl From<&Row> for Extra {
    fn from(row: &Row) -> Self {
        Self {
            awaits: row.awaits.clone().map(StoredAwaits),
            inbox: row.inbox,
            family: row.family,
            aside: row.aside.map(StoredAside),
            attended: row.attended.clone(),
            unfit: row.unfit.clone(),
            deaths: row.deaths,
            folding: row.folding.clone(),
            timed_out: row.timed_out,
            earlier_runs: row.run.number.saturating_sub(1),
        }
    }
}

impl From<&NewRow> for Extra {
    fn from(row: &NewRow) -> Self {
        Self {
            inbox: row.inbox,
            earlier_runs: row.run.number.saturating_sub(1),
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredAwaits(#[serde(with = "AwaitsFields")] Awaits);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Awaits")]
struct AwaitsFields {
    kind: WaitKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<Name>,
    #[serde(rename = "since_us", with = "micros")]
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<WaitId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waits: Vec<OperationWait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resumed: Option<ResumeSource>,
}

/// A time as a number of microseconds.
mod micros {
    use super::super::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(time.as_micros())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp::from_micros)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Family")]
struct StoredFamily {
    barrier: BarrierNumber,
    pending: u32,
    needed: u32,
    ended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "AsideCodes", into = "AsideCodes")]
struct StoredAside(Aside);

#[derive(Serialize, Deserialize)]
struct AsideCodes {
    status: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_us: Option<i64>,
    cause: i16,
}

impl From<StoredAside> for AsideCodes {
    fn from(StoredAside(aside): StoredAside) -> Self {
        Self {
            status: aside.status.code(),
            due_us: aside.due_at.map(Timestamp::as_micros),
            cause: aside.cause.code(),
        }
    }
}

impl TryFrom<AsideCodes> for StoredAside {
    type Error = String;

    fn try_from(codes: AsideCodes) -> Result<Self, String> {
        let unknown = || format!("{} is not a status", codes.status);
        Ok(Self(Aside {
            status: Status::from_code(codes.status).ok_or_else(unknown)?,
            due_at: codes.due_us.map(Timestamp::from_micros),
            cause: Cause::from_code(codes.cause).unwrap_or_default(),
        }))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Sequence;

    proptest! {
        /// Whatever is in it: quotes, control characters, the largest numbers.
        #[test]
        fn the_usual_case_is_written_as_serde_writes_it(
            names in proptest::collection::vec(any::<String>(), 0..3),
            id in proptest::option::of(any::<String>()),
            since in any::<i64>(),
            [sequence, cursor, handed, commands] in any::<[i64; 4]>(),
            (signals, updates, bytes) in any::<(u32, u32, u64)>(),
        ) {
            let names = names.into_iter().map(Name::stored).collect();
            let since = Timestamp::from_micros(since);
            let awaits = Awaits::new(WaitKind::Signal, names, since, id.map(WaitId::stored));
            let inbox = Inbox {
                sequence: Sequence(sequence),
                cursor: Sequence(cursor),
                signals,
                updates,
                handed: Sequence(handed),
                bytes,
                commands: Sequence(commands),
            };
            let extra = Extra {
                awaits: Some(StoredAwaits(awaits)),
                inbox,
                ..Extra::default()
            };
            prop_assert_eq!(extra.is_usual(), inbox != Inbox::default());
            prop_assert_eq!(extra.stored()?, Some(serde_json::to_string(&extra)?));
        }
    }
}
