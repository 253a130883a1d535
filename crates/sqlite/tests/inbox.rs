//! Signals and updates in a file that others write to as well: their numbers, the caller's own transaction, what the
//! writer remembers, and what is deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Database, audit, claim, claimed, commit, name, plain, run, start_one, too_many, worker,
};
use abide_core::model::{
    Arguments, Cancel, Children, CommandStatus, Committed, Delivered, InstanceId, Json, Key,
    Limits, NewCommand, Operated, Outcome, Start, Status, Target, Timestamp, Verdict, Wait,
    WorkerId,
};
use abide_kernel::{Answer, Clock, CommandFilter, Filter, ManualClock, Op, Store, SweepRequest};
use abide_sqlite::rusqlite::{Connection, TransactionBehavior};
use abide_sqlite::{Options, Sqlite, run_within};

const LEASE: Duration = Duration::from_secs(3600);

/// Audits the file, and closes the store.
async fn closed(database: &Database, stores: impl IntoIterator<Item = Arc<Sqlite>>) {
    for store in stores {
        store.close().await;
    }
    drop(audit::Audit {
        path: database.path(),
        held: (),
    });
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn signal(target: impl Into<Target>, text: &str) -> NewCommand {
    NewCommand::signal(target, name(text))
}

fn delivered(answer: Answer) -> Vec<Delivered> {
    match answer {
        Answer::Delivered(all) => all.into_iter().map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

async fn deliver(store: &dyn Store, deliveries: Vec<NewCommand>) -> Vec<Delivered> {
    delivered(run(store, Op::Deliver(deliveries)).await)
}

fn ids(delivered: &[Delivered]) -> Vec<i64> {
    let records = delivered.iter().filter_map(|one| one.record.as_ref());
    records.map(|record| record.id.0).collect()
}

fn waits(names: &[&str]) -> Outcome {
    Outcome::Wait(Wait {
        signals: names.iter().map(|text| name(text)).collect(),
        events: Vec::new(),
        timeout_ms: None,
        next: name("go"),
        state: Json::null(),
    })
}

/// Parks an instance that is claimed next.
async fn park(store: &dyn Store, worker: WorkerId, names: &[&str]) -> InstanceId {
    let one = claimed(store, worker, 1).await.remove(0);
    let id = one.claim.id();
    let parked = commit(store, one.claim, waits(names)).await;
    assert_eq!(parked, Committed::Moved(Status::AwaitingSignal));
    id
}

async fn keyed(store: &dyn Store, text: &str) -> InstanceId {
    let start = Start {
        key: Some(key(text)),
        ..plain()
    };
    match run(store, Op::Start(vec![start])).await {
        Answer::Started(all) => all[0].as_ref().unwrap().id(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_thousand_signals_at_once_wake_their_waiter_and_are_handed_over_in_order() {
    // rules 7.1 and 7.4
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    start_one(&*store).await;
    let id = park(&*store, worker, &["paid"]).await;
    let mut batch = vec![signal(id, "other"); 500];
    for number in 0..1_000 {
        let mut one = signal(id, "paid");
        one.arguments = Arguments::Payload(Json::of(&number).unwrap());
        batch.push(one);
    }
    let answers = deliver(&*store, batch).await;
    assert!(answers.iter().all(|one| one.verdict == Verdict::Received));
    let one = claimed(&*store, worker, 1).await.remove(0);
    let texts: Vec<&str> = one
        .awaited
        .iter()
        .map(|one| one.arguments.as_str())
        .collect();
    let sent: Vec<String> = (0..1_000).map(|number| format!("[{number}]")).collect();
    assert_eq!(texts, sent);
    assert_eq!(store.inbox(id).await.unwrap().len(), 1_500);
    commit(&*store, one.claim, waits(&["other"])).await;
    let held: Vec<_> = store.inbox(id).await.unwrap();
    // `wait` consumes nothing (rule 4.1), and what waits there already wakes it at once.
    assert_eq!(held.len(), 1_500);
    let one = claimed(&*store, worker, 1).await.remove(0);
    assert_eq!(one.awaited.len(), 500);
    let done = Outcome::Done {
        result: Json::null(),
    };
    commit(&*store, one.claim, done).await;
    let records = store
        .records(&[answers[0].record.as_ref().unwrap().id])
        .await;
    assert_eq!(records.unwrap()[0].status, CommandStatus::Applied);
    let left = CommandFilter {
        instance: Some(id),
        status: Some(CommandStatus::Discarded),
        ..CommandFilter::default()
    };
    let page = store.commands(&left, None, 600).await.unwrap();
    assert_eq!(page.items.len(), 600);
    let rest = store.commands(&left, page.next, 600).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (400, None));
    closed(&database, [store]).await;
}

#[tokio::test]
async fn no_two_records_have_the_same_number_whichever_writer_fails() {
    let database = Database::new();
    let (here, there) = (database.open(), database.open());
    let id = keyed(&*here, "order:1").await;
    let target = || Target::from(key("order:1"));
    let mut host = database.connect();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.extend(ids(&deliver(&*here, vec![signal(target(), "a"); 3]).await));
        seen.extend(ids(&deliver(&*there, vec![signal(target(), "a"); 2]).await));
        let twice = || {
            let op = Op::Deliver(vec![signal(id, "a"); 2]);
            [op, Op::Deliver(vec![signal(id, "b")])]
        };
        let within = |conn: &Connection| {
            let now = Timestamp::from_micros(1);
            let answers = run_within(conn, &twice(), now, &Limits::default()).unwrap();
            answers.into_iter().flat_map(delivered).collect::<Vec<_>>()
        };
        let begin = TransactionBehavior::Immediate;
        let txn = host.transaction_with_behavior(begin).unwrap();
        within(&txn);
        txn.rollback().unwrap();
        // A request that fails after it was given numbers, beside one that does not.
        let failing = here.run([Op::Deliver(vec![signal(id, "a")]), too_many()].into());
        let fine = deliver(&*here, vec![signal(id, "a")]);
        let (failed, fine) = tokio::join!(failing, fine);
        assert!(failed.is_err());
        seen.extend(ids(&fine));
        let txn = host.transaction_with_behavior(begin).unwrap();
        seen.extend(ids(&within(&txn)));
        txn.commit().unwrap();
    }
    assert_eq!(seen.len(), 3 * (3 + 2 + 1 + 3));
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
    // What is deleted leaves no number behind to be given again.
    let last = *seen.iter().max().unwrap();
    let cancel = Cancel {
        target: target(),
        reason: "enough".into(),
        children: Children::Leave,
        force: false,
        source: None,
        claimed_source: None,
    };
    run(&*here, Op::Cancel(vec![cancel])).await;
    let sweep = SweepRequest {
        before: here.clock().now() + LEASE,
        after: None,
        limit: 10,
    };
    let swept = run(&*here, Op::Sweep(sweep)).await;
    assert!(
        matches!(swept, Answer::Swept { deleted: 1, .. }),
        "{swept:?}"
    );
    let all = here.commands(&CommandFilter::default(), None, 10).await;
    assert!(all.unwrap().items.is_empty());
    let id = start_one(&*here).await;
    assert!(ids(&deliver(&*there, vec![signal(id, "a")]).await)[0] > last);
    closed(&database, [here, there]).await;
}

#[tokio::test]
async fn a_signal_sent_in_the_callers_transaction_wakes_when_that_commits_and_never_was_when_not() {
    // rule 17.1
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    start_one(&*store).await;
    let id = park(&*store, worker, &["paid"]).await;
    let mut host = database.connect();
    for commits in [false, true] {
        let begin = TransactionBehavior::Immediate;
        let txn = host.transaction_with_behavior(begin).unwrap();
        let answers = store.run_within(&txn, &[Op::Deliver(vec![signal(id, "paid")])]);
        let answers = delivered(answers.unwrap().remove(0));
        assert_eq!(answers[0].verdict, Verdict::Received);
        if commits {
            txn.commit().unwrap();
        } else {
            txn.rollback().unwrap();
        }
        let woken = claimed(&*store, worker, 1).await;
        assert_eq!(woken.len(), usize::from(commits));
        let awaited: usize = woken.iter().map(|one| one.awaited.len()).sum();
        assert_eq!(awaited, usize::from(commits));
    }
    closed(&database, [store]).await;
}

#[tokio::test]
async fn a_signal_to_a_row_that_the_writer_remembers_is_seen_by_the_commit_that_follows() {
    // rule 7.1: it came while the step ran, from here or from another process, and the wait finds it.
    let database = Database::new();
    let (here, there) = (database.open(), database.open());
    let worker = worker(&*here, "w", LEASE).await;
    for sender in [&here, &there] {
        let id = start_one(&*here).await;
        let one = claimed(&*here, worker, 1).await.remove(0);
        deliver(&**sender, vec![signal(id, "paid")]).await;
        let moved = commit(&*here, one.claim, waits(&["paid"])).await;
        assert_eq!(moved, Committed::Moved(Status::Runnable));
        let again = claimed(&*here, worker, 1).await.remove(0);
        assert_eq!(again.awaited.len(), 1);
        let next = Outcome::Next {
            step: name("last"),
            state: Json::null(),
            delay_ms: 0,
        };
        commit(&*here, again.claim, next).await;
        let instance = here.get(&id.into()).await.unwrap().unwrap();
        assert_eq!((instance.inbox.signals, instance.inbox.cursor.0), (0, 1));
        let last = claimed(&*here, worker, 1).await.remove(0);
        assert!(last.awaited.is_empty());
        let done = Outcome::Done {
            result: Json::null(),
        };
        commit(&*here, last.claim, done).await;
    }
    closed(&database, [here, there]).await;
}

#[tokio::test]
async fn a_chain_goes_on_with_its_messages_and_is_found_by_any_of_its_runs() {
    // rules 2.4, 2.5 and 11.2
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    let first = keyed(&*store, "order:1").await;
    let mut runs = vec![first];
    let mut once = signal(first, "paid");
    once.dedup_key = Some(name("once"));
    let record = ids(&deliver(&*store, vec![once.clone()]).await)[0];
    for _ in 0..2 {
        let one = claimed(&*store, worker, 1).await.remove(0);
        let anew = Outcome::ContinueAsNew {
            step: name("start"),
            state: Json::of("anew").unwrap(),
            version: None,
        };
        let moved = commit(&*store, one.claim, anew).await;
        assert_eq!(moved, Committed::Moved(Status::Continued));
        let newest = store.get(&key("order:1").into()).await.unwrap().unwrap();
        runs.push(newest.id);
    }
    let newest = runs[2];
    let inbox = store.inbox(newest).await.unwrap();
    assert_eq!(
        inbox.iter().map(|one| one.id.0).collect::<Vec<_>>(),
        [record]
    );
    once.target = key("order:1").into();
    let again = deliver(&*store, vec![once]).await;
    assert!(again[0].duplicate && ids(&again) == [record]);
    let late = deliver(&*store, vec![signal(first, "late")]).await;
    assert_eq!(late[0].current, Some(newest));

    let stop = Outcome::Stop {
        reason: "enough".into(),
    };
    let one = claimed(&*store, worker, 1).await.remove(0);
    commit(&*store, one.claim, stop).await;
    let answer = run(&*store, Op::Restart(vec![(newest.into(), None)])).await;
    let Answer::Operated(answers) = answer else {
        panic!("{answer:?}")
    };
    let [Operated::Restarted { id, run_number: 4 }] = answers[..] else {
        panic!("{answers:?}")
    };
    runs.push(id);
    let chain = Filter {
        chain: Some(first),
        ..Filter::default()
    };
    let page = store.list(&chain, None, 10).await.unwrap();
    let found: Vec<_> = page.items.iter().rev().map(|one| one.id).collect();
    assert_eq!(found, runs);
    let of_chain = CommandFilter {
        chain: Some(first),
        ..CommandFilter::default()
    };
    let of_key = CommandFilter {
        key: Some(key("order:1")),
        ..CommandFilter::default()
    };
    let by_chain = store.commands(&of_chain, None, 10).await.unwrap();
    assert_eq!(by_chain.items.len(), 2);
    assert_eq!(store.commands(&of_key, None, 10).await.unwrap(), by_chain);
    closed(&database, [store]).await;
}

#[tokio::test]
async fn what_is_held_is_handed_over_or_expires_and_is_forgotten() {
    // rule 7.8
    let database = Database::new();
    let clock = ManualClock::at(Timestamp::from_micros(1_000_000_000));
    let options = Options {
        clock: Some(Arc::new(clock.clone())),
        ..Options::default()
    };
    let store = Sqlite::open(database.path(), options).unwrap();
    let held = |text: &str, seconds: u64| NewCommand {
        hold_for: Some(Duration::from_secs(seconds)),
        ..signal(key(text), "paid")
    };
    let batch = vec![
        held("order:1", 60),
        held("order:1", 10),
        held("order:2", 10),
    ];
    let answers = deliver(&*store, batch).await;
    assert!(answers.iter().all(|one| one.verdict == Verdict::Held));
    let numbers = ids(&answers);
    clock.advance(Duration::from_secs(30));
    let id = keyed(&*store, "order:1").await;
    let inbox = store.inbox(id).await.unwrap();
    assert_eq!(
        inbox.iter().map(|one| one.id.0).collect::<Vec<_>>(),
        numbers[..1]
    );
    let of_key = |text: &str| CommandFilter {
        key: Some(key(text)),
        ..CommandFilter::default()
    };
    let statuses = |page: abide_kernel::CommandPage| {
        let statuses = page.items.iter().map(|one| one.status);
        statuses.collect::<Vec<_>>()
    };
    let page = store.commands(&of_key("order:1"), None, 9).await.unwrap();
    assert_eq!(
        statuses(page),
        [CommandStatus::Expired, CommandStatus::Received]
    );
    let page = store.commands(&of_key("order:2"), None, 9).await.unwrap();
    assert_eq!(statuses(page), [CommandStatus::Held]);
    let sweep = |before| {
        Op::Sweep(SweepRequest {
            before,
            after: None,
            limit: 10,
        })
    };
    run(&*store, sweep(Timestamp::from_micros(0))).await;
    let page = store.commands(&of_key("order:2"), None, 9).await.unwrap();
    assert_eq!(statuses(page), [CommandStatus::Expired]);
    run(&*store, sweep(clock.now())).await;
    let all = store.commands(&CommandFilter::default(), None, 9).await;
    assert_eq!(statuses(all.unwrap()), [CommandStatus::Received]);
    closed(&database, [store]).await;
}

#[tokio::test]
async fn what_is_reserved_is_counted_and_opened_with_the_same_id() {
    // rule 2.7
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    let reserved = run(&*store, Op::Reserve(vec![(name("m"), key("order:1"))])).await;
    let Answer::Started(reserved) = reserved else {
        panic!("{reserved:?}")
    };
    let id = reserved[0].as_ref().unwrap().id();
    let depths = store.depths().await.unwrap();
    assert_eq!((depths[0].status, depths[0].count), (Status::Reserved, 1));
    assert_eq!(store.next_due().await.unwrap(), None);
    assert!(claimed(&*store, worker, 1).await.is_empty());
    let early = deliver(&*store, vec![signal(id, "paid")]).await;
    assert_eq!(early[0].verdict.outcome(), "rejected_not_started");
    assert_eq!(keyed(&*store, "order:1").await, id);
    assert_eq!(claimed(&*store, worker, 1).await[0].claim.id(), id);
    closed(&database, [store]).await;
}

#[tokio::test]
async fn a_family_is_cancelled_and_nothing_is_wrong_with_what_is_left() {
    // rules 11.1 and 11.3
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", LEASE).await;
    let parent = start_one(&*store).await;
    let one = claimed(&*store, worker, 1).await.remove(0);
    let spawn = Outcome::Spawn {
        children: vec![plain(); 3],
        next: name("go"),
        state: Json::null(),
        join: Default::default(),
        timeout_ms: None,
    };
    commit(&*store, one.claim, spawn).await;
    let child = park(&*store, worker, &["paid"]).await;
    deliver(&*store, vec![signal(child, "other"); 2]).await;
    let cancel = Cancel {
        target: parent.into(),
        reason: "enough".into(),
        children: Children::Cascade,
        force: false,
        source: None,
        claimed_source: None,
    };
    let answer = run(&*store, Op::Cancel(vec![cancel])).await;
    let Answer::Operated(answers) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        answers,
        [Operated::Cancelled {
            id: parent,
            children: 3
        }]
    );
    assert!(store.inbox(child).await.unwrap().is_empty());
    let examined = run(
        &*store,
        Op::Examine {
            after: InstanceId(0),
            limit: 10,
        },
    )
    .await;
    assert!(
        matches!(&examined, Answer::Examined { count: 4, findings, next: None } if findings.is_empty()),
        "{examined:?}"
    );
    assert!(matches!(run(&*store, claim(worker, 9)).await, Answer::Claimed(all) if all.is_empty()));
    closed(&database, [store]).await;
}
