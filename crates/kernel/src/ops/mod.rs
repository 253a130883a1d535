//! The operations, one file each, all of one shape: load under lock, ask the rules, write the change.

pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod partition;
pub(crate) mod start;
pub(crate) mod sweep;
pub(crate) mod timers;
pub(crate) mod workers;

use abide_core::model::{Claim, Key, Outcome};

use crate::Op;

/// The partitions that an operation names itself, to be locked before anything else is.
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
                if let Outcome::Spawn { children, .. } = &commit.outcome {
                    keys.extend(
                        children
                            .iter()
                            .filter_map(|child| child.partition_key.as_ref()),
                    );
                }
            }
            keys
        }
        Op::GiveBack(claims) => claims.iter().filter_map(Claim::partition).collect(),
        _ => Vec::new(),
    }
}
