//! Looking back: the paths of event types that waits look back on, the terms of events at these paths, and pages of
//! events found by them.

use abide_core::model::{EventSequence, Name, Timestamp};
use abide_kernel::{EventLookup, FoundEvents, LookbackPath, PathId, Span, Term};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::{distinct, events, limited, one};
use crate::cells;

/// Index: `abide_event_paths_of_type`, all entries of a type.
pub(crate) const PATHS: &str =
    "select path, id from abide_event_paths where event_type = ?1 order by path";

/// The paths of these types that waits look back on.
pub(crate) fn paths(conn: &Connection, types: &[Name]) -> Result<Vec<(Name, String, PathId)>> {
    let mut statement = conn.prepare_cached(PATHS)?;
    let mut found = Vec::new();
    for event_type in distinct(types) {
        let rows = statement.query_map([event_type.as_str()], |row| {
            Ok((event_type.clone(), row.get(0)?, PathId(row.get(1)?)))
        })?;
        for path in rows {
            found.push(path?);
        }
    }
    Ok(found)
}

/// Index: `abide_event_paths_of_type`, which has at most one entry for each.
pub(crate) const PATH: &str =
    "select id, used_at from abide_event_paths where event_type = ?1 and path = ?2";

/// Index: the primary key, read from that sequence number down.
pub(crate) const TERMS: &str = "
    select sequence, published_at from abide_event_terms
    where path_id = ?1 and value = ?2 and sequence < ?3 order by sequence desc limit ?4";

/// Finds the newest events that have one of the given values at a path. Returns `None` if no wait looks back on the
/// path.
pub(crate) fn look_up(
    conn: &Connection,
    lookup: &EventLookup<'_>,
    span: Span,
) -> Result<Option<(LookbackPath, FoundEvents)>> {
    let mut path = conn.prepare_cached(PATH)?;
    let found = path.query_row([lookup.event_type.as_str(), lookup.path], |row| {
        Ok(LookbackPath {
            id: PathId(row.get(0)?),
            used_at: cells::time(row, 1)?,
        })
    });
    let Some(found) = found.optional()? else {
        return Ok(None);
    };
    let mut terms = conn.prepare_cached(TERMS)?;
    let mut newest: Vec<(EventSequence, Timestamp)> = Vec::new();
    for value in lookup.values {
        let of_value = params![found.id.0, value, span.below.0, limited(span.limit)];
        let rows = terms.query_map(of_value, |row| {
            Ok((events::sequence(row)?, cells::time(row, 1)?))
        })?;
        for term in rows {
            newest.push(term?);
        }
    }
    newest.sort_unstable_by(|one, other| other.cmp(one));
    let mut whole = conn.prepare_cached(events::BY_SEQUENCE)?;
    let mut page = FoundEvents::default();
    for (sequence, published_at) in newest.into_iter().take(span.limit) {
        let event = match published_at >= span.since {
            true => Some(whole.query_row([sequence.0], events::read)?),
            false => None,
        };
        if !page.push(sequence, event, &span) {
            break;
        }
    }
    Ok(Some((found, page)))
}

/// The newest events of a type; only the sequence number of those that were published too early. Index:
/// `abide_events_of_type`.
pub(crate) fn newest(conn: &Connection, event_type: &Name, span: Span) -> Result<FoundEvents> {
    let mut statement = conn.prepare_cached(events::NEWEST_OF_TYPE)?;
    let values = params![span.below.0, limited(span.limit), event_type.as_str()];
    let mut rows = statement.query(values)?;
    let mut page = FoundEvents::default();
    while let Some(row) = rows.next()? {
        let event = match events::published_at(row)? >= span.since {
            true => Some(events::read(row)?),
            false => None,
        };
        if !page.push(events::sequence(row)?, event, &span) {
            break;
        }
    }
    Ok(page)
}

/// Index: `abide_event_paths_of_type`, which the path enters.
pub(crate) const ADD: &str = "
    insert into abide_event_paths (used_at, event_type, path)
    select ?1, ?2, ?3 where (select count(*) from abide_event_paths where event_type = ?2) < ?4
    returning id";

/// Adds a path, unless its type has enough of them.
pub(crate) fn add(
    conn: &Connection,
    event_type: &Name,
    path: &str,
    most: usize,
    now: Timestamp,
) -> Result<Option<PathId>> {
    let mut statement = conn.prepare_cached(ADD)?;
    let values = params![now.as_micros(), event_type.as_str(), path, limited(most)];
    let id = statement.query_row(values, |row| row.get(0)).optional()?;
    Ok(id.map(PathId))
}

/// Index: the primary key.
pub(crate) const USE: &str = "update abide_event_paths set used_at = ?2 where id = ?1";

/// Records that a path is used.
pub(crate) fn used(conn: &Connection, id: PathId, now: Timestamp) -> Result<()> {
    let mut statement = conn.prepare_cached(USE)?;
    one(statement.execute([id.0, now.as_micros()])?)
}

/// Index: `abide_event_paths_used`, read from its beginning.
pub(crate) const UNUSED: &str =
    "select id from abide_event_paths where used_at < ?1 order by used_at limit ?2";

/// Index: the primary key.
pub(crate) const FORGET: &str = "delete from abide_event_paths where id = ?1";

/// The term enters the primary key and `abide_event_terms_of_event`.
pub(crate) const WRITE: &str = "
    insert into abide_event_terms (path_id, value, sequence, published_at) values (?1, ?2, ?3, ?4)";

/// Writes terms of events.
pub(crate) fn write(conn: &Connection, terms: &[Term]) -> Result<()> {
    let mut statement = conn.prepare_cached(WRITE)?;
    for term in terms {
        one(statement.execute(params![
            term.path.0,
            term.value,
            term.sequence.0,
            term.published_at.as_micros()
        ])?)?;
    }
    Ok(())
}
