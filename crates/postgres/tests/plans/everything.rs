//! Asks a store for everything it can do, a batch at a time.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::model::{
    BarrierNumber, Blocked, Claimed, Declared, Fingerprint, InstanceId, Join, Key, Kind, Outcome,
    RequestId, RetrySpec, Scope, Start, Status, Then, Timestamp, UniqueKey, Wait, When, WorkerId,
};
use abide_kernel::{
    Answer, ClaimRequest, Cursor, Extension, Filter, NewWorker, Once, Op, OutboxAction,
    OutboxEntry, OutboxProblem, Store, Survey, SweepRequest, Target,
};
use abide_pgtest::psql;
use abide_postgres::Postgres;

use crate::common::{
    claim, commit, commit_all, done, going_on, json, lane, name, next, one, register, request,
    start, start_all, turn,
};
use crate::plans::events::events;
use crate::plans::messages::messages;

/// Asks for everything, a batch at a time.
pub async fn everything(store: &Postgres, url: &str, batch: usize) {
    let worker = register(store, &format!("w{batch}")).await;
    starting(store, batch).await;
    committing(store, worker, batch).await;
    families(store, worker, batch).await;
    partitions(store, worker, batch).await;
    timers(store, url, batch).await;
    dying(store, url, batch).await;
    remote(store, url, batch).await;
    trying_again(store, worker, batch).await;
    surveying(store, url).await;
    messages(store, worker, batch).await;
    events(store, worker, batch).await;
    blocking(store, worker, batch).await;
    giving_up_keys(store, worker, batch).await;
    giving_back(store, worker, batch).await;
    reading(store, batch).await;
    requests(store, batch).await;
    outbox(store, batch).await;
    let before = store.clock().now() - Duration::from_secs(3600);
    one(
        store,
        Op::Sweep(SweepRequest {
            before,
            after: None,
            limit: batch,
        }),
    )
    .await;
}

async fn starting(store: &Postgres, batch: usize) {
    start_all(store, vec![start("m"); batch]).await;
    // Every key is that of a live one.
    let taken = |n: usize| Start {
        key: Some(Key::new(format!("k{}", 900_000 + 10 * n)).unwrap()),
        unique_key: Some(UniqueKey::new((900_001_u32 + 10 * n as u32).to_be_bytes()).unwrap()),
        ..start("m")
    };
    start_all(store, (0..batch).map(taken).collect()).await;
}

/// Requests that may arrive more than once: half of them were carried out before.
async fn requests(store: &Postgres, batch: usize) {
    let request = |n: usize| Once {
        id: RequestId::new(
            format!("caller{}", n % 100),
            name(&format!("r{}", 999_500 + n + batch)),
            Fingerprint::stored("f"),
        ),
        ops: Arc::from([Op::Start(vec![start("m")])]),
    };
    one(store, Op::Once((0..batch).map(request).collect())).await;
}

/// Requests of the outbox, one of which is refused.
async fn outbox(store: &Postgres, batch: usize) {
    let rows = store.outbox(&[], batch).await.unwrap();
    assert_eq!(rows.len(), batch);
    let mut entries: Vec<OutboxEntry> = rows
        .iter()
        .map(|row| OutboxEntry {
            id: row.id,
            action: OutboxAction::Run(Arc::new(Op::Start(vec![start("m")]))),
        })
        .collect();
    entries[0].action = OutboxAction::Refuse(OutboxProblem::new("bad_request", "not JSON"));
    let taken = one(store, Op::Outbox(entries)).await;
    let expected = Answer::Outbox {
        taken: batch - 1,
        refused: 1,
        busy: false,
    };
    assert_eq!(taken, expected);
}

