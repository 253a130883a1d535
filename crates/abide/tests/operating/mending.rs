//! Rows that were broken by hand: the doctor finds them, and repair puts them right.

use abide::{Happening, Instance, InstanceId, Signal, Status, done, hours, spec};
use serde_json::json;

use crate::GO;
use crate::common::{At, Lab, Script};

const NOTE: Signal<String> = Signal::new("note");

/// Waits, sleeps or joins as its state says, and then ends.
fn parks() -> Script {
    Script::new(
        |at, ctx| match (at, ctx.state().as_str().unwrap_or_default()) {
            (At::One, "waits") => ctx.wait_for(GO).then(At::Two),
            (At::One, "sleeps") => ctx.sleep(hours(1)).then(At::Two),
            (At::One, "joins") => ctx
                .spawn([spec(Script::any(), json!("waits"))])
                .then(At::Two),
            _ => done(json!([ctx.got(GO), ctx.children().len()])),
        },
    )
}

/// One that stands where its state says, with its engine gone.
async fn parked(lab: &Lab, how: &str) -> InstanceId {
    let engine = lab.engine().machine(parks()).start().await.unwrap();
    let order = lab.start(Script::any(), json!(how)).key(how).await.unwrap();
    let status = match how {
        "waits" => Status::AwaitingSignal,
        "sleeps" => Status::Scheduled,
        _ => Status::AwaitingChildren,
    };
    lab.until_status(order.id(), status).await;
    engine.shutdown().await;
    order.id()
}

/// Breaks a row, sees it found and put right, and runs it to its end.
async fn broken(lab: &Lab, id: InstanceId, problem: &str) -> Instance {
    let found = lab.doctor().await.unwrap().findings;
    assert!(
        found
            .iter()
            .any(|one| one.instance == id && one.problem.contains(problem)),
        "{problem}: {found:?}"
    );
    assert!(lab.repair(id).await.unwrap(), "{problem}");
    assert!(!lab.repair(id).await.unwrap(), "once is enough");
    let found = lab.doctor().await.unwrap().findings;
    assert!(found.iter().all(|one| one.instance != id), "{found:?}");
    let events = lab.events(id).await;
    assert!(events.iter().any(|entry| matches!(&entry.what, Happening::Repaired { problem: told } if told.contains(problem))));
    let engine = lab.engine().machine(parks()).start().await.unwrap();
    let ended = lab.ended(id).await;
    engine.shutdown().await;
    ended
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use abide::sqlite::rusqlite::Connection;

    use super::*;

    /// Writes to the tables behind the engine's back.
    fn write(lab: &Lab, sql: &str) {
        let mine = Connection::open(lab.url().trim_start_matches("sqlite:")).unwrap();
        mine.busy_timeout(abide::secs(10)).unwrap();
        assert!(mine.execute(sql, []).unwrap() > 0, "{sql}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_signal_that_did_not_wake_who_waits_for_it() {
        // rules 7.1 and 11.3
        let lab = Lab::sqlite().await;
        let id = parked(&lab, "waits").await;
        lab.signal(id, NOTE, &"buffered".into()).await.unwrap();
        write(&lab, "update abide_signals set name = 'go'");
        // As if it had come just now: the wait has seen nothing of it.
        let ended = broken(&lab, id, "did not wake it").await;
        assert_eq!(ended.result.unwrap().as_str(), "[true,0]");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_executes_and_that_nobody_holds() {
        // rules 5.3 and 11.3
        let lab = Lab::sqlite().await;
        let id = parked(&lab, "sleeps").await;
        write(
            &lab,
            &format!(
                "update abide_instances set status = 3, wake_at = null, worker = 4711 where id = {id}"
            ),
        );
        let ended = broken(&lab, id, "no worker holds it").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_is_due_at_no_time() {
        // rules 6.5 and 11.3
        let lab = Lab::sqlite().await;
        let id = parked(&lab, "sleeps").await;
        write(
            &lab,
            &format!("update abide_instances set due_at = null, wake_at = null where id = {id}"),
        );
        let ended = broken(&lab, id, "due at no time").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_whose_children_are_gone() {
        // rules 10.2 and 11.3
        let lab = Lab::sqlite().await;
        let id = parked(&lab, "joins").await;
        write(
            &lab,
            &format!("delete from abide_instances where parent_id = {id}"),
        );
        let ended = broken(&lab, id, "its barrier cannot open").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_whose_messages_are_miscounted() {
        // rules 7.1 and 11.3
        let lab = Lab::sqlite().await;
        let id = parked(&lab, "waits").await;
        lab.signal(id, NOTE, &"a".into()).await.unwrap();
        write(&lab, "delete from abide_signals");
        let found = lab.doctor().await.unwrap().findings;
        assert!(
            found[0].problem.contains("count of pending messages"),
            "{found:?}"
        );
        assert!(lab.repair(id).await.unwrap());
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        assert_eq!(lab.now(id).await.inbox.signals, 0);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    /// Writes to the tables behind the engine's back.
    async fn write(lab: &Lab, sql: &str) {
        let connected = abide::postgres::tokio_postgres::connect(
            lab.url(),
            abide::postgres::tokio_postgres::NoTls,
        );
        let (mine, driver) = connected.await.unwrap();
        tokio::spawn(driver);
        assert!(mine.execute(sql, &[]).await.unwrap() > 0, "{sql}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_signal_that_did_not_wake_who_waits_for_it() {
        // rules 7.1 and 11.3
        let lab = Lab::postgres().await;
        let id = parked(&lab, "waits").await;
        lab.signal(id, NOTE, &"buffered".into()).await.unwrap();
        write(&lab, "update abide.signals set name = 'go'").await;
        let ended = broken(&lab, id, "did not wake it").await;
        assert_eq!(ended.result.unwrap().as_str(), "[true,0]");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_executes_and_that_nobody_holds() {
        // rules 5.3 and 11.3
        let lab = Lab::postgres().await;
        let id = parked(&lab, "sleeps").await;
        write(
            &lab,
            &format!("update abide.instances set status = 3, worker = 4711 where id = {id}"),
        )
        .await;
        let ended = broken(&lab, id, "no worker holds it").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_is_due_at_no_time() {
        // rules 6.5 and 11.3
        let lab = Lab::postgres().await;
        let id = parked(&lab, "sleeps").await;
        write(
            &lab,
            &format!("update abide.instances set due_at = null where id = {id}"),
        )
        .await;
        let ended = broken(&lab, id, "due at no time").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_whose_children_are_gone() {
        // rules 10.2 and 11.3
        let lab = Lab::postgres().await;
        let id = parked(&lab, "joins").await;
        write(
            &lab,
            &format!("delete from abide.instances where parent_id = {id}"),
        )
        .await;
        let ended = broken(&lab, id, "its barrier cannot open").await;
        assert_eq!(ended.status, Status::Done);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_whose_messages_are_miscounted() {
        // rules 7.1 and 11.3
        let lab = Lab::postgres().await;
        let id = parked(&lab, "waits").await;
        lab.signal(id, NOTE, &"a".into()).await.unwrap();
        write(&lab, "delete from abide.signals").await;
        let found = lab.doctor().await.unwrap().findings;
        assert!(
            found[0].problem.contains("count of pending messages"),
            "{found:?}"
        );
        assert!(lab.repair(id).await.unwrap());
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        assert_eq!(lab.now(id).await.inbox.signals, 0);
    }
}
