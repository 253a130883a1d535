//! What an operator asks for, and the answers.

use serde::{Deserialize, Serialize};

use super::{InstanceId, Status, Target};

/// A request to cancel an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The instance.
    pub target: Target,
    /// The reason.
    pub reason: String,
    /// The effect on its children.
    pub children: Children,
    /// `true` if a workflow is ended at once, without running its code.
    pub force: bool,
    /// The caller, as known to the program or the server that opened the store.
    pub source: Option<String>,
    /// The caller, as the caller of a server claimed it (rule 7.3): at most 255 bytes without control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_source: Option<String>,
}

/// The effect of a cancellation on the children of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// They are cancelled too, and so are their children.
    #[default]
    Cascade,
    /// They continue.
    Leave,
}

/// The answer to a request to cancel, restart or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operated {
    /// No instance has that id or key.
    NoTarget,
    /// It was cancelled, together with this number of its children.
    Cancelled {
        /// The instance.
        id: InstanceId,
        /// Number of children.
        children: usize,
    },
    /// A workflow will be cancelled when its code has cleaned up. This number of its children is cancelled too.
    Cancelling {
        /// The instance.
        id: InstanceId,
        /// Number of children.
        children: usize,
    },
    /// A new run was opened.
    Restarted {
        /// The new run.
        id: InstanceId,
        /// Its number.
        run_number: u32,
    },
    /// Nothing was wrong with it.
    RepairNotNeeded,
    /// A problem was repaired.
    RepairDispatched,
    /// It has ended (rules 11.2 and 11.3).
    NotActive(Status),
    /// It is neither failed nor cancelled.
    NotRestartable(Status),
    /// It is reserved and was not started.
    NotStarted,
    /// The run is not the newest of its chain.
    NotCurrent(InstanceId),
    /// Another instance has taken its key meanwhile.
    KeyTaken(InstanceId),
}

impl Operated {
    /// The outcome that the caller gets.
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::NoTarget => "no_target",
            Self::Cancelled { .. } => "cancelled",
            Self::Cancelling { .. } => "cancelling",
            Self::Restarted { .. } => "restarted",
            Self::RepairNotNeeded => "repair_not_needed",
            Self::RepairDispatched => "repair_dispatched",
            Self::NotActive(_) => "rejected_not_active",
            Self::NotRestartable(_) => "rejected_not_restartable",
            Self::NotStarted => "rejected_not_started",
            Self::NotCurrent(_) => "rejected_not_current",
            Self::KeyTaken(_) => "duplicate",
        }
    }
}
