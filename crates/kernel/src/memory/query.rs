//! Answers queries from the tables.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;

use abide_core::model::{
    Command, Declared, Document, Event, EventSequence, InstanceId, Lane, Timestamp, Waiter,
};

use super::tables::Tables;
use crate::{
    Contracts, EventFilter, EventPage, Listed, MachinePage, OutboxDepth, Page, Query, QueryResult,
    Records, RefusedPage, WaiterFilter, WaiterPage, gather, look_up,
};

impl Tables {
    /// Runs a query at a time; a page has at most `most` bytes.
    pub(super) fn read(&self, query: Query, now: Timestamp, most: usize) -> QueryResult {
        match query {
            Query::Get(target) => QueryResult::Instance(self.get(&target).map(Box::new)),
            Query::List {
                filter,
                before,
                limit,
            } => {
                let page = self.list(&filter, before, limit);
                QueryResult::Instances(page.within(most, |last| last.id))
            }
            Query::Around(ids) => {
                QueryResult::Around(ids.iter().filter_map(|id| self.around(*id)).collect())
            }
            Query::History { id, after, limit } => {
                QueryResult::History(self.history_after(id, after, limit))
            }
            Query::Children {
                parent,
                barrier,
                after,
            } => {
                let after = after.unwrap_or(InstanceId(i64::MIN));
                let children = self.children_above(parent, barrier, after);
                let Ok(items) = gather(children.map(Ok::<_, Infallible>), most);
                QueryResult::Children(Page { items, next: None }.within(most, |last| last.id))
            }
            Query::Endings(ids) => QueryResult::Endings(self.endings(&ids, most)),
            Query::Commands {
                filter,
                before,
                limit,
            } => {
                let exists = |id| self.records().contains_key(&id);
                let page = self.commands().page(&filter, before, limit, exists);
                QueryResult::Commands(page.within(most, |last| last.id))
            }
            Query::Records(ids) => {
                let mut found = Vec::new();
                let get = |id| {
                    Ok::<_, Infallible>(
                        self.commands()
                            .get(id)
                            .map(|command| Command::clone(command)),
                    )
                };
                let Ok(rest) = look_up(&ids, most, get, |command| found.push(command));
                QueryResult::Records(Records { found, rest })
            }
            Query::Inbox(id) => {
                let pending = self.commands().pending(id);
                QueryResult::Inbox(pending.map(|command| Command::clone(command)).collect())
            }
            Query::Events {
                filter,
                before,
                limit,
            } => QueryResult::Events(self.event_page(&filter, before, limit, most)),
            Query::Waiters {
                filter,
                after,
                limit,
            } => QueryResult::Waiters(self.waiter_page(&filter, after, limit, most)),
            Query::Contract(id) => {
                let stored = self.contracts().get(&id);
                QueryResult::Contract(stored.map(|(contract, _)| contract.clone()))
            }
            Query::Contracts(ids) => {
                let mut found = Vec::new();
                let get = |id| {
                    let stored = self.contracts().get(&id);
                    Ok::<_, Infallible>(stored.map(|(contract, _)| (id, contract.clone())))
                };
                let Ok(rest) = look_up(&ids, most, get, |one| found.push(one));
                QueryResult::Contracts(Contracts { found, rest })
            }
            Query::Machines { after, limit } => {
                QueryResult::Machines(self.machine_page(after.as_ref(), limit, most))
            }
            Query::Documents { kind, after, limit } => {
                let above = |one: &&Document| {
                    one.kind == kind && after.as_ref().is_none_or(|after| one.name > *after)
                };
                let found = self.documents().values().filter(above).cloned();
                let name = |one: &Document| one.name.clone();
                QueryResult::Documents(page(found, limit, most, name))
            }
            Query::Document { kind, name } => {
                QueryResult::Document(self.documents().get(&(kind, name)).cloned())
            }
            Query::NextDue => QueryResult::Due(self.next_due()),
            Query::Workers => QueryResult::Workers(self.living_workers(now)),
            Query::Depths => QueryResult::Depths(self.depths()),
            // Without SQL no rows can be inserted, so there is no outbox.
            Query::Outbox { .. } => QueryResult::Outbox(Vec::new()),
            Query::Refused { .. } => QueryResult::Refused(RefusedPage {
                items: Vec::new(),
                next: None,
            }),
            Query::OutboxDepth => QueryResult::OutboxDepth(OutboxDepth::default()),
            Query::ReadyLanes => QueryResult::ReadyLanes(self.ready_lanes()),
            Query::Tally => QueryResult::Tally(self.tally()),
        }
    }

    fn event_page(
        &self,
        filter: &EventFilter,
        before: Option<EventSequence>,
        limit: usize,
        most: usize,
    ) -> EventPage {
        let below = before.unwrap_or(EventSequence(i64::MAX));
        let events = self.events().events().range(..below).rev();
        let wanted = |event: &&Event| {
            let of_type = filter.event_type.as_ref();
            of_type.is_none_or(|of_type| event.event_type == *of_type)
        };
        let found = events.map(|(_, event)| event).filter(wanted).cloned();
        let sequence = |event: &Event| event.sequence;
        page(found, limit, most, sequence)
    }

    fn waiter_page(
        &self,
        filter: &WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
        most: usize,
    ) -> WaiterPage {
        let position = |waiter: &Waiter| (waiter.instance, waiter.position);
        let mut found: BTreeMap<(InstanceId, u32), &Waiter> = BTreeMap::new();
        for waiter in self.events().waiters().values() {
            let of_type = filter.event_type.as_ref();
            let wanted = of_type.is_none_or(|of_type| waiter.event_type == *of_type)
                && filter.instance.is_none_or(|id| id == waiter.instance)
                && after.is_none_or(|after| position(waiter) > after);
            if wanted {
                found.entry(position(waiter)).or_insert(waiter);
            }
        }
        page(found.into_values().cloned(), limit, most, position)
    }

    fn machine_page(&self, after: Option<&Lane>, limit: usize, most: usize) -> MachinePage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.declared().range((from, Bound::Unbounded));
        let lane = |one: &Declared| Lane {
            machine: one.machine.clone(),
            version: one.version,
        };
        page(
            found.map(|(_, declared)| declared.clone()),
            limit,
            most,
            lane,
        )
    }
}

/// A page of the first `limit` of these entries.
fn page<T: Listed, C>(
    found: impl Iterator<Item = T>,
    limit: usize,
    most: usize,
    position: impl Fn(&T) -> C,
) -> Page<T, C> {
    let items = found.take(limit.saturating_add(1)).collect();
    Page::of(items, limit, most, position)
}
