//! Sagas: what was done is undone, durably and in reverse.

use abide::engine::{Engine, EngineBuilder};
use abide::prelude::*;
use abide::testing::Kit;
use abide::workflow::Saga;

use crate::common::{Gate, Lab, Log};

const TRIP: Flow<u32, u32> = Flow::new("trip");
const GO: Signal<()> = Signal::new("go");

/// Books one thing, and registers its undo.
async fn book(wf: &Workflow, saga: &Saga, n: u32, log: &Log<String>) -> Result<(), BoxError> {
    wf.step(format!("book {n}"), || {
        let log = log.clone();
        async move {
            log.note(format!("book {n}"));
            Ok::<_, BoxError>(())
        }
    })
    .await?;
    let log = log.clone();
    saga.undo(format!("undo {n}"), move || {
        let log = log.clone();
        async move {
            log.note(format!("undo {n}"));
            Ok::<_, BoxError>(())
        }
    });
    Ok(())
}

async fn trip(wf: Workflow, how: u32, log: Log<String>) -> Result<u32, BoxError> {
    let code = wf.clone();
    wf.saga(|saga| async move {
        let wf = code;
        for n in 1..=3 {
            book(&wf, &saga, n, &log).await?;
        }
        match how {
            0 => Ok(7),
            1 => Err("no rooms".into()),
            2 => {
                wf.signal(GO).await?;
                Ok(8)
            }
            3 => wf.continue_as_new(0),
            4 => panic!("on fire"),
            _ => Err(wf
                .step("charge", || async {
                    Err::<u32, BoxError>("declined".into())
                })
                .await
                .unwrap_err()
                .into()),
        }
    })
    .await
}

async fn engine(lab: &Lab, kept: usize) -> (Engine, Log<String>) {
    let log = Log::new();
    let noted = log.clone();
    let engine = lab
        .engine()
        .workflows_kept(kept)
        .workflow(TRIP, move |wf, how| trip(wf, how, noted.clone()));
    (engine.start().await.unwrap(), log)
}

const ALL: [&str; 6] = ["book 1", "book 2", "book 3", "undo 3", "undo 2", "undo 1"];

on_every_store! {
    async fn what_was_done_is_undone_in_reverse_when_what_follows_fails(lab: Lab) {
        // rules 1.1 and 12.1
        for kept in [100, 0] {
            for (how, expected) in [(1, "no rooms"), (5, "declined")] {
                let (engine, log) = engine(&lab, kept).await;
                let run = lab.start(TRIP, how).await.unwrap();
                let error = lab.failed_of(&run).await;
                assert!(error.contains(expected), "{error}");
                assert_eq!(log.read(), ALL);
                engine.shutdown().await;
            }
        }
    }
}

on_every_store! {
    async fn when_it_is_cancelled_it_is_undone_too(lab: Lab) {
        // rules 11.1 and 12.1
        let (engine, log) = engine(&lab, 100).await;
        let run = lab.start(TRIP, 2).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel(run.id(), "ill").await.unwrap();
        let row = lab.ended(run.id()).await;
        assert_eq!((row.status, row.last_error.as_deref()), (Status::Cancelled, Some("ill")));
        assert_eq!(log.read(), ALL);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn nothing_is_undone_when_it_is_done_or_goes_on_in_a_new_run(lab: Lab) {
        // rules 2.4 and 12.1
        let (engine, log) = engine(&lab, 100).await;
        let run = lab.start(TRIP, 0).await.unwrap();
        assert_eq!(lab.came_to(&run).await, 7);
        let run = lab.start(TRIP, 3).key("on").await.unwrap();
        lab.until(run.id(), "the next run", |row| row.status == Status::Continued).await;
        let next = lab.handle::<u32>("on").await.unwrap().unwrap();
        assert_eq!(lab.came_to(&next).await, 7);
        let waits = lab.start(TRIP, 2).await.unwrap();
        lab.signal(&waits, GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&waits).await, 8);
        assert!(log.read().iter().all(|one| one.starts_with("book")));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_undo_that_fails_is_reported_and_the_rest_is_undone(lab: Lab) {
        // rules 5.2 and 12.1
        let log = Log::new();
        let noted = log.clone();
        let code = move |wf: Workflow, tries: u32| {
            let log = noted.clone();
            async move {
                let inner = wf.clone();
                wf.saga(|saga| async move {
                    saga.retry(Retry::every(millis(1)).attempts(tries));
                    book(&inner, &saga, 1, &log).await?;
                    let undo = log.clone();
                    saga.undo("undo badly", move || {
                        let log = undo.clone();
                        async move {
                            log.note("badly".into());
                            if log.read().iter().filter(|one| **one == "badly").count() < 4 { Err::<(), _>("stuck") } else { Ok(()) }
                        }
                    });
                    book(&inner, &saga, 2, &log).await?;
                    Err("no rooms".into())
                }).await
            }
        };
        let engine = lab.engine().workflow(TRIP, code).start().await.unwrap();
        let run = lab.start(TRIP, 2).await.unwrap();
        let error = lab.failed_of(&run).await;
        assert_eq!(error, "no rooms; and this was not undone: undo badly (step \"undo badly\" failed: stuck)");
        assert_eq!(log.read(), ["book 1", "book 2", "undo 2", "badly", "badly", "undo 1"]);
        // With enough tries it is.
        let run = lab.start(TRIP, 3).await.unwrap();
        assert_eq!(lab.failed_of(&run).await, "no rooms");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_undoing_outlives_its_worker(lab: Lab) {
        // rules 1.1 and 5.3
        let (gate, log) = (Gate::closed(), Log::new());
        let build = |gate: Gate, log: Log<String>| move |engine: EngineBuilder| {
            engine.name("w").lease(secs(600)).workflow(TRIP, move |wf: Workflow, _: u32| {
                let (gate, log) = (gate.clone(), log.clone());
                async move {
                    let inner = wf.clone();
                    wf.saga(|saga| async move {
                        book(&inner, &saga, 1, &log).await?;
                        let undo = log.clone();
                        saga.undo("undo slowly", move || {
                            let (gate, log) = (gate.clone(), undo.clone());
                            async move {
                                log.note("slowly".into());
                                gate.pass().await;
                                Ok::<_, BoxError>(())
                            }
                        });
                        book(&inner, &saga, 2, &log).await?;
                        Err("no rooms".into())
                    }).await
                }
            })
        };
        let killable = lab.killable(build(gate.clone(), log.clone())).await;
        let run = lab.start(TRIP, 0).await.unwrap();
        gate.reached_by(1).await;
        killable.die().await;
        gate.open();
        let engine = build(gate.clone(), log.clone())(lab.engine()).start().await.unwrap();
        assert_eq!(lab.failed_of(&run).await, "no rooms");
        assert_eq!(log.read(), ["book 1", "book 2", "undo 2", "slowly", "slowly", "undo 1"]);
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn it_is_undone_once_through_a_crash_after_every_commit() {
    // rules 1.1 and 12.1
    let log = Log::new();
    let noted = log.clone();
    let kit = Kit::builder()
        .workflow(TRIP, move |wf, how| trip(wf, how, noted.clone()))
        .build()
        .await
        .unwrap();
    kit.kill_worker_after_every_commit(true);
    let run = kit.start(TRIP, 1).await.unwrap();
    for _ in 0..20 {
        kit.settle().await;
        if kit.worker_is_dead().await {
            kit.restart_worker().await.unwrap();
        }
    }
    kit.assert_failed(&run, "no rooms").await;
    assert_eq!(log.read(), ALL);
}
