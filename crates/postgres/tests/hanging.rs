//! Processes that are paused, networks that swallow what is sent, locks that somebody keeps: what hangs holds up others
//! for a bounded time (rule 6.8).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    claim, commits, connect, database, deliver, done, key, keyed, open, parked, register, signal,
    start, start_all, until_blocked,
};
use abide_kernel::model::{Limits, NewCommand, Start, Verdict};
use abide_kernel::{Answer, Clock, Error, Op, OwnTransaction, Store, SystemClock, was_taken};
use abide_pgtest::{Server, psql};
use abide_postgres::tokio_postgres::Client;
use abide_postgres::{
    Listen, Options, Postgres, Prepare, StepTransaction, Timeouts, run_within, statements,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Longest time of a wait, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way to the server that can be made to swallow all that the server sends, as a process that is paused does, or a
/// network that has lost one of its ends.
struct Gate {
    swallows: watch::Sender<bool>,
    /// Number of connections that the client has open through it.
    open: Arc<AtomicUsize>,
}

impl Gate {
    /// A gate before that database, and the database's URL through it.
    async fn before(url: &str) -> (Self, String) {
        let (scheme, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = format!("{scheme}@{}/{database}", listener.local_addr().unwrap());
        let (swallows, swallowing) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let (counted, mut swallowing) = (counted.clone(), swallowing.clone());
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                        if to_server.write_all(&bytes[..count]).await.is_err() {
                            break;
                        }
                    }
                    counted.fetch_sub(1, Ordering::SeqCst);
                });
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                        // What is held back goes on when the gate opens again.
                        swallowing.wait_for(|swallows| !swallows).await.unwrap();
                        if to_client.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (Self { swallows, open }, through)
    }

    fn swallow(&self, swallows: bool) {
        self.swallows.send(swallows).unwrap();
    }

    /// Waits until the client has no connection open any more.
    async fn until_hung_up(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.open.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < deadline, "the connection is still open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn options(timeouts: Timeouts) -> Options {
    Options {
        listen: Listen::Off,
        pool_size: 1,
        connect_timeout: Duration::from_secs(1),
        clock: Some(Arc::new(SystemClock::default())),
        timeouts,
        ..Options::default()
    }
}

/// A signal that is held for the instance that starts under a key.
fn held(text: &str) -> NewCommand {
    NewCommand {
        hold_for: Some(Duration::from_secs(600)),
        ..signal(key(text), "go", "1")
    }
}

/// A signal that finds, or starts, what is under a key.
fn starting(text: &str) -> NewCommand {
    NewCommand {
        start: Some(Box::new(keyed("m", text))),
        ..signal(key(text), "go", "1")
    }
}

/// Locks a key alone, as a transaction that holds a signal for it does.
async fn lock_key(host: &Client, text: &str) {
    let lock = statements::ALL
        .iter()
        .find(|(name, _)| *name == "lock_keys");
    let keys = vec![text.to_owned()];
    host.query(lock.unwrap().1, &[&keys]).await.unwrap();
}

#[tokio::test]
async fn a_transaction_waits_for_a_lock_no_longer_than_it_may() {
    // rule 6.8
    let url = database();
    let store = open(&format!("{url}?lock_timeout_ms=300")).await;
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, start("m"), &["go"]).await;
    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    let lock = "select from abide.instances for update";
    blocker.execute(lock, &[]).await.unwrap();

    let begun = Instant::now();
    let sent = store
        .run(Arc::new([Op::Deliver(vec![signal(id, "go", "1")])]))
        .await;
    assert!(
        matches!(&sent, Err(Error::Conflict(text)) if text.contains("55P03")),
        "{sent:?}"
    );
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    blocker.rollback().await.unwrap();
    assert_eq!(deliver(&store, vec![signal(id, "go", "1")]).await.len(), 1);
}

