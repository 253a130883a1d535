//! A PostgreSQL database in which another client holds locks.

use std::sync::Arc;
use std::time::Duration;

use abide::postgres::tokio_postgres::{self, Client, NoTls};
use abide::time::{Timestamp, hours, millis, secs};
use abide::{InstanceId, Status, done};
use abide_kernel::model::{Lane, Name};
use abide_kernel::{Answer, ClaimRequest, NewWorker, Op, Store};
use serde_json::json;

use crate::common::{Lab, Log, Script, eventually};
use crate::outages::{each_took_its_steps_once, start_walks, walk};

/// Runs SQL as an operator would.
async fn psql(lab: &Lab, sql: &'static str) -> String {
    let url = lab.url().to_owned();
    let run = tokio::task::spawn_blocking(move || abide_pgtest::psql(&url, sql));
    run.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_others_hold_delays_work_and_fails_nothing() {
    // rule 4.2. The bug: a transaction that conflicted sixteen times was taken for a refused outcome, so the error
    // handlers of healthy steps were called for locks.
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

/// A connection of another client.
async fn foreign(lab: &Lab) -> Client {
    let (client, connection) = tokio_postgres::connect(lab.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The number of transactions that the database has seen.
async fn transactions(lab: &Lab) -> u64 {
    let seen = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
    psql(lab, seen).await.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_due_row_that_somebody_has_locked_delays_no_other_timer() {
    // rules 6.5, 6.8. The bug: a `select … for update` on one due row for 20 s delayed all timers of the store.
    let lab = Lab::postgres().await;
    let log: Log<(i64, Timestamp)> = Log::new();
    let script = {
        let (log, clock) = (log.clone(), lab.store().await.clock());
        Script::new(move |_, ctx| {
            log.note((ctx.id().0, clock.now()));
            done(json!(null))
        })
    };
    let engine = lab.engine().poll(hours(1)).machine(script);
    let engine = engine.queue("default", 50).start().await.unwrap();
    let delayed = async |delay: u64| {
        let order = lab.start(Script::any(), json!(0)).delay(millis(delay));
        order.await.unwrap().id()
    };
    let locked = delayed(2_000).await;
    // One whose partition's front is locked, as its own row is not.
    let of_partition = |delay: u64| {
        lab.start(Script::any(), json!(0))
            .queue("unserved")
            .partition("p")
            .delay(millis(delay))
    };
    let front = of_partition(0).await.unwrap().id();
    let behind = of_partition(2_000).await.unwrap().id();
    let mut foreign = foreign(&lab).await;
    let holds = foreign.transaction().await.unwrap();
    let lock = "select from abide.instances where id = any($1) for update";
    let ids: Vec<i64> = vec![locked.0, front.0];
    assert_eq!(holds.execute(lock, &[&ids]).await.unwrap(), 2);
    let mut others = Vec::new();
    for n in 0..40 {
        others.push(delayed(2_100 + n * 50).await);
    }

    let before = transactions(&lab).await;
    eventually("the others to run", async || log.len() >= others.len()).await;
    let mut late = Vec::new();
    for (id, ran) in log.read() {
        assert_ne!(id, locked.0, "a row that is locked was fired");
        let created = lab.now(abide::InstanceId(id)).await.created_at;
        let index = others.iter().position(|other| other.0 == id).unwrap();
        late.push(ran.since(created + millis(2_100 + 50 * index as u64)));
    }
    late.sort();
    assert!(late[late.len() / 2] < millis(100), "{late:?}");
    assert_eq!(lab.now(behind).await.status, Status::Scheduled);
    // Each of the others is fired, claimed, committed and notified of. Locked rows are checked now and then.
    tokio::time::sleep(secs(2)).await;
    let seen = transactions(&lab).await - before;
    assert!(seen < 500, "{seen} transactions");

    holds.rollback().await.unwrap();
    let freed = std::time::Instant::now();
    eventually("the locked one to run", async || log.len() > others.len()).await;
    assert!(freed.elapsed() < secs(3), "{:?}", freed.elapsed());
    eventually("the other of the partition to be due", async || {
        lab.now(behind).await.status == Status::Runnable
    })
    .await;
    engine.shutdown().await;
}

/// The reason why a claim lapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lapses {
    /// Its own lease runs out, while its worker lives.
    Lease,
    /// Its worker dies.
    Worker,
}

/// Claims all that is runnable for a worker that is never heard of again.
async fn claim_for_good(store: &Arc<dyn Store>, lapses: Lapses, count: usize, lease: Duration) {
    let queue = Name::new("default").unwrap();
    let lane = Lane {
        machine: Name::new("script").unwrap(),
        version: 1,
    };
    let worker = NewWorker {
        name: Name::new("silent").unwrap(),
        lease: match lapses {
            Lapses::Lease => secs(600),
            Lapses::Worker => lease,
        },
        queues: vec![queue.clone()],
        lanes: vec![lane.clone()],
        build: None,
    };
    let registered = store.run(Arc::new([Op::Register(worker)])).await.unwrap();
    let Answer::Registered(worker) = &registered[0] else {
        panic!("{registered:?}")
    };
    let request = ClaimRequest {
        worker: worker.id,
        queue,
        lanes: vec![lane],
        limit: count,
        lease: (lapses == Lapses::Lease).then_some(lease),
    };
    let claimed = store.run(Arc::new([Op::Claim(request)])).await.unwrap();
    assert!(matches!(&claimed[0], Answer::Claimed(all) if all.len() == count));
}

async fn a_claim_whose_row_is_locked_delays_no_other(lapses: Lapses) {
    let lab = Lab::postgres().await;
    let log: Log<(i64, std::time::Instant)> = Log::new();
    let script = {
        let log = log.clone();
        Script::new(move |_, ctx| {
            log.note((ctx.id().0, std::time::Instant::now()));
            done(json!(null))
        })
    };
    let ids = start_walks(&lab, 40).await;
    let lease = secs(3);
    claim_for_good(&lab.store().await, lapses, ids.len(), lease).await;
    let claimed = std::time::Instant::now();
    // The first, which comes before all others when they are taken back in order.
    let locked: InstanceId = ids[0];
    let mut foreign = foreign(&lab).await;
    let holds = foreign.transaction().await.unwrap();
    let lock = "select from abide.instances where id = $1 for update";
    assert_eq!(holds.execute(lock, &[&locked.0]).await.unwrap(), 1);

    let engine = lab.engine().machine(script).queue("default", 50);
    let engine = engine.start().await.unwrap();
    eventually("the others to be taken back", async || {
        log.len() >= ids.len() - 1
    })
    .await;
    for (id, ran) in log.read() {
        assert_ne!(id, locked.0, "a row that is locked was taken back");
        let after = ran - claimed;
        assert!(
            after > lease - secs(1),
            "{id} was taken back after {after:?}"
        );
        assert!(
            after < lease + secs(10),
            "{id} was taken back after {after:?}"
        );
    }
    assert_eq!(log.len(), ids.len() - 1);
    assert_eq!(lab.now(locked).await.status, Status::Executing);

    holds.rollback().await.unwrap();
    let freed = std::time::Instant::now();
    eventually("the locked one to be taken back", async || {
        log.len() == ids.len()
    })
    .await;
    assert!(freed.elapsed() < secs(10), "{:?}", freed.elapsed());
    lab.all_done(&ids).await;
    for id in ids {
        // It was taken back once, and ran once after that.
        assert_eq!(lab.now(id).await.deaths, 1, "{lapses:?}");
    }
    assert_eq!(engine.stats().stale, 0);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapsed_lease_whose_row_is_locked_delays_no_other() {
    // rules 5.3, 6.8
    a_claim_whose_row_is_locked_delays_no_other(Lapses::Lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_dead_worker_whose_row_is_locked_delays_no_other() {
    // rules 5.3, 6.8
    a_claim_whose_row_is_locked_delays_no_other(Lapses::Worker).await;
}
