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
    ($($columns:tt)*) => {
        concat!("(select ", $crate::arrays::unnest!($($columns)*), ")")
    };
}
pub(crate) use arrays;

macro_rules! unnest {
    ($first:literal $name:ident $kind:ident $(, $number:literal $names:ident $kinds:ident)* $(,)?) => {
        concat!(
            "unnest((select $", $first, "::", stringify!($kind), "[])) as ", stringify!($name),
            $(", unnest((select $", $number, "::", stringify!($kinds), "[])) as ", stringify!($names),)*
        )
    };
}
pub(crate) use unnest;

/// The columns of the same sub-select for a single row, whose columns are single values.
macro_rules! single {
    ($first:literal $name:ident $kind:ident $(, $number:literal $names:ident $kinds:ident)* $(,)?) => {
        concat!(
            "$", $first, "::", stringify!($kind), " as ", stringify!($name),
            $(", $", $number, "::", stringify!($kinds), " as ", stringify!($names),)*
        )
    };
}
pub(crate) use single;

/// Declares the columns that statements write, as a table: the parameter, the name and the type of each, and its value
/// in a row. A value may use `?`.
macro_rules! columns {
    (
        $(#[$doc:meta])*
        $table:ident: |$row:ident: $type:ty| {
            $first:literal $name:ident $kind:ident: $value:expr,
            $second:literal $next:ident $type_of_next:ident: $value_of_next:expr,
            $($number:literal $names:ident $kinds:ident: $values:expr,)*
        }
    ) => {
        $(#[$doc])*
        pub(crate) enum $table {}

        #[allow(dead_code, reason = "no table needs all of the texts")]
        impl $table {
            /// The names: `id, kind`.
            pub const NAMES: &str =
                concat!(stringify!($name), ", ", stringify!($next) $(, ", ", stringify!($names))*);
            /// The same, of the rows `c`: `c.id, c.kind`.
            pub const OF_C: &str =
                concat!("c.", stringify!($name), ", c.", stringify!($next) $(, ", c.", stringify!($names))*);
            /// Assignments of all but the first: `kind = c.kind`.
            pub const SET: &str = concat!(
                stringify!($next), " = c.", stringify!($next)
                $(, ", ", stringify!($names), " = c.", stringify!($names))*
            );
            /// The columns of rows that are parallel arrays.
            pub const MANY: &str = $crate::arrays::unnest!(
                $first $name $kind, $second $next $type_of_next $(, $number $names $kinds)*
            );
            /// The columns of a single row.
            pub const ONE: &str = $crate::arrays::single!(
                $first $name $kind, $second $next $type_of_next $(, $number $names $kinds)*
            );

            /// The parameters, as arrays.
            pub fn params(rows: &[$type]) -> abide_kernel::Result<Vec<$crate::param::Param>> {
                Ok(vec![
                    $crate::param::Param::each(rows, |$row| Ok($value))?,
                    $crate::param::Param::each(rows, |$row| Ok($value_of_next))?,
                    $($crate::param::Param::each(rows, |$row| Ok($values))?,)*
                ])
            }
        }
    };
}
pub(crate) use columns;

/// Declares both forms of a statement: its text before the rows, the columns of the rows or their table, and its text
/// after them.
macro_rules! forms {
    ($($before:expr),+ ; [$($columns:tt)*] ; $($after:expr),+ $(,)?) => {
        Forms {
            many: abide_core::sql!($($before,)+ $crate::arrays::arrays!($($columns)*), $($after),+),
            one: abide_core::sql!($($before,)+ "(select ", $crate::arrays::single!($($columns)*), ")", $($after),+),
        }
    };
    ($($before:expr),+ ; $table:ident ; $($after:expr),+ $(,)?) => {
        Forms {
            many: abide_core::sql!($($before,)+ "(select ", $table::MANY, ")", $($after),+),
            one: abide_core::sql!($($before,)+ "(select ", $table::ONE, ")", $($after),+),
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
