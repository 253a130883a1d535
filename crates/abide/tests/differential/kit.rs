//! On the store in memory, with a clock that stands still: whole histories are compared.

use std::ops::Range;

use abide::prelude::*;
use abide::testing::{Kit, replays};

use super::plan::{Op, Program, Scope, program, smaller};
use super::program::{JOB, LATE, RAISE, RUN, Runs, SIGNALS, SLOW, code, job};
use super::rng::Rng;
use super::snapshot::{Snapshot, difference, instances, snapshots};

/// The number of random workflows.
const SEEDS: u64 = 200;
/// The number of events for each before everything that it may wait for is sent.
const EVENTS: u32 = 12;

/// The trouble that a run has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    None,
    /// No code is kept in memory: every turn replays.
    Forgets,
    /// The worker dies after every commit.
    AfterEveryCommit,
    /// The worker dies before every commit, is started again, and dies after it.
    AroundEveryCommit,
}

/// The result of one run of a program.
struct Played {
    all: Vec<Snapshot>,
    runs: u64,
}

#[derive(Step)]
enum At {
    Run,
}

/// Drives one kit through a script, with its trouble.
struct Driver {
    kit: Kit,
    trouble: Trouble,
    dies_first: bool,
    armed: bool,
    deaths: u32,
}

impl Driver {
    /// Runs all that can run now, however often the worker dies.
    async fn settle(&mut self) {
        loop {
            if self.trouble == Trouble::AroundEveryCommit && self.dies_first && !self.armed {
                self.kit.kill_worker_before_commit(At::Run);
                self.armed = true;
            }
            self.kit.settle().await;
            if !self.kit.worker_is_dead().await {
                return;
            }
            // Every other time it may come as far as its commit.
            self.dies_first = !self.armed;
            self.armed = false;
            self.deaths += 1;
            assert!(
                self.deaths < 10_000,
                "it dies again and again without progress"
            );
            self.kit.restart_worker().await.unwrap();
        }
    }

    /// Moves time on to the next due time. `false` if there is none.
    async fn advance(&mut self) -> bool {
        let due = instances(&self.kit).await.into_iter();
        let due = due.filter(|one| !one.status.is_terminal());
        let Some(next) = due.filter_map(|one| one.due_at).min() else {
            return false;
        };
        let by = next.as_micros() - self.kit.now().as_micros();
        let by = std::time::Duration::from_micros(u64::try_from(by).unwrap_or_default());
        self.kit.advance(by).await;
        self.settle().await;
        true
    }
}

async fn play(program: &Program, seed: u64, trouble: Trouble) -> Played {
    let runs = Runs::default();
    let kept = if trouble == Trouble::Forgets {
        0
    } else {
        1_000
    };
    let kit = Kit::builder()
        .workflow(RUN, code(&runs))
        .job(JOB, job)
        .workflows_kept(kept)
        .build()
        .await
        .unwrap();
    let dies = matches!(
        trouble,
        Trouble::AfterEveryCommit | Trouble::AroundEveryCommit
    );
    kit.kill_worker_after_every_commit(dies);
    let mut driver = Driver {
        kit,
        trouble,
        dies_first: true,
        armed: false,
        deaths: 0,
    };
    let mut rng = Rng::new(seed ^ 0xabcd_ef01);
    driver
        .kit
        .start(RUN, program.clone())
        .key("root")
        .await
        .unwrap();
    driver.settle().await;
    for event in 0..EVENTS {
        happen(&mut driver, &mut rng, event).await;
        if rng.chance(10) {
            check_replays(&driver.kit, &runs).await;
        }
    }
    finish(&mut driver).await;
    check_replays(&driver.kit, &runs).await;
    let diagnosis = driver.kit.doctor().await.unwrap();
    assert_eq!(diagnosis.findings, [], "the doctor finds something");
    let kit = &driver.kit;
    let all = snapshots(kit, true, |entry| entry.what.kind() != "reclaimed").await;
    Played {
        all,
        runs: runs.count(),
    }
}

/// One thing happens to the root, or time goes on.
async fn happen(driver: &mut Driver, rng: &mut Rng, event: u32) {
    let (signal, raise) = (SIGNALS[rng.below(3) as usize], rng.below(3) + 1);
    match rng.below(25) {
        // When it has ended, it takes nothing: that is the same in all runs, too.
        0..=6 => drop(driver.kit.signal("root", signal, &event).await),
        7..=9 => drop(driver.kit.update("root", RAISE, &raise).accepted().await),
        10 => drop(driver.kit.update("root", RAISE, &101).accepted().await),
        11 if rng.chance(30) => drop(driver.kit.cancel("root", "enough").await),
        20..=22 => {
            let time = rng.between(1, 5_000_000);
            drop(driver.kit.update("root", SLOW, &time).accepted().await);
        }
        23 => drop(driver.kit.update("root", LATE, &()).accepted().await),
        _ => drop(driver.advance().await),
    }
    driver.settle().await;
}

