//! Word of commits reaches other processes, and not too often.
//!
//! Each test has a server of its own: transactions that notify take a lock of the whole server, whatever their database, and a
//! notification that has to wait too long for that of another test is dropped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    claim, commit_all, deliver, done, go_on, name, open, register, signal, start, start_all,
};
use abide_kernel::model::{Start, When};
use abide_kernel::{Effects, Listener, Store};
use abide_pgtest::Server;
use abide_postgres::tokio_postgres::{self, AsyncMessage, NoTls};
use abide_postgres::{Listen, Options, Postgres};
use futures_util::future::{join_all, poll_fn};

async fn next(listener: &mut Listener) -> Arc<Effects> {
    let next = tokio::time::timeout(Duration::from_secs(20), listener.next());
    next.await.expect("no notification came").unwrap()
}

#[tokio::test]
async fn what_one_process_does_another_hears() {
    // rule 6.6
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let (here, there) = (open(&url).await, open(&url).await);
    let (mut own, mut other) = (here.listen(), there.listen());
    let worker = register(&here, "w").await;

    start_all(&here, vec![start("m")]).await;
    assert!(next(&mut own).await.ready.contains(&name("default")));
    assert!(next(&mut other).await.ready.contains(&name("default")));

    let claimed = claim(&here, worker, &["m"], 1).await;
    let id = claimed[0].claim.id();
    commit_all(&here, claimed.into_iter().map(done).collect()).await;
    assert_eq!(next(&mut own).await.ended, [id]);
    assert!(next(&mut other).await.ended_elsewhere);

    let later = Start {
        when: When::After(Duration::from_secs(3600)),
        ..start("m")
    };
    start_all(&here, vec![later]).await;
    let due = here.next_due().await.unwrap().unwrap();
    assert_eq!(next(&mut own).await.due, Some(due));
    assert_eq!(next(&mut other).await.due, Some(due));

    // The sender has heard each of these once, from itself, and no echo: that would come before what is sent later.
    let last = Start {
        queue: Some(name("last")),
        ..start("m")
    };
    start_all(&there, vec![last]).await;
    assert_eq!(next(&mut own).await.ready, BTreeSet::from([name("last")]));
}

#[tokio::test]
async fn a_worker_hears_what_came_to_the_workflow_it_runs() {
    // rule 6.6
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let (here, there) = (open(&url).await, open(&url).await);
    let worker = register(&here, "w").await;
    start_all(&here, vec![start("m")]).await;
    let claimed = claim(&here, worker, &["m"], 1).await.remove(0);
    let id = claimed.claim.id();
    go_on(&here, claimed).await;

    let mut listener = here.listen();
    deliver(&there, vec![signal(id, "paid", "1")]).await;
    let heard = async { while !next(&mut listener).await.received.contains(&id) {} };
    let heard = tokio::time::timeout(Duration::from_secs(20), heard).await;
    heard.expect("no notification of the message came");
}

#[tokio::test]
async fn many_commits_share_few_notifications() {
    // rule 6.6
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let store = open(&url).await;
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                sender.send(notice.payload().to_owned()).unwrap();
            }
        }
    });
    client.batch_execute("listen abide").await.unwrap();

    let in_queue = |n: usize| Start {
        queue: Some(name(&format!("q{}", n % 10))),
        ..start("m")
    };
    join_all((0..400).map(|n| start_all(&store, vec![in_queue(n)]).into_future())).await;
    // A closed store has sent its last notification, and what is sent later comes after it.
    store.close().await;
    client.batch_execute("notify abide, 'end'").await.unwrap();
    let mut payloads: Vec<String> = Vec::new();
    loop {
        let payload = tokio::time::timeout(Duration::from_secs(10), notices.recv()).await;
        match payload.expect("the end").unwrap() {
            end if end == "end" => break,
            payload => payloads.push(payload),
        }
    }
    let heard = |queue: usize| {
        let named = format!("\"q{queue}\"");
        payloads.iter().any(|payload| payload.contains(&named))
    };
    assert!((0..10).all(heard), "{payloads:?}");
    assert!(
        (1..200).contains(&payloads.len()),
        "{} payloads for 400 commits",
        payloads.len()
    );
}

#[tokio::test]
async fn a_store_that_does_not_listen_hears_only_itself() {
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let options = Options {
        listen: Listen::Off,
        ..Options::default()
    };
    let deaf = Postgres::connect(&url, options).await.unwrap();
    let other = open(&url).await;
    let mut listener = deaf.listen();
    start_all(&other, vec![start("m")]).await;
    start_all(
        &deaf,
        vec![Start {
            queue: Some(name("own")),
            ..start("m")
        }],
    )
    .await;
    assert!(next(&mut listener).await.ready.contains(&name("own")));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), listener.next())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn an_insert_into_the_outbox_wakes_those_who_take_from_it() {
    // rules 6.6, 17.3: whatever the notification says, and when its transaction commits.
    let server = Server::private(&[]);
    let url = server.fresh_database();
    let store = open(&url).await;
    let mut listener = store.listen();
    let (mut mine, driver) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(driver);
    for notify in [
        "notify abide_outbox",
        "notify abide_outbox, 'any words'",
        "select pg_notify('abide_outbox', '{}')",
    ] {
        let transaction = mine.transaction().await.unwrap();
        transaction.batch_execute(notify).await.unwrap();
        transaction.commit().await.unwrap();
        let expected = Effects {
            outbox: true,
            ..Effects::default()
        };
        assert_eq!(*next(&mut listener).await, expected);
    }
}
