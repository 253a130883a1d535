//! Histories: what happened to an instance, in order. An [`Entry`] is one [`HistoryEvent`] with its number and its time;
//! the events of a workflow say which operations its code began, and how they ended.

use abide_core::model::{Accepts, Contract, HistoryRow, Instance, InstanceId};
pub use abide_core::model::{
    Blocked, Completed, Ending, Entry, Folded, HistoryEvent, Opened, OperationKind, Signature,
    TriedAgain,
};
use abide_kernel::{HISTORY_BYTES, Listed, Page, Store, is_full};

use crate::Error;

/// Returns all history events of an instance, oldest first. The first one, `started`, is made from the instance's row.
/// Returns none if there is no such instance, or if it keeps no history.
pub(crate) async fn read(store: &dyn Store, id: InstanceId) -> Result<Vec<Entry>, Error> {
    const ROWS: usize = 1_000;
    let Some(instance) = store
        .get(&id.into())
        .await?
        .filter(|instance| instance.history)
    else {
        return Ok(Vec::new());
    };
    let mut entries = vec![started(store, &instance).await?];
    loop {
        let after = entries.last().map_or(0, |entry| entry.seq);
        let rows = store.history(id, after, ROWS).await?;
        let full = is_full(&rows, ROWS);
        for row in &rows {
            entries.extend(unpacked(row)?);
        }
        if !full {
            return Ok(entries);
        }
    }
}

/// Returns at most `limit` history events after the event `after`, oldest first, and where the next page begins.
pub(crate) async fn page(
    store: &dyn Store,
    id: InstanceId,
    mut after: u32,
    limit: usize,
) -> Result<Page<Entry, u32>, Error> {
    let mut items = Vec::new();
    let found = store.get(&id.into()).await?;
    let Some(instance) = found.filter(|instance| instance.history) else {
        return Ok(Page { items, next: None });
    };
    if after == 0 && limit > 0 {
        items.push(started(store, &instance).await?);
        after = 1;
    }
    let mut bytes = 0;
    loop {
        // A row holds at least one event, so this many rows are enough; one more shows whether there is another page.
        let row_limit = limit.saturating_sub(items.len()).saturating_add(1);
        let rows = store.history(id, after, row_limit).await?;
        let full = is_full(&rows, row_limit);
        for row in &rows {
            bytes += row.bytes();
            let entries = unpacked(row)?;
            items.extend(entries.into_iter().filter(|entry| entry.seq > after));
        }
        let last = items.last().map_or(after, |entry| entry.seq);
        if items.len() > limit {
            items.truncate(limit);
            let next = items.last().map(|entry| entry.seq);
            return Ok(Page { items, next });
        }
        if !full || last == after {
            return Ok(Page { items, next: None });
        }
        if bytes > HISTORY_BYTES {
            // rule 16.4: the page has reached its limit in bytes.
            return Ok(Page {
                items,
                next: Some(last),
            });
        }
        after = last;
    }
}

fn unpacked(row: &HistoryRow) -> Result<Vec<Entry>, Error> {
    row.unpack().map_err(|error| {
        Error::Broken(format!(
            "history of instance {} cannot be read: {error}",
            row.instance
        ))
    })
}

async fn started(store: &dyn Store, instance: &Instance) -> Result<Entry, Error> {
    let contract: Contract = match instance.contract {
        None => Contract::default(),
        Some(id) => {
            let json = store.contract(id).await?.unwrap_or_default();
            json.to().unwrap_or_default()
        }
    };
    let names = |accepts: &[Accepts]| accepts.iter().map(|one| one.name.clone()).collect();
    Ok(Entry {
        seq: 1,
        at: instance.created_at,
        what: HistoryEvent::Started {
            machine: instance.machine.clone(),
            version: instance.version,
            step: instance.first_step.clone(),
            key: instance.key.clone(),
            parent: instance.parent,
            run_number: instance.run.number,
            declared_signals: names(&contract.signals),
            declared_signal_contracts: contract.signals,
            declared_updates: names(&contract.updates),
            declared_update_contracts: contract.updates,
        },
    })
}
