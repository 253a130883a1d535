//! The output of `--json`: the response of a server, where it has one.

use abide::contract::Accepts;
use abide::model::{Command, CommandKind, Declared};
use serde::Serialize;

use crate::http::dto::{InstanceView, SignalView, UpdateView};
use crate::http::history::EntryView;
use crate::http::machines::MachineView;

/// A signal or an update.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Record {
    /// A signal, or an event that was matched.
    Signal(SignalView),
    /// An update.
    Update(UpdateView),
}

impl From<Command> for Record {
    fn from(one: Command) -> Self {
        match one.kind {
            CommandKind::Update => Self::Update(one.into()),
            _ => Self::Signal(one.into()),
        }
    }
}

/// An instance with all that belongs to it.
#[derive(Serialize)]
pub struct Whole {
    /// The instance.
    #[serde(flatten)]
    pub instance: InstanceView,
    /// The newest events of its history.
    pub history: Vec<EntryView>,
    /// The newest signals that were sent to it.
    pub signals: Vec<SignalView>,
    /// The newest updates.
    pub updates: Vec<UpdateView>,
    /// Its newest children.
    pub children: Vec<InstanceView>,
}

/// A machine with what it takes.
#[derive(Serialize)]
pub struct Machine {
    #[serde(flatten)]
    machine: MachineView,
    signals: Vec<Accepts>,
    updates: Vec<Accepts>,
}

impl From<(Declared, abide::contract::Contract)> for Machine {
    fn from((declared, contract): (Declared, abide::contract::Contract)) -> Self {
        Self {
            machine: declared.into(),
            signals: contract.signals,
            updates: contract.updates,
        }
    }
}
