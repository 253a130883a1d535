//! Reads the columns of a row, by their numbers, into the model's types.

use std::sync::Arc;

use abide_core::model::{
    Aside, Attended, Awaits, BarrierNumber, Cause, ContractId, Epoch, Family, Folding, Inbox,
    InstanceId, Json, Key, Lease, Name, OperationWait, Policy, Priority, ResumeSource, Run,
    Sequence, Settled, Status, Timestamp, UniqueKey, WaitId, WaitKind, WorkerId,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) fn id(row: &Row<'_>, at: usize) -> Result<InstanceId> {
    Ok(InstanceId(row.get(at)?))
}

pub(crate) fn maybe_id(row: &Row<'_>, at: usize) -> Result<Option<InstanceId>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(InstanceId))
}

pub(crate) fn maybe_worker(row: &Row<'_>, at: usize) -> Result<Option<WorkerId>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(WorkerId))
}

pub(crate) fn flag(row: &Row<'_>, at: usize) -> Result<bool> {
    Ok(row.get::<_, i64>(at)? != 0)
}

pub(crate) fn time(row: &Row<'_>, at: usize) -> Result<Timestamp> {
    Ok(Timestamp::from_micros(row.get(at)?))
}

pub(crate) fn maybe_time(row: &Row<'_>, at: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(Timestamp::from_micros))
}

/// The own lease of a claim: two columns; the second has no meaning if the first is null.
pub(crate) fn lease(row: &Row<'_>, at: usize) -> Result<Option<Lease>> {
    let Some(until) = maybe_time(row, at)? else {
        return Ok(None);
    };
    let limit = maybe_time(row, at + 1)?;
    Ok(Some(Lease { until, limit }))
}

/// The failure policy that a machine declares, or that an instance was started with.
pub(crate) fn policy(row: &Row<'_>, at: usize) -> Result<Option<Policy>> {
    packed(row, at)
}

pub(crate) fn priority(row: &Row<'_>, at: usize) -> Result<Priority> {
    Ok(Priority(row.get(at)?))
}

pub(crate) fn status(row: &Row<'_>, at: usize) -> Result<Status> {
    Status::from_code(row.get(at)?).map_err(|error| unreadable(at, Type::Integer, error))
}

pub(crate) fn name(row: &Row<'_>, at: usize) -> Result<Name> {
    Ok(Name::stored(row.get::<_, Arc<str>>(at)?))
}

pub(crate) fn maybe_name(row: &Row<'_>, at: usize) -> Result<Option<Name>> {
    Ok(row.get::<_, Option<Arc<str>>>(at)?.map(Name::stored))
}

pub(crate) fn wait(row: &Row<'_>, at: usize) -> Result<WaitId> {
    Ok(WaitId::stored(row.get::<_, Arc<str>>(at)?))
}

pub(crate) fn maybe_wait(row: &Row<'_>, at: usize) -> Result<Option<WaitId>> {
    Ok(row.get::<_, Option<Arc<str>>>(at)?.map(WaitId::stored))
}

pub(crate) fn maybe_contract(row: &Row<'_>, at: usize) -> Result<Option<ContractId>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(ContractId))
}

/// The run's position in its chain: two columns.
pub(crate) fn run(row: &Row<'_>, at: usize) -> Result<Run> {
    Ok(Run {
        number: row.get(at)?,
        first: maybe_id(row, at + 1)?,
    })
}

pub(crate) fn maybe_key(row: &Row<'_>, at: usize) -> Result<Option<Key>> {
    Ok(row.get::<_, Option<Arc<str>>>(at)?.map(Key::stored))
}

pub(crate) fn maybe_unique_key(row: &Row<'_>, at: usize) -> Result<Option<UniqueKey>> {
    Ok(row.get::<_, Option<Vec<u8>>>(at)?.map(UniqueKey::stored))
}

pub(crate) fn json(row: &Row<'_>, at: usize) -> Result<Json> {
    parsed(row.get(at)?, at)
}

