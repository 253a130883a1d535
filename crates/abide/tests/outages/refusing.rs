//! A database that will not have one instance, whatever is done about it: triggers that an operator added.

use abide::client::new_start;
use abide::time::{hours, millis};
use abide::{Status, done};
use serde_json::json;

use crate::common::{Gate, Lab, Script, eventually};
use crate::outages::{each_took_its_steps_once, start_walks, walk};

/// The reason why the database refuses instances with the key `cursed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curse {
    /// They may not end.
    Ends,
    /// The same, as if their key were taken.
    EndsAsTaken,
    /// The same, as if a check failed.
    EndsUnchecked,
    /// They may not be written at all.
    Writes,
}

/// Curses, or lifts the curse.
async fn curse(lab: &Lab, curse: Option<Curse>) {
    let lab = lab.clone();
    let run = tokio::task::spawn_blocking(move || match lab.url().strip_prefix("sqlite:") {
        Some(path) => in_sqlite(path, curse),
        None => in_postgres(lab.url(), curse),
    });
    run.await.unwrap();
}

#[cfg(feature = "sqlite")]
fn in_sqlite(path: &str, curse: Option<Curse>) {
    let other = abide::sqlite::rusqlite::Connection::open(path).unwrap();
    other
        .busy_timeout(std::time::Duration::from_secs(10))
        .unwrap();
    let sql = match curse {
        Some(curse) => {
            let when = match curse {
                Curse::Writes => "",
                _ => "and new.status >= 6",
            };
            // A text with this end looks like the error for a taken key.
            let text = match curse {
                Curse::EndsAsTaken => "cursed key",
                _ => "cursed",
            };
            format!(
                "create trigger curse before update on abide_instances when new.key = 'cursed' {when}
                 begin select raise(abort, '{text}'); end"
            )
        }
        None => "drop trigger curse".to_owned(),
    };
    other.execute_batch(&sql).unwrap();
}

#[cfg(not(feature = "sqlite"))]
fn in_sqlite(_: &str, _: Option<Curse>) {}

#[cfg(feature = "postgres")]
fn in_postgres(url: &str, curse: Option<Curse>) {
    let sql = match curse {
        Some(curse) => {
            let when = match curse {
                Curse::Writes => "",
                _ => "and new.status >= 6",
            };
            let code = match curse {
                Curse::EndsAsTaken => "unique_violation",
                Curse::EndsUnchecked => "check_violation",
                _ => "raise_exception",
            };
            format!(
                "create function curse() returns trigger language plpgsql as $$ begin
                     raise exception 'cursed' using errcode = '{code}'; end $$;
                 create trigger curse before update on abide.instances for each row
                 when (new.key = 'cursed' {when}) execute function curse()"
            )
        }
        None => "drop function curse() cascade".to_owned(),
    };
    abide_pgtest::psql(url, &sql);
}

#[cfg(not(feature = "postgres"))]
fn in_postgres(_: &str, _: Option<Curse>) {}

