//! The permissions that requests need.

use std::collections::BTreeSet;

use abide_core::model::{CommandKind, DocumentKind};

use super::Request;
use crate::{Effects, Op, Query};

/// A permission of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Read data.
    Read,
    /// Send signals and updates, and publish events.
    Send,
    /// Claim instances, and commit the outcomes of their steps.
    Work,
    /// Everything else: start, cancel, delete.
    Operate,
}

impl Permission {
    /// Returns the part of the notifications that a caller with only this permission receives. A sender receives the
    /// answers to updates, which it may look up, but not what the workers do. All others may read or process that
    /// anyway.
    pub fn visible_effects(self, effects: &Effects) -> Effects {
        match self {
            Self::Read | Self::Work | Self::Operate => effects.clone(),
            Self::Send => Effects {
                answered: effects.answered.clone(),
                ended_elsewhere: effects.ended_elsewhere,
                anything: effects.anything,
                ..Effects::default()
            },
        }
    }
}

impl Request {
    /// Returns all permissions that the request needs.
    pub fn needs(&self) -> BTreeSet<Permission> {
        match self {
            Self::Run(ops) => ops.iter().flat_map(needs).collect(),
            // They are hashes, but must stay private.
            Self::Read(
                Query::Documents {
                    kind: DocumentKind::Token | DocumentKind::Secret,
                    ..
                }
                | Query::Document {
                    kind: DocumentKind::Token | DocumentKind::Secret,
                    ..
                },
            ) => [Permission::Operate].into(),
            // Its requests may contain anything.
            Self::Read(Query::Outbox { .. }) => [Permission::Operate].into(),
            _ => [Permission::Read].into(),
        }
    }
}

fn needs(op: &Op) -> BTreeSet<Permission> {
    match op {
        Op::Deliver(deliveries) => deliveries
            .iter()
            .map(|delivery| match (&delivery.start, delivery.kind) {
                (None, CommandKind::Signal | CommandKind::Update) => Permission::Send,
                (Some(_), _) | (None, CommandKind::Cancel) => Permission::Operate,
            })
            .chain([Permission::Send])
            .collect(),
        Op::Publish(_) => [Permission::Send].into(),
        Op::Once(requests) => {
            let ops = requests.iter().flat_map(|one| &*one.ops);
            ops.flat_map(needs).collect()
        }
        // Whatever they contain, because they may contain anything.
        Op::Outbox(_) => [Permission::Operate].into(),
        Op::Claim(_)
        | Op::Commit { .. }
        | Op::Extend(_)
        | Op::Register(_)
        | Op::Enlist(_)
        | Op::Renew { .. }
        | Op::GiveBack(_)
        | Op::GiveBackExcept { .. }
        | Op::SignOff { .. }
        | Op::SignOffNamed { .. }
        | Op::Fire { .. }
        | Op::PassOver { .. }
        | Op::Expire { .. }
        | Op::Reclaim { .. }
        | Op::ReleaseBlocked { .. }
        | Op::Declare { .. } => [Permission::Work].into(),
        Op::Start(_)
        | Op::Reserve(_)
        | Op::Cancel(_)
        | Op::Restart(_)
        | Op::Repair(_)
        | Op::Examine { .. }
        | Op::Sweep(_)
        | Op::Survey(_)
        | Op::Refused { .. }
        | Op::Keep(_) => [Permission::Operate].into(),
    }
}
