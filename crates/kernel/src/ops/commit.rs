//! Commits the outcomes of steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use abide_core::model::{
    BarrierNumber, ChildStarts, Claim, Closing, CommandStatus, Commit, Committed, ContractId,
    Declared, EventWait, InstanceId, Key, Lane, Limits, Name, NewRow, Outcome, Pending, Policy,
    Priority, Refusal, Row, Scope, Start, Started, Status, Target, Then, WaitId, WorkerId,
};
use abide_core::rules::children::{self, Ended};
use abide_core::rules::claims::{Standing, standing};
use abide_core::rules::commit::{
    Facts, InboxNeeds, ahead, apply, awaited_signals, check, check_answers, check_declared,
    inbox_needs,
};
use abide_core::rules::contract::Terms;
use abide_core::rules::contradiction;
use abide_core::rules::event::{awaited_types, index_of};
use abide_core::rules::keys::{Judged, continues, judge, taking};
use abide_core::rules::workflow;

use super::keys::{self, Holders};
use super::publish::{self, Opening};
use super::restarted::moved;
use super::{runs, start};
use crate::ledger::Ledger;
use crate::run::Turn;
use crate::{Loads, Result, Txn, TypeTotal, Write, terms};

/// Commits outcomes of steps: the rows, the children that they spawn and the parents that they wake, in one transaction
/// (rules 1.1, 1.3, 4, 10). Each entry has its own answer; a stale or refused one changes nothing.
pub(crate) async fn commit<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
    serves: &[(Name, Vec<Lane>)],
) -> Result<Vec<Committed>> {
    // rule 10.2: an instance that ends is locked together with its parent; otherwise two siblings deadlock.
    let own = commits.iter().map(|commit| commit.claim.id());
    let parents = commits
        .iter()
        .filter(|commit| commit.outcome.may_end())
        .filter_map(|c| c.claim.parent());
    let mut ledger = Ledger::load(
        turn.txn,
        own.chain(parents.map(|parent| parent.id)).collect(),
    )
    .await?;
    let waiting = waiting_by_queue(turn, commits, serves).await?;
    let declared = start::declarations(turn, commits.iter().flat_map(spawned)).await?;

    let pending = pending(turn, commits, &mut ledger).await?;
    let types = totals_by_type(turn, commits).await?;
    let waiters = types
        .iter()
        .map(|(of, total)| (of, total.waiters))
        .collect();
    let policies = policies(turn, commits).await?;
    let terms = terms_of(turn, commits, &mut ledger).await?;
    let builds = builds(turn, commits).await?;
    let claims = commits.iter().map(|commit| &commit.claim);
    let moved = moved(turn, &mut ledger, claims).await?;
    let around = Around {
        waiting: &waiting,
        declared: &declared,
        pending: &pending,
        policies: &policies,
        types: &types,
        terms: &terms,
        builds: &builds,
        moved: &moved,
    };
    let (aheads, holders) = look_ahead(turn, commits, &mut ledger, around).await?;
    let mut tally = Tally { waiters, holders };

    let mut answers = Vec::with_capacity(commits.len());
    let mut follows = Follows::default();
    for (commit, ahead) in commits.iter().zip(aheads) {
        // rule 1.7: it is unknown which of them was meant.
        if turn.contradicted.has(commit) {
            answers.push(Committed::Refused(contradiction::refusal()));
            continue;
        }
        let entry = (commit, ahead);
        answers.push(one(
            turn,
            entry,
            &mut ledger,
            around,
            &mut tally,
            &mut follows,
        ));
    }
    let Follows {
        spawns,
        ends,
        closings,
        continued,
        openings,
    } = follows;
    // Before runs continue: consumed commands stay with the run that consumed them.
    close(turn, &closings).await?;
    spawn_children(turn, &mut ledger, spawns, &tally.holders).await?;
    publish::open(turn, &mut ledger, openings, &types).await?;
    runs::go_on(turn, &mut ledger, continued).await?;
    notify_parents(turn, &mut ledger, ends).await?;
    ledger.write_granted(turn, tally.holders).await?;
    for (commit, answer) in commits.iter().zip(&mut answers) {
        // Only now is it known if a parent parked or continued at once.
        if let Committed::Moved(status) | Committed::Repeated(status) = answer
            && let Some(account) = ledger.get(commit.claim.id())
        {
            *status = account.row.status;
        }
    }
    Ok(answers)
}

