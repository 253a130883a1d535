//! Looking back: the paths of event types that waits look back on, the terms of events at these paths, and pages of
//! events found by them.

use abide_core::model::{Event, EventSequence, Json, Name, Timestamp};
use abide_core::sql;
use abide_kernel::{EventLookup, FoundEvents, LookbackPath, PathId, Result, Span, Term};
use tokio_postgres::Row;

use crate::arrays::columns;
use crate::cells::{Cells, each};
use crate::param::{Param, parts};
use crate::txn::Transaction;
use crate::waiters::look_again;

/// The total bytes of the payloads before a row of a page `c`. Payloads that are stored out of line are not read for
/// it.
macro_rules! bytes_above {
    () => {
        "coalesce(sum(octet_length(c.payload)) over ( \
            order by c.sequence desc rows between unbounded preceding and 1 preceding), 0)"
    };
}

/// The newest events below a sequence number that have one of the given values at a path, together with the path: one
/// row with the path alone if there are no events, and no row if no wait looks back on the path. The event is not read
/// if it was published too early.
///
/// Indexes: `event_paths_of_type`; `event_terms_pkey`, for each value from that sequence number down; `events_pkey`.
/// Sorting by columns that are constant keeps the planner from reading more of the index, or other indexes.
pub const LOOK_UP: &str = concat!(
    "select p.id, p.used_at, f.sequence, f.payload, f.event_type, f.event_id, f.published_at \
    from ( \
        select p.id, p.used_at from abide.event_paths p where p.event_type = $1 and p.path = $2 \
        order by p.event_type, p.path limit 1 \
    ) p \
    left join lateral ( \
        select c.*, ",
    bytes_above!(),
    " as above from ( \
            select t.sequence, e.payload, e.event_type, e.event_id, t.published_at from ( \
                select t.sequence, t.published_at from unnest((select $3::text[])) as v(value) \
                cross join lateral ( \
                    select t.sequence, t.published_at from abide.event_terms t \
                    where t.path_id = p.id and t.value = v.value and t.sequence < $4 \
                    order by t.path_id desc, t.value desc, t.sequence desc \
                    limit (select $5::bigint) \
                ) t order by t.sequence desc limit (select $5::bigint) \
            ) t \
            left join lateral ( \
                select e.payload, e.event_type, e.event_id from abide.events e \
                where e.sequence = t.sequence and t.published_at >= $6 limit 1 \
            ) e on true \
        ) c \
    ) f on f.above < $7 \
    order by f.sequence desc"
);

/// The newest events of a type below a sequence number; only the sequence number of those that were published too
/// early.
macro_rules! newest {
    ($lock:literal) => {
        concat!(
            "select f.sequence, f.payload, f.event_type, f.event_id, f.published_at from ( \
                select c.*, ",
            bytes_above!(),
            " as above from ( \
                    select e.sequence, case when e.published_at >= $3 then e.payload end as payload, \
                        e.event_type, e.event_id, e.published_at \
                    from abide.events e \
                    where e.event_type >= $1 and e.event_type <= $1 and e.sequence < $2 \
                    order by e.event_type desc, e.sequence desc limit (select $4::bigint)",
            $lock,
            " ) c \
            ) f where f.above < $5 order by f.sequence desc"
        )
    };
}

/// The newest events of a type below a sequence number; only the sequence number of those that were published too
/// early.
///
/// Index: `events_of_type`, from that sequence number down. The two bounds mean an equality. With an equality the
/// planner might treat the order as that of sequence numbers, and read events of all other types.
pub const NEWEST_EVENTS: &str = newest!("");

/// The same events, protected from deletion by a sweep until the transaction ends: a term without its event would never
/// be deleted.
///
/// Index: `events_of_type`, from that sequence number down. Locks: the events, shared with other such transactions;
/// those that a sweep is about to delete are skipped.
pub const HOLD_NEWEST_EVENTS: &str = newest!(" for key share skip locked");

/// Adds a path, unless its type has enough of them. The caller has locked the type exclusively.
///
/// Index: `event_paths_of_type`.
pub const ADD_PATH: &str = "\
insert into abide.event_paths (event_type, path, used_at) \
select $1, $2, $4 where ( \
    select count(*) from ( \
        select 1 from abide.event_paths p where p.event_type = $1 order by p.event_type, p.path offset 0 \
    ) p) < $3::bigint \
on conflict (event_type, path) do nothing returning id";

/// Records that a path is used. Does not wait for a sweep that is about to delete the path.
///
/// Index: `event_paths_pkey`.
pub const USE_PATH: &str = "\
update abide.event_paths set used_at = $2 where id = any(array( \
    select p.id from abide.event_paths p where p.id = $1 for update skip locked))";

