//! Messages that a source reads, the events that they become, and how it is started and stopped.

use std::time::Duration;

use abide::message::eq;
use abide::time::hours;
use abide::{Abide, Context, Event, Machine, Outcome, Step, done, stop};
use abide_nats::{Error, Source};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use serde::Deserialize;
use serde_json::json;

use crate::lab::{events, numbers, send, source, until_all_is_acknowledged, until_there_are};
use crate::server::Server;
use crate::wait::{eventually, soon};

#[derive(Step)]
enum At {
    Order,
    Ship,
}

#[derive(Deserialize)]
struct Payment {
    amount: u32,
}

struct Checkout;

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = At;
    type State = String;
    type Output = u32;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Order => {
                let paid = Event::new("payment.received").matching("order", eq(ctx.state()));
                ctx.wait_for_event(paid).timeout(hours(1)).then(At::Ship)
            }
            At::Ship => match ctx.event::<Payment>()? {
                Some(payment) => done(payment.amount),
                None => stop("payment never came"),
            },
        }
    }
}

#[tokio::test]
async fn a_message_wakes_the_machine_that_waits_for_it() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("abide.db").display());
    let abide = Abide::open(&url).await.unwrap();
    let engine = abide.engine().machine(Checkout).start().await.unwrap();
    let order = abide.start(Checkout, "ord_2".to_owned()).await.unwrap();
    eventually("the wait", async || {
        let waits = abide.event_waits(&Default::default(), None, 1).await;
        !waits.unwrap().items.is_empty()
    })
    .await;
    let source = source(&abide, &server)
        .event_type(|message| match message.header("Kind") {
            Some("payment") => "payment.received".to_owned(),
            _ => message.subject().to_owned(),
        })
        .start()
        .await
        .unwrap();

    for number in 1..=3 {
        let body = json!({"order": format!("ord_{number}"), "amount": number * 10}).to_string();
        let message = PublishMessage::build().payload(body.into());
        let message = message.header("Kind", "payment");
        let sent = context.send_publish("orders.paid", message).await.unwrap();
        sent.await.unwrap();
    }

    assert_eq!(soon("the payment", order.result()).await.unwrap(), 20);
    until_there_are(&abide, 3).await;
    source.shutdown().await;
    engine.shutdown().await;
}

#[tokio::test]
async fn only_the_subject_that_was_asked_for_is_read_in_the_order_of_the_stream() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    for number in 0..300 {
        for subject in ["orders.paid.eu", "orders.shipped.eu"] {
            let sent = context.publish(subject, number.to_string().into()).await;
            sent.unwrap().await.unwrap();
        }
    }
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server)
        .subject("orders.paid.*")
        .batch(7)
        .start()
        .await
        .unwrap();
    until_all_is_acknowledged(&context).await;
    let events = events(&abide).await;
    let expected: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let payloads: Vec<&str> = events.iter().map(|event| event.payload.as_str()).collect();
    assert_eq!(payloads, expected);
    assert!(
        events
            .iter()
            .all(|event| event.event_type.as_str() == "orders.paid.eu")
    );
    assert!(events[0].event_id.as_str().starts_with("ORDERS:1:"));
    source.shutdown().await;
}

#[tokio::test]
async fn the_same_message_id_twice_is_one_event() {
    // rule 14.1
    let server = Server::start().await;
    let context = server.jetstream().await;
    // The server itself would notice within its window.
    let config = async_nats::jetstream::stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders.>".to_owned()],
        duplicate_window: Duration::from_millis(100),
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    let long = "x".repeat(300);
    let other = format!("{long}y");
    for id in ["evt_7", &long, &other] {
        for subject in ["orders.paid", "orders.paid", "orders.shipped"] {
            let message = PublishMessage::build().message_id(id);
            // Until it has forgotten the one before.
            eventually("the end of the window", async || {
                let sent = context
                    .send_publish(subject, message.clone())
                    .await
                    .unwrap();
                !sent.await.unwrap().duplicate
            })
            .await;
        }
    }
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    until_all_is_acknowledged(&context).await;
    let events = events(&abide).await;
    let known = |id: &str| {
        events
            .iter()
            .filter(|event| event.event_id.as_str() == id)
            .count()
    };
    // Of each type one.
    assert_eq!((events.len(), known("evt_7")), (6, 2));
    let stats = source.stats();
    assert_eq!((stats.published, stats.duplicates), (6, 3));
    source.shutdown().await;
}

