//! Published events: statements that store, list and delete them.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{Event, EventSequence, Name, Timestamp};
use abide_core::rules::event::Payload;
use abide_kernel::{Error, EventFilter, EventPage, NewEvent, Result};

use crate::arrays::arrays;
use crate::cells::{Cells, each};
use crate::param::{Param, parts};
use crate::pool::Pool;
use crate::read::{ask_some, reading};
use crate::txn::Transaction;
use crate::waiters::{self, Probe};

/// The columns of an event, in the order in which [`event`] reads them.
macro_rules! event_columns {
    () => {
        "e.sequence, e.event_type, e.event_id, e.payload, e.published_at"
    };
}

/// Stores events, and returns the new ones. No two of the given events have the same type and id.
///
/// Index: `events_known`. A transaction that publishes the same event at the same time is waited for. All transactions
/// insert in the order of types and ids, whatever the order of their sequence numbers.
pub const STORE_EVENTS: &str = "\
insert into abide.events (sequence, event_type, event_id, payload, published_at) \
select n.sequence, n.event_type, n.event_id, n.payload, $1 from ( \
    select nextval('abide.events_sequence_seq') as sequence, o.* from ( \
        select * from unnest((select $2::text[]), (select $3::text[]), (select $4::text[])) \
            with ordinality as e(event_type, event_id, payload, place) order by place \
    ) o offset 0 \
) n order by n.event_type, n.event_id \
on conflict (event_type, event_id) do nothing \
returning event_type, event_id, sequence";

/// The sequence numbers of the given events that exist.
///
/// Index: `events_known`.
pub const KNOWN_EVENTS: &str = concat!(
    "\
select e.event_type, e.event_id, e.sequence \
from ",
    arrays!(1 event_type text, 2 event_id text),
    " k \
cross join lateral ( \
    select * from abide.events e \
    where e.event_type = k.event_type and e.event_id = k.event_id limit 1 \
) e"
);

/// The first events of a type above a sequence number, in order.
///
/// Indexes: `events_of_type`, read from there; it alone contains all the columns that are read, which keeps the planner
/// from reading events of other types; then `events_pkey`.
pub const EVENTS_ABOVE: &str = concat!(
    "select ",
    event_columns!(),
    " from abide.events e where e.sequence = any(array( \
        select l.sequence from abide.events l where l.event_type = $1 and l.sequence > $2 \
        order by l.event_type, l.sequence limit (select $3::bigint))) \
    order by e.sequence"
);

/// Deletes old events and their terms.
///
/// Indexes: `events_published`, read from its beginning; `events_pkey`, `event_terms_of_event`. Locks: the events;
/// those that another sweep has locked, or whose terms are being written, are skipped.
pub const FORGET_EVENTS: &str = "\
with old as materialized ( \
    select e.sequence from abide.events e where e.published_at < $1 \
    order by e.published_at, e.sequence limit (select $2::bigint) for update skip locked \
), terms as ( \
    delete from abide.event_terms where sequence = any(array(select sequence from old)) \
) \
delete from abide.events where sequence = any(array(select sequence from old)) \
returning sequence";

/// A page of events, newest first. Index: `events_pkey` read backwards, `events_of_type` for events of one type; the
/// planner removes a filter that is null.
pub const EVENTS: &str = concat!(
    "select ",
    event_columns!(),
    " from abide.events e where e.sequence < $1 and ($2::text is null or e.event_type = $2) \
    order by e.sequence desc limit $3"
);