async fn committing(store: &Postgres, worker: WorkerId, batch: usize) {
    let claimed = claim(store, worker, &["m"], batch).await;
    assert_eq!(claimed.len(), batch);
    let kept = commit_all(
        store,
        claimed.into_iter().map(|one| next(one, "more")).collect(),
    )
    .await;
    let kept: Vec<Claimed> = kept
        .into_iter()
        .map(|answer| match answer {
            abide_kernel::model::Committed::Kept(claim, _) => going_on(claim),
            other => panic!("{other:?}"),
        })
        .collect();
    commit_all(store, kept.into_iter().map(done).collect()).await;

    let claimed = claim(store, worker, &["m", "n", "absent"], batch).await;
    assert_eq!(claimed.len(), batch);
    let wait = || {
        Outcome::Wait(Wait {
            signals: vec![name("paid")],
            events: Vec::new(),
            timeout_ms: Some(3_600_000),
            next: name("woken"),
            state: json("{}"),
        })
    };
    commit_all(
        store,
        claimed
            .into_iter()
            .map(|one| commit(one, wait(), false))
            .collect(),
    )
    .await;
}

async fn families(store: &Postgres, worker: WorkerId, batch: usize) {
    start_all(store, vec![start("family")]).await;
    let parent = claim(store, worker, &["family"], 1).await.remove(0);
    let id = parent.claim.id();
    let spawn = Outcome::Spawn {
        children: vec![start("child"); batch],
        next: name("joined"),
        state: json("{}"),
        join: Join::default(),
        timeout_ms: None,
    };
    commit_all(store, vec![commit(parent, spawn, false)]).await;
    let children = claim(store, worker, &["child"], batch).await;
    assert_eq!(children.len(), batch);
    let begun = store.clock().now();
    commit_all(store, children.into_iter().map(done).collect()).await;
    // They are spared, as their parent has not ended.
    let sweep = SweepRequest {
        before: begun + Duration::from_secs(3600),
        after: Some(Cursor {
            finished_at: begun,
            id: InstanceId(0),
        }),
        limit: batch,
    };
    let answer = one(store, Op::Sweep(sweep)).await;
    assert!(matches!(answer, Answer::Swept { spared, .. } if spared > 0));
    assert_eq!(
        store.children(id, BarrierNumber(1)).await.unwrap().len(),
        batch
    );
    let parent = claim(store, worker, &["family"], 1).await.remove(0);
    assert_eq!(parent.children.len(), batch);
    commit_all(store, vec![done(parent)]).await;
}

async fn partitions(store: &Postgres, worker: WorkerId, batch: usize) {
    let of = |n: usize| Start {
        partition_key: Some(Key::new(format!("p{n}")).unwrap()),
        ..start("partitioned")
    };
    start_all(store, (0..batch).flat_map(|n| [of(n), of(n)]).collect()).await;
    let claimed = claim(store, worker, &["partitioned"], batch).await;
    assert_eq!(claimed.len(), batch);
    commit_all(store, claimed.into_iter().map(done).collect()).await;
}

async fn timers(store: &Postgres, url: &str, batch: usize) {
    let soon = Start {
        when: When::After(Duration::from_millis(1)),
        ..start("m")
    };
    start_all(store, vec![soon; batch]).await;
    psql(url, "select pg_sleep(0.01)");
    one(store, Op::Fire { limit: batch }).await;
    store.next_due().await.unwrap();
}

/// Takes back what a worker held that has died.
async fn dying(store: &Postgres, url: &str, batch: usize) {
    let dies = NewWorker {
        name: name(&format!("dies{batch}")),
        lease: Duration::from_millis(1),
        queues: vec![name("default")],
        lanes: vec![lane("m")],
        build: None,
    };
    let Answer::Registered(dead) = one(store, Op::Register(dies)).await else {
        panic!("it should be registered")
    };
    claim(store, dead.id, &["m"], batch).await;
    psql(url, "select pg_sleep(0.01)");
    one(store, Op::Reclaim { limit: batch }).await;
}

