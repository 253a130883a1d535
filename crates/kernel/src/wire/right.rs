//! What one must be allowed to do to be answered.

use std::collections::BTreeSet;

use abide_core::model::{CommandKind, DocumentKind};

use super::Request;
use crate::{Effects, Op};

/// Something that one must be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// To look at things.
    Read,
    /// To send signals and updates, and to publish events.
    Send,
    /// To claim instances and to commit what their steps answer.
    Work,
    /// Everything else: to start, to cancel, to delete.
    Operate,
}

impl Right {
    /// What is heard of the news by who may do this and nothing else. Who sends hears of answers to updates, which it may look
    /// up, and not what is worked on here; all others may look at that anyway, or work on it.
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
    /// All that one must be allowed to do to be answered.
    pub fn needs(&self) -> BTreeSet<Right> {
        match self {
            Self::Run(ops) => ops.iter().flat_map(needs).collect(),
            // They are hashes, but nobody's business.
            Self::Documents(DocumentKind::Token | DocumentKind::Secret)
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
        | Op::Keep(_) => [Right::Operate].into(),
    }
}
