//! Misuse by a workflow's code: it is reported with the cure, and nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use abide::client::{QueryError, new_start};
use abide::machine::Messages;
use abide::message::Query;
use abide::model::Liveness;
use abide::time::millis;
use abide::{Flow, InstanceId, Signal, Status, Update, Workflow};
use serde_json::{Value, json};

use crate::common::Lab;
use crate::workflows::recorded::{Code, blocked, ok, operations};

const GO: Signal<u32> = Signal::new("go");
const SET: Update<u32, u32> = Update::new("set");

const fn flow(name: &'static str) -> Flow<Value, Value> {
    Flow::new(name)
}

/// A misuse: a name, the code, and parts of the reported problem.
type Misuse = (&'static str, Code, &'static [&'static str]);

const IN_STEPS: &[Misuse] = &[
    (
        "sleep-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move { wf.sleep(millis(1)).await })
                    .await?;
                ok(json!(1))
            })
        },
        &[
            "asks for sleep inside step \"outer\"",
            "hand their results in",
        ],
    ),
    (
        "step-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                let inner = || async move { wf.step("inner", || async { ok(1) }).await };
                wf.step("outer", inner).await?;
                ok(json!(1))
            })
        },
        &["asks for step \"inner\" inside step \"outer\""],
    ),
    (
        "signal-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move { wf.signal(GO).await })
                    .await?;
                ok(json!(1))
            })
        },
        &["asks for signal \"go\" inside step \"outer\""],
    ),
    (
        "child-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move {
                    wf.child(new_start(flow("kid"), json!(1))).await
                })
                .await?;
                ok(json!(1))
            })
        },
        &["asks for child \"kid\" inside step \"outer\""],
    ),
    (
        "now-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move { ok(wf.now()) }).await?;
                ok(json!(1))
            })
        },
        &["asks for now inside step \"outer\""],
    ),
    (
        "version-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move { ok(wf.version("way", 0..=1)) })
                    .await?;
                ok(json!(1))
            })
        },
        &["asks for version \"way\" inside step \"outer\""],
    ),
    (
        "all-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move {
                    ok(wf.all(vec![wf.sleep(millis(1))]).await.len())
                })
                .await?;
                ok(json!(1))
            })
        },
        &["asks for all inside step \"outer\""],
    ),
    // After an await of its own, which the step may.
    (
        "late-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move {
                    tokio::time::sleep(millis(20)).await;
                    wf.sleep(millis(1)).await
                })
                .await?;
                ok(json!(1))
            })
        },
        &["asks for sleep inside step \"outer\""],
    ),
    // When the step does not pass the operation's future on, and comes to an end.
    (
        "swallowed-in-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                let code = || async move { ok(wf.random()) };
                let _ = wf.step("outer", code).await;
                ok(json!(1))
            })
        },
        &["asks for random inside step \"outer\""],
    ),
    (
        "in-a-task-of-a-step",
        |wf, _| {
            Box::pin(async move {
                let wf = &wf;
                wf.step("outer", || async move {
                    let (other, step) = (wf.clone(), wf.clone());
                    let task = tokio::spawn(async move {
                        tokio::time::sleep(millis(10)).await;
                        // Waits in vain, and gives up.
                        tokio::time::timeout(millis(10), other.sleep(millis(1)))
                            .await
                            .is_err()
                    });
                    drop(step);
                    ok(task.await?)
                })
                .await?;
                ok(json!(1))
            })
        },
        &["asks for sleep in another task"],
    ),
    (
        "in-a-thread",
        |wf, _| {
            Box::pin(async move {
                let other = wf.clone();
                std::thread::spawn(move || other.now())
                    .join()
                    .map_err(|_| "no thread")?;
                Ok(json!(wf.step("a", || async { ok(1) }).await?))
            })
        },
        &["asks for now in another task"],
    ),
    (
        "in-a-task",
        |wf, _| {
            Box::pin(async move {
                let other = wf.clone();
                let task = tokio::spawn(async move { other.sleep(millis(1)).await });
                task.await??;
                ok(json!(1))
            })
        },
        &["spawns a task", "`wf.all`"],
    ),
    (
        "in-a-task-on-its-own",
        |wf, _| {
            Box::pin(async move {
                let other = wf.clone();
                tokio::spawn(async move { other.sleep(millis(1)).await });
                Ok(json!(wf.signal(GO).await?))
            })
        },
        &["spawns a task"],
    ),
];

