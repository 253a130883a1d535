//! A PostgreSQL database in which somebody else holds locks.

use abide::{Status, secs};
use serde_json::json;

use crate::common::{Lab, Script, eventually};
use crate::{each_took_its_steps_once, start_walks, walk};

/// Runs SQL as an operator would.
async fn psql(lab: &Lab, sql: &'static str) -> String {
    let url = lab.url().to_owned();
    let run = tokio::task::spawn_blocking(move || abide_pgtest::psql(&url, sql));
    run.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_others_hold_delays_work_and_fails_nobody() {
    // rule 4.2. The story: a transaction that conflicted sixteen times was taken for a refused outcome, so the error
    // handlers of healthy steps were asked about locks.
    let lab = Lab::postgres().await;
    let sql = "do $$ begin
        execute format('alter database %I set lock_timeout = 20', current_database());
    end $$";
    psql(&lab, sql).await;
    let lab = Lab::at(lab.url()).await;
    let engine = lab
        .engine()
        .queue("default", 10)
        .lease(secs(60))
        .machine(walk())
        .start()
        .await
        .unwrap();
    let ids = start_walks(&lab, 100).await;
    eventually("work to begin", async || engine.stats().committed > 50).await;
    let hold =
        "begin; lock table abide.instances in share row exclusive mode; select pg_sleep(2); commit";
    psql(&lab, hold).await;
    each_took_its_steps_once(&lab, &ids).await;
    assert_eq!((engine.stats().refused, engine.stats().stale), (0, 0));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_an_operator_ends_is_replaced() {
    // rules 1.1, 1.3
    let lab = Lab::postgres().await;
    let engine = lab
        .engine()
        .queue("default", 10)
        .machine(walk())
        .start()
        .await
        .unwrap();
    let ids = start_walks(&lab, 150).await;
    for _ in 0..5 {
        let before = engine.stats().committed;
        eventually("work to go on", async || {
            engine.stats().committed > before + 50
                || lab.depths().await.is_ok_and(|depths| depths.is_empty())
        })
        .await;
        psql(&lab, "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'abide'
            and datname = current_database()").await;
    }
    eventually("the database to be reached", async || {
        lab.get(ids[0]).await.is_ok()
    })
    .await;
    each_took_its_steps_once(&lab, &ids).await;
    let order = lab.start(Script::any(), json!(0)).await.unwrap();
    assert_eq!(lab.ended(order.id()).await.status, Status::Done);
    engine.shutdown().await;
}
