//! Workflows in a simulation: turns that know what is there, and what must have become of each.

use std::collections::BTreeSet;

use abide_kernel::conformance::random_steps::lanes;
use abide_kernel::conformance::random_turns::Knows;
use abide_kernel::model::{
    CommandId, CommandKind, CommandStatus, HistoryEvent, InstanceId, Operation, Outcome, Status,
    Then, WorkflowTurn,
};
use abide_kernel::{Answer, Clock, Op};

use crate::world::{Heard, Held, World};

impl World {
    /// A turn of a workflow whose worker has read the inbox just now.
    pub fn some_turn(
        &mut self,
        id: InstanceId,
        mut updates: Vec<CommandId>,
        (children, ended): (u32, u64),
    ) -> Outcome {
        let mut signals = Vec::new();
        for one in self.inbox(id) {
            match one.kind {
                CommandKind::Signal => signals.push((one.id, one.name)),
                _ if updates.contains(&one.id) => {}
                _ => updates.push(one.id),
            }
        }
        let knows = Knows {
            signals,
            updates,
            children,
            ended,
        };
        self.operations += 1;
        let room = self.has_room();
        let now = self.clock.now();
        self.rng.some_turn(&knows, self.operations, now, room)
    }

    /// Checks that a turn which was acknowledged did all that it contains: recorded its operations once, took exactly
    /// what it named, answered what it answered; or, when its code did not fit, nothing (rules 12.2, 12.3 and 12.4).
    pub fn check_turn(&self, held: &Held, turn: &WorkflowTurn) {
        let id = held.claim.id();
        let blocks = matches!(turn.then, Then::Block(_));
        let history = self.history(id);
        for operation in &turn.operations {
            let Operation::Opened(wanted) = operation else {
                continue;
            };
            let recorded = history.iter().filter(|entry| match &entry.what {
                HistoryEvent::OperationOpened(opened) => opened.operation == wanted.operation,
                _ => false,
            });
            assert_eq!(recorded.count(), usize::from(!blocks), "{id}: {wanted:?}");
        }
        let records = self.records();
        let of_this = |kinds: &[CommandStatus]| -> BTreeSet<CommandId> {
            let here = records
                .iter()
                .filter(|one| one.instance == Some(id) && one.step_sequence == Some(held.step_seq));
            let here = here.filter(|one| kinds.contains(&one.status));
            here.map(|one| one.id).collect()
        };
        let takes = turn.takes.iter().map(|taken| taken.id);
        let answers = turn.updates.iter().map(|answered| answered.update_id);
        let none = BTreeSet::new;
        let (takes, answers) = match blocks {
            true => (none(), none()),
            false => (takes.collect(), answers.collect()),
        };
        assert_eq!(of_this(&[CommandStatus::Applied]), takes, "{id} takes");
        // One that failed of its step's time limit may have the same number.
        let mut answered = of_this(&[CommandStatus::Completed, CommandStatus::Failed]);
        answered.retain(|id| held.pending.contains(id));
        assert_eq!(answered, answers, "{id} answers");
    }

    /// An engine starts, and what it may have code for is tried again.
    pub fn release(&mut self) {
        let before: BTreeSet<InstanceId> = self.blocked();
        let limit = self.rng.between(1, 4);
        self.tell(format!(
            "up to {limit} of {} blocked are released",
            before.len()
        ));
        let op = Op::ReleaseBlocked {
            build: None,
            fresh: false,
            lanes: lanes(),
            after: InstanceId(0),
            limit,
        };
        if let Heard::Answers(answers) = self.send([op].into()) {
            let [Answer::Released { count, .. }] = answers.as_slice() else {
                panic!("{answers:?}")
            };
            assert_eq!(*count, before.len().min(limit));
            let after = self.blocked();
            assert_eq!(after.len() + count, before.len());
            let let_go = before.difference(&after);
            for id in let_go {
                let found = self.instances().into_iter().find(|one| one.id == *id);
                let runs = found.unwrap().status == Status::Runnable;
                assert!(runs || self.met_taken_key(*id), "{id}");
            }
        }
    }

    fn blocked(&self) -> BTreeSet<InstanceId> {
        let instances = self.instances().into_iter();
        let blocked = instances.filter(|one| one.is_blocked());
        blocked.map(|one| one.id).collect()
    }
}
