//! Starts and signals inside a transaction of the caller's own: with its rows, or not at all.

#![cfg(any(feature = "sqlite", feature = "postgres"))]

use crate::common::{self, At, Lab, Script};
use abide::client::{SendError, StartError};
use abide::model::Key;
use abide::store::Filter;
use abide::time::hours;
use abide::{Signal, Status, done};
use serde_json::json;

const PAID: Signal<u32> = Signal::new("paid");

/// Waits for a payment, and ends with it; without a poll, so that only notifications wake it.
async fn paying(lab: &Lab) -> abide::engine::Engine {
    let code = Script::new(|at, ctx| match at {
        At::One => ctx.wait_for(PAID).then(At::Two),
        _ => done(json!(ctx.awaited(PAID)?)),
    });
    let engine = lab.engine().poll(hours(1)).machine(code);
    engine.start().await.unwrap()
}

/// One that waits for a payment.
async fn unpaid(lab: &Lab, key: &str) -> abide::client::Handle<serde_json::Value> {
    let order = lab.start(Script::any(), json!(null)).key(key);
    let order = order.await.unwrap();
    lab.until_status(order.id(), Status::AwaitingSignal).await;
    order
}

async fn is_unpaid(lab: &Lab, key: &str) {
    let row = find(lab, key).await.unwrap();
    assert_eq!(
        (row.status, row.inbox.signals, row.inbox.sequence.0),
        (Status::AwaitingSignal, 0, 0)
    );
    assert!(lab.commands(key, None, 9).await.unwrap().items.is_empty());
}

/// Ends with its state; without a poll, so that it runs only work that it was notified of.
async fn engine(lab: &Lab) -> abide::engine::Engine {
    let engine = lab.engine().poll(hours(1));
    let engine = engine.machine(Script::new(|_, ctx| done(ctx.state().clone())));
    engine.start().await.unwrap()
}

async fn count(lab: &Lab) -> usize {
    let page = lab.list(&Filter::default(), None, 100).await.unwrap();
    page.items.len()
}

async fn find(lab: &Lab, key: &str) -> Option<abide::model::Instance> {
    lab.get(Key::new(key).unwrap()).await.unwrap()
}

