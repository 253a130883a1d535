//! Delivers signals and updates.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use abide_core::model::{
    Arguments, Command, CommandId, CommandKind, CommandStatus, ContractId, Delivered, InstanceId,
    Json, Key, Limits, Name, NewCommand, Refusal, Rejection, Row, Status, Target, Verdict,
    check_claimed_source,
};
use abide_core::rules::contract::{Terms, given};
use abide_core::rules::deliver::{self, Addressed, Decision, Facts, Held, Unwanted};
use abide_core::rules::inbox;
use abide_core::rules::similar;

use super::{resolve, signal_with_start};
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Found, Loads, Result, Txn, Write, terms};

/// The result of one signal or update: its answer, or a refusal that leaves no record.
pub(crate) type Each = std::result::Result<Delivered, Refusal>;

/// Delivers signals and updates. Each goes through the decision table (rule 7.3). An accepted one is put into the inbox
/// and wakes its target in one commit (rule 7.1).
pub(crate) async fn deliver<T: Txn>(
    turn: &mut Turn<'_, T>,
    deliveries: &[NewCommand],
) -> Result<Vec<Each>> {
    turn.limits.check_batch(deliveries.len())?;
    let unfit = |(at, delivery): (usize, &NewCommand)| {
        let depth = turn.limits.check_arguments_depth(&delivery.arguments);
        let checked = depth.and_then(|()| check_claimed_source(delivery.claimed_source.as_deref()));
        Some((at, Err(checked.err()?)))
    };
    let refused = deliveries.iter().enumerate().filter_map(unfit).collect();
    let begun = signal_with_start::begin(turn, deliveries, refused).await?;
    let open: Vec<usize> = (0..deliveries.len())
        .filter(|at| !begun.answers.contains_key(at))
        .collect();
    let wanted: Vec<&NewCommand> = open.iter().filter_map(|at| deliveries.get(*at)).collect();
    let mut delivered = Post::open(turn, &wanted).await?;
    for (at, answer) in open.iter().zip(&mut delivered) {
        if let Ok(answer) = answer {
            answer.started = begun.started.contains(at);
        }
    }
    let mut delivered = delivered.into_iter();

    let mut answers = begun.answers;
    let each = (0..deliveries.len()).map(|at| match answers.remove(&at) {
        Some(answer) => Some(answer),
        None => delivered.next(),
    });
    Ok(each.flatten().collect())
}

/// The data that a batch of signals and updates needs, and the changes to write.
struct Post<'d> {
    found: Vec<Option<Found>>,
    current: HashMap<InstanceId, InstanceId>,
    terms: HashMap<ContractId, Arc<Terms>>,
    /// Accepted commands with a dedup key, by chain and kind.
    accepted: HashMap<(InstanceId, CommandKind, Name), Command>,
    held: HeldSignals,
    ledger: Ledger<'d>,
    records: Vec<Command>,
    /// Instances with an unjudged command. Later commands must not overtake it.
    unjudged: BTreeSet<InstanceId>,
}

/// The signals that are held for the keys of a batch.
#[derive(Default)]
struct HeldSignals {
    /// Those with a dedup key.
    by_dedup: HashMap<(Key, Name), Command>,
    /// Their number and total bytes, by key.
    sizes: HashMap<Key, (usize, u64)>,
}

impl HeldSignals {
    fn facts(&self, delivery: &NewCommand) -> Held<'_> {
        let Target::Key(key) = &delivery.target else {
            return Held::default();
        };
        let (count, bytes) = self.sizes.get(key).copied().unwrap_or_default();
        let dedup = delivery.dedup_key.as_ref();
        Held {
            earlier: dedup.and_then(|dedup| self.by_dedup.get(&(key.clone(), dedup.clone()))),
            count,
            bytes,
        }
    }

    fn add(&mut self, command: &Command) {
        let Some(key) = &command.key else { return };
        let (count, bytes) = self.sizes.entry(key.clone()).or_default();
        *count += 1;
        *bytes += command.arguments.size() as u64;
        if let Some(dedup) = &command.dedup_key {
            let slot = (key.clone(), dedup.clone());
            self.by_dedup.insert(slot, command.clone());
        }
    }
}

