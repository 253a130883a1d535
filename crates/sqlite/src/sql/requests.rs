//! Requests that were carried out, and their responses.

use abide_core::model::{Fingerprint, RequestId, Timestamp};
use abide_kernel::Recall;
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Index: `abide_requests_known`.
pub(crate) const RECALL: &str =
    "select fingerprint, answer from abide_requests where caller = ?1 and key = ?2 and part = ?3";

/// Reads what is stored of requests. No other transaction can write meanwhile, so none of them is being carried out.
pub(crate) fn recall(conn: &Connection, ids: &[&RequestId]) -> Result<Vec<Recall>> {
    let mut statement = conn.prepare_cached(RECALL)?;
    let known = ids.iter().map(|id| {
        let values = params![id.caller, id.key.as_str(), id.part];
        let found = statement.query_row(values, |row| {
            Ok(Recall::Done {
                fingerprint: Fingerprint::stored(row.get::<_, String>(0)?),
                answer: row.get(1)?,
            })
        });
        Ok(found.optional()?.unwrap_or(Recall::New))
    });
    known.collect()
}

pub(crate) const REMEMBER: &str = "
    insert into abide_requests (created_at, caller, key, part, fingerprint, answer)
    values (?1, ?2, ?3, ?4, ?5, ?6)";

/// Stores the responses to requests.
pub(crate) fn remember(
    conn: &Connection,
    answers: &[(&RequestId, Option<&str>)],
    now: Timestamp,
) -> Result<()> {
    let mut statement = conn.prepare_cached(REMEMBER)?;
    for (id, answer) in answers {
        statement.execute(params![
            now.as_micros(),
            id.caller,
            id.key.as_str(),
            id.part,
            id.fingerprint.as_str(),
            answer
        ])?;
    }
    Ok(())
}

/// Index: `abide_requests_created`, read from its beginning.
pub(crate) const OLD: &str =
    "select id from abide_requests where created_at < ?1 order by created_at, id limit ?2";

/// Index: the primary key.
pub(crate) const DELETE: &str = "delete from abide_requests where id = ?1";
