//! Starting inside a transaction of the caller's own (rule 17.1).

use std::time::Duration;

use crate::common::{self, Database, count, plain, start, too_many};
use abide_core::model::{Key, Limits, Start, Started, Timestamp};
use abide_kernel::{Answer, Error, Op, Store};
use abide_sqlite::run_within;
use abide_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn within(conn: &Connection, ops: &[Op]) -> Result<Vec<Answer>, Error> {
    run_within(conn, ops, NOW, &Limits::default())
}

fn host(database: &Database) -> Connection {
    let conn = database.connect();
    conn.execute_batch("create table orders (id integer primary key)")
        .unwrap();
    conn
}

fn begin(conn: &mut Connection) -> Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap()
}

fn keyed(key: &str) -> Op {
    Op::Start(vec![Start {
        key: Some(Key::new(key).unwrap()),
        ..plain()
    }])
}

#[tokio::test]
async fn what_was_started_exists_when_the_transaction_commits_and_is_notified_then() {
    // rule 17.1
    let database = Database::new();
    let store = database.open();
    let mut conn = host(&database);
    let mut listener = store.listen();
    let txn = begin(&mut conn);
    txn.execute("insert into orders values (42)", []).unwrap();
    let answers = within(&txn, &[keyed("order:42")]).unwrap();
    let [Answer::Started(started)] = &answers[..] else {
        panic!("{answers:?}")
    };
    let [Ok(Started::New(id))] = started[..] else {
        panic!("{answers:?}")
    };
    assert!(store.get(&id.into()).await.unwrap().is_none());
    txn.commit().unwrap();
    assert_eq!(
        store
            .get(&Key::new("order:42").unwrap().into())
            .await
            .unwrap()
            .unwrap()
            .id,
        id
    );
    loop {
        let notified = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
        if notified
            .expect("the commit was not noticed")
            .unwrap()
            .anything
        {
            break;
        }
    }
    store.close().await;
}

#[tokio::test]
async fn what_was_started_never_existed_when_the_transaction_rolls_back() {
    // rule 17.1
    let database = Database::new();
    let store = database.open();
    let mut conn = host(&database);
    let txn = begin(&mut conn);
    txn.execute("insert into orders values (42)", []).unwrap();
    within(&txn, &[keyed("order:42")]).unwrap();
    txn.rollback().unwrap();
    assert_eq!(count(&database.path()), 0);
    let txn = begin(&mut conn);
    assert!(
        matches!(&within(&txn, &[keyed("order:42")]).unwrap()[..], [Answer::Started(one)] if matches!(one[..], [Ok(Started::New(_))]))
    );
    txn.commit().unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_request_that_fails_leaves_the_transaction_as_it_was() {
    // rule 17.1
    let database = Database::new();
    let store = database.open();
    let mut conn = host(&database);
    let txn = begin(&mut conn);
    txn.execute("insert into orders values (42)", []).unwrap();
    let refused = within(&txn, &[start(1), too_many()]);
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    within(&txn, &[start(2)]).unwrap();
    txn.commit().unwrap();
    assert_eq!(count(&database.path()), 2);
    let orders: i64 = conn
        .query_row("select count(*) from orders", [], |row| row.get(0))
        .unwrap();
    assert_eq!(orders, 1);
    store.close().await;
}

#[tokio::test]
async fn a_savepoint_will_do_and_the_store_may_give_its_clock_and_limits() {
    // rule 17.1
    let database = Database::new();
    let store = database.open();
    let mut conn = host(&database);
    let mut txn = begin(&mut conn);
    let mut kept = txn.savepoint().unwrap();
    store.run_within(&kept, &[start(1)]).unwrap();
    let undone = kept.savepoint().unwrap();
    store.run_within(&undone, &[start(1)]).unwrap();
    drop(undone);
    kept.commit().unwrap();
    txn.commit().unwrap();
    assert_eq!(count(&database.path()), 1);
    store.close().await;
}

#[tokio::test]
async fn a_connection_without_a_transaction_is_refused() {
    let database = Database::new();
    let store = database.open();
    let error = within(&host(&database), &[start(1)])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no transaction") && error.contains("begin one"),
        "{error}"
    );
    assert_eq!(count(&database.path()), 0);
    store.close().await;
}

#[test]
fn a_file_without_the_tables_is_refused_with_what_to_do() {
    let database = Database::new();
    let mut conn = host(&database);
    let txn = conn.transaction().unwrap();
    let error = within(&txn, &[start(1)]).unwrap_err().to_string();
    assert!(
        error.contains("no tables of abide") && error.contains("open it with abide first"),
        "{error}"
    );
}

#[tokio::test]
async fn a_transaction_that_began_by_reading_old_data_is_a_conflict() {
    let database = Database::new();
    let store = database.open();
    let mut conn = host(&database);
    let txn = conn.transaction().unwrap();
    let orders: i64 = txn
        .query_row("select count(*) from orders", [], |row| row.get(0))
        .unwrap();
    assert_eq!(orders, 0);
    common::start_one(&*store).await;
    let answer = within(&txn, &[start(1)]);
    assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
    drop(txn);
    assert_eq!(count(&database.path()), 1);
    store.close().await;
}
