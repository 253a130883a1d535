//! Looking back where several write at once: nothing is missed, nothing is held up, and no term stays without its event.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    claim, clocked, commit_all, commits, connect, database, deaf, done, event, name, one, publish,
    published, register, start, start_all, until_blocked, wait_for_event,
};
use abide_kernel::model::{Committed, Limits, Outcome, Publish, Status, Timestamp, WorkerId};
use abide_kernel::{Answer, Clock, ManualClock, Op, Store, SweepRequest};
use abide_pgtest::psql;
use abide_postgres::Postgres;

/// A store whose clock is moved by hand, and a worker of it.
async fn opened(url: &str) -> (Arc<Postgres>, Arc<ManualClock>, WorkerId) {
    let (store, clock) = clocked(url, deaf()).await;
    let worker = register(&store, "w").await;
    (store, clock, worker)
}

/// A wait for an order, which looks back for a day.
async fn looks_back(store: &Postgres, worker: WorkerId, order: &str) -> Op {
    start_all(store, vec![start("m")]).await;
    let held = claim(store, worker, &["m"], 1).await.remove(0);
    let mut parks = wait_for_event(held, &["paid"], order);
    if let Outcome::Wait(wait) = &mut parks.outcome {
        wait.events[0].lookback_ms = Some(86_400_000);
        wait.timeout_ms = Some(86_400_000);
    }
    commits(vec![parks])
}

/// The event that woke a wait that looks back at once, if any did.
async fn woken_by(store: &Postgres, worker: WorkerId, answer: Answer) -> Option<String> {
    let Answer::Committed(answers) = answer else {
        panic!("{answer:?}")
    };
    match answers[0] {
        Committed::Moved(Status::AwaitingSignal) => None,
        Committed::Moved(Status::Runnable) => {
            let woken = claim(store, worker, &["m"], 1).await.remove(0);
            let source = woken.awaited[0].source.clone();
            commit_all(store, vec![done(woken)]).await;
            source
        }
        ref other => panic!("{other:?}"),
    }
}

async fn found(store: &Postgres, worker: WorkerId, order: &str) -> Option<String> {
    let wait = looks_back(store, worker, order).await;
    let answer = one(store, wait).await;
    woken_by(store, worker, answer).await
}

fn known(event_id: &str, order: &str) -> Publish {
    Publish {
        event_id: Some(name(event_id)),
        ..event("paid", order)
    }
}

async fn sweep(store: &Postgres, before: Timestamp) {
    let request = SweepRequest {
        before,
        after: None,
        limit: 500,
    };
    one(store, Op::Sweep(request)).await;
}

