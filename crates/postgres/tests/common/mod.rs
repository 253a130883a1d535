//! Helpers that the tests share: opening stores, and running the usual operations on them.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::model::{
    Arguments, Cause, Claim, Claimed, Commit, Committed, Condition, Contracted, Delivered,
    EventWait, Inbox, InstanceId, Json, Key, Kind, Lane, Name, NewCommand, Operator, Outcome, Path,
    Priority, Publish, Published, Start, Started, Then, Timestamp, Wait, WorkerId, WorkflowTurn,
};
use abide_kernel::{Answer, ClaimRequest, ManualClock, NewWorker, Op, Store};
use abide_postgres::tokio_postgres::{self, Client, NoTls};
use abide_postgres::{Listen, Options, Postgres};

/// The URL of an empty database, which an earlier test may have used. One that changes more than rows, or whose statistics
/// a later test would meet, takes a fresh one instead.
pub fn database() -> String {
    abide_pgtest::server().emptied_database(&abide_postgres::plan(0))
}

/// A store on an empty database.
pub async fn fresh() -> Postgres {
    open(&database()).await
}

/// A store on that database.
pub async fn open(url: &str) -> Postgres {
    Postgres::connect(url, Options::default()).await.unwrap()
}

/// A store on that database, with a clock that the test moves.
pub async fn clocked(url: &str, options: Options) -> (Arc<Postgres>, Arc<ManualClock>) {
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let clock = Arc::new(ManualClock::at(now));
    let options = Options {
        clock: Some(clock.clone()),
        ..options
    };
    let store = Postgres::connect(url, options).await.unwrap();
    (Arc::new(store), clock)
}

/// A store that has one connection to work with.
pub async fn with_one_connection(url: &str) -> Postgres {
    let options = Options {
        pool_size: 1,
        ..Options::default()
    };
    Postgres::connect(url, options).await.unwrap()
}

/// Options of a store that hears of no commit but its own.
pub fn deaf() -> Options {
    Options {
        listen: Listen::Off,
        ..Options::default()
    }
}