impl Post<'_> {
    async fn open<T: Txn>(turn: &mut Turn<'_, T>, deliveries: &[&NewCommand]) -> Result<Vec<Each>> {
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        let targets: Vec<Target> = deliveries.iter().map(|one| addressed(one)).collect();
        let (found, mut ledger) = resolve::locked(turn, &targets).await?;
        let mut post = Post {
            current: resolve::current(turn, &targets, &found, &mut ledger).await?,
            terms: terms_of(turn, &found, &mut ledger).await?,
            accepted: HashMap::new(),
            held: HeldSignals::default(),
            found,
            ledger,
            records: Vec::new(),
            unjudged: BTreeSet::new(),
        };
        post.remember(turn, deliveries).await?;
        post.measure(turn, deliveries).await?;
        let ids = turn.txn.number(deliveries.len()).await?;
        let mut answers = Vec::with_capacity(deliveries.len());
        for (at, (delivery, id)) in deliveries.iter().zip(ids).enumerate() {
            answers.push(post.decide(turn, at, delivery, id)?);
        }
        // Before the rows: an instance that cannot be woken ends, and closes its inbox (rule 2.8).
        if !post.records.is_empty() {
            turn.txn.write(Write::InsertCommands(&post.records)).await?;
        }
        post.ledger.write(turn).await?;
        for command in post.records {
            if let (CommandStatus::Received, Some(id)) = (command.status, command.instance) {
                turn.delivered.entry(id).or_default().push(command);
            }
        }
        Ok(answers)
    }

    /// Loads the commands that were accepted or held earlier with the dedup keys of this batch.
    async fn remember<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        deliveries: &[&NewCommand],
    ) -> Result<()> {
        let mut keys = BTreeSet::new();
        let mut held_keys = BTreeSet::new();
        for (found, delivery) in self.found.iter().zip(deliveries) {
            let Some(dedup) = &delivery.dedup_key else {
                continue;
            };
            if let Some(account) = found.as_ref().and_then(|found| self.ledger.get(found.id)) {
                keys.insert((account.row.chain(), delivery.kind, dedup.clone()));
            }
            if let (Some(_), Target::Key(key)) = (delivery.hold_for, &delivery.target) {
                held_keys.insert(key.clone());
            }
        }
        if !keys.is_empty() {
            let keys: Vec<_> = keys.into_iter().collect();
            for command in turn.txn.deduped(&keys).await? {
                if let (Some(chain), Some(dedup)) = (command.chain, command.dedup_key.clone()) {
                    self.accepted.insert((chain, command.kind, dedup), command);
                }
            }
        }
        if !held_keys.is_empty() {
            let keys: Vec<Key> = held_keys.into_iter().collect();
            for command in turn.txn.held_signals(&keys).await? {
                if command.hold_until.is_some_and(|until| until > turn.now)
                    && let (Some(key), Some(dedup)) =
                        (command.key.clone(), command.dedup_key.clone())
                {
                    self.held.by_dedup.insert((key, dedup), command);
                }
            }
        }
        Ok(())
    }

    /// Measures the inboxes where this batch may exceed the limit, and the held signals where it may hold more
    /// (rule 16.4).
    async fn measure<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        deliveries: &[&NewCommand],
    ) -> Result<()> {
        let most = turn.limits.inbox_bytes as u64;
        let all: u64 = deliveries.iter().map(|delivery| room_for(delivery)).sum();
        let mut coming: BTreeMap<InstanceId, u64> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for (found, delivery) in self.found.iter().zip(deliveries) {
            let row = found.as_ref().and_then(|found| self.ledger.get(found.id));
            let row = row.map(|account| &account.row);
            match (row, &delivery.target, delivery.hold_for) {
                // Nearly every inbox has room for the whole batch.
                (Some(row), _, _) if !row.status.is_terminal() && row.inbox.bytes + all <= most => {
                }
                (Some(row), _, _) if !row.status.is_terminal() => {
                    *coming.entry(row.id).or_default() += room_for(delivery);
                }
                (_, Target::Key(key), Some(_)) => drop(keys.insert(key.clone())),
                _ => {}
            }
        }
        coming.retain(|id, bytes| {
            let row = self.ledger.get(*id).map(|account| account.row.inbox.bytes);
            row.unwrap_or_default() + *bytes > most
        });
        if !coming.is_empty() {
            let ids: Vec<InstanceId> = coming.into_keys().collect();
            for (id, bytes) in turn.txn.pending_bytes(&ids).await? {
                if let Some(account) = self.ledger.get(id) {
                    account.row.inbox.bytes = bytes;
                }
            }
        }
        if !keys.is_empty() {
            let keys: Vec<Key> = keys.into_iter().collect();
            for (key, count, bytes) in turn.txn.held_sizes(&keys, turn.now).await? {
                self.held.sizes.insert(key, (count, bytes));
            }
        }
        Ok(())
    }

    /// Decides about a command by the table of rule 7.3, and adds its record.
    fn decide<T: Txn>(
        &mut self,
        turn: &mut Turn<'_, T>,
        at: usize,
        delivery: &NewCommand,
        id: CommandId,
    ) -> Result<Each> {
        let found = self.found.get(at).and_then(Option::as_ref);
        let target = found.and_then(|found| Some((found, self.ledger.get(found.id)?)));
        let mut run = None;
        if let Some((_, account)) = &target {
            let row = &account.row;
            let contract = row.contract.unwrap_or_default();
            let terms = row.contract.and_then(|contract| self.terms.get(&contract));
            let terms = terms.map(Arc::as_ref);
            let judged = match self.unjudged.contains(&row.id) {
                true => None,
                false => turn.bench.judge(delivery, contract, terms),
            };
            // rule 8.5: nothing is written for it here; it is validated outside and sent again.
            let Some(judged) = judged else {
                self.unjudged.insert(row.id);
                return turn.bench.unjudged(delivery, contract);
            };
            let dedup = delivery.dedup_key.clone();
            let slot = dedup.map(|dedup| (row.chain(), delivery.kind, dedup));
            run = Some(Addressed {
                row,
                newest: self.current.get(&row.chain()).copied(),
                earlier: slot.and_then(|slot| self.accepted.get(&slot)),
                terms,
                judged,
            });
        }
        let facts = Facts {
            run,
            held: self.held.facts(delivery),
            limits: turn.limits,
        };
        let decision = deliver::decide(delivery, facts);
        let mut command = Command::new(delivery, id, turn.now);
        match (&decision, &target) {
            (Decision::Refused { of_run: false, .. } | Decision::Held(_), _) | (_, None) => {
                command.key = key_of(&delivery.target);
            }
            (_, Some((found, account))) => {
                command.instance = Some(account.row.id);
                command.chain = Some(account.row.chain());
                command.key = found.key.clone();
            }
        }
        match decision {
            Decision::NoTarget => Ok(Ok(no_target())),
            Decision::Duplicate(first) => Ok(Ok(duplicate(first.clone()))),
            Decision::Refused { unwanted, of_run } => {
                let row = target
                    .filter(|_| of_run)
                    .map(|(_, account)| &mut account.row);
                let is_declared = row.as_ref().is_some_and(|row| row.contract.is_some());
                command.command_sequence = row.map(|row| row.inbox.number_command());
                let command = rejected(command, delivery, is_declared, &unwanted, turn.limits);
                self.records.push(command.clone());
                Ok(Ok(refusal(command, unwanted)))
            }
            Decision::Held(arguments) => {
                command.arguments = arguments;
                command.status = CommandStatus::Held;
                command.hold_until = delivery.hold_for.map(|time| turn.now + time);
                self.held.add(&command);
                self.records.push(command.clone());
                Ok(Ok(answer(Verdict::Held, command)))
            }
            Decision::Accepted(arguments) => {
                command.arguments = arguments;
                let mut similar = None;
                if let Some((_, account)) = target {
                    let row = &mut account.row;
                    similar = meant(row, &command).cloned();
                    let event = inbox::receive(row, &mut command, None, turn.now);
                    account.history_events.push(event);
                }
                if let (Some(chain), Some(dedup)) = (command.chain, command.dedup_key.clone()) {
                    let slot = (chain, command.kind, dedup);
                    self.accepted.insert(slot, command.clone());
                }
                self.records.push(command.clone());
                Ok(Ok(Delivered {
                    similar,
                    ..answer(accepted(command.kind), command)
                }))
            }
        }
    }
}

