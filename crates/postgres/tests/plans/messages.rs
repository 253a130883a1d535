//! Asks a store for everything it can do with messages, a batch at a time.

use std::time::Duration;

use abide_kernel::model::{
    Accepts, Answered, Cancel, Children, Claimed, Contract, Contracted, InstanceId, Join,
    NewCommand, Outcome, Start, Started, WorkerId,
};
use abide_kernel::{CommandFilter, Op, Store};
use abide_postgres::Postgres;

use crate::common::{
    claim, commit, commit_all, deliver, done, json, key, keyed, name, next, one, signal, start,
    start_all, wait,
};

/// Asks for everything that has to do with messages and chains, a batch at a time.
pub async fn messages(store: &Postgres, worker: WorkerId, batch: usize) {
    // Keys that were never used before.
    let now = store.clock().now().as_micros();
    let keys: Vec<String> = (0..batch).map(|n| format!("{now}-{n}")).collect();
    let ids = holding(store, &keys).await;
    let claimed = claim(store, worker, &["inbox"], batch).await;
    let parks = claimed
        .into_iter()
        .map(|one| wait(one, &["paid"], "woken"))
        .collect();
    commit_all(store, parks).await;
    delivering(store, &ids, &keys).await;
    // Each takes what it waited for, and goes on as new with the rest.
    let claimed = claim(store, worker, &["inbox"], batch).await;
    assert!(claimed.iter().all(|one| one.awaited.len() == 2));
    let again = |one: Claimed| {
        let outcome = Outcome::ContinueAsNew {
            step: name("begin"),
            state: json("{}"),
            version: None,
        };
        commit(one, outcome, false)
    };
    commit_all(store, claimed.into_iter().map(again).collect()).await;
    let to_old = ids.iter().map(|id| signal(*id, "paid", "1")).collect();
    let delivered = deliver(store, to_old).await;
    assert!(delivered.iter().all(|one| one.current.is_some()));
    let claimed = claim(store, worker, &["inbox"], batch).await;
    commit_all(store, claimed.into_iter().map(done).collect()).await;

    updating(store, worker, batch).await;
    operating(store, worker, batch).await;
    adopting(store, worker, batch).await;
    reading(store, &ids, &keys[0]).await;
}

/// Holds signals, and starts the instances that they are for.
async fn holding(store: &Postgres, keys: &[String]) -> Vec<InstanceId> {
    let held = |text: &String| NewCommand {
        hold_for: Some(Duration::from_secs(3600)),
        dedup_key: Some(name("held")),
        ..signal(key(text), "other", "1")
    };
    deliver(store, keys.iter().map(held).collect()).await;
    let starts = keys.iter().map(|text| keyed("inbox", text)).collect();
    let started = start_all(store, starts).await;
    assert!(started.iter().all(|one| matches!(one, Started::New(_))));
    started.iter().map(|one| one.id()).collect()
}

/// Delivers by id and by key, half of it with dedup keys.
async fn delivering(store: &Postgres, ids: &[InstanceId], keys: &[String]) {
    let by_id = ids.iter().map(|id| signal(*id, "paid", "1"));
    let by_key = keys.iter().map(|text| NewCommand {
        dedup_key: Some(name("d")),
        ..signal(key(text), "paid", "2")
    });
    deliver(store, by_id.chain(by_key).collect()).await;
}

