//! Starts instances.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::model::{
    BarrierNumber, Command, CommandKind, CommandStatus, Contract, ContractId, Contracted, Declared,
    InstanceId, Json, Key, Name, NewCommand, NewRow, Refusal, Rejection, Start, Started, Status,
};
use abide_core::rules;
use abide_core::rules::{deliver, inbox};

use super::deliver::rejected;
use super::survey;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Answer, Error, Loads, Result, Txn, Write, terms};

/// Starts instances. Each start has its own answer (rules 2.2, 2.3).
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

/// Creates the rows of a parent's children. Refuses all if one is refused.
pub(crate) fn children(
    starts: &[Start],
    declared: &[Declared],
    parent: (InstanceId, BarrierNumber),
    turn: &Turn<'_, impl Txn>,
) -> std::result::Result<Vec<NewRow>, Refusal> {
    let row = |start| rules::start::row(start, declared, Some(parent), turn.limits, turn.now);
    starts.iter().map(row).collect()
}

/// Loads the declarations of the machines for which some of these starts leave values open; reads nothing if none does.
/// Stores the contracts that the starts contain.
pub(crate) async fn declarations<'s, T: Txn>(
    turn: &mut Turn<'_, T>,
    starts: impl Iterator<Item = &'s Start>,
) -> Result<Vec<Declared>> {
    let mut machines: Vec<Name> = Vec::new();
    let mut given: BTreeMap<ContractId, &Contract> = BTreeMap::new();
    for start in starts {
        if let Contracted::Given(contract) = &start.contract {
            given.insert(contract.id(), contract);
        }
        if start.is_complete() {
            continue;
        }
        if machines.last() != Some(&start.machine) {
            machines.push(start.machine.clone());
        }
    }
    machines.sort_unstable();
    machines.dedup();
    if !given.is_empty() {
        let mut defined = Vec::with_capacity(given.len());
        for (id, contract) in given {
            terms::check(contract)?;
            defined.push((id, contract.to_json()));
        }
        define(turn, &defined).await?;
    }
    if machines.is_empty() {
        Ok(Vec::new())
    } else {
        turn.txn.declared(&machines).await
    }
}

/// Creates instances that have a key and no run yet (rule 2.7).
pub(crate) async fn reserve<T: Txn>(
    turn: &mut Turn<'_, T>,
    reservations: &[(Name, Key)],
) -> Result<Vec<std::result::Result<Started, Refusal>>> {
    turn.limits.check_batch(reservations.len())?;
    let rows: Vec<NewRow> = reservations
        .iter()
        .map(|(machine, key)| rules::start::reservation(machine, key, turn.now))
        .collect();
    Ok(turn.txn.insert(&rows).await?.into_iter().map(Ok).collect())
}

/// Declares machines and the contracts of their messages (rule 8.2). All or nothing.
pub(crate) async fn declare<T: Txn>(
    turn: &mut Turn<'_, T>,
    machines: &[Declared],
    contracts: &[Contract],
) -> Result<Answer> {
    let mut defined = Vec::with_capacity(contracts.len());
    for contract in contracts {
        terms::check(contract)?;
        defined.push((contract.id(), contract.to_json()));
    }
    if !defined.is_empty() {
        define(turn, &defined).await?;
    }
    for machine in machines {
        rules::retry::check(machine)?;
    }
    if !machines.is_empty() {
        // Another transaction may be starting an instance with the current declaration.
        let names: BTreeSet<Name> = machines.iter().map(|one| one.machine.clone()).collect();
        let names: Vec<Name> = names.into_iter().collect();
        let declared = turn.txn.declared(&names).await?;
        let contracts = declared.into_iter().filter_map(|one| one.contract);
        survey::note(turn, contracts.collect()).await?;
        turn.txn.write(Write::Declare(machines)).await?;
    }
    Ok(Answer::Done)
}

/// Writes contracts. Records the use of existing ones first, so that none is deleted meanwhile (rule 16.2).
async fn define<T: Txn>(turn: &mut Turn<'_, T>, contracts: &[(ContractId, Json)]) -> Result<()> {
    survey::note(turn, contracts.iter().map(|(id, _)| *id).collect()).await?;
    turn.txn.write(Write::Define(contracts, turn.now)).await
}

