//! Short constructors for the turns of a workflow's code.

use abide_core::model::{
    Answered, Blocked, ChildStarts, Command, CommandId, Commit, Committed, Completed,
    ConditionWait, Ending, InstanceId, Json, Kind, Opened, Operation, OperationKind, Outcome, Park,
    SignalWait, Signature, Start, Status, Taken, Then, Timestamp, Unended, WorkerId, WorkflowTurn,
};
use abide_core::rules::liveness::{Health, Liveness};

use super::build::{done, json, lane, name, plain};
use super::lab::Lab;
use crate::describe;

/// A start of the machine `m` as a workflow.
pub(super) fn workflow() -> Start {
    Start {
        kind: Some(Kind::Workflow),
        state: json("{\"input\":1}"),
        ..plain()
    }
}

/// Children of the machine `n`, which no worker of these tests claims by accident.
pub(super) fn child_starts(count: usize) -> Vec<Start> {
    vec![Start::of(name("n"), Json::null()); count]
}

/// A wait for any of these signals, each of an operation: of that one, the next …
pub(super) fn awaiting(operation: u32, signals: &[&str]) -> Park {
    let last = operation + u32::try_from(signals.len()).unwrap() - 1;
    Park {
        operation: last,
        signals: signal_waits(operation, signals),
        ..Park::default()
    }
}

/// Waits for these signals, of that operation, the next …
pub(super) fn signal_waits(operation: u32, signals: &[&str]) -> Vec<SignalWait> {
    let wait = |(operation, signal): (u32, &&str)| SignalWait {
        operation,
        name: name(signal),
        deadline: None,
    };
    (operation..).zip(signals).map(wait).collect()
}

/// The same wait, which all of its operations end at that moment.
pub(super) fn until(mut park: Park, deadline: Timestamp) -> Park {
    for wait in &mut park.signals {
        wait.deadline = Some(deadline);
    }
    Park {
        until: Some(deadline),
        ..park
    }
}

/// A wait for a condition with that key.
pub(super) fn condition(operation: u32, key: &str) -> Park {
    Park {
        operation,
        conditions: vec![conditional(operation, Some(key))],
        ..Park::default()
    }
}

/// A condition of an operation, with that key.
pub(super) fn conditional(operation: u32, key: Option<&str>) -> ConditionWait {
    ConditionWait {
        operation,
        key: key.map(name),
        deadline: None,
    }
}

/// A wait for time alone.
pub(super) fn sleep(operation: u32, until: Timestamp) -> Park {
    Park {
        operation,
        until: Some(until),
        ..Park::default()
    }
}

/// A wait for children of earlier turns.
pub(super) fn joining(operation: u32, seen: u64, needed: u32) -> Park {
    Park {
        operation,
        children: Some(Unended { seen, needed }),
        ..Park::default()
    }
}

/// A wait for nothing but the children that the turn itself starts.
pub(super) fn awaiting_children(operation: u32) -> Park {
    Park {
        operation,
        ..Park::default()
    }
}

/// The code goes on.
pub(super) fn go_on() -> Then {
    Then::GoOn { running: false }
}

pub(super) fn ended() -> Then {
    Then::Done {
        result: json("{\"sum\":42}"),
    }
}

/// The code does not fit: a sleep was recorded, and it requests a step.
pub(super) fn unfit() -> Then {
    Then::Block(Blocked {
        operation: 2,
        recorded: "sleep".to_owned(),
        requested: "step \"charge\"".to_owned(),
        cure: "deploy the code that fits".to_owned(),
    })
}

pub(super) fn opened(operation: u32, kind: OperationKind, of: &str) -> Operation {
    Operation::Opened(Opened {
        operation,
        signature: Signature::named(kind, name(of)),
        deadline: None,
        message: None,
        arguments: None,
        graph_step: None,
    })
}

pub(super) fn completed(operation: u32, kind: OperationKind, of: &str, value: &str) -> Operation {
    Operation::Completed(Completed {
        operation: Some(operation),
        operation_kind: kind,
        name: Some(name(of)),
        message: None,
        arguments: None,
        attempts: None,
        duration_us: None,
        graph_step: None,
        outcome: Ending::Value(json(value)),
    })
}

