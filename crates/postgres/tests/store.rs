//! Behaviour of the store that is specific to PostgreSQL: pipelines, connections, plans of writing.

use std::sync::Arc;

use crate::common::{
    self, claim, commit_all, database, done, fresh, go_on, name, next, register, request, start,
    start_all,
};
use abide_kernel::model::{Claimed, Committed, Key, Kind, Scope, Start, Started, Status};
use abide_kernel::{Answer, Op, Store, Target};
use abide_pgtest::Server;
use abide_postgres::{Options, Postgres};

#[tokio::test]
async fn an_instance_is_started_claimed_moved_on_and_ended() {
    let store = fresh().await;
    let worker = register(&store, "w").await;
    let started = start_all(&store, vec![start("m"), start("m")]).await;
    let claimed = claim(&store, worker, &["m"], 10).await;
    assert_eq!(
        claimed.iter().map(|one| one.claim.id()).collect::<Vec<_>>(),
        started.iter().map(|one| one.id()).collect::<Vec<_>>()
    );
    let mut claimed = claimed.into_iter();
    let (first, second) = (claimed.next().unwrap(), claimed.next().unwrap());
    let id = first.claim.id();
    let answers = commit_all(&store, vec![next(first, "more"), done(second)]).await;
    assert!(matches!(answers[0], Committed::Kept(_, _)));
    assert_eq!(answers[1], Committed::Moved(Status::Done));
    let instance = store.get(&Target::Id(id)).await.unwrap().unwrap();
    assert_eq!(
        (instance.step.as_str(), instance.state.as_str()),
        ("more", "{\"n\":2}")
    );
    assert_eq!((instance.status, instance.step_seq), (Status::Executing, 2));
    let history = store.history(id, 0, 10).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(
        history[0].unpack().unwrap()[0].what.kind(),
        "step_completed"
    );
}

#[tokio::test]
async fn a_hundred_thousand_start_in_one_call() {
    // rule 2.3
    let url = abide_pgtest::server().fresh_database();
    let store = common::open(&url).await;
    let keyed = |n: usize| Start {
        key: Some(Key::new(format!("k{n}")).unwrap()),
        ..start("m")
    };
    let began = std::time::Instant::now();
    let started = start_all(&store, (0..100_000).map(|_| start("m")).collect()).await;
    println!("without keys: {:?}", began.elapsed());
    assert!(started.windows(2).all(|pair| pair[0].id() < pair[1].id()));
    let began = std::time::Instant::now();
    let started = start_all(&store, (0..100_000).map(|n| keyed(n / 2)).collect()).await;
    println!("with keys, half of them taken: {:?}", began.elapsed());
    for pair in started.chunks(2) {
        assert_eq!(pair[1], Started::Duplicate(pair[0].id()));
    }
    // Closing waits for what goes on in the background: statistics of the table.
    store.close().await;
    let analyzed = "select last_analyze is not null from pg_stat_user_tables \
        where relid = 'abide.instances'::regclass";
    assert_eq!(abide_pgtest::psql(&url, analyzed), "t");
}

