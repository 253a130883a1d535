//! Writing: commits that are shared, requests that fail beside others, files that are busy, the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Database, claim, claimed, count, done, plain, run, start, start_one, too_many, worker,
};
use abide_core::model::{Committed, Json, Start, Status, Timestamp};
use abide_kernel::{Answer, Clock, Error, Op, Store, SystemClock};
use abide_sqlite::rusqlite::Connection;
use abide_sqlite::{Options, Sqlite};
use futures_util::future::{BoxFuture, join_all};

/// Blocks all writers until it is dropped, so that requests come together.
struct Gate(Connection);

impl Gate {
    fn shut(database: &Database) -> Self {
        let conn = database.connect();
        conn.execute_batch("begin immediate").unwrap();
        Self(conn)
    }

    /// Opens it when all these have been sent; returns their answers.
    async fn open_for<T: Send + 'static>(
        self,
        requests: Vec<impl Future<Output = T> + Send + 'static>,
    ) -> Vec<T> {
        let tasks: Vec<_> = requests.into_iter().map(tokio::spawn).collect();
        // One thread runs all tasks, so each of them has sent its request when it comes to this one again.
        tokio::task::yield_now().await;
        self.0.execute_batch("rollback").unwrap();
        join_all(tasks)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }
}

#[tokio::test]
async fn callers_that_come_together_share_a_commit() {
    let database = Database::new();
    let store = database.open();
    let gate = Gate::shut(&database);
    let one = |store: Arc<Sqlite>| async move { store.run([start(1)].into()).await.is_ok() };
    let requests = (0..100).map(|_| one(Arc::clone(&store))).collect();
    assert!(gate.open_for(requests).await.into_iter().all(|fine| fine));
    // The first may have been alone, and a transaction takes in others only for a while.
    assert!(store.commits() < 50, "{} commits", store.commits());
    assert_eq!(count(&database.path()), 100);
    store.close().await;
}

#[tokio::test]
async fn a_single_caller_waits_for_no_other() {
    let database = Database::new();
    let store = database.open();
    for _ in 0..10 {
        start_one(&*store).await;
    }
    assert_eq!(store.commits(), 10);
    store.close().await;
}

#[tokio::test]
async fn a_request_that_fails_touches_no_neighbour() {
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", Duration::from_secs(60)).await;
    start_one(&*store).await;
    let gate = Gate::shut(&database);
    let send = |ops: Vec<Op>| {
        let store = Arc::clone(&store);
        async move { store.run(ops.into()).await }
    };
    let answers = gate
        .open_for(vec![
            send(vec![start(1)]),
            send(vec![claim(worker, 1)]),
            // One fails before it has written anything, one after.
            send(vec![too_many()]),
            send(vec![start(3), claim(worker, 2), too_many()]),
            send(vec![start(1)]),
        ])
        .await;
    let refused = |at: usize| matches!(&answers[at], Err(Error::Refused(_)));
    assert!(refused(2) && refused(3), "{answers:?}");
    assert!(answers[0].is_ok() && answers[4].is_ok(), "{answers:?}");
    assert!(matches!(&answers[1].as_ref().unwrap()[..], [Answer::Claimed(one)] if one.len() == 1));
    assert_eq!(count(&database.path()), 3);
    // What the failed request had claimed can be claimed, as if it had never been.
    let left = claimed(&*store, worker, 10).await;
    assert_eq!(
        left.iter()
            .map(|one| one.claim.epoch().0)
            .collect::<Vec<_>>(),
        [1, 1]
    );
    let Answer::Committed(ended) = run(&*store, done(left)).await else {
        panic!("no commit")
    };
    assert_eq!(
        ended,
        [
            Committed::Moved(Status::Done),
            Committed::Moved(Status::Done)
        ]
    );
    store.close().await;
}

#[tokio::test]
async fn a_file_that_stays_busy_is_away_and_no_more() {
    let database = Database::new();
    database.open().close().await;
    let options = Options {
        busy_timeout: Duration::from_millis(20),
        ..Options::default()
    };
    let store = Sqlite::open(database.path(), options).unwrap();
    let gate = Gate::shut(&database);
    let answer = store.run([start(1)].into()).await;
    assert!(
        matches!(&answer, Err(error @ Error::Unavailable(_)) if error.is_passing()),
        "{answer:?}"
    );
    drop(gate);
    start_one(&*store).await;
    assert_eq!(count(&database.path()), 1);
    store.close().await;
}

#[tokio::test]
async fn requests_before_it_closes_are_done_and_later_ones_are_refused_as_closed() {
    let database = Database::new();
    let store = database.open();
    let gate = Gate::shut(&database);
    let send = |store: Arc<Sqlite>| async move {
        let answered = store.run([start(1)].into()).await;
        store.close().await;
        answered.is_ok()
    };
    let requests = (0..20).map(|_| send(Arc::clone(&store))).collect();
    assert!(gate.open_for(requests).await.into_iter().all(|fine| fine));
    assert!(matches!(
        store.run([start(1)].into()).await,
        Err(Error::Closed)
    ));
    assert!(matches!(store.depths().await, Err(Error::Closed)));
    assert_eq!(count(&database.path()), 20);
    // Nothing is left lying about.
    assert!(!database.path().with_extension("db-wal").exists());
}

/// A clock that can be made to panic.
struct Fragile(Arc<AtomicBool>);

impl Clock for Fragile {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Ordering::Relaxed), "the clock is broken");
        SystemClock::here()
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_panic_in_the_thread_leaves_no_request_waiting() {
    let database = Database::new();
    let breaks = Arc::new(AtomicBool::new(false));
    let clock: Arc<dyn Clock> = Arc::new(Fragile(Arc::clone(&breaks)));
    let options = Options {
        clock: Some(clock),
        ..Options::default()
    };
    let store = Sqlite::open(database.path(), options).unwrap();
    start_one(&*store).await;
    breaks.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let answer = store.run([Op::Start(vec![plain()])].into()).await;
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    store.close().await;
    assert_eq!(count(&database.path()), 1);
}

#[tokio::test]
async fn a_long_log_is_carried_over_while_it_runs() {
    let database = Database::new();
    let store = database.open();
    let large = Start {
        state: Json::of(&"x".repeat(100_000)).unwrap(),
        ..plain()
    };
    for _ in 0..40 {
        run(&*store, Op::Start(vec![large.clone(); 10])).await;
    }
    let log = database
        .path()
        .with_extension("db-wal")
        .metadata()
        .unwrap()
        .len();
    // Forty million bytes were written.
    assert!(log < 20 << 20, "{log} bytes");
    assert_eq!(count(&database.path()), 400);
    store.close().await;
}
