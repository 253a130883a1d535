//! A thousand idle workers cost the database next to nothing.

use std::time::{Duration, Instant};

use abide_pgtest::psql;

use crate::common::{Over, server};
use crate::workers::kit::worker;

/// Number of workers that wait.
const WORKERS: usize = 1_000;
/// Time for which statements are counted.
const COUNTED: Duration = Duration::from_secs(45);
/// Statements a second that are allowed.
const ALLOWED: f64 = 5.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_workers_cost_under_five_statements_a_second() {
    let cluster =
        abide_pgtest::Server::private(&[("shared_preload_libraries", "pg_stat_statements")]);
    let url = cluster.fresh_database();
    psql(&url, "create extension pg_stat_statements");
    let server = server().over(Over::Url(url.clone())).start();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut polls = Vec::new();
    for n in 0..WORKERS {
        let mut hand = worker(&server);
        hand.name = format!("idle-{n}");
        let stop = stop.clone();
        polls.push(tokio::spawn(async move {
            // Each asks again when its time is up, as workers do.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(hand.claim(1, 4_000).await.is_empty());
            }
        }));
    }
    let end = Instant::now() + Duration::from_secs(60);
    while psql(
        &url,
        "select count(*) from abide.workers where name like 'idle-%'",
    ) != WORKERS.to_string()
    {
        assert!(Instant::now() < end, "the workers do not become known");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Our own counting is not counted: it queries from another database.
    let admin = cluster.url("postgres");
    psql(&admin, "create extension if not exists pg_stat_statements");
    let database = url
        .rsplit('/')
        .next()
        .unwrap()
        .split('?')
        .next()
        .unwrap()
        .to_owned();
    // The settings that travel with a BEGIN are not round trips of their own.
    let count = format!(
        "select coalesce(sum(s.calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = '{database}' and s.query not ilike 'set local %'"
    );
    psql(&admin, "select pg_stat_statements_reset()");
    let began = Instant::now();
    tokio::time::sleep(COUNTED).await;
    let statements: f64 = psql(&admin, &count).parse().unwrap();
    let rate = statements / began.elapsed().as_secs_f64();
    println!("{rate:.2} statements a second");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let most = format!(
        "select s.calls || ' times ' || left(s.query, 100) from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = '{database}' order by s.calls desc limit 20"
    );
    assert!(
        rate < ALLOWED,
        "{rate} statements a second; most were:\n{}",
        psql(&admin, &most)
    );
    for poll in polls {
        poll.await.unwrap();
    }
}