fn terms(url: &str) -> String {
    let sql = "select string_agg(coalesce(e.event_id, 'none') || ' ' || t.value, ', ' order by t.sequence, t.value) \
        from abide.event_terms t left join abide.events e using (sequence, published_at)";
    psql(url, sql).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_in_flight_with_a_lower_place_is_not_missed() {
    // rule 14.6: what is read before the type is had alone may have a gap that fills afterwards.
    let url = database();
    let (store, clock, worker) = opened(&url).await;
    let (mut host, watch) = (connect(&url).await, connect(&url).await);
    // Before any wait has looked back on the path, and afterwards.
    for round in ["first", "second"] {
        let slow = host.transaction().await.unwrap();
        let ops = [Op::Publish(vec![known(&format!("slow {round}"), "1")])];
        let limits = Limits::default();
        let answers = abide_postgres::run_within(&slow, &ops, clock.now(), &limits);
        let slow_place = published(answers.await.unwrap().remove(0))[0].sequence;
        let other = publish(&store, vec![known(&format!("other {round}"), "2")]).await;
        assert!(slow_place < other[0].sequence);
        let wait = looks_back(&store, worker, "1").await;
        let waits = tokio::spawn({
            let store = store.clone();
            async move { store.run(Arc::new([wait])).await }
        });
        until_blocked(&watch, 1).await;
        slow.commit().await.unwrap();
        let answer = waits.await.unwrap().unwrap().remove(0);
        let met = woken_by(&store, worker, answer).await;
        assert_eq!(met, Some(format!("slow {round}")));
    }
    let all = "slow first d1, other first d2, slow second d1, other second d2";
    assert_eq!(terms(&url), all);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_in_the_hosts_own_transaction_is_indexed_with_it() {
    // rules 14.6 and 17.1
    let url = database();
    let (store, _, worker) = opened(&url).await;
    let mut host = connect(&url).await;
    assert_eq!(found(&store, worker, "1").await, None);
    for commits in [false, true] {
        let own = host.transaction().await.unwrap();
        let ops = [Op::Publish(vec![known("a", "2"), known("b", "2")])];
        store.run_within(&own, &ops).await.unwrap();
        match commits {
            true => own.commit().await.unwrap(),
            false => own.rollback().await.unwrap(),
        }
        assert_eq!(terms(&url), ["", "a d2, b d2"][usize::from(commits)]);
        let expected = commits.then(|| "b".to_owned());
        assert_eq!(found(&store, worker, "2").await, expected);
        psql(&url, "delete from abide.waiters where value = 'd2'");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_go_with_their_events_and_paths_when_they_are_not_used() {
    // rules 14.6 and 16.2
    let url = database();
    let (store, clock, worker) = opened(&url).await;
    let paths = || psql(&url, "select event_type, path from abide.event_paths");
    publish(&store, vec![known("a", "1"), known("b", "2")]).await;
    assert_eq!(found(&store, worker, "1").await.as_deref(), Some("a"));
    clock.advance(Duration::from_secs(1));
    let before = clock.now();
    publish(&store, vec![known("c", "3")]).await;
    // Waits do not all write that it is used.
    clock.advance(Duration::from_secs(3_000));
    assert_eq!(found(&store, worker, "3").await.as_deref(), Some("c"));
    let used = "select used_at = to_timestamp(1700000000) from abide.event_paths";
    assert_eq!(psql(&url, used).trim(), "t");
    assert_eq!(terms(&url), "a d1, b d2, c d3");
    clock.advance(Duration::from_secs(3_000));
    assert_eq!(found(&store, worker, "3").await.as_deref(), Some("c"));
    assert_eq!(psql(&url, used).trim(), "f");
    sweep(&store, before).await;
    assert_eq!(terms(&url), "c d3");
    assert_eq!(paths().trim(), "paid|order");
    clock.advance(Duration::from_secs(1));
    sweep(&store, clock.now()).await;
    assert_eq!((terms(&url).as_str(), paths().trim()), ("", ""));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_being_deleted_is_passed_over_and_leaves_no_term() {
    // rule 16.2: a sweep that was stopped in its transaction holds up no wait that looks back for the first time.
    let url = database();
    let (store, _, worker) = opened(&url).await;
    publish(&store, vec![known("old", "1"), known("new", "2")]).await;
    let mut foreign = connect(&url).await;
    let sweeps = foreign.transaction().await.unwrap();
    let delete = "delete from abide.events where event_id = 'old'";
    sweeps.execute(delete, &[]).await.unwrap();
    let wait = found(&store, worker, "2");
    let met = tokio::time::timeout(Duration::from_secs(4), wait).await;
    assert_eq!(met.unwrap().as_deref(), Some("new"));
    sweeps.commit().await.unwrap();
    assert_eq!(terms(&url), "new d2");
    assert_eq!(found(&store, worker, "1").await, None);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_indexed_is_not_swept_meanwhile() {
    // rule 16.2: a term that is written of an event which a sweep deletes in the same moment would stay for ever.
    let url = database();
    let (store, clock, worker) = opened(&url).await;
    publish(&store, vec![known("a", "1"), known("b", "1")]).await;
    clock.advance(Duration::from_secs(1));
    let mut host = connect(&url).await;
    let own = host.transaction().await.unwrap();
    let wait = looks_back(&store, worker, "1").await;
    store.run_within(&own, &[wait]).await.unwrap();
    sweep(&store, clock.now()).await;
    let kept = psql(&url, "select count(*) from abide.events");
    assert_eq!(kept.trim(), "2");
    own.commit().await.unwrap();
    assert_eq!(terms(&url), "a d1, b d1");
    sweep(&store, clock.now()).await;
    assert_eq!(terms(&url), "");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_something_else_has_locked_delays_no_other_wait() {
    // rule 14.6
    let url = database();
    let (store, clock, worker) = opened(&url).await;
    assert_eq!(found(&store, worker, "0").await, None);
    publish(&store, vec![known("a", "1")]).await;
    clock.advance(Duration::from_secs(7_200));
    let mut foreign = connect(&url).await;
    let locks = foreign.transaction().await.unwrap();
    let sql = "select * from abide.event_paths for update";
    locks.query(sql, &[]).await.unwrap();
    let both = async {
        let met = found(&store, worker, "1").await;
        publish(&store, vec![known("b", "1")]).await;
        sweep(&store, clock.now() - Duration::from_secs(3_600)).await;
        met
    };
    let met = tokio::time::timeout(Duration::from_secs(4), both).await;
    assert_eq!(met.unwrap().as_deref(), Some("a"));
    locks.rollback().await.unwrap();
    let worker = register(&store, "later").await;
    assert_eq!(found(&store, worker, "1").await.as_deref(), Some("b"));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_many_publish_and_look_back_the_newest_is_found() {
    // rule 14.6: each looks back for an event whose publication was just acknowledged.
    let url = database();
    let (store, _, worker) = opened(&url).await;
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..6_i64 {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..15 {
                let order = (caller * 100 + round).to_string();
                let newest = format!("{order} b");
                publish(&store, vec![known(&format!("{order} a"), &order)]).await;
                publish(&store, vec![known(&newest, &order)]).await;
                let machine = format!("m{caller}");
                start_all(&store, vec![start(&machine)]).await;
                let held = claim(&store, worker, &[&machine], 1).await.remove(0);
                let mut parks = wait_for_event(held, &["paid"], &order);
                if let Outcome::Wait(wait) = &mut parks.outcome {
                    wait.events[0].lookback_ms = Some(1_000);
                }
                commit_all(&store, vec![parks]).await;
                let woken = claim(&store, worker, &[&machine], 1).await.remove(0);
                assert_eq!(woken.awaited[0].source, Some(newest));
                commit_all(&store, vec![done(woken)]).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let left = "select count(*) from abide.events e \
        where (select count(*) from abide.event_terms t where t.sequence = e.sequence) <> 1";
    assert_eq!(psql(&url, left).trim(), "0");
    store.close().await;
}