/// Loads the contracts of the instances that would wait for signals.
async fn terms_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
    ledger: &mut Ledger<'_>,
) -> Result<HashMap<ContractId, Arc<Terms>>> {
    let waiting = commits
        .iter()
        .filter(|commit| !awaited_signals(&commit.outcome).is_empty());
    let contracts = waiting.filter_map(|commit| ledger.get(commit.claim.id())?.row.contract);
    terms::load(turn.txn, contracts.collect()).await
}

/// The data by which the commits of a batch are decided.
#[derive(Clone, Copy)]
struct Around<'a> {
    waiting: &'a BTreeMap<Name, Priority>,
    declared: &'a [Declared],
    pending: &'a BTreeMap<InstanceId, Vec<Pending>>,
    policies: &'a BTreeMap<InstanceId, Policy>,
    types: &'a BTreeMap<Name, TypeTotal>,
    terms: &'a HashMap<ContractId, Arc<Terms>>,
    builds: &'a BTreeMap<WorkerId, Name>,
    moved: &'a BTreeSet<InstanceId>,
}

impl<'a> Around<'a> {
    fn pending(self, row: &Row) -> &'a [Pending] {
        self.pending.get(&row.id).map_or(&[], Vec::as_slice)
    }

    fn facts<T: Txn>(self, turn: &Turn<'a, T>, row: &Row, taken: Option<&'a Refusal>) -> Facts<'a> {
        let policy = self.policies.get(&row.id);
        Facts {
            now: turn.now,
            limits: turn.limits,
            waiting: self.waiting.get(&row.queue).copied(),
            pending: self.pending(row),
            retry: policy.and_then(|policy| policy.retry.as_ref()),
            taken,
            build: row.worker.and_then(|worker| self.builds.get(&worker)),
        }
    }
}

/// Counters that change while the commits of a batch are decided one after the other.
struct Tally<'a> {
    /// The number of waiters of each event type.
    waiters: BTreeMap<&'a Name, usize>,
    /// The holders of the keys that some commits would take.
    holders: Holders,
}

/// The consequences of a batch of commits, besides their own rows.
#[derive(Default)]
struct Follows<'a> {
    spawns: Vec<Spawn<'a>>,
    ends: BTreeMap<InstanceId, Vec<Ended>>,
    closings: Vec<Closing>,
    continued: Vec<(InstanceId, &'a Outcome)>,
    openings: Vec<Opening<'a>>,
}

/// The children to insert for one parent: one list for a spawn, one for each operation of a workflow that starts
/// children.
struct Spawn<'a> {
    commit: &'a Commit,
    child_starts: Vec<Vec<NewRow>>,
    /// The commands that stay pending in the parent's inbox, as far as they were read.
    left: Vec<Pending>,
}

/// Loads the pending commands that the outcomes need; reads nothing if none needs any.
async fn pending<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
    ledger: &mut Ledger<'_>,
) -> Result<BTreeMap<InstanceId, Vec<Pending>>> {
    // One read per inbox, even if a batch has a stale commit besides the valid one.
    let mut needs: BTreeMap<InstanceId, InboxNeeds> = BTreeMap::new();
    for commit in commits {
        let id = commit.claim.id();
        if let Some(account) = ledger.get(id)
            && let Some(needed) = inbox_needs(&account.row, &commit.outcome)
        {
            needs.entry(id).or_default().join(needed);
        }
    }
    let needs: Vec<_> = needs.into_iter().collect();
    pending_of(turn, &needs).await
}

/// Loads the policies of the instances that failed; reads nothing if none failed.
async fn policies<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
) -> Result<BTreeMap<InstanceId, Policy>> {
    let failed = commits
        .iter()
        .filter(|commit| matches!(commit.outcome.last(), Outcome::Fail { .. }));
    let mut failed: Vec<InstanceId> = failed.map(|commit| commit.claim.id()).collect();
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() {
        return Ok(BTreeMap::new());
    }
    policies_of(turn, &failed).await
}

