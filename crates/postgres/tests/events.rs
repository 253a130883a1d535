//! Events and their waiters, where several write at once: no transaction waits for another without need, and nothing
//! is counted twice or not at all.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    claim, clocked, commit, commit_all, commits, connect, database, deaf, deliver, done, event,
    json, name, one, open, publish, published, register, signal, start, start_all, until_blocked,
    wait_for_event,
};
use abide_kernel::model::{
    Claimed, Commit, Committed, Condition, EventWait, Name, Opened, Operation, OperationKind,
    Operator, Outcome, Park, Path, Publish, SignalWait, Signature, Status, Taken, Then, Timestamp,
    WorkflowTurn,
};
use abide_kernel::{Answer, Clock, EventFilter, Op, Store, SweepRequest, WaiterFilter};
use abide_pgtest::psql;
use abide_postgres::{Options, Postgres};

/// Opens a waiter for each of these orders.
async fn waiters(store: &Postgres, types: &[&str], orders: impl Iterator<Item = usize>) {
    let worker = register(store, "opens").await;
    let orders: Vec<usize> = orders.collect();
    start_all(store, vec![start("m"); orders.len()]).await;
    let held = claim(store, worker, &["m"], orders.len()).await;
    let parks = held
        .into_iter()
        .zip(orders)
        .map(|(one, order)| wait_for_event(one, types, &order.to_string()));
    commit_all(store, parks.collect()).await;
}

fn totals(url: &str) -> String {
    psql(
        url,
        "select event_type, sum(total), count(*) < 40 from abide.waiter_totals \
         group by 1 having sum(total) <> 0 order by 1",
    )
    .trim()
    .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_opened_and_timed_out_at_once_is_counted_once_without_deadlocks() {
    // rules 14.1, 14.5 and 14.7
    let url = database();
    let options = Options {
        pool_size: 16,
        ..deaf()
    };
    let (store, _) = clocked(&url, options).await;
    waiters(&store, &["a", "b"], 0..300).await;
    assert_eq!(totals(&url), "a|300|t\nb|300|t");
    // Half of them are due; events of both types come in both orders, for two thirds of them, while more are opened.
    psql(
        &url,
        "update abide.instances set due_at = due_at - interval '1 minute' where id % 2 = 0",
    );
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8_usize {
        let store = store.clone();
        tasks.spawn(async move {
            for order in (0..200).filter(|order| order % 4 == n / 2) {
                let mut both = vec![
                    event("a", &order.to_string()),
                    event("b", &order.to_string()),
                ];
                if n % 2 == 1 {
                    both.reverse();
                }
                let answers = store.run(Arc::new([Op::Publish(both)])).await;
                published(answers.unwrap().remove(0));
            }
        });
    }
    for _ in 0..2 {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..40 {
                let fired = store.run(Arc::new([Op::Fire { limit: 7 }])).await;
                fired.unwrap();
            }
        });
    }
    let opens = store.clone();
    tasks.spawn(async move {
        for n in 0..10 {
            waiters(&opens, &["b", "c"], 1000 + 5 * n..1005 + 5 * n).await;
        }
    });
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // Waiters that are left wait for an order that was not published, and were not due.
    let all = WaiterFilter::default();
    let left = store.waiters(&all, None, 10_000).await.unwrap().items;
    let counted = psql(
        &url,
        "select event_type, count(*), true from abide.waiters group by 1 order by 1",
    );
    assert_eq!(totals(&url), counted.trim());
    assert_eq!(
        left.iter()
            .filter(|one| one.event_type.as_str() == "c")
            .count(),
        50
    );
    let stale = psql(
        &url,
        "select count(*) from abide.waiters w join abide.instances i on i.id = w.instance_id \
         where i.status <> 4",
    );
    assert_eq!(stale.trim(), "0");

    // None is left, of anything, when all have been notified.
    let orders: std::collections::BTreeSet<(Name, String)> = left
        .iter()
        .map(|one| (one.event_type.clone(), one.conditions[0].right.to_string()))
        .collect();
    let rest = orders.iter().map(|(of, order)| event(of.as_str(), order));
    publish(&store, rest.collect()).await;
    assert_eq!(totals(&url), "");
    assert_eq!(psql(&url, "select count(*) from abide.waiters").trim(), "0");
    store.close().await;
}

