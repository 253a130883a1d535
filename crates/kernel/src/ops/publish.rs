//! Publishes events, and opens waiters for events.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use abide_core::model::{
    AT_ONCE, Arguments, Attended, Command, CommandId, CommandKind, Event, EventSequence, EventWait,
    InstanceId, Name, NewCommand, Publish, Published, Refusal, Target, Timestamp, WaitId, Waiter,
};
use abide_core::rules::contract::free;
use abide_core::rules::event::{Payload, check_type, index_of};
use abide_core::rules::inbox;
use abide_core::rules::workflow::attended;

use super::look_back::look_back;
use super::workers::locked;
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Error, EventPaths, Loads, NewEvent, Result, Term, Touched, Txn, TypeTotal, Write};

/// The number of events whose terms are written at once, because the terms of a large batch would take much memory.
const INDEXED: usize = 1_000;

/// Publishes events. Each is stored, and goes into the inbox of every instance that waits for it, longest wait first,
/// in the same commit (rule 14.1). Each entry has its own answer.
pub(crate) async fn publish<T: Txn>(
    turn: &mut Turn<'_, T>,
    publishes: &[Publish],
) -> Result<Vec<std::result::Result<Published, Refusal>>> {
    turn.limits.check_batch(publishes.len())?;
    let ids = turn.txn.number(publishes.len()).await?;
    let mut events = Vec::with_capacity(publishes.len());
    let mut refusals = Vec::with_capacity(publishes.len());
    for (publish, id) in publishes.iter().zip(ids) {
        let fits = turn.limits.check_payload(&publish.payload);
        let fits = fits.and_then(|()| check_type(&publish.event_type));
        if fits.is_ok() {
            let unnamed = || Name::stored(format!("event-{id}"));
            events.push(NewEvent {
                event_type: publish.event_type.clone(),
                event_id: publish.event_id.clone().unwrap_or_else(unnamed),
                payload: publish.payload.clone(),
            });
        }
        refusals.push(fits.err());
    }
    let stored = store(turn, publishes, &refusals, &mut events).await?;
    let mut answers: Vec<Published> = events
        .iter()
        .zip(&stored)
        .map(|(event, (sequence, is_new))| Published {
            sequence: *sequence,
            event_id: event.event_id.clone(),
            matched: 0,
            duplicate: !is_new,
            unmatched: false,
        })
        .collect();
    let new: Vec<usize> = (0..events.len())
        .filter(|at| answers.get(*at).is_some_and(|answer| !answer.duplicate))
        .collect();
    let paths = paths_of(turn, &events, &new).await?;
    if !paths.is_empty() {
        let new: Vec<New<'_>> = new
            .iter()
            .filter_map(|at| New::of(*at, &events, &stored))
            .collect();
        index(turn, &new, &paths).await?;
        notify_waiters(turn, &new, &paths, &mut answers).await?;
        let awaited: BTreeSet<&Name> = paths.waiters.iter().map(|(of, _)| of).collect();
        for (event, answer) in events.iter().zip(&mut answers) {
            answer.unmatched =
                answer.matched == 0 && !answer.duplicate && awaited.contains(&event.event_type);
        }
    }
    let mut answers = answers.into_iter();
    let each = refusals.into_iter().map(|refusal| match refusal {
        Some(refusal) => Some(Err(refusal)),
        None => answers.next().map(Ok),
    });
    Ok(each.flatten().collect())
}