/// A connection of the test's own.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until so many backends of the database wait for a lock.
pub async fn until_blocked(client: &Client, count: i64) {
    let blocked = "select count(*) from pg_stat_activity \
        where wait_event_type = 'Lock' and datname = current_database()";
    while client
        .query_one(blocked, &[])
        .await
        .unwrap()
        .get::<_, i64>(0)
        < count
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs one operation.
pub async fn one(store: &Postgres, op: Op) -> Answer {
    store.run(Arc::new([op])).await.unwrap().remove(0)
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// A start that leaves nothing to declarations.
pub fn start(machine: &str) -> Start {
    Start {
        kind: Some(Kind::Machine),
        version: Some(1),
        step: Some(name("begin")),
        queue: Some(name("default")),
        history: Some(true),
        contract: Contracted::Free,
        ..Start::of(name(machine), json("{\"n\":1}"))
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// The same under a key.
pub fn keyed(machine: &str, text: &str) -> Start {
    Start {
        key: Some(key(text)),
        ..start(machine)
    }
}

pub fn lane(machine: &str) -> Lane {
    Lane {
        machine: name(machine),
        version: 1,
    }
}

pub async fn start_all(store: &Postgres, starts: Vec<Start>) -> Vec<Started> {
    let Answer::Started(each) = one(store, Op::Start(starts)).await else {
        panic!()
    };
    each.into_iter().map(Result::unwrap).collect()
}

pub async fn register(store: &Postgres, worker: &str) -> WorkerId {
    let worker = NewWorker {
        name: name(worker),
        lease: Duration::from_secs(60),
        queues: vec![name("default")],
        lanes: vec![lane("m")],
        build: None,
    };
    let Answer::Registered(worker) = one(store, Op::Register(worker)).await else {
        panic!()
    };
    worker.id
}

pub fn request(worker: WorkerId, lanes: &[&str], limit: usize) -> ClaimRequest {
    let lanes = lanes.iter().map(|machine| lane(machine)).collect();
    ClaimRequest {
        worker,
        queue: name("default"),
        lanes,
        limit,
        lease: None,
    }
}

pub async fn claim(
    store: &Postgres,
    worker: WorkerId,
    lanes: &[&str],
    limit: usize,
) -> Vec<Claimed> {
    let answer = one(store, Op::Claim(request(worker, lanes, limit))).await;
    let Answer::Claimed(claimed) = answer else {
        panic!()
    };
    claimed
}

/// Outcome of a claim that its worker keeps.
pub fn going_on(claim: Claim) -> Claimed {
    Claimed {
        claim,
        key: None,
        kind: Kind::Machine,
        machine: name("m"),
        version: 1,
        step: name("begin"),
        step_seq: 1,
        attempt: 0,
        deaths: 0,
        state: Json::null(),
        queue: name("default"),
        priority: Priority(0),
        due_at: Timestamp::default(),
        cause: Cause::Next,
        timed_out: false,
        joins: None,
        children_pending: 0,
        children_ended: 0,
        children: Vec::new(),
        awaited: Vec::new(),
        updates: Vec::new(),
        aside: false,
        inbox: Inbox::default(),
        awaits: Vec::new(),
        policy: None,
    }
}

pub fn done(claimed: Claimed) -> Commit {
    commit(
        claimed,
        Outcome::Done {
            result: json("true"),
        },
        false,
    )
}

/// Goes on to the next step, and would like to keep the claim.
pub fn next(claimed: Claimed, step: &str) -> Commit {
    let outcome = Outcome::Next {
        step: name(step),
        state: json("{\"n\":2}"),
        delay_ms: 0,
    };
    commit(claimed, outcome, true)
}

/// Outcome of a turn of a workflow's code that requested nothing.
pub fn turn(then: Then) -> Outcome {
    Outcome::Workflow(Box::new(WorkflowTurn::of(then)))
}

/// A workflow's code goes on, and its claim is kept.
pub async fn go_on(store: &Postgres, claimed: Claimed) -> Claimed {
    let goes_on = turn(Then::GoOn { running: true });
    let kept = commit_all(store, vec![commit(claimed, goes_on, true)]).await;
    match kept.into_iter().next() {
        Some(Committed::Kept(claim, _)) => going_on(claim),
        other => panic!("{other:?}"),
    }
}

pub fn commit(claimed: Claimed, outcome: Outcome, keep: bool) -> Commit {
    let took = Duration::from_micros(7);
    Commit {
        claim: claimed.claim,
        outcome,
        keep,
        took,
        error: None,
    }
}

pub fn commits(commits: Vec<Commit>) -> Op {
    Op::Commit {
        commits,
        serves: vec![(name("default"), vec![lane("m")])],
    }
}

pub async fn commit_all(store: &Postgres, all: Vec<Commit>) -> Vec<Committed> {
    let Answer::Committed(each) = one(store, commits(all)).await else {
        panic!()
    };
    each
}

/// Waits for signals, without a deadline.
pub fn wait(claimed: Claimed, signals: &[&str], next: &str) -> Commit {
    wait_until(claimed, signals, next, None)
}

/// Waits for signals.
pub fn wait_until(
    claimed: Claimed,
    signals: &[&str],
    next: &str,
    timeout_ms: Option<u64>,
) -> Commit {
    let outcome = Outcome::Wait(Wait {
        signals: signals.iter().map(|signal| name(signal)).collect(),
        events: Vec::new(),
        timeout_ms,
        next: name(next),
        state: json("{}"),
    });
    commit(claimed, outcome, false)
}

/// An event, of an order.
pub fn event(of_type: &str, order: &str) -> Publish {
    Publish {
        event_type: name(of_type),
        payload: json(&format!("{{\"order\":{order}}}")),
        event_id: None,
    }
}

pub async fn publish(store: &Postgres, all: Vec<Publish>) -> Vec<Published> {
    published(one(store, Op::Publish(all)).await)
}

pub fn published(answer: Answer) -> Vec<Published> {
    let Answer::Published(each) = answer else {
        panic!()
    };
    each.into_iter().map(Result::unwrap).collect()
}

/// Waits for an event of one of these types, of an order.
pub fn wait_for_event(claimed: Claimed, types: &[&str], order: &str) -> Commit {
    let event = |of_type: &&str| EventWait {
        event_type: name(of_type),
        conditions: vec![Condition {
            left: Path::new("order").unwrap(),
            op: Operator::Eq,
            right: json(order),
        }],
        lookback_ms: None,
    };
    let outcome = Outcome::Wait(Wait {
        signals: Vec::new(),
        events: types.iter().map(event).collect(),
        timeout_ms: Some(1000),
        next: name("woken"),
        state: json("{}"),
    });
    commit(claimed, outcome, false)
}

/// A signal with an argument.
pub fn signal(target: impl Into<abide_kernel::Target>, signal: &str, argument: &str) -> NewCommand {
    NewCommand {
        arguments: Arguments::Positional(vec![json(argument)]),
        ..NewCommand::signal(target, name(signal))
    }
}

pub async fn deliver(store: &Postgres, all: Vec<NewCommand>) -> Vec<Delivered> {
    let Answer::Delivered(each) = one(store, Op::Deliver(all)).await else {
        panic!()
    };
    each.into_iter().map(Result::unwrap).collect()
}

/// Starts one and has it wait for signals; its id.
pub async fn parked(
    store: &Postgres,
    worker: WorkerId,
    start: Start,
    signals: &[&str],
) -> InstanceId {
    let machine = start.machine.clone();
    let id = start_all(store, vec![start]).await[0].id();
    let claimed = claim(store, worker, &[machine.as_str()], 1).await.remove(0);
    assert_eq!(claimed.claim.id(), id);
    commit_all(store, vec![wait(claimed, signals, "woken")]).await;
    id
}
