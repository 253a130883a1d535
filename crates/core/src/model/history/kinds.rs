//! The names of the kinds of history events.

use super::HistoryEvent;

impl HistoryEvent {
    /// The names of all kinds.
    pub const KINDS: [&'static str; 31] = [
        "started",
        "step_completed",
        "step_failed",
        "retried",
        "wait_opened",
        "signal_received",
        "event_matched",
        "signal_applied",
        "signal_discarded",
        "message_cursor_advanced",
        "update_accepted",
        "update_completed",
        "update_failed",
        "timed_out",
        "children_spawned",
        "child_ended",
        "children_joined",
        "reclaimed",
        "key_given_up",
        "repaired",
        "operation_opened",
        "operation_completed",
        "operation_retried",
        "replay_blocked",
        "blocked",
        "handed_again",
        "cancel_requested",
        "cancelled",
        "continued",
        "done",
        "failed",
    ];

    /// Its name, as shown to readers.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::StepCompleted { .. } => "step_completed",
            Self::StepFailed { .. } => "step_failed",
            Self::Retried { .. } => "retried",
            Self::WaitOpened { .. } => "wait_opened",
            Self::SignalReceived { .. } => "signal_received",
            Self::EventMatched { .. } => "event_matched",
            Self::SignalApplied { .. } => "signal_applied",
            Self::SignalDiscarded { .. } => "signal_discarded",
            Self::MessageCursorAdvanced { .. } => "message_cursor_advanced",
            Self::UpdateAccepted { .. } => "update_accepted",
            Self::UpdateCompleted { .. } => "update_completed",
            Self::UpdateFailed { .. } => "update_failed",
            Self::TimedOut { .. } => "timed_out",
            Self::ChildrenSpawned { .. } => "children_spawned",
            Self::ChildEnded { .. } => "child_ended",
            Self::ChildrenJoined { .. } => "children_joined",
            Self::Reclaimed { .. } => "reclaimed",
            Self::KeyGivenUp { .. } => "key_given_up",
            Self::Repaired { .. } => "repaired",
            Self::OperationOpened(_) => "operation_opened",
            Self::OperationCompleted(_) => "operation_completed",
            Self::OperationRetried(_) => "operation_retried",
            Self::ReplayBlocked(_) => "replay_blocked",
            Self::Blocked { .. } => "blocked",
            Self::HandedAgain { .. } => "handed_again",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::Cancelled { .. } => "cancelled",
            Self::Continued { .. } => "continued",
            Self::Done => "done",
            Self::Failed { .. } => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_its_name() {
        let unknown = serde_json::from_str::<HistoryEvent>(r#"{"kind":"nothing","data":null}"#);
        let known = HistoryEvent::KINDS
            .map(|kind| format!("`{kind}`"))
            .join(", ");
        let error = unknown.unwrap_err().to_string();
        assert!(
            error.contains(&format!("expected one of {known} at")),
            "{error}"
        );
    }
}
