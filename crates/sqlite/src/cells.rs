//! Reads the columns of a row, by their numbers, into the model's types.

use std::sync::Arc;

use abide_core::model::{
    ContractId, Epoch, Extra, InstanceId, Json, Key, Lease, Name, Policy, Priority, Settled,
    Status, Timestamp, UniqueKey, WaitId, WorkerId,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// A value that is stored as a number; the default for an unknown number, which a newer release has written.
pub(crate) fn code<T: Default>(row: &Row<'_>, at: usize, of: fn(i16) -> Option<T>) -> Result<T> {
    Ok(of(row.get(at)?).unwrap_or_default())
}

pub(crate) fn status(row: &Row<'_>, at: usize) -> Result<Status> {
    known(row, at, Status::from_code)
}

/// A value that is stored as a number that this release must know.
pub(crate) fn known<T>(row: &Row<'_>, at: usize, of: fn(i16) -> Option<T>) -> Result<T> {
    let code = row.get(at)?;
    of(code).ok_or_else(|| {
        let problem = format!("{code} is not a status");
        Error::FromSqlConversionFailure(at, Type::Integer, problem.into())
    })
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

/// Reads the column `extra`; `None` for a null, which nearly all rows have.
pub(crate) fn extra(row: &Row<'_>, at: usize) -> Result<Option<Extra>> {
    let stored = row.get_ref(at)?.as_str_or_null()?;
    stored
        .map(Extra::read)
        .transpose()
        .map_err(|error| unreadable(at, Type::Text, error))
}

/// The stored form of the values that are the default in nearly every row.
pub(crate) fn stored(extra: &Extra) -> Result<Option<String>> {
    let stored = extra.stored();
    stored.map_err(|error| Error::ToSqlConversionFailure(Box::new(error)))
}

/// The committed epochs: the last one, and those before it as bits.
pub(crate) fn settled(row: &Row<'_>, last: usize, before: usize) -> Result<Settled> {
    Ok(Settled {
        last: Epoch(row.get(last)?),
        before: row.get::<_, i64>(before)?.cast_unsigned(),
    })
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
