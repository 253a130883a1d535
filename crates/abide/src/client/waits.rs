//! Who waits for what.

use abide_core::model::{
    Condition, Instance, InstanceId, Key, Name, Status, Timestamp, WaitId, WaitKind, Waiter,
};
use abide_kernel::{Filter, Page, WaiterFilter};
use serde::{Deserialize, Serialize};

use crate::{Abide, Error};

/// Which waits to list: all that meet every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaitsFilter {
    /// Those for a signal, or for an event, or for a condition.
    pub kind: Option<WaitKind>,
    /// Those for that signal, or for events of that type, or for the condition of that key.
    pub name: Option<String>,
    /// Those of instances whose key begins so.
    pub key_prefix: Option<String>,
    /// Those of that instance.
    pub instance: Option<InstanceId>,
}

/// One thing that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenWait {
    /// Who waits.
    pub instance: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// For what kind of thing.
    pub kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition; empty for a condition without a key.
    pub name: String,
    /// What the event must say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The wait's id.
    pub wait_id: Option<WaitId>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Until when.
    pub deadline: Option<Timestamp>,
}

/// How many instances are looked at in one statement.
const PAGE: usize = 200;

impl Abide {
    /// A page of what instances wait for: signals, events and conditions, since when and until when; newest instances
    /// first. `next` of one page is `before` of the following, and an instance's waits are all on one page.
    ///
    pub async fn waits(
        &self,
        filter: &WaitsFilter,
        mut before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<OpenWait>, Error> {
        let mut items = Vec::new();
        if let Some(id) = filter.instance {
            let found = self.get(id).await?;
            if let Some(instance) = found.filter(|one| before.is_none_or(|before| one.id < before))
            {
                items = self.waits_of(&instance, filter).await?;
            }
            return Ok(Page { items, next: None });
        }
        let name = filter.name.as_ref().map(Name::new);
        let Ok(waiting_for) = name.transpose() else {
            // Nothing can be of that name.
            return Ok(Page { items, next: None });
        };
        let waiting = Filter {
            status: Some(Status::AwaitingSignal),
            key_prefix: filter.key_prefix.clone(),
            waiting_for,
            ..Filter::default()
        };
        loop {
            let page = self.store().list(&waiting, before, PAGE).await?;
            for instance in &page.items {
                if items.len() >= limit {
                    return Ok(Page {
                        items,
                        next: before,
                    });
                }
                items.extend(self.waits_of(instance, filter).await?);
                before = Some(instance.id);
            }
            before = page.next;
            if before.is_none() {
                return Ok(Page { items, next: None });
            }
        }
    }

    async fn waits_of(
        &self,
        instance: &Instance,
        filter: &WaitsFilter,
    ) -> Result<Vec<OpenWait>, Error> {
        let stands = instance.aside.map_or(instance.status, |aside| aside.status);
        let (Status::AwaitingSignal, Some(kind)) = (stands, instance.wait_kind) else {
            return Ok(Vec::new());
        };
        let deadline = instance.aside.map_or(instance.due_at, |aside| aside.due_at);
        let of = |kind: WaitKind, name: &str| OpenWait {
            instance: instance.id,
            key: instance.key.clone(),
            kind,
            name: name.to_owned(),
            conditions: Vec::new(),
            wait_id: instance.wait_id.clone(),
            since: instance.wait_since,
            deadline,
        };
        let mut waits = Vec::new();
        let mut events = false;
        for name in &instance.awaits {
            match name.event_type() {
                Some(_) => events = true,
                None if kind == WaitKind::Condition => waits.push(of(kind, name.as_str())),
                None => waits.push(of(WaitKind::Signal, name.as_str())),
            }
        }
        if kind == WaitKind::Condition && waits.is_empty() {
            waits.push(of(kind, ""));
        }
        if events {
            let of_instance = WaiterFilter {
                instance: Some(instance.id),
                ..WaiterFilter::default()
            };
            let page = self.store().waiters(&of_instance, None, PAGE).await?;
            waits.extend(page.items.into_iter().map(|waiter: Waiter| OpenWait {
                conditions: waiter.conditions,
                wait_id: Some(waiter.wait_id),
                since: Some(waiter.since),
                deadline: waiter.deadline,
                ..of(WaitKind::Event, waiter.event_type.as_str())
            }));
        }
        waits.retain(|wait| {
            filter.kind.is_none_or(|kind| kind == wait.kind)
                && filter.name.as_ref().is_none_or(|name| *name == wait.name)
        });
        Ok(waits)
    }
}
