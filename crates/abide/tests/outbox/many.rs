//! Many requests at once. `abide-bench --only OUTBOX` takes a million, and tells how fast.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide::Abide;
use abide_kernel::{Op, OutboxEntry};

use super::*;
use crate::common::Faulty;

/// The most rows of one transaction, and of one page that is read.
const PAGE: usize = 500;
/// The maximum time for all of it, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A transaction that takes rows.
struct Take {
    began: Instant,
    rows: Vec<i64>,
}

/// Takes that many requests, and answers with the transactions that it took. Nothing runs: they are of a machine that
/// there is no code for.
async fn take(lab: &Lab, caller: &mut Caller, requests: usize) -> Vec<Take> {
    caller.insert_starts(requests).await;
    let takes = Arc::new(Mutex::new(Vec::new()));
    let seen = takes.clone();
    let watched = Faulty::new(lab.store().await, move |ops| {
        let began = Instant::now();
        let rows = |entries: &Vec<OutboxEntry>| entries.iter().map(|entry| entry.id.0).collect();
        let taken = ops.iter().filter_map(|op| match op {
            Op::Outbox(entries) => Some(Take {
                began,
                rows: rows(entries),
            }),
            _ => None,
        });
        seen.lock().unwrap().extend(taken);
        None
    });
    let engine = Abide::options().on(watched).engine().without_code();
    let begun = Instant::now();
    let engine = engine.start().await.unwrap();
    let requested = || takes.lock().unwrap().len() * PAGE;
    while requested() < requests || lab.outbox_depth().await.unwrap().waiting > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} were taken", requested());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = begun.elapsed();
    engine.shutdown().await;
    let table = caller.table("instances");
    let started = caller
        .number(&format!("select count(*) from {table}"))
        .await;
    assert_eq!(started, requests as i64);
    println!("{requests} requests in {took:?}");
    let mut takes = takes.lock().unwrap();
    std::mem::take(&mut *takes)
}

/// Each row was requested once, in order, in as few transactions as there are pages: what was taken is neither read again
/// nor held in memory.
fn each_once_in_order(takes: &[Take], requests: usize) {
    assert_eq!(takes.len(), requests.div_ceil(PAGE));
    assert!(takes.iter().all(|take| take.rows.len() <= PAGE));
    let rows: Vec<i64> = takes.iter().flat_map(|take| take.rows.clone()).collect();
    assert_eq!(rows.len(), requests);
    assert!(rows.is_sorted_by(|one, next| one < next));
}

/// The last pages are taken as fast as the first. The quickest of each are compared, which a busy computer does not slow
/// down: if the cost of a page grew with what was taken before it, the last quarter had no quick one.
fn late_is_as_fast_as_early(takes: &[Take]) {
    let spans: Vec<Duration> = takes
        .windows(2)
        .map(|pair| pair[1].began - pair[0].began)
        .collect();
    let quarter = spans.len() / 4;
    let quickest = |spans: &[Duration]| *spans.iter().min().unwrap();
    let early = quickest(&spans[..quarter]);
    let late = quickest(&spans[spans.len() - quarter..]);
    println!("a page took {early:?} at first and {late:?} at last");
    assert!(
        late < early * 3,
        "a page took {early:?} at first and {late:?} at last"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_requests_are_taken_page_by_page_on_sqlite() {
    // rules 16.4, 17.3
    const REQUESTS: usize = 1_000_000;
    let lab = Lab::sqlite().await;
    let mut caller = Caller::new(&lab).await;
    let takes = take(&lab, &mut caller, REQUESTS).await;
    each_once_in_order(&takes, REQUESTS);
    late_is_as_fast_as_early(&takes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_thousand_requests_are_taken_page_by_page_on_postgres() {
    // rules 16.4, 17.3
    const REQUESTS: usize = 300_000;
    let lab = Lab::postgres().await;
    let mut caller = Caller::new(&lab).await;
    let takes = take(&lab, &mut caller, REQUESTS).await;
    each_once_in_order(&takes, REQUESTS);
    late_is_as_fast_as_early(&takes);
    // By the count of the database itself: about five for each row were seen, and dead entries that are not vacuumed yet
    // add to it. Reading all that was taken before each page anew would be 300 for each.
    let found = "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'outbox_pkey'";
    eventually("the database to have counted", async || {
        caller.number(found).await >= REQUESTS as i64
    })
    .await;
    let found = caller.number(found).await;
    println!("{found} rows were found by the index");
    assert!(found <= 100 * REQUESTS as i64, "{found} rows were found");
}

on_both! {
async fn ten_thousand_requests_are_taken_page_by_page(lab: Lab, caller: Caller) {
    // rule 17.3: and leave a store in which nothing is wrong.
    let takes = take(&lab, &mut caller, 10_000).await;
    each_once_in_order(&takes, 10_000);
}}