/// Loads the builds of the workers that could not run their steps; reads nothing if all could.
async fn builds<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
) -> Result<BTreeMap<WorkerId, Name>> {
    let blocks = commits.iter().filter(|commit| match &commit.outcome {
        Outcome::Block { .. } => true,
        Outcome::Workflow(turn) => matches!(turn.then, Then::Block(_)),
        _ => false,
    });
    let mut workers: Vec<WorkerId> = blocks.map(|commit| commit.claim.worker()).collect();
    workers.sort_unstable();
    workers.dedup();
    if workers.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(turn.txn.builds(&workers).await?.into_iter().collect())
}

/// Loads the policies in force for these instances. Instances without one are left out.
pub(super) async fn policies_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    ids: &[InstanceId],
) -> Result<BTreeMap<InstanceId, Policy>> {
    let found = turn.txn.policies(ids).await?.into_iter();
    Ok(found.map(|(id, of)| (id, of.in_force())).collect())
}

/// Loads the pending commands of these inboxes.
pub(crate) async fn pending_of<T: Txn>(
    turn: &mut Turn<'_, T>,
    needs: &[(InstanceId, InboxNeeds)],
) -> Result<BTreeMap<InstanceId, Vec<Pending>>> {
    let mut found: BTreeMap<InstanceId, Vec<Pending>> = BTreeMap::new();
    if !needs.is_empty() {
        for (id, pending) in turn.txn.pending(needs).await? {
            found.entry(id).or_default().push(pending);
        }
    }
    Ok(found)
}

/// Closes commands, and records which updates were answered.
pub(crate) async fn close<T: Txn>(turn: &mut Turn<'_, T>, closings: &[Closing]) -> Result<()> {
    if closings.is_empty() {
        return Ok(());
    }
    let answered = closings.iter().filter(|closing| {
        matches!(
            closing.status,
            CommandStatus::Completed | CommandStatus::Failed
        )
    });
    turn.effects
        .answered
        .extend(answered.map(|closing| closing.id));
    turn.txn.write(Write::Close(closings, turn.now)).await
}

/// Computes the rows after those commits that would take a key, and loads the holders of these keys. Reads nothing if
/// no commit would take a key (rule 2.8).
async fn look_ahead<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
    ledger: &mut Ledger<'_>,
    around: Around<'_>,
) -> Result<(Vec<Option<Row>>, Holders)> {
    let mut aheads = Vec::with_capacity(commits.len());
    for commit in commits {
        let row = ledger.get(commit.claim.id()).map(|account| &account.row);
        // An instance whose scope contains `executing` already holds its keys.
        let may_take = |row: &&Row| {
            let outside = |scope: Scope| scope != Scope::NEVER && !scope.holds(row.status);
            (outside(row.scopes.key) || outside(row.scopes.unique_key))
                && standing(row, &commit.claim, around.moved.contains(&row.id)) == Standing::Holds
        };
        let ahead = row.filter(may_take).and_then(|row| {
            let ahead = ahead(row, commit, around.facts(turn, row, None));
            taking(row, &ahead).any().then_some(ahead)
        });
        aheads.push(ahead);
    }
    let mut taking: Vec<InstanceId> = aheads.iter().flatten().map(|row| row.id).collect();
    let mut holders = Holders::default();
    if !taking.is_empty() {
        taking.sort_unstable();
        taking.dedup();
        holders.load(turn, ledger, &taking).await?;
    }
    Ok((aheads, holders))
}

