//! Workflows in a file: what is blocked is found by what it runs, and what a turn leaves as it was is left.

use std::time::Duration;

use crate::common::{Database, audit, committed, name, plain, run, worker};
use abide_core::model::{
    Blocked, Cancel, Cause, Children, Claim, CommandKind, Commit, Committed, InstanceId, Json, Key,
    Kind, Lane, NewCommand, Operated, Outcome, Start, Status, Target, Then, WorkerId, WorkflowTurn,
};
use abide_kernel::{Answer, ClaimRequest, Op, Store};

const LEASE: Duration = Duration::from_secs(3600);

fn lane(machine: &str, version: u32) -> Lane {
    Lane {
        machine: name(machine),
        version,
    }
}

/// Starts one of a lane and claims it.
async fn begun(store: &dyn Store, worker: WorkerId, of: &Lane, more: Start) -> Claim {
    let start = Start {
        machine: of.machine.clone(),
        version: Some(of.version),
        ..more
    };
    run(store, Op::Start(vec![start])).await;
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![of.clone()],
        limit: 1,
        lease: None,
    };
    match run(store, Op::Claim(request)).await {
        Answer::Claimed(mut claimed) => claimed.remove(0).claim,
        other => panic!("{other:?}"),
    }
}

/// Commits a turn that asked for nothing.
async fn turn(store: &dyn Store, claim: Claim, then: Then) -> Committed {
    let commit = Commit {
        claim,
        outcome: Outcome::Workflow(Box::new(WorkflowTurn::of(then))),
        keep: true,
        took: Duration::ZERO,
        error: None,
    };
    committed(store, commit).await
}

fn block() -> Then {
    Then::Block(Blocked {
        operation: 1,
        recorded: "a sleep".into(),
        requested: "a step".into(),
        cure: "run the code that it began with".into(),
    })
}

/// Releases, page by page; how many each time.
async fn released(store: &dyn Store, lanes: Vec<Lane>, limit: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut after = Some(InstanceId(0));
    while let Some(from) = after {
        let release = Op::ReleaseBlocked {
            build: None,
            fresh: false,
            lanes: lanes.clone(),
            after: from,
            limit,
        };
        let Answer::Released { count, next } = run(store, release).await else {
            panic!()
        };
        counts.push(count);
        after = next;
    }
    counts
}

fn closed(database: &Database) {
    drop(audit::Audit {
        path: database.path(),
        held: (),
    });
}

#[tokio::test]
async fn what_is_blocked_is_released_lane_by_lane_and_page_by_page() {
    // rule 12.4
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    let (one, two, other) = (lane("m", 1), lane("m", 2), lane("n", 1));
    let mut blocked = Vec::new();
    for of in [&one, &two, &other, &one, &two, &one] {
        let start = Start {
            partition_key: Some(Key::new(format!("p{}", blocked.len())).unwrap()),
            ..plain()
        };
        let claim = begun(&*store, worker, of, start).await;
        blocked.push((claim.id(), of.clone()));
        let moved = turn(&*store, claim, block()).await;
        assert_eq!(moved, Committed::Moved(Status::Scheduled));
    }
    // What else is due at no time is not blocked, and nothing of this is ever due.
    let claim = begun(&*store, worker, &one, plain()).await;
    let waits = Outcome::Wait(abide_core::model::Wait {
        signals: vec![name("paid")],
        events: Vec::new(),
        timeout_ms: None,
        next: name("go"),
        state: Json::null(),
    });
    let parks = Op::Commit {
        commits: vec![Commit {
            claim,
            outcome: waits,
            keep: false,
            took: Duration::ZERO,
            error: None,
        }],
        serves: Vec::new(),
    };
    run(&*store, parks).await;
    assert_eq!(store.next_due().await.unwrap(), None);

    // A lane that is named twice counts once.
    let lanes = vec![two.clone(), one.clone(), one.clone()];
    assert_eq!(released(&*store, lanes.clone(), 2).await, [2, 2, 1]);
    assert_eq!(released(&*store, lanes, 2).await, [0]);
    for (id, of) in &blocked {
        let instance = store.get(&Target::Id(*id)).await.unwrap().unwrap();
        assert_eq!(instance.is_blocked(), *of == other, "{id}");
        assert_eq!(
            (instance.kind, instance.cause),
            (Kind::Workflow, Cause::Replay)
        );
    }
    assert_eq!(released(&*store, vec![other], 5).await, [1]);
    store.close().await;
    closed(&database);
}

#[tokio::test]
async fn a_turn_leaves_the_state_and_its_cancellation_waits_with_what_else_came() {
    // rules 11.1 and 12.3
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    let state = Json::of(&"x".repeat(50_000)).unwrap();
    let start = Start {
        state: state.clone(),
        ..plain()
    };
    let mut claim = begun(&*store, worker, &lane("m", 1), start).await;
    let id = claim.id();
    for _ in 0..3 {
        claim = match turn(&*store, claim, Then::GoOn { running: true }).await {
            Committed::Kept(claim, _) => claim,
            other => panic!("{other:?}"),
        };
    }
    run(
        &*store,
        Op::Deliver(vec![NewCommand::signal(id, name("paid"))]),
    )
    .await;
    let cancel = Cancel {
        target: id.into(),
        reason: "enough".into(),
        children: Children::Leave,
        force: false,
        source: None,
        claimed_source: None,
    };
    let Answer::Operated(operated) = run(&*store, Op::Cancel(vec![cancel])).await else {
        panic!()
    };
    assert_eq!(operated, [Operated::Cancelling { id, children: 0 }]);
    let inbox = store.inbox(id).await.unwrap();
    let kinds: Vec<CommandKind> = inbox.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [CommandKind::Signal, CommandKind::Cancel]);
    let instance = store.get(&Target::Id(id)).await.unwrap().unwrap();
    assert_eq!((instance.inbox.signals, instance.inbox.updates), (1, 1));
    assert_eq!((instance.state, instance.row.kind), (state, Kind::Workflow));
    store.close().await;
    closed(&database);
}