/// Stores events, in order; returns the sequence number of each, and whether it is new.
pub(crate) async fn store_events(
    txn: &mut Transaction<'_>,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<Vec<(EventSequence, bool)>> {
    // The first of equal events, by its position in the batch.
    let mut firsts: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        firsts
            .entry((&event.event_type, &event.event_id))
            .or_insert(at);
    }
    let is_first = |at: usize, event: &NewEvent| {
        firsts.get(&(&event.event_type, &event.event_id)) == Some(&at)
    };
    let distinct: Vec<&NewEvent> = (0..)
        .zip(events)
        .filter(|(at, event)| is_first(*at, event))
        .map(|(_, event)| event)
        .collect();
    let mut new: BTreeMap<(Name, Name), EventSequence> = BTreeMap::new();
    for part in parts(&distinct, |one| one.payload.size()) {
        let params = vec![
            Param::one(now),
            Param::list(part.iter().map(|one| one.event_type.as_str())),
            Param::list(part.iter().map(|one| one.event_id.as_str())),
            Param::list(part.iter().map(|one| one.payload.as_str())),
        ];
        // Only for one statement: if a batch needs several, the waiters of the others are read later.
        let probes = probes_ahead(txn, part);
        let rows = if probes.is_empty() {
            txn.read(STORE_EVENTS, params).await?
        } else {
            let probe = (waiters::WAITERS, waiters::waiters_params(&probes));
            let (rows, found) = txn.read_both((STORE_EVENTS, params), probe).await?;
            txn.waiters_ahead = Some((probes, found));
            rows
        };
        new.extend(each(&rows, sequence_of)?);
    }
    let mut known = BTreeMap::new();
    if new.len() < distinct.len() {
        let is_known =
            |one: &&&NewEvent| !new.contains_key(&(one.event_type.clone(), one.event_id.clone()));
        let there: Vec<&NewEvent> = distinct.iter().filter(is_known).copied().collect();
        let params = vec![
            Param::list(there.iter().map(|one| one.event_type.as_str())),
            Param::list(there.iter().map(|one| one.event_id.as_str())),
        ];
        known.extend(each(&txn.read(KNOWN_EVENTS, params).await?, sequence_of)?);
    }
    let mut stored = Vec::with_capacity(events.len());
    for (at, event) in events.iter().enumerate() {
        let key = (event.event_type.clone(), event.event_id.clone());
        match (new.get(&key), known.get(&key)) {
            (Some(sequence), _) => stored.push((*sequence, is_first(at, event))),
            (None, Some(sequence)) => stored.push((*sequence, false)),
            (None, None) => {
                return Err(Error::Conflict(
                    "an event that was there was forgotten meanwhile".into(),
                ));
            }
        }
    }
    Ok(stored)
}

fn sequence_of(cells: &mut Cells<'_>) -> Result<((Name, Name), EventSequence)> {
    Ok(((cells.next()?, cells.next()?), cells.next()?))
}

/// The index entries where waiters are searched if these events are new, as far as their paths are known.
fn probes_ahead(txn: &Transaction<'_>, events: &[&NewEvent]) -> BTreeSet<Probe> {
    let mut probes = BTreeSet::new();
    let paths = txn.paths_ahead.as_ref();
    let paths = paths.map_or(&[][..], |paths| paths.waiters.as_slice());
    if paths.is_empty() {
        return probes;
    }
    for event in events {
        let payload = Payload::of(&event.payload);
        for (event_type, path) in paths {
            if *event_type == event.event_type
                && let Some(value) = match path.is_empty() {
                    true => Some(String::new()),
                    false => payload.index_value(path),
                }
            {
                probes.insert((event_type.clone(), path.clone(), value));
            }
        }
    }
    probes
}

/// Reads the first events of a type above a sequence number.
pub(crate) async fn events_above(
    txn: &mut Transaction<'_>,
    event_type: &Name,
    above: EventSequence,
    limit: usize,
) -> Result<Vec<Event>> {
    let params = vec![
        Param::one(event_type.as_str()),
        Param::one(above),
        Param::one(limit),
    ];
    each(&txn.read(EVENTS_ABOVE, params).await?, event)
}

/// Reads a page of events.
pub(crate) async fn list(
    pool: &Pool,
    filter: &EventFilter,
    before: Option<EventSequence>,
    limit: usize,
    most: usize,
) -> Result<EventPage> {
    let params = vec![
        Param::one(below(before)),
        Param::one(filter.event_type.as_ref().map(Name::as_str)),
        Param::one(limit.saturating_add(1)),
    ];
    let read = ask_some(pool, EVENTS, params, reading(most)).await?;
    read.page(|rows| each(rows, event), limit, most, |last| last.sequence)
}

fn below(before: Option<EventSequence>) -> EventSequence {
    before.unwrap_or(EventSequence(i64::MAX))
}

fn event(cells: &mut Cells<'_>) -> Result<Event> {
    Ok(Event {
        sequence: cells.next()?,
        event_type: cells.next()?,
        event_id: cells.next()?,
        payload: cells.next()?,
        published_at: cells.next()?,
    })
}
