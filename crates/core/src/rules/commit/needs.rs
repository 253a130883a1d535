//! The part of an inbox that an outcome needs.

use crate::model::{Inbox, Name, Outcome, Row, Sequence, Then};
use crate::rules::workflow;

/// The part of an inbox that must be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InboxNeeds {
    /// The signals with these names.
    pub names: Vec<Name>,
    /// The updates.
    pub updates: bool,
    /// Everything.
    pub all: bool,
}

impl InboxNeeds {
    /// Selects everything.
    pub fn at_all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Adds the selection of another.
    pub fn join(&mut self, other: Self) {
        self.updates |= other.updates;
        self.all |= other.all;
        for name in other.names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }
}

/// Returns the part of its inbox that must be loaded before an outcome is applied to a row. Most rows have nothing
/// pending.
pub fn inbox_needs(row: &Row, outcome: &Outcome) -> Option<InboxNeeds> {
    let Inbox {
        signals, updates, ..
    } = row.inbox;
    let mut needs = InboxNeeds {
        updates: updates > 0
            && match outcome {
                Outcome::Answer { .. } => true,
                Outcome::Workflow(turn) => {
                    !turn.updates.is_empty() || matches!(turn.then, Then::Park(_))
                }
                // It continues to wait, and must record which update it runs for.
                Outcome::Wait(_) | Outcome::Spawn { .. } => true,
                _ => false,
            },
        ..InboxNeeds::default()
    };
    match outcome.last() {
        Outcome::Done { .. } | Outcome::Stop { .. } | Outcome::Fail { .. } => {
            needs.all = signals > 0 || updates > 0;
        }
        Outcome::Workflow(_) if outcome.may_end() => needs.all = signals > 0 || updates > 0,
        Outcome::Workflow(turn) if signals > 0 => needs.names = workflow::names(turn),
        Outcome::Wait(wait) if signals > 0 => needs.names.extend(wait.names()),
        Outcome::Next { .. } | Outcome::Spawn { .. } | Outcome::ContinueAsNew { .. }
            if signals > 0 && row.inbox.handed > Sequence::default() =>
        {
            let awaits = row.awaits.as_ref();
            needs
                .names
                .extend(awaits.into_iter().flat_map(|awaits| awaits.names.clone()));
        }
        _ => {}
    }
    (needs != InboxNeeds::default()).then_some(needs)
}
