//! Asks a store for everything it can do with events, a batch at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_kernel::model::{
    Claimed, Commit, Condition, EventWait, Operator, Outcome, Park, Path, Publish, SignalWait,
    Then, WorkerId,
};
use abide_kernel::{EventFilter, Store, WaiterFilter};
use abide_postgres::Postgres;

use crate::common::{
    claim, commit, commit_all, deliver, done, event, json, name, publish, register, signal, start,
    start_all, turn, wait_for_event,
};
use crate::plans::log::{Plan, PlanLog};

/// Waits for an order, and looks back for it.
fn looks_back(claimed: Claimed, order: &str) -> Commit {
    let mut commit = wait_for_event(claimed, &["paid"], order);
    if let Outcome::Wait(wait) = &mut commit.outcome {
        wait.events[0].lookback_ms = Some(60_000);
        wait.timeout_ms = Some(3_600_000);
    }
    commit
}

/// Opens waiters, publishes what they wait for, twice, and looks at both.
pub async fn events(store: &Postgres, worker: WorkerId, batch: usize) {
    let now = store.clock().now().as_micros();
    let orders: Vec<String> = (0..batch).map(|n| format!("\"{now}-{n}\"")).collect();
    start_all(store, vec![start("eventful"); batch]).await;
    let held = claim(store, worker, &["eventful"], batch).await;
    let parks = held
        .into_iter()
        .zip(&orders)
        .map(|(one, order)| looks_back(one, order));
    commit_all(store, parks.collect()).await;

    let all = orders.iter().map(|order| Publish {
        event_id: Some(name(order.trim_matches('"'))),
        ..event("paid", order)
    });
    let all: Vec<Publish> = all.collect();
    let results = publish(store, all.clone()).await;
    assert!(results.iter().all(|one| one.matched == 1 && !one.duplicate));
    let results = publish(store, all).await;
    assert!(results.iter().all(|one| one.matched == 0 && one.duplicate));

    // One that looks back finds at once what there is.
    let held = claim(store, worker, &["eventful"], batch).await;
    assert_eq!(held.len(), batch);
    let mut held = held.into_iter();
    let last = held.next().unwrap();
    commit_all(store, held.map(done).collect()).await;
    commit_all(store, vec![looks_back(last, &orders[0])]).await;
    let mut found = claim(store, worker, &["eventful"], batch).await;
    assert_eq!(found.len(), 1);
    // And what it was handed before, which a step that waits again has not taken.
    assert_eq!(found[0].awaited.len(), 2);
    commit_all(store, vec![done(found.remove(0))]).await;

    looks_back_elsewhere(store, worker).await;
    misses_nothing(store, worker, &orders[0]).await;

    let of_type = EventFilter {
        event_type: Some(name("paid")),
    };
    let page = store.events(&of_type, None, batch).await.unwrap();
    assert_eq!(page.items.len(), batch);
    let all = WaiterFilter::default();
    let page = store.waiters(&all, None, batch).await.unwrap();
    let next = store.waiters(&all, page.next, batch).await.unwrap();
    assert_eq!(next.items.len(), batch);
}

/// Looks back on a path for the first time, and without an equality.
async fn looks_back_elsewhere(store: &Postgres, worker: WorkerId) {
    let fresh = format!("p{}", store.clock().now().as_micros());
    let after = json("\"\"");
    for (path, op, right) in [
        (fresh.as_str(), Operator::Eq, json("1")),
        ("order", Operator::Gt, after),
    ] {
        start_all(store, vec![start("eventful")]).await;
        let held = claim(store, worker, &["eventful"], 1).await.remove(0);
        let mut parks = looks_back(held, "1");
        if let Outcome::Wait(wait) = &mut parks.outcome {
            wait.events[0].conditions = vec![Condition {
                left: Path::new(path).unwrap(),
                op,
                right,
            }];
        }
        commit_all(store, vec![parks]).await;
        if path == fresh {
            let payload = json(&format!("{{\"{fresh}\":1,\"order\":\"none\"}}"));
            let wanted = Publish {
                payload,
                ..event("paid", "1")
            };
            assert_eq!(publish(store, vec![wanted]).await[0].matched, 1);
        }
        let mut found = claim(store, worker, &["eventful"], 1).await;
        assert_eq!(found[0].awaited.len(), 1);
        commit_all(store, vec![done(found.remove(0))]).await;
    }
}

/// A workflow that is woken by a signal finds, when it parks again, what was published meanwhile.
async fn misses_nothing(store: &Postgres, worker: WorkerId, order: &str) {
    let id = start_all(store, vec![start("eventful")]).await[0].id();
    let until = store.clock().now() + Duration::from_secs(3_600);
    for woken in [false, true] {
        let held = claim(store, worker, &["eventful"], 1).await.remove(0);
        if woken {
            publish(store, vec![event("paid", order)]).await;
        }
        let paid = EventWait {
            event_type: name("paid"),
            conditions: vec![Condition {
                left: Path::new("order").unwrap(),
                op: Operator::Eq,
                right: json(order),
            }],
            lookback_ms: None,
        };
        let go = SignalWait {
            operation: 2,
            name: name("go"),
            deadline: None,
        };
        let parks = turn(Then::Park(Park {
            operation: 2,
            signals: if woken { Vec::new() } else { vec![go] },
            events: vec![(1, paid)],
            until: Some(until),
            ..Park::default()
        }));
        commit_all(store, vec![commit(held, parks, false)]).await;
        if !woken {
            deliver(store, vec![signal(id, "go", "1")]).await;
        }
    }
    let mut found = claim(store, worker, &["eventful"], 1).await;
    assert_eq!(found[0].awaited.len(), 1);
    commit_all(store, vec![done(found.remove(0))]).await;
}

/// The most pages that each statement touches when a waiter is opened, an event is published that it alone waits
/// for, and it goes on.
pub async fn pages(log: &PlanLog, store: &Postgres) -> BTreeMap<&'static str, u64> {
    let worker = register(store, "w").await;
    // What is used for the first time reads more than it needs afterwards.
    events(store, worker, 1).await;
    log.skip();
    events(store, worker, 1).await;
    let plans = log.read();
    let names = [
        "store_events",
        "known_events",
        "look_up",
        "newest_events",
        "event_paths",
        "waiters",
        "open_waiters",
        "close_waiters",
        "type_totals",
        "events_above",
        "list_waiters",
        "events",
    ];
    let most = names.map(|name| {
        let plans = plans.iter().filter(|plan| plan.is_of(name));
        let most = plans.map(Plan::pages).max();
        (
            name,
            most.unwrap_or_else(|| panic!("{name} was not executed")),
        )
    });
    most.into()
}
