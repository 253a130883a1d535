//! Entries that share a transaction.

use std::sync::Arc;

use super::Folded;
use crate::{Answer, Error, Op, Result, Store};

/// What is committed or fails as one: the items of one caller, and who waits for their answers.
pub struct Entry<K: Folded, W> {
    /// What is asked for.
    pub items: Vec<K::Item>,
    /// Who waits, or what is to be remembered.
    pub waiter: W,
}

impl<K: Folded, W: std::fmt::Debug> std::fmt::Debug for Entry<K, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({} items, {:?})", self.items.len(), self.waiter)
    }
}

/// What an attempt at a batch came to.
pub enum Landing<K: Folded, W> {
    /// It is durable: what became of the items of each entry, and of the operations that followed.
    Done(Vec<(W, Vec<K::Each>)>, Vec<Answer>),
    /// It failed, and [`Error::fault`] says what is to be done with the entries.
    Failed(Vec<Entry<K, W>>, Error),
}

/// Runs entries, and other operations after them, in one transaction: one attempt.
pub async fn land<K: Folded, W>(
    store: &Arc<dyn Store>,
    kind: &K,
    entries: Vec<Entry<K, W>>,
    more: Vec<Op>,
) -> Landing<K, W> {
    let mut items = Vec::with_capacity(entries.iter().map(|one| one.items.len()).sum());
    let mut members = Vec::with_capacity(entries.len());
    for entry in entries {
        members.push((entry.items.len(), entry.waiter));
        items.extend(entry.items);
    }
    let own = (!members.is_empty()).then(|| kind.op(items));
    let ops: Arc<[Op]> = own.into_iter().chain(more).collect();
    match answered::<K>(store, &ops, !members.is_empty()).await {
        Ok((each, more)) => {
            let mut each = each.into_iter();
            let own = |(items, waiter)| (waiter, each.by_ref().take(items).collect());
            Landing::Done(members.into_iter().map(own).collect(), more)
        }
        Err(error) => {
            let items = ops.first().map(K::items).unwrap_or_default();
            let mut items = items.iter().map(K::again);
            let entry = |(count, waiter)| Entry {
                items: items.by_ref().take(count).collect(),
                waiter,
            };
            Landing::Failed(members.into_iter().map(entry).collect(), error)
        }
    }
}

/// Runs operations; what became of each item of the first, when that is the batch itself, and of the others.
async fn answered<K: Folded>(
    store: &Arc<dyn Store>,
    ops: &Arc<[Op]>,
    has_items: bool,
) -> Result<(Vec<K::Each>, Vec<Answer>)> {
    let mut answers = store.run(ops.clone()).await?.into_iter();
    let each = match has_items {
        true => each::<K>(answers.next())?,
        false => Vec::new(),
    };
    Ok((each, answers.collect()))
}

/// What became of each item.
pub(super) fn each<K: Folded>(answer: Option<Answer>) -> Result<Vec<K::Each>> {
    answer
        .and_then(K::answers)
        .ok_or_else(|| Error::Broken("a request was answered with something else".into()))
}
