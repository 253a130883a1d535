//! What rules read of commands and instances in memory.

use abide_core::model::{Command, Declared, Instance, Pending, Policies};

/// Converts a pending command to the form that the rules use.
pub(super) fn to_pending(command: &Command) -> Pending {
    Pending {
        id: command.id,
        kind: command.kind,
        name: command.name.clone(),
        sequence: command.sequence.unwrap_or_default(),
        command_sequence: command.command_sequence,
        wait_id: command.wait_id.clone(),
    }
}

/// Returns the error policies of an instance; `None` if neither it nor its machine has any.
pub(super) fn policies(of: &Instance, declared: Option<&Declared>) -> Option<Policies> {
    let of = Policies {
        own: of.policy.clone(),
        declared: declared.and_then(Declared::policy),
    };
    (of != Policies::default()).then_some(of)
}