/// Returns the key that a command was sent to.
fn key_of(target: &Target) -> Option<Key> {
    match target {
        Target::Key(key) => Some(key.clone()),
        Target::Id(_) => None,
    }
}

/// Returns an upper bound of the bytes that a command takes in an inbox, where arguments may be stored by name.
fn room_for(delivery: &NewCommand) -> u64 {
    const NAMES: u64 = 4096;
    let size = match &delivery.arguments {
        Arguments::Payload(value) => value.size(),
        Arguments::Positional(values) => values.iter().map(Json::size).sum(),
        Arguments::Named(values) => values.iter().map(|(_, value)| value.size()).sum(),
    };
    2 * size as u64 + NAMES
}

/// Returns the target of a signal or update.
fn addressed(delivery: &NewCommand) -> Target {
    match delivery.start.as_ref().and_then(|start| start.key.clone()) {
        Some(key) => Target::Key(key),
        None => delivery.target.clone(),
    }
}

async fn terms_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    found: &[Option<Found>],
    ledger: &mut Ledger<'_>,
) -> Result<HashMap<ContractId, Arc<Terms>>> {
    let contracts: BTreeSet<ContractId> = found
        .iter()
        .flatten()
        .filter_map(|found| ledger.get(found.id)?.row.contract)
        .collect();
    terms::load(turn.txn, contracts).await
}

