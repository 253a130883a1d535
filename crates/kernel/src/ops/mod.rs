//! The operations, one file each. All have the same shape: load under lock, ask the rules, write the change.

pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod deliver;
pub(crate) mod examine;
pub(crate) mod keep;
pub(crate) mod keys;
mod look_back;
pub(crate) mod once;
pub(crate) mod operate;
pub(crate) mod outbox;
pub(crate) mod partition;
pub(crate) mod publish;
mod resolve;
mod restarted;
mod runs;
mod signal_with_start;
mod skip_locked;
pub(crate) mod start;
pub(crate) mod survey;
pub(crate) mod sweep;
pub(crate) mod timers;
pub(crate) mod workers;

use std::collections::BTreeSet;

use abide_core::model::{Claim, Key, Name, Target};
use abide_core::rules::event::awaited_types;

use crate::Op;
use crate::op::TYPE_KEY;

/// Returns the partitions that an operation names itself. They are locked before any row.
pub(crate) fn partitions_of(op: &Op) -> Vec<&Key> {
    match op {
        Op::Start(starts) => starts
            .iter()
            .filter_map(|start| start.partition_key.as_ref())
            .collect(),
        Op::Commit { commits, .. } => {
            let mut keys = Vec::new();
            for commit in commits {
                keys.extend(commit.claim.partition());
                keys.extend(
                    commit
                        .claim
                        .parent()
                        .and_then(|parent| parent.partition.as_ref()),
                );
                let children = commit::spawned(commit).into_iter();
                keys.extend(children.filter_map(|child| child.partition_key.as_ref()));
            }
            keys
        }
        Op::Deliver(deliveries) => deliveries
            .iter()
            .filter_map(|delivery| delivery.start.as_ref()?.partition_key.as_ref())
            .collect(),
        // A claim that is extended does not change its position in its partition.
        Op::GiveBack(claims) => claims.iter().filter_map(Claim::partition).collect(),
        _ => Vec::new(),
    }
}

/// The keys under which operations start something, and the keys that must stay free meanwhile.
#[derive(Default)]
pub(crate) struct Keys<'o> {
    pub shared: BTreeSet<&'o Key>,
    pub alone: BTreeSet<&'o Key>,
    /// The event types that are published, and those for which a waiter is opened. Opening a waiter excludes publishing
    /// (rule 14.6).
    pub published: BTreeSet<Key>,
    pub awaited: BTreeSet<Key>,
}

impl<'o> Keys<'o> {
    pub fn note(&mut self, op: &'o Op) {
        match op {
            Op::Start(starts) => self
                .shared
                .extend(starts.iter().filter_map(|start| start.key.as_ref())),
            Op::Reserve(reservations) => {
                self.shared.extend(reservations.iter().map(|(_, key)| key))
            }
            Op::Commit { commits, .. } => {
                for commit in commits {
                    let children = commit::spawned(commit).into_iter();
                    self.shared
                        .extend(children.filter_map(|child| child.key.as_ref()));
                    let types = awaited_types(&commit.outcome).into_iter();
                    self.awaited.extend(types.map(key_of));
                }
            }
            Op::Publish(publishes) => {
                let types = publishes.iter().map(|publish| &publish.event_type);
                self.published.extend(types.map(key_of));
            }
            Op::Deliver(deliveries) => {
                for delivery in deliveries {
                    match (&delivery.start, &delivery.target) {
                        (Some(start), _) => self.alone.extend(start.key.as_ref()),
                        (None, Target::Key(key)) if delivery.hold_for.is_some() => {
                            self.alone.insert(key);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the key that stands for an event type among the locked keys.
fn key_of(event_type: &Name) -> Key {
    Key::stored(format!("{TYPE_KEY}{event_type}"))
}