#[tokio::test]
async fn settings_that_a_step_leaves_behind_lift_no_limit() {
    // rule 6.8: the connection of a step's own transaction serves others afterwards.
    let url = database();
    let timeouts = Timeouts {
        lock: Duration::from_millis(300),
        ..Timeouts::default()
    };
    // Two, and both are used below: one of them was the step's.
    let two = Options {
        pool_size: 2,
        ..options(timeouts)
    };
    let store = Postgres::connect(&url, two).await.unwrap();
    let worker = register(&store, "w").await;
    let first = parked(&store, worker, start("m"), &["go"]).await;
    let second = parked(&store, worker, start("m"), &["go"]).await;
    start_all(&store, vec![start("m")]).await;
    let mut claimed = claim(&store, worker, &["m"], 1).await;

    let step = store.begin(None).await.unwrap();
    let step: Box<dyn Any> = step;
    let step: Box<StepTransaction> = step.downcast().unwrap();
    let jit = step.query_one("select current_setting('jit')", &[]).await;
    assert_eq!(jit.unwrap().get::<_, &str>(0), "on", "the server's default");
    let settings = "set lock_timeout = 0; set statement_timeout = 0; set jit = on";
    step.batch_execute(settings).await.unwrap();
    let server = step.query_one("select pg_backend_pid()", &[]).await;
    let server: i32 = server.unwrap().get(0);
    let answer = step.finish(commits(vec![done(claimed.remove(0))])).await;
    assert!(was_taken(&answer.unwrap()));

    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    let lock = "select from abide.instances for update";
    blocker.execute(lock, &[]).await.unwrap();
    let sent = |id| store.run(Arc::new([Op::Deliver(vec![signal(id, "go", "1")])]));
    let waits = "select string_agg(pid::text, ' ') from pg_stat_activity \
        where wait_event_type = 'Lock' and datname = current_database()";
    let begun = Instant::now();
    let (one, other, waiting) = tokio::join!(sent(first), sent(second), async {
        until_blocked(&connect(&url).await, 2).await;
        psql(&url, waits)
    });
    let is_waiting = waiting.split(' ').any(|pid| pid == server.to_string());
    assert!(is_waiting, "the step used {server}; {waiting} wait");
    for sent in [one, other] {
        let is_limited = matches!(&sent, Err(Error::Conflict(text)) if text.contains("55P03"));
        assert!(is_limited, "{sent:?}");
    }
    // Without the limit, the deadline of the client would end it.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn a_process_that_is_paused_in_a_transaction_loses_its_locks() {
    // rule 6.8. The bug: a server was stopped while it held the lock of a key, and every signal that another server
    // was to hold timed out until the first was killed.
    for prepare in [Prepare::Always, Prepare::Never] {
        a_paused_process_loses_its_locks(prepare).await;
    }
}

/// With `Always` the session has the limits, with `Never` each transaction sets them.
async fn a_paused_process_loses_its_locks(prepare: Prepare) {
    let url = database();
    let (gate, through) = Gate::before(&url).await;
    let timeouts = Timeouts {
        idle: Duration::from_millis(700),
        ..Timeouts::default()
    };
    let options = Options {
        prepare,
        ..options(timeouts)
    };
    let paused = Postgres::connect(&through, options).await.unwrap();
    let paused = Arc::new(paused);
    // The second prepares the statements that the first used; from the third on, nothing precedes the transaction.
    for _ in 0..3 {
        deliver(&paused, vec![held("k")]).await;
    }
    let ended = "select sessions_fatal from pg_stat_database where datname = current_database()";
    let ended_before = psql(&url, ended);

    gate.swallow(true);
    let sent = tokio::spawn({
        let paused = paused.clone();
        async move { paused.run(Arc::new([Op::Deliver(vec![held("k")])])).await }
    });
    // On a busy machine the server may have ended the transaction before it is seen.
    let silent = "select count(*) from pg_stat_activity where state = 'idle in transaction' \
        and datname = current_database()";
    while psql(&url, silent) == "0" && psql(&url, ended) == ended_before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = open(&url).await;
    let begun = Instant::now();
    let delivered = deliver(&other, vec![held("k"), starting("k")]).await;
    // The second starts it, and both are for it.
    assert_eq!(delivered[0].verdict, Verdict::Received);
    assert!(delivered[1].started);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );

    // The one that was paused learns that nothing was written, or has tried again by itself: nothing is there twice.
    gate.swallow(false);
    let sent = sent.await.unwrap();
    let again = match sent {
        Ok(_) => 1,
        Err(Error::Unavailable(_)) => 0,
        Err(other) => panic!("{other:?}"),
    };
    let there = psql(&url, "select count(*) from abide.signals");
    assert_eq!(there, (5 + again).to_string());
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_hung_up_on() {
    // rule 6.8: before COMMIT was sent nothing was written; after it the outcome is unknown.
    let url = database();
    let (gate, through) = Gate::before(&url).await;
    let timeouts = Timeouts {
        transaction: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let store = Postgres::connect(&through, options(timeouts))
        .await
        .unwrap();
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, start("m"), &["go"]).await;

    gate.swallow(true);
    let begun = Instant::now();
    let sent = store
        .run(Arc::new([Op::Deliver(vec![signal(id, "go", "1")])]))
        .await;
    assert!(matches!(sent, Err(Error::Unavailable(_))), "{sent:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    gate.until_hung_up().await;
    gate.swallow(false);
    start_all(&store, vec![start("m")]).await;

    gate.swallow(true);
    let started = store.run(Arc::new([Op::Start(vec![start("m")])])).await;
    assert!(matches!(started, Err(Error::Unknown(_))), "{started:?}");
    gate.until_hung_up().await;
    gate.swallow(false);

    gate.swallow(true);
    let read = store.next_due().await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    gate.until_hung_up().await;
    gate.swallow(false);
    start_all(&store, vec![start("m")]).await;
    store.close().await;
}

#[tokio::test]
async fn a_call_that_is_given_up_hangs_up_at_once() {
    let url = database();
    let (gate, through) = Gate::before(&url).await;
    let store = Postgres::connect(&through, options(Timeouts::default())).await;
    let store = Arc::new(store.unwrap());
    start_all(&store, vec![start("m")]).await;
    gate.swallow(true);
    let call = store.run(Arc::new([Op::Deliver(vec![held("k")])]));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), call)
            .await
            .is_err()
    );
    gate.until_hung_up().await;
}

