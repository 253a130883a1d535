//! The statements of a transaction: one function for each, with its SQL beside it.
//!
//! Nothing here takes locks: a transaction that writes is the only writer, from its beginning to its end. A statement
//! for many rows is prepared once and run in a loop, which is faster in SQLite than one statement over a list. A number
//! in the condition of a partial index (`status = 2`) is a literal in the SQL, not a parameter: SQLite uses a partial
//! index only if it can see that the condition holds.

pub(crate) mod around;
pub(crate) mod census;
pub(crate) mod children;
pub(crate) mod claim;
pub(crate) mod commands;
pub(crate) mod contracts;
pub(crate) mod documents;
pub(crate) mod events;
mod find;
pub(crate) mod inbox;
pub(crate) mod insert;
pub(crate) mod instances;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod lookback;
pub(crate) mod machines;
pub(crate) mod outbox;
pub(crate) mod partitions;
pub(crate) mod query;
pub(crate) mod requests;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod update;
pub(crate) mod waiters;
pub(crate) mod workers;

pub(crate) use find::find;

use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, Error, Result};

/// A statement that is prepared when it is first needed, and then kept.
pub(crate) struct Lazy<'c> {
    conn: &'c Connection,
    sql: &'static str,
    statement: Option<CachedStatement<'c>>,
}

impl<'c> Lazy<'c> {
    fn new(conn: &'c Connection, sql: &'static str) -> Self {
        let statement = None;
        Self {
            conn,
            sql,
            statement,
        }
    }

    fn get(&mut self) -> Result<&mut CachedStatement<'c>> {
        match &mut self.statement {
            Some(statement) => Ok(statement),
            none => Ok(none.insert(self.conn.prepare_cached(self.sql)?)),
        }
    }
}

/// Declares the columns that statements write, as a table: the parameter and the name of each, and its value in a row.
/// The statements are put together from its texts. A value may use `?`.
macro_rules! columns {
    (
        $(#[$doc:meta])*
        $table:ident: |$row:ident: $type:ty| {
            $first:literal $name:ident: $value:expr,
            $second:literal $next:ident: $value_of_next:expr,
            $($number:literal $names:ident: $values:expr,)*
        }
    ) => {
        $(#[$doc])*
        pub(crate) enum $table {}

        #[allow(dead_code, reason = "no table needs all of the texts")]
        impl $table {
            /// The names: `id, kind`.
            pub const NAMES: &str =
                concat!(stringify!($name), ", ", stringify!($next) $(, ", ", stringify!($names))*);
            /// The parameters: `?1, ?2`.
            pub const VALUES: &str = concat!("?", $first, ", ?", $second $(, ", ?", $number)*);
            /// Assignments of all but the first: `kind = ?2`.
            pub const SET: &str = concat!(
                stringify!($next), " = ?", $second
                $(, ", ", stringify!($names), " = ?", $number)*
            );

            /// Binds the values of a row.
            pub fn bind(statement: &mut rusqlite::CachedStatement<'_>, $row: $type) -> rusqlite::Result<()> {
                statement.raw_bind_parameter($first, $value)?;
                statement.raw_bind_parameter($second, $value_of_next)?;
                $(statement.raw_bind_parameter($number, $values)?;)*
                Ok(())
            }
        }
    };
}
use columns;

/// The distinct values: a value that is given twice would be found twice.
fn distinct<T: Ord>(values: &[T]) -> Vec<&T> {
    let mut values: Vec<&T> = values.iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The row limit of a statement, as a parameter.
fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns an error if a statement that must write one row has not found it.
fn one(written: usize) -> Result<()> {
    match written {
        1 => Ok(()),
        other => Err(Error::StatementChangedRows(other)),
    }
}

/// The conditions of a list, all of which must hold.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition in which each `?` stands for the value.
    fn add(&mut self, text: &str, value: impl Into<Value>) {
        let value = self.value(value);
        self.texts.push(text.replace('?', &value));
    }

    /// Adds a condition as it is written.
    fn state(&mut self, text: impl Into<String>) {
        self.texts.push(text.into());
    }

    /// Adds a value; returns its placeholder.
    fn value(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    /// Builds a statement that selects the matching rows, newest first, and its values.
    fn newest_first(self, select: &str, limit: usize) -> (String, Vec<Value>) {
        self.in_order(select, "id desc", limit)
    }

    /// Builds a statement that selects the matching rows, in that order, and its values.
    fn in_order(mut self, select: &str, order: &str, limit: usize) -> (String, Vec<Value>) {
        let mut sql = select.to_owned();
        for (index, text) in self.texts.iter().enumerate() {
            sql.push_str(if index == 0 { " where " } else { " and " });
            sql.push_str(text);
        }
        self.values.push(limited(limit).into());
        sql.push_str(&format!(" order by {order} limit ?{}", self.values.len()));
        (sql, self.values)
    }
}
