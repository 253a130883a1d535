//! Noticing what others commit.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Database, start_one};
use abide_kernel::{Effects, Listener, Store};

/// The next notification, within a time that no working watch needs.
async fn next(listener: &mut Listener) -> Arc<Effects> {
    let notified = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
    notified.expect("nothing was notified").unwrap()
}

#[tokio::test]
async fn a_commit_of_another_process_is_noticed() {
    // rule 6.6
    let database = Database::new();
    let (here, there) = (database.open(), database.open());
    let mut listener = here.listen();
    for _ in 0..3 {
        start_one(&*there).await;
        assert!(next(&mut listener).await.anything);
    }
    for store in [here, there] {
        store.close().await;
    }
}

#[tokio::test]
async fn a_commit_on_a_connection_of_the_hosts_own_is_noticed() {
    let database = Database::new();
    let store = database.open();
    let mut listener = store.listen();
    let conn = database.connect();
    conn.execute_batch("create table orders (id integer)")
        .unwrap();
    assert!(next(&mut listener).await.anything);
    conn.execute_batch("insert into orders values (1)").unwrap();
    assert!(next(&mut listener).await.anything);
    store.close().await;
}

#[tokio::test]
async fn a_commit_of_its_own_is_notified_with_its_effects() {
    let database = Database::new();
    let store = database.open();
    let mut listener = store.listen();
    for _ in 0..5 {
        start_one(&*store).await;
        let effects = next(&mut listener).await;
        assert!(!effects.anything && effects.ready.len() == 1, "{effects:?}");
    }
    // Time enough for a watch that takes them for somebody else's to say so.
    let more = tokio::time::timeout(Duration::from_millis(150), listener.next()).await;
    assert!(more.is_err(), "{more:?}");
    store.close().await;
}
