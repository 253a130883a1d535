//! Workers that are killed while they take the steps of many instances, or by a step.

use std::time::Duration;

use crate::common::{Lab, eventually};
use crate::processes::{Program, Test, Worker};
use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::time::millis;
use abide::{Context, InstanceId, Machine, Outcome, Status, Step};
use abide::{done, next};

/// The number of instances that a test runs.
const INSTANCES: usize = 1_000;
/// The number of times that it kills a worker.
const KILLS: usize = 6;

/// Ten steps, each of which adds its name to the state.
struct Relay;

#[derive(Step, Clone, Copy)]
enum Leg {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Seventh,
    Eighth,
    Ninth,
    Tenth,
}

impl Machine for Relay {
    const NAME: &'static str = "relay";
    // Workers are killed all the time: its steps are not at fault.
    const MAX_DEATHS: u32 = 0;
    type Step = Leg;
    type State = Vec<String>;
    type Output = Vec<String>;

    async fn step(&self, at: Leg, ctx: &mut Context<Self>) -> Outcome<Self> {
        tokio::time::sleep(millis(2)).await;
        ctx.state_mut().push(at.name().to_owned());
        match Leg::ALL.get(ctx.state().len()) {
            Some(leg) => next(*leg),
            None => done(ctx.state().clone()),
        }
    }
}

/// The number of instances that run beside the one that kills its worker.
const INNOCENTS: usize = 50;

/// One step, which kills its worker if its state says so.
struct Powder;

#[derive(Step, Clone, Copy)]
enum Powdered {
    Burn,
}

impl Machine for Powder {
    const NAME: &'static str = "powder";
    const MAX_DEATHS: u32 = 3;
    type Step = Powdered;
    type State = bool;
    type Output = ();

    async fn step(&self, _: Powdered, ctx: &mut Context<Self>) -> Outcome<Self> {
        tokio::time::sleep(millis(20)).await;
        if *ctx.state() {
            std::process::abort();
        }
        done(())
    }
}

pub const PROGRAM: Program = Program {
    name: "relay",
    tests: TESTS,
    code: |engine, _| engine.machine(Relay).machine(Powder),
};

const TESTS: &[Test] = &[
    #[cfg(feature = "sqlite")]
    Test {
        name: "sqlite_outlives_its_only_worker_again_and_again",
        run: || Box::pin(sqlite()),
    },
    #[cfg(feature = "sqlite")]
    Test {
        name: "sqlite_fails_a_step_that_kills_its_workers_and_no_other",
        run: || Box::pin(async { poisoned(Lab::sqlite().await, &["w"]).await }),
    },
    #[cfg(feature = "postgres")]
    Test {
        name: "postgres_outlives_either_of_its_workers_again_and_again",
        run: || Box::pin(postgres()),
    },
    #[cfg(feature = "postgres")]
    Test {
        name: "postgres_fails_a_step_that_kills_its_workers_and_no_other",
        run: || Box::pin(async { poisoned(Lab::postgres().await, &["a", "b"]).await }),
    },
];

/// One worker at a time: the next one takes up at once what the killed one held, under its name (rule 5.3).
#[cfg(feature = "sqlite")]
async fn sqlite() {
    // rules 1.1, 1.3, 5.3
    let lab = Lab::sqlite().await;
    let lease = Duration::from_secs(3_600);
    let ids = start_relays(&lab).await;
    let mut worker = Worker::start(&PROGRAM, lab.url(), "w", lease);
    for kill in 1..=KILLS {
        left(&lab, INSTANCES - kill * INSTANCES / (KILLS + 2)).await;
        worker.kill();
        worker = Worker::start(&PROGRAM, lab.url(), "w", lease);
    }
    left(&lab, 0).await;
    worker.stop();
    audit(&lab, &ids).await;
}