/// Begins to check which contracts are in use, as there is one that may not be.
async fn surveying(store: &Postgres, url: &str) {
    let unused =
        "insert into abide.definitions (id, contract) values (1, '{}') on conflict do nothing";
    psql(url, unused);
    let answer = one(store, Op::Survey(Survey::default())).await;
    assert!(matches!(answer, Answer::Surveyed { next: Some(_), .. }));
}

/// Claims under leases: they are limited, extended, fail, and run out.
async fn remote(store: &Postgres, url: &str, batch: usize) {
    let machine = Declared {
        kind: Kind::Machine,
        machine: name("remote"),
        version: 1,
        first_step: name("begin"),
        queue: name("default"),
        history: true,
        contract: None,
        retry: Some(RetrySpec {
            max_attempts: 9,
            delay_ms: 0,
            factor: None,
            max_delay_ms: None,
        }),
        step_timeout_ms: Some(3_600_000),
        max_deaths: None,
    };
    let declare = Op::Declare {
        machines: vec![machine],
        contracts: Vec::new(),
    };
    one(store, declare).await;
    let worker = NewWorker {
        name: name(&format!("remote{batch}")),
        lease: Duration::from_secs(60),
        queues: vec![name("default")],
        lanes: vec![lane("remote")],
        build: None,
    };
    let Answer::Registered(worker) = one(store, Op::Enlist(worker)).await else {
        panic!("it should be enlisted")
    };
    start_all(store, vec![start("remote"); batch]).await;
    let lease = async |lease: Duration| {
        let request = ClaimRequest {
            lease: Some(lease),
            ..request(worker.id, &["remote"], batch)
        };
        match one(store, Op::Claim(request)).await {
            Answer::Claimed(claimed) if claimed.len() == batch => claimed,
            other => panic!("{other:?}"),
        }
    };
    joining_remotely(store, worker.id, batch).await;
    let claimed = lease(Duration::from_secs(60)).await;
    let claims = claimed.iter().map(|one| Extension {
        claim: one.claim.again(),
        lease: Duration::from_secs(90),
    });
    one(store, Op::Extend(claims.collect())).await;
    let fail = || Outcome::Fail {
        error: "no".to_owned(),
    };
    let failed = claimed.into_iter().map(|one| commit(one, fail(), false));
    commit_all(store, failed.collect()).await;
    lease(Duration::from_millis(1)).await;
    psql(url, "select pg_sleep(0.01)");
    let answer = one(store, Op::Fire { limit: batch }).await;
    assert!(matches!(answer, Answer::Fired { count, .. } if count == batch));
    let claimed = lease(Duration::from_secs(60)).await;
    commit_all(store, claimed.into_iter().map(done).collect()).await;
}

/// Claims parents under leases, so that what their children have is counted.
async fn joining_remotely(store: &Postgres, worker: WorkerId, batch: usize) {
    start_all(store, vec![start("joining"); 2]).await;
    for parent in claim(store, worker, &["joining"], 2).await {
        let spawn = Outcome::Spawn {
            children: vec![start("joined"); batch],
            next: name("joined"),
            state: json("{}"),
            join: Join::default(),
            timeout_ms: None,
        };
        commit_all(store, vec![commit(parent, spawn, false)]).await;
    }
    let children = claim(store, worker, &["joined"], 2 * batch).await;
    commit_all(store, children.into_iter().map(done).collect()).await;
    let request = ClaimRequest {
        lease: Some(Duration::from_secs(60)),
        ..request(worker, &["joining", "absent"], 100)
    };
    match one(store, Op::Claim(request)).await {
        Answer::Claimed(claimed) if claimed.len() == 2 => {
            commit_all(store, claimed.into_iter().map(done).collect()).await;
        }
        other => panic!("{other:?}"),
    }
}

