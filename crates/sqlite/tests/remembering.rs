//! The writer remembers the rows that it has claimed. It must forget them when they are no longer what it wrote.

use std::time::Duration;

use crate::common::{
    Database, claim, claimed, done, name, plain, run, start_one, too_many, worker,
};
use abide_core::model::{
    Claim, Commit, Committed, InstanceId, Join, Json, Key, Outcome, Start, Started, Status,
};
use abide_kernel::{Answer, Error, Op, Store};

fn commit(claim: Claim, outcome: Outcome) -> Op {
    let commit = Commit {
        claim,
        outcome,
        keep: true,
        took: Duration::ZERO,
        error: None,
    };
    Op::Commit {
        commits: vec![commit],
        serves: Vec::new(),
    }
}

async fn committed(store: &dyn Store, op: Op) -> Committed {
    match run(store, op).await {
        Answer::Committed(mut all) if all.len() == 1 => all.remove(0),
        other => panic!("{other:?}"),
    }
}

async fn status(store: &dyn Store, id: InstanceId) -> Status {
    store.get(&id.into()).await.unwrap().unwrap().status
}

#[tokio::test]
async fn a_claim_that_another_process_took_back_is_stale_here() {
    // rule 1.3: this store remembers the rows it has claimed, and must not trust its memory when others have written.
    let database = Database::new();
    let (here, there) = (database.open(), database.open());
    let worker = worker(&*here, "w", Duration::ZERO).await;
    start_one(&*here).await;
    let held = claimed(&*here, worker, 1).await;
    let taken = run(&*there, Op::Reclaim { limit: 10 }).await;
    assert!(
        matches!(taken, Answer::Touched { count: 1, .. }),
        "{taken:?}"
    );
    let late = run(&*here, done(held)).await;
    assert!(
        matches!(&late, Answer::Committed(all) if all[..] == [Committed::Stale]),
        "{late:?}"
    );
    for store in [here, there] {
        store.close().await;
    }
}

#[tokio::test]
async fn a_claim_that_was_rolled_back_is_forgotten() {
    // A parent whose barrier opened early is claimed in a transaction that fails. When its last child ends, it is
    // written to; and it must be written as it is in the file, waiting for a worker.
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", Duration::from_secs(60)).await;
    let parent = start_one(&*store).await;
    let held = claimed(&*store, worker, 1).await.remove(0);
    let spawn = Outcome::Spawn {
        children: vec![plain(), plain()],
        next: name("joined"),
        state: Json::null(),
        join: Join { at_least: Some(1) },
        timeout_ms: None,
    };
    committed(&*store, commit(held.claim, spawn)).await;
    let mut children = claimed(&*store, worker, 2).await;
    run(&*store, done(vec![children.remove(0)])).await;
    assert_eq!(status(&*store, parent).await, Status::Runnable);
    let failed = store.run([claim(worker, 1), too_many()].into()).await;
    assert!(matches!(failed, Err(Error::Refused(_))), "{failed:?}");
    run(&*store, done(children)).await;
    assert_eq!(status(&*store, parent).await, Status::Runnable);
    let again = claimed(&*store, worker, 1).await;
    assert_eq!(again[0].claim.id(), parent);
    store.close().await;
}

#[tokio::test]
async fn a_key_is_freed_at_the_end_of_a_chain_of_steps() {
    // rule 2.2: the rows of a chain are not read between its steps, and it must be known that they have a key.
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", Duration::from_secs(60)).await;
    let order = || {
        Op::Start(vec![Start {
            key: Some(Key::new("order:42").unwrap()),
            ..plain()
        }])
    };
    run(&*store, order()).await;
    let mut claim = claimed(&*store, worker, 1).await.remove(0).claim;
    for _ in 0..3 {
        let next = Outcome::Next {
            step: name("next"),
            state: Json::null(),
            delay_ms: 0,
        };
        claim = match committed(&*store, commit(claim, next)).await {
            Committed::Kept(claim, _) => claim,
            other => panic!("{other:?}"),
        };
    }
    committed(
        &*store,
        commit(
            claim,
            Outcome::Done {
                result: Json::null(),
            },
        ),
    )
    .await;
    let Answer::Started(started) = run(&*store, order()).await else {
        panic!("nothing was started")
    };
    assert!(matches!(started[..], [Ok(Started::New(_))]), "{started:?}");
    store.close().await;
}