/// Has updates accepted and answered.
async fn updating(store: &Postgres, worker: WorkerId, batch: usize) {
    let contract = Contract {
        updates: vec![Accepts {
            name: name("add"),
            parameters: None,
        }],
        ..Contract::default()
    };
    let begin = Start {
        contract: Contracted::Of(contract.id()),
        ..start("updated")
    };
    let declare = Op::Declare {
        machines: Vec::new(),
        contracts: vec![contract],
    };
    one(store, declare).await;
    let started = start_all(store, vec![begin; batch]).await;
    let updates = started
        .iter()
        .map(|one| NewCommand::update(one.id(), name("add")));
    deliver(store, updates.collect()).await;
    let claimed = claim(store, worker, &["updated"], batch).await;
    let answer = |one: Claimed| {
        let updates = one.updates.iter().map(|update| Answered {
            update_id: update.id,
            result: json("1"),
            error: None,
        });
        let outcome = Outcome::Answer {
            updates: updates.collect(),
            state: None,
            then: Some(Box::new(Outcome::Done {
                result: json("true"),
            })),
        };
        commit(one, outcome, false)
    };
    assert!(claimed.iter().all(|one| one.updates.len() == 1));
    commit_all(store, claimed.into_iter().map(answer).collect()).await;
}

/// Cancels a family, restarts and examines; reserves and opens.
async fn operating(store: &Postgres, worker: WorkerId, batch: usize) {
    let parent = start_all(store, vec![start("parent")]).await[0].id();
    let claimed = claim(store, worker, &["parent"], 1).await.remove(0);
    let spawn = Outcome::Spawn {
        children: vec![start("cancelled"); batch],
        next: name("joined"),
        state: json("{}"),
        join: Join::default(),
        timeout_ms: None,
    };
    commit_all(store, vec![commit(claimed, spawn, false)]).await;
    let cancel = Cancel {
        target: parent.into(),
        reason: "enough".into(),
        children: Children::Cascade,
        force: false,
        source: None,
        claimed_source: None,
    };
    one(store, Op::Cancel(vec![cancel])).await;
    one(store, Op::Restart(vec![(parent.into(), None)])).await;
    let claimed = claim(store, worker, &["parent"], 1).await.remove(0);
    commit_all(store, vec![next(claimed, "more")]).await;
    let examine = Op::Examine {
        after: InstanceId(950_000),
        limit: batch,
    };
    one(store, examine).await;
    let text = format!("reserved-{}", store.clock().now().as_micros());
    one(store, Op::Reserve(vec![(name("reserved"), key(&text))])).await;
    start_all(store, vec![keyed("reserved", &text)]).await;
}

/// Restarts a run that failed in a step that had joined children.
async fn adopting(store: &Postgres, worker: WorkerId, batch: usize) {
    let parent = start_all(store, vec![start("adopting")]).await[0].id();
    let claimed = claim(store, worker, &["adopting"], 1).await.remove(0);
    let spawn = Outcome::Spawn {
        children: vec![start("adopted"); batch],
        next: name("joined"),
        state: json("{}"),
        join: Join::default(),
        timeout_ms: None,
    };
    commit_all(store, vec![commit(claimed, spawn, false)]).await;
    let children = claim(store, worker, &["adopted"], batch).await;
    commit_all(store, children.into_iter().map(done).collect()).await;
    let joined = claim(store, worker, &["adopting"], 1).await.remove(0);
    let stop = Outcome::Stop {
        reason: "no".into(),
    };
    commit_all(store, vec![commit(joined, stop, false)]).await;
    one(store, Op::Restart(vec![(parent.into(), None)])).await;
    let claimed = claim(store, worker, &["adopting"], 1).await.remove(0);
    assert_eq!(claimed.children.len(), batch);
    commit_all(store, vec![done(claimed)]).await;
}

async fn reading(store: &Postgres, ids: &[InstanceId], text: &str) {
    let all = CommandFilter::default();
    for filter in [
        CommandFilter {
            instance: Some(ids[0]),
            ..all.clone()
        },
        CommandFilter {
            chain: Some(ids[0]),
            ..all.clone()
        },
        CommandFilter {
            key: Some(key(text)),
            ..all
        },
    ] {
        let found = store.commands(&filter, None, 10).await.unwrap().items;
        assert!(!found.is_empty());
        let ids: Vec<_> = found.iter().map(|one| one.id).collect();
        assert_eq!(store.records(&ids).await.unwrap().len(), ids.len());
    }
    assert!(!store.inbox(InstanceId(950_001)).await.unwrap().is_empty());
}
