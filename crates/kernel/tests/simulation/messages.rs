//! Signals, updates and operators in a simulation, and what must become of each message.

use std::collections::BTreeSet;

use abide_kernel::conformance::random_steps::{MACHINES, name};
use abide_kernel::model::{
    Cancel, Children, Claimed, Command, CommandId, CommandKind, CommandStatus, Delivered, Instance,
    InstanceId, Name, NewCommand, Operated, Outcome, Status, Target,
};
use abide_kernel::{Answer, Op};

use crate::world::{Heard, Held, World};

impl World {
    fn known(&self) -> Vec<InstanceId> {
        self.seen.keys().copied().collect()
    }

    pub fn some_deliveries(&mut self) -> Vec<NewCommand> {
        let known = self.known();
        let count = self.rng.between(1, 4);
        (0..count).map(|_| self.rng.some_delivery(&known)).collect()
    }

    pub fn some_cancel(&mut self) -> Cancel {
        let known = self.known();
        self.rng.some_cancel(&known)
    }

    pub fn some_restart(&mut self) -> (Target, Option<Name>) {
        let known = self.known();
        self.rng.some_restart(&known)
    }

    /// Delivers messages; if the answer is lost, sends them again, and those with a dedup key are the same then.
    pub fn deliver(&mut self) {
        let mut deliveries = self.some_deliveries();
        let described: Vec<String> = deliveries
            .iter()
            .map(|one| format!("{} to {}", one.name, one.target))
            .collect();
        self.tell(format!("deliver {}", described.join(", ")));
        if let Heard::Lost(first) = self.send([Op::Deliver(deliveries.clone())].into()) {
            self.tell("  they are sent again".into());
            let mut first = delivered(first);
            let mut keyed = deliveries.iter().map(|one| one.dedup_key.is_some());
            first.retain(|_| keyed.next().unwrap());
            deliveries.retain(|one| one.dedup_key.is_some());
            let again = self.run([Op::Deliver(deliveries.clone())].into()).unwrap();
            let answers = first.iter().zip(delivered(again));
            for (delivery, (first, again)) in deliveries.iter().zip(answers) {
                let (first, again) = (first.as_ref(), again.as_ref());
                // A message may take the key of the instance that it wakes (rule 2.8): it came to one chain and then another.
                let by_key = matches!(delivery.target, Target::Key(_));
                if !by_key || chain(first) == chain(again) {
                    check_same(first, again);
                }
            }
        }
    }

    pub fn cancel(&mut self) {
        let cancel = self.some_cancel();
        self.tell(format!("cancel {}", cancel.target));
        self.send([Op::Cancel(vec![cancel])].into());
    }

    pub fn restart(&mut self) {
        let restart = self.some_restart();
        self.tell(format!("restart {}", restart.0));
        let target = restart.0.clone();
        self.send([Op::Restart(vec![restart])].into());
        if self.instances().iter().any(|one| one.is_blocked()) {
            return;
        }
        // What only the engine wrote never needs repair.
        let repaired = self.run([Op::Repair(vec![target])].into()).unwrap();
        let dispatched = Answer::Operated(vec![Operated::RepairDispatched]);
        assert_ne!(repaired, [dispatched]);
    }

    pub fn reserve(&mut self) {
        let (machine, _) = *self.rng.pick(&MACHINES);
        let key = self.rng.some_key();
        self.tell(format!("{key} is reserved for {machine}"));
        self.send([Op::Reserve(vec![(name(machine), key)])].into());
    }

