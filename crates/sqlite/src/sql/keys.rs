//! Holders of keys that other instances need, and the release of a key (rule 2.8).

use abide_core::model::{AnyKey, InstanceId, Key, UniqueKey};
use abide_kernel::{GivenUp, Holder};
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params};

use super::{Lazy, one};
use crate::cells;
use crate::columns::scopes;

/// Index: the primary key.
pub(crate) const KEYS: &str = "select key, unique_key from abide_instances where id = ?1";

/// Index: `abide_key_taken`.
pub(crate) const KEY_HOLDER: &str = "
    select id from abide_instances
    where key = ?1 and key is not null and taken & 1 = 1";

/// Index: `abide_unique_key_taken`.
pub(crate) const UNIQUE_KEY_HOLDER: &str = "
    select id from abide_instances
    where unique_key = ?1 and unique_key is not null and taken & 65536 = 65536";

/// Index: the primary key. Frees the keys that its status no longer holds.
pub(crate) const GIVE_UP: &str = "
    update abide_instances
    set scopes = scopes & ~?2, taken = iif(taken is null, null, (scopes & ~?2) >> status & 65537)
    where id = ?1";

/// The holder of a key.
pub(crate) fn key_holder(conn: &Connection, key: &Key) -> Result<Option<InstanceId>> {
    holder(conn, KEY_HOLDER, key.as_str())
}

/// The holder of a unique key.
pub(crate) fn unique_key_holder(conn: &Connection, key: &UniqueKey) -> Result<Option<InstanceId>> {
    holder(conn, UNIQUE_KEY_HOLDER, key.as_bytes())
}

fn holder(conn: &Connection, sql: &str, key: impl ToSql) -> Result<Option<InstanceId>> {
    let mut statement = conn.prepare_cached(sql)?;
    statement
        .query_row([key], |row| cells::id(row, 0))
        .optional()
}

/// The keys of instances, and the holder of each.
pub(crate) fn holders(conn: &Connection, ids: &[InstanceId]) -> Result<Vec<Holder>> {
    let mut statement = conn.prepare_cached(KEYS)?;
    let keys = |row: &Row<'_>| Ok((cells::maybe_key(row, 0)?, cells::maybe_unique_key(row, 1)?));
    let mut holders = Vec::new();
    for of in ids.iter().copied() {
        let Some((key, unique_key)) = statement.query_row([of.0], keys).optional()? else {
            continue;
        };
        if let Some(key) = key {
            let holder = key_holder(conn, &key)?;
            let key = AnyKey::Key(key);
            holders.push(Holder { of, key, holder });
        }
        if let Some(key) = unique_key {
            let holder = unique_key_holder(conn, &key)?;
            let key = AnyKey::UniqueKey(key);
            holders.push(Holder { of, key, holder });
        }
    }
    Ok(holders)
}

/// Removes statuses from scopes.
pub(crate) fn give_up(conn: &Connection, given_up: &[GivenUp]) -> Result<()> {
    let mut statement = Lazy::new(conn, GIVE_UP);
    for GivenUp { id, scopes: of } in given_up {
        let bits = scopes(of.key, of.unique_key);
        one(statement.get()?.execute(params![id.0, bits])?)?;
    }
    Ok(())
}