/// Completes the record of a refused command. Its arguments are stored as given, unless they are too large. With a
/// contract, a payload that is an object stands for named arguments.
pub(crate) fn rejected(
    mut command: Command,
    delivery: &NewCommand,
    is_declared: bool,
    unwanted: &Unwanted,
    limits: &Limits,
) -> Command {
    let given = given(&delivery.arguments, is_declared);
    let fits = given.size() <= limits.payload_bytes;
    let too_large = unwanted.rejection == Rejection::PayloadTooLarge;
    command.arguments = match fits && !too_large {
        true => given,
        false => Json::null(),
    };
    command.status = CommandStatus::Rejected;
    command.rejection = Some(unwanted.rejection);
    command.validation_errors = unwanted
        .errors
        .as_ref()
        .and_then(|errors| Json::of(errors).ok());
    command.closed_at = Some(command.received_at);
    command.hold_until = None;
    command
}

/// Returns the signal that the target waits for, if the command's name is similar to it.
fn meant<'a>(row: &'a Row, command: &Command) -> Option<&'a Name> {
    let is_parked = row.status == Status::AwaitingSignal && command.kind == CommandKind::Signal;
    let awaits = row.awaits.as_ref().filter(|_| is_parked)?;
    similar::meant(&command.name, &awaits.names)
}

/// Returns the answer to the sender of a refused command.
pub(crate) fn refusal(command: Command, unwanted: Unwanted) -> Delivered {
    Delivered {
        current: unwanted.newest,
        offer: unwanted.offer,
        limit: unwanted.limit,
        ..answer(Verdict::Rejected(unwanted.rejection), command)
    }
}

fn duplicate(first: Command) -> Delivered {
    let verdict = match first.status {
        CommandStatus::Held => Verdict::Held,
        _ => accepted(first.kind),
    };
    Delivered {
        duplicate: true,
        ..answer(verdict, first)
    }
}

fn answer(verdict: Verdict, command: Command) -> Delivered {
    Delivered {
        verdict,
        record: Some(Box::new(command)),
        duplicate: false,
        started: false,
        current: None,
        offer: None,
        limit: None,
        similar: None,
    }
}

fn no_target() -> Delivered {
    Delivered {
        verdict: Verdict::NoTarget,
        record: None,
        duplicate: false,
        started: false,
        current: None,
        offer: None,
        limit: None,
        similar: None,
    }
}

const fn accepted(kind: CommandKind) -> Verdict {
    match kind {
        CommandKind::Signal => Verdict::Received,
        CommandKind::Update | CommandKind::Cancel => Verdict::Accepted,
    }
}

/// `true` if an instance with this status no longer lives under its key.
pub(crate) fn is_over(status: Status) -> bool {
    status.is_terminal() || status == Status::Reserved
}