fn one<'a, T: Txn>(
    turn: &Turn<'_, T>,
    (commit, ahead): (&'a Commit, Option<Row>),
    ledger: &mut Ledger<'a>,
    around: Around<'_>,
    tally: &mut Tally<'a>,
    follows: &mut Follows<'a>,
) -> Committed {
    if !knows_parent(ledger, commit) {
        return Committed::Stale;
    }
    let Some(account) = ledger.get(commit.claim.id()) else {
        return Committed::Stale;
    };
    let moved = around.moved.contains(&account.row.id);
    match standing(&account.row, &commit.claim, moved) {
        Standing::Holds => {}
        Standing::Lost => return Committed::Stale,
        Standing::Repeated if is_kept(&account.row, &commit.claim) => {
            return Committed::Kept(commit.claim.renewed(account.row.epoch), account.row.inbox);
        }
        Standing::Repeated => return Committed::Repeated(account.row.status),
    }
    if matches!(commit.outcome, Outcome::Workflow(_)) && !account.row.history {
        // rule 16.1: it could not be replayed.
        return Committed::Refused(Refusal::BadOutcome {
            problem: "a workflow keeps its history: start it without `history: false`".into(),
        });
    }
    if let Err(refusal) = check(&commit.outcome, turn.limits) {
        return Committed::Refused(refusal);
    }
    let terms = account.row.contract.and_then(|id| around.terms.get(&id));
    if let Some(Err(refusal)) = terms.map(|terms| check_declared(&commit.outcome, terms)) {
        return Committed::Refused(refusal);
    }
    if let Err(refusal) = check_answers(&commit.outcome, around.pending(&account.row)) {
        return Committed::Refused(refusal);
    }
    let in_the_way =
        ahead
            .as_ref()
            .map_or_else(Vec::new, |ahead| match continues(&commit.outcome) {
                true => tally.holders.in_the_way_of_next(ahead),
                false => tally.holders.in_the_way(ahead),
            });
    let taken = ahead.as_ref().and_then(|ahead| {
        let (key, holder) = in_the_way.first()?;
        let judged = judge(&commit.outcome, &account.row, ahead);
        (judged != Judged::Committed).then(|| (keys::refusal(key, *holder), judged))
    });
    let taken = match taken {
        Some((refusal, Judged::Refused)) => return Committed::Refused(refusal),
        taken => taken.map(|(refusal, _)| refusal),
    };
    if let Err(refusal) = has_room_for_waiters(&commit.outcome, &mut tally.waiters, turn.limits) {
        return Committed::Refused(refusal);
    }
    let mut child_starts = Vec::new();
    for (barrier, starts) in child_starts_of(commit, &account.row) {
        match start::children(starts, around.declared, (account.row.id, barrier), turn) {
            Ok(rows) => child_starts.push(rows),
            Err(refusal) => return Committed::Refused(refusal),
        }
    }
    let facts = around.facts(turn, &account.row, taken.as_ref());
    let moved = apply(&mut account.row, commit, facts);
    if !child_starts.is_empty() {
        let left = moved.left(facts.pending);
        follows.spawns.push(Spawn {
            commit,
            child_starts,
            left,
        });
    }
    match ahead {
        Some(ahead) if in_the_way.is_empty() => tally.holders.grant(&ahead),
        // An instance that gives a key up leaves it to its holder.
        Some(_) if taken.is_none() => {}
        _ => tally.holders.leave(&account.row),
    }
    if let (Outcome::Workflow(of), false) =
        (commit.outcome.last(), account.row.status.is_terminal())
    {
        let newest = |of: &Name| around.types.get(of).copied().unwrap_or_default().newest;
        workflow::attend(&mut account.row, of, newest);
    }
    (account.state, account.result) = (moved.state, moved.result);
    account.history_events.extend(moved.history_events);
    follows.closings.extend(moved.closings);
    let row = &account.row;
    if row.has_waiters() {
        follows.openings.extend(opening(row, &commit.outcome));
    }
    if row.status == Status::Continued {
        follows.continued.push((row.id, commit.outcome.last()));
    } else if let (true, Some(parent)) = (row.status.is_terminal(), row.parent) {
        let ended = Ended {
            child: row.id,
            barrier: row.parent_barrier,
            status: row.status,
        };
        follows.ends.entry(parent).or_default().push(ended);
    }
    if moved.kept {
        Committed::Kept(commit.claim.renewed(row.epoch), row.inbox)
    } else {
        Committed::Moved(row.status)
    }
}

/// `true` unless a claim that may end its instance names a different partition for the parent than the parent has. That
/// partition was locked for it. A claim with a wrong partition was never granted.
fn knows_parent(ledger: &mut Ledger<'_>, commit: &Commit) -> bool {
    match commit.claim.parent() {
        Some(parent) if commit.outcome.may_end() => ledger
            .get(parent.id)
            .is_none_or(|account| account.row.partition_key == parent.partition),
        _ => true,
    }
}