/// Inserts rows, and collects the effects of the new ones. A row whose key is reserved for its machine opens the
/// reservation (rule 2.7). A row for whose key signals are held receives them (rule 7.8). The keys are locked.
pub(crate) async fn insert<T: Txn>(
    turn: &mut Turn<'_, T>,
    rows: &[NewRow],
) -> Result<Vec<Started>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut started = turn.txn.insert(rows).await?;
    open_reserved(turn, rows, &mut started).await?;
    // After the insert, which may have waited for another transaction that started under the key and took the held
    // signals.
    let keys: BTreeSet<&Key> = rows
        .iter()
        .zip(&started)
        .filter(|(_, started)| matches!(started, Started::New(_)))
        .filter_map(|(row, _)| row.key.as_ref())
        .collect();
    let held = if keys.is_empty() {
        Vec::new()
    } else {
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        turn.txn.held_signals(&keys).await?
    };
    for (row, started) in rows.iter().zip(&started) {
        if let Started::New(_) = started {
            turn.effects.turnover.started(&row.machine);
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
    if !held.is_empty() {
        hand_over(turn, rows, &started, held).await?;
    }
    Ok(started)
}

/// Opens reservations whose key and machine match a start.
async fn open_reserved<T: Txn>(
    turn: &mut Turn<'_, T>,
    rows: &[NewRow],
    started: &mut [Started],
) -> Result<()> {
    let holders: BTreeSet<InstanceId> = rows
        .iter()
        .zip(&*started)
        .filter_map(|(row, started)| match started {
            Started::Duplicate(holder) if row.key.is_some() => Some(*holder),
            _ => None,
        })
        .collect();
    if holders.is_empty() {
        return Ok(());
    }
    // Most holders are live, in partitions that are not locked here, and stay as they are.
    let holders: Vec<InstanceId> = holders.into_iter().collect();
    let reserved = turn.txn.reserved(&holders).await?;
    if reserved.is_empty() {
        return Ok(());
    }
    let mut reserved: Vec<InstanceId> = turn
        .txn
        .lock(&reserved)
        .await?
        .into_iter()
        .filter(|row| row.status == Status::Reserved)
        .map(|row| row.id)
        .collect();
    if reserved.is_empty() {
        return Ok(());
    }
    let copies = turn.txn.copies(&reserved).await?;
    for (row, started) in rows.iter().zip(started) {
        let holder = started.id();
        // A restart or the next run of a chain is not a start: its id must be above those of earlier runs (rule 2.5).
        let starts = row.run.first.is_none();
        let opens = copies
            .iter()
            .any(|(id, copy)| *id == holder && copy.key == row.key && copy.machine == row.machine);
        if starts
            && opens
            && let Some(at) = reserved.iter().position(|id| *id == holder)
        {
            if let Some(other) = unique_holder(turn, row).await? {
                *started = Started::Duplicate(other);
                continue;
            }
            reserved.swap_remove(at);
            // rule 7.1: commands that were refused before the start already have numbers.
            let commands = copies.iter().find(|(id, _)| *id == holder);
            let commands = commands.map(|(_, copy)| copy.inbox.commands);
            let mut row = row.clone();
            row.inbox.commands = commands.unwrap_or_default();
            turn.txn.write(Write::Open(holder, &row)).await?;
            *started = Started::New(holder);
        }
    }
    Ok(())
}

/// Returns the holder of a row's unique key, which it finds by an insert without the key.
pub(crate) async fn unique_holder<T: Txn>(
    turn: &mut Turn<'_, T>,
    row: &NewRow,
) -> Result<Option<InstanceId>> {
    if row.unique_key.is_none() {
        return Ok(None);
    }
    let keyless = NewRow {
        key: None,
        ..row.clone()
    };
    Ok(match turn.txn.insert(&[keyless]).await?.first() {
        Some(Started::New(tried)) => {
            turn.txn.write(Write::Delete(&[*tried])).await?;
            None
        }
        Some(Started::Duplicate(holder)) => Some(*holder),
        None => None,
    })
}

/// Delivers held signals to the new instances with their keys, in order. Each is checked now: its expiry, and the
/// contract (rule 7.8).
async fn hand_over<T: Txn>(
    turn: &mut Turn<'_, T>,
    rows: &[NewRow],
    started: &[Started],
    held: Vec<Command>,
) -> Result<()> {
    let mut new_ids: BTreeMap<&Key, InstanceId> = BTreeMap::new();
    for (row, started) in rows.iter().zip(started) {
        if let (Some(key), Started::New(id)) = (&row.key, started) {
            new_ids.insert(key, *id);
        }
    }
    let taken = |command: &Command| {
        command
            .key
            .as_ref()
            .and_then(|key| new_ids.get(key))
            .copied()
    };
    let ids: BTreeSet<InstanceId> = held.iter().filter_map(taken).collect();
    let mut ledger = Ledger::load(turn.txn, ids.into_iter().collect()).await?;
    let contracts: BTreeSet<ContractId> = rows.iter().filter_map(|row| row.contract).collect();
    let terms = terms::load(turn.txn, contracts).await?;
    let known = known_to_chains(turn, &mut ledger, &held, taken).await?;
    let mut written = Vec::new();
    let mut unjudged = Vec::new();
    for mut command in held {
        let Some(account) = taken(&command).and_then(|id| ledger.get(id)) else {
            continue;
        };
        let row = &mut account.row;
        if command.hold_until.is_none_or(|until| until <= turn.now) {
            command.status = CommandStatus::Expired;
            command.closed_at = Some(turn.now);
            written.push(command);
            continue;
        }
        (command.instance, command.chain) = (Some(row.id), Some(row.chain()));
        let delivery = NewCommand {
            arguments: command.arguments.to().unwrap_or_default(),
            ..NewCommand::signal(row.id, command.name.clone())
        };
        let contract = row.contract.unwrap_or_default();
        let terms = terms.get(&contract).map(AsRef::as_ref);
        let is_known = command
            .dedup_key
            .as_ref()
            .is_some_and(|dedup| known.contains(&(row.chain(), dedup.clone())));
        let fits = match is_known {
            true => Err(Rejection::ConflictingDuplicate.into()),
            false => match turn.bench.judge(&delivery, contract, terms) {
                Some(judged) => deliver::fit(&delivery, judged, terms, turn.limits),
                None => {
                    unjudged.push((contract, delivery));
                    continue;
                }
            },
        };
        let fits = fits.and_then(|arguments| {
            deliver::has_room(row, delivery.kind, &arguments, turn.limits)?;
            Ok(arguments)
        });
        match fits {
            Ok(arguments) => {
                command.arguments = arguments;
                let event = inbox::receive(row, &mut command, None, turn.now);
                account.history_events.push(event);
            }
            Err(unwanted) => {
                command.command_sequence = Some(row.inbox.number_command());
                let is_declared = row.contract.is_some();
                command = rejected(command, &delivery, is_declared, &unwanted, turn.limits);
                command.closed_at = Some(turn.now);
            }
        }
        written.push(command);
    }
    if !unjudged.is_empty() {
        return Err(Error::Unjudged(unjudged.into()));
    }
    if written.is_empty() {
        return Ok(());
    }
    ledger.write(turn).await?;
    turn.txn.write(Write::RewriteCommands(&written)).await
}

/// Returns the dedup keys of held signals that their chains have accepted before. A restarted chain may have accepted a
/// signal that the newest chain of its key had not.
async fn known_to_chains<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    held: &[Command],
    taken: impl Fn(&Command) -> Option<InstanceId>,
) -> Result<BTreeSet<(InstanceId, Name)>> {
    let mut candidates = BTreeSet::new();
    for command in held {
        if let (Some(dedup), Some(id)) = (&command.dedup_key, taken(command))
            && let Some(first) = ledger.get(id).and_then(|account| account.row.run.first)
        {
            candidates.insert((first, CommandKind::Signal, dedup.clone()));
        }
    }
    if candidates.is_empty() {
        return Ok(BTreeSet::new());
    }
    let candidates: Vec<_> = candidates.into_iter().collect();
    let found = turn.txn.deduped(&candidates).await?.into_iter();
    Ok(found
        .filter_map(|command| Some((command.chain?, command.dedup_key?)))
        .collect())
}
