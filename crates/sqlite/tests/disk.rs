//! A disk that fails while a step's own transaction is committed.
#![cfg(unix)]

use std::any::Any;
use std::process::Command;
use std::time::Duration;

use crate::common::{Database, claimed, count, done, start, start_one, worker};
use abide_kernel::{Error, OwnTransaction, Store};
use abide_sqlite::StepTransaction;

/// Set in the process whose files cannot grow without end.
const INSIDE: &str = "ABIDE_TEST_INSIDE";

#[test]
fn after_a_commit_of_a_step_that_did_not_reach_the_disk_nothing_more_is_written() {
    // rules 1.1 and 17.2. The bug: the writer stops when its own commit fails to reach the disk, because it is unknown
    // what the file has then. It went on when that was the commit of a step's own transaction.
    if std::env::var_os(INSIDE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        return runtime.enable_all().build().unwrap().block_on(inside());
    }
    // A write beyond the limit fails with EFBIG, which SQLite takes for a failure of the disk. A shell counts in blocks of
    // 512 or 1,024 bytes.
    let name = "disk::after_a_commit_of_a_step_that_did_not_reach_the_disk_nothing_more_is_written";
    let script = format!("trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact {name} --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("1 passed"), "{text}\n{errors}");
}

async fn inside() {
    let database = Database::new();
    let store = database.open();
    let worker = worker(&*store, "w", Duration::from_secs(60)).await;
    start_one(&*store).await;
    let held = claimed(&*store, worker, 1).await;
    let own: Box<dyn Any> = begin(&*store).await.unwrap();
    let mut own = own.downcast::<StepTransaction>().unwrap();
    // All of it stays in memory until it is committed.
    let rows = "pragma cache_size = -64000; create table mine (bytes); insert into mine values (zeroblob(12000000))";
    own.with(|db| db.execute_batch(rows)).unwrap();
    let ended = own.finish(done(held)).await;
    assert!(matches!(ended, Err(Error::Unknown(_))), "{ended:?}");

    for answer in [
        store.run([start(1)].into()).await.map(drop),
        begin(&*store).await.map(drop),
    ] {
        assert!(
            matches!(&answer, Err(Error::Broken(text)) if text.contains("disk failed")),
            "{answer:?}"
        );
    }
    store.close().await;
    let log = database.path().with_extension("db-wal");
    assert!(log.exists(), "the log is kept");

    let store = database.open();
    start_one(&*store).await;
    store.close().await;
    assert_eq!(count(&database.path()), 2);
}

async fn begin(store: &dyn Store) -> Result<Box<dyn OwnTransaction>, Error> {
    store.begin(None).await
}
