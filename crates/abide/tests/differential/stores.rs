//! On databases, with the real clock, and engines that die at random moments. Outcomes of races are left out, and so is the
//! order in which branches ended: everything else is the same.

use std::time::{Duration, Instant};

use abide::engine::EngineBuilder;
use abide::model::Instance;
use serde_json::Value;

use super::plan::{Program, Scope, program};
use super::program::{JOB, RAISE, RUN, Runs, SIGNALS, code, job};
use super::rng::Rng;
use super::snapshot::{Snapshot, snapshots};
use crate::common::Lab;

/// The number of random workflows. All of them run at once.
const SEEDS: u64 = 30;
/// The maximum time for all of them, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum number of engines that die, before one may live.
const LIVES: u32 = 25;
/// The number of signals of each name for each workflow: more than any of them takes.
const SENT: u32 = 12;

fn equipped(engine: EngineBuilder) -> EngineBuilder {
    engine
        .name("mortal")
        .workflow(RUN, code(&Runs::default()))
        .job(JOB, job)
}

/// Starts all, with everything that they may wait for. Nothing runs yet.
async fn started(lab: &Lab) {
    for seed in 0..SEEDS {
        let program: Program = program(&mut Rng::new(seed), Scope::REAL);
        let run = lab.start(RUN, program).key(format!("seed {seed}"));
        let run = run.await.unwrap();
        for _ in 0..4 {
            let raise = lab.update(run.id(), RAISE, &1);
            raise.accepted().await.unwrap();
        }
        for signal in SIGNALS {
            for _ in 0..SENT {
                lab.signal(run.id(), signal, &7).await.unwrap();
            }
        }
    }
}

/// The instances that have not ended.
async fn open(lab: &Lab) -> Vec<Instance> {
    let mut all = super::snapshot::instances(lab).await;
    all.retain(|instance| !instance.status.is_terminal());
    all
}

async fn until_all_have_ended(lab: &Lab) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let open = open(lab).await;
        let Some(one) = open.first() else { return };
        if Instant::now() > deadline {
            let view = lab.describe(one.id).await.unwrap();
            let history = lab.kinds(one.id).await;
            panic!("{} do not end; {history:?} {view:#?}", open.len());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The results of all of them.
async fn outcome(lab: &Lab) -> Vec<Snapshot> {
    let matters = ["operation_completed", "operation_retried", "done", "failed"];
    let mut all = snapshots(lab, false, |entry| matters.contains(&entry.what.kind())).await;
    for snapshot in &mut all {
        for event in &mut snapshot.history {
            let mut value: Value = serde_json::from_str(event).unwrap();
            let data = &mut value["data"];
            if let Some(fields) = data.as_object_mut() {
                // The numbers depend on the order of the branches, and so does the state that an update sees.
                fields.remove("operation");
                fields.remove("message");
                if fields.get("operation_kind") == Some(&Value::from("update")) {
                    fields.remove("outcome");
                }
            }
            forget_ids(data);
            *event = value.to_string();
        }
        snapshot.history.sort_unstable();
    }
    all.sort_by_key(|snapshot| format!("{snapshot:?}"));
    all
}

/// Removes ids: the end of a child is recorded with its id.
fn forget_ids(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("id");
            fields.values_mut().for_each(forget_ids);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_ids),
        _ => {}
    }
}

async fn compare(without: Lab, with: Lab) {
    started(&without).await;
    let engine = equipped(without.engine()).start().await.unwrap();
    until_all_have_ended(&without).await;
    engine.shutdown().await;

    started(&with).await;
    let mut rng = Rng::new(1);
    let mut deaths = 0;
    while deaths < LIVES && !open(&with).await.is_empty() {
        let engine = with.killable(equipped).await;
        tokio::time::sleep(Duration::from_millis(rng.between(1, 25).into())).await;
        engine.die().await;
        deaths += 1;
    }
    let engine = equipped(with.engine()).start().await.unwrap();
    until_all_have_ended(&with).await;
    engine.shutdown().await;
    assert!(deaths > 1, "only {deaths} engines died: all was too quick");

    let (without_any, with_deaths) = (outcome(&without).await, outcome(&with).await);
    assert_eq!(without_any.len(), with_deaths.len());
    for (without, with) in without_any.iter().zip(&with_deaths) {
        assert_eq!(without, with, "{}", without.input);
    }
    for lab in [without, with] {
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        // Checks the invariants as well.
        lab.check(async |_| {}).await;
    }
}

// rules 1.1, 12.1 and 12.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_workflows_come_to_the_same_on_memory() {
    compare(Lab::memory().await, Lab::memory().await).await;
}

// rules 1.1, 12.1 and 12.3
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_workflows_come_to_the_same_on_sqlite() {
    compare(Lab::sqlite().await, Lab::sqlite().await).await;
}

// rules 1.1, 12.1 and 12.3
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_workflows_come_to_the_same_on_postgres() {
    compare(Lab::postgres().await, Lab::postgres().await).await;
}
