//! Starts instances for signals whose key has no live instance.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    Command, ContractId, Key, NewCommand, NewRow, Refusal, Start, Started, Target,
};
use abide_core::rules;
use abide_core::rules::deliver;

use super::deliver::{Each, is_over, refusal, rejected};
use super::{resolve, start};
use crate::run::Turn;
use crate::{Result, Txn, Write, terms};

/// The results of these starts for a batch of signals and updates.
pub(crate) struct Begun {
    /// The entries for which an instance was started.
    pub started: BTreeSet<usize>,
    /// The entries that are already answered, without a start.
    pub answers: BTreeMap<usize, Each>,
}

/// Starts an instance for each key that has no live instance, if its first signal would be accepted (rule 7.9). The
/// keys are locked, so no other transaction can start an instance under them meanwhile. Entries that are already
/// answered start nothing.
pub(crate) async fn begin<T: Txn>(
    turn: &mut Turn<'_, T>,
    deliveries: &[NewCommand],
    answers: BTreeMap<usize, Each>,
) -> Result<Begun> {
    let started = BTreeSet::new();
    let mut begun = Begun { started, answers };
    let mut starting: Vec<(usize, &NewCommand, &Start, &Key)> = Vec::new();
    for (at, delivery) in deliveries.iter().enumerate() {
        let Some(start) = delivery.start.as_deref() else {
            continue;
        };
        if begun.answers.contains_key(&at) {
            continue;
        }
        match &start.key {
            Some(key) => starting.push((at, delivery, start, key)),
            None => {
                let problem = "a signal with a start needs a key".into();
                begun.answers.insert(at, Err(Refusal::BadStart { problem }));
            }
        }
    }
    if starting.is_empty() {
        return Ok(begun);
    }
    let vacant = vacant(turn, starting.iter().map(|(_, _, _, key)| *key)).await?;
    starting.retain(|(_, _, _, key)| vacant.contains(*key));
    let declared =
        start::declarations(turn, starting.iter().map(|(_, _, start, _)| *start)).await?;

    let mut rows: Vec<(usize, &NewCommand, NewRow)> = Vec::new();
    for (at, delivery, start, _) in &starting {
        match rules::start::row(start, &declared, None, turn.limits, turn.now) {
            Ok(row) => rows.push((*at, delivery, row)),
            Err(refused) => drop(begun.answers.insert(*at, Err(refused))),
        }
    }
    let contracts: BTreeSet<ContractId> =
        rows.iter().filter_map(|(_, _, row)| row.contract).collect();
    let terms = terms::load(turn.txn, contracts).await?;
    let mut fitting: Vec<(usize, NewRow)> = Vec::new();
    let mut unwanted = Vec::new();
    for (at, delivery, row) in rows {
        let contract = row.contract.unwrap_or_default();
        let terms = terms.get(&contract).map(AsRef::as_ref);
        let Some(judged) = turn.bench.judge(delivery, contract, terms) else {
            let unjudged = turn.bench.unjudged(delivery, contract)?;
            begun.answers.insert(at, unjudged);
            continue;
        };
        match deliver::fit(delivery, judged, terms, turn.limits) {
            Ok(_) => fitting.push((at, row)),
            Err(problem) => unwanted.push((at, delivery, row, problem)),
        }
    }
    let lives = start_first(turn, fitting, &mut begun).await?;
    // Another signal of this batch may have started the instance. Then this signal is decided like any other.
    unwanted.retain(|(_, _, row, _)| row.key.as_ref().is_none_or(|key| !lives.contains(key)));
    let ids = turn.txn.number(unwanted.len()).await?;
    let mut records = Vec::with_capacity(unwanted.len());
    for ((at, delivery, row, problem), id) in unwanted.into_iter().zip(ids) {
        let mut command = Command::new(delivery, id, turn.now);
        command.key = row.key;
        let is_declared = row.contract.is_some();
        let command = rejected(command, delivery, is_declared, &problem, turn.limits);
        records.push(command.clone());
        begun.answers.insert(at, Ok(refusal(command, problem)));
    }
    if !records.is_empty() {
        turn.txn.write(Write::InsertCommands(&records)).await?;
    }
    Ok(begun)
}

/// Starts the first startable row of each key. Returns the keys that have a live instance now.
async fn start_first<T: Txn>(
    turn: &mut Turn<'_, T>,
    mut fitting: Vec<(usize, NewRow)>,
    begun: &mut Begun,
) -> Result<BTreeSet<Key>> {
    let mut lives = BTreeSet::new();
    while !fitting.is_empty() {
        let mut keys = BTreeSet::new();
        let first = |(_, row): &mut (usize, NewRow)| keys.insert(row.key.clone());
        let chosen: Vec<(usize, NewRow)> = fitting.extract_if(.., first).collect();
        let (positions, rows): (Vec<usize>, Vec<NewRow>) = chosen.into_iter().unzip();
        let started = start::insert(turn, &rows).await?;
        for ((at, row), started) in positions.into_iter().zip(rows).zip(started) {
            match started {
                Started::New(_) => {
                    begun.started.insert(at);
                    lives.extend(row.key);
                }
                // The unique key is taken. The key itself cannot be, because it is locked.
                Started::Duplicate(holder) => {
                    let taken = Refusal::KeyTaken { holder, key: None };
                    drop(begun.answers.insert(at, Err(taken)));
                }
            }
        }
        fitting.retain(|(_, row)| row.key.as_ref().is_none_or(|key| !lives.contains(key)));
    }
    Ok(lives)
}

/// Returns the keys without a live instance. The examined rows stay locked.
async fn vacant<T: Txn>(
    turn: &mut Turn<'_, T>,
    keys: impl Iterator<Item = &Key>,
) -> Result<BTreeSet<Key>> {
    let keys: BTreeSet<&Key> = keys.collect();
    let targets: Vec<Target> = keys.iter().map(|key| Target::Key((*key).clone())).collect();
    let (found, mut ledger) = resolve::locked(turn, &targets).await?;
    let vacant = keys.into_iter().zip(found).filter(|(_, found)| {
        found
            .as_ref()
            .and_then(|found| ledger.get(found.id))
            .is_none_or(|account| is_over(account.row.status))
    });
    Ok(vacant.map(|(key, _)| key.clone()).collect())
}
