//! Finds problems of instances.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{ContractId, InstanceId, Row};
use abide_core::rules::doctor::fault;
use abide_core::rules::keys::held;
use abide_core::rules::liveness::{Around, World, is_judged_by_contract};

use super::workers::locked;
use crate::run::Turn;
use crate::terms::{self, Ready};
use crate::{Answer, Finding, Loads, Result, Txn};

/// Finds problems of the instances above an id (rule 11.3). It reads one page of them, locked, so that all data of an
/// instance is from the same moment.
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
    let around = around(turn, &rows).await?;
    let doubled = doubled(turn, &rows).await?;
    let findings = rows.iter().filter_map(|row| {
        let fault = fault(row, around.world(row), doubled.contains(&row.id))?;
        Some(Finding {
            instance: row.id,
            code: fault.code.to_owned(),
            problem: fault.text,
            command_id: fault.command_id,
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

/// Returns the instances that hold a key which another instance holds too: the uniqueness of keys has failed
/// (rule 2.8).
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

/// The surroundings of locked rows, and the terms of their contracts.
pub(crate) struct Surrounded {
    around: BTreeMap<InstanceId, Around>,
    terms: Ready,
}

/// Loads the surroundings of locked rows, in two statements, however many rows there are.
pub(crate) async fn around<T: Txn>(turn: &mut Turn<'_, T>, rows: &[Row]) -> Result<Surrounded> {
    let ids: Vec<InstanceId> = rows.iter().map(|row| row.id).collect();
    let found = turn.txn.around(&ids).await?.into_iter();
    let contracts: BTreeSet<ContractId> = rows
        .iter()
        .filter(|row| is_judged_by_contract(row))
        .filter_map(|row| row.contract)
        .collect();
    Ok(Surrounded {
        around: found.map(|one| (one.id, one.around)).collect(),
        terms: terms::find(turn.txn, contracts).await?,
    })
}

impl Surrounded {
    /// Returns the known facts about a row. The workers are left out, because none of these problems depends on them.
    pub fn world(&self, row: &Row) -> World<'_> {
        let terms = row.contract.and_then(|id| self.terms.get(&id));
        World {
            around: self.around.get(&row.id),
            terms: terms.map(|terms| &**terms),
            ..World::default()
        }
    }
}
