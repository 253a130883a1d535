//! How much attention the health of an instance needs.

use super::{Code, Liveness};
use crate::model::Status;

/// How much attention an instance needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is healthy, or has ended as it should.
    Healthy,
    /// It may go on by itself, and somebody should look at it.
    Attention,
    /// It has failed, or does not go on by itself.
    Bad,
}

/// Returns how much attention an instance needs that has this status and [health](super::health).
pub fn severity(status: Status, liveness: Liveness, reason: Option<Code>) -> Severity {
    match (liveness, reason) {
        (Liveness::Closed, _) => match status {
            Status::Failed => Severity::Bad,
            Status::Cancelled => Severity::Attention,
            _ => Severity::Healthy,
        },
        (
            Liveness::WaitingForWorker
            | Liveness::ReplayBlocked
            | Liveness::Blocked
            | Liveness::RepairNeeded,
            _,
        ) => Severity::Bad,
        // Nothing starts it by itself.
        (Liveness::Scheduled, _) if status == Status::Reserved => Severity::Attention,
        (_, None) => Severity::Healthy,
        (Liveness::Running | Liveness::Ready, Some(_)) => Severity::Attention,
        // It is tried again.
        (Liveness::Scheduled, Some(Code::Failing)) => Severity::Attention,
        // It may have been meant otherwise.
        (
            Liveness::WaitingForSignal
            | Liveness::WaitingForEvent
            | Liveness::WaitingForCondition
            | Liveness::WaitingForChildren,
            Some(Code::SimilarSignal | Code::UnmatchedEvent),
        ) => Severity::Attention,
        (
            Liveness::Scheduled
            | Liveness::WaitingForSignal
            | Liveness::WaitingForEvent
            | Liveness::WaitingForCondition
            | Liveness::WaitingForChildren,
            Some(_),
        ) => Severity::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_is_bad_and_what_may_go_on_needs_attention() {
        // rule 13.1
        use Severity::{Attention, Bad, Healthy};
        for (status, liveness, reason, expected) in [
            (Status::Done, Liveness::Closed, None, Healthy),
            (Status::Continued, Liveness::Closed, None, Healthy),
            (Status::Cancelled, Liveness::Closed, None, Attention),
            (Status::Failed, Liveness::Closed, None, Bad),
            (Status::Executing, Liveness::Running, None, Healthy),
            (
                Status::Executing,
                Liveness::Running,
                Some(Code::WorkerSilent),
                Attention,
            ),
            (Status::Runnable, Liveness::Ready, None, Healthy),
            (
                Status::Runnable,
                Liveness::Ready,
                Some(Code::WorkerDied),
                Attention,
            ),
            (
                Status::Runnable,
                Liveness::WaitingForWorker,
                Some(Code::NoWorker),
                Bad,
            ),
            (Status::Reserved, Liveness::Scheduled, None, Attention),
            (Status::Scheduled, Liveness::Scheduled, None, Healthy),
            (
                Status::Scheduled,
                Liveness::Scheduled,
                Some(Code::Failing),
                Attention,
            ),
            (
                Status::Scheduled,
                Liveness::Scheduled,
                Some(Code::Overdue),
                Bad,
            ),
            (
                Status::AwaitingSignal,
                Liveness::WaitingForSignal,
                None,
                Healthy,
            ),
            (
                Status::AwaitingSignal,
                Liveness::WaitingForSignal,
                Some(Code::SimilarSignal),
                Attention,
            ),
            (
                Status::AwaitingSignal,
                Liveness::WaitingForEvent,
                Some(Code::UnmatchedEvent),
                Attention,
            ),
            (
                Status::AwaitingSignal,
                Liveness::WaitingForSignal,
                Some(Code::Failing),
                Bad,
            ),
            (
                Status::AwaitingSignal,
                Liveness::WaitingForCondition,
                Some(Code::Overdue),
                Bad,
            ),
            (
                Status::AwaitingChildren,
                Liveness::WaitingForChildren,
                Some(Code::ChildrenUnserved),
                Bad,
            ),
            (
                Status::Scheduled,
                Liveness::ReplayBlocked,
                Some(Code::ReplayBlocked),
                Bad,
            ),
            (
                Status::Scheduled,
                Liveness::Blocked,
                Some(Code::Blocked),
                Bad,
            ),
            (
                Status::AwaitingSignal,
                Liveness::RepairNeeded,
                Some(Code::MissedSignal),
                Bad,
            ),
        ] {
            let found = severity(status, liveness, reason);
            assert_eq!(found, expected, "{status} {liveness:?} {reason:?}");
        }
    }
}