/// Stores events. An event without an id is always new: if its generated id is taken, it gets the next one.
async fn store<T: Txn>(
    turn: &mut Turn<'_, T>,
    publishes: &[Publish],
    refusals: &[Option<Refusal>],
    events: &mut [NewEvent],
) -> Result<Vec<(EventSequence, bool)>> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let mut stored = turn.txn.store_events(events, turn.now).await?;
    let taken = publishes.iter().zip(refusals);
    let taken = taken.filter(|(_, refusal)| refusal.is_none());
    for (((publish, _), event), stored) in taken.zip(events).zip(&mut stored) {
        while publish.event_id.is_none() && !stored.1 {
            let id = turn.txn.number(1).await?.into_iter().next();
            let id = id.ok_or_else(|| Error::Broken("an event has no number".into()))?;
            event.event_id = Name::stored(format!("event-{id}"));
            let again = turn
                .txn
                .store_events(slice::from_ref(event), turn.now)
                .await?;
            let again = again.into_iter().next();
            *stored = again.ok_or_else(|| Error::Broken("an event has no sequence".into()))?;
        }
    }
    Ok(stored)
}

/// An event that was just stored.
struct New<'e> {
    /// Its position in the batch.
    at: usize,
    event: &'e NewEvent,
    sequence: EventSequence,
    payload: Payload<'e>,
}

impl<'e> New<'e> {
    fn of(at: usize, events: &'e [NewEvent], stored: &[(EventSequence, bool)]) -> Option<Self> {
        let event = events.get(at)?;
        let (sequence, _) = stored.get(at)?;
        Some(Self {
            at,
            event,
            sequence: *sequence,
            payload: Payload::of(&event.payload),
        })
    }
}

/// Loads the paths of the new events' types, under which waiters are indexed or on which waits look back.
async fn paths_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    events: &[NewEvent],
    new: &[usize],
) -> Result<EventPaths> {
    let types = new.iter().filter_map(|at| events.get(*at));
    let types: BTreeSet<&Name> = types.map(|event| &event.event_type).collect();
    if types.is_empty() {
        return Ok(EventPaths::default());
    }
    let types: Vec<Name> = types.into_iter().cloned().collect();
    turn.txn.event_paths(&types).await
}

/// Writes the values of new events at the paths on which waits look back (rule 14.6).
async fn index<T: Txn>(turn: &mut Turn<'_, T>, new: &[New<'_>], paths: &EventPaths) -> Result<()> {
    if paths.lookback.is_empty() {
        return Ok(());
    }
    for part in new.chunks(INDEXED) {
        let mut terms = Vec::new();
        for one in part {
            let of_type = paths.lookback.iter();
            for (_, path, id) in of_type.filter(|(of, ..)| *of == one.event.event_type) {
                terms.extend(one.payload.index_value(path).map(|value| Term {
                    path: *id,
                    value,
                    sequence: one.sequence,
                    published_at: turn.now,
                }));
            }
        }
        turn.txn.write(Write::WriteTerms(&terms)).await?;
    }
    Ok(())
}

