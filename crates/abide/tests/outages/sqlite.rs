//! An SQLite file in which another process writes for a long time.

use std::time::Instant;

use abide::client::StartError;
use abide::sqlite::rusqlite::Connection;
use abide::time::{millis, secs};
use abide::{Abide, Error};
use serde_json::json;

use crate::common::{Lab, Script, eventually, soon};
use crate::outages::{each_took_its_steps_once, start_walks, walk};

fn connection(lab: &Lab) -> Connection {
    Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_writer_delays_work_and_fails_nothing() {
    // rules 1.1, 1.3
    let lab = Lab::sqlite().await;
    let engine = lab
        .engine()
        .queue("default", 20)
        .machine(walk())
        .start()
        .await
        .unwrap();
    let ids = start_walks(&lab, 200).await;
    eventually("work to begin", async || engine.stats().committed > 100).await;
    let other = connection(&lab);
    other.busy_timeout(secs(10)).unwrap();
    for _ in 0..3 {
        other
            .execute_batch("begin immediate; create table if not exists mine (id integer)")
            .unwrap();
        // Readers are not delayed, and writers wait.
        let read = soon("a row to be read", lab.get(ids[0])).await.unwrap();
        assert!(read.is_some());
        let writing = lab.clone();
        let start = tokio::spawn(async move { writing.start(Script::any(), json!(0)).await });
        tokio::time::sleep(millis(300)).await;
        assert!(!start.is_finished(), "nothing can be written meanwhile");
        other.execute_batch("commit").unwrap();
        let order = soon("the start", start).await.unwrap().unwrap();
        each_took_its_steps_once(&lab, &[order.id()]).await;
    }
    each_took_its_steps_once(&lab, &ids).await;
    assert_eq!((engine.stats().refused, engine.stats().stale), (0, 0));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_be_written_says_so_when_its_patience_is_spent() {
    let lab = Lab::sqlite().await;
    let hasty = lab.opened(Abide::options().patience(millis(100))).await;
    let engine = lab
        .engine()
        .queue("default", 5)
        .lease(secs(60))
        .machine(walk())
        .start()
        .await
        .unwrap();
    let ids = start_walks(&lab, 20).await;
    let other = connection(&lab);
    other.busy_timeout(secs(10)).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let begun = Instant::now();
    let error = soon(
        "an answer",
        hasty.start(Script::any(), json!(0)).into_future(),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, StartError::Error(Error::Unavailable(_))),
        "{error:?}"
    );
    assert!(error.to_string().contains("try again"), "{error}");
    // The store itself waits five seconds for another writer before it gives up.
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    other.execute_batch("rollback").unwrap();
    each_took_its_steps_once(&lab, &ids).await;
    assert_eq!((engine.stats().refused, engine.stats().stale), (0, 0));
    engine.shutdown().await;
}
