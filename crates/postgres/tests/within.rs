//! Starting inside a transaction of the host's own.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{connect, name, open, start, start_all};
use abide_kernel::model::{Key, Start, Started};
use abide_kernel::{Answer, Listener, Op, Store};
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

/// Nothing was notified of: the next that is heard is what another store starts now.
async fn hears_nothing(url: &str, listener: &mut Listener) {
    let another = Start {
        queue: Some(name("another")),
        ..start("m")
    };
    start_all(&open(url).await, vec![another]).await;
    let heard = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
    assert_eq!(
        heard.unwrap().unwrap().ready,
        BTreeSet::from([name("another")])
    );
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
    hears_nothing(&url, &mut listener).await;
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
    hears_nothing(&url, &mut listener).await;
}
