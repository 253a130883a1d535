//! Signals from many senders to many instances, while one of two worker processes is killed with `kill -9` and started
//! again throughout: each signal is applied exactly once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::common::Lab;
use crate::processes::{Program, Test, Worker};
use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::model::CommandStatus;
use abide::store::CommandFilter;
use abide::time::millis;
use abide::{Context, InstanceId, Machine, Outcome};
use abide::{Signal, Status, Step, done, next};

/// The number of instances, and of waits of each.
const INSTANCES: usize = 200;
const WAITS: usize = 100;
/// The number of concurrent senders, and of signals in one call.
const SENDERS: usize = 16;
const IN_A_CALL: usize = 25;
/// The maximum number of waits that a sender is ahead: some of the signals wake, and some are there before they are waited for.
const AHEAD: usize = 20;
/// The worker that lives throughout.
const STEADY: &str = "steady";

/// Waits for one signal after the other, each with a name of its own.
struct Listener;

#[derive(Step)]
enum At {
    Wait,
    Take,
}

fn name(wait: usize) -> String {
    format!("signal-{wait}")
}

impl Machine for Listener {
    const NAME: &'static str = "listener";
    // Workers are killed all the time: its steps are not at fault.
    const MAX_DEATHS: u32 = 0;
    type Step = At;
    type State = Vec<u64>;
    type Output = Vec<u64>;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        let wait = ctx.state().len();
        match at {
            At::Wait => ctx.wait_for(name(wait)).then(At::Take),
            At::Take => {
                // Long enough that a worker is killed in the middle of it.
                tokio::time::sleep(millis(2)).await;
                let [signal] = ctx.signals() else {
                    return abide::stop(format!("handed {} signals", ctx.signals().len()));
                };
                let [value] = signal.arguments.to::<[u64; 1]>()?;
                ctx.state_mut().push(value);
                if wait + 1 < WAITS {
                    next(At::Wait)
                } else {
                    done(ctx.state().clone())
                }
            }
        }
    }
}

pub const PROGRAM: Program = Program {
    name: "storm",
    tests: TESTS,
    code: |engine, name| {
        // Most of the work goes to the one that dies.
        let slots = if name == STEADY { 8 } else { INSTANCES };
        engine.machine(Listener).queue("default", slots)
    },
};

const TESTS: &[Test] = &[
    #[cfg(feature = "sqlite")]
    Test {
        name: "sqlite_applies_each_of_twenty_thousand_signals_once",
        run: || Box::pin(async { storm(Lab::sqlite().await).await }),
    },
    #[cfg(feature = "postgres")]
    Test {
        name: "postgres_applies_each_of_twenty_thousand_signals_once",
        run: || Box::pin(async { storm(Lab::postgres().await).await }),
    },
];

/// The argument of the signal for a wait of an instance.
fn value(instance: usize, wait: usize) -> u64 {
    (instance * WAITS + wait) as u64
}

async fn storm(lab: Lab) {
    // rules 1.1, 4.1, 5.3, 7.1, 7.3, 7.6 and 11.3
    let begun = Instant::now();
    let starts =
        (0..INSTANCES).map(|n| new_start(Listener, Vec::new()).key(format!("listener:{n}")));
    let started = lab.start_all(starts).await.unwrap();
    let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let kills = tokio::spawn(kill_again_and_again(lab.url().to_owned(), over.clone()));
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| tokio::spawn(send(lab.clone(), sender)))
        .collect();
    let mut again = 0;
    for sender in senders {
        again += sender.await.unwrap();
    }
    let sent = begun.elapsed();
    for id in &ids {
        ended(&lab, *id).await;
    }
    let took = begun.elapsed();
    over.store(true, Ordering::SeqCst);
    let kills = kills.await.unwrap();
    let reclaimed = audit(&lab, &ids).await;
    assert!(
        kills > 2 && reclaimed > 0,
        "the worker was killed in the middle of nothing: {kills} kills, {reclaimed} reclaimed"
    );
    println!(
        "     {} signals, {again} of them sent twice, sent in {:.1} s and applied in {:.1} s; {kills} kills, {reclaimed} \
         steps taken back; audited in {:.1} s",
        INSTANCES * WAITS,
        sent.as_secs_f64(),
        took.as_secs_f64(),
        (begun.elapsed() - took).as_secs_f64(),
    );
}