    /// Cancels what is still reserved, and workflows that wait without a deadline: nothing else will end them.
    pub fn cancel_forgotten(&mut self) {
        let forgotten = |one: &Instance| {
            let waits = one.status == Status::AwaitingSignal && one.due_at.is_none();
            waits || one.status == Status::Reserved
        };
        let instances = self.instances().into_iter().filter(forgotten);
        for one in instances {
            let history = self.history(one.id);
            let requested = history
                .iter()
                .any(|entry| entry.what.kind() == "cancel_requested");
            let cancel = Cancel {
                target: one.id.into(),
                reason: "nothing came".to_owned(),
                children: Children::Leave,
                // One with a request before does not get another.
                force: requested,
                source: None,
                claimed_source: None,
            };
            let answers = self.run([Op::Cancel(vec![cancel])].into()).unwrap();
            let (id, children) = (one.id, 0);
            let answer = match requested || one.status == Status::Reserved {
                true => Operated::Cancelled { id, children },
                false => Operated::Cancelling { id, children },
            };
            // The end of a child that was cancelled before may have failed it.
            let answered = |operated| answers == [Answer::Operated(vec![operated])];
            let failed = self.met_taken_key(id)
                && (answered(Operated::NotActive(Status::Failed))
                    || answered(Operated::NotActive(Status::Cancelled)));
            assert!(
                failed || answers == [Answer::Operated(vec![answer])],
                "{answers:?}"
            );
        }
    }

    /// Checks that a claim brings pending signals of the names that were waited for, in order, and updates that came
    /// before them.
    pub fn check_handed(&self, claimed: &Claimed) {
        let id = claimed.claim.id();
        let position = |one: &Command| one.sequence.unwrap();
        for pack in [&claimed.awaited, &claimed.updates] {
            assert!(
                pack.iter().map(position).is_sorted(),
                "{id} is handed {pack:?}"
            );
            assert!(
                pack.iter()
                    .all(|one| one.status.is_pending() && one.instance == Some(id))
            );
        }
        let waited_for = |one: &Command| claimed.awaits.contains(&one.name);
        assert!(
            claimed.awaited.iter().all(waited_for),
            "{id} is handed {:?}",
            claimed.awaited
        );
        assert!(
            !claimed.aside || claimed.awaited.is_empty(),
            "{id} has no step to hand to"
        );
        if let Some(first) = claimed.awaited.first() {
            let before = |one: &Command| position(one) < position(first);
            assert!(
                claimed.updates.iter().all(before),
                "{id} handles {:?}",
                claimed.updates
            );
        }
    }

    fn has_failed(&self, id: InstanceId) -> bool {
        let all = self.instances();
        all.iter()
            .any(|one| one.id == id && one.status == Status::Failed)
    }

    /// Checks that a commit which was acknowledged consumed exactly what its step was handed (rule 4.1).
    pub fn check_consumed(&self, held: &Held, outcome: &Outcome) {
        let id = held.claim.id();
        let consumes = matches!(
            outcome,
            Outcome::Next { .. }
                | Outcome::Spawn { .. }
                | Outcome::ContinueAsNew { .. }
                | Outcome::Done { .. }
                | Outcome::Stop { .. }
        ) || (matches!(outcome, Outcome::Fail { .. }) && self.has_failed(id));
        let applied: BTreeSet<CommandId> = self
            .records()
            .iter()
            .filter(|one| one.status == CommandStatus::Applied && one.kind == CommandKind::Signal)
            .filter(|one| one.instance == Some(id) && one.step_sequence == Some(held.step_seq))
            .map(|one| one.id)
            .collect();
        let expected: BTreeSet<CommandId> = match consumes {
            true => held.awaited.iter().copied().collect(),
            false => BTreeSet::new(),
        };
        assert_eq!(applied, expected, "{id} was handed {:?}", held.awaited);
    }
}

fn delivered(answers: Vec<Answer>) -> Vec<Option<Delivered>> {
    match answers.into_iter().next() {
        Some(Answer::Delivered(each)) => each.into_iter().map(Result::ok).collect(),
        other => panic!("a delivery is not answered with {other:?}"),
    }
}

/// The chain that a message came to.
fn chain(delivered: Option<&Delivered>) -> Option<InstanceId> {
    delivered?.record.as_ref()?.chain
}

/// Checks that what was accepted is the same when it is sent again.
fn check_same(first: Option<&Delivered>, again: Option<&Delivered>) {
    let Some(first) = first.filter(|first| first.verdict.rejection().is_none()) else {
        return;
    };
    let record = |one: &Delivered| one.record.as_ref().map(|record| record.id);
    let again = again.unwrap_or_else(|| panic!("{first:?} is refused when it is sent again"));
    assert_eq!(record(first), record(again), "{first:?} is not {again:?}");
    assert!(again.duplicate || again.record.is_none());
}
