//! Nothing is lost and nothing comes twice when the source, the server or the database breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use abide::Abide;
use abide::store::Store;
use abide_kernel::Op;
use abide_kernel::conformance::faulty::{Faulty, Trouble};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use futures_util::StreamExt;

use crate::lab::{
    events, memory, numbers, send, source, until_all_is_acknowledged, until_there_are,
};
use crate::server::Server;
use crate::wait::{eventually, soon};

/// An abide on a store in trouble, whose errors it gets at once, and one on the same store without.
fn troubled(plan: impl Fn() -> Option<Trouble> + Send + Sync + 'static) -> (Abide, Abide) {
    let store: Arc<dyn Store> = memory();
    let publishes = |ops: &[Op]| matches!(ops.first(), Some(Op::Publish(_)));
    let faulty = Faulty::new(store.clone(), move |ops| match publishes(ops) {
        true => plan(),
        false => None,
    });
    let options = Abide::options().patience(Duration::ZERO);
    (options.clone().on(faulty), options.on(store))
}

#[tokio::test]
async fn a_thousand_messages_are_a_thousand_events_over_restarts_of_the_source_and_the_server() {
    let mut server = Server::start().await;
    let context = server.with_orders().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("abide.db").display());
    let abide = Abide::open(&url).await.unwrap();
    send(&context, 0..700).await;

    // Three sources die with messages in hand, wherever they are.
    for count in [1, 150, 300] {
        let source = source(&abide, &server).batch(20).start().await.unwrap();
        until_there_are(&abide, count).await;
        drop(source);
    }
    // The server dies under the fourth, which finds it again, and what is sent meanwhile and later.
    let fourth = source(&abide, &server).batch(20).start().await.unwrap();
    until_there_are(&abide, 450).await;
    server.kill();
    server.start_again().await;
    let context = server.jetstream().await;
    send(&context, 700..850).await;
    until_there_are(&abide, 800).await;
    drop(fourth);
    // The process with the store dies too: the events are in the file.
    abide.close().await;
    server.kill();
    server.start_again().await;
    let abide = Abide::open(&url).await.unwrap();
    let fifth = source(&abide, &server).start().await.unwrap();
    let context = server.jetstream().await;
    send(&context, 850..1_000).await;

    until_there_are(&abide, 1_000).await;
    until_all_is_acknowledged(&context).await;
    assert_eq!(numbers(&abide).await, (0..1_000).collect::<Vec<_>>());
    fifth.shutdown().await;
}

#[tokio::test]
async fn what_is_handed_out_again_is_a_duplicate() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    send(&context, 0..100).await;
    let abide = Abide::open("memory:").await.unwrap();
    let first = source(&abide, &server).start().await.unwrap();
    until_all_is_acknowledged(&context).await;
    first.shutdown().await;
    // Another consumer reads all of it again.
    let second = source(&abide, &server).durable("other");
    let second = second.start().await.unwrap();
    eventually("the duplicates", async || second.stats().duplicates == 100).await;
    assert_eq!(second.stats().published, 0);
    assert_eq!(numbers(&abide).await, (0..100).collect::<Vec<_>>());
    second.shutdown().await;
}

#[tokio::test]
async fn a_batch_that_somebody_took_and_did_not_acknowledge_comes_again() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    send(&context, 0..50).await;
    let stream = context.get_stream("ORDERS").await.unwrap();
    let config = pull::Config {
        durable_name: Some("abide".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(1),
        ..pull::Config::default()
    };
    let consumer: PullConsumer = stream.create_consumer(config).await.unwrap();
    let taken = consumer.fetch().max_messages(50).messages().await.unwrap();
    assert_eq!(soon("the messages", taken.count()).await, 50);
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    until_all_is_acknowledged(&context).await;
    assert_eq!(numbers(&abide).await, (0..50).collect::<Vec<_>>());
    source.shutdown().await;
}

#[tokio::test]
async fn nothing_is_lost_while_the_database_is_away() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let is_away = Arc::new(AtomicBool::new(true));
    let tried = Arc::new(AtomicU64::new(0));
    let (abide, calm) = troubled({
        let (is_away, tried) = (is_away.clone(), tried.clone());
        move || {
            tried.fetch_add(1, Ordering::SeqCst);
            is_away.load(Ordering::SeqCst).then_some(Trouble::Away)
        }
    });
    send(&context, 0..300).await;
    let source = source(&abide, &server).start().await.unwrap();
    // Longer than the server waits for an acknowledgement.
    let begun = std::time::Instant::now();
    eventually("several tries", async || {
        tried.load(Ordering::SeqCst) >= 3 && begun.elapsed() > Duration::from_secs(2)
    })
    .await;
    assert!(events(&calm).await.is_empty());
    is_away.store(false, Ordering::SeqCst);
    until_there_are(&calm, 300).await;
    until_all_is_acknowledged(&context).await;
    assert_eq!(numbers(&calm).await, (0..300).collect::<Vec<_>>());
    assert_eq!(source.stats().published, 300);
    source.shutdown().await;
}

#[tokio::test]
async fn a_source_that_stops_while_the_database_is_away_gives_back_what_it_has() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let tried = Arc::new(AtomicU64::new(0));
    let (abide, calm) = troubled({
        let tried = tried.clone();
        move || {
            tried.fetch_add(1, Ordering::SeqCst);
            Some(Trouble::Away)
        }
    });
    send(&context, 0..100).await;
    let minutes = Duration::from_secs(600);
    let first = source(&abide, &server).ack_wait(minutes).start().await;
    let first = first.unwrap();
    eventually("a try", async || tried.load(Ordering::SeqCst) > 0).await;
    soon("the shutdown", first.shutdown()).await;
    let second = source(&calm, &server).start().await.unwrap();
    until_there_are(&calm, 100).await;
    assert_eq!(numbers(&calm).await, (0..100).collect::<Vec<_>>());
    second.shutdown().await;
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_repeated_without_harm() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let turn = AtomicU64::new(0);
    // Lost before the commit, lost after it, refused for the moment, and done: again and again.
    let (abide, calm) = troubled(move || match turn.fetch_add(1, Ordering::SeqCst) % 4 {
        0 => Some(Trouble::Lost),
        1 => Some(Trouble::AnswerLost),
        2 => Some(Trouble::Conflict),
        _ => None,
    });
    send(&context, 0..200).await;
    let source = source(&abide, &server).batch(30).start().await.unwrap();
    until_all_is_acknowledged(&context).await;
    assert_eq!(numbers(&calm).await, (0..200).collect::<Vec<_>>());
    let stats = source.stats();
    assert_eq!(stats.published + stats.duplicates, 200);
    assert!(
        stats.duplicates > 0,
        "a repeated commit found what the first had written"
    );
    source.shutdown().await;
}