/// Code that awaits something that is not a durable operation.
const BARE: &[Misuse] = &[
    (
        "bare-sleep",
        |_, _| {
            Box::pin(async move {
                tokio::time::sleep(millis(10)).await;
                ok(json!(1))
            })
        },
        &["not a durable operation", "`wf.sleep`", "`wf.step`"],
    ),
    (
        "bare-yield",
        |_, _| {
            Box::pin(async move {
                tokio::task::yield_now().await;
                ok(json!(1))
            })
        },
        &["not a durable operation"],
    ),
    (
        "bare-channel",
        |_, _| {
            Box::pin(async move {
                let (_sender, receiver) = tokio::sync::oneshot::channel::<u32>();
                ok(json!(receiver.await?))
            })
        },
        &["not a durable operation"],
    ),
    (
        "bare-task",
        |_, _| {
            Box::pin(async move {
                ok(json!(
                    tokio::spawn(async {
                        tokio::time::sleep(millis(5)).await;
                        1
                    })
                    .await?
                ))
            })
        },
        &["spawns a task", "`wf.step`"],
    ),
    (
        "bare-after-step",
        |wf, _| {
            Box::pin(async move {
                wf.step("a", || async { ok(1) }).await?;
                tokio::time::sleep(millis(10)).await;
                ok(json!(1))
            })
        },
        &["not a durable operation"],
    ),
    (
        "bare-timeout",
        |wf, _| {
            Box::pin(async move {
                let step = wf.step("slow", || async {
                    std::future::pending::<()>().await;
                    ok(1)
                });
                Ok(json!(tokio::time::timeout(millis(20), step).await??))
            })
        },
        &["not a durable operation"],
    ),
    (
        "bare-beside-step",
        |wf, _| {
            Box::pin(async move {
                let step = wf.step("slow", || async {
                    tokio::time::sleep(millis(200)).await;
                    ok(1)
                });
                let bare = tokio::time::sleep(millis(20));
                wf.all((step, bare)).await.0?;
                ok(json!(1))
            })
        },
        &["not a durable operation"],
    ),
    (
        "bare-never",
        |_, _| {
            Box::pin(async move {
                std::future::pending::<()>().await;
                ok(json!(1))
            })
        },
        &["not a durable operation"],
    ),
    (
        "circles",
        |_, _| {
            Box::pin(async move {
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
                .await;
                ok(json!(1))
            })
        },
        &["wakes itself again and again", "wf.condition"],
    ),
    (
        "no-name",
        |wf, _| Box::pin(async move { Ok(json!(wf.step("", || async { ok(1) }).await?)) }),
        &["uses a name that is none"],
    ),
    (
        "no-key",
        |wf, _| {
            Box::pin(async move {
                wf.condition("not a key", || true).await?;
                ok(json!(1))
            })
        },
        &["names a condition \"not a key\"", "A-Z a-z 0-9"],
    ),
    (
        "long-key",
        |wf, _| {
            Box::pin(async move {
                wf.condition(&"k".repeat(129), || true).await?;
                ok(json!(1))
            })
        },
        &["names a condition", "128"],
    ),
];

async fn all_blocked(lab: &Lab, all: &'static [Misuse], kept: usize) {
    let mut engine = lab.engine().workflows_kept(kept);
    for (name, code, _) in all {
        engine = engine.workflow(flow(name), *code);
    }
    let engine = engine.start().await.unwrap();
    let mut runs = Vec::new();
    for (name, ..) in all {
        runs.push(lab.start(flow(name), json!(null)).await.unwrap());
    }
    for (run, (name, _, texts)) in runs.iter().zip(all) {
        let why = blocked(lab, run.id()).await;
        for text in *texts {
            assert!(why.contains(text), "{name}: {why}");
        }
    }
    engine.shutdown().await;
    // Code that does none of it: the runs go on.
    let mut engine = lab.engine();
    for (name, ..) in all {
        let good: Code = |wf, _| {
            Box::pin(async move {
                wf.step("a", || async { ok(1) }).await?;
                ok(json!("good"))
            })
        };
        engine = engine.workflow(flow(name), good);
    }
    let engine = engine.start().await.unwrap();
    for run in &runs {
        assert_eq!(lab.came_to(run).await, json!("good"));
    }
    engine.shutdown().await;
}

on_every_store! {
    async fn a_durable_operation_inside_a_step_is_refused(lab: Lab) {
        // rule 12.5
        all_blocked(&lab, IN_STEPS, 100).await;
    }
}

on_every_store! {
    async fn awaiting_something_that_is_not_a_durable_operation_is_reported_with_the_cure(lab: Lab) {
        // the issue: detected, instead of hanging
        for kept in [0, 100] {
            all_blocked(&lab, BARE, kept).await;
        }
    }
}

