//! Parameters of statements, encoded at once into owned bytes, so that a statement can be sent now and its result read
//! later.

use std::borrow::Cow;
use std::error::Error;

use abide_core::model::{
    BarrierNumber, CommandId, ContractId, Epoch, EventSequence, InstanceId, OutboxId, Priority,
    Sequence, Timestamp, WorkerId,
};
use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

/// Microseconds from 1970 to 2000, the origin of PostgreSQL's time.
pub(crate) const EPOCH_US: i64 = 946_684_800_000_000;
/// The earliest time that PostgreSQL supports, in microseconds since 2000 (4714 BC).
const EARLIEST_US: i64 = -211_813_488_000_000_000;

/// Maximum text in one statement, in bytes: the size of a protocol message is limited.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Length of an array's header, in bytes.
const HEADER: usize = 20;

/// One parameter of a statement, encoded.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    kind: Type,
    bytes: Encoded,
}

/// The bytes of a parameter; `None` is null.
#[derive(Clone, Debug)]
pub(crate) struct Encoded(Option<Bytes>);

impl Param {
    /// A single value.
    pub fn one<C: Cell>(value: C) -> Self {
        let mut to = BytesMut::new();
        let bytes = value.write(&mut to).then(|| to.freeze());
        Self {
            kind: C::KIND,
            bytes: Encoded(bytes),
        }
    }

    /// An array, in the binary format that `unnest` expects.
    pub fn list<C: Cell>(values: impl IntoIterator<Item = C>) -> Self {
        let values = values.into_iter();
        let about = values.size_hint().0;
        Self::array(values, about)
    }

    fn array<C: Cell>(values: impl Iterator<Item = C>, about: usize) -> Self {
        let mut to = BytesMut::with_capacity(HEADER + 12 * about);
        to.put_bytes(0, HEADER);
        let (mut count, mut has_null) = (0_i32, false);
        for value in values {
            let at = to.len();
            to.put_i32(0);
            let length = if value.write(&mut to) {
                i32::try_from(to.len() - at - 4).unwrap_or(i32::MAX)
            } else {
                has_null = true;
                -1
            };
            overwrite(&mut to, at, length);
            count += 1;
        }
        // Number of dimensions; has nulls; element type; number of elements; lower bound 1.
        let header = [
            1,
            i32::from(has_null),
            C::KIND.oid().cast_signed(),
            count,
            1,
        ];
        for (at, word) in (0..).step_by(4).zip(header) {
            overwrite(&mut to, at, word);
        }
        Self {
            kind: C::LIST,
            bytes: Encoded(Some(to.freeze())),
        }
    }

    /// An array of one value of each row.
    pub fn each<'r, T, C: Cell>(
        rows: &'r [T],
        value: impl Fn(&'r T) -> abide_kernel::Result<C>,
    ) -> abide_kernel::Result<Self> {
        let mut failed = None;
        let values = rows
            .iter()
            .map_while(|row| value(row).map_err(|error| failed = Some(error)).ok());
        let list = Self::array(values, rows.len());
        failed.map_or(Ok(list), Err)
    }

    /// The only element of an array of one; any other parameter as it is.
    pub fn single(self) -> Self {
        let (Kind::Array(kind), Some(bytes)) = (self.kind.kind(), &self.bytes.0) else {
            return self;
        };
        let length = bytes.get(HEADER..HEADER + 4);
        let is_null = length == Some(&(-1_i32).to_be_bytes());
        let element = bytes.slice((HEADER + 4).min(bytes.len())..);
        Self {
            kind: kind.clone(),
            bytes: Encoded((!is_null).then_some(element)),
        }
    }

    /// The type.
    pub fn kind(&self) -> &Type {
        &self.kind
    }

    /// The encoded value and its type, as the driver expects them.
    pub fn typed(self) -> (Encoded, Type) {
        (self.bytes, self.kind)
    }
}

