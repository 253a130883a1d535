//! Round trips of transactions: counted by a proxy on the way that delays every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{
    self, claim, commit, commits, database, event, json, key, keyed, name, next, parked, published,
    register, request, signal, start, start_all, wait_for_event,
};
use abide_kernel::model::{Claimed, Join, Key, Limits, Outcome, Start};
use abide_kernel::{Answer, ClaimRequest, NewWorker, Op, Store, SystemClock};
use abide_pgtest::psql;
use abide_postgres::{Listen, Options, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Delay of each answer: whatever is sent meanwhile was sent without waiting for it.
const DELAY: Duration = Duration::from_millis(40);

/// Counts how often something is sent that could have been a consequence of an answer.
#[derive(Default)]
struct Trips {
    count: AtomicUsize,
    answered: AtomicBool,
    /// Number of bytes that the server has sent.
    bytes: AtomicUsize,
}

impl Trips {
    fn sent(&self) {
        if self.answered.swap(false, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn take(&self) -> usize {
        self.answered.store(true, Ordering::SeqCst);
        self.count.swap(0, Ordering::SeqCst)
    }
}

/// A store behind a proxy, and the proxy's count.
async fn delayed() -> (Postgres, Arc<Trips>) {
    delayed_within(Limits::default()).await
}

async fn delayed_within(limits: Limits) -> (Postgres, Arc<Trips>) {
    delayed_at(&database(), limits).await
}

async fn delayed_at(url: &str, limits: Limits) -> (Postgres, Arc<Trips>) {
    let (scheme, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (server, trips) = (server.to_owned(), Arc::new(Trips::default()));
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{scheme}@{}/{database}", proxy.local_addr().unwrap());
    let counted = trips.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = proxy.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let (requests, answers) = (counted.clone(), counted.clone());
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                    requests.sent();
                    to_server.write_all(&bytes[..count]).await.unwrap();
                }
            });
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                    tokio::time::sleep(DELAY).await;
                    answers.answered.store(true, Ordering::SeqCst);
                    answers.bytes.fetch_add(count, Ordering::SeqCst);
                    if to_client.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let options = Options {
        // Its own: the server's is queried for the time now and then, which would be counted.
        clock: Some(Arc::new(SystemClock::default())),
        listen: Listen::Off,
        pool_size: 1,
        limits,
        ..Options::default()
    };
    (Postgres::connect(&through, options).await.unwrap(), trips)
}

async fn trips_of(store: &Postgres, trips: &Trips, ops: Vec<Op>) -> (usize, Vec<Answer>) {
    // The notifications of the calls before have gone out.
    tokio::time::sleep(DELAY * 5).await;
    trips.take();
    let answers = store.run(ops.into()).await.unwrap();
    (trips.take(), answers)
}

#[tokio::test]
async fn a_claim_is_one_round_trip() {
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"); 3]).await;
    let ops = vec![Op::Claim(request(worker, &["m"], 2))];
    let (count, answers) = trips_of(&store, &trips, ops).await;
    assert!(matches!(&answers[0], Answer::Claimed(claimed) if claimed.len() == 2));
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_commit_is_two_round_trips_and_a_claim_after_it_costs_none() {
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"); 5]).await;
    let held = claim(&store, worker, &["m"], 2).await;

    let kept = commits(held.into_iter().map(|one| next(one, "more")).collect());
    let (count, _) = trips_of(&store, &trips, vec![kept]).await;
    assert_eq!(count, 2);

    let held = claim(&store, worker, &["m"], 2).await;
    let kept = commits(held.into_iter().map(|one| next(one, "more")).collect());
    let ops = vec![kept, Op::Claim(request(worker, &["m"], 2))];
    let (count, answers) = trips_of(&store, &trips, ops).await;
    assert!(matches!(&answers[1], Answer::Claimed(claimed) if claimed.len() == 1));
    assert_eq!(count, 2);
}

#[tokio::test]
async fn a_claim_of_a_suspect_reads_nothing_else_that_its_worker_holds() {
    // rules 5.6 and 6.2: all that the worker held was read and locked, 500 rows at a time.
    let url = database();
    let (store, trips) = delayed_at(&url, Limits::default()).await;
    let mut counts = Vec::new();
    for held in [10, 1_300] {
        let worker = register(&store, &format!("w{held}")).await;
        start_all(&store, vec![start("m"); held]).await;
        assert_eq!(claim(&store, worker, &["m"], held).await.len(), held);
        start_all(&store, vec![start("n")]).await;
        let died =
            "update abide.instances set extra = '{\"deaths\":2}', attempt = 2 where machine = 'n'";
        psql(&url, died);
        let request = ClaimRequest {
            lease: Some(Duration::from_secs(60)),
            ..request(worker, &["n"], 1)
        };
        let (count, answers) = trips_of(&store, &trips, vec![Op::Claim(request)]).await;
        assert!(matches!(&answers[0], Answer::Claimed(claimed) if claimed.len() == 1));
        counts.push(count);
    }
    assert_eq!(counts[0], counts[1]);
}

/// Claims under leases; what was claimed, and how many bytes the server sent for it.
async fn lease(store: &Postgres, trips: &Trips, request: ClaimRequest) -> (Vec<Claimed>, usize) {
    let request = ClaimRequest {
        lease: Some(Duration::from_secs(60)),
        ..request
    };
    tokio::time::sleep(DELAY * 5).await;
    trips.bytes.store(0, Ordering::SeqCst);
    let answers = store.run(Arc::from([Op::Claim(request)])).await.unwrap();
    match answers.into_iter().next() {
        Some(Answer::Claimed(claimed)) => (claimed, trips.bytes.load(Ordering::SeqCst)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_under_leases_reads_no_more_bytes_than_it_answers() {
    // rule 16.4: all states that were requested came from the server, and then the children of all, for an answer that is
    // bounded.
    let most = 300_000;
    let limits = Limits {
        claim_bytes: most,
        ..Limits::default()
    };
    let (store, trips) = delayed_within(limits).await;
    let worker = register(&store, "w").await;
    let large = |bytes: usize| json(&format!("\"{}\"", "x".repeat(bytes)));
    let state = large(50_000);
    let starts = vec![
        Start {
            state,
            ..start("m")
        };
        30
    ];
    start_all(&store, starts).await;
    let (claimed, bytes) = lease(&store, &trips, request(worker, &["m"], 100)).await;
    assert_eq!(claimed.len(), 5);
    assert!((250_000..most + 20_000).contains(&bytes), "{bytes}");
    let (claimed, bytes) = lease(&store, &trips, request(worker, &["m", "n"], 100)).await;
    assert_eq!(claimed.len(), 5);
    assert!((250_000..most + 20_000).contains(&bytes), "{bytes}");

    start_all(&store, vec![start("parent"); 10]).await;
    for parent in claim(&store, worker, &["parent"], 10).await {
        let spawn = Outcome::Spawn {
            children: vec![start("child"); 2],
            next: name("joined"),
            state: json("{}"),
            join: Join::default(),
            timeout_ms: None,
        };
        let ops = commits(vec![commit(parent, spawn, false)]);
        store.run(Arc::from([ops])).await.unwrap();
    }
    let result = large(60_000);
    let ends = claim(&store, worker, &["child"], 100).await.into_iter();
    let ends = ends.map(|one| {
        let result = result.clone();
        commit(one, Outcome::Done { result }, false)
    });
    let ops = commits(ends.collect());
    store.run(Arc::from([ops])).await.unwrap();
    let (claimed, bytes) = lease(&store, &trips, request(worker, &["parent"], 100)).await;
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|one| one.children.len() == 2));
    assert!((240_000..most + 20_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_heartbeat_is_one_round_trip() {
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    let lease = Duration::from_secs(60);
    let workers = vec![worker];
    let (count, _) = trips_of(&store, &trips, vec![Op::Renew { workers, lease }]).await;
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_start_is_one_round_trip_with_a_key_two_and_in_a_partition_four() {
    let (store, trips) = delayed().await;
    let (count, _) = trips_of(&store, &trips, vec![Op::Start(vec![start("m"); 3])]).await;
    assert_eq!(count, 1);
    let keyed = Start {
        key: Some(Key::new("k").unwrap()),
        ..start("m")
    };
    let (count, _) = trips_of(&store, &trips, vec![Op::Start(vec![keyed])]).await;
    assert_eq!(count, 2);
    let partition = || Start {
        partition_key: Some(Key::new("p").unwrap()),
        ..start("m")
    };
    let (count, _) = trips_of(&store, &trips, vec![Op::Start(vec![partition(); 3])]).await;
    assert!(count <= 4, "{count}");
}

#[tokio::test]
async fn a_delivery_is_two_round_trips_whatever_its_target_and_however_many_there_are() {
    // rule 7.1: found and locked, then written. The numbers of the records come along with the first.
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, keyed("m", "k"), &["paid"]).await;
    let both = || vec![signal(id, "paid", "1"), signal(key("k"), "paid", "2")];
    for _ in 0..2 {
        let (count, answers) = trips_of(&store, &trips, vec![Op::Deliver(both())]).await;
        assert!(matches!(&answers[0], Answer::Delivered(delivered) if delivered.len() == 2));
        assert_eq!(count, 2);
    }
    // What the step is handed is read when the claim is committed.
    let ops = vec![Op::Claim(request(worker, &["m"], 2))];
    let (count, answers) = trips_of(&store, &trips, ops).await;
    assert!(matches!(&answers[0], Answer::Claimed(claimed) if claimed[0].awaited.len() == 4));
    assert_eq!(count, 2);

    // With a dedup key it is looked for too.
    let mut deduped = both();
    deduped[0].dedup_key = Some(name("d"));
    let (count, _) = trips_of(&store, &trips, vec![Op::Deliver(deduped)]).await;
    assert_eq!(count, 3);
    // What is woken is claimed in the same commit, and what it is handed is known already.
    let other = parked(&store, worker, keyed("m", "other"), &["paid"]).await;
    let ops = vec![
        Op::Deliver(vec![signal(other, "paid", "1")]),
        Op::Claim(request(worker, &["m"], 2)),
    ];
    let (count, answers) = trips_of(&store, &trips, ops).await;
    assert!(matches!(&answers[1], Answer::Claimed(claimed) if claimed[0].awaited.len() == 1));
    assert_eq!(count, 2);
    // A held signal has no instance to lock, and a limit to be kept.
    let mut held = signal(key("nobody"), "paid", "1");
    held.hold_for = Some(Duration::from_secs(60));
    let (count, _) = trips_of(&store, &trips, vec![Op::Deliver(vec![held])]).await;
    assert_eq!(count, 3);
}

#[tokio::test]
async fn an_event_is_four_round_trips_however_many_wait_for_it_and_three_when_none_does() {
    // rule 14.1: where waiters stand and a number; stored, and who waits for it; locked; written.
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    let (count, answers) =
        trips_of(&store, &trips, vec![Op::Publish(vec![event("paid", "1")])]).await;
    assert_eq!(published(answers.into_iter().next().unwrap())[0].matched, 0);
    assert_eq!(count, 3);

    // A commit that opens waiters costs what one that waits for signals does.
    start_all(&store, vec![start("m"); 3]).await;
    let held = claim(&store, worker, &["m"], 3).await;
    let parks = held
        .into_iter()
        .map(|one| wait_for_event(one, &["paid"], "1"));
    let (count, _) = trips_of(&store, &trips, vec![commits(parks.collect())]).await;
    start_all(&store, vec![start("m")]).await;
    let held = claim(&store, worker, &["m"], 1).await.remove(0);
    let parks = commits(vec![common::wait(held, &["other"], "woken")]);
    let (as_signals, _) = trips_of(&store, &trips, vec![parks]).await;
    assert_eq!(count, as_signals);

    let events = vec![event("paid", "1"), event("paid", "2"), event("other", "1")];
    let (count, answers) = trips_of(&store, &trips, vec![Op::Publish(events)]).await;
    let results = published(answers.into_iter().next().unwrap());
    assert_eq!(
        (results[0].matched, results[1].matched, results[2].matched),
        (3, 0, 0)
    );
    assert_eq!(count, 4);
}

#[tokio::test]
async fn looking_back_is_one_round_trip_more_and_publishing_what_is_looked_back_for_none() {
    // rule 14.6: publishers wait meanwhile.
    let (store, trips) = delayed().await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"); 3]).await;
    let held = claim(&store, worker, &["m"], 3).await;
    let mut counts = Vec::new();
    for (one, lookback_ms) in held.into_iter().zip([None, Some(60_000), Some(60_000)]) {
        let mut parks = wait_for_event(one, &["paid"], "1");
        if let abide_kernel::model::Outcome::Wait(wait) = &mut parks.outcome {
            wait.events[0].lookback_ms = lookback_ms;
        }
        let (count, _) = trips_of(&store, &trips, vec![commits(vec![parks])]).await;
        counts.push(count);
    }
    assert_eq!(counts[2], counts[0] + 1, "the first one indexes");
    let publish = |of_type| vec![Op::Publish(vec![event(of_type, "2")])];
    let (lookback, _) = trips_of(&store, &trips, publish("paid")).await;
    let (other, _) = trips_of(&store, &trips, publish("other")).await;
    assert_eq!((lookback, other), (3, 3));
}

#[tokio::test]
async fn taking_back_waits_for_the_server_as_often_for_many_dead_workers_as_for_one() {
    // rule 5.3: each dead worker cost a statement at each heartbeat, and 150,000 made servers lose their own lease.
    let (store, trips) = delayed().await;
    let reclaim = || vec![Op::Reclaim { limit: 500 }];
    let (idle, _) = trips_of(&store, &trips, reclaim()).await;
    let mut counts = Vec::new();
    for dead in [1_usize, 30] {
        start_all(&store, vec![start("m"); dead]).await;
        for at in 0..dead {
            let worker = NewWorker {
                name: name(&format!("dead{at}")),
                lease: Duration::ZERO,
                queues: Vec::new(),
                lanes: Vec::new(),
                build: None,
            };
            let answers = store.run([Op::Register(worker)].into()).await.unwrap();
            let Answer::Registered(worker) = &answers[0] else {
                panic!("{answers:?}")
            };
            assert_eq!(claim(&store, worker.id, &["m"], 1).await.len(), 1);
        }
        let (count, answers) = trips_of(&store, &trips, reclaim()).await;
        assert!(matches!(answers[0], Answer::Touched { count, more: false } if count == dead));
        counts.push(count);
        let (again, _) = trips_of(&store, &trips, reclaim()).await;
        assert_eq!(again, idle, "the dead who hold nothing cost nothing");
    }
    assert_eq!(idle, 1, "one statement, without a transaction");
    assert_eq!(counts[0], counts[1]);
}
