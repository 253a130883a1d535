//! All of it through pgbouncer in transaction mode, where no session survives a commit.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::Arc;

use abide::postgres::{Listen, Options, Postgres};
use abide::{Abide, Context, Machine, Outcome, Step, done, millis, next, spec};
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
    let url = server().fresh_database();
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
        .start_all((0..300).map(|_| spec(Counting, 0)))
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
