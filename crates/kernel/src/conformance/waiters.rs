//! The invariants of waits for events in every store, at every moment: each wait has its waiters, and no others exist.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{EventWait, Instance, InstanceId, Name, Row, Status, WaitKind, Waiter};
use abide_core::rules::event::index_of;

use crate::{Result, Store, WaiterFilter};

/// All waits for events that there are.
pub async fn standing(store: &dyn Store) -> Result<Vec<Waiter>> {
    let all = WaiterFilter::default();
    let most = usize::from(u16::MAX);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.waiters(&all, after, most).await?;
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Finds what breaks an invariant in these waiters, given all of them and all instances (rule 14.7).
pub fn of_waiters(instances: &[Instance], waiters: &[Waiter]) -> Vec<String> {
    let mut found = Vec::new();
    let mut standing: BTreeMap<InstanceId, BTreeSet<Name>> = BTreeMap::new();
    for waiter in waiters {
        let name = Name::of_event(&waiter.event_type);
        standing.entry(waiter.instance).or_default().insert(name);
        let (path, values) = index_of(&wait_of(waiter));
        if path != waiter.path || !values.contains(&waiter.value) {
            let Waiter { path, value, .. } = waiter;
            found.push(format!(
                "a waiter of {} stands at {path:?} {value:?}, and should not",
                waiter.instance
            ));
        }
    }
    for instance in instances {
        let waits = awaited(instance);
        let stand = standing.remove(&instance.id).unwrap_or_default();
        if waits != stand {
            let Row { id, status, .. } = &instance.row;
            found.push(format!(
                "instance {id} ({status}) waits for {waits:?}, and waiters stand for {stand:?}"
            ));
        }
        let of_it = waiters.iter().filter(|one| one.instance == instance.id);
        let due_at = instance.aside.map_or(instance.due_at, |aside| aside.due_at);
        for waiter in of_it {
            if waiter.partition != instance.partition_key || waiter.deadline != due_at {
                found.push(format!("{waiter:?} is unlike the row of its instance"));
            }
        }
    }
    let orphans = standing.into_keys();
    found.extend(orphans.map(|id| format!("waiters stand for {id}, which is not there")));
    found
}

/// The names of the events that an instance waits for; updates that it runs for meanwhile do not count.
fn awaited(instance: &Instance) -> BTreeSet<Name> {
    let stands = instance.stands();
    let waits =
        stands == Status::AwaitingSignal && instance.wait_kind() != Some(WaitKind::Condition);
    let names = instance.awaited().iter().filter(|_| waits);
    let events = names.filter(|name| name.event_type().is_some());
    events.cloned().collect()
}

fn wait_of(waiter: &Waiter) -> EventWait {
    EventWait {
        event_type: waiter.event_type.clone(),
        conditions: waiter.conditions.clone(),
        lookback_ms: None,
    }
}

/// The number of waiters of each type that count against the limit: one for each entry of the index.
pub fn totals(waiters: &[Waiter]) -> BTreeMap<Name, usize> {
    let mut totals = BTreeMap::new();
    for waiter in waiters {
        let (_, values) = index_of(&wait_of(waiter));
        *totals.entry(waiter.event_type.clone()).or_default() += values.len();
    }
    totals
}
