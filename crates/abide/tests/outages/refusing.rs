//! A database that will not have one instance's outcome, whatever it is.

use abide::{Status, millis, spec};
use serde_json::json;

use crate::common::{Lab, Script, eventually};
use crate::{each_took_its_steps_once, start_walks, walk};

/// Lets the database refuse that instances with the key `cursed` end, or lets it have them again.
async fn curse(lab: &Lab, cursed: bool) {
    let lab = lab.clone();
    let run = tokio::task::spawn_blocking(move || match lab.url().strip_prefix("sqlite:") {
        Some(path) => in_sqlite(path, cursed),
        None => in_postgres(lab.url(), cursed),
    });
    run.await.unwrap();
}

#[cfg(feature = "sqlite")]
fn in_sqlite(path: &str, cursed: bool) {
    let other = abide::sqlite::rusqlite::Connection::open(path).unwrap();
    other
        .busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    let sql = if cursed {
        "create trigger curse before update on abide_instances when new.key = 'cursed' and new.status >= 6
         begin select raise(abort, 'cursed'); end"
    } else {
        "drop trigger curse"
    };
    other.execute_batch(sql).unwrap();
}

#[cfg(not(feature = "sqlite"))]
fn in_sqlite(_: &str, _: bool) {}

#[cfg(feature = "postgres")]
fn in_postgres(url: &str, cursed: bool) {
    let sql = if cursed {
        "create function curse() returns trigger language plpgsql as $$ begin raise exception 'cursed'; end $$;
         create trigger curse before update on abide.instances for each row
         when (new.key = 'cursed' and new.status >= 6) execute function curse()"
    } else {
        "drop trigger curse on abide.instances"
    };
    abide_pgtest::psql(url, sql);
}

#[cfg(not(feature = "postgres"))]
fn in_postgres(_: &str, _: bool) {}

on_every_store! {
    async fn an_outcome_that_the_database_refuses_hurts_no_other_and_causes_no_busy_loop(lab: Lab) {
        // rule 4.2
        if lab.is_memory() {
            return;
        }
        curse(&lab, true).await;
        let engine = lab.engine().machine(walk()).start().await.unwrap();
        let cursed = lab.start_all([spec(Script::any(), json!(0)).key("cursed")]).await.unwrap();
        let cursed = cursed[0].as_ref().unwrap().id();
        let ids = start_walks(&lab, 100).await;
        each_took_its_steps_once(&lab, &ids).await;
        eventually("it to be refused", async || engine.stats().refused >= 2).await;
        let before = engine.stats().refused;
        // Time is what this is about: it is tried again, and not in a loop.
        tokio::time::sleep(millis(1_500)).await;
        let refused = engine.stats().refused - before;
        assert!(refused <= 3, "it was tried {refused} times in a second and a half");
        assert_eq!(lab.now(cursed).await.status, Status::Executing);
        curse(&lab, false).await;
        let row = lab.ended(cursed).await;
        let error = row.last_error.unwrap();
        assert!(row.status == Status::Failed && error.contains("cursed"), "{error}");
        engine.shutdown().await;
    }
}
