//! Small documents, addressed by kind and name.

use abide_core::model::{Document, DocumentKind, Json, Name, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use crate::cells;

/// Index: the primary key.
pub(crate) const KEEP: &str = "
    insert into abide_documents (kind, name, updated_at, body) values (?1, ?2, ?3, ?4)
    on conflict (kind, name) do update set updated_at = excluded.updated_at, body = excluded.body";

/// Index: the primary key.
pub(crate) const FORGET: &str = "delete from abide_documents where kind = ?1 and name = ?2";

/// Writes documents, and deletes those without a body.
pub(crate) fn keep(
    conn: &Connection,
    documents: &[(DocumentKind, &Name, Option<&Json>)],
    now: Timestamp,
) -> Result<()> {
    let mut keep = conn.prepare_cached(KEEP)?;
    let mut forget = conn.prepare_cached(FORGET)?;
    for (kind, name, body) in documents {
        match body {
            Some(body) => keep.execute(params![
                kind.code(),
                name.as_str(),
                now.as_micros(),
                body.as_str()
            ])?,
            None => forget.execute(params![kind.code(), name.as_str()])?,
        };
    }
    Ok(())
}

/// Index: the primary key, in its order.
pub(crate) const OF_KIND: &str =
    "select name, body, updated_at from abide_documents where kind = ?1 order by name";

/// Reads the documents of a kind, by name.
pub(crate) fn documents(conn: &Connection, kind: DocumentKind) -> Result<Vec<Document>> {
    let mut statement = conn.prepare_cached(OF_KIND)?;
    let rows = statement.query_map([kind.code()], |row| read(kind, row))?;
    rows.collect()
}

/// Index: the primary key.
pub(crate) const OF_NAME: &str =
    "select name, body, updated_at from abide_documents where kind = ?1 and name = ?2";

/// Reads the document of a kind and a name, if there is one.
pub(crate) fn document(
    conn: &Connection,
    kind: DocumentKind,
    name: &Name,
) -> Result<Option<Document>> {
    let mut statement = conn.prepare_cached(OF_NAME)?;
    let found = statement.query_row(params![kind.code(), name.as_str()], |row| read(kind, row));
    found.optional()
}

fn read(kind: DocumentKind, row: &Row<'_>) -> Result<Document> {
    Ok(Document {
        kind,
        name: cells::name(row, 0)?,
        body: cells::json(row, 1)?,
        updated_at: cells::time(row, 2)?,
    })
}
