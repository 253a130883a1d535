//! The waits as the simulation itself knows them, apart from all that the store counts: what each step was handed, what
//! it then waited for, and so what may still be waiting when nothing moves any more.

use std::collections::{BTreeMap, BTreeSet};

use abide_kernel::model::{
    Claim, Claimed, Command, CommandId, CommandKind, CommandStatus, Commit, Committed, Entry,
    Epoch, HistoryEvent, Instance, InstanceId, Kind, Name, Outcome, Row, Status, Then,
};
use abide_kernel::{Answer, Op};

/// The known waits.
#[derive(Default)]
pub struct Waits {
    /// The commands that the step that runs, or ran last, was handed.
    handed: BTreeMap<InstanceId, BTreeSet<CommandId>>,
    /// The number of ends of children in the history of a workflow when it was claimed.
    ends: BTreeMap<InstanceId, usize>,
    /// The wait of the last commit.
    parked: BTreeMap<InstanceId, Parked>,
    /// The holds under which something was committed: what is sent again is not what was committed.
    settled: BTreeSet<(InstanceId, Epoch)>,
}

/// The wait of an instance.
enum Parked {
    /// A signal of these names that its step was not handed.
    Signals {
        names: Vec<Name>,
        handed: BTreeSet<CommandId>,
    },
    /// So many of the children of its last barrier, or all.
    Children { at_least: Option<u32> },
    /// A signal of these names, or so many ends of children more than there were, with so many updates that its code has not
    /// answered yet.
    Turn {
        names: Vec<Name>,
        held: u32,
        ends: usize,
        needed: Option<u32>,
        joins: bool,
    },
}

impl Waits {
    /// Notes the waits of a transaction that was committed.
    pub fn note(&mut self, ops: &[Op], answers: &[Answer], ends: impl Fn(InstanceId) -> usize) {
        for (op, answer) in ops.iter().zip(answers) {
            match (op, answer) {
                (Op::Commit { commits, .. }, Answer::Committed(each)) => {
                    for (commit, answer) in commits.iter().zip(each) {
                        self.note_commit(commit, answer);
                    }
                }
                (_, Answer::Claimed(claimed)) => {
                    for one in claimed {
                        self.note_claim(one, &ends);
                    }
                }
                _ => {}
            }
        }
    }

    fn note_claim(&mut self, claimed: &Claimed, ends: impl Fn(InstanceId) -> usize) {
        let id = claimed.claim.id();
        // One that was claimed for its updates alone is handed nothing.
        let handed = claimed.awaited.iter().map(|one| one.id).collect();
        self.handed.insert(id, handed);
        self.ends.insert(id, ends(id));
    }

    fn note_commit(&mut self, commit: &Commit, answer: &Committed) {
        let id = commit.claim.id();
        let written = matches!(answer, Committed::Moved(_) | Committed::Kept(_, _));
        if !written || !self.settled.insert(hold(&commit.claim)) {
            return;
        }
        let handed = self.handed.get(&id).cloned().unwrap_or_default();
        let (handed, outcome) = match &commit.outcome {
            // It goes back to where it was, or on to its step.
            Outcome::Answer { then: None, .. } => return,
            // Its step did not run.
            Outcome::Answer { .. } => (BTreeSet::new(), commit.outcome.last()),
            outcome => (handed, outcome),
        };
        self.handed.remove(&id);
        let parked = match outcome {
            Outcome::Wait(wait) => Parked::Signals {
                names: wait.names(),
                handed,
            },
            Outcome::Spawn { join, .. } => Parked::Children {
                at_least: join.at_least,
            },
            Outcome::Workflow(turn) => match &turn.then {
                Then::Park(park) => Parked::Turn {
                    names: park.names(),
                    held: turn.held,
                    ends: self.ends.get(&id).copied().unwrap_or_default(),
                    needed: park.children.map(|children| children.needed),
                    joins: turn.children.iter().any(|starts| starts.needed > 0),
                },
                _ => return self.forget(id),
            },
            _ => return self.forget(id),
        };
        self.parked.insert(id, parked);
    }

    fn forget(&mut self, id: InstanceId) {
        self.parked.remove(&id);
    }

    /// The reason why an instance cannot be left where it stands when nothing moves any more, given all there is:
    /// what it waits for has come. Only the history of a workflow is read.
    pub fn stuck(
        &self,
        one: &Instance,
        all: &[Instance],
        records: &[Command],
        history: &[Entry],
    ) -> Option<String> {
        let Row { id, status, .. } = &one.row;
        if *status == Status::Reserved {
            return None;
        }
        if one.due_at.is_some() || !is_waiting(*status) {
            return Some(format!("{id} stands in {status}, due at {:?}", one.due_at));
        }
        let mine = |record: &&Command| record.instance == Some(*id);
        let pending = || records.iter().filter(mine);
        let accepted = |record: &Command| record.status == CommandStatus::Accepted;
        let held = match self.parked.get(id) {
            Some(Parked::Turn { held, .. }) => *held as usize,
            _ => 0,
        };
        if let Some(update) = pending().filter(|record| accepted(record)).nth(held) {
            return Some(format!("{id} has not answered update {}", update.id));
        }
        let signal = |names: &[Name], handed: &BTreeSet<CommandId>| {
            let comes = |record: &Command| {
                record.kind == CommandKind::Signal
                    && record.status == CommandStatus::Received
                    && names.contains(&record.name)
                    && !handed.contains(&record.id)
            };
            let found = pending().find(|record| comes(record))?;
            Some(format!("{id} waits for {names:?}, and has {}", found.id))
        };
        let alive = |child: &&Instance| child.parent == Some(*id) && !child.status.is_terminal();
        match self.parked.get(id) {
            None => Some(format!("{id} stands in {status}, and has not waited")),
            Some(Parked::Signals { names, handed }) => signal(names, handed),
            Some(Parked::Children { at_least }) => {
                let of_barrier = |child: &&Instance| {
                    child.parent == Some(*id) && child.parent_barrier == one.family.barrier
                };
                let children = all.iter().filter(of_barrier).count() as u32;
                let left = all.iter().filter(of_barrier).filter(alive).count() as u32;
                let needed = at_least.unwrap_or(children).min(children);
                let ended = children - left;
                (ended >= needed)
                    .then(|| format!("{id} waits for {needed} children, and {ended} have ended"))
            }
            Some(Parked::Turn {
                names,
                held: _,
                ends,
                needed,
                joins,
            }) => {
                let ended = child_ends(history) - ends;
                let left = all.iter().filter(alive).count();
                let enough = needed.is_some_and(|needed| ended >= needed as usize)
                    || (needed.is_some() || *joins) && left == 0;
                signal(names, &BTreeSet::new()).or_else(|| {
                    enough.then(|| {
                        format!(
                            "{id} waits for {needed:?} children, {ended} have ended, {left} live"
                        )
                    })
                })
            }
        }
    }
}

/// The number of ends of children in a history.
pub fn child_ends(history: &[Entry]) -> usize {
    let ends = |entry: &&Entry| matches!(entry.what, HistoryEvent::ChildEnded { .. });
    history.iter().filter(ends).count()
}

fn hold(claim: &Claim) -> (InstanceId, Epoch) {
    (claim.id(), claim.epoch())
}

const fn is_waiting(status: Status) -> bool {
    matches!(status, Status::AwaitingSignal | Status::AwaitingChildren)
}

/// True if [`Waits::stuck`] needs the history of an instance.
pub fn needs_history(one: &Instance) -> bool {
    one.kind == Kind::Workflow
}
