//! Small documents, addressed by kind and name.

use abide_core::model::{Document, DocumentKind, Json, Name, Timestamp};
use abide_kernel::{DocumentPage, Result};

use crate::arrays::arrays;
use crate::cells::{Cells, each};
use crate::param::Param;
use crate::pool::Pool;
use crate::read::{ask, ask_some, reading};
use crate::txn::Transaction;

/// Inserts or overwrites documents by kind and name.
///
/// Index: `documents_pkey`. Locks: the rows, by kind and name.
pub const KEEP: &str = concat!(
    "\
insert into abide.documents (kind, name, body, updated_at) \
select kind, name, body, $4 from ",
    arrays!(1 kind smallint, 2 name text, 3 body text),
    " c \
on conflict (kind, name) do update set body = excluded.body, updated_at = excluded.updated_at"
);

/// Deletes documents. Index: `documents_pkey`.
pub const FORGET: &str = concat!(
    "\
delete from abide.documents d using ",
    arrays!(1 kind smallint, 2 name text),
    " c \
where d.kind = c.kind and d.name = c.name"
);

/// The documents of a kind above a name, by name. Index: `documents_pkey`.
pub const DOCUMENTS: &str = "\
select name, body, updated_at from abide.documents where kind = $1 and name > $2 \
order by name limit (select $3::bigint)";

/// The document of a kind and a name. Index: `documents_pkey`.
pub const DOCUMENT: &str = "\
select name, body, updated_at from abide.documents where kind = $1 and name = $2";

/// Writes documents, and deletes those without a body.
pub(crate) fn keep(
    txn: &mut Transaction<'_>,
    documents: &[(DocumentKind, &Name, Option<&Json>)],
    now: Timestamp,
) -> Result<()> {
    let (mut kinds, mut names, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    let (mut gone_kinds, mut gone) = (Vec::new(), Vec::new());
    for (kind, name, body) in documents {
        match body {
            Some(body) => {
                kinds.push(kind.code());
                names.push(name.as_str());
                bodies.push(body.as_str());
            }
            None => {
                gone_kinds.push(kind.code());
                gone.push(name.as_str());
            }
        }
    }
    if !kinds.is_empty() {
        let params = vec![
            Param::list(kinds),
            Param::list(names),
            Param::list(bodies),
            Param::one(now),
        ];
        txn.write(KEEP, params)?;
    }
    if !gone.is_empty() {
        txn.write(FORGET, vec![Param::list(gone_kinds), Param::list(gone)])?;
    }
    Ok(())
}

/// Reads a page of the documents of a kind, by name.
pub(crate) async fn list(
    pool: &Pool,
    kind: DocumentKind,
    after: Option<&Name>,
    limit: usize,
    most: usize,
) -> Result<DocumentPage> {
    let params = vec![
        Param::one(kind.code()),
        // No name is empty.
        Param::one(after.map_or("", Name::as_str)),
        Param::one(limit.saturating_add(1)),
    ];
    let found = ask_some(pool, DOCUMENTS, params, reading(most)).await?;
    let documents = |rows: &[_]| each(rows, |cells| read(kind, cells));
    found.page(documents, limit, most, |last| last.name.clone())
}

/// Reads the document of a kind and a name, if there is one.
pub(crate) async fn document(
    pool: &Pool,
    kind: DocumentKind,
    name: &Name,
) -> Result<Option<Document>> {
    let params = vec![Param::one(kind.code()), Param::one(name.as_str())];
    let rows = ask(pool, DOCUMENT, params).await?;
    Ok(each(&rows, |cells| read(kind, cells))?.pop())
}

fn read(kind: DocumentKind, cells: &mut Cells<'_>) -> Result<Document> {
    Ok(Document {
        kind,
        name: cells.next()?,
        body: cells.next()?,
        updated_at: cells.next()?,
    })
}
