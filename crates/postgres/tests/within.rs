//! Starting inside a transaction of the host's own.

use std::time::Duration;

use crate::common::{connect, name, open, start};
use abide_kernel::model::{Key, Start, Started};
use abide_kernel::{Answer, Op, Store};
use abide_postgres::tokio_postgres::Client;

async fn host(url: &str) -> Client {
    let client = connect(url).await;
    client
        .batch_execute("create table if not exists orders (id int)")
        .await
        .unwrap();
    client
}

fn keyed() -> Start {
    Start {
        key: Some(Key::new("order:1").unwrap()),
        ..start("m")
    }
}

#[tokio::test]
async fn what_is_started_exists_once_the_host_commits() {
    // rule 17.1
    let url = abide_pgtest::server().fresh_database();
    let store = open(&url).await;
    let mut listener = store.listen();
    let mut client = host(&url).await;
    let transaction = client.transaction().await.unwrap();
    transaction
        .execute("insert into orders values (1)", &[])
        .await
        .unwrap();
    let answers = store
        .run_within(&transaction, &[Op::Start(vec![keyed()])])
        .await
        .unwrap();
    let Answer::Started(started) = &answers[0] else {
        panic!()
    };
    let Ok(Started::New(id)) = started[0] else {
        panic!()
    };

    assert!(store.get(&id.into()).await.unwrap().is_none());
    assert!(
        tokio::time::timeout(Duration::from_millis(100), listener.next())
            .await
            .is_err()
    );
    transaction.commit().await.unwrap();
    assert!(store.get(&id.into()).await.unwrap().is_some());
    // The process that did it hears of it too.
    let notified = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
    assert!(notified.unwrap().unwrap().ready.contains(&name("default")));
}

#[tokio::test]
async fn what_is_started_never_existed_when_the_host_rolls_back() {
    // rule 17.1
    let url = abide_pgtest::server().fresh_database();
    let store = open(&url).await;
    let mut listener = store.listen();
    let mut client = host(&url).await;
    let transaction = client.transaction().await.unwrap();
    let ops = [Op::Start(vec![keyed(), keyed()])];
    let answers = store.run_within(&transaction, &ops).await.unwrap();
    let Answer::Started(started) = &answers[0] else {
        panic!()
    };
    assert!(
        matches!(started[..], [Ok(Started::New(one)), Ok(Started::Duplicate(two))] if one == two)
    );
    transaction.rollback().await.unwrap();
    let key = Key::new("order:1").unwrap();
    assert!(store.get(&key.into()).await.unwrap().is_none());
    assert!(
        tokio::time::timeout(Duration::from_millis(100), listener.next())
            .await
            .is_err()
    );
}
