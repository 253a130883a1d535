//! Noticing what others commit.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::{Effects, Listener, Store};
use common::{IndexColumns, start_one};

/// The next thing told, within a time that no working watch needs.
async fn next(listener: &mut Listener) -> Arc<Effects> {
    let told = tokio::time::timeout(Duration::from_secs(20), listener.next()).await;
    told.expect("nothing was told").unwrap()
}

#[tokio::test]
async fn a_commit_of_another_process_is_noticed() {
    // rule 6.6
    let place = IndexColumns::new();
    let (here, there) = (place.open(), place.open());
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
    let place = IndexColumns::new();
    let store = place.open();
    let mut listener = store.listen();
    let conn = place.connect();
    conn.execute_batch("create table orders (id integer)")
        .unwrap();
    assert!(next(&mut listener).await.anything);
    conn.execute_batch("insert into orders values (1)").unwrap();
    assert!(next(&mut listener).await.anything);
    store.close().await;
}

#[tokio::test]
async fn a_commit_of_its_own_is_told_for_what_it_is() {
    let place = IndexColumns::new();
    let store = place.open();
    let mut listener = store.listen();
    for _ in 0..5 {
        start_one(&*store).await;
        let told = next(&mut listener).await;
        assert!(!told.anything && told.ready.len() == 1, "{told:?}");
    }
    // Time enough for a watch that takes them for somebody else's to say so.
    let more = tokio::time::timeout(Duration::from_millis(150), listener.next()).await;
    assert!(more.is_err(), "{more:?}");
    store.close().await;
}