#[tokio::test]
async fn of_two_equals_the_first_wins_whichever_key_they_share() {
    // rule 2.2
    let store = fresh().await;
    let with = |key: &str, unique: u8| Start {
        key: Some(Key::new(key).unwrap()),
        unique_key: Some(abide_kernel::model::UniqueKey::new([unique]).unwrap()),
        scope: Scope::LIVE,
        ..start("m")
    };
    let started = start_all(
        &store,
        vec![with("b", 1), with("a", 1), with("b", 2), with("c", 3)],
    )
    .await;
    let first = started[0].id();
    assert_eq!(started[0], Started::New(first));
    assert_eq!(started[1], Started::Duplicate(first));
    assert_eq!(started[2], Started::Duplicate(first));
    assert!(matches!(started[3], Started::New(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_want_the_same_keys_in_another_order_do_not_deadlock() {
    // rule 2.3
    let store = Arc::new(fresh().await);
    let keyed = |n: usize| Start {
        key: Some(Key::new(format!("k{n}")).unwrap()),
        ..start("m")
    };
    let forwards: Vec<Start> = (0..3000).map(keyed).collect();
    let backwards: Vec<Start> = forwards.iter().rev().cloned().collect();
    let both = [forwards, backwards].map(|starts| {
        let store = store.clone();
        tokio::spawn(async move { start_all(&store, starts).await })
    });
    let mut fresh = 0;
    for batch in both {
        let started = batch.await.unwrap();
        fresh += started
            .iter()
            .filter(|one| matches!(one, Started::New(_)))
            .count();
    }
    assert_eq!(fresh, 3000);
}

#[tokio::test]
async fn more_partitions_than_the_server_has_room_to_lock_start_together() {
    // rule 6.3
    let server = Server::private(&[
        ("max_connections", "20"),
        ("max_locks_per_transaction", "10"),
    ]);
    let store = common::open(&server.fresh_database()).await;
    let worker = register(&store, "w").await;
    let partitioned = |n: usize| Start {
        partition_key: Some(Key::new(format!("p{}", n / 2)).unwrap()),
        ..start("m")
    };
    start_all(&store, (0..20_000).map(partitioned).collect()).await;
    let claimed = claim(&store, worker, &["m"], 20_000).await;
    assert_eq!(claimed.len(), 10_000);
    commit_all(&store, claimed.into_iter().map(done).collect()).await;
    assert_eq!(claim(&store, worker, &["m"], 20_000).await.len(), 10_000);
}

#[tokio::test]
async fn prepared_statements_do_the_same() {
    let url = database();
    let options = Options {
        prepare: abide_postgres::Prepare::Always,
        ..Options::default()
    };
    let store = Postgres::connect(&url, options).await.unwrap();
    let worker = register(&store, "w").await;
    for _ in 0..10 {
        start_all(&store, vec![start("m"); 3]).await;
        let mut claimed = claim(&store, worker, &["m"], 3).await.into_iter();
        let (first, second) = (claimed.next().unwrap(), claimed.next().unwrap());
        let answers = commit_all(&store, vec![next(first, "more"), done(second)]).await;
        assert!(matches!(answers[0], Committed::Kept(_, _)));
        assert_eq!(answers[1], Committed::Moved(Status::Done));
    }
}

#[tokio::test]
async fn several_lanes_are_claimed_in_one_order_and_others_are_left() {
    // rules 6.1, 2.6
    let store = fresh().await;
    let worker = register(&store, "w").await;
    let urgent = |machine, priority| Start {
        priority: abide_kernel::model::Priority(priority),
        ..start(machine)
    };
    let starts = vec![
        urgent("b", 3),
        urgent("a", 2),
        urgent("x", 0),
        urgent("b", 1),
        urgent("a", 4),
    ];
    let ids: Vec<_> = start_all(&store, starts)
        .await
        .iter()
        .map(|one| one.id())
        .collect();
    let claimed = claim(&store, worker, &["a", "b", "c"], 3).await;
    let claimed: Vec<_> = claimed.iter().map(|one| one.claim.id()).collect();
    assert_eq!(claimed, [ids[3], ids[1], ids[0]]);
    assert_eq!(claim(&store, worker, &["a", "b"], 3).await.len(), 1);
    assert_eq!(claim(&store, worker, &["x", "x"], 3).await.len(), 1);
}

#[tokio::test]
async fn two_claimers_never_get_the_same() {
    // rule 6.1
    let store = Arc::new(fresh().await);
    let worker = register(&store, "w").await;
    start_all(
        &store,
        (0..2000).map(|n| start(["m", "n"][n % 2])).collect(),
    )
    .await;
    let claimers = (0..6).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let lanes: &[&str] = if n % 2 == 0 { &["m", "n"] } else { &["m"] };
                let claimed = claim(&store, worker, lanes, 37).await;
                if claimed.is_empty() {
                    return ids;
                }
                ids.extend(claimed.iter().map(|one| one.claim.id()));
            }
        })
    });
    let mut ids = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        ids.extend(claimer.await.unwrap());
    }
    ids.extend(
        claim(&store, worker, &["m", "n"], 2000)
            .await
            .iter()
            .map(|one| one.claim.id()),
    );
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!((all, ids.len()), (2000, 2000));
}