/// Deletes paths that were not used for long. Their terms stay until their events are deleted: a transaction that has
/// read the path may still search for terms, or write new ones.
///
/// Index: `event_paths_used`, read from its beginning. Locks: the paths; those that are being used are skipped.
pub const FORGET_PATHS: &str = "\
delete from abide.event_paths where id = any(array( \
    select p.id from abide.event_paths p where p.used_at < $1 \
    order by p.used_at limit (select $2::bigint) for update skip locked)) \
returning id";

columns! {
    /// The columns of a term.
    Terms: |term: Term| {
        1 path_id bigint: term.path.0,
        2 value text: term.value.as_str(),
        3 sequence bigint: term.sequence,
        4 published_at timestamptz: term.published_at,
    }
}

/// Writes terms of events.
pub const WRITE_TERMS: &str = sql! {
    "insert into abide.event_terms (", Terms::NAMES, ") select * from (select ", Terms::MANY, ") r"
};

/// Finds the newest events that have one of the given values at a path. Returns `None` if no wait looks back on the
/// path.
pub(crate) async fn look_up(
    txn: &mut Transaction<'_>,
    lookup: &EventLookup<'_>,
    span: Span,
) -> Result<Option<(LookbackPath, FoundEvents)>> {
    let params = vec![
        Param::one(lookup.event_type.as_str()),
        Param::one(lookup.path),
        Param::list(lookup.values.iter().map(String::as_str)),
        Param::one(span.below),
        Param::one(span.limit),
        Param::one(span.since),
        Param::one(span.bytes),
    ];
    let rows = txn.read(LOOK_UP, params).await?;
    let mut found = None;
    let mut page = FoundEvents::default();
    for row in &rows {
        let cells = &mut Cells::of(row);
        found = Some(LookbackPath {
            id: PathId(cells.next()?),
            used_at: cells.next()?,
        });
        if let Some(sequence) = cells.next()? {
            page.push(sequence, event(sequence, cells)?, &span);
        }
    }
    Ok(found.map(|found| (found, page)))
}

/// Reads the newest events of a type.
pub(crate) async fn newest_events(
    txn: &mut Transaction<'_>,
    event_type: &Name,
    span: Span,
) -> Result<FoundEvents> {
    let rows = txn.read(NEWEST_EVENTS, newest_params(event_type, span));
    page(&rows.await?, span)
}

/// Reads the newest events of a type, and protects them from deletion by a sweep until the transaction ends.
pub(crate) async fn hold_newest_events(
    txn: &mut Transaction<'_>,
    event_type: &Name,
    span: Span,
) -> Result<FoundEvents> {
    let rows = txn.read(HOLD_NEWEST_EVENTS, newest_params(event_type, span));
    page(&rows.await?, span)
}

fn newest_params(event_type: &Name, span: Span) -> Vec<Param> {
    vec![
        Param::one(event_type.as_str()),
        Param::one(span.below),
        Param::one(span.since),
        Param::one(span.limit),
        Param::one(span.bytes),
    ]
}

fn page(rows: &[Row], span: Span) -> Result<FoundEvents> {
    let mut page = FoundEvents::default();
    for row in rows {
        let cells = &mut Cells::of(row);
        let sequence = cells.next()?;
        page.push(sequence, event(sequence, cells)?, &span);
    }
    Ok(page)
}

/// Reads the rest of an event. Returns `None` if it was published too early.
fn event(sequence: EventSequence, cells: &mut Cells<'_>) -> Result<Option<Event>> {
    let Some(payload) = cells.next::<Option<Json>>()? else {
        return Ok(None);
    };
    Ok(Some(Event {
        sequence,
        payload,
        event_type: cells.next()?,
        event_id: cells.next()?,
        published_at: cells.next()?,
    }))
}

/// Adds a path, unless its type has enough of them.
pub(crate) async fn add_path(
    txn: &mut Transaction<'_>,
    event_type: &Name,
    path: &str,
    most: usize,
    now: Timestamp,
) -> Result<Option<PathId>> {
    // Events that are published later in this transaction must be indexed too.
    look_again(txn);
    let params = vec![
        Param::one(event_type.as_str()),
        Param::one(path),
        Param::one(most),
        Param::one(now),
    ];
    let ids = each(&txn.read(ADD_PATH, params).await?, |cells| cells.next())?;
    Ok(ids.into_iter().next().map(PathId))
}

/// Records that a path is used.
pub(crate) fn use_path(txn: &mut Transaction<'_>, id: PathId, now: Timestamp) -> Result<()> {
    txn.write(USE_PATH, vec![Param::one(id.0), Param::one(now)])
}

/// Writes terms of events.
pub(crate) fn write_terms(txn: &mut Transaction<'_>, terms: &[Term]) -> Result<()> {
    for part in parts(terms, |term| term.value.len()) {
        txn.write(WRITE_TERMS, Terms::params(part)?)?;
    }
    Ok(())
}