on_every_store! {
    async fn what_a_step_came_to_is_kept_though_the_code_cannot_go_on_from_it(lab: Lab) {
        // rules 1.1 and 12.4: the card was charged, and is not charged again for a mistake in what follows
        let charged = Arc::new(AtomicUsize::new(0));
        let code = |charged: &Arc<AtomicUsize>, bad: bool| {
            let charged = charged.clone();
            move |wf: Workflow, _: Value| {
                let charged = charged.clone();
                async move {
                    let charged = &charged;
                    let charge = || async move { ok(charged.fetch_add(1, Ordering::SeqCst)) };
                    let receipt = wf.step("charge", charge).await?;
                    if bad {
                        wf.now();
                        tokio::time::sleep(millis(1)).await;
                    }
                    let go = wf.signal(GO).await?;
                    Ok(json!([receipt, go]))
                }
            }
        };
        let engine = lab.engine().workflow(flow("run"), code(&charged, true)).start().await.unwrap();
        let run = lab.start(flow("run"), json!(null)).await.unwrap();
        let why = blocked(&lab, run.id()).await;
        assert!(why.contains("not a durable operation"), "{why}");
        let ops = operations(&lab.events(run.id()).await);
        assert_eq!(ops, ["+1 step charge", "-1 step charge = 0"], "and nothing of what followed");
        engine.shutdown().await;
        let engine = lab.engine().workflow(flow("run"), code(&charged, false)).start().await.unwrap();
        lab.signal(run.id(), GO, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([0, 1]));
        assert_eq!(charged.load(Ordering::SeqCst), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_bare_await_beside_a_wait_does_not_hang(lab: Lab) {
        // the issue: detected, instead of hanging
        const SLEEP: Code = |wf, _| Box::pin(async move {
            let (go, ()) = wf.all((wf.signal(GO), tokio::time::sleep(millis(20)))).await;
            Ok(json!(go?))
        });
        const TIMEOUT: Code = |wf, _| Box::pin(async move {
            Ok(json!(tokio::time::timeout(millis(20), wf.signal(GO)).await??))
        });
        const YIELD: Code = |wf, _| Box::pin(async move {
            let late = async {
                tokio::task::yield_now().await;
                wf.step("late", || async { ok(1) }).await
            };
            let (go, late) = wf.all((wf.signal(GO), late)).await;
            Ok(json!([go?, late?]))
        });
        const THREAD: Code = |wf, _| Box::pin(async move {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                std::thread::sleep(millis(50));
                sender.send(1)
            });
            let slow = wf.step("slow", || async { tokio::time::sleep(millis(500)).await; ok(1) });
            match wf.select((slow, wf.signal(GO), receiver)).await {
                abide::workflow::OneOf::Third(received) => Ok(json!(received?)),
                _ => ok(json!("something else")),
            }
        });
        const SELECT: Code = |wf, _| Box::pin(async move {
            match wf.select((wf.signal(GO), tokio::time::sleep(millis(20)))).await {
                abide::workflow::OneOf::First(go) => Ok(json!(go?)),
                _ => ok(json!("time")),
            }
        });
        for kept in [0, 100] {
            let engine = lab.engine().workflow(flow("sleep"), SLEEP).workflow(flow("timeout"), TIMEOUT);
            let engine = engine.workflow(flow("select"), SELECT).workflow(flow("yield"), YIELD);
            let engine = engine.workflow(flow("thread"), THREAD).workflows_kept(kept).start().await.unwrap();
            for name in ["sleep", "timeout", "select", "yield", "thread"] {
                let run = lab.start(flow(name), json!(null)).await.unwrap();
                let why = blocked(&lab, run.id()).await;
                assert!(why.contains("not a durable operation") && why.contains("`wf.sleep`"), "{name}: {why}");
                lab.cancel(run.id(), "seen").force().await.unwrap();
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_durable_operation_in_an_update_handler_is_refused(lab: Lab) {
        // rules 12.5 and 9.2: the update waits for code that may answer it
        const RUN: Flow<Value, Value> = Flow::new("run").messages(|| Messages::new().signal(GO).update(SET));
        const BAD: Code = |wf, _| Box::pin(async move {
            wf.on_update(SET, { let wf = wf.clone(); move |n| { wf.random(); ok(n) } });
            Ok(json!(wf.signal(GO).await?))
        });
        const GOOD: Code = |wf, _| Box::pin(async move {
            wf.on_update(SET, |n| ok(n + 1));
            Ok(json!(wf.signal(GO).await?))
        });
        let engine = lab.engine().workflow(RUN, BAD).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let update = lab.update(run.id(), SET, &1).accepted().await.unwrap();
        let why = blocked(&lab, run.id()).await;
        assert!(why.contains("asks for random inside the handler of update \"set\""), "{why}");
        engine.shutdown().await;
        let engine = lab.engine().workflow(RUN, GOOD).start().await.unwrap();
        assert_eq!(update.answer().await.unwrap(), 2);
        lab.signal(run.id(), GO, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_durable_operation_in_a_query_handler_is_refused(lab: Lab) {
        // rule 12.5
        const ASK: Query<(), u64> = Query::new("ask");
        let code = |wf: Workflow, _: Value| async move {
            wf.on_query(ASK, { let wf = wf.clone(); move |()| ok(wf.random()) });
            Ok(json!(wf.signal(GO).await?))
        };
        let engine = lab.engine().workflow(flow("run"), code).start().await.unwrap();
        let run = lab.start(flow("run"), json!(null)).await.unwrap();
        let id: InstanceId = run.id();
        lab.until_status(id, Status::AwaitingSignal).await;
        let refused = engine.query(id, ASK, &()).await;
        let Err(QueryError::Refused(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("asks for random inside the handler of query \"ask\""), "{why}");
        let view = lab.describe(id).await.unwrap().unwrap();
        assert_eq!(view.liveness, Liveness::WaitingForSignal, "the run has nothing to do with it");
        lab.signal(id, GO, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(1));
        engine.shutdown().await;
    }
}
