//! A PostgreSQL server that is stopped, crashes, and comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::client::StartError;
use abide::time::{hours, millis, secs};
use abide::{Abide, Error, Status};
use abide_pgtest::Server;
use serde_json::json;

use crate::common::{At, Gate, Lab, Script, eventually, soon};
use crate::outages::{each_took_its_steps_once, start_walks, walk};

/// A server of one's own, to be stopped and started.
struct Site {
    server: Arc<Server>,
    lab: Lab,
}

impl Site {
    async fn new() -> Self {
        let made = tokio::task::spawn_blocking(|| {
            let server = Server::private(&[]);
            let url = server.fresh_database();
            (Arc::new(server), url)
        });
        let (server, url) = made.await.unwrap();
        let lab = Lab::at(&url).await;
        Self { server, lab }
    }

    async fn on_server(&self, act: impl FnOnce(&Server) + Send + 'static) {
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || act(&server))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_server_was_stopped_or_crashed() {
    // rules 1.1, 1.3
    let site = Site::new().await;
    let lab = &site.lab;
    let one = lab
        .engine()
        .queue("default", 20)
        .machine(walk())
        .start()
        .await
        .unwrap();
    let two = lab
        .again()
        .await
        .engine()
        .queue("default", 20)
        .machine(walk());
    let two = two.start().await.unwrap();
    let ids = start_walks(lab, 400).await;
    let committed = || one.stats().committed + two.stats().committed;
    for round in 0..4 {
        let before = committed();
        eventually("work to go on", async || committed() > before + 200).await;
        if round % 2 == 0 {
            site.on_server(Server::stop).await;
        } else {
            site.on_server(Server::crash).await;
        }
        site.on_server(Server::start).await;
    }
    each_took_its_steps_once(lab, &ids).await;
    one.shutdown().await;
    two.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_longer_than_the_lease_loses_nothing() {
    // rules 1.1, 1.3, 5.3
    let site = Site::new().await;
    let lab = &site.lab;
    let build = |engine: abide::engine::EngineBuilder| {
        engine
            .lease(millis(600))
            .queue("default", 10)
            .machine(walk())
    };
    let one = build(lab.engine()).start().await.unwrap();
    let two = build(lab.again().await.engine()).start().await.unwrap();
    let ids = start_walks(lab, 200).await;
    let committed = || one.stats().committed + two.stats().committed;
    eventually("work to begin", async || committed() > 100).await;
    site.on_server(Server::stop).await;
    // Long enough for every lease to have run out.
    tokio::time::sleep(millis(1_500)).await;
    site.on_server(Server::start).await;
    each_took_its_steps_once(lab, &ids).await;
    one.shutdown().await;
    two.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_the_server_as_long_as_it_has_patience() {
    let site = Site::new().await;
    let lab = &site.lab;
    let hasty = lab.opened(Abide::options().patience(millis(1_500))).await;
    let at_once = lab.opened(Abide::options().patience(Duration::ZERO)).await;
    site.on_server(Server::stop).await;
    // A caller whose patience is spent gets an error, however many wait before it.
    let calls = (0..5).map(|n| {
        let hasty = hasty.clone();
        tokio::spawn(async move {
            tokio::time::sleep(millis(100 * n)).await;
            let sent_at = Instant::now();
            let error = hasty.start(Script::any(), json!(n)).await.unwrap_err();
            (error, sent_at.elapsed())
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let (error, waited) = soon("an answer", call).await.unwrap();
        assert!(
            matches!(error, StartError::Error(Error::Unavailable(_))),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("cannot be reached") && text.contains("try again"),
            "{text}"
        );
        assert!(
            waited >= millis(1_500) && waited < millis(2_400),
            "it waited {waited:?}"
        );
    }
    let error = soon(
        "an answer",
        at_once.start(Script::any(), json!(9)).into_future(),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(error, StartError::Error(Error::Unavailable(_))),
        "{error:?}"
    );
    assert!(matches!(
        lab.get(abide::InstanceId(1)).await,
        Err(Error::Unavailable(_))
    ));
    // A caller with patience waits, and succeeds when the server is back.
    let patient = lab.clone();
    let waiting =
        tokio::spawn(async move { patient.start(Script::any(), json!("waited")).key("w").await });
    tokio::task::yield_now().await;
    site.on_server(Server::start).await;
    let started = soon("the start", waiting).await.unwrap().unwrap();
    assert!(started.is_new());
    let all = lab.list(&Default::default(), None, 10).await.unwrap().items;
    assert_eq!(
        all.len(),
        1,
        "nothing was written for the callers that got an error"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_wait_for_results_and_timers_wait_through_an_outage() {
    // rules 6.5, 6.6: without a poll, which does not come during this test.
    let site = Site::new().await;
    let lab = &site.lab;
    let gate = Gate::closed();
    let engine = lab
        .engine()
        .poll(hours(1))
        .machine(Script::gated(&gate, move |at, ctx, gate| {
            Box::pin(async move {
                match at {
                    At::One => gate.pass().await,
                    At::Two => return ctx.sleep(millis(300)).then(At::Three),
                    At::Three => {}
                }
                abide::done(ctx.state().clone())
            })
        }));
    let engine = engine.start().await.unwrap();
    let running = lab.start(Script::any(), json!("ran")).await.unwrap();
    let asleep = lab
        .start(Script::any(), json!("slept"))
        .step(At::Two)
        .await
        .unwrap();
    lab.until_status(asleep.id(), Status::Scheduled).await;
    gate.reached_by(1).await;
    let results =
        [running, asleep].map(|handle| tokio::spawn(async move { handle.result().await }));
    site.on_server(Server::crash).await;
    // The step ends while the database is away: its outcome is kept.
    gate.open();
    site.on_server(Server::start).await;
    for (result, expected) in results.into_iter().zip(["ran", "slept"]) {
        assert_eq!(
            soon("the result", result).await.unwrap().unwrap(),
            json!(expected)
        );
    }
    assert_eq!(engine.stats().stale, 0);
    // And notifications arrive again.
    let other = lab
        .again()
        .await
        .start(Script::any(), json!("new"))
        .step(At::Three)
        .await
        .unwrap();
    assert_eq!(lab.came_to(&other).await, json!("new"));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_can_be_stopped_while_the_server_is_away() {
    // rule 6.7: what it held is freed with its lease then.
    let site = Site::new().await;
    let lab = &site.lab;
    let gate = Gate::closed();
    let engine = lab
        .engine()
        .name("w")
        .grace(millis(300))
        .machine(Script::gated(&gate, move |_, _, gate| {
            Box::pin(async move {
                gate.pass().await;
                abide::done(json!("before"))
            })
        }));
    let engine = engine.start().await.unwrap();
    let order = lab.start(Script::any(), json!(1)).await.unwrap();
    gate.reached_by(1).await;
    site.on_server(Server::stop).await;
    gate.open();
    let begun = Instant::now();
    soon("the shutdown to end", engine.shutdown()).await;
    assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
    let error = soon("an answer", lab.engine().machine(walk()).start())
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    site.on_server(Server::start).await;
    let engine = lab
        .engine()
        .name("w")
        .machine(Script::new(|_, ctx| abide::done(json!(ctx.attempt()))));
    let engine = engine.start().await.unwrap();
    assert_eq!(lab.came_to(&order).await, json!(1));
    engine.shutdown().await;
}