/// A turn of a workflow that waits for an event of the order 1 under operation 1, and for the signal `go`.
fn awaits_order(claimed: Claimed, begins: bool, until: Timestamp) -> Commit {
    let event = EventWait {
        event_type: name("paid"),
        conditions: vec![Condition {
            left: Path::new("order").unwrap(),
            op: Operator::Eq,
            right: json("1"),
        }],
        lookback_ms: None,
    };
    let opened = Operation::Opened(Opened {
        operation: 1,
        signature: Signature::named(OperationKind::Event, name("paid")),
        deadline: Some(until),
        message: None,
        arguments: None,
        graph_step: None,
    });
    let taken = claimed.awaited.iter().map(|signal| Taken {
        id: signal.id,
        name: signal.name.clone(),
        operation: None,
        graph_step: None,
    });
    let turn = WorkflowTurn {
        operations: begins.then_some(opened).into_iter().collect(),
        takes: taken.collect(),
        updates: Vec::new(),
        held: 0,
        children: Vec::new(),
        state: None,
        then: Then::Park(Park {
            operation: 1,
            signals: vec![SignalWait {
                operation: 2,
                name: name("go"),
                deadline: None,
            }],
            events: vec![(1, event)],
            until: Some(until),
            ..Park::default()
        }),
    };
    commit(claimed, Outcome::Workflow(Box::new(turn)), false)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_is_held_up_between_its_time_and_its_commit_is_not_missed() {
    // rule 14.6
    //
    // Whether an event came while a workflow was awake was decided by the publisher's time, to a minute. A publisher that
    // took its time and was then stopped for longer was acknowledged, and the workflow waited for what had come.
    let url = database();
    let (store, clock) = clocked(&url, deaf()).await;
    let (mut host, watch) = (connect(&url).await, connect(&url).await);
    let worker = register(&store, "w").await;
    let until = clock.now() + Duration::from_secs(86_400);
    // Before the wait is begun, while it is awake, and when it parks for the second time.
    for (round, held_up) in ["begun", "awake", "parked twice"].into_iter().enumerate() {
        let id = start_all(&store, vec![start("m")]).await[0].id();
        let mut held = claim(&store, worker, &["m"], 1).await.remove(0);
        let mut begins = true;
        for _ in 0..round {
            commit_all(&store, vec![awaits_order(held, begins, until)]).await;
            begins = false;
            deliver(&store, vec![signal(id, "go", "1")]).await;
            held = claim(&store, worker, &["m"], 1).await.remove(0);
        }
        let taken = clock.now();
        clock.advance(Duration::from_secs(600));
        let publisher = host.transaction().await.unwrap();
        let ops = [Op::Publish(vec![event("paid", "1")])];
        let limits = abide_kernel::model::Limits::default();
        let answers = abide_postgres::run_within(&publisher, &ops, taken, &limits).await;
        let results = published(answers.unwrap().remove(0));
        assert_eq!(results[0].matched, 0, "{held_up}");
        let park = commits(vec![awaits_order(held, begins, until)]);
        let parks = tokio::spawn({
            let store = store.clone();
            async move { store.run(Arc::new([park])).await }
        });
        // It has the type to itself, so it waits for the publisher.
        until_blocked(&watch, 1).await;
        publisher.commit().await.unwrap();
        let answers = parks.await.unwrap().unwrap();
        let Answer::Committed(answers) = &answers[0] else {
            panic!("{answers:?}")
        };
        if begins {
            assert_eq!(
                answers[0],
                Committed::Moved(Status::AwaitingSignal),
                "it was before"
            );
            publish(&store, vec![event("paid", "1")]).await;
        } else {
            assert_eq!(answers[0], Committed::Moved(Status::Runnable), "{held_up}");
        }
        let woken = claim(&store, worker, &["m"], 1).await.remove(0);
        assert_eq!(woken.claim.id(), id);
        let events = woken.awaited.iter().filter(|one| one.wait_id.is_some());
        let events: Vec<_> = events
            .filter(|one| one.name.event_type().is_some())
            .collect();
        assert_eq!(events.len(), 1, "{held_up}");
        commit_all(&store, vec![done(woken)]).await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_several_publish_at_once_is_one() {
    // rule 14.1
    let url = database();
    let store = Arc::new(open(&url).await);
    waiters(&store, &["a"], 0..20).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..6_usize {
        let store = store.clone();
        tasks.spawn(async move {
            let mut all: Vec<Publish> = (0..20)
                .map(|order: usize| Publish {
                    event_id: Some(name(&format!("e{order}"))),
                    ..event("a", &order.to_string())
                })
                .collect();
            if n % 2 == 1 {
                all.reverse();
            }
            publish(&store, all).await
        });
    }
    let (mut new, mut matched) = (0, 0);
    let mut sequences = std::collections::BTreeSet::new();
    while let Some(results) = tasks.join_next().await {
        for one in results.unwrap() {
            new += usize::from(!one.duplicate);
            matched += one.matched;
            sequences.insert((one.event_id, one.sequence));
        }
    }
    assert_eq!((new, matched, sequences.len()), (20, 20, 20));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_keep_their_order_are_listed_and_forgotten() {
    // rules 14.1 and 16.2
    let url = database();
    let (store, clock) = clocked(&url, Options::default()).await;
    let named = |of_type: &str, id: &str| Publish {
        event_id: Some(name(id)),
        ..event(of_type, "1")
    };
    let all = vec![
        named("z", "3"),
        named("a", "2"),
        named("z", "1"),
        named("z", "3"),
    ];
    let first = publish(&store, all.clone()).await;
    assert!(first[0].sequence < first[1].sequence && first[1].sequence < first[2].sequence);
    assert_eq!(
        (first[3].sequence, first[3].duplicate),
        (first[0].sequence, true)
    );
    let again = publish(&store, all).await;
    assert!(again.iter().all(|one| one.duplicate));
    assert_eq!(again[2].sequence, first[2].sequence);
    let of_type = EventFilter {
        event_type: Some(name("z")),
    };
    let page = store.events(&of_type, None, 1).await.unwrap();
    assert_eq!(
        (page.items[0].event_id.as_str(), page.next),
        ("1", Some(first[2].sequence))
    );
    let page = store.events(&of_type, page.next, 1).await.unwrap();
    assert_eq!((page.items[0].event_id.as_str(), page.next), ("3", None));
    let everything = EventFilter::default();
    assert_eq!(
        store
            .events(&everything, None, 9)
            .await
            .unwrap()
            .items
            .len(),
        3
    );
    clock.advance(Duration::from_secs(1));
    let sweep = |limit| {
        Op::Sweep(SweepRequest {
            before: clock.now(),
            after: None,
            limit,
        })
    };
    one(&store, sweep(2)).await;
    assert_eq!(
        store
            .events(&everything, None, 9)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    one(&store, sweep(2)).await;
    assert_eq!(store.events(&everything, None, 9).await.unwrap().items, []);
    store.close().await;
}
