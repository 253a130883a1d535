//! The paths on which waits look back, and the values of events at these paths.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{EventSequence, Name, Timestamp};

use super::pieces::MemoryTxn;
use crate::{EventLookup, EventPaths, FoundEvents, LookbackPath, PathId, Span, Term};

/// The key of a term: path and value, then event.
pub(super) type TermKey = (PathId, String, EventSequence);

/// The paths on which waits look back, and the values of events at these paths.
#[derive(Debug, Default)]
pub(super) struct Lookback {
    paths: BTreeMap<(Name, String), LookbackPath>,
    terms: BTreeMap<TermKey, Timestamp>,
    of_event: BTreeSet<(EventSequence, PathId, String)>,
    last: i64,
}

impl Lookback {
    pub fn next(&mut self) -> PathId {
        self.last += 1;
        PathId(self.last)
    }

    pub fn paths(&self) -> &BTreeMap<(Name, String), LookbackPath> {
        &self.paths
    }

    /// Returns the paths of a type.
    pub fn of_type<'l>(
        &'l self,
        event_type: &'l Name,
    ) -> impl Iterator<Item = (&'l str, LookbackPath)> {
        let paths = self.paths.range((event_type.clone(), String::new())..);
        let paths = paths.take_while(move |((of, _), _)| of == event_type);
        paths.map(|((_, path), found)| (path.as_str(), *found))
    }

    /// Writes or removes a path. Returns the previous one.
    pub fn put_path(
        &mut self,
        at: &(Name, String),
        path: Option<LookbackPath>,
    ) -> Option<LookbackPath> {
        match path {
            Some(path) => self.paths.insert(at.clone(), path),
            None => self.paths.remove(at),
        }
    }

    /// Returns the terms with a value at a path below a sequence, newest first.
    pub fn terms(
        &self,
        path: PathId,
        value: &str,
        below: EventSequence,
    ) -> impl Iterator<Item = (EventSequence, Timestamp)> {
        let first = (path, value.to_owned(), EventSequence(i64::MIN));
        let end = (path, value.to_owned(), below);
        let terms = self.terms.range(first..end).rev();
        terms.map(|((.., sequence), published_at)| (*sequence, *published_at))
    }

    /// Returns the terms of an event.
    pub fn of_event(&self, sequence: EventSequence) -> Vec<TermKey> {
        let first = (sequence, PathId(i64::MIN), String::new());
        let terms = self.of_event.range(first..);
        let terms = terms.take_while(|(of, ..)| *of == sequence);
        terms
            .map(|(_, path, value)| (*path, value.clone(), sequence))
            .collect()
    }

    /// Writes or removes a term. Returns the previous one.
    pub fn put_term(&mut self, at: &TermKey, published_at: Option<Timestamp>) -> Option<Timestamp> {
        let (path, value, sequence) = at.clone();
        match published_at {
            Some(published_at) => {
                self.of_event.insert((sequence, path, value));
                self.terms.insert(at.clone(), published_at)
            }
            None => {
                self.of_event.remove(&(sequence, path, value));
                self.terms.remove(at)
            }
        }
    }
}

impl MemoryTxn<'_> {
    /// Returns the paths under which waiters of these types are indexed, and those on which waits look back.
    pub fn paths_now(&self, types: &[Name]) -> EventPaths {
        let mut paths = EventPaths::default();
        for of in types {
            let waiters = self.tables.events().paths(of).into_iter();
            paths.waiters.extend(waiters.map(|path| (of.clone(), path)));
            let lookback = self.tables.lookback().of_type(of);
            let lookback = lookback.map(|(path, found)| (of.clone(), path.into(), found.id));
            paths.lookback.extend(lookback);
        }
        paths
    }

    /// Writes terms of events.
    pub fn write_terms_now(&mut self, terms: &[Term]) {
        for term in terms {
            let at = (term.path, term.value.clone(), term.sequence);
            let undo = self.tables.put_term(at, Some(term.published_at));
            self.log.push(undo);
        }
    }

    /// Returns the newest events that have one of these values at a path; `None` if no wait looks back on it.
    pub fn look_up_now(
        &self,
        lookup: &EventLookup<'_>,
        span: Span,
    ) -> Option<(LookbackPath, FoundEvents)> {
        let lookback = self.tables.lookback();
        let at = (lookup.event_type.clone(), lookup.path.to_owned());
        let found = *lookback.paths().get(&at)?;
        let mut newest: Vec<(EventSequence, Timestamp)> = Vec::new();
        for value in lookup.values {
            let terms = lookback.terms(found.id, value, span.below);
            newest.extend(terms.take(span.limit));
        }
        newest.sort_unstable_by(|one, other| other.cmp(one));
        let mut page = FoundEvents::default();
        for (sequence, published_at) in newest.into_iter().take(span.limit) {
            let event = self.tables.events().events().get(&sequence);
            let event = event.filter(|_| published_at >= span.since).cloned();
            if !page.push(sequence, event, &span) {
                break;
            }
        }
        Some((found, page))
    }

    /// Returns the newest events of a type.
    pub fn newest_now(&self, event_type: &Name, span: Span) -> FoundEvents {
        let events = self.tables.events().events().range(..span.below).rev();
        let of_type = events.filter(|(_, event)| event.event_type == *event_type);
        let mut page = FoundEvents::default();
        for (sequence, event) in of_type.take(span.limit) {
            let event = Some(event).filter(|event| event.published_at >= span.since);
            if !page.push(*sequence, event.cloned(), &span) {
                break;
            }
        }
        page
    }

    /// Records a path, unless the type has enough of them.
    pub fn add_path_now(
        &mut self,
        event_type: &Name,
        path: &str,
        most: usize,
        now: Timestamp,
    ) -> Option<PathId> {
        if self.tables.lookback().of_type(event_type).count() >= most {
            return None;
        }
        let id = self.tables.next_path();
        let at = (event_type.clone(), path.to_owned());
        let used = LookbackPath { id, used_at: now };
        let undo = self.tables.put_path(at, Some(used));
        self.log.push(undo);
        Some(id)
    }

    /// Records that a path is used.
    pub fn use_path_now(&mut self, id: PathId, now: Timestamp) {
        let mut paths = self.tables.lookback().paths().iter();
        let found = paths.find(|(_, path)| path.id == id);
        if let Some(at) = found.map(|(at, _)| at.clone()) {
            let used = LookbackPath { id, used_at: now };
            let undo = self.tables.put_path(at, Some(used));
            self.log.push(undo);
        }
    }

    /// Forgets paths that were not used since `before`. Returns how many.
    pub fn forget_paths_now(&mut self, before: Timestamp, limit: usize) -> usize {
        let paths = self.tables.lookback().paths().iter();
        let unused = paths.filter(|(_, path)| path.used_at < before);
        let unused: Vec<(Name, String)> = unused.map(|(at, _)| at.clone()).take(limit).collect();
        let count = unused.len();
        for at in unused {
            let undo = self.tables.put_path(at, None);
            self.log.push(undo);
        }
        count
    }

    /// Deletes old events with their terms. Returns how many events.
    pub fn forget_events_now(&mut self, before: Timestamp, limit: usize) -> usize {
        let events = self.tables.events().events().values();
        let old = events
            .filter(|event| event.published_at < before)
            .take(limit);
        let old: Vec<EventSequence> = old.map(|event| event.sequence).collect();
        for sequence in &old {
            for term in self.tables.lookback().of_event(*sequence) {
                let undo = self.tables.put_term(term, None);
                self.log.push(undo);
            }
            let undo = self.tables.put_event(*sequence, None);
            self.log.push(undo);
        }
        old.len()
    }
}