#[tokio::test]
async fn committing_and_claiming_are_one_transaction() {
    let store = fresh().await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"), start("m")]).await;
    let first = claim(&store, worker, &["m"], 1).await.remove(0);
    let ops: Arc<[Op]> = Arc::new([
        common::commits(vec![done(first)]),
        Op::Claim(request(worker, &["m"], 5)),
    ]);
    let answers = store.run(ops).await.unwrap();
    let [Answer::Committed(_), Answer::Claimed(claimed)] = &answers[..] else {
        panic!()
    };
    assert_eq!(claimed.len(), 1);
    let depths = store.depths().await.unwrap();
    assert_eq!(depths.len(), 1);
    assert_eq!(
        (depths[0].queue.clone(), depths[0].count),
        (name("default"), 1)
    );
}

#[tokio::test]
async fn a_kept_step_touches_no_index() {
    // A server of its own: an update that touches no index still needs room on its page, and old versions make none while any
    // transaction of the server runs that is older than they are, in whatever database: those of other tests, or an autovacuum.
    let server = Server::private(&[("autovacuum", "off")]);
    let url = server.fresh_database();
    let store = common::open(&url).await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m"); 100]).await;
    let held = claim(&store, worker, &["m"], 100).await;
    // The first steps find no room beside their old versions and spread over more pages.
    let held = keep_for(store, 20, held).await;
    let before = updates(&url, 2100);
    keep_for(common::open(&url).await, 20, held).await;
    let after = updates(&url, 4100);
    let (all, hot) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(all, 2000);
    assert!(hot >= 1700, "{hot} of {all}");
}

#[tokio::test]
async fn a_large_state_that_stays_is_not_written_again() {
    let url = database();
    let store = common::open(&url).await;
    let worker = register(&store, "w").await;
    let digits: Vec<u64> = (0..2_000_u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
        .collect();
    let large = Start {
        state: abide_kernel::model::Json::of(&digits).unwrap(),
        ..start("m")
    };
    start_all(&store, vec![large.clone()]).await;
    let toast = abide_pgtest::psql(
        &url,
        "select reltoastrelid::regclass from pg_class where oid = 'abide.instances'::regclass",
    );
    let last = format!("select max(chunk_id) from {}", toast.trim());
    let written = abide_pgtest::psql(&url, &last);
    assert!(!written.trim().is_empty(), "it does not fit into the row");
    let mut held = claim(&store, worker, &["m"], 1).await.remove(0);
    let id = held.claim.id();
    // The first turn makes it a workflow's; the others only go on.
    for _ in 0..3 {
        held = go_on(&store, held).await;
    }
    assert_eq!(abide_pgtest::psql(&url, &last), written);
    let instance = store.get(&Target::Id(id)).await.unwrap().unwrap();
    assert_eq!((instance.step_seq, instance.status), (4, Status::Executing));
    assert_eq!(
        (instance.state, instance.row.kind),
        (large.state, Kind::Workflow)
    );
}

/// Takes so many steps and closes the store: its connections tell the statistics when they end.
async fn keep_for(store: Postgres, steps: usize, mut held: Vec<Claimed>) -> Vec<Claimed> {
    for step in 0..steps {
        let step = format!("s{step}");
        let kept = held.drain(..).map(|one| next(one, &step)).collect();
        let answers = commit_all(&store, kept).await;
        let claims = answers.into_iter().map(|answer| match answer {
            Committed::Kept(claim, _) => claim,
            other => panic!("{other:?}"),
        });
        held = claims.map(common::going_on).collect();
    }
    store.close().await;
    held
}

/// Number of updates, and of those that touched no index. The server may count late, so these are waited
/// for.
fn updates(url: &str, expected: u32) -> (u32, u32) {
    let counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables \
        where relid = 'abide.instances'::regclass";
    loop {
        let counts = abide_pgtest::psql(url, counts);
        let (all, hot) = counts.split_once('|').unwrap();
        let (all, hot) = (all.parse().unwrap(), hot.parse().unwrap());
        if all >= expected {
            return (all, hot);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