/// Two workers: the survivor takes over when the lease has run out, or the killed one comes back under its name.
#[cfg(feature = "postgres")]
async fn postgres() {
    // rules 1.1, 1.3, 5.3, 6.1
    let lab = Lab::postgres().await;
    let lease = Duration::from_secs(2);
    let ids = start_relays(&lab).await;
    let start = |name: &str| Worker::start(&PROGRAM, lab.url(), name, lease);
    let mut workers = [start("a0"), start("b0")];
    for kill in 1..=KILLS {
        left(&lab, INSTANCES - kill * INSTANCES / (KILLS + 2)).await;
        let (at, prefix) = if kill % 2 == 0 { (0, 'a') } else { (1, 'b') };
        workers[at].kill();
        // Half of them come back under their old name, the others as strangers.
        let name = if kill % 4 < 2 { 0 } else { kill };
        workers[at] = start(&format!("{prefix}{name}"));
    }
    left(&lab, 0).await;
    workers.into_iter().for_each(Worker::stop);
    audit(&lab, &ids).await;
}

/// Workers that are started again whenever they die, one instance that kills them, and others that do not.
async fn poisoned(lab: Lab, names: &[&str]) {
    // rules 5.5, 5.6 and 5.7
    let lease = Duration::from_secs(2);
    let starts = (0..=INNOCENTS).map(|at| new_start(Powder, at == INNOCENTS / 2));
    let started = lab.start_all(starts).await.unwrap();
    let mut ids: Vec<InstanceId> = started.into_iter().map(|one| one.unwrap().id()).collect();
    let poison = ids.remove(INNOCENTS / 2);
    let start = |name: &&str| Worker::start(&PROGRAM, lab.url(), name, lease);
    let mut workers: Vec<Worker> = names.iter().map(start).collect();
    let mut deaths = 0;
    while lab
        .depths()
        .await
        .unwrap()
        .iter()
        .map(|one| one.count)
        .sum::<u64>()
        > 0
    {
        for (worker, name) in workers.iter_mut().zip(names) {
            if worker.has_ended() {
                deaths += 1;
                *worker = start(name);
            }
        }
        tokio::time::sleep(millis(20)).await;
    }
    assert_eq!(deaths, 3, "each attempt at the poisoned step kills one");
    let row = lab.now(poison).await;
    assert_eq!((row.status, row.deaths), (Status::Failed, 3));
    let error = row.last_error.clone().unwrap();
    assert!(
        error.contains("the worker died 3 times in step burn"),
        "{error}"
    );
    for id in ids {
        let row = lab.now(id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(id).await);
    }
    workers.into_iter().for_each(Worker::stop);
}

async fn start_relays(lab: &Lab) -> Vec<InstanceId> {
    let starts = (0..INSTANCES).map(|_| new_start(Relay, Vec::new()));
    let started = lab.start_all(starts).await.unwrap();
    started.into_iter().map(|one| one.unwrap().id()).collect()
}

/// Waits until no more than that many have not ended.
async fn left(lab: &Lab, most: usize) {
    eventually(&format!("{most} to be left"), async || {
        let depths = lab.depths().await.unwrap();
        depths.iter().map(|one| one.count).sum::<u64>() <= most as u64
    })
    .await;
}

/// Every instance has ended, its committed steps are the full sequence once, and each began where the last one ended.
async fn audit(lab: &Lab, ids: &[InstanceId]) {
    let names: Vec<String> = Leg::ALL.iter().map(|leg| leg.name().to_owned()).collect();
    let expected: Vec<_> = names.iter().cloned().zip(1..).collect();
    let mut reclaimed = 0;
    for id in ids {
        let row = lab.now(*id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(*id).await);
        assert_eq!(
            row.result.as_ref().unwrap().to::<Vec<String>>().unwrap(),
            names
        );
        assert_eq!(
            lab.committed(*id).await,
            expected,
            "{}",
            lab.standing(*id).await
        );
        let events = lab.events(*id).await;
        assert!(events.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        let lost = events
            .iter()
            .filter(|entry| matches!(entry.what, HistoryEvent::Reclaimed { .. }));
        reclaimed += lost.count();
    }
    assert!(
        reclaimed > KILLS,
        "the workers were killed in the middle of nothing: {reclaimed} reclaimed"
    );
    println!("     {reclaimed} steps were taken back from {KILLS} killed workers");
}