/// One turn of a workflow's code, put together.
#[derive(Clone)]
pub(super) struct Coded(WorkflowTurn);

impl Coded {
    pub fn then(then: Then) -> Self {
        Self(WorkflowTurn::of(then))
    }

    pub fn parks(park: Park) -> Self {
        Self::then(Then::Park(park))
    }

    pub fn tells(mut self, operations: Vec<Operation>) -> Self {
        self.0.operations.extend(operations);
        self
    }

    pub fn takes(mut self, signals: &[&Command]) -> Self {
        let taken = |signal: &&Command| Taken {
            id: signal.id,
            name: signal.name.clone(),
            operation: None,
            graph_step: None,
        };
        self.0.takes.extend(signals.iter().map(taken));
        self
    }

    /// Takes a signal by that operation, of that step of a graph.
    pub fn takes_by(mut self, operation: u32, step: Option<&str>, signal: &Command) -> Self {
        self.0.takes.push(Taken {
            id: signal.id,
            name: signal.name.clone(),
            operation: Some(operation),
            graph_step: step.map(name),
        });
        self
    }

    /// Answers updates, or cancellations.
    pub fn answers(mut self, updates: &[CommandId]) -> Self {
        let good = |update_id: &CommandId| Answered {
            update_id: *update_id,
            result: json("{\"ok\":1}"),
            error: None,
        };
        self.0.updates.extend(updates.iter().map(good));
        self
    }

    /// Keeps so many updates that it has not answered.
    pub fn holds(mut self, updates: u32) -> Self {
        self.0.held = updates;
        self
    }

    pub fn starts(mut self, operation: u32, starts: Vec<Start>, needed: u32) -> Self {
        self.0.children.push(ChildStarts {
            operation,
            starts,
            needed,
        });
        self
    }
}

impl From<Coded> for Outcome {
    fn from(turn: Coded) -> Self {
        Self::Workflow(Box::new(turn.0))
    }
}

/// A commit that would like to go on with the next turn.
pub(super) fn keeping(commit: Commit) -> Commit {
    Commit {
        keep: true,
        ..commit
    }
}

impl Lab {
    /// Starts a workflow and runs its first turn; it must be what is claimed first.
    pub(super) async fn coded(&self, worker: WorkerId, start: Start, turn: Coded) -> InstanceId {
        let id = self.start(start).await;
        self.turn(worker, id, turn).await;
        id
    }

    /// Claims a workflow, which must come first, and commits its turn; where it then stands.
    pub(super) async fn turn(&self, worker: WorkerId, id: InstanceId, turn: Coded) -> Status {
        let claimed = self.claim(worker).await;
        assert_eq!(claimed.claim.id(), id);
        match self.commit(claimed.claim, turn.into()).await {
            Committed::Moved(status) => status,
            other => panic!("the turn should be taken, and is {other:?}"),
        }
    }

    /// Ends so many children of the machine `n`, each in a commit of its own; they are claimed in their order.
    pub(super) async fn end_children(&self, worker: WorkerId, count: usize) {
        for _ in 0..count {
            let lanes = vec![lane("n", 1)];
            let child = self.claim_from(worker, "default", lanes, 1).await.pop();
            let claim = child.expect("a child is runnable").claim;
            self.commit(claim, done()).await;
        }
    }

    /// The health of an instance.
    pub(super) async fn health(&self, id: InstanceId) -> Health {
        let found = describe(&*self.store, &id.into())
            .await
            .expect("it is read");
        found.expect("it is there").1
    }

    /// The liveness of an instance.
    pub(super) async fn liveness(&self, id: InstanceId) -> Liveness {
        self.health(id).await.liveness
    }

    /// The number of events of that kind in a history.
    pub(super) async fn count_events(&self, id: InstanceId, kind: &str) -> usize {
        let kinds = self.kinds(id).await;
        kinds.iter().filter(|one| **one == kind).count()
    }
}