/// Tries steps again until their attempts are folded.
async fn trying_again(store: &Postgres, worker: WorkerId, batch: usize) {
    start_all(store, vec![start("again"); batch]).await;
    let again = || Outcome::Retry {
        state: json("{}"),
        delay_ms: 0,
    };
    for _ in 0..12 {
        let claimed = claim(store, worker, &["again"], batch).await;
        let again = claimed.into_iter().map(|one| commit(one, again(), false));
        commit_all(store, again.collect()).await;
    }
    let claimed = claim(store, worker, &["again"], batch).await;
    commit_all(store, claimed.into_iter().map(done).collect()).await;
}

/// Blocks workflows, and releases them.
async fn blocking(store: &Postgres, worker: WorkerId, batch: usize) {
    start_all(store, vec![start("workflow"); batch]).await;
    let claimed = claim(store, worker, &["workflow"], batch).await;
    let blocked = Blocked {
        operation: 1,
        recorded: "a sleep".into(),
        requested: "a step".into(),
        cure: "run the code that it began with".into(),
    };
    let block = |one| commit(one, turn(Then::Block(blocked.clone())), false);
    commit_all(store, claimed.into_iter().map(block).collect()).await;
    let release = |lanes: &[&str]| Op::ReleaseBlocked {
        build: None,
        fresh: false,
        lanes: lanes.iter().map(|machine| lane(machine)).collect(),
        after: InstanceId(0),
        limit: batch,
    };
    let answer = one(store, release(&["workflow", "absent"])).await;
    assert!(matches!(answer, Answer::Released { count, .. } if count == batch));
    // Of which there are many; they are not ours, and stay.
    one(store, release(&["workflow", "stuck"])).await;
    let claimed = claim(store, worker, &["workflow"], batch).await;
    assert_eq!(claimed.len(), batch);
    commit_all(store, claimed.into_iter().map(done).collect()).await;
}

/// Claims come back while others wait under their keys.
async fn giving_up_keys(store: &Postgres, worker: WorkerId, batch: usize) {
    // Those of the last round still wait.
    let machine = format!("keyed-{}", store.clock().now().as_micros());
    let waiting = |n: usize| Start {
        key: Some(Key::new(format!("{machine}:{n}")).unwrap()),
        scope: Scope::NEVER.and(Status::Runnable),
        unique_key: Some(UniqueKey::new(format!("{machine}:{n}")).unwrap()),
        unique_scope: Scope::NEVER.and(Status::Runnable),
        ..start(&machine)
    };
    start_all(store, (0..batch).map(waiting).collect()).await;
    let claimed = claim(store, worker, &[&machine], batch).await;
    start_all(store, (0..batch).map(waiting).collect()).await;
    let claims = claimed.into_iter().map(|one| one.claim).collect();
    one(store, Op::GiveBack(claims)).await;
}

async fn giving_back(store: &Postgres, worker: WorkerId, batch: usize) {
    let claimed = claim(store, worker, &["m"], batch).await;
    let claims = claimed.into_iter().map(|one| one.claim).collect();
    one(store, Op::GiveBack(claims)).await;
    claim(store, worker, &["m"], batch).await;
    one(
        store,
        Op::GiveBackExcept {
            worker,
            known: Vec::new(),
            limit: batch,
        },
    )
    .await;
    claim(store, worker, &["m"], batch).await;
    one(
        store,
        Op::SignOff {
            worker,
            limit: 10 * batch,
        },
    )
    .await;
}

async fn reading(store: &Postgres, batch: usize) {
    let id = InstanceId(950_000);
    store.get(&Target::Id(id)).await.unwrap().unwrap();
    store
        .get(&Target::Key(Key::new("k950000").unwrap()))
        .await
        .unwrap()
        .unwrap();
    store.list(&Filter::default(), None, batch).await.unwrap();
    store.history(id, 0, batch).await.unwrap();
    let ids: Vec<_> = (1..=batch as i64).map(InstanceId).collect();
    store.endings(&ids).await.unwrap();
    let _: Option<Timestamp> = store.next_due().await.unwrap();
    let _ = Arc::new(store.workers().await.unwrap());
}
