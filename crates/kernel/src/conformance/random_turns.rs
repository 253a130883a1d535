//! Random turns of a workflow's code.

use std::time::Duration;

use abide_core::model::{
    Answered, Blocked, ChildStarts, CommandId, Json, Name, Opened, Operation, OperationKind,
    Outcome, Park, Signature, Start, Taken, Then, Timestamp, Unended, WorkflowTurn,
};

use super::coding::{conditional, signal_waits};
use super::random::Rng;
use super::random_steps::SIGNALS;

/// The machine that is a workflow.
pub const WORKFLOW: &str = "w";

/// The state of a workflow that a worker knows when it runs a turn.
#[derive(Clone, Debug, Default)]
pub struct Knows {
    /// The signals that it can take.
    pub signals: Vec<(CommandId, Name)>,
    /// The updates and cancellations that it can answer.
    pub updates: Vec<CommandId>,
    /// The number of its children that had not ended when it read, and the number of ends that had been counted.
    pub children: u32,
    pub ended: u64,
}

impl Rng {
    /// A turn, in which that operation is begun; it starts no children if there is no `room`.
    pub fn some_turn(
        &mut self,
        knows: &Knows,
        operation: u32,
        now: Timestamp,
        room: bool,
    ) -> Outcome {
        let mut takes = Vec::new();
        for (id, name) in &knows.signals {
            if self.chance(60) {
                takes.push(Taken {
                    id: *id,
                    name: name.clone(),
                    operation: Some(operation),
                    graph_step: None,
                });
            }
        }
        let mut updates = Vec::new();
        for update_id in &knows.updates {
            if self.chance(85) {
                updates.push(Answered {
                    update_id: *update_id,
                    result: Json::of(&self.below(9)).unwrap(),
                    error: self.chance(20).then(|| "not now".to_owned()),
                });
            }
        }
        // The others are being handled, or have no handler yet; or the code has not read them.
        let held = match self.chance(50) {
            true => (knows.updates.len() - updates.len()) as u32,
            false => 0,
        };
        let child_starts = match room && self.chance(30) {
            true => self.between(1, 2),
            false => 0,
        };
        let opened = Operation::Opened(Opened {
            operation,
            signature: Signature::of(OperationKind::Now),
            deadline: None,
            message: None,
            arguments: None,
            graph_step: None,
        });
        Outcome::Workflow(Box::new(WorkflowTurn {
            operations: vec![opened],
            takes,
            updates,
            held,
            children: (1..=child_starts)
                .map(|at| self.some_child_starts(at as u32))
                .collect(),
            state: None,
            then: self.some_then(knows, now),
        }))
    }

    fn some_child_starts(&mut self, operation: u32) -> ChildStarts {
        let count = self.below(4);
        let starts: Vec<Start> = (0..count).map(|_| self.some_start()).collect();
        ChildStarts {
            operation,
            needed: self.below(count + 1) as u32,
            starts,
        }
    }

    fn some_then(&mut self, knows: &Knows, now: Timestamp) -> Then {
        let result = Json::of(&self.below(1000)).unwrap();
        let reason = "no".to_owned();
        match self.below(100) {
            0..22 => Then::GoOn {
                running: self.chance(40),
            },
            22..70 => Then::Park(self.some_park(knows, now)),
            70..78 => Then::Done { result },
            78..82 => Then::Stop { reason },
            82..86 => Then::Cancelled { reason },
            86..92 => Then::ContinueAsNew {
                state: result,
                version: self.chance(20).then_some(1),
            },
            _ => Then::Block(Blocked {
                operation: 1,
                recorded: "a sleep".to_owned(),
                requested: "a step".to_owned(),
                cure: "deploy the code that fits".to_owned(),
            }),
        }
    }

    /// The wait of the turn; now and then that is nothing, and it is refused.
    fn some_park(&mut self, knows: &Knows, now: Timestamp) -> Park {
        let count = *self.pick(&[0, 0, 1, 1, 2, 3]);
        let keys = self.below(3);
        let joins = knows.children > 0 && self.chance(50);
        let events = *self.pick(&[0, 0, 0, 1, 1, 2]);
        // Without a time a wait for an event is refused.
        let some_time = if events > 0 { 95 } else { 55 };
        Park {
            // Small, so that it waits for the same again.
            operation: self.between(1, 3) as u32,
            signals: signal_waits(4, SIGNALS.get(..count).unwrap_or(&SIGNALS)),
            events: (1..=events)
                .map(|operation| (operation, self.some_event_wait()))
                .collect(),
            conditions: match self.chance(20) {
                true => (20..)
                    .zip(SIGNALS.into_iter().map(Some).take(keys).chain([None]))
                    .map(|(operation, key)| conditional(operation, key))
                    .collect(),
                false => Vec::new(),
            },
            until: self
                .chance(some_time)
                .then(|| now + Duration::from_millis(self.below(30_000) as u64)),
            children: joins.then(|| Unended {
                seen: knows.ended,
                needed: self.between(1, knows.children as usize) as u32,
            }),
        }
    }
}
