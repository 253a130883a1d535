//! Requests that were carried out, and their responses.

use std::collections::{HashMap, HashSet};

use abide_core::model::{Fingerprint, RequestId, Timestamp};
use abide_kernel::{Recall, Result};

use crate::arrays::arrays;
use crate::cells::each;
use crate::param::{Param, parts};
use crate::txn::Transaction;

/// Locks those of the requests that no other transaction has locked; returns which.
///
/// Locks: one number for each request, without waiting. Two requests with the same number may be confused; the loser
/// tries again.
pub const LOCK_REQUESTS: &str = "\
select r.place from unnest($1::bigint[]) with ordinality as r(number, place) \
where pg_try_advisory_xact_lock(r.number)";

/// The requests that were carried out.
///
/// Index: `requests_known`. Locks nothing: a transaction that has the lock of a request and does not find it carries it
/// out.
pub const RECALL: &str = "\
select r.place, q.fingerprint, q.answer \
from unnest((select $1::text[]), (select $2::text[]), (select $3::int[])) with ordinality \
    as r(caller, key, part, place) \
cross join lateral ( \
    select q.fingerprint, q.answer from abide.requests q \
    where q.caller = r.caller and q.key = r.key and q.part = r.part limit 1) q";

/// Stores the responses to requests. `requests_known` ensures one per request.
pub const REMEMBER: &str = concat!(
    "\
insert into abide.requests (created_at, caller, key, part, fingerprint, answer) \
select $1, r.caller, r.key, r.part, r.fingerprint, r.answer \
from ",
    arrays!(2 caller text, 3 key text, 4 part int, 5 fingerprint text, 6 answer text),
    " r"
);

/// Deletes old requests.
///
/// Index: `requests_created`, read from its beginning. Locks: the rows; those that another sweep has locked are
/// skipped.
pub const FORGET_REQUESTS: &str = "\
delete from abide.requests \
where id = any(array( \
    select q.id from abide.requests q where q.created_at < $1 \
    order by q.created_at, q.id limit (select $2::bigint) for update skip locked)) \
returning id";

/// Tries to lock requests, and reads what is stored of them.
pub(crate) async fn recall(txn: &mut Transaction<'_>, ids: &[&RequestId]) -> Result<Vec<Recall>> {
    let locks = vec![Param::list(ids.iter().map(|id| number(id)))];
    let which = vec![
        Param::list(ids.iter().map(|id| id.caller.as_str())),
        Param::list(ids.iter().map(|id| id.key.as_str())),
        Param::list(ids.iter().map(|id| id.part)),
    ];
    // Two statements: the second starts when the first has its locks, so it sees what was committed before.
    let (locked, found) = txn
        .read_both((LOCK_REQUESTS, locks), (RECALL, which))
        .await?;
    let locked: HashSet<i64> = each(&locked, |cells| cells.next())?.into_iter().collect();
    let mut found: HashMap<i64, Recall> = each(&found, |cells| {
        let position = cells.next()?;
        let done = Recall::Done {
            fingerprint: Fingerprint::stored(cells.next::<String>()?),
            answer: cells.next()?,
        };
        Ok((position, done))
    })?
    .into_iter()
    .collect();
    let known = |(position, _)| match found.remove(&position) {
        Some(done) => done,
        None if locked.contains(&position) => Recall::New,
        None => Recall::Running,
    };
    Ok((1..).zip(ids).map(known).collect())
}

/// Stores the responses to requests.
pub(crate) fn remember(
    txn: &mut Transaction<'_>,
    answers: &[(&RequestId, Option<&str>)],
    now: Timestamp,
) -> Result<()> {
    for part in parts(answers, |(_, answer)| answer.map_or(0, str::len)) {
        let ids = || part.iter().map(|(id, _)| id);
        let params = vec![
            Param::one(now),
            Param::list(ids().map(|id| id.caller.as_str())),
            Param::list(ids().map(|id| id.key.as_str())),
            Param::list(ids().map(|id| id.part)),
            Param::list(ids().map(|id| id.fingerprint.as_str())),
            Param::list(part.iter().map(|(_, answer)| *answer)),
        ];
        txn.write(REMEMBER, params)?;
    }
    Ok(())
}

/// The lock number of a request: 64 bits of a hash.
fn number(id: &RequestId) -> i64 {
    let part = id.part.to_be_bytes();
    let of = [
        b"request".as_slice(),
        id.caller.as_bytes(),
        id.key.as_str().as_bytes(),
        &part,
    ];
    let hash = Fingerprint::of(of);
    let bits = hash
        .as_str()
        .get(..16)
        .and_then(|hex| u64::from_str_radix(hex, 16).ok());
    bits.unwrap_or_default().cast_signed()
}
