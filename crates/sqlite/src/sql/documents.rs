//! Small documents, addressed by kind and name.

use abide_core::model::{Document, DocumentKind, Json, Name, Timestamp};
use abide_kernel::gather;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::limited;
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

/// Index: the primary key, in its order, from a name on.
pub(crate) const OF_KIND: &str = "
    select name, body, updated_at from abide_documents where kind = ?1 and name > ?2 order by name limit ?3";

/// Reads the documents of a kind above a name, by name, as many as fit in that many bytes and one more.
pub(crate) fn list(
    conn: &Connection,
    kind: DocumentKind,
    after: Option<&Name>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Document>> {
    let mut statement = conn.prepare_cached(OF_KIND)?;
    // No name is empty.
    let params = params![kind.code(), after.map_or("", Name::as_str), limited(limit)];
    gather(statement.query_map(params, |row| read(kind, row))?, bytes)
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
