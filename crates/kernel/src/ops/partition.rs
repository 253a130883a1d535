//! Puts the right instance at the front of each partition whose members have changed.

use abide_core::model::Key;
use abide_core::rules::partition::settle as decide;

use crate::run::Turn;
use crate::{Loads, Result, Txn, Write};

/// Settles the partitions that the operations of this transaction have changed (rule 6.3).
pub(crate) async fn settle<T: Txn>(turn: &mut Turn<'_, T>) -> Result<()> {
    if turn.partitions.is_empty() {
        return Ok(());
    }
    let mut keys: Vec<Key> = std::mem::take(&mut turn.partitions);
    keys.sort_unstable();
    keys.dedup();
    let (mut back, mut front) = (Vec::new(), Vec::new());
    for partition in turn.txn.partitions(&keys).await? {
        let change = decide(
            partition.front,
            partition.first.as_ref().map(|(first, _)| *first),
        );
        back.extend(change.back);
        if let (Some(id), Some((_, queue))) = (change.front, partition.first) {
            front.push(id);
            turn.effects.ready.insert(queue);
        }
    }
    if back.is_empty() && front.is_empty() {
        Ok(())
    } else {
        turn.txn
            .write(Write::Reorder {
                back: &back,
                front: &front,
            })
            .await
    }
}
