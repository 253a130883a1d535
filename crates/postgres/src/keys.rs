//! Holders of keys that other instances need, and the release of a key (rule 2.8).

use abide_core::model::{AnyKey, InstanceId, Key, UniqueKey};
use abide_kernel::{GivenUp, Holder, Result};

use crate::arrays::arrays;
use crate::cells::Cells;
use crate::param::{Param, parts};
use crate::txn::Transaction;

/// The keys of instances, and the holder of each. Locks nothing.
///
/// Indexes: `instances_pkey`, `instances_key_taken`, `instances_unique_key_taken`.
pub const KEY_HOLDERS: &str = "\
select i.id, i.key, \
    (select h.id from abide.instances h where h.key = i.key \
        and (h.key_scope >> h.status) & 1 = 1 limit 1), \
    i.unique_key, \
    (select h.id from abide.instances h where h.unique_key = i.unique_key \
        and (h.unique_scope >> h.status) & 1 = 1 limit 1) \
from abide.instances i where i.id = any((select $1::bigint[])::bigint[]) order by i.id";

/// Removes statuses from scopes.
///
/// Index: `instances_pkey`. The rows are locked already.
pub const GIVE_UP_KEYS: &str = concat!(
    "\
update abide.instances i set key_scope = i.key_scope & ~c.key_scope, \
    unique_scope = i.unique_scope & ~c.unique_scope \
from ",
    arrays!(1 id bigint, 2 key_scope int, 3 unique_scope int),
    " c \
where i.id = c.id"
);

/// Reads the keys of instances, and the holder of each.
pub(crate) async fn holders(txn: &mut Transaction<'_>, ids: &[InstanceId]) -> Result<Vec<Holder>> {
    let params = vec![Param::list(ids.iter().copied())];
    let mut holders = Vec::new();
    for row in txn.read(KEY_HOLDERS, params).await? {
        let mut cells = Cells::of(&row);
        let of: InstanceId = cells.next()?;
        let (key, holder): (Option<Key>, _) = (cells.next()?, cells.next()?);
        holders.extend(key.map(AnyKey::Key).map(|key| Holder { of, key, holder }));
        let (key, holder): (Option<UniqueKey>, _) = (cells.next()?, cells.next()?);
        holders.extend(
            key.map(AnyKey::UniqueKey)
                .map(|key| Holder { of, key, holder }),
        );
    }
    Ok(holders)
}

/// Removes statuses from scopes.
pub(crate) fn give_up(txn: &mut Transaction<'_>, given_up: &[GivenUp]) -> Result<()> {
    for part in parts(given_up, |_| 0) {
        let params = vec![
            Param::list(part.iter().map(|one| one.id)),
            Param::list(part.iter().map(|one| one.scopes.key.bits())),
            Param::list(part.iter().map(|one| one.scopes.unique_key.bits())),
        ];
        txn.write(GIVE_UP_KEYS, params)?;
    }
    Ok(())
}
