//! Events, and the waiters for them.

use std::collections::{BTreeMap, HashMap};

use abide_core::model::{Event, EventSequence, InstanceId, Name, Waiter};

/// The key of a waiter: type, path and value, as in a database index, then instance and position.
pub(super) type Spot = (Name, String, String, InstanceId, u32);

/// Events, and the waiters for them.
#[derive(Debug, Default)]
pub(super) struct Events {
    events: BTreeMap<EventSequence, Event>,
    by_id: HashMap<(Name, Name), EventSequence>,
    waiters: BTreeMap<Spot, Waiter>,
    of_instance: BTreeMap<(InstanceId, Spot), ()>,
    totals: HashMap<Name, usize>,
    last: i64,
}

impl Events {
    pub fn next(&mut self) -> EventSequence {
        self.last += 1;
        EventSequence(self.last)
    }

    pub fn events(&self) -> &BTreeMap<EventSequence, Event> {
        &self.events
    }

    pub fn known(&self, event_type: &Name, event_id: &Name) -> Option<EventSequence> {
        let key = (event_type.clone(), event_id.clone());
        self.by_id.get(&key).copied()
    }

    /// Writes or removes an event. Returns the previous one.
    pub fn put(&mut self, at: EventSequence, event: Option<Event>) -> Option<Event> {
        let was = match event {
            Some(event) => {
                let key = (event.event_type.clone(), event.event_id.clone());
                self.by_id.insert(key, at);
                self.events.insert(at, event)
            }
            None => self.events.remove(&at),
        };
        if let Some(was) = &was
            && !self.events.contains_key(&at)
        {
            let key = (was.event_type.clone(), was.event_id.clone());
            self.by_id.remove(&key);
        }
        was
    }

    pub fn waiters(&self) -> &BTreeMap<Spot, Waiter> {
        &self.waiters
    }

    /// Returns the paths under which waiters of a type are indexed.
    pub fn paths(&self, event_type: &Name) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for (_, path, ..) in self.of_type(event_type) {
            if paths.last() != Some(path) {
                paths.push(path.clone());
            }
        }
        paths
    }

    fn of_type<'e>(&'e self, event_type: &'e Name) -> impl Iterator<Item = &'e Spot> {
        let first = (
            event_type.clone(),
            String::new(),
            String::new(),
            InstanceId(i64::MIN),
            0,
        );
        let spots = self.waiters.range(first..).map(|(spot, _)| spot);
        spots.take_while(move |(of, ..)| of == event_type)
    }

    /// Returns the waiters at an index entry.
    pub fn at<'e>(&'e self, probe: &'e (Name, String, String)) -> impl Iterator<Item = &'e Waiter> {
        let (event_type, path, value) = probe.clone();
        let first = (event_type, path, value, InstanceId(i64::MIN), 0);
        let found = self.waiters.range(first..);
        let found = found.take_while(move |((of, path, value, ..), _)| {
            (of, path, value) == (&probe.0, &probe.1, &probe.2)
        });
        found.map(|(_, waiter)| waiter)
    }

    /// Returns the keys of an instance's waiters.
    pub fn spots(&self, id: InstanceId) -> Vec<Spot> {
        let first = (
            id,
            (
                Name::stored(""),
                String::new(),
                String::new(),
                InstanceId(i64::MIN),
                0,
            ),
        );
        let spots = self.of_instance.range(first..);
        let spots = spots.take_while(|((of, _), ())| *of == id);
        spots.map(|((_, spot), ())| spot.clone()).collect()
    }

    pub fn total(&self, event_type: &Name) -> usize {
        self.totals.get(event_type).copied().unwrap_or_default()
    }

    /// Writes or removes a waiter. Returns the previous one.
    pub fn put_waiter(&mut self, spot: &Spot, waiter: Option<Waiter>) -> Option<Waiter> {
        let comes = waiter.is_some();
        let was = match waiter {
            Some(waiter) => self.waiters.insert(spot.clone(), waiter),
            None => self.waiters.remove(spot),
        };
        let total = self.totals.entry(spot.0.clone()).or_default();
        *total = (*total + usize::from(comes)).saturating_sub(usize::from(was.is_some()));
        let key = (spot.3, spot.clone());
        if comes {
            self.of_instance.insert(key, ());
        } else {
            self.of_instance.remove(&key);
        }
        was
    }
}

/// Returns the key of a waiter.
pub(super) fn spot_of(waiter: &Waiter) -> Spot {
    (
        waiter.event_type.clone(),
        waiter.path.clone(),
        waiter.value.clone(),
        waiter.instance,
        waiter.position,
    )
}
