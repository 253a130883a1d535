//! Connections break, servers stop, and the store goes on.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    self, claim, commit_all, commits, connect, database, done, open, register, request, start,
    start_all, until_blocked, with_one_connection,
};
use abide_kernel::model::{Committed, Status, WorkerId};
use abide_kernel::{Error, Op, Store};
use abide_pgtest::{Server, psql};
use abide_postgres::{Options, Postgres};

const KILL: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
    where application_name = 'abide' and datname = current_database()";

#[tokio::test]
async fn a_backend_that_is_killed_during_work_is_replaced() {
    let url = database();
    // The lock is waited for until the backend is killed, however busy the machine is.
    let store = Arc::new(open(&format!("{url}?lock_timeout_ms=20000")).await);
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m")]).await;
    let held = claim(&store, worker, &["m"], 1).await.remove(0);
    let id = held.claim.id();

    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    let lock = "select from abide.instances for update";
    blocker.execute(lock, &[]).await.unwrap();
    let running = tokio::spawn({
        let store = store.clone();
        async move { store.run(Arc::new([commits(vec![done(held)])])).await }
    });
    let eye = connect(&url).await;
    until_blocked(&eye, 1).await;
    // The connection had been made before, so it is tried once more on a new one; when that is lost too, it fails.
    psql(&url, KILL);
    until_blocked(&eye, 1).await;
    psql(&url, KILL);
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    blocker.rollback().await.unwrap();

    // Nothing of it was written, and the next call has a connection that works.
    let instance = store.get(&id.into()).await.unwrap().unwrap();
    assert_eq!(instance.status, Status::Executing);
    start_all(&store, vec![start("m")]).await;
}

#[tokio::test]
async fn connections_that_were_lost_while_idle_are_not_noticed() {
    let url = database();
    let store = Arc::new(open(&url).await);
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"); 9]).await;
    for _ in 0..9 {
        let held = claim(&store, worker, &["m"], 1).await;
        futures_util::future::join_all((0..8).map(|_| store.next_due())).await;
        psql(&url, KILL);
        store.next_due().await.unwrap();
        psql(&url, KILL);
        commit_all(&store, held.into_iter().map(done).collect()).await;
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_commit_is_unknown_and_settled_by_asking_again() {
    // rule 1.3: the epoch tells whether this very commit was made.
    let url = database();
    // One connection, which has its statements prepared by then: preparing would wait for the lock as well.
    let store = Arc::new(with_one_connection(&url).await);
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"), start("m")]).await;
    let held = claim(&store, worker, &["m"], 1).await.remove(0);
    let again = held.claim.again();

    // The claim is the last statement, COMMIT travels with it, and both wait behind a lock on the table.
    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    blocker
        .batch_execute("lock table abide.history in share mode")
        .await
        .unwrap();
    let running = tokio::spawn({
        let store = store.clone();
        let ops = [
            commits(vec![done(held)]),
            Op::Claim(request(worker, &["m"], 1)),
        ];
        async move { store.run(Arc::new(ops)).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    psql(&url, KILL);
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    blocker.rollback().await.unwrap();

    let outcome = abide_kernel::model::Outcome::Done {
        result: common::json("true"),
    };
    let took = Duration::ZERO;
    let again = abide_kernel::model::Commit {
        claim: again,
        outcome,
        keep: false,
        took,
        error: None,
    };
    assert_eq!(
        commit_all(&store, vec![again]).await,
        [Committed::Moved(Status::Done)]
    );
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_transaction_behind() {
    let url = database();
    let store = Arc::new(open(&url).await);
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m")]).await;
    let held = claim(&store, worker, &["m"], 1).await.remove(0);
    let id = held.claim.id();
    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    blocker
        .execute("select from abide.instances for update", &[])
        .await
        .unwrap();
    let running = tokio::spawn({
        let store = store.clone();
        async move { store.run(Arc::new([commits(vec![done(held)])])).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    running.abort();
    let _ = running.await;
    blocker.rollback().await.unwrap();
    for _ in 0..20 {
        start_all(&store, vec![start("m")]).await;
    }
    assert_eq!(
        store.get(&id.into()).await.unwrap().unwrap().status,
        Status::Executing
    );
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%' \
        and datname = current_database()";
    for _ in 0..200 {
        if psql(&url, open) == "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a transaction is still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_is_used_again() {
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let store = open(&url).await;
    let mut listener = store.listen();
    start_all(&store, vec![start("m")]).await;
    listener.next().await.unwrap();

    tokio::task::block_in_place(|| server.stop());
    let error = store
        .run(Arc::new([Op::Start(vec![start("m")])]))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(matches!(store.next_due().await, Err(Error::Unavailable(_))));

    tokio::task::block_in_place(|| server.start());
    start_all(&store, vec![start("m")]).await;
    // rule 6.6: notifications may have been lost, so listeners learn that anything may have changed.
    let notified = async { while !listener.next().await.unwrap().anything {} };
    tokio::time::timeout(Duration::from_secs(30), notified)
        .await
        .unwrap();
    assert_eq!(psql(&url, "select count(*) from abide.instances"), "2");
    store.close().await;
}

#[tokio::test]
async fn a_deadlock_is_a_conflict() {
    let url = database();
    let store = Arc::new(open(&url).await);
    let worker = register(&store, "w").await;
    // The server ends whichever of the two it checks while both wait, and on a busy machine that may be the host.
    for _ in 0..20 {
        if let Some(error) = deadlocked(&url, &store, worker).await {
            assert!(
                matches!(&error, Error::Conflict(text) if text.contains("40P01")),
                "{error:?}"
            );
            start_all(&store, vec![start("m")]).await;
            return;
        }
    }
    panic!("the server ended the host's transaction every time");
}

/// Lets the store and a host wait for each other; the error of the store, if it was the one whose wait was ended.
async fn deadlocked(url: &str, store: &Arc<Postgres>, worker: WorkerId) -> Option<Error> {
    start_all(store, vec![start("m"), start("m")]).await;
    let held = claim(store, worker, &["m"], 2).await;
    let (first, second) = (held[0].claim.id().0, held[1].claim.id().0);
    let lock = "select from abide.instances where id = $1 for update";

    // The host locks against the order of ids, which the store never does.
    let mut host = connect(url).await;
    let host = host.transaction().await.unwrap();
    host.execute(lock, &[&second]).await.unwrap();
    let running = tokio::spawn({
        let store = store.clone();
        async move {
            let commits = commits(held.into_iter().map(done).collect());
            store.run(Arc::new([commits])).await
        }
    });
    until_blocked(&connect(url).await, 1).await;
    let spared = host.execute(lock, &[&first]).await.is_ok();
    host.rollback().await.unwrap();
    let answer = running.await.unwrap();
    assert_eq!(spared, answer.is_err(), "{answer:?}");
    answer.err()
}

#[tokio::test]
async fn a_schema_that_is_gone_is_broken_and_says_so() {
    let url = abide_pgtest::server().fresh_database();
    let store = open(&url).await;
    psql(&url, "drop schema abide cascade");
    let error = store
        .run(Arc::new([Op::Start(vec![start("m")])]))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Broken(text) if text.contains("42P01")),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_closed_store_is_closed_and_leaves_no_connection() {
    let url = database();
    let store = Postgres::connect(&url, Options::default()).await.unwrap();
    start_all(&store, vec![start("m")]).await;
    store.close().await;
    assert!(matches!(store.next_due().await, Err(Error::Closed)));
    let left = "select count(*) from pg_stat_activity where application_name = 'abide' \
        and datname = current_database()";
    for _ in 0..200 {
        if psql(&url, left) == "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("connections are left");
}
