//! Reads the columns of a row, by their numbers, into the model's types.

use std::sync::Arc;

use abide_core::model::{
    InstanceId, Json, Key, Name, Priority, Status, Timestamp, UniqueKey, WaitKind, WorkerId,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};

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
    Ok(row
        .get::<_, Option<i64>>(at)?
        .map(Timestamp::from_micros))
}

pub(crate) fn priority(row: &Row<'_>, at: usize) -> Result<Priority> {
    Ok(Priority(row.get(at)?))
}

pub(crate) fn status(row: &Row<'_>, at: usize) -> Result<Status> {
    Status::from_code(row.get(at)?).map_err(|error| unreadable(at, Type::Integer, error))
}

pub(crate) fn wait_kind(row: &Row<'_>, at: usize) -> Result<Option<WaitKind>> {
    Ok(row
        .get::<_, Option<i16>>(at)?
        .and_then(WaitKind::from_code))
}

pub(crate) fn name(row: &Row<'_>, at: usize) -> Result<Name> {
    Ok(Name::stored(row.get::<_, Arc<str>>(at)?))
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

/// A list that is kept as JSON; null stands for an empty one.
pub(crate) fn list<T: serde::de::DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<Vec<T>> {
    match row.get_ref(at)?.as_str_or_null()? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| unreadable(at, Type::Text, error)),
    }
}

fn unreadable(
    at: usize,
    kind: Type,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::FromSqlConversionFailure(at, kind, Box::new(error))
}

/// Reads names that are the same in row after row without making a new one each time.
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
