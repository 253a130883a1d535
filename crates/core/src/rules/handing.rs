//! What a step is handed when it is claimed: the children that it joins, the signals that it waited for, and the updates
//! that come first (rules 7.4, 9.4, 10.2).

use crate::model::{
    Awaits, BarrierNumber, Claimed, CommandKind, Name, Pending, Row, Sequence, WaitKind,
};

/// What must be read for the step of a claimed instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Handed<'a> {
    /// The barrier whose children it joins.
    pub barrier: Option<BarrierNumber>,
    /// The names of the signals and events that it waited for, and the position up to which it is handed them.
    pub signals: Option<(&'a [Name], Sequence)>,
    /// `true` if updates are pending, which may come first.
    pub updates: bool,
}

/// Returns what the step of a claimed instance is handed. One that runs only for its updates is handed nothing else.
pub fn handed(claimed: &Claimed) -> Handed<'_> {
    let (runs, inbox) = (!claimed.aside, claimed.inbox);
    let has_signals = inbox.signals > 0 && inbox.handed > Sequence::default();
    let is_awaited = runs && has_signals && !claimed.awaits.is_empty();
    Handed {
        // A workflow joins none: its operations read their own children.
        barrier: claimed.joins.filter(|barrier| runs && barrier.0 > 0),
        signals: is_awaited.then_some((claimed.awaits.as_slice(), inbox.handed)),
        updates: inbox.updates > 0,
    }
}

/// `true` if a step that waited for these names is handed a pending signal.
pub fn is_handed(awaited: &[Name], upto: Sequence, name: &Name, at: Option<Sequence>) -> bool {
    awaited.contains(name) && at.is_some_and(|at| at <= upto)
}

/// `true` if the step that runs, or ran, was handed that command (rule 7.4).
pub fn was_handed(row: &Row, pending: &Pending) -> bool {
    let upto = row.inbox.handed;
    pending.kind == CommandKind::Signal
        && row.awaits.as_ref().is_some_and(|awaits| {
            is_handed(
                awaits.signals(),
                upto,
                &pending.name,
                Some(pending.sequence),
            )
        })
}

/// `true` if an update is handled before the step: if it arrived before the signal that woke the step, or if no signal
/// woke it (rule 9.4).
pub fn go_first(woken_by: Option<Sequence>, update: Sequence) -> bool {
    woken_by.is_none_or(|signal| update < signal)
}

impl Awaits {
    /// `true` if signals or events end the wait. The names of other waits are those of conditions.
    pub const fn is_for_signals(&self) -> bool {
        matches!(self.kind, WaitKind::Signal | WaitKind::Event)
    }

    /// Returns the names of the signals and events that end the wait.
    pub fn signals(&self) -> &[Name] {
        match self.is_for_signals() {
            true => &self.names,
            false => &[],
        }
    }

    /// Returns the barrier that the step joins, if the wait is for it.
    pub fn joins(&self, barrier: BarrierNumber) -> Option<BarrierNumber> {
        (self.kind == WaitKind::Children).then_some(barrier)
    }

    /// `true` if it waits for a signal of that name.
    pub fn takes(&self, name: &Name) -> bool {
        self.signals().contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Cause, Claim, Epoch, Inbox, InstanceId, Json, Kind, Priority, Timestamp, WorkerId,
    };

    type Change = fn(&mut Claimed);

    fn claimed() -> Claimed {
        Claimed {
            claim: Claim::granted(InstanceId(7), Epoch(1), WorkerId(1), None, None),
            key: None,
            kind: Kind::Machine,
            machine: Name::stored("m"),
            version: 1,
            step: Name::stored("start"),
            step_seq: 1,
            attempt: 0,
            deaths: 0,
            state: Json::null(),
            queue: Name::stored("default"),
            priority: Priority(0),
            due_at: Timestamp::MIN,
            cause: Cause::Signal,
            timed_out: false,
            joins: Some(BarrierNumber(2)),
            children_pending: 0,
            children_ended: 0,
            children: Vec::new(),
            awaited: Vec::new(),
            updates: Vec::new(),
            aside: false,
            inbox: Inbox {
                signals: 3,
                updates: 1,
                handed: Sequence(5),
                ..Inbox::default()
            },
            awaits: vec![Name::stored("paid")],
            policy: None,
        }
    }

    #[test]
    fn a_step_is_handed_its_children_its_signals_and_its_updates() {
        // rules 7.4, 9.4, 10.2
        let paid = [Name::stored("paid")];
        let all = Handed {
            barrier: Some(BarrierNumber(2)),
            signals: Some((&paid, Sequence(5))),
            updates: true,
        };
        let no_signals = Handed {
            signals: None,
            ..all
        };
        let no_children = Handed {
            barrier: None,
            ..all
        };
        let only_updates = Handed {
            updates: true,
            ..Handed::default()
        };
        let cases: [(Change, Handed<'_>); 7] = [
            (|_| {}, all),
            (|one| one.aside = true, only_updates),
            (|one| one.joins = Some(BarrierNumber(0)), no_children),
            (|one| one.awaits.clear(), no_signals),
            (|one| one.inbox.signals = 0, no_signals),
            (|one| one.inbox.handed = Sequence(0), no_signals),
            (
                |one| one.inbox.updates = 0,
                Handed {
                    updates: false,
                    ..all
                },
            ),
        ];
        for (at, (change, expected)) in cases.into_iter().enumerate() {
            let mut one = claimed();
            change(&mut one);
            assert_eq!(handed(&one), expected, "case {at}");
        }
    }

    #[test]
    fn a_step_is_handed_what_had_arrived_of_what_it_waited_for() {
        // rule 7.4
        let awaited = [Name::stored("paid"), Name::stored("sent")];
        for (name, at, expected) in [
            ("paid", Some(4), true),
            ("sent", Some(5), true),
            ("sent", Some(6), false),
            ("sent", None, false),
            ("other", Some(4), false),
        ] {
            let name = Name::stored(name);
            let is = is_handed(&awaited, Sequence(5), &name, at.map(Sequence));
            assert_eq!(is, expected, "{name} at {at:?}");
        }
    }
}