pub(crate) fn maybe_json(row: &Row<'_>, at: usize) -> Result<Option<Json>> {
    row.get::<_, Option<String>>(at)?
        .map(|text| parsed(text, at))
        .transpose()
}

fn parsed(text: String, at: usize) -> Result<Json> {
    Json::parse(text).map_err(|error| unreadable(at, Type::Text, error))
}

/// A list that is stored as JSON.
pub(crate) fn list<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<Vec<T>> {
    let text = row.get_ref(at)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(at, Type::Text, error))
}

/// The wait of a row; null if it does not wait.
pub(crate) fn awaits(row: &Row<'_>, at: usize) -> Result<Option<Awaits>> {
    let Some(stored) = packed::<StoredAwaits>(row, at)? else {
        return Ok(None);
    };
    let StoredAwaits {
        kind,
        names,
        since_us,
        id,
        waits,
        resumed,
    } = stored;
    let since = Timestamp::from_micros(since_us);
    Ok(Some(Awaits {
        kind,
        names,
        since,
        id,
        waits,
        resumed,
    }))
}

/// The last event up to which each operation has missed none; null if no operation waits for events.
pub(crate) fn attended(row: &Row<'_>, at: usize) -> Result<Vec<Attended>> {
    Ok(packed(row, at)?.unwrap_or_default())
}

/// The builds that could not run it; null if there are none.
pub(crate) fn unfit(row: &Row<'_>, at: usize) -> Result<Vec<Name>> {
    Ok(packed(row, at)?.unwrap_or_default())
}

/// The committed epochs: the last one, and those before it as bits.
pub(crate) fn settled(row: &Row<'_>, last: usize, before: usize) -> Result<Settled> {
    Ok(Settled {
        last: Epoch(row.get(last)?),
        before: row.get::<_, i64>(before)?.cast_unsigned(),
    })
}

/// The attempts that its history records as one row; null for nearly all rows.
pub(crate) fn folding(row: &Row<'_>, at: usize) -> Result<Vec<Folding>> {
    Ok(packed(row, at)?.unwrap_or_default())
}

/// The stored form of the folded attempts.
pub(crate) fn write_folding(folding: &[Folding]) -> Result<Option<String>> {
    let some = !folding.is_empty();
    some.then(|| written(folding)).transpose()
}

/// The counts of its children; null if it never had any.
pub(crate) fn family(row: &Row<'_>, at: usize) -> Result<Family> {
    let Some(stored) = packed::<StoredFamily>(row, at)? else {
        return Ok(Family::default());
    };
    let StoredFamily {
        barrier,
        pending,
        needed,
        ended,
    } = stored;
    Ok(Family {
        barrier,
        pending,
        needed,
        ended,
    })
}

/// The counters of its inbox; null if it never received a command.
pub(crate) fn inbox(row: &Row<'_>, at: usize) -> Result<Inbox> {
    let Some(stored) = packed::<StoredInbox>(row, at)? else {
        return Ok(Inbox::default());
    };
    let StoredInbox {
        sequence,
        cursor,
        signals,
        updates,
        handed,
        bytes,
        commands,
    } = stored;
    Ok(Inbox {
        sequence: Sequence(sequence),
        cursor: Sequence(cursor),
        signals,
        updates,
        handed: Sequence(handed),
        bytes,
        commands: Sequence(commands),
    })
}

/// The state that it returns to after it has run only for updates; null otherwise.
pub(crate) fn aside(row: &Row<'_>, at: usize) -> Result<Option<Aside>> {
    let Some(stored) = packed::<StoredAside>(row, at)? else {
        return Ok(None);
    };
    let status = Status::from_code(stored.status);
    Ok(Some(Aside {
        status: status.map_err(|error| unreadable(at, Type::Text, error))?,
        due_at: stored.due_us.map(Timestamp::from_micros),
        cause: Cause::from_code(stored.cause),
    }))
}