/// Gives the root all that it may wait for, until it has ended and nothing is due any more.
async fn finish(driver: &mut Driver) {
    for round in 0..40_u32 {
        while driver.advance().await {}
        let root = driver.kit.get("root").await.unwrap();
        if root.is_none_or(|root| root.status.is_terminal()) {
            return;
        }
        match round % 4 {
            3 => drop(driver.kit.update("root", RAISE, &4).accepted().await),
            name => drop(
                driver
                    .kit
                    .signal("root", SIGNALS[name as usize], &round)
                    .await,
            ),
        }
        driver.settle().await;
    }
}

/// The history of every workflow fits its code, and its steps are not run for that.
async fn check_replays(kit: &Kit, runs: &Runs) {
    let before = runs.count();
    for instance in instances(kit).await {
        if instance.machine.as_str() == RUN.name() {
            let run = kit.export(instance.id).await.unwrap().unwrap();
            if let Err(problem) = replays(RUN, code(runs), &run) {
                panic!("{} does not replay: {problem}", instance.id);
            }
        }
    }
    assert_eq!(runs.count(), before, "a replay ran steps");
}

/// Runs a program without trouble and with every kind of it, and returns the difference.
async fn compare(seed: u64, program: &Program) -> Result<Vec<Snapshot>, String> {
    let play = async |trouble| {
        let (program, at) = (program.clone(), format!("{trouble:?}"));
        let played = tokio::spawn(async move { play(&program, seed, trouble).await });
        let stop = played.abort_handle();
        let played = tokio::time::timeout(secs(30), played).await;
        let played = played.map_err(|_| {
            stop.abort();
            format!("{at}: it hangs")
        })?;
        played.map_err(|problem| format!("{at}: {problem}"))
    };
    let plain = play(Trouble::None).await?;
    for trouble in [
        Trouble::Forgets,
        Trouble::AfterEveryCommit,
        Trouble::AroundEveryCommit,
    ] {
        let played = play(trouble).await?;
        if let Some(difference) = difference(&plain.all, &played.all) {
            return Err(format!("{trouble:?}: {difference}"));
        }
        if trouble != Trouble::AroundEveryCommit && plain.runs != played.runs {
            let (without, with) = (plain.runs, played.runs);
            return Err(format!(
                "{trouble:?}: {with} runs of steps, and {without} without"
            ));
        }
    }
    Ok(plain.all)
}

/// Takes things out of a program as long as what is left goes wrong too.
async fn shrink(seed: u64, mut program: Program) -> Program {
    let begun = std::time::Instant::now();
    'again: loop {
        for less in smaller(&program) {
            if begun.elapsed() > secs(20) {
                return program;
            }
            if compare(seed, &less).await.is_err() {
                program = less;
                continue 'again;
            }
        }
        return program;
    }
}

/// Compares the programs of some seeds, which the environment may select (`ABIDE_SEEDS=400..900`, or one).
async fn compare_all(seeds: Range<u64>) {
    let seeds = match std::env::var("ABIDE_SEEDS") {
        Ok(given) => match given.split_once("..") {
            Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
            None => given.parse().unwrap()..given.parse::<u64>().unwrap() + 1,
        },
        Err(_) => seeds,
    };
    for seed in seeds {
        let program = program(&mut Rng::new(seed), Scope::VIRTUAL);
        match compare(seed, &program).await {
            Ok(all) => {
                let root = &all[0];
                assert!(
                    root.status.is_terminal(),
                    "seed {seed} never ends: {root:?}"
                );
            }
            Err(problem) => {
                let small = shrink(seed, program).await;
                let again = compare(seed, &small).await.err().unwrap_or(problem);
                panic!(
                    "seed {seed} (ABIDE_SEEDS={seed} runs it alone): {again}\nprogram: {small:?}"
                );
            }
        }
    }
}

// rules 1.1, 12.1 and 12.3
#[tokio::test]
async fn a_random_workflow_comes_to_the_same_however_often_its_worker_dies() {
    compare_all(0..SEEDS / 2).await;
}

// rules 1.1, 12.1 and 12.3
#[tokio::test]
async fn so_does_another() {
    compare_all(SEEDS / 2..SEEDS).await;
}

// A branch that makes a condition true after it was evaluated: no other input causes it to be evaluated again.
#[tokio::test]
async fn a_condition_that_another_branch_makes_true_is_seen_at_once() {
    let step = Op::Step {
        name: 1,
        fails: 0,
        tries: 1,
        again: 1,
    };
    let condition = Op::Condition {
        level: 2,
        within: None,
    };
    let program = vec![Op::All(vec![
        vec![condition],
        vec![Op::Raise, step, Op::Raise],
    ])];
    let runs = Runs::default();
    let kit = Kit::builder().workflow(RUN, code(&runs)).build();
    let kit = kit.await.unwrap();
    let run = kit.start(RUN, program).await.unwrap();
    kit.settle().await;
    kit.assert_status(&run, Status::Done).await;
    check_replays(&kit, &runs).await;
}

// Else the comparison would prove nothing.
#[tokio::test]
async fn code_that_is_not_the_same_twice_is_seen() {
    let program = vec![Op::Sleep(5), Op::Undetermined];
    assert!(compare(1, &program).await.is_err());
    assert!(compare(1, &vec![Op::Sleep(5)]).await.is_ok());
}
