//! Published events: statements that store, list and delete them.

use abide_core::model::{Event, EventSequence, Name, Timestamp};
use abide_kernel::{EventFilter, NewEvent, gather};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

use super::{Lazy, limited};
use crate::cells;

/// The event enters all indexes of the table; `abide_events_known` shows that it exists already.
pub(crate) const STORE: &str = "
    insert into abide_events (published_at, event_type, event_id, payload) values (?1, ?2, ?3, ?4)
    on conflict (event_type, event_id) do nothing returning sequence";

/// Index: `abide_events_known`, which has at most one entry for each.
pub(crate) const KNOWN: &str =
    "select sequence from abide_events where event_type = ?1 and event_id = ?2";

/// Stores events, in order; returns the sequence number of each, and whether it is new.
pub(crate) fn store(
    conn: &Connection,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<Vec<(EventSequence, bool)>> {
    let mut store = conn.prepare_cached(STORE)?;
    let mut known = Lazy::new(conn, KNOWN);
    let mut stored = Vec::with_capacity(events.len());
    for event in events {
        let (event_type, event_id) = (event.event_type.as_str(), event.event_id.as_str());
        let values = params![
            now.as_micros(),
            event_type,
            event_id,
            event.payload.as_str()
        ];
        let new = store.query_row(values, sequence).optional()?;
        stored.push(match new {
            Some(sequence) => (sequence, true),
            None => {
                let of = params![event_type, event_id];
                (known.get()?.query_row(of, sequence)?, false)
            }
        });
    }
    Ok(stored)
}

pub(super) fn sequence(row: &Row<'_>) -> Result<EventSequence> {
    Ok(EventSequence(row.get(0)?))
}

/// All columns of an event, in the order in which [`read`] reads them.
macro_rules! select {
    ($where:literal) => {
        concat!(
            "select sequence, event_type, event_id, payload, published_at from abide_events",
            $where
        )
    };
}

pub(super) fn read(row: &Row<'_>) -> Result<Event> {
    Ok(Event {
        sequence: sequence(row)?,
        event_type: cells::name(row, 1)?,
        event_id: cells::name(row, 2)?,
        payload: cells::json(row, 3)?,
        published_at: published_at(row)?,
    })
}

pub(super) fn published_at(row: &Row<'_>) -> Result<Timestamp> {
    cells::time(row, 4)
}

/// Index: the primary key.
pub(crate) const BY_SEQUENCE: &str = select!(" where sequence = ?1");

/// Index: `abide_events_of_type`, read from that sequence number on.
pub(crate) const ABOVE: &str = select!(
    " indexed by abide_events_of_type where event_type = ?1 and sequence > ?2
    order by sequence limit ?3"
);

/// The first events of a type above a sequence number, in order.
pub(crate) fn above(
    conn: &Connection,
    event_type: &Name,
    above: EventSequence,
    limit: usize,
) -> Result<Vec<Event>> {
    let mut statement = conn.prepare_cached(ABOVE)?;
    let values = params![event_type.as_str(), above.0, limited(limit)];
    statement.query_map(values, read)?.collect()
}

fn below(before: Option<EventSequence>) -> i64 {
    before.map_or(i64::MAX, |before| before.0)
}

/// Index: `abide_events_published`, read from its beginning.
pub(crate) const OLD: &str = "
    select sequence from abide_events where published_at < ?1 order by published_at, sequence limit ?2";

/// Index: the primary key.
pub(crate) const DELETE: &str = "delete from abide_events where sequence = ?1";

/// Index: `abide_event_terms_of_event`.
pub(crate) const DELETE_TERMS: &str = "delete from abide_event_terms where sequence = ?1";

/// Index: the primary key, read from its end.
pub(crate) const NEWEST: &str = select!(" where sequence < ?1 order by sequence desc limit ?2");

/// Index: `abide_events_of_type`, read from the end of the type.
pub(crate) const NEWEST_OF_TYPE: &str = select!(
    " indexed by abide_events_of_type where event_type = ?3 and sequence < ?1
    order by sequence desc limit ?2"
);

/// Events that match all given conditions, newest first, below `before`.
pub(crate) fn list(
    conn: &Connection,
    filter: &EventFilter,
    before: Option<EventSequence>,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Event>> {
    let (below, limit) = (below(before), limited(limit));
    match &filter.event_type {
        Some(event_type) => {
            let mut statement = conn.prepare_cached(NEWEST_OF_TYPE)?;
            let values = params![below, limit, event_type.as_str()];
            gather(statement.query_map(values, read)?, bytes)
        }
        None => {
            let mut statement = conn.prepare_cached(NEWEST)?;
            gather(statement.query_map(params![below, limit], read)?, bytes)
        }
    }
}