/// A value that is stored as JSON; `None` if the column is null.
fn packed<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<Option<T>> {
    let Some(text) = row.get_ref(at)?.as_str_or_null()? else {
        return Ok(None);
    };
    let stored = serde_json::from_str(text);
    stored
        .map(Some)
        .map_err(|error| unreadable(at, Type::Text, error))
}

/// The stored form of a wait.
pub(crate) fn write_awaits(awaits: &Awaits) -> Result<String> {
    let Awaits {
        kind,
        names,
        since,
        id,
        waits,
        resumed,
    } = awaits;
    written(&StoredAwaits {
        kind: *kind,
        names: names.clone(),
        since_us: since.as_micros(),
        id: id.clone(),
        waits: waits.clone(),
        resumed: *resumed,
    })
}

/// The stored form of the events up to which operations have missed none.
pub(crate) fn write_attended(attended: &[Attended]) -> Result<Option<String>> {
    (!attended.is_empty())
        .then(|| written(attended))
        .transpose()
}

/// The stored form of the builds that could not run it.
pub(crate) fn write_unfit(unfit: &[Name]) -> Result<Option<String>> {
    (!unfit.is_empty()).then(|| written(unfit)).transpose()
}

/// The stored form of the counts of its children.
pub(crate) fn write_family(family: Family) -> Result<Option<String>> {
    if family == Family::default() {
        return Ok(None);
    }
    let Family {
        barrier,
        pending,
        needed,
        ended,
    } = family;
    written(&StoredFamily {
        barrier,
        pending,
        needed,
        ended,
    })
    .map(Some)
}

/// The stored form of the counters of its inbox.
pub(crate) fn write_inbox(inbox: Inbox) -> Result<Option<String>> {
    if inbox == Inbox::default() {
        return Ok(None);
    }
    let Inbox {
        sequence,
        cursor,
        signals,
        updates,
        handed,
        bytes,
        commands,
    } = inbox;
    written(&StoredInbox {
        sequence: sequence.0,
        cursor: cursor.0,
        signals,
        updates,
        handed: handed.0,
        bytes,
        commands: commands.0,
    })
    .map(Some)
}

/// The stored form of the state that it returns to.
pub(crate) fn write_aside(aside: Aside) -> Result<String> {
    let Aside {
        status,
        due_at,
        cause,
    } = aside;
    written(&StoredAside {
        status: status.code(),
        due_us: due_at.map(Timestamp::as_micros),
        cause: cause.code(),
    })
}

#[derive(Serialize, Deserialize)]
struct StoredAwaits {
    kind: WaitKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<Name>,
    since_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<WaitId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waits: Vec<OperationWait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resumed: Option<ResumeSource>,
}

#[derive(Serialize, Deserialize)]
struct StoredFamily {
    barrier: BarrierNumber,
    pending: u32,
    needed: u32,
    #[serde(default)]
    ended: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredInbox {
    sequence: i64,
    cursor: i64,
    signals: u32,
    updates: u32,
    handed: i64,
    #[serde(default, skip_serializing_if = "is_default")]
    bytes: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    commands: i64,
}

fn is_default<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

#[derive(Serialize, Deserialize)]
struct StoredAside {
    status: i16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_us: Option<i64>,
    cause: i16,
}

/// A value as JSON.
pub(crate) fn written<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::ToSqlConversionFailure(Box::new(error)))
}

fn unreadable(
    at: usize,
    kind: Type,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::FromSqlConversionFailure(at, kind, Box::new(error))
}

/// Reads names, and reuses the previous value if it is the same in the next row.
#[derive(Default)]
pub(crate) struct Names(Option<Name>);

impl Names {
    pub fn read(&mut self, row: &Row<'_>, at: usize) -> Result<Name> {
        let text = row.get_ref(at)?.as_str()?;
        match &self.0 {
            Some(last) if last.as_str() == text => Ok(last.clone()),
            _ => Ok(self.0.insert(Name::stored(text)).clone()),
        }
    }
}