#[tokio::test]
async fn a_commit_that_a_standby_has_not_is_not_acknowledged_for_being_late() {
    // rule 1.1. A server that gives up its wait for a synchronous standby answers that all is well.
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let timeouts = Timeouts {
        transaction: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let store = Postgres::connect(&url, options(timeouts)).await.unwrap();
    start_all(&store, vec![start("m")]).await;
    psql(
        &url,
        "alter system set synchronous_standby_names = 'nobody'",
    );
    psql(&url, "select pg_reload_conf()");
    let set = "select count(*) from pg_settings where name = 'synchronous_standby_names' and setting = 'nobody'";
    while psql(&url, set) == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = store.run(Arc::new([Op::Start(vec![start("m")])])).await;
    assert!(matches!(started, Err(Error::Unknown(_))), "{started:?}");
}

#[tokio::test]
async fn keys_that_have_nothing_to_do_with_each_other_share_no_lock() {
    // rule 6.8. The bug: keys lay in 256 stripes, so that one that hung held up one of 256 others.
    let url = database();
    let store = Arc::new(open(&url).await);
    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    lock_key(blocker.client(), "stuck").await;

    let begun = Instant::now();
    for hundred in 0..6 {
        let of = |n: usize| format!("free:{}", hundred * 100 + n);
        let all = (0..100).map(|n| held(&of(n)));
        assert_eq!(deliver(&store, all.collect()).await.len(), 100);
        start_all(&store, (0..100).map(|n| keyed("m", &of(n))).collect()).await;
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let stuck = tokio::spawn({
        let store = store.clone();
        async move { deliver(&store, vec![held("stuck")]).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    blocker.rollback().await.unwrap();
    assert_eq!(stuck.await.unwrap()[0].verdict, Verdict::Held);
}

#[tokio::test]
async fn more_keys_than_the_server_has_room_to_lock_are_locked_together() {
    // rules 2.3, 6.8, 7.8
    let url = database();
    let store = Arc::new(open(&url).await);
    let mut host = connect(&url).await;
    let batch = host.transaction().await.unwrap();
    let many: Vec<Start> = (0..20_000)
        .map(|n| keyed("m", &format!("many:{n}")))
        .collect();
    let ops = [Op::Start(many)];
    let now = SystemClock::default().now();
    let answers = run_within(&batch, &ops, now, &Limits::default()).await;
    assert!(matches!(&answers.unwrap()[0], Answer::Started(each) if each.len() == 20_000));
    let locks = "select count(*) from pg_locks where locktype = 'advisory'";
    assert!(psql(&url, locks).parse::<i64>().unwrap() < 100);

    // Others start under keys of their own meanwhile; an operation that must know that no other starts under a key waits.
    start_all(&store, vec![keyed("m", "another")]).await;
    let sent = tokio::spawn({
        let store = store.clone();
        async move { deliver(&store, vec![held("many:7")]).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    batch.commit().await.unwrap();
    assert_eq!(sent.await.unwrap()[0].verdict, Verdict::Received);
    let all = (0..1_000).map(|n| held(&format!("many:{n}")));
    let delivered = deliver(&store, all.collect()).await;
    assert!(delivered.iter().all(|one| one.verdict == Verdict::Received));
}

#[tokio::test]
async fn a_store_that_cannot_see_who_the_server_was_says_so_in_time() {
    // rules 1.6, 6.8. The bug: the row that tells who the server was is locked whenever a store is opened, without a time
    // limit; one session that held it kept every process from starting.
    let url = database();
    open(&url).await.close().await;
    let mut host = connect(&url).await;
    let blocker = host.transaction().await.unwrap();
    let lock = "select * from abide.lineage for update";
    assert_eq!(blocker.query(lock, &[]).await.unwrap().len(), 1);

    let timeouts = Timeouts {
        lock: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let begun = Instant::now();
    let opening = Postgres::connect(&url, options(timeouts));
    let opened = tokio::time::timeout(PATIENCE, opening).await;
    let refused = opened.expect("it hangs").unwrap_err();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    let text = refused.to_string();
    assert!(text.contains("lock timeout"), "{text}");

    blocker.rollback().await.unwrap();
    let store = Postgres::connect(&url, options(timeouts)).await.unwrap();
    start_all(&store, vec![start("m")]).await;
    store.close().await;
}
