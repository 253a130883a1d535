//! The permissions that requests need.

use std::collections::BTreeSet;

use abide_core::model::{CommandKind, DocumentKind};

use super::Request;
use crate::{Effects, Op};

/// A permission of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Read data.
    Read,
    /// Send signals and updates, and publish events.
    Send,
    /// Claim instances, and commit the outcomes of their steps.
    Work,
    /// Everything else: start, cancel, delete.
    Operate,
}

impl Right {
    /// Returns the part of the notifications that a caller with only this permission receives. A sender receives the
    /// answers to updates, which it may look up, but not what the workers do. All others may read or process that
    /// anyway.
    pub fn hears(self, told: &Effects) -> Effects {
        match self {
            Self::Read | Self::Work | Self::Operate => told.clone(),
            Self::Send => Effects {
                answered: told.answered.clone(),
                ended_elsewhere: told.ended_elsewhere,
                anything: told.anything,
                ..Effects::default()
            },
        }
    }
}

impl Request {
    /// Returns all permissions that the request needs.
    pub fn needs(&self) -> BTreeSet<Right> {
        match self {
            Self::Run(ops) => ops.iter().flat_map(needs).collect(),
            // They are hashes, but must stay private.
            Self::Documents {
                kind: DocumentKind::Token | DocumentKind::Secret,
                ..
            }
            | Self::Document {
                kind: DocumentKind::Token | DocumentKind::Secret,
                ..
            } => [Right::Operate].into(),
            _ => [Right::Read].into(),
        }
    }
}

fn needs(op: &Op) -> BTreeSet<Right> {
    match op {
        Op::Deliver(deliveries) => deliveries
            .iter()
            .map(|delivery| match (&delivery.start, delivery.kind) {
                (None, CommandKind::Signal | CommandKind::Update) => Right::Send,
                (Some(_), _) | (None, CommandKind::Cancel) => Right::Operate,
            })
            .chain([Right::Send])
            .collect(),
        Op::Publish(_) => [Right::Send].into(),
        Op::Once(requests) => {
            let ops = requests.iter().flat_map(|one| &*one.ops);
            ops.flat_map(needs).collect()
        }
        // Whatever they contain, because they may contain anything.
        Op::Outbox(_) => [Right::Operate].into(),
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
        | Op::Declare { .. } => [Right::Work].into(),
        Op::Start(_)
        | Op::Reserve(_)
        | Op::Cancel(_)
        | Op::Restart(_)
        | Op::Repair(_)
        | Op::Examine { .. }
        | Op::Sweep(_)
        | Op::Survey(_)
        | Op::Refused { .. }
        | Op::Keep(_) => [Right::Operate].into(),
    }
}