/// The same tests for both databases, of which one answers at once and the other is awaited.
macro_rules! tests {
    ($lab:expr $(, .$await:ident)?) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn what_is_started_is_there_when_the_transaction_commits_and_is_run_at_once() {
            // rule 17.1
            let lab: Lab = $lab;
            let engine = engine(&lab).await;
            let mut mine = connection(&lab)$(.$await)?;
            let transaction = begin(&mut mine)$(.$await)?;
            insert(&transaction, 42)$(.$await)?;
            let start = lab.start(Script::any(), json!("now")).key("order:42");
            let order = start.within(&transaction)$(.$await)?.unwrap();
            let start = lab.start(Script::any(), json!("later")).delay(millis(100));
            let later = start.within(&transaction)$(.$await)?.unwrap();
            assert!(order.is_new() && order.key().unwrap().as_str() == "order:42");
            assert_eq!(count(&lab).await, 0, "it is not visible before");
            transaction.commit()$(.$await)?.unwrap();
            assert_eq!(lab.came_to(&order).await, json!("now"));
            assert_eq!(lab.came_to(&later).await, json!("later"));
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn what_is_started_never_was_when_the_transaction_is_rolled_back() {
            // rule 17.1
            let lab: Lab = $lab;
            let engine = engine(&lab).await;
            let mut mine = connection(&lab)$(.$await)?;
            let transaction = begin(&mut mine)$(.$await)?;
            let start = lab.start(Script::any(), json!(1)).key("order:1");
            let order = start.within(&transaction)$(.$await)?.unwrap();
            transaction.rollback()$(.$await)?.unwrap();
            assert_eq!(count(&lab).await, 0);
            assert!(matches!(
                lab.result(&order).await,
                Err(abide::client::NotDone::Gone { .. })
            ));
            // A savepoint too, within a transaction that commits.
            let mut transaction = begin(&mut mine)$(.$await)?;
            let savepoint = savepoint(&mut transaction)$(.$await)?;
            let start = lab.start(Script::any(), json!("undone")).key("order:2");
            start.within(&savepoint)$(.$await)?.unwrap();
            roll_back(savepoint)$(.$await)?;
            let start = lab.start(Script::any(), json!("kept")).key("order:3");
            let kept = start.within(&transaction)$(.$await)?.unwrap();
            transaction.commit()$(.$await)?.unwrap();
            assert_eq!(lab.came_to(&kept).await, json!("kept"));
            assert_eq!(find(&lab, "order:2").await, None);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_duplicate_or_a_bad_key_leaves_the_transaction_fit_to_go_on() {
            // rules 2.2, 17.1
            let lab: Lab = $lab;
            let there = lab
                .start(Script::any(), json!(0))
                .key("taken")
                .await
                .unwrap();
            let mut mine = connection(&lab)$(.$await)?;
            let transaction = begin(&mut mine)$(.$await)?;
            let start = |key: &str| lab.start(Script::any(), json!(1)).key(key);
            let duplicate = start("taken").within(&transaction)$(.$await)?;
            assert!(matches!(duplicate, Err(StartError::Duplicate { holder }) if holder == there.id()));
            let same = start("taken").or_existing().within(&transaction)$(.$await)?.unwrap();
            assert!(!same.is_new() && same.id() == there.id());
            let bad = start("42").within(&transaction)$(.$await)?.unwrap_err();
            assert!(bad.to_string().contains("digits only"), "{bad}");
            start("free").within(&transaction)$(.$await)?.unwrap();
            transaction.commit()$(.$await)?.unwrap();
            assert!(find(&lab, "free").await.is_some());
            assert_eq!(count(&lab).await, 2);
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_signal_is_there_when_the_transaction_commits_and_wakes_at_once() {
            // rules 7.1 and 17.1
            let lab: Lab = $lab;
            let engine = paying(&lab).await;
            let order = unpaid(&lab, "order:1").await;
            let mut mine = connection(&lab)$(.$await)?;
            let transaction = begin(&mut mine)$(.$await)?;
            insert(&transaction, 1)$(.$await)?;
            let signal = || lab.signal("order:1", PAID, &5).dedup("evt-7");
            let receipt = signal().within(&transaction)$(.$await)?.unwrap();
            assert!(!receipt.duplicate && receipt.instance() == Some(order.id()));
            assert!(signal().within(&transaction)$(.$await)?.unwrap().duplicate);
            let missing = lab.signal("missing", PAID, &5).within(&transaction)$(.$await)?;
            assert!(matches!(missing, Err(SendError::NoTarget(_))));
            let held = lab.signal("missing", PAID, &6).hold_for(hours(1));
            held.within(&transaction)$(.$await)?.unwrap();
            is_unpaid(&lab, "order:1").await;
            transaction.commit()$(.$await)?.unwrap();
            assert_eq!(lab.came_to(&order).await, json!(5));
            let next = lab.start(Script::any(), json!(null)).key("missing").await;
            assert_eq!(lab.came_to(&next.unwrap()).await, json!(6));
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_signal_never_was_when_the_transaction_is_rolled_back() {
            // rules 7.1 and 17.1
            let lab: Lab = $lab;
            let engine = paying(&lab).await;
            let order = unpaid(&lab, "order:1").await;
            let mut mine = connection(&lab)$(.$await)?;
            let transaction = begin(&mut mine)$(.$await)?;
            let signal = |amount: u32| lab.signal("order:1", PAID, &amount).dedup("evt-7");
            signal(5).within(&transaction)$(.$await)?.unwrap();
            transaction.rollback()$(.$await)?.unwrap();
            is_unpaid(&lab, "order:1").await;
            let receipt = signal(6).await.unwrap();
            assert!(!receipt.duplicate && receipt.sequence().unwrap().0 == 1);
            assert_eq!(lab.came_to(&order).await, json!(6));
            engine.shutdown().await;
        }
    };
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use abide::sqlite::rusqlite::{Connection, Savepoint, Transaction, TransactionBehavior};
    use abide::time::{millis, secs};

    use super::*;

    tests!(Lab::sqlite().await);

    fn connection(lab: &Lab) -> Connection {
        let mine = Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap();
        mine.busy_timeout(secs(10)).unwrap();
        mine.execute_batch("create table if not exists orders (id integer primary key)")
            .unwrap();
        mine
    }

    fn begin(mine: &mut Connection) -> Transaction<'_> {
        mine.transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap()
    }

    fn insert(transaction: &Transaction<'_>, order: i32) {
        let insert = "insert into orders values (?1)";
        transaction.execute(insert, [order]).unwrap();
    }

    fn savepoint<'t>(transaction: &'t mut Transaction<'_>) -> Savepoint<'t> {
        transaction.savepoint().unwrap()
    }

    fn roll_back(savepoint: Savepoint<'_>) {
        drop(savepoint);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use abide::postgres::tokio_postgres::{Client, NoTls, Transaction};
    use abide::time::millis;

    use super::*;

    tests!(Lab::postgres().await, .await);

    async fn connection(lab: &Lab) -> Client {
        let connected = abide::postgres::tokio_postgres::connect(lab.url(), NoTls);
        let (mine, driver) = connected.await.unwrap();
        tokio::spawn(driver);
        mine.batch_execute("create table if not exists orders (id int primary key)")
            .await
            .unwrap();
        mine
    }

    async fn begin(mine: &mut Client) -> Transaction<'_> {
        mine.transaction().await.unwrap()
    }

    async fn insert(transaction: &Transaction<'_>, order: i32) {
        let insert = "insert into orders values ($1)";
        transaction.execute(insert, &[&order]).await.unwrap();
    }

    async fn savepoint<'t>(transaction: &'t mut Transaction<'_>) -> Transaction<'t> {
        transaction.transaction().await.unwrap()
    }

    async fn roll_back(savepoint: Transaction<'_>) {
        savepoint.rollback().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_transactions_under_one_key_wait_for_each_other_and_one_wins() {
        // rules 2.2, 17.1
        let lab = Lab::postgres().await;
        let (mut first, mut second) = (connection(&lab).await, connection(&lab).await);
        let one = first.transaction().await.unwrap();
        let start = lab.start(Script::any(), json!(1)).key("contended");
        let started = start.within(&one).await.unwrap();
        let waiting = {
            let lab = lab.clone();
            tokio::spawn(async move {
                let two = second.transaction().await.unwrap();
                let start = lab.start(Script::any(), json!(2)).key("contended");
                let answer = start.within(&two).await;
                two.commit().await.unwrap();
                answer
            })
        };
        one.commit().await.unwrap();
        let answer = common::soon("the second to be answered", waiting)
            .await
            .unwrap();
        assert!(matches!(answer, Err(StartError::Duplicate { holder }) if holder == started.id()));
    }
}
