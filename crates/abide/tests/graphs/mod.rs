//! Graphs: tasks and waits as data.

mod attempts;
mod building;
mod ends;
mod keeping;
mod old_runs;
mod recorded;
mod running;
mod steps;

use std::sync::Arc;

use abide::Graph;
use abide::time::secs;
use abide_kernel::model::{Claimed, Lane, Name, WorkerId};
use abide_kernel::{Answer, ClaimRequest, NewWorker, Op, Store};

/// Claims the run of a graph that is due, as a worker of that name; each time, that worker has come back.
async fn claim(store: &Arc<dyn Store>, graph: &Graph, worker: &str) -> (WorkerId, Vec<Claimed>) {
    let name = |text: &str| Name::new(text).unwrap();
    let lane = Lane {
        machine: name(&format!("graph/{}", graph.name())),
        version: 1,
    };
    let worker = NewWorker {
        name: name(worker),
        lease: secs(60),
        queues: vec![name("default")],
        lanes: vec![lane.clone()],
        build: None,
    };
    let answers = store.run([Op::Register(worker)].into()).await.unwrap();
    let [Answer::Registered(worker)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    let claim = ClaimRequest {
        worker: worker.id,
        queue: name("default"),
        lanes: vec![lane],
        limit: 1,
        lease: None,
    };
    let ops = [Op::Reclaim { limit: 9 }, Op::Claim(claim)];
    match store.run(ops.into()).await.unwrap().pop() {
        Some(Answer::Claimed(claimed)) => (worker.id, claimed),
        other => panic!("{other:?}"),
    }
}
