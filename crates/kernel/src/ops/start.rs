//! Starts instances.

use abide_core::model::{
    BarrierNumber, Declared, InstanceId, Name, NewRow, Refusal, Start, Started, Status,
};
use abide_core::rules;

use crate::run::Turn;
use crate::{Result, Txn};

/// Starts instances; the answer says of each what became of it (rules 2.2, 2.3).
pub(crate) async fn start<T: Txn>(
    turn: &mut Turn<'_, T>,
    starts: &[Start],
) -> Result<Vec<std::result::Result<Started, Refusal>>> {
    turn.limits.check_batch(starts.len())?;
    let declared = declarations(turn, starts.iter()).await?;
    let mut rows = Vec::with_capacity(starts.len());
    let mut answers = Vec::with_capacity(starts.len());
    for start in starts {
        match rules::start::row(start, &declared, None, turn.limits, turn.now) {
            Ok(row) => {
                rows.push(row);
                answers.push(None);
            }
            Err(refusal) => answers.push(Some(refusal)),
        }
    }
    let mut started = insert(turn, &rows).await?.into_iter();
    let answers = answers.into_iter().map(|refusal| match refusal {
        Some(refusal) => Some(Err(refusal)),
        None => started.next().map(Ok),
    });
    Ok(answers.flatten().collect())
}

/// The rows of a parent's children; refuses all of them when one is refused.
pub(crate) fn children(
    starts: &[Start],
    declared: &[Declared],
    parent: (InstanceId, BarrierNumber),
    turn: &Turn<'_, impl Txn>,
) -> std::result::Result<Vec<NewRow>, Refusal> {
    let row = |start| rules::start::row(start, declared, Some(parent), turn.limits, turn.now);
    starts.iter().map(row).collect()
}

/// What is declared of the machines that some of these starts leave something to; nothing is read when none does.
pub(crate) async fn declarations<'s, T: Txn>(
    turn: &mut Turn<'_, T>,
    starts: impl Iterator<Item = &'s Start>,
) -> Result<Vec<Declared>> {
    let mut machines: Vec<Name> = Vec::new();
    for start in starts.filter(|start| !start.is_complete()) {
        if machines.last() != Some(&start.machine) {
            machines.push(start.machine.clone());
        }
    }
    machines.sort_unstable();
    machines.dedup();
    if machines.is_empty() {
        Ok(Vec::new())
    } else {
        turn.txn.declared(&machines).await
    }
}

/// Inserts rows and notes what there is to tell of those that are new.
pub(crate) async fn insert<T: Txn>(
    turn: &mut Turn<'_, T>,
    rows: &[NewRow],
) -> Result<Vec<Started>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let started = turn.txn.insert(rows).await?;
    for (row, started) in rows.iter().zip(&started) {
        if let Started::New(_) = started {
            match row.status {
                Status::Scheduled => turn.effects.due_at(row.due_at),
                _ if row.behind => turn.partitions.extend(row.partition_key.clone()),
                _ if !turn.effects.ready.contains(&row.queue) => {
                    turn.effects.ready.insert(row.queue.clone());
                }
                _ => {}
            }
        }
    }
    Ok(started)
}