/// `true` if the commit under this claim kept it, and nothing has ended that hold since. The worker alone is not
/// enough: it may have claimed the instance again after this commit returned it, and that is a different hold.
fn is_kept(row: &Row, claim: &Claim) -> bool {
    row.status == Status::Executing
        && row.worker == Some(claim.worker())
        && row.epoch.0 == claim.epoch().0 + 1
}

/// Inserts the children of all parents of the batch in one statement, and parks each parent according to the result. A
/// child finds a key taken that a row of the batch was granted, although that row is written later.
async fn spawn_children<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    spawns: Vec<Spawn<'_>>,
    holders: &Holders,
) -> Result<()> {
    let mut rows = Vec::new();
    let mut taken = Vec::new();
    let mut families = Vec::with_capacity(spawns.len());
    for spawn in spawns {
        let counts: Vec<usize> = spawn.child_starts.iter().map(Vec::len).collect();
        families.push((spawn.commit, counts, spawn.left));
        for row in spawn.child_starts.into_iter().flatten() {
            taken.push(holders.granted_instead_of(&row));
            if taken.last() == Some(&None) {
                rows.push(row);
            }
        }
    }
    let mut inserted = start::insert(turn, &rows).await?.into_iter();
    let mut started = taken.into_iter().filter_map(|taken| match taken {
        Some(holder) => Some(Started::Duplicate(holder)),
        None => inserted.next(),
    });
    let count_of = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    for (commit, counts, left) in families {
        let count_new = |count: &usize| {
            let group = started.by_ref().take(*count);
            count_of(group.filter(|one| matches!(one, Started::New(_))).count())
        };
        let inserted: Vec<u32> = counts.iter().map(count_new).collect();
        let Some(account) = ledger.get(commit.claim.id()) else {
            continue;
        };
        let events = match commit.outcome.last() {
            Outcome::Workflow(of) => {
                workflow::count_children(&mut account.row, of, &inserted, turn.now)
            }
            Outcome::Spawn {
                join, timeout_ms, ..
            } => {
                let inserted = inserted.iter().sum();
                let requested = count_of(counts.iter().sum());
                let deadline = timeout_ms.map(|ms| turn.now + std::time::Duration::from_millis(ms));
                let duplicates = requested.saturating_sub(inserted);
                children::park(
                    &mut account.row,
                    (inserted, duplicates),
                    *join,
                    deadline,
                    &left,
                    turn.now,
                )
            }
            _ => continue,
        };
        // If a workflow starts children in its last turn, its end comes after them in the history.
        let ends = account.row.status.is_terminal() && account.row.status != Status::Continued;
        let at =
            account.history_events.len() - usize::from(ends && !account.history_events.is_empty());
        account.history_events.splice(at..at, events);
    }
    Ok(())
}

/// Folds the ends of siblings into one change of their parent (rule 10.2).
pub(crate) async fn notify_parents<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    ends: BTreeMap<InstanceId, Vec<Ended>>,
) -> Result<()> {
    // The claim did not name its parent, or the instance was ended from outside: lock the parent now, its partition
    // first.
    let missing: Vec<InstanceId> = ends
        .keys()
        .copied()
        .filter(|parent| ledger.get(*parent).is_none())
        .collect();
    lock_parents(turn, ledger, &missing).await?;
    for (parent, ended) in ends {
        if let Some(account) = ledger.get(parent) {
            let events = children::ended(&mut account.row, &ended, turn.now);
            account.history_events.extend(events);
        }
    }
    Ok(())
}

/// Locks parents that were found during the operation, with their partitions first.
pub(crate) async fn lock_parents<T: Txn>(
    turn: &mut Turn<'_, T>,
    ledger: &mut Ledger<'_>,
    parents: &[InstanceId],
) -> Result<()> {
    if parents.is_empty() {
        return Ok(());
    }
    let targets: Vec<Target> = parents.iter().copied().map(Target::Id).collect();
    let found = turn.txn.find(&targets).await?;
    let partitions: BTreeSet<&Key> = found
        .iter()
        .flatten()
        .filter_map(|parent| parent.partition.as_ref())
        .collect();
    turn.lock_partitions(partitions).await?;
    ledger.add(turn.txn, parents).await
}