/// One worker lives throughout; the other is killed and started again until all is over. Returns the number of kills.
async fn kill_again_and_again(url: String, over: Arc<AtomicBool>) -> usize {
    let lease = Duration::from_secs(1);
    let steady = Worker::start(&PROGRAM, &url, STEADY, Duration::from_secs(30));
    let mut kills = 0;
    let mut worker = Worker::start(&PROGRAM, &url, "w0", lease);
    while !over.load(Ordering::SeqCst) {
        // Never the same span, so that it dies in ever other moments.
        tokio::time::sleep(millis(400 + kills as u64 * 137 % 500)).await;
        worker.kill();
        kills += 1;
        // Half of them come back under their name and take up at once what they held; the others leave it to the lease.
        let name = if kills % 2 == 0 { kills } else { kills - 1 };
        worker = Worker::start(&PROGRAM, &url, &format!("w{name}"), lease);
    }
    worker.stop();
    steady.stop();
    kills
}

/// Sends its share of the signals, some of them twice. Returns the number of those.
async fn send(lab: Lab, sender: usize) -> usize {
    let mut again = 0;
    // Each sender has waits of its own, of every instance.
    for wait in (sender..WAITS).step_by(SENDERS) {
        let instances: Vec<usize> = (0..INSTANCES).collect();
        for some in instances.chunks(IN_A_CALL) {
            let signals = |some: &[usize]| {
                let signal = |n: &usize| {
                    let signal = signal_of(*n, wait);
                    signal
                        .dedup(format!("{n}-{wait}"))
                        .source(format!("sender {sender}"))
                };
                some.iter().map(signal).collect::<Vec<_>>()
            };
            keep_pace(&lab, some[0], wait).await;
            let first = lab.signal_all(signals(some)).await.unwrap();
            assert!(first.iter().all(|one| !one.as_ref().unwrap().duplicate));
            let twice: Vec<usize> = some
                .iter()
                .copied()
                .filter(|n| (n + wait) % 5 == 0)
                .collect();
            let second = lab.signal_all(signals(&twice)).await.unwrap();
            assert!(second.iter().all(|one| one.as_ref().unwrap().duplicate));
            again += twice.len();
        }
    }
    again
}

/// Waits until an instance has come so far that its signals are not sent all at the beginning.
async fn keep_pace(lab: &Lab, instance: usize, wait: usize) {
    let key = format!("listener:{instance}");
    // Two steps for each wait.
    let far_enough = |row: &abide::model::Instance| row.step_seq as usize / 2 + AHEAD >= wait;
    while !far_enough(&lab.get(&key).await.unwrap().unwrap()) {
        tokio::time::sleep(millis(10)).await;
    }
}

fn signal_of(instance: usize, wait: usize) -> abide::client::SignalBuilder {
    // A signal's name lives as long as the program; there are a hundred of them.
    static SIGNALS: LazyLock<Vec<Signal<u64>>> = LazyLock::new(|| {
        (0..WAITS)
            .map(|wait| Signal::new(name(wait).leak()))
            .collect()
    });
    let to = format!("listener:{instance}");
    abide::client::new_signal(to, SIGNALS[wait], &value(instance, wait))
}

/// Waits until an instance has ended, for as long as anything happens at all.
async fn ended(lab: &Lab, id: InstanceId) {
    while !lab.now(id).await.status.is_terminal() {
        tokio::time::sleep(millis(20)).await;
    }
}

/// Each instance has taken its own signals, each once and in the order in which it waited; none is left.
async fn audit(lab: &Lab, ids: &[InstanceId]) -> usize {
    let mut reclaimed = 0;
    let mut applied = BTreeSet::new();
    for (n, id) in ids.iter().enumerate() {
        let row = lab.now(*id).await;
        assert_eq!(row.status, Status::Done, "{}", lab.standing(*id).await);
        let taken: Vec<u64> = row.result.as_ref().unwrap().to().unwrap();
        assert!(taken.into_iter().eq((0..WAITS).map(|wait| value(n, wait))));
        assert_eq!((row.inbox.signals, row.inbox.sequence.0), (0, WAITS as i64));
        let mut count = 0;
        for entry in lab.events(*id).await {
            match entry.what {
                HistoryEvent::SignalApplied { command_id, .. } => {
                    assert!(applied.insert(command_id), "{command_id} was applied twice");
                    count += 1;
                }
                HistoryEvent::Reclaimed { .. } => reclaimed += 1,
                _ => {}
            }
        }
        assert_eq!(count, WAITS);
    }
    for (status, expected) in [
        (CommandStatus::Applied, INSTANCES * WAITS),
        (CommandStatus::Received, 0),
        (CommandStatus::Discarded, 0),
        (CommandStatus::Rejected, 0),
    ] {
        let filter = CommandFilter {
            status: Some(status),
            ..CommandFilter::default()
        };
        let (mut count, mut before) = (0, None);
        loop {
            let page = lab.list_commands(&filter, before, 5_000).await.unwrap();
            count += page.items.len();
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(count, expected, "{status}");
    }
    let diagnosis = lab.doctor().await.unwrap();
    assert_eq!(
        (diagnosis.examined, diagnosis.findings),
        (INSTANCES, vec![])
    );
    reclaimed
}
