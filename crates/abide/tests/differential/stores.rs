//! On databases, with the real clock, and engines that die whenever it pleases them. What is decided by who is first is
//! left out, and so is the order in which branches came to their ends: all else is the same.

use std::time::{Duration, Instant};

use abide::*;
use serde_json::Value;

use super::common::Lab;
use super::dice::Dice;
use super::plan::{Program, Scope, program};
use super::program::{JOB, RAISE, RUN, Runs, SIGNALS, code, job};
use super::told::{Told, told};

/// How many workflows are made up; all of them run at once.
const SEEDS: u64 = 30;
/// How long all of them may take, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often an engine dies at most, before one may live.
const LIVES: u32 = 25;
/// How many signals of each name everybody has: more than any of them takes.
const SENT: u32 = 12;

fn equipped(engine: EngineBuilder) -> EngineBuilder {
    engine
        .name("mortal")
        .workflow(RUN, code(&Runs::default()))
        .job(JOB, job)
}

/// Starts all, with all that they may wait for; nothing runs yet.
async fn started(lab: &Lab) {
    for seed in 0..SEEDS {
        let program: Program = program(&mut Dice::new(seed), Scope::REAL);
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

/// Those that have not ended.
async fn open(lab: &Lab) -> Vec<Instance> {
    let mut all = super::told::instances(lab).await;
    all.retain(|instance| !instance.status.is_terminal());
    all
}

async fn until_all_have_ended(lab: &Lab) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let open = open(lab).await;
        let Some(one) = open.first() else { return };
        if Instant::now() > deadline {
            let looked = lab.describe(one.id).await.unwrap();
            let history = lab.kinds(one.id).await;
            panic!("{} do not end; {history:?} {looked:#?}", open.len());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What all of them came to.
async fn outcome(lab: &Lab) -> Vec<Told> {
    let matters = ["operation_completed", "operation_retried", "done", "failed"];
    let mut all = told(lab, false, |entry| matters.contains(&entry.what.kind())).await;
    for told in &mut all {
        for event in &mut told.history {
            let mut value: Value = serde_json::from_str(event).unwrap();
            let data = &mut value["data"];
            if let Some(fields) = data.as_object_mut() {
                // The numbers depend on who was first, and so does what an update sees.
                fields.remove("operation");
                fields.remove("message");
                if fields.get("operation_kind") == Some(&Value::from("update")) {
                    fields.remove("outcome");
                }
            }
            forget_ids(data);
            *event = value.to_string();
        }
        told.history.sort_unstable();
    }
    all.sort_by_key(|told| format!("{told:?}"));
    all
}

/// A child's end is told with its id.
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
    let mut dice = Dice::new(1);
    let mut deaths = 0;
    while deaths < LIVES && !open(&with).await.is_empty() {
        let engine = with.doomed(equipped).await;
        tokio::time::sleep(Duration::from_millis(dice.between(1, 25).into())).await;
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
        // What must not be is looked for as well.
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
