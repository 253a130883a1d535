//! Lists what instances wait for.

use abide_core::model::{
    Condition, Instance, InstanceId, Key, Kind, Name, Status, Timestamp, WaitId, WaitKind, Waiter,
};
use abide_kernel::{Filter, Page, WaiterFilter};
use serde::{Deserialize, Serialize};

use crate::{Abide, Error};

/// A filter for waits. A wait is listed if it meets every condition that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaitsFilter {
    /// Only waits of this kind: for a signal, for an event, or for a condition.
    pub kind: Option<WaitKind>,
    /// Only waits for this signal, for events of this type, or for the condition with this key.
    pub name: Option<String>,
    /// Only waits of instances whose key begins with this text.
    pub key_prefix: Option<String>,
    /// Only waits of this instance.
    pub instance: Option<InstanceId>,
}

impl WaitsFilter {
    /// `true` if the key of the instance begins as requested. An instance without a key begins with no text, not even an
    /// empty one, as in lists of instances.
    fn wants_key_of(&self, instance: &Instance) -> bool {
        self.key_prefix.as_ref().is_none_or(|prefix| {
            let key = instance.key.as_ref();
            key.is_some_and(|key| key.as_str().starts_with(prefix.as_str()))
        })
    }
}

/// One thing that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OpenWait {
    /// The instance that waits.
    pub instance: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// The kind of the wait.
    pub kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition; empty for a condition without a key.
    pub name: String,
    /// The conditions that the event must meet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The wait's id.
    pub wait_id: Option<WaitId>,
    /// The operation of the workflow that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<u32>,
    /// The time at which the wait began.
    pub since: Option<Timestamp>,
    /// The deadline of the wait, if it has one.
    pub deadline: Option<Timestamp>,
}

/// Number of instances, or of waits for events of one instance, that one statement reads.
const PAGE: usize = 200;

impl Abide {
    /// Returns a page of what instances wait for (signals, events and conditions), since when and until when; newest
    /// instances first. Pass `next` of one page as `before` of the following one. All waits of an instance are on one
    /// page, so a page may have more than `limit` waits. A `limit` of 0 counts as 1: a page says what follows it only by
    /// its last instance.
    pub async fn waits(
        &self,
        filter: &WaitsFilter,
        mut before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<OpenWait>, Error> {
        let limit = limit.max(1);
        let mut items = Vec::new();
        if let Some(id) = filter.instance {
            let found = self.get(id).await?;
            let is_listed = |one: &Instance| {
                before.is_none_or(|before| one.id < before) && filter.wants_key_of(one)
            };
            if let Some(instance) = found.filter(is_listed) {
                items = self.waits_of(&instance, filter).await?;
            }
            return Ok(Page { items, next: None });
        }
        let name = filter.name.as_ref().map(Name::new);
        let Ok(waiting_for) = name.transpose() else {
            // The name is invalid, so no wait has it.
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
        let (Status::AwaitingSignal, Some(kind)) = (instance.stands(), instance.wait_kind()) else {
            return Ok(Vec::new());
        };
        let deadline = instance.aside.map_or(instance.due_at, |aside| aside.due_at);
        let of = |kind: WaitKind, name: &str| OpenWait {
            instance: instance.id,
            key: instance.key.clone(),
            kind,
            name: name.to_owned(),
            conditions: Vec::new(),
            wait_id: instance.wait_id().cloned(),
            operation: None,
            since: instance.wait_since(),
            deadline,
        };
        let mut waits = Vec::new();
        let mut events = false;
        for name in instance.awaited() {
            match name.event_type() {
                Some(_) => events = true,
                None if !instance.waits().is_empty() => {}
                // A workflow that parked before its conditions were recorded by operation.
                None if kind == WaitKind::Condition => waits.push(of(kind, name.as_str())),
                None => waits.push(of(WaitKind::Signal, name.as_str())),
            }
        }
        let listed = instance.waits().iter();
        let listed = listed.filter(|wait| wait.kind != WaitKind::Event);
        waits.extend(listed.map(|wait| OpenWait {
            wait_id: Some(wait.id.clone()),
            operation: Some(wait.operation),
            deadline: wait.deadline,
            ..of(wait.kind, wait.name.as_ref().map_or("", Name::as_str))
        }));
        if kind == WaitKind::Condition && waits.is_empty() {
            waits.push(of(kind, ""));
        }
        if events {
            let waiters = self.event_waits_of(instance.id).await?;
            waits.extend(waiters.into_iter().map(|waiter| OpenWait {
                conditions: waiter.conditions,
                wait_id: Some(waiter.wait_id),
                operation: (instance.kind == Kind::Workflow).then_some(waiter.position),
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

    /// Returns all waits for events of an instance, in their order, reading as many pages as necessary. Their number and
    /// size are bounded by the limits `names_per_wait` and `conditions_bytes`.
    pub async fn event_waits_of(&self, instance: InstanceId) -> Result<Vec<Waiter>, Error> {
        let of_instance = WaiterFilter {
            instance: Some(instance),
            ..WaiterFilter::default()
        };
        let (mut waiters, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().waiters(&of_instance, after, PAGE).await?;
            waiters.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(waiters);
            }
        }
    }
}
