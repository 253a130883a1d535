//! Reads the cells of a row, one after the other, as values of the model.

use abide_core::model::{
    BarrierNumber, Cause, CommandId, CommandKind, CommandStatus, ContractId, Epoch, EventSequence,
    Extra, InstanceId, Json, Key, Kind, Name, OutboxId, Policy, Priority, Rejection, Scope,
    Sequence, Status, Timestamp, UniqueKey, WaitId, WaitKind, WorkerId,
};
use abide_kernel::{Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::error::describe;
use crate::param::EPOCH_US;

/// The cells of a row, from left to right.
pub(crate) struct Cells<'r> {
    row: &'r Row,
    at: usize,
}

impl<'r> Cells<'r> {
    /// Starts at the first cell.
    pub fn of(row: &'r Row) -> Self {
        Self { row, at: 0 }
    }

    /// The next cell. Returns an error if its value is invalid: then the database is not one of abide.
    pub fn next<T: Value<'r>>(&mut self) -> Result<T> {
        let at = self.at;
        self.at += 1;
        let raw = self
            .row
            .try_get(at)
            .map_err(|error| Error::Broken(describe(&error)))?;
        T::read(raw)
    }

    /// Passes over cells that are known to be null.
    pub fn skip(&mut self, count: usize) {
        self.at += count;
    }
}

/// Reads every row with one function.
pub(crate) fn each<T>(rows: &[Row], read: impl Fn(&mut Cells<'_>) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(|row| read(&mut Cells::of(row))).collect()
}

/// A value that a cell can hold.
pub(crate) trait Value<'r>: Sized {
    /// The type that the driver reads.
    type Raw: FromSql<'r>;

    /// Converts the driver's value.
    fn read(raw: Self::Raw) -> Result<Self>;
}

/// Declares the type that the driver reads for a value, and the conversion from it.
macro_rules! value {
    ($type:ty, $raw:ty, |$from:ident| $read:expr) => {
        impl<'r> Value<'r> for $type {
            type Raw = $raw;

            fn read($from: $raw) -> Result<Self> {
                $read
            }
        }
    };
}

value!(i64, i64, |raw| Ok(raw));
value!(bool, bool, |raw| Ok(raw));
value!(u32, i32, |raw| u32::try_from(raw)
    .map_err(|_| Error::Broken(format!("{raw} is not a count"))));
value!(u64, i64, |raw| u64::try_from(raw)
    .map_err(|_| Error::Broken(format!("{raw} is not a count"))));
value!(String, &'r str, |raw| Ok(raw.to_owned()));
value!(&'r str, &'r str, |raw| Ok(raw));
value!(Name, &'r str, |raw| Ok(Name::stored(raw)));
value!(Key, &'r str, |raw| Ok(Key::stored(raw)));
value!(WaitId, &'r str, |raw| Ok(WaitId::stored(raw)));
value!(UniqueKey, &'r [u8], |raw| Ok(UniqueKey::stored(
    raw.to_vec()
)));
value!(Json, &'r str, |raw| Json::parse(raw.to_owned())
    .map_err(|e| Error::Broken(e.to_string())));
value!(Policy, &'r str, |raw| serde_json::from_str(raw).map_err(
    |error| Error::Broken(format!("a policy cannot be read: {error}"))
));
value!(Extra, &'r str, |raw| Extra::read(raw).map_err(|error| {
    Error::Broken(format!("a row cannot be read: {error}"))
}));
value!(InstanceId, i64, |raw| Ok(InstanceId(raw)));
value!(WorkerId, i64, |raw| Ok(WorkerId(raw)));
value!(CommandId, i64, |raw| Ok(CommandId(raw)));
value!(ContractId, i64, |raw| Ok(ContractId(raw)));
value!(OutboxId, i64, |raw| Ok(OutboxId(raw)));
value!(EventSequence, i64, |raw| Ok(EventSequence(raw)));
value!(Sequence, i64, |raw| Ok(Sequence(raw)));
value!(Epoch, i64, |raw| Ok(Epoch(raw)));
value!(BarrierNumber, i32, |raw| Ok(BarrierNumber(raw)));
value!(Priority, i16, |raw| Ok(Priority(raw)));
value!(Status, i16, |raw| Status::from_code(raw)
    .ok_or_else(|| Error::Broken(format!("{raw} is not a status"))));
// An unknown number in these was written by a newer release.
value!(Cause, i16, |raw| Ok(
    Cause::from_code(raw).unwrap_or_default()
));
value!(
    Kind,
    i16,
    |raw| Ok(Kind::from_code(raw).unwrap_or_default())
);
value!(WaitKind, &'r str, |raw| WaitKind::named(raw).ok_or_else(
    || Error::Broken(format!("{raw:?} is not a kind of wait"))
));
value!(CommandKind, i16, |raw| Ok(
    CommandKind::from_code(raw).unwrap_or_default()
));
value!(CommandStatus, i16, |raw| CommandStatus::from_code(raw)
    .ok_or_else(|| Error::Broken(format!(
        "{raw} is not a status of a record"
    ))));
value!(Rejection, i16, |raw| Rejection::from_code(raw).ok_or_else(
    || Error::Broken(format!("{raw} is not a reason to refuse"))
));
value!(Scope, i32, |raw| Ok(Scope::from_bits(raw)));
value!(Timestamp, Moment, |raw| Ok(raw.0));
value!(Vec<Name>, Vec<&'r str>, |raw| Ok(raw
    .into_iter()
    .map(Name::stored)
    .collect()));
value!(Vec<i64>, Vec<i64>, |raw| Ok(raw));
value!(Vec<i32>, Vec<i32>, |raw| Ok(raw));

impl<'r, T: Value<'r>> Value<'r> for Option<T> {
    type Raw = Option<T::Raw>;

    fn read(raw: Self::Raw) -> Result<Self> {
        raw.map(T::read).transpose()
    }
}

/// A `timestamptz`, which counts from 2000.
pub(crate) struct Moment(Timestamp);

impl<'r> FromSql<'r> for Moment {
    fn from_sql(
        kind: &Type,
        raw: &'r [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        // Same width and format as an int8.
        let micros = i64::from_sql(kind, raw)?;
        Ok(Self(Timestamp::from_micros(
            micros.saturating_add(EPOCH_US),
        )))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}
