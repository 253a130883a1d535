//! Looks for what is wrong with instances.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{InstanceId, Key, Kind, Pending, Row, Status, WorkerId};
use abide_core::rules::commit::Look;
use abide_core::rules::keys::held;
use abide_core::rules::liveness::{Around, problem};

use super::commit::pending_of;
use super::workers::locked;
use crate::run::Turn;
use crate::{Answer, Finding, Result, Txn};

/// Looks for what is wrong with the instances above an id (rule 11.3): a page of them, locked, so that what is seen of
/// each is of one moment.
pub(crate) async fn examine<T: Txn>(
    turn: &mut Turn<'_, T>,
    after: InstanceId,
    limit: usize,
) -> Result<Answer> {
    let page = turn.txn.above(after, limit).await?;
    let mut ledger = locked(turn, &page).await?;
    let rows: Vec<Row> = page
        .iter()
        .filter_map(|touched| Some(ledger.get(touched.id)?.row.clone()))
        .collect();
    let around = Surroundings::of(turn, &rows).await?;
    let doubled = doubled(turn, &rows).await?;
    let findings = rows.iter().filter_map(|row| {
        let problem = match problem(row, around.of_row(row)) {
            Some(problem) => problem.text(),
            None if doubled.contains(&row.id) => "it holds a key that another instance holds too",
            None => ended_badly(row)?,
        };
        Some(Finding {
            instance: row.id,
            problem: problem.to_owned(),
        })
    });
    Ok(Answer::Examined {
        count: rows.len(),
        findings: findings.collect(),
        next: (page.len() >= limit)
            .then(|| page.last().map(|last| last.id))
            .flatten(),
    })
}

/// Those that hold a key which another is found to hold: the guard of the keys has failed (rule 2.8).
async fn doubled<T: Txn>(turn: &mut Turn<'_, T>, rows: &[Row]) -> Result<BTreeSet<InstanceId>> {
    let holding: BTreeMap<InstanceId, &Row> = rows
        .iter()
        .filter(|row| held(row).any())
        .map(|row| (row.id, row))
        .collect();
    if holding.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids: Vec<InstanceId> = holding.keys().copied().collect();
    let found = turn.txn.holders(&ids).await?.into_iter();
    let doubled = found.filter(|one| {
        one.holder != Some(one.of)
            && holding
                .get(&one.of)
                .is_some_and(|row| held(row).has(&one.key))
    });
    Ok(doubled.map(|one| one.of).collect())
}

/// What must not be of an instance that has ended.
fn ended_badly(row: &Row) -> Option<&'static str> {
    if !row.status.is_terminal() {
        return None;
    }
    if row.worker.is_some() {
        Some("it has ended, and a worker holds it")
    } else if row.finished_at.is_none() {
        Some("it has ended at no time, so that it is never deleted")
    } else if row.inbox.signals + row.inbox.updates > 0 {
        Some("it has ended, and messages are pending in its inbox")
    } else {
        None
    }
}

/// What is around a number of locked rows.
pub(crate) struct Surroundings {
    pending: BTreeMap<InstanceId, Vec<Pending>>,
    children: BTreeMap<InstanceId, u32>,
    workers: BTreeSet<WorkerId>,
    fronts: BTreeSet<Key>,
}

impl Surroundings {
    pub async fn of<T: Txn>(turn: &mut Turn<'_, T>, rows: &[Row]) -> Result<Self> {
        let looks: Vec<_> = rows.iter().map(|row| (row.id, Look::at_all())).collect();
        let pending = pending_of(turn, &looks).await?;
        let mut children = BTreeMap::new();
        let barriers: Vec<_> = rows
            .iter()
            .filter(|row| row.status == Status::AwaitingChildren && row.kind == Kind::Machine)
            .map(|row| (row.id, row.family.barrier))
            .collect();
        if !barriers.is_empty() {
            for (parent, child) in turn.txn.children(&barriers).await? {
                *children.entry(parent).or_default() += u32::from(!child.status.is_terminal());
            }
        }
        for row in rows {
            // The children of a workflow are of as many barriers as operations wait for some.
            if row.status == Status::AwaitingChildren && row.kind == Kind::Workflow {
                let open = turn.txn.offspring(&[row.id]).await?.len();
                children.insert(row.id, u32::try_from(open).unwrap_or(u32::MAX));
            }
        }
        let mut workers: Vec<WorkerId> = rows.iter().filter_map(|row| row.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        let workers = if workers.is_empty() {
            BTreeSet::new()
        } else {
            turn.txn
                .known_workers(&workers)
                .await?
                .into_iter()
                .collect()
        };
        let behind: BTreeSet<&Key> = rows
            .iter()
            .filter(|row| row.behind && row.status == Status::Runnable)
            .filter_map(|row| row.partition_key.as_ref())
            .collect();
        let mut fronts = BTreeSet::new();
        if !behind.is_empty() {
            let keys: Vec<Key> = behind.into_iter().cloned().collect();
            let partitions = turn.txn.partitions(&keys).await?;
            fronts.extend(
                keys.into_iter()
                    .zip(partitions)
                    .filter(|(_, partition)| partition.front.is_some())
                    .map(|(key, _)| key),
            );
        }
        Ok(Self {
            pending,
            children,
            workers,
            fronts,
        })
    }

    pub fn pending(&self, id: InstanceId) -> &[Pending] {
        self.pending.get(&id).map_or(&[], Vec::as_slice)
    }

    pub fn of_row(&self, row: &Row) -> Around<'_> {
        Around {
            served: None,
            worker_known: row.worker.map(|worker| self.workers.contains(&worker)),
            children_open: Some(self.children.get(&row.id).copied().unwrap_or_default()),
            has_front: row
                .partition_key
                .as_ref()
                .map(|key| self.fronts.contains(key)),
            pending: Some(self.pending(row.id)),
        }
    }
}
