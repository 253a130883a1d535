//! SQL for parallel arrays: the parameters of a statement that handles many rows at once, and its form for one row.

use crate::param::Param;

/// A sub-select for `from`: one row for each element of parallel arrays. Each column is a parameter's number, a name and
/// a type: `arrays!(1 id bigint, 2 name text)`.
///
/// The arrays are expanded in the select list. A function with many arrays in `from` would first copy each array to a
/// buffer of its own, which is most of the time of a statement that writes one row of twenty columns. The parameters are
/// hidden in sub-selects: a planner that sees how many rows there are joins with a hash over the whole table while the
/// table is small, and keeps that plan when it has grown.
macro_rules! arrays {
    ($first:literal $name:ident $kind:ident $(, $number:literal $names:ident $kinds:ident)* $(,)?) => {
        concat!(
            "(select unnest((select $", $first, "::", stringify!($kind), "[])) as ", stringify!($name),
            $(", unnest((select $", $number, "::", stringify!($kinds), "[])) as ", stringify!($names),)*
            ")"
        )
    };
}
pub(crate) use arrays;

/// The same sub-select for a single row, whose columns are single values.
macro_rules! single {
    ($first:literal $name:ident $kind:ident $(, $number:literal $names:ident $kinds:ident)* $(,)?) => {
        concat!(
            "(select $", $first, "::", stringify!($kind), " as ", stringify!($name),
            $(", $", $number, "::", stringify!($kinds), " as ", stringify!($names),)*
            ")"
        )
    };
}
pub(crate) use single;

/// Declares both forms of a statement: its text before the rows, the columns of the rows, and its text after them.
macro_rules! forms {
    ($($before:expr),+ ; [$($columns:tt)*] ; $($after:expr),+ $(,)?) => {
        Forms {
            many: concat!($($before,)+ $crate::arrays::arrays!($($columns)*), $($after),+),
            one: concat!($($before,)+ $crate::arrays::single!($($columns)*), $($after),+),
        }
    };
}
pub(crate) use forms;

/// The two forms of a statement: for the rows of parallel arrays, and for a single row.
///
/// A single row is the usual case while there is little to do, and its caller waits for it. Expanding twenty arrays of
/// one element takes the server longer than writing the row.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    /// The form whose parameters are arrays.
    pub many: &'static str,
    /// The form whose parameters are the single elements of these arrays.
    pub one: &'static str,
}

impl Forms {
    /// The text and the parameters for that many rows. The parameters are those of the form for many rows.
    pub(crate) fn of(self, rows: usize, params: Vec<Param>) -> (&'static str, Vec<Param>) {
        match rows {
            1 => (self.one, params.into_iter().map(Param::single).collect()),
            _ => (self.many, params),
        }
    }
}
