//! SQL for parallel arrays: the parameters of a statement that handles many rows at once.

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
