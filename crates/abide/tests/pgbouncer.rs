//! All of it through pgbouncer in transaction mode, where no session survives a commit.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use abide::client::{new_signal, new_start};
use abide::machine::{Answer, Call, Messages};
use abide::postgres::{Listen, Options, Postgres};
use abide::time::{hours, millis};
use abide::{Abide, Context, Machine, Outcome, Signal, Step, Update, done, next};
use abide_pgtest::{Bouncer, server};

#[derive(Step)]
enum At {
    Count,
    End,
}

struct Counting;

impl Machine for Counting {
    const NAME: &'static str = "counting";
    type Step = At;
    type State = u32;
    type Output = u32;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        match at {
            At::Count if *ctx.state() < 9 => next(At::Count),
            At::Count => next(At::End),
            At::End => done(*ctx.state()),
        }
    }
}

async fn through(bouncer: &Bouncer, listen: Listen) -> Abide {
    let options = Options {
        listen,
        ..Options::default()
    };
    let store = Postgres::connect(bouncer.url(), options).await.unwrap();
    Abide::options().on(Arc::new(store))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_the_work_behind_pgbouncer() {
    let url = server().emptied_database(&abide::postgres::plan(0));
    let bouncer = Bouncer::before(&url);
    let (one, two) = (
        through(&bouncer, Listen::At(url.clone())).await,
        through(&bouncer, Listen::Off).await,
    );
    let engines = [
        one.engine()
            .machine(Counting)
            .queue("default", 50)
            .start()
            .await
            .unwrap(),
        two.engine()
            .machine(Counting)
            .queue("default", 50)
            .poll(millis(50))
            .start()
            .await
            .unwrap(),
    ];
    let started = two
        .start_all((0..300).map(|_| new_start(Counting, 0)))
        .await
        .unwrap();
    let later = one
        .start(Counting, 0)
        .delay(millis(100))
        .partition("p:1")
        .key("later")
        .await
        .unwrap();
    for answer in started {
        let handle = one
            .handle::<u32>(answer.unwrap().id())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(handle.result().await.unwrap(), 10);
        // Ten steps, one end and the start: each was committed once.
        assert_eq!(handle.history().await.unwrap().len(), 12);
    }
    assert_eq!(later.result().await.unwrap(), 10);
    let stale: u64 = engines.iter().map(|engine| engine.stats().stale).sum();
    assert_eq!(stale, 0);
    for engine in engines {
        engine.shutdown().await;
    }
}

const PAID: Signal<u32> = Signal::new("paid");
const ADD: Update<u32, u32> = Update::new("add");

#[derive(Step)]
enum Stage {
    Open,
    Paid,
}

/// Waits to be paid, and takes updates meanwhile.
struct Order;

impl Machine for Order {
    const NAME: &'static str = "order";
    type Step = Stage;
    type State = u32;
    type Output = u32;

    fn messages() -> Messages {
        Messages::new().signal(PAID).update(ADD)
    }

    async fn step(&self, at: Stage, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Stage::Open => ctx.wait_for(PAID).timeout(hours(1)).then(Stage::Paid),
            Stage::Paid => done(*ctx.state() + ctx.awaited(PAID)?),
        }
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        *ctx.state_mut() += call.read(ADD)?;
        ADD.reply(ctx.state())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_updates_and_what_is_held_pass_through_pgbouncer() {
    // rules 6.6, 7.1, 7.8 and 9.1
    let url = server().emptied_database(&abide::postgres::plan(0));
    let bouncer = Bouncer::before(&url);
    let (one, two) = (
        through(&bouncer, Listen::At(url.clone())).await,
        through(&bouncer, Listen::Off).await,
    );
    let engine = one.engine().machine(Order).start().await.unwrap();
    let held = (0..20).map(|n| new_signal(format!("held:{n}"), PAID, &n).hold_for(hours(1)));
    for receipt in two.signal_all(held).await.unwrap() {
        assert_eq!(receipt.unwrap().record.outcome(), "signal_held");
    }
    let keys = (0..100).map(|n| new_start(Order, 0).key(format!("order:{n}")));
    let started = two.start_all(keys).await.unwrap();
    for n in 0..5 {
        let key = format!("order:{n}");
        assert_eq!(two.update(&key, ADD, &7).await.unwrap(), 7);
        assert_eq!(one.update(&key, ADD, &3).await.unwrap(), 10);
    }
    let signals =
        (0..100).map(|n| new_signal(format!("order:{n}"), PAID, &n).dedup(format!("p{n}")));
    let sent = two.signal_all(signals).await.unwrap();
    assert!(sent.iter().all(Result::is_ok));
    assert!(
        one.signal("order:0", PAID, &0)
            .dedup("p0")
            .await
            .unwrap()
            .duplicate
    );
    for (n, answer) in (0..).zip(started) {
        let id = answer.unwrap().id();
        let handle = two.handle::<u32>(id).await.unwrap().unwrap();
        assert_eq!(
            handle.result().await.unwrap(),
            n + if n < 5 { 10 } else { 0 }
        );
    }
    for n in 0..20 {
        let order = one.start(Order, 100).key(format!("held:{n}"));
        assert_eq!(order.await.unwrap().result().await.unwrap(), 100 + n);
    }
    assert_eq!(one.doctor().await.unwrap().findings, []);
    engine.shutdown().await;
}
