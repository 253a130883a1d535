//! The statements of a transaction: one function for each, with its SQL beside it.
//!
//! Nothing here locks: a transaction that writes is the only one that does, from its beginning to its end. Statements
//! that are run for many rows are prepared once and run in a loop, which SQLite likes better than one statement over a
//! list. A number in the SQL of an index's condition (`status = 2`) stands there as a number, not as a parameter:
//! SQLite takes a partial index only when it can see that its condition holds.

pub(crate) mod children;
pub(crate) mod claim;
pub(crate) mod commands;
pub(crate) mod inbox;
pub(crate) mod insert;
pub(crate) mod load;
pub(crate) mod machines;
pub(crate) mod partitions;
pub(crate) mod query;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod update;
pub(crate) mod workers;

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

/// The values, each once: what is asked for twice would be found twice.
fn distinct<T: Ord>(values: &[T]) -> Vec<&T> {
    let mut values: Vec<&T> = values.iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// How many rows a statement may answer.
fn limited(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Says that a statement which was to write one row has not found it.
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
    /// One more: each `?` in it stands for the value.
    fn add(&mut self, text: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.texts
            .push(text.replace('?', &format!("?{}", self.values.len())));
    }

    /// A statement that selects what meets them, newest first, and its values.
    fn newest_first(mut self, select: &str, limit: usize) -> (String, Vec<Value>) {
        let mut sql = select.to_owned();
        for (index, text) in self.texts.iter().enumerate() {
            sql.push_str(if index == 0 { " where " } else { " and " });
            sql.push_str(text);
        }
        self.values.push(limited(limit).into());
        sql.push_str(&format!(" order by id desc limit ?{}", self.values.len()));
        (sql, self.values)
    }
}
