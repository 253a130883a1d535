//! Runs that were begun before tasks had policies: a child and a timer for each attempt. Their histories are stored here as
//! the code of that time wrote them, and today's code must find its way through them (rule 12.4).

use std::sync::Arc;
use std::time::Duration;

use abide::model::Json;
use abide::time::{hours, millis};
use abide::{Graph, InstanceId, Status};
use abide_kernel::model::{
    ChildStarts, Commit, Completed, Ending, Kind, Name, Opened, Operation, OperationKind, Outcome,
    Park, Signature, Start, Then, Timestamp, Unended, WorkflowTurn,
};
use abide_kernel::{Op, Store};
use serde_json::{Value, json};

use super::claim;
use super::steps::{children, step};
use crate::common::{Lab, Log};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The one turn that the code of that time has taken of a run.
async fn turn(store: &Arc<dyn Store>, graph: &Graph, turn: WorkflowTurn) {
    let (worker, mut claimed) = claim(store, graph, "of that time").await;
    let commit = Commit {
        claim: claimed.remove(0).claim,
        outcome: Outcome::Workflow(Box::new(turn)),
        keep: false,
        took: Duration::ZERO,
        error: None,
    };
    let commit = Op::Commit {
        commits: vec![commit],
        serves: Vec::new(),
    };
    store.run([commit].into()).await.unwrap();
    let off = Op::SignOff { worker, limit: 10 };
    store.run([off].into()).await.unwrap();
}

fn opened(operation: u32, signature: Signature, deadline: Option<Timestamp>) -> Operation {
    Operation::Opened(Opened {
        operation,
        signature,
        deadline,
        message: None,
        arguments: None,
        graph_step: None,
    })
}

fn child_of(task: &str) -> Signature {
    Signature::named(OperationKind::Child, name(task))
}

fn child_starts(operation: u32, task: &str, input: &Value) -> ChildStarts {
    let start = Start {
        kind: Some(Kind::Machine),
        version: Some(1),
        step: Some(name("run")),
        ..Start::of(name(task), Json::of(input).unwrap())
    };
    ChildStarts {
        operation,
        starts: vec![start],
        needed: 1,
    }
}

fn parked(operations: Vec<Operation>, children: Vec<ChildStarts>, park: Park) -> WorkflowTurn {
    WorkflowTurn {
        operations,
        children,
        ..WorkflowTurn::of(Then::Park(park))
    }
}

/// The ends of the tasks of a run, in the order of their starts, each with its attempt.
async fn ends(lab: &Lab, run: InstanceId) -> Vec<(&'static str, u32)> {
    let all = children(lab, run).await;
    all.iter()
        .map(|child| (child.status.name(), child.attempt))
        .collect()
}

on_every_store! {
    async fn a_task_that_was_under_way_is_tried_again_as_another_child(lab: Lab) {
        // rules 12.4 and 15.1
        let graph = Graph::builder("old").task("flaky").retry(3, millis(1)).task("after").after("flaky").retry(2, millis(1)).build().unwrap();
        let run = lab.start(graph.clone(), json!(5)).await.unwrap();
        let store = lab.store().await;
        let begun = parked(vec![opened(1, child_of("task/flaky"), None)], vec![child_starts(1, "task/flaky", &json!(5))],
            Park { operation: 1, ..Park::default() });
        turn(&store, &graph, begun).await;
        let tries = Log::new();
        let noted = tries.clone();
        let engine = lab.engine().graph(&graph)
            .task("flaky", move |n: Value| { noted.note(()); let count = noted.read().len(); async move { if count < 3 { Err("not yet".into()) } else { Ok(n) } } })
            .task("after", |n: Value| async move { Ok(n) }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"after": 5}));
        assert_eq!(ends(&lab, run.id()).await, [("failed", 0), ("failed", 0), ("done", 0), ("done", 0)]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_whose_timer_runs_since_its_start_is_cancelled_by_it(lab: Lab) {
        // rules 12.4 and 15.1
        let graph = Graph::builder("old").task("slow").timeout(millis(60)).retry(2, millis(1)).build().unwrap();
        let run = lab.start(graph.clone(), json!(5)).await.unwrap();
        let store = lab.store().await;
        let deadline = store.clock().now() + millis(60);
        let begun = parked(vec![opened(1, child_of("task/slow"), Some(deadline))], vec![child_starts(1, "task/slow", &json!(5))],
            Park { operation: 1, until: Some(deadline), ..Park::default() });
        turn(&store, &graph, begun).await;
        let engine = lab.engine().workflows_kept(0).graph(&graph).start().await.unwrap();
        let error = lab.failed_of(&run).await;
        assert!(error.contains("it took longer than 60 ms"), "{error}");
        assert_eq!(ends(&lab, run.id()).await, [("cancelled", 0), ("cancelled", 0)]);
        assert_eq!(step(&lab, run.id(), "slow").await["status"], json!("failed"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_run_that_slept_before_its_second_child_starts_it(lab: Lab) {
        // rules 12.4 and 15.1: a history with the end of one attempt, and the timer before the next.
        let graph = Graph::builder("old").task("flaky").retry(2, hours(1)).build().unwrap();
        let run = lab.start(graph.clone(), json!(5)).await.unwrap();
        let store = lab.store().await;
        let first = json!({"id": 999_999, "machine": "task/flaky", "status": "failed", "last_error": "not yet"});
        let until = store.clock().now() + millis(60);
        let slept = parked(vec![
            opened(1, child_of("task/flaky"), None),
            Operation::Completed(Completed {
                operation: Some(1),
                operation_kind: OperationKind::Child,
                name: Some(name("task/flaky")),
                message: None,
                arguments: None,
                attempts: None,
                duration_us: None,
                graph_step: None,
                outcome: Ending::Value(Json::of(&first).unwrap()),
            }),
            opened(2, Signature::of(OperationKind::Sleep), Some(until)),
        ], Vec::new(), Park { operation: 2, until: Some(until), children: None::<Unended>, ..Park::default() });
        turn(&store, &graph, slept).await;
        let engine = lab.engine().workflows_kept(0).graph(&graph).task("flaky", |n: Value| async move { Ok(n) }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"flaky": 5}));
        assert_eq!(ends(&lab, run.id()).await, [("done", 0)], "the second, begun as the first was");
        let row = lab.now(run.id()).await;
        assert_eq!(row.status, Status::Done);
        engine.shutdown().await;
    }
}
