//! Bodies and names that cannot become events stop none of the others.

use std::time::Duration;

use abide::Abide;
use abide::model::Limits;

use crate::lab::{events, source, until_all_is_acknowledged};
use crate::server::Server;

#[tokio::test]
async fn what_can_never_be_an_event_is_terminated_and_stops_nothing() {
    // rule 14.1
    let server = Server::start().await;
    let context = server.with_orders().await;
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let long_subject = format!("orders.{}", "x".repeat(300));
    let megabyte = "a".repeat(1 << 20).into_bytes();
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("orders.first", b"{\"n\": 1}".to_vec()),
        ("orders.empty", Vec::new()),
        ("orders.text", b"not JSON".to_vec()),
        ("orders.torn", b"{\"n\":".to_vec()),
        ("orders.scalar", b"42".to_vec()),
        ("orders.bytes", vec![0xff, 0xfe]),
        ("orders.panic", b"1".to_vec()),
        (&long_subject, b"1".to_vec()),
        // rule 16.3: deeper than a document may be.
        ("orders.deep", deep.into_bytes()),
        ("orders.large", megabyte[..1_000_000].to_vec()),
        // As large as the server takes, and with its quotes larger than an event may be.
        ("orders.too-large", megabyte),
        ("orders.last", b"\"end\"".to_vec()),
    ];
    for (subject, body) in bodies {
        let sent = context.publish(subject.to_owned(), body.into()).await;
        sent.unwrap().await.unwrap();
    }
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server)
        // Large bodies take a slow computer a while: what came again meanwhile would be counted twice.
        .ack_wait(Duration::from_secs(60))
        .event_type(|message| match message.subject() {
            "orders.panic" => panic!("a message that the application did not expect"),
            subject => subject.to_owned(),
        })
        .start()
        .await
        .unwrap();
    until_all_is_acknowledged(&context).await;
    let events = events(&abide).await;
    let large = format!("\"{}\"", "a".repeat(1_000_000));
    let found: Vec<(&str, &str)> = events
        .iter()
        .map(|event| (event.event_type.as_str(), event.payload.as_str()))
        .collect();
    let expected = [
        ("orders.first", "{\"n\": 1}"),
        ("orders.empty", "null"),
        ("orders.text", "\"not JSON\""),
        ("orders.torn", "\"{\\\"n\\\":\""),
        ("orders.scalar", "42"),
        ("orders.large", &large),
        ("orders.last", "\"end\""),
    ];
    assert_eq!(found, expected);
    let stats = source.stats();
    assert_eq!((stats.published, stats.terminated), (7, 5));
    source.shutdown().await;
}

#[tokio::test]
async fn a_batch_that_the_store_refuses_as_a_whole_goes_in_parts() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    crate::lab::send(&context, 0..100).await;
    let limits = Limits {
        batch_entries: 7,
        ..Limits::default()
    };
    let abide = Abide::options().limits(limits).open("memory:").await;
    let abide = abide.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    until_all_is_acknowledged(&context).await;
    assert_eq!(
        crate::lab::numbers(&abide).await,
        (0..100).collect::<Vec<_>>()
    );
    assert_eq!(source.stats().terminated, 0);
    source.shutdown().await;
}

#[tokio::test]
async fn large_messages_among_many_small_ones_do_not_hold_up_the_stream() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    let large = "a".repeat(600_000);
    for round in 0..3 {
        crate::lab::send(&context, round * 1_200..(round + 1) * 1_200).await;
        for _ in 0..40 {
            let sent = context.publish("orders.large", large.clone().into()).await;
            sent.unwrap().await.unwrap();
        }
    }
    until_all_is_acknowledged(&context).await;
    assert_eq!(source.stats().published, 3 * 1_240);
    source.shutdown().await;
}