/// Delivers new events to the instances that wait for them.
async fn notify_waiters<T: Txn>(
    turn: &mut Turn<'_, T>,
    new: &[New<'_>],
    paths: &EventPaths,
    answers: &mut [Published],
) -> Result<()> {
    let candidates = candidates(turn, new, paths).await?;
    if candidates.is_empty() {
        return Ok(());
    }
    let touched: BTreeMap<InstanceId, Touched> = candidates
        .iter()
        .map(|(_, waiter)| {
            let touched = Touched {
                id: waiter.instance,
                partition: waiter.partition.clone(),
            };
            (waiter.instance, touched)
        })
        .collect();
    let touched: Vec<Touched> = touched.into_values().collect();
    let mut ledger = locked(turn, &touched).await?;
    let ids = turn.txn.number(candidates.len()).await?;
    let mut records = Vec::new();
    for ((one, waiter), id) in candidates.into_iter().zip(ids) {
        let Some(account) = ledger.get(waiter.instance) else {
            continue;
        };
        let event = one.event;
        let name = Name::of_event(&event.event_type);
        let awaits = account.row.awaits.as_ref();
        // An instance that was woken meanwhile, also by another event of this batch, no longer waits (rule 14.5).
        if !account.row.has_waiters() || !awaits.is_some_and(|awaits| awaits.takes(&name)) {
            continue;
        }
        let mut command = command_of(event, waiter.instance, id, turn.now);
        let matched = Some(&waiter.wait_id);
        let event = inbox::receive(&mut account.row, &mut command, matched, turn.now);
        account.history_events.push(event);
        records.push(command);
        if let Some(answer) = answers.get_mut(one.at) {
            answer.matched += 1;
        }
    }
    // Before the rows: an instance that cannot be woken ends, and closes its inbox (rule 2.8).
    insert_records(turn, records).await?;
    ledger.write(turn).await
}

/// Returns the waiters whose conditions the events meet, each with its event, in the order of delivery.
async fn candidates<'n, 'e, T: Txn>(
    turn: &mut Turn<'_, T>,
    new: &'n [New<'e>],
    paths: &EventPaths,
) -> Result<Vec<(&'n New<'e>, Waiter)>> {
    let mut probes: BTreeMap<(Name, String, String), Vec<&New<'e>>> = BTreeMap::new();
    for one in new {
        let of_type = paths.waiters.iter();
        for (event_type, path) in of_type.filter(|(of, _)| *of == one.event.event_type) {
            let value = match path.is_empty() {
                true => Some(String::new()),
                false => one.payload.index_value(path),
            };
            if let Some(value) = value {
                let probe = (event_type.clone(), path.clone(), value);
                probes.entry(probe).or_default().push(one);
            }
        }
    }
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = probes.keys().cloned().collect();
    let mut found = Vec::new();
    for waiter in turn.txn.waiters(&keys).await? {
        let probe = (
            waiter.event_type.clone(),
            waiter.path.clone(),
            waiter.value.clone(),
        );
        for one in probes.get(&probe).into_iter().flatten() {
            if one.payload.satisfies(&waiter.conditions) {
                found.push((*one, waiter.clone()));
            }
        }
    }
    // rule 14.1: event by event, and for each event the longest wait first.
    found.sort_by(|(event, one), (other, two)| {
        let by = |waiter: &Waiter| (waiter.since, waiter.instance, waiter.position);
        event.at.cmp(&other.at).then_with(|| by(one).cmp(&by(two)))
    });
    Ok(found)
}

/// Creates the command that puts an event into an inbox.
fn command_of(event: &NewEvent, instance: InstanceId, id: CommandId, now: Timestamp) -> Command {
    let arguments: Arguments = vec![event.payload.clone()].into();
    let delivery = NewCommand {
        source: Some(event.event_id.to_string()),
        ..NewCommand::signal(instance, Name::of_event(&event.event_type))
    };
    Command {
        kind: CommandKind::Signal,
        arguments: free(&arguments),
        ..Command::new(&delivery, id, now)
    }
}

async fn insert_records<T: Txn>(turn: &mut Turn<'_, T>, mut records: Vec<Command>) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    // A record has the key of its instance, like that of a signal.
    let receivers = records.iter().filter_map(|command| command.instance);
    let receivers: Vec<Target> = receivers.map(Target::Id).collect();
    let found = turn.txn.find(&receivers).await?;
    for (command, found) in records.iter_mut().zip(found) {
        command.key = found.and_then(|found| found.key);
    }
    turn.txn.write(Write::InsertCommands(&records)).await?;
    for command in records {
        if let Some(id) = command.instance {
            turn.delivered.entry(id).or_default().push(command);
        }
    }
    Ok(())
}

/// The events that an instance waits for from this commit on.
pub(crate) struct Opening<'a> {
    pub instance: InstanceId,
    /// Each wait, with its position among them and its id.
    pub waits: Vec<(u32, WaitId, &'a EventWait)>,
    /// The events up to which a workflow's waits have missed none.
    pub attended: Vec<Attended>,
}

