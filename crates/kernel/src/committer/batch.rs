//! Entries that share a transaction.

use std::sync::Arc;

use super::Folded;
use crate::{Answer, Error, Op, Result, Store};

/// The unit that commits or fails as a whole: the items of one caller, and the waiter for their answers.
pub struct Entry<K: Folded, W> {
    /// The items.
    pub items: Vec<K::Item>,
    /// The waiter for the answers, or data to return with them.
    pub waiter: W,
}

impl<K: Folded, W: std::fmt::Debug> std::fmt::Debug for Entry<K, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({} items, {:?})", self.items.len(), self.waiter)
    }
}

/// The result of an attempt to commit a batch.
pub enum Landing<K: Folded, W> {
    /// The batch is durable: the answers to its entries, and to the operations after them.
    Done(Answers<W, K::Each>, Vec<Answer>),
    /// The batch failed. [`Error::fault`] says what to do with the entries.
    Failed(Vec<Entry<K, W>>, Error),
}

/// The answers to the entries of a batch, in order.
pub struct Answers<W, E> {
    /// The number of items of each entry, and its waiter.
    members: Vec<(usize, W)>,
    each: Vec<E>,
}

impl<W, E> Answers<W, E> {
    /// Returns the answers to the items of each entry.
    pub fn by_entry(self) -> impl Iterator<Item = (W, Vec<E>)> {
        let mut each = self.each.into_iter();
        let own = move |(items, waiter)| (waiter, each.by_ref().take(items).collect());
        self.members.into_iter().map(own)
    }

    /// Returns the answer to the first item of each entry, for entries of one item.
    pub fn firsts(self) -> impl Iterator<Item = (W, E)> {
        let mut each = self.each.into_iter();
        let first = move |(items, waiter): (usize, W)| {
            let first = each.next()?;
            each.by_ref().take(items.saturating_sub(1)).for_each(drop);
            Some((waiter, first))
        };
        self.members.into_iter().filter_map(first)
    }
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
        Ok((each, more)) => Landing::Done(Answers { members, each }, more),
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

/// Runs operations. Returns the answers to the items of the first one, if that is the batch itself, and the answers to
/// the others.
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

/// Returns the answer to each item.
pub(super) fn each<K: Folded>(answer: Option<Answer>) -> Result<Vec<K::Each>> {
    answer
        .and_then(K::answers)
        .ok_or_else(Error::unexpected_answer)
}