/// Returns the priority of the work that waits in the queues of workers that want to keep their claim (rule 4.3).
async fn waiting_by_queue<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
    serves: &[(Name, Vec<Lane>)],
) -> Result<BTreeMap<Name, Priority>> {
    let mut waiting = BTreeMap::new();
    if commits.iter().any(|commit| commit.keep) {
        for (queue, lanes) in serves {
            if let Some(priority) = turn.txn.waiting(queue, lanes).await? {
                waiting.insert(queue.clone(), priority);
            }
        }
    }
    Ok(waiting)
}

/// Returns the children that a commit starts, by their barrier.
fn child_starts_of<'a>(commit: &'a Commit, row: &Row) -> Vec<(BarrierNumber, &'a [Start])> {
    match commit.outcome.last() {
        Outcome::Spawn { children, .. } => vec![(children::next_barrier(row), children.as_slice())],
        // A turn that blocks does nothing else.
        Outcome::Workflow(turn) if matches!(turn.then, Then::Block(_)) => Vec::new(),
        Outcome::Workflow(turn) => {
            let child_starts = turn.children.iter();
            let of = |spawn: &'a ChildStarts| {
                (
                    ChildStarts::barrier(spawn.operation),
                    spawn.starts.as_slice(),
                )
            };
            child_starts.map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the children that a commit starts.
pub(super) fn spawned(commit: &Commit) -> Vec<&Start> {
    match commit.outcome.last() {
        Outcome::Spawn { children, .. } => children.iter().collect(),
        Outcome::Workflow(turn) => turn
            .children
            .iter()
            .flat_map(|spawn| &spawn.starts)
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the events that an outcome waits for.
fn events_of(outcome: &Outcome) -> Vec<&EventWait> {
    match outcome.last() {
        Outcome::Wait(wait) => wait.events.iter().collect(),
        Outcome::Workflow(turn) => match &turn.then {
            Then::Park(park) => park.events.iter().map(|(_, event)| event).collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns the event waits of a row that has parked. Each wait of a workflow is identified by its operation.
fn opening<'a>(row: &Row, outcome: &'a Outcome) -> Option<Opening<'a>> {
    let waits = match outcome.last() {
        Outcome::Workflow(turn) => match &turn.then {
            Then::Park(park) => {
                let waits = park.events.iter().map(|(operation, event)| {
                    let wait_id = WaitId::stored(format!("wait:{}:{operation}", row.id));
                    (*operation, wait_id, event)
                });
                waits.collect()
            }
            _ => return None,
        },
        Outcome::Wait(wait) => {
            let wait_id = row.awaits.as_ref().and_then(|awaits| awaits.id.clone())?;
            let waits = (0_u32..).zip(&wait.events);
            waits
                .map(|(position, event)| (position, wait_id.clone(), event))
                .collect()
        }
        _ => return None,
    };
    Some(Opening {
        instance: row.id,
        waits,
        attended: row.attended.clone(),
    })
}

/// Loads the totals of the event types that are waited for; reads nothing if there are none.
async fn totals_by_type<T: Txn>(
    turn: &mut Turn<'_, T>,
    commits: &[Commit],
) -> Result<BTreeMap<Name, TypeTotal>> {
    let types: BTreeSet<&Name> = commits
        .iter()
        .flat_map(|commit| awaited_types(&commit.outcome))
        .collect();
    if types.is_empty() {
        return Ok(BTreeMap::new());
    }
    let types: Vec<Name> = types.into_iter().cloned().collect();
    Ok(turn.txn.type_totals(&types).await?.into_iter().collect())
}

/// Refuses a wait for events of a type that has too many waiters already (rule 14.7).
fn has_room_for_waiters<'a>(
    outcome: &'a Outcome,
    waiters: &mut BTreeMap<&'a Name, usize>,
    limits: &Limits,
) -> std::result::Result<(), Refusal> {
    let mut met: BTreeMap<&Name, usize> = BTreeMap::new();
    for event in events_of(outcome) {
        let there = waiters.get(&event.event_type).copied();
        let met = met
            .entry(&event.event_type)
            .or_insert(there.unwrap_or_default());
        // A wait for one value of a list has several index entries.
        *met += index_of(event).1.len();
        limits.check_waiters(&event.event_type, *met)?;
    }
    for (event_type, met) in met {
        waiters.insert(event_type, met);
    }
    Ok(())
}