/// Opens waiters. A wait that looks back and finds a matching published event ends at once (rule 14.6). The types are
/// locked, so no event of them is published meanwhile, and their totals do not change.
pub(crate) async fn open<'a, T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'a>,
    openings: Vec<Opening<'a>>,
    types: &BTreeMap<Name, TypeTotal>,
) -> Result<()> {
    let newest = |of: &Name| types.get(of).copied().unwrap_or_default().newest;
    let mut records = Vec::new();
    for opening in openings {
        let found = match look_on(turn, &opening, newest).await? {
            Some(found) => Some(found),
            None => look_back(turn, &opening).await?,
        };
        let id = match found.is_some() {
            true => turn.txn.number(1).await?.into_iter().next(),
            false => None,
        };
        let Some(account) = ledger.get(opening.instance) else {
            continue;
        };
        if !account.row.has_waiters() {
            // Something else has already ended the wait.
            continue;
        }
        if let (Some((event, wait_id)), Some(id)) = (found, id) {
            let mut command = command_of(&event, opening.instance, id, turn.now);
            let received = inbox::receive(&mut account.row, &mut command, Some(&wait_id), turn.now);
            account.history_events.push(received);
            records.push(command);
            continue;
        }
        // From here on the waiter covers the operation: the next matching event ends the wait.
        for one in &mut account.row.attended {
            let mut waits = opening.waits.iter();
            if let Some((_, _, wait)) = waits.find(|(position, ..)| *position == one.operation) {
                one.sequence = newest(&wait.event_type);
            }
        }
        let row = &account.row;
        let deadline = row.aside.map_or(row.due_at, |aside| aside.due_at);
        // A workflow that waits for the same as before keeps its position in the order.
        let since = row.awaits.as_ref().map_or(turn.now, |awaits| awaits.since);
        let mut waiters = Vec::new();
        for (position, wait_id, wait) in opening.waits {
            let (path, values) = index_of(wait);
            waiters.extend(values.into_iter().map(|value| Waiter {
                instance: row.id,
                partition: row.partition_key.clone(),
                wait_id: wait_id.clone(),
                position,
                event_type: wait.event_type.clone(),
                path: path.clone(),
                value,
                conditions: wait.conditions.clone(),
                since,
                deadline,
            }));
        }
        account.opens = Some(waiters);
    }
    insert_records(turn, records).await
}

/// Returns the first event that was published while a waiting workflow had no waiter, and the wait's id. Something else
/// had woken the workflow, and it waits again.
async fn look_on<T: Txn>(
    turn: &mut Turn<'_, T>,
    opening: &Opening<'_>,
    newest: impl Fn(&Name) -> EventSequence,
) -> Result<Option<(NewEvent, WaitId)>> {
    let mut first: Option<(Event, WaitId)> = None;
    for (position, wait_id, wait) in &opening.waits {
        let attended = attended(&opening.attended, *position);
        let Some(above) = attended.filter(|above| *above < newest(&wait.event_type)) else {
            continue;
        };
        let found = first_above(turn, wait, above).await?;
        let is_first = |event: &Event| {
            let known = first.as_ref().map(|(known, _)| known.sequence);
            known.is_none_or(|known| event.sequence < known)
        };
        if let Some(event) = found.filter(is_first) {
            first = Some((event, wait_id.clone()));
        }
    }
    Ok(first.map(|(event, wait_id)| (event.into(), wait_id)))
}

/// Returns the first stored event above a sequence that matches.
async fn first_above<T: Txn>(
    turn: &mut Turn<'_, T>,
    wait: &EventWait,
    mut above: EventSequence,
) -> Result<Option<Event>> {
    loop {
        let page = turn
            .txn
            .events_above(&wait.event_type, above, AT_ONCE)
            .await?;
        let Some(last) = page.last().map(|event| event.sequence) else {
            return Ok(None);
        };
        let matches = |event: &Event| Payload::of(&event.payload).satisfies(&wait.conditions);
        let full = page.len() >= AT_ONCE;
        if let Some(found) = page.into_iter().find(matches) {
            return Ok(Some(found));
        }
        if !full {
            return Ok(None);
        }
        above = last;
    }
}
