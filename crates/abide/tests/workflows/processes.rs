//! Workflows whose workers die, again and again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use abide::InstanceId;
use abide::client::{new_signal, new_start};
use abide::engine::EngineBuilder;
use abide::history::HistoryEvent;
use abide::prelude::*;

use crate::common::{Lab, Log};

const RELAY: Flow<u32, Vec<u32>> = Flow::new("relay");
const NOTE: Signal<u32> = Signal::new("note");

/// The number of workflows that a test runs.
const RUNS: u32 = 200;
/// The number of times that it kills a worker.
const DEATHS: usize = 5;
/// The number of steps that each has, and of signals that it takes.
const STEPS: u32 = 10;
const NOTES: u32 = 2;

/// Ten steps, with a signal after every fifth.
async fn relay(wf: Workflow, run: u32, log: Log<(u32, String)>) -> Result<Vec<u32>, BoxError> {
    let mut seen = Vec::new();
    for n in 0..STEPS {
        let log = &log;
        let step = wf.step_with(format!("step {n}"), |attempt| async move {
            log.note((run, attempt.token()));
            tokio::time::sleep(millis(2)).await;
            Ok::<_, BoxError>(n)
        });
        seen.push(step.await?);
        if n % 5 == 4 {
            seen.push(wf.signal(NOTE).await?);
        }
    }
    Ok(seen)
}

fn build(
    log: &Log<(u32, String)>,
    name: &str,
    lease: Duration,
    slots: usize,
) -> impl FnOnce(EngineBuilder) -> EngineBuilder + Send + 'static {
    let (log, name) = (log.clone(), name.to_owned());
    move |engine| {
        let engine = engine.name(&name).lease(lease).queue("default", slots);
        engine.workflow(RELAY, move |wf, run| relay(wf, run, log.clone()))
    }
}

async fn start(lab: &Lab) -> Vec<InstanceId> {
    let starts = (0..RUNS).map(|n| new_start(RELAY, n).key(format!("relay:{n}")));
    let started = lab.start_all(starts).await.unwrap();
    started.into_iter().map(|one| one.unwrap().id()).collect()
}

/// Sends that note to every run.
async fn send(lab: &Lab, note: u32) {
    let signals = (0..RUNS).map(|n| new_signal(format!("relay:{n}"), NOTE, &(100 + note)));
    assert!(
        lab.signal_all(signals)
            .await
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
}

/// Waits until the log has grown by a part of the work, or all is done.
async fn grown(log: &Log<(u32, String)>, to: usize) {
    let deadline = Instant::now() + secs(30);
    while log.len() < to {
        assert!(
            Instant::now() < deadline,
            "it does not go on: {} of {to}",
            log.len()
        );
        tokio::time::sleep(millis(5)).await;
    }
}

async fn all_done(lab: &Lab) {
    let deadline = Instant::now() + secs(60);
    loop {
        let left: u64 = lab
            .depths()
            .await
            .unwrap()
            .iter()
            .map(|one| one.count)
            .sum();
        if left == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{left} are left");
        tokio::time::sleep(millis(20)).await;
    }
}

/// Every workflow came to the right result; each step is recorded once, and was run again only when its worker had died.
async fn audit(lab: &Lab, ids: &[InstanceId], log: &Log<(u32, String)>) {
    let expected: Vec<u32> = (0..5).chain([100]).chain(5..10).chain([101]).collect();
    let mut runs: HashMap<String, usize> = HashMap::new();
    for (_, token) in log.read() {
        *runs.entry(token).or_default() += 1;
    }
    assert_eq!(
        runs.len(),
        (RUNS * STEPS) as usize,
        "each step has a token of its own"
    );
    let mut again: HashMap<u32, usize> = HashMap::new();
    for (run, _) in log.read() {
        *again.entry(run).or_default() += 1;
    }
    let mut lost = 0;
    for (id, run) in ids.iter().zip(0..) {
        let row = lab.now(*id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(*id).await);
        assert_eq!(
            row.result.as_ref().unwrap().to::<Vec<u32>>().unwrap(),
            expected
        );
        let events = lab.events(*id).await;
        assert!(events.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        let mut steps = Vec::new();
        let mut reclaimed = 0;
        for entry in &events {
            match &entry.what {
                HistoryEvent::OperationCompleted(done) if done.attempts.is_some() => {
                    steps.push(done.name.as_ref().unwrap().to_string());
                }
                HistoryEvent::Reclaimed { .. } => reclaimed += 1,
                _ => {}
            }
        }
        let all: Vec<_> = (0..STEPS).map(|n| format!("step {n}")).collect();
        assert_eq!(steps, all, "each is recorded once, in order");
        let more = again[&run] - STEPS as usize;
        assert!(
            more <= reclaimed,
            "run {run}: {more} steps ran again, and {reclaimed} claims were lost"
        );
        lost += reclaimed;
    }
    assert!(
        lost > DEATHS,
        "the workers died in the middle of nothing: {lost}"
    );
    assert_eq!(lab.doctor().await.unwrap().findings, []);
}

on_every_store! {
    async fn one_of_two_workers_dies_again_and_again(lab: Lab) {
        // rules 1.1, 1.2, 5.3, 6.1 and 12.2
        let log = Log::new();
        let lease = millis(900);
        let ids = start(&lab).await;
        let steady = build(&log, "steady", secs(30), 4)(lab.again().await.engine()).start().await.unwrap();
        let mut killable = lab.killable(build(&log, "mortal 0", lease, 60)).await;
        let all = (RUNS * STEPS) as usize;
        for death in 1..=DEATHS {
            if death == 2 || death == 4 {
                send(&lab, death as u32 / 2 - 1).await;
            }
            // Half of it can be done before the first note, and all after the second.
            let reach = if death < 2 { all / 4 } else { all * death / (DEATHS + 3) };
            grown(&log, reach).await;
            killable.die().await;
            killable = lab.killable(build(&log, &format!("mortal {death}"), lease, 60)).await;
        }
        all_done(&lab).await;
        audit(&lab, &ids, &log).await;
        steady.shutdown().await;
    }
}

on_every_store! {
    async fn the_only_worker_dies_and_comes_back_under_its_name(lab: Lab) {
        // rules 1.1, 1.2, 5.3 and 12.2
        let log = Log::new();
        let lease = secs(3_600);
        let ids = start(&lab).await;
        for note in 0..NOTES {
            send(&lab, note).await;
        }
        let mut killable = lab.killable(build(&log, "w", lease, 60)).await;
        let all = (RUNS * STEPS) as usize;
        for death in 1..=DEATHS {
            grown(&log, all * death / (DEATHS + 2)).await;
            killable.die().await;
            killable = lab.killable(build(&log, "w", lease, 60)).await;
        }
        all_done(&lab).await;
        audit(&lab, &ids, &log).await;
        killable.die().await;
    }
}