on_every_store! {
    async fn an_outcome_that_the_database_refuses_hurts_no_other_and_causes_no_busy_loop(lab: Lab) {
        // rules 1.4 and 4.2
        if lab.is_memory() {
            return;
        }
        curse(&lab, Some(Curse::Ends)).await;
        let engine = lab.engine().machine(walk()).start().await.unwrap();
        let cursed = lab.start_all([new_start(Script::any(), json!(0)).key("cursed")]).await.unwrap();
        let cursed = cursed[0].as_ref().unwrap().id();
        let ids = start_walks(&lab, 100).await;
        each_took_its_steps_once(&lab, &ids).await;
        eventually("it to be refused", async || engine.stats().stuck == 1).await;
        let before = engine.stats().refused;
        // Time is what this is about: it is tried again, and not in a loop.
        tokio::time::sleep(millis(1_500)).await;
        let refused = engine.stats().refused - before;
        assert!(refused <= 3, "it was tried {refused} times in a second and a half");
        assert_eq!(lab.now(cursed).await.status, Status::Executing);
        curse(&lab, None).await;
        let row = lab.ended(cursed).await;
        let error = row.last_error.clone().unwrap();
        assert!(row.status == Status::Failed && error.contains("cursed"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn others_go_on_whatever_constraint_is_violated(lab: Lab) {
        // rule 1.4. The bug: an outcome that violated a unique index was tried for ever, and two of them took both
        // writers.
        if lab.is_memory() {
            return;
        }
        for kind in [Curse::EndsAsTaken, Curse::EndsUnchecked] {
            curse(&lab, Some(kind)).await;
            let engine = lab.engine().queue("default", 3).machine(walk()).start().await.unwrap();
            let cursed = lab.start(Script::any(), json!(0)).key("cursed").await.unwrap();
            let ids = start_walks(&lab, 50).await;
            each_took_its_steps_once(&lab, &ids).await;
            lab.until(cursed.id(), "its last step", |row| row.step_seq == crate::outages::STEPS).await;
            assert_eq!(lab.now(cursed.id()).await.status, Status::Executing, "{kind:?}");
            curse(&lab, None).await;
            assert!(lab.ended(cursed.id()).await.status.is_terminal(), "{kind:?}");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn the_timers_of_others_fire_beside_one_that_the_database_refuses(lab: Lab) {
        // rules 1.4 and 6.5
        if lab.is_memory() {
            return;
        }
        let delayed = |key: String, ms: u64| lab.start(Script::any(), json!(0)).key(key).delay(millis(ms));
        let cursed = delayed("cursed".to_owned(), 40).await.unwrap();
        let mut others = Vec::new();
        for n in 0..30 {
            others.push(delayed(format!("other:{n}"), n * 10).await.unwrap().id());
        }
        curse(&lab, Some(Curse::Writes)).await;
        let ends = || Script::new(|_, _| done(json!("well")));
        let engine = lab.engine().poll(hours(1)).machine(ends()).start().await.unwrap();
        lab.all_done(&others).await;
        assert_eq!(lab.now(cursed.id()).await.status, Status::Scheduled);
        // It holds up none of those that come later either, also after a restart.
        engine.shutdown().await;
        let engine = lab.engine().poll(hours(1)).machine(ends()).start().await.unwrap();
        let later = delayed("later".to_owned(), 100).await.unwrap();
        assert_eq!(lab.came_to(&later).await, json!("well"));
        curse(&lab, None).await;
        assert_eq!(lab.came_to(&cursed).await, json!("well"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_a_dead_worker_held_is_taken_back_beside_one_that_the_database_refuses(lab: Lab) {
        // rules 1.4 and 5.3
        if lab.is_memory() {
            return;
        }
        let mut ids = Vec::new();
        for n in 0..10 {
            let key = if n == 4 { "cursed".to_owned() } else { format!("other:{n}") };
            ids.push(lab.start(Script::any(), json!(0)).key(key).await.unwrap().id());
        }
        let gate = Gate::closed();
        let at = gate.clone();
        let dies = lab.killable(move |engine| {
            engine.lease(millis(300)).machine(Script::waiting(move |_, _| {
                let gate = at.clone();
                Box::pin(async move {
                    gate.pass().await;
                    done(json!("late"))
                })
            }))
        });
        let dies = dies.await;
        gate.reached_by(ids.len()).await;
        curse(&lab, Some(Curse::Writes)).await;
        dies.die().await;
        let engine = lab.engine().lease(millis(600)).machine(Script::new(|_, _| done(json!("well"))));
        let engine = engine.start().await.unwrap();
        let (cursed, others): (Vec<_>, Vec<_>) = ids.iter().enumerate().partition(|(n, _)| *n == 4);
        let others: Vec<_> = others.into_iter().map(|(_, id)| *id).collect();
        lab.all_done(&others).await;
        let cursed = *cursed[0].1;
        assert_eq!(lab.now(cursed).await.status, Status::Executing);
        curse(&lab, None).await;
        assert_eq!(lab.ended(cursed).await.status, Status::Done);
        engine.shutdown().await;
    }
}