#[tokio::test]
async fn a_stream_that_was_made_anew_has_new_messages() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    send(&context, 0..3).await;
    until_there_are(&abide, 3).await;
    // Their sequences are 1 to 3 again. The source finds that its consumer is gone, and makes another.
    context.delete_stream("ORDERS").await.unwrap();
    let context = server.with_orders().await;
    send(&context, 3..6).await;
    until_there_are(&abide, 6).await;
    assert_eq!(numbers(&abide).await, [0, 1, 2, 3, 4, 5]);
    source.shutdown().await;
}

#[tokio::test]
async fn several_sources_share_a_consumer() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let one = source(&abide, &server).batch(5).start().await.unwrap();
    let other = source(&abide, &server).batch(5).start().await.unwrap();
    send(&context, 0..500).await;
    until_all_is_acknowledged(&context).await;
    assert_eq!(numbers(&abide).await, (0..500).collect::<Vec<_>>());
    let (one_had, other_had) = (one.stats().published, other.stats().published);
    assert_eq!(one_had + other_had, 500);
    assert!(one_had > 0 && other_had > 0, "{one_had} and {other_had}");
    one.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn shutdown_leaves_nothing_in_hand() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let first = source(&abide, &server)
        .ack_wait(Duration::from_secs(600))
        .batch(10)
        .start()
        .await
        .unwrap();
    send(&context, 0..1_000).await;
    until_there_are(&abide, 10).await;
    assert!(first.is_running());
    soon("the shutdown", first.shutdown()).await;
    let before = events(&abide).await.len();
    // What it had read and not published comes at once, not after ten minutes.
    let second = source(&abide, &server).start().await.unwrap();
    until_there_are(&abide, 1_000).await;
    until_all_is_acknowledged(&context).await;
    let stats = second.stats();
    assert_eq!(stats.published, 1_000 - before as u64);
    assert_eq!(stats.duplicates, 0, "what was published was acknowledged");
    second.shutdown().await;
}

#[tokio::test]
async fn a_source_ends_when_its_abide_is_closed() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let source = source(&abide, &server).start().await.unwrap();
    abide.close().await;
    send(&context, 0..1).await;
    eventually("the end", async || !source.is_running()).await;
    assert_eq!(source.stats().published, 0);
    source.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_at_the_start() {
    let server = Server::start().await;
    let context = server.with_orders().await;
    let abide = Abide::open("memory:").await.unwrap();
    let stream = context.get_stream("ORDERS").await.unwrap();
    let unacknowledged = pull::Config {
        durable_name: Some("none".to_owned()),
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    stream.create_consumer(unacknowledged).await.unwrap();
    let of =
        |subject: &str, durable: &str| source(&abide, &server).subject(subject).durable(durable);
    of("orders.paid", "paid")
        .start()
        .await
        .unwrap()
        .shutdown()
        .await;
    let refused = [
        (Source::of(abide.clone(), &server.url()), "no stream"),
        (source(&abide, &server).stream("NONE"), "\"NONE\""),
        (source(&abide, &server).stream("a.b"), "\"a.b\""),
        (source(&abide, &server).stream("S".repeat(230)), "event id"),
        (source(&abide, &server).durable(""), "no name"),
        (source(&abide, &server).durable("a.b"), "\"a.b\""),
        (source(&abide, &server).batch(0), "batch"),
        (source(&abide, &server).ack_wait(Duration::ZERO), "ack_wait"),
        (of("orders.shipped", "paid"), "another subject"),
        (of("", "none"), "one by one"),
    ];
    for (source, problem) in refused {
        let error = soon("a refusal", source.start()).await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{problem}: {error:?}");
        assert!(error.to_string().contains(problem), "{problem}: {error}");
    }
    drop(context);
    let url = server.url();
    drop(server);
    let away = Source::of(abide, &url).stream("ORDERS").start();
    let error = soon("an error", away).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
}