fn overwrite(to: &mut BytesMut, at: usize, word: i32) {
    if let Some(slot) = to.get_mut(at..at + 4) {
        slot.copy_from_slice(&word.to_be_bytes());
    }
}

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, to: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        Ok(match &self.0 {
            Some(bytes) => {
                to.put_slice(bytes);
                IsNull::No
            }
            None => IsNull::Yes,
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}

/// A value that a parameter can hold, alone or in an array.
pub(crate) trait Cell {
    /// Its PostgreSQL type.
    const KIND: Type;
    /// The PostgreSQL type of an array of them.
    const LIST: Type;

    /// Writes it in PostgreSQL's binary format; returns `false` if it is null.
    fn write(&self, to: &mut BytesMut) -> bool;
}

/// Declares a value: its PostgreSQL types, and how it is written.
macro_rules! cell {
    ($type:ty, $kind:ident, $list:ident, |$value:ident, $to:ident| $write:expr) => {
        impl Cell for $type {
            const KIND: Type = Type::$kind;
            const LIST: Type = Type::$list;

            fn write(&self, $to: &mut BytesMut) -> bool {
                let $value = self;
                $write;
                true
            }
        }
    };
}

cell!(i16, INT2, INT2_ARRAY, |value, to| to.put_i16(*value));
cell!(i32, INT4, INT4_ARRAY, |value, to| to.put_i32(*value));
cell!(i64, INT8, INT8_ARRAY, |value, to| to.put_i64(*value));
cell!(u32, INT4, INT4_ARRAY, |value, to| to
    .put_i32(i32::try_from(*value).unwrap_or(i32::MAX)));
cell!(u64, INT8, INT8_ARRAY, |value, to| to
    .put_i64(i64::try_from(*value).unwrap_or(i64::MAX)));
cell!(usize, INT8, INT8_ARRAY, |value, to| to
    .put_i64(i64::try_from(*value).unwrap_or(i64::MAX)));
cell!(bool, BOOL, BOOL_ARRAY, |value, to| to
    .put_u8(u8::from(*value)));
cell!(&str, TEXT, TEXT_ARRAY, |value, to| to
    .put_slice(value.as_bytes()));
cell!(String, TEXT, TEXT_ARRAY, |value, to| to
    .put_slice(value.as_bytes()));
cell!(Cow<'_, str>, TEXT, TEXT_ARRAY, |value, to| to
    .put_slice(value.as_bytes()));
cell!(&[u8], BYTEA, BYTEA_ARRAY, |value, to| to.put_slice(value));
cell!(InstanceId, INT8, INT8_ARRAY, |value, to| to
    .put_i64(value.0));
cell!(WorkerId, INT8, INT8_ARRAY, |value, to| to.put_i64(value.0));
cell!(CommandId, INT8, INT8_ARRAY, |value, to| to.put_i64(value.0));
cell!(ContractId, INT8, INT8_ARRAY, |value, to| to
    .put_i64(value.0));
cell!(OutboxId, INT8, INT8_ARRAY, |value, to| to.put_i64(value.0));
cell!(EventSequence, INT8, INT8_ARRAY, |value, to| to
    .put_i64(value.0));
cell!(Sequence, INT8, INT8_ARRAY, |value, to| to.put_i64(value.0));
cell!(Epoch, INT8, INT8_ARRAY, |value, to| to.put_i64(value.0));
cell!(BarrierNumber, INT4, INT4_ARRAY, |value, to| to
    .put_i32(value.0));
cell!(Priority, INT2, INT2_ARRAY, |value, to| to.put_i16(value.0));
cell!(Timestamp, TIMESTAMPTZ, TIMESTAMPTZ_ARRAY, |value, to| {
    to.put_i64((value.as_micros() - EPOCH_US).max(EARLIEST_US))
});

impl<C: Cell> Cell for Option<C> {
    const KIND: Type = C::KIND;
    const LIST: Type = C::LIST;

    fn write(&self, to: &mut BytesMut) -> bool {
        self.as_ref().is_some_and(|value| value.write(to))
    }
}

/// Splits a list into parts that fit into a message; usually there is one part, and none for an empty list.
pub(crate) fn parts<T>(mut list: &[T], size: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::with_capacity(1);
    while !list.is_empty() {
        let mut bytes = 0;
        let fits = list.iter().take_while(|one| {
            bytes += size(one);
            bytes <= TEXT_BYTES_MAX
        });
        let (part, rest) = list.split_at(fits.count().max(1));
        parts.push(part);
        list = rest;
    }
    parts
}

/// Removes NUL, the one character that PostgreSQL cannot store.
pub(crate) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(param: Param) -> Vec<u8> {
        param.bytes.0.unwrap().to_vec()
    }

    fn driver<T: ToSql + Sync>(value: T, kind: &Type) -> Vec<u8> {
        let mut to = BytesMut::new();
        value.to_sql_checked(kind, &mut to).unwrap();
        to.to_vec()
    }

    #[test]
    fn arrays_are_written_as_the_driver_writes_them() {
        let numbers = [Some(7_i64), None, Some(-1)];
        assert_eq!(
            bytes(Param::list(numbers)),
            driver(numbers.to_vec(), &Type::INT8_ARRAY)
        );
        let texts = ["", "é", "{a,\"b\"}"];
        assert_eq!(
            bytes(Param::list(texts)),
            driver(texts.to_vec(), &Type::TEXT_ARRAY)
        );
        let none: [bool; 0] = [];
        assert_eq!(
            bytes(Param::list(none)),
            driver(Vec::<bool>::new(), &Type::BOOL_ARRAY)
        );
    }

    #[test]
    fn the_only_element_of_an_array_is_written_as_a_single_value() {
        let of = |param: Param| (param.kind().clone(), param.single());
        for (list, one) in [
            (Param::list(["é"]), Param::one("é")),
            (Param::list([""]), Param::one("")),
            (Param::list([Some(-7_i64)]), Param::one(-7_i64)),
            (Param::list([None::<i64>]), Param::one(None::<i64>)),
            (Param::list([true]), Param::one(true)),
            (Param::one(3_i32), Param::one(3_i32)),
        ] {
            let (_, single) = of(list);
            assert_eq!(single.kind, one.kind);
            assert_eq!(single.bytes.0, one.bytes.0);
        }
    }

    #[test]
    fn moments_count_from_2000_and_stay_within_what_postgresql_knows() {
        assert_eq!(
            bytes(Param::one(Timestamp::from_micros(EPOCH_US + 5))),
            5_i64.to_be_bytes()
        );
        assert_eq!(bytes(Param::one(Timestamp::MIN)), EARLIEST_US.to_be_bytes());
    }

    #[test]
    fn a_nul_is_replaced() {
        assert_eq!(without_nul("a\0b"), "a\u{fffd}b");
        assert!(matches!(without_nul("ab"), Cow::Borrowed("ab")));
    }
}
