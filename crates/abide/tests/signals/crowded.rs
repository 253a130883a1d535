//! The cost of thousands of signals that are not waited for, to a step that waits for another: it does not grow with them.
//!
//! Counted, not timed: instructions of SQLite's machine, rows that PostgreSQL fetches.

use abide::InstanceId;
use abide::client::{new_signal, new_start};
use abide::model::{Command, Limits, Name};
use abide::time::Timestamp;
use abide_kernel::model::{Claim, Commit, Lane, NewCommand, Outcome, Wait};
use abide_kernel::{Answer, ClaimRequest, NewWorker, Op};
use serde_json::json;

use crate::common::{Lab, Script};
use crate::signals::{GO, NOTE};

/// The number of signals in the crowded inbox: as many as fit in, except one that is waited for.
const PENDING: usize = 4_999;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn lane() -> Lane {
    Lane {
        machine: name("script"),
        version: 1,
    }
}

/// Two instances, each in a queue of its own: one with an empty inbox and one with a crowded one.
async fn two(lab: &Lab) -> [(&'static str, InstanceId); 2] {
    let specs = ["empty", "crowded"].map(|queue| {
        new_start(Script::any(), json!(null))
            .key(queue)
            .queue(queue)
    });
    let ids: Vec<_> = lab
        .start_all(specs)
        .await
        .unwrap()
        .into_iter()
        .map(|one| one.unwrap().id())
        .collect();
    let noise = (0..PENDING).map(|_| new_signal("crowded", NOTE, &"noise".to_owned()));
    assert!(
        lab.signal_all(noise)
            .await
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
    [("empty", ids[0]), ("crowded", ids[1])]
}

fn register() -> Op {
    Op::Register(NewWorker {
        name: name("counting"),
        lease: abide::time::hours(1),
        queues: vec![name("empty"), name("crowded")],
        lanes: vec![lane()],
        build: None,
    })
}

fn worker(answers: Vec<Answer>) -> abide::model::WorkerId {
    match &answers[..] {
        [Answer::Registered(worker)] => worker.id,
        other => panic!("{other:?}"),
    }
}

fn claim(worker: abide::model::WorkerId, queue: &str) -> Op {
    Op::Claim(ClaimRequest {
        worker,
        queue: name(queue),
        lanes: vec![lane()],
        limit: 1,
        lease: None,
    })
}

fn claimed(answers: Vec<Answer>) -> (Claim, Vec<Command>) {
    match answers.into_iter().next() {
        Some(Answer::Claimed(mut claimed)) => {
            let one = claimed.pop().unwrap();
            (one.claim, one.awaited)
        }
        other => panic!("{other:?}"),
    }
}

fn commit(claim: Claim, outcome: Outcome) -> Op {
    let took = abide::time::millis(1);
    Op::Commit {
        commits: vec![Commit {
            claim,
            outcome,
            keep: false,
            took,
            error: None,
        }],
        serves: Vec::new(),
    }
}

fn wait_for_go() -> Outcome {
    Outcome::Wait(Wait {
        signals: vec![name("go")],
        events: Vec::new(),
        timeout_ms: None,
        next: name("two"),
        state: abide::model::Json::null(),
    })
}

fn next() -> Outcome {
    Outcome::Next {
        step: name("one"),
        state: abide::model::Json::null(),
        delay_ms: 0,
    }
}

fn go(to: InstanceId) -> Op {
    Op::Deliver(vec![NewCommand::signal(to, name(GO.name()))])
}

/// The life of one wait: it parks, is woken, is handed what it waited for, and consumes it; again and again.
macro_rules! waits {
    ($run:ident, $worker:expr, $queue:expr, $id:expr) => {
        for _ in 0..10 {
            let (held, _) = claimed($run!(claim($worker, $queue)));
            $run!(commit(held, wait_for_go()));
            $run!(go($id));
            let (held, awaited) = claimed($run!(claim($worker, $queue)));
            assert_eq!(awaited.len(), 1);
            $run!(commit(held, next()));
        }
    };
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_takes_as_many_steps_of_its_machine() {
    // rules 7.2 and 7.4
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use abide::sqlite::rusqlite::{Connection, TransactionBehavior};

    let lab = Lab::sqlite().await;
    let two = two(&lab).await;
    let mut mine = Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap();
    mine.busy_timeout(abide::time::secs(10)).unwrap();
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    mine.progress_handler(1, Some(count)).unwrap();
    let mut taken = Vec::new();
    for (queue, id) in two {
        let transaction = mine
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        macro_rules! run {
            ($op:expr) => {
                abide::sqlite::run_within(&transaction, &[$op], now(), &Limits::default()).unwrap()
            };
        }
        let worker = worker(run!(register()));
        let before = steps.load(Ordering::Relaxed);
        waits!(run, worker, queue, id);
        taken.push(steps.load(Ordering::Relaxed) - before);
        transaction.rollback().unwrap();
    }
    println!(
        "SQLite: {} steps of its machine with an empty inbox, {} with {PENDING} pending",
        taken[0], taken[1]
    );
    assert!(taken[0] > 0 && taken[1] * 10 <= taken[0] * 11, "{taken:?}");
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_fetches_as_many_rows() {
    // rules 7.2 and 7.4
    use abide::postgres::tokio_postgres::{NoTls, connect};

    const FETCHED: &str = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint \
        from pg_stat_xact_user_tables where schemaname = 'abide' and relname = 'signals'";
    let lab = Lab::postgres().await;
    let two = two(&lab).await;
    let (mut mine, driver) = connect(lab.url(), NoTls).await.unwrap();
    tokio::spawn(driver);
    mine.batch_execute("analyze").await.unwrap();
    let mut taken = Vec::new();
    for (queue, id) in two {
        let transaction = mine.transaction().await.unwrap();
        macro_rules! run {
            ($op:expr) => {
                abide::postgres::run_within(&transaction, &[$op], now(), &Limits::default())
                    .await
                    .unwrap()
            };
        }
        let worker = worker(run!(register()));
        let before: i64 = transaction.query_one(FETCHED, &[]).await.unwrap().get(0);
        waits!(run, worker, queue, id);
        let after: i64 = transaction.query_one(FETCHED, &[]).await.unwrap().get(0);
        taken.push(after - before);
        transaction.rollback().await.unwrap();
    }
    println!(
        "PostgreSQL: {} rows fetched with an empty inbox, {} with {PENDING} pending",
        taken[0], taken[1]
    );
    assert!(taken[0] > 0 && taken[1] <= taken[0], "{taken:?}");
}

/// The time; later than anything that was made before.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap() + 1_000_000)
}
