//! Looks back for the newest event that a new wait matches, through an index of event values, within limits
//! (rule 14.6).
//!
//! The transaction that looks back has locked the type alone, so no event of the type is published meanwhile.
//! Publishers wait for it, so it must be short, however many events there are.

use std::time::Duration;

use abide_core::model::{AT_ONCE, Event, EventSequence, EventWait, Limits, Timestamp, WaitId};
use abide_core::rules::event::{Payload, index_of};
use abide_core::rules::retention::PATHS_NOTED;

use super::publish::Opening;
use crate::run::Turn;
use crate::{EventLookup, FoundEvents, Loads, NewEvent, PathId, Result, Span, Term, Txn, Write};

/// The maximum number of indexed paths per type. Each path costs every publisher of the type one row per event, even if
/// another instance asked for the path.
const PATHS_PER_TYPE: usize = 16;

/// Returns the newest event that one of the waits looks back for, and the wait's id.
pub(super) async fn look_back<T: Txn>(
    turn: &mut Turn<'_, T>,
    opening: &Opening<'_>,
) -> Result<Option<(NewEvent, WaitId)>> {
    let mut newest: Option<(Event, WaitId)> = None;
    for (_, wait_id, wait) in &opening.waits {
        let Some(lookback) = wait.lookback_ms else {
            continue;
        };
        let since = turn.now - Duration::from_millis(lookback);
        let found = newest_match(turn, wait, since).await?;
        let is_newest = |event: &Event| {
            let known = newest.as_ref().map(|(known, _)| known.sequence);
            known.is_none_or(|known| event.sequence > known)
        };
        if let Some(event) = found.filter(is_newest) {
            newest = Some((event, wait_id.clone()));
        }
    }
    Ok(newest.map(|(event, wait_id)| (event.into(), wait_id)))
}

/// Returns the newest stored event that was published since `since` and matches, within the limits.
async fn newest_match<T: Txn>(
    turn: &mut Turn<'_, T>,
    wait: &EventWait,
    since: Timestamp,
) -> Result<Option<Event>> {
    let (path, values) = index_of(wait);
    let mut window = Window::open(turn.limits, since);
    // No value is in an empty list.
    if values.is_empty() || window.is_spent() {
        return Ok(None);
    }
    if path.is_empty() {
        return among_newest(turn, wait, window).await;
    }
    let lookup = EventLookup {
        event_type: &wait.event_type,
        path: &path,
        values: &values,
    };
    let mut used = false;
    // A sweep may forget the path between two pages. Then it counts as a path on which no wait has looked back.
    while let Some((found, page)) = turn.txn.look_up(&lookup, window.span()).await? {
        if !used && found.used_at + PATHS_NOTED <= turn.now {
            turn.txn.write(Write::UsePath(found.id, turn.now)).await?;
            used = true;
        }
        let more = window.pass(&page);
        if let Some(event) = first_match(page, wait) {
            return Ok(Some(event));
        }
        if !more {
            return Ok(None);
        }
    }
    let (of, now) = (&wait.event_type, turn.now);
    match turn.txn.add_path(of, &path, PATHS_PER_TYPE, now).await? {
        Some(id) => while_indexing(turn, wait, since, (id, &path)).await,
        None => among_newest(turn, wait, Window::open(turn.limits, since)).await,
    }
}

/// Reads the newest events of the type themselves, for a wait that cannot use an index.
async fn among_newest<T: Txn>(
    turn: &mut Turn<'_, T>,
    wait: &EventWait,
    mut window: Window,
) -> Result<Option<Event>> {
    loop {
        let of = &wait.event_type;
        let page = turn.txn.newest_events(of, window.span()).await?;
        let more = window.pass(&page);
        if let Some(event) = first_match(page, wait) {
            return Ok(Some(event));
        }
        if !more {
            return Ok(None);
        }
    }
}

/// Reads the newest events of the type, and writes their terms for a path on which a wait looks back for the first
/// time. From now on, publishers index their events themselves. Events beyond the read limits are not found through
/// this path.
async fn while_indexing<T: Txn>(
    turn: &mut Turn<'_, T>,
    wait: &EventWait,
    since: Timestamp,
    (path_id, path): (PathId, &str),
) -> Result<Option<Event>> {
    // All of them, because another wait may look back further than this one.
    let mut window = Window::open(turn.limits, Timestamp::MIN);
    let mut found = None;
    loop {
        let of = &wait.event_type;
        let page = turn.txn.hold_newest_events(of, window.span()).await?;
        let more = window.pass(&page);
        let mut terms = Vec::new();
        for event in page.events {
            let payload = Payload::of(&event.payload);
            let value = payload.index_value(path);
            terms.extend(value.map(|value| Term {
                path: path_id,
                value,
                sequence: event.sequence,
                published_at: event.published_at,
            }));
            let matches = event.published_at >= since && payload.satisfies(&wait.conditions);
            if found.is_none() && matches {
                found = Some(event);
            }
        }
        turn.txn.write(Write::WriteTerms(&terms)).await?;
        if !more {
            return Ok(found);
        }
    }
}

fn first_match(page: FoundEvents, wait: &EventWait) -> Option<Event> {
    let matches = |event: &Event| Payload::of(&event.payload).satisfies(&wait.conditions);
    page.events.into_iter().find(matches)
}

/// The remaining limits of one look back, and its position.
struct Window {
    below: EventSequence,
    since: Timestamp,
    events: usize,
    bytes: usize,
    page_bytes: usize,
}

impl Window {
    fn open(limits: &Limits, since: Timestamp) -> Self {
        Self {
            below: EventSequence(i64::MAX),
            since,
            events: limits.lookback_events,
            bytes: limits.lookback_bytes,
            page_bytes: limits.page_bytes,
        }
    }

    /// Returns the next page to read.
    fn span(&self) -> Span {
        Span {
            below: self.below,
            since: self.since,
            limit: self.events.min(AT_ONCE),
            bytes: self.bytes.min(self.page_bytes),
        }
    }

    /// Moves past a page. Returns `true` if more may be read.
    fn pass(&mut self, page: &FoundEvents) -> bool {
        let Some(last) = page.last else {
            return false;
        };
        self.below = last;
        self.events = self.events.saturating_sub(page.count);
        self.bytes = self.bytes.saturating_sub(page.bytes);
        !self.is_spent()
    }

    fn is_spent(&self) -> bool {
        self.events == 0 || self.bytes == 0
    }
}
