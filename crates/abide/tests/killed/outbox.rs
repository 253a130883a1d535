//! Workers that are killed while they take requests of the outbox.

use std::time::Duration;

use abide::store::Filter;
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::common::{Lab, eventually};
use crate::processes::{Program, Test, Worker};

/// The number of times that a test kills a worker.
const KILLS: usize = 8;
/// The number of callers that insert at the same time.
const CALLERS: usize = 2;
/// The number of transactions that each of them commits, one after the other.
const TRANSACTIONS: usize = 30;
/// The number of signals, and of starts, in each of them.
const EACH: usize = 150;
/// The number of requests that all of them insert, with the start of the instance that gets a caller's signals.
const REQUESTS: usize = CALLERS * (1 + TRANSACTIONS * EACH * 2);
/// The most memory that a worker may have needed, in kilobytes: a page of requests, not all of them.
const RESIDENT_MAX: u64 = 200_000;

/// The workers have no code, so what is started stays as it is, with every signal in its inbox.
pub const PROGRAM: Program = Program {
    name: "outbox",
    tests: TESTS,
    code: |engine, _| engine.without_code(),
};

const TESTS: &[Test] = &[
    Test {
        name: "sqlite_carries_each_request_out_once_though_its_only_worker_is_killed",
        run: || Box::pin(sqlite()),
    },
    Test {
        name: "postgres_carries_each_request_out_once_though_either_worker_is_killed",
        run: || Box::pin(postgres()),
    },
];

/// One worker at a time.
async fn sqlite() {
    // rules 1.1, 17.3
    let lab = Lab::sqlite().await;
    let start = || Worker::start(&PROGRAM, lab.url(), "w", Duration::from_secs(3_600));
    let inserting = insert(&lab).await;
    let mut worker = start();
    for kill in 1..=KILLS {
        taken(&lab, kill * REQUESTS / (KILLS + 2)).await;
        worker.kill();
        worker = start();
    }
    finish(&lab, inserting).await;
    limited(&worker);
    worker.stop();
    audit(&lab).await;
}

/// Two workers: the survivor goes on at once, because a worker that died no longer holds the lock of the outbox.
async fn postgres() {
    // rules 1.1, 17.3
    let lab = Lab::postgres().await;
    let start = |name: &str| Worker::start(&PROGRAM, lab.url(), name, Duration::from_secs(3_600));
    let inserting = insert(&lab).await;
    let mut workers = [start("a"), start("b")];
    for kill in 1..=KILLS {
        taken(&lab, kill * REQUESTS / (KILLS + 2)).await;
        let (at, name) = if kill % 2 == 0 { (0, "a") } else { (1, "b") };
        workers[at].kill();
        workers[at] = start(name);
    }
    finish(&lab, inserting).await;
    for worker in workers {
        limited(&worker);
        worker.stop();
    }
    audit(&lab).await;
}

/// rule 16.4: a worker reads page by page, however much waits.
fn limited(worker: &Worker) {
    let most = worker.resident_max().unwrap_or_default();
    assert!(most < RESIDENT_MAX, "a worker has needed {most} kB");
}

/// Has callers insert requests, each its own in order, while workers take them.
async fn insert(lab: &Lab) -> Vec<tokio::task::JoinHandle<()>> {
    let mut inserting = Vec::new();
    for number in 0..CALLERS {
        let mut caller = Caller::new(lab).await;
        inserting.push(tokio::spawn(async move {
            let first = json!({"start": {"machine": "script", "key": key(number), "state": 0}});
            caller.insert(&first.to_string()).await;
            for transaction in 0..TRANSACTIONS {
                let indices = transaction * EACH..(transaction + 1) * EACH;
                let requests = indices.flat_map(|index| {
                    let state = json!([number, index]);
                    [
                        json!({"signal": {"target": key(number), "name": "paid", "payload": index}}),
                        json!({"start": {"machine": "script", "state": state}}),
                    ]
                });
                // Each statement is a transaction.
                let rows: Vec<String> = requests.map(|one| format!("('{one}')")).collect();
                let (outbox, rows) = (caller.table("outbox"), rows.join(", "));
                caller
                    .sql(&format!("insert into {outbox} (request) values {rows}"))
                    .await;
            }
        }));
    }
    inserting
}

fn key(caller: usize) -> String {
    format!("order:{caller}")
}

/// Waits until that many requests were carried out: those that started something, and as many signals.
async fn taken(lab: &Lab, requests: usize) {
    let mut caller = Caller::new(lab).await;
    let count = format!("select count(*) from {}", caller.table("instances"));
    eventually(&format!("{requests} requests to be taken"), async || {
        caller.number(&count).await * 2 >= requests as i64
    })
    .await;
    let left = caller.number(&count).await * 2 < REQUESTS as i64;
    assert!(left, "all requests were taken before the worker is killed");
}

/// Waits until all requests were inserted and taken.
async fn finish(lab: &Lab, inserting: Vec<tokio::task::JoinHandle<()>>) {
    for inserting in inserting {
        inserting.await.unwrap();
    }
    eventually("the outbox to be empty", async || {
        lab.outbox_depth().await.unwrap().waiting == 0
    })
    .await;
    assert_eq!(lab.outbox_depth().await.unwrap().refused, 0);
}

/// Every request was carried out once, and those of each caller in the order in which it committed them.
async fn audit(lab: &Lab) {
    let expected: Vec<Value> = (0..TRANSACTIONS * EACH).map(|index| json!(index)).collect();
    let states = started(lab).await;
    for number in 0..CALLERS {
        assert_eq!(signalled(lab, &key(number)).await, expected, "signals");
        let whose = |state: &&Value| state[0] == json!(number);
        let indices = states.iter().filter(whose).map(|state| state[1].clone());
        assert_eq!(indices.collect::<Vec<_>>(), expected, "starts");
    }
    assert_eq!(states.len(), CALLERS * (1 + TRANSACTIONS * EACH));
}

/// The payloads of the signals that came to an instance, in order.
async fn signalled(lab: &Lab, key: &str) -> Vec<Value> {
    let mut records = Vec::new();
    let mut next = None;
    loop {
        let page = lab.commands(key, next, 1_000).await.unwrap();
        records.extend(page.items);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    records.sort_by_key(|record| record.sequence);
    let payload =
        |record: &abide::model::Command| record.arguments.to::<Vec<Value>>().unwrap().remove(0);
    records.iter().map(payload).collect()
}

/// The states of all instances, in the order in which they were started.
async fn started(lab: &Lab) -> Vec<Value> {
    let mut found = Vec::new();
    let mut next = None;
    loop {
        let page = lab.list(&Filter::default(), next, 1_000).await.unwrap();
        found.extend(page.items);
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    found.sort_by_key(|instance| instance.id);
    let state = |instance: &abide::model::Instance| instance.state.to::<Value>().unwrap();
    found.iter().map(state).collect()
}
