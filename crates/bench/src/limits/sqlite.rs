//! SQLite: one connection, prepared statements, the write-ahead log, a sync at every commit.

use std::path::Path;
use std::time::{Duration, Instant};

use abide::InstanceId;
use rusqlite::{Connection, params};

use super::BATCH;
use crate::Result;
use crate::machines::{Order, now};

const TABLE: &str = "
create table job (
    id integer primary key,
    status integer not null,
    queue text not null,
    priority integer not null,
    due_at integer not null,
    worker integer,
    finished_at integer,
    result text,
    state text not null
) strict;
create index job_claimable on job (queue, priority, due_at) where status = 2";

const FILL: &str =
    "insert into job (status, queue, priority, due_at, state) values (2, 'default', 0, ?1, ?2)";

/// Claims the first rows of the queue. Index: `job_claimable`.
fn claim() -> String {
    format!(
        "update job set status = 3, worker = ?1 where id in ( \
            select id from job where status = 2 and queue = ?2 \
            order by priority, due_at, id limit {BATCH}) \
        returning id, state"
    )
}

/// Completes one row by its primary key; run in a loop, which is faster here than a list.
const COMPLETE: &str =
    "update job set status = 6, worker = null, finished_at = ?2, result = ?3 where id = ?1";

/// A queue that is a plain table.
pub struct Queue {
    conn: Connection,
}

impl Queue {
    pub fn create(path: &Path) -> Result<Self> {
        let conn = open(path)?;
        conn.execute_batch(TABLE)?;
        Ok(Self { conn })
    }

    pub fn drain(mut self, rows: usize) -> Result<(usize, Duration)> {
        self.fill(rows)?;
        let claim = claim();
        let begun = Instant::now();
        let mut drained = 0;
        loop {
            // A statement outside of a transaction is one.
            let mut statement = self.conn.prepare_cached(&claim)?;
            let rows =
                statement.query_map(params![1, "default"], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let claimed: Vec<(i64, String)> = rows.collect::<rusqlite::Result<_>>()?;
            drop(statement);
            if claimed.is_empty() {
                return Ok((drained, begun.elapsed()));
            }
            drained += claimed.len();
            let transaction = self.conn.transaction()?;
            let mut statement = transaction.prepare_cached(COMPLETE)?;
            for (id, result) in claimed {
                statement.execute(params![id, now().as_micros(), result])?;
            }
            drop(statement);
            transaction.commit()?;
        }
    }

    fn fill(&mut self, rows: usize) -> Result<()> {
        let transaction = self.conn.transaction()?;
        let mut statement = transaction.prepare_cached(FILL)?;
        for order in (0..).take(rows) {
            statement.execute(params![now().as_micros(), Order::json(order)])?;
        }
        drop(statement);
        Ok(transaction.commit()?)
    }
}

/// Rows inserted by hand into `abide_instances`.
pub struct Inserts {
    conn: Connection,
    insert: String,
}

impl Inserts {
    pub fn like(path: &Path, model: InstanceId) -> Result<Self> {
        let conn = open(path)?;
        let insert = insert_like(&conn, model)?;
        Ok(Self { conn, insert })
    }

    pub fn insert(&mut self, states: &[String]) -> Result<()> {
        let transaction = self.conn.transaction()?;
        let mut statement = transaction.prepare_cached(&self.insert)?;
        for state in states {
            statement.execute([state])?;
        }
        drop(statement);
        Ok(transaction.commit()?)
    }
}

/// A statement that fills the columns which a start has filled, with what it filled them with; only the state differs
/// from row to row. What is the same in every row is written into the statement, as one would do by hand.
fn insert_like(conn: &Connection, model: InstanceId) -> Result<String> {
    let mut columns = conn.prepare("select name from pragma_table_info('abide_instances')")?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for name in columns.query_map([], |row| row.get::<_, String>(0))? {
        let name = name?;
        let read = format!("select quote(\"{name}\") from abide_instances where id = ?1");
        let value: String = conn.query_row(&read, [model.0], |row| row.get(0))?;
        match (name.as_str(), value.as_str()) {
            ("id", _) | (_, "NULL") => continue,
            ("state", _) => values.push("?1".to_owned()),
            _ => values.push(value),
        }
        names.push(format!("\"{name}\""));
    }
    let (names, values) = (names.join(", "), values.join(", "));
    Ok(format!(
        "insert into abide_instances ({names}) values ({values})"
    ))
}

pub fn open(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.busy_timeout(Duration::from_secs(10))?;
    Ok(conn)
}
