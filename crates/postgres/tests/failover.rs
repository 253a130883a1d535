//! A PostgreSQL that really fails over, to a standby that lacks the last commits and to one that does not (rule 1.6).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{
    claim, commit_all, deliver, done, event, go_on, parked, publish, register, signal, start,
    start_all,
};
use abide_kernel::model::{Committed, Delivered, InstanceId};
use abide_kernel::{Answer, Error, Op, Store, Target};
use abide_pgtest::{Server, psql};
use abide_postgres::{Listen, Options, Postgres};

/// Longest time that anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A primary, its standby, and a database of both.
fn pair(settings: &[(&str, &str)]) -> (Server, Server, String) {
    let primary = Server::private(settings);
    psql(&primary.url("postgres"), "create database work");
    let standby = primary.standby();
    let url = primary.url_with(&standby, "work");
    (primary, standby, url)
}

async fn open(url: &str) -> Postgres {
    let options = Options {
        listen: Listen::Off,
        ..Options::default()
    };
    Postgres::connect(url, options).await.unwrap()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a standby has all that its primary has committed.
fn caught_up(primary: &Server, standby: &Server) {
    let at = psql(&primary.url("work"), "select pg_current_wal_flush_lsn()");
    let has = format!("select pg_last_wal_replay_lsn() >= '{at}'");
    until("the standby to catch up", || {
        psql(&standby.url("work"), &has) == "t"
    });
}

/// Has a standby receive nothing any more.
fn cut_off(standby: &Server) {
    standby.cut_off();
    let receives = "select count(*) from pg_stat_wal_receiver";
    until("the standby to be cut off", || {
        psql(&standby.url("work"), receives) == "0"
    });
}

/// Runs an operation as soon as the store can again.
async fn persist(store: &Postgres, op: impl Fn() -> Op) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        match store.run(Arc::new([op()])).await {
            Ok(mut answers) => return answers.remove(0),
            Err(Error::Unavailable(_) | Error::Unknown(_)) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_lacks_commits_gives_out_no_number_again() {
    // rules 1.3 and 1.6
    //
    // Ids were given out again after a fail-over: a signal meant for an instance that had been acknowledged, and was lost,
    // was accepted by a stranger; and a claim that somebody still held was granted to another.
    let (primary, standby, url) = pair(&[]);
    let store = open(&url).await;
    let worker = register(&store, "w").await;
    let kept = start_all(&store, vec![start("m"), start("m")]).await;
    let waits = parked(&store, worker, start("n"), &["go"]).await;
    caught_up(&primary, &standby);
    cut_off(&standby);

    // All of this is acknowledged, and lost.
    let lost: Vec<InstanceId> = start_all(&store, vec![start("x"); 40])
        .await
        .iter()
        .map(|one| one.id())
        .collect();
    let first = publish(&store, vec![event("paid", "1")]).await.remove(0);
    let record = deliver(&store, vec![signal(waits, "other", "1")]).await;
    let Delivered { record, .. } = record.into_iter().next().unwrap();
    let mut held = claim(&store, worker, &["m"], 1).await.remove(0);
    assert_eq!(held.claim.id(), kept[0].id());
    for _ in 0..3 {
        held = go_on(&store, held).await;
    }
    let newest_worker = register(&store, "lost").await;
    primary.kill();
    standby.promote();

    let Answer::Started(started) = persist(&store, || Op::Start(vec![start("y"); 60])).await else {
        panic!()
    };
    let newest = *lost.iter().max().unwrap();
    let started: Vec<InstanceId> = started.into_iter().map(|one| one.unwrap().id()).collect();
    assert!(
        started.iter().all(|id| *id > newest),
        "{started:?}, after {newest}"
    );
    for id in lost {
        assert!(store.get(&Target::Id(id)).await.unwrap().is_none());
        let delivered = deliver(&store, vec![signal(id, "s", "1")]).await;
        assert!(
            delivered[0].record.is_none(),
            "a stranger received it: {delivered:?}"
        );
    }
    let again = publish(&store, vec![event("paid", "1")]).await.remove(0);
    assert!(again.sequence > first.sequence);
    let next = deliver(&store, vec![signal(waits, "other", "1")]).await;
    assert!(next[0].record.as_ref().unwrap().id > record.unwrap().id);
    // No lease has outlived it, and no worker's number comes again.
    assert!(store.workers().await.unwrap().is_empty());
    let worker = register(&store, "w").await;
    assert!(worker > newest_worker);
    // The same instance is claimed again, and under another epoch than the one that was granted before.
    let both = claim(&store, worker, &["m"], 2).await;
    assert_eq!(both.len(), 2);
    let anew = both.iter().find(|one| one.claim.id() == held.claim.id());
    let anew = anew.unwrap().claim.epoch();
    assert!(anew > held.claim.epoch(), "{anew:?}, and before {held:?}");
    assert_eq!(anew.generation(), 1);
    let stale = commit_all(&store, vec![done(held)]).await;
    assert_eq!(stale, [Committed::Stale]);
    for one in both {
        let answers = commit_all(&store, vec![done(one)]).await;
        assert!(matches!(answers[0], Committed::Moved(_)), "{answers:?}");
    }
    store.close().await;

    // Who comes later finds it settled.
    let store = open(&url).await;
    let worker = register(&store, "w").await;
    start_all(&store, vec![start("m")]).await;
    let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
    assert_eq!(claimed.claim.epoch().generation(), 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_standby_has_all_that_was_acknowledged() {
    // rules 1.1 and 1.6
    let (primary, standby, url) = pair(&[]);
    psql(
        &primary.url("work"),
        "alter system set synchronous_standby_names = '*'",
    );
    psql(&primary.url("work"), "select pg_reload_conf()");
    let is_sync = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    until("the standby to be synchronous", || {
        psql(&primary.url("work"), is_sync) == "1"
    });
    let store = Arc::new(open(&url).await);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writes: Vec<_> = (0..4)
        .map(|_| {
            let (store, stopped) = (store.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !*stopped.borrow() {
                    let answers = store.run(Arc::new([Op::Start(vec![start("m")])])).await;
                    if let Ok([Answer::Started(each)]) = answers.as_deref() {
                        acknowledged.extend(each.iter().flatten().map(|one| one.id()));
                    }
                }
                acknowledged
            })
        })
        .collect();
    until("some to be started", || {
        psql(
            &primary.url("work"),
            "select count(*) > 50 from abide.instances",
        ) == "t"
    });
    primary.kill();
    standby.promote();
    persist(&store, || Op::Start(vec![start("m")])).await;
    stop.send_replace(true);
    let mut acknowledged = Vec::new();
    for write in writes {
        acknowledged.extend(write.await.unwrap());
    }
    assert!(acknowledged.len() > 50);
    let count = acknowledged.len();
    acknowledged.sort_unstable();
    acknowledged.dedup();
    assert_eq!(acknowledged.len(), count, "an id was given out twice");
    for id in acknowledged {
        assert!(
            store.get(&Target::Id(id)).await.unwrap().is_some(),
            "{id} was lost"
        );
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_durable_whatever_the_server_is_set_to() {
    // rules 1.1 and 1.6
    let lazy = [("synchronous_commit", "off"), ("wal_writer_delay", "10s")];
    let server = Server::private(&lazy);
    psql(&server.url("postgres"), "create database work");
    let url = server.url("work");
    let store = open(&url).await;
    let id = start_all(&store, vec![start("m")]).await[0].id();
    server.kill();
    server.start();
    let end = Instant::now() + PATIENCE;
    let found = loop {
        match store.get(&Target::Id(id)).await {
            Err(Error::Unavailable(_)) if Instant::now() < end => {}
            found => break found,
        }
    };
    assert!(found.unwrap().is_some(), "it was acknowledged");
    store.close().await;
    // Unless the URL asks for it, as the setting shows while rows are written.
    for statement in [
        "create table seen (setting text)",
        "create function see() returns trigger language plpgsql as $$ begin \
            insert into seen values (current_setting('synchronous_commit')); return new; end $$",
        "create trigger sees before insert on abide.instances for each row execute function see()",
    ] {
        psql(&url, statement);
    }
    let store = open(&url).await;
    start_all(&store, vec![start("m")]).await;
    store.close().await;
    let lazy = format!("{url}?options=-c%20synchronous_commit%3Doff");
    let store = open(&lazy).await;
    start_all(&store, vec![start("m")]).await;
    assert_eq!(psql(&url, "select setting from seen"), "on\noff");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_durable_when_the_server_is_set_otherwise_meanwhile() {
    // rules 1.1 and 1.6: `synchronous_commit` was read when a connection was made, and never again.
    let server = Server::private(&[]);
    psql(&server.url("postgres"), "create database work");
    let url = server.url("work");
    let store = open(&url).await;
    start_all(&store, vec![start("m")]).await;
    for statement in [
        "create table seen (setting text)",
        "create function see() returns trigger language plpgsql as $$ begin \
            insert into seen values (current_setting('synchronous_commit')); return new; end $$",
        "create trigger sees before insert on abide.instances for each row execute function see()",
        "alter system set synchronous_commit = off",
        "select pg_reload_conf()",
    ] {
        psql(&url, statement);
    }
    // New connections have it, and so have connections that are open.
    until("the setting to be read", || {
        psql(&url, "show synchronous_commit") == "off"
    });
    // It is read again within a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    start_all(&store, vec![start("m")]).await;
    assert_eq!(psql(&url, "select setting from seen"), "on");

    // Set back, nothing has to be requested.
    psql(&url, "alter system reset synchronous_commit");
    psql(&url, "select pg_reload_conf()");
    tokio::time::sleep(Duration::from_secs(2)).await;
    start_all(&store, vec![start("m")]).await;
    assert_eq!(psql(&url, "select setting from seen"), "on\non");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_ask_who_the_server_is_can_work_all_the_same() {
    // rule 1.6: where the server does not tell, a fail-over is not noticed, and nothing else is different.
    let server = Server::private(&[]);
    psql(&server.url("postgres"), "create database work");
    for function in ["pg_control_system()", "pg_walfile_name(pg_lsn)"] {
        let revoke = format!("revoke execute on function {function} from public");
        psql(&server.url("work"), &revoke);
    }
    psql(
        &server.url("work"),
        "create role plain login; grant create on database work to plain",
    );
    let url = server.url("work").replace("abide@", "plain@");
    let store = open(&url).await;
    start_all(&store, vec![start("m")]).await;
    store.close().await;
}
