//! Steps that write rows of their own in the transaction that their outcome is committed in.

#![cfg(any(feature = "sqlite", feature = "postgres"))]

use crate::common::{At, Gate, Lab, Script, eventually};
use abide::client::new_start;
use abide::model::Limits;
use abide::{Abide, Context, Outcome, Signal, Status, done, next};
use serde_json::json;

const GO: Signal<()> = Signal::new("go");

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_has_none_and_says_so() {
    // rule 17.2
    let lab = Lab::memory().await;
    let code = Script::waiting(|_, ctx| {
        Box::pin(async move {
            let opened = ctx.transaction::<abide::sqlite::StepTransaction>().await;
            drop(opened?);
            done(json!(null))
        })
    });
    let engine = lab.engine().machine(code).start().await.unwrap();
    let order = lab.start(Script::any(), json!(null)).await.unwrap();
    let error = lab.failed_of(&order).await;
    assert!(error.contains("open SQLite or PostgreSQL"), "{error}");
    engine.shutdown().await;
}

/// The same tests for both databases: what opens a transaction, writes a row in it, and counts the rows.
macro_rules! tests {
    ($lab:expr) => {
        use super::*;

        /// Writes a row, and returns that outcome.
        async fn write(
            ctx: &Context<Script>,
            row: i64,
            outcome: Outcome<Script>,
        ) -> Outcome<Script> {
            let transaction = ctx.transaction::<StepTransaction>().await?;
            let transaction = insert(transaction, row).await;
            ctx.commit_with(transaction, outcome)
        }

        async fn ready() -> Lab {
            let lab: Lab = $lab;
            prepare(&lab).await;
            lab
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn rows_and_outcome_are_committed_together() {
            // rules 1.1 and 17.2
            let lab = ready().await;
            let code = Script::waiting(|at, ctx| {
                Box::pin(async move {
                    *ctx.state_mut() = json!(ctx.state().as_i64().unwrap() + 1);
                    match at {
                        At::One => write(ctx, 1, next(At::Two)).await,
                        At::Two => {
                            let waits = ctx.wait_for(GO).then(At::Three);
                            write(ctx, 2, waits).await
                        }
                        At::Three => {
                            assert!(ctx.got(GO));
                            write(ctx, 3, done(ctx.state().clone())).await
                        }
                    }
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            let order = lab.start(Script::any(), json!(0)).key("k").await.unwrap();
            lab.until_status(order.id(), Status::AwaitingSignal).await;
            assert_eq!(rows(&lab).await, [1, 2]);
            lab.signal("k", GO, &()).await.unwrap();
            assert_eq!(lab.came_to(&order).await, json!(3));
            assert_eq!(rows(&lab).await, [1, 2, 3]);
            let steps = lab.committed(order.id()).await;
            assert_eq!(steps.len(), 3);
            let sent = lab.commands("k", None, 1).await.unwrap().items;
            assert_eq!(sent[0].status.name(), "applied");
            assert_eq!(engine.stats().stale, 0);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn children_and_parents_are_notified_as_usual() {
            // rules 10.1, 10.2 and 17.2
            let lab = ready().await;
            let code = Script::waiting(|at, ctx| {
                Box::pin(async move {
                    match at {
                        At::One => {
                            let child = |n| new_start(Script::any(), json!(n)).step(At::Two);
                            let spawned = ctx.spawn((10..15).map(child)).then(At::Three);
                            write(ctx, 1, spawned).await
                        }
                        At::Two => {
                            let row = ctx.state().as_i64().unwrap();
                            write(ctx, row, done(json!(row))).await
                        }
                        At::Three => done(json!(ctx.children().len())),
                    }
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            let order = lab.start(Script::any(), json!(0)).await.unwrap();
            assert_eq!(lab.came_to(&order).await, json!(5));
            assert_eq!(rows(&lab).await, [1, 10, 11, 12, 13, 14]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_step_that_fails_after_writing_leaves_nothing() {
            // rules 5.2 and 17.2
            let lab = ready().await;
            let code = Script::waiting(|_, ctx| {
                Box::pin(async move {
                    let transaction = ctx.transaction::<StepTransaction>().await?;
                    let transaction = insert(transaction, 1).await;
                    match ctx.state().as_str().unwrap() {
                        "error" => {
                            drop(transaction);
                            Err("no".into())
                        }
                        "panic" => panic!("no"),
                        "forgets" => {
                            drop(transaction);
                            done(json!("nothing was written"))
                        }
                        // The error goes before the transaction.
                        _ => ctx.commit_with(transaction, Err("no".into())),
                    }
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            for how in ["error", "panic", "either"] {
                let order = lab.start(Script::any(), json!(how)).await.unwrap();
                assert!(lab.failed_of(&order).await.contains("no"));
            }
            let order = lab.start(Script::any(), json!("forgets")).await.unwrap();
            lab.came_to(&order).await;
            assert_eq!(rows(&lab).await, [0; 0]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_worker_that_has_lost_its_claim_commits_none_of_its_rows() {
            // rules 1.3 and 17.2
            let lab = ready().await;
            let gate = Gate::closed();
            let code = Script::gated(&gate, move |_, ctx, gate| {
                Box::pin(async move {
                    // The others write meanwhile, so the transaction is opened when they have.
                    gate.pass().await;
                    write(ctx, 1, done(json!("in vain"))).await
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            let order = lab
                .start(Script::any(), json!(null))
                .key("k")
                .await
                .unwrap();
            gate.reached_by(1).await;
            lab.cancel("k", "taken away").await.unwrap();
            gate.open();
            eventually("it to lose its claim", async || engine.stats().stale == 1).await;
            assert_eq!(rows(&lab).await, [0; 0]);
            assert_eq!(lab.now(order.id()).await.status, Status::Cancelled);
            // The engine is as well as before.
            let other = lab.start(Script::any(), json!(null)).await.unwrap();
            assert_eq!(lab.came_to(&other).await, json!("in vain"));
            assert_eq!(rows(&lab).await, [1]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_worker_that_takes_over_writes_the_rows_and_not_the_one_believed_dead() {
            // rules 1.3, 5.3 and 17.2
            let lab = ready().await;
            let code = |gate: &Gate, row: i64| {
                let gate = gate.clone();
                Script::waiting(move |_, ctx| {
                    let gate = gate.clone();
                    Box::pin(async move {
                        gate.pass().await;
                        write(ctx, row, done(json!(row))).await
                    })
                })
            };
            let (first_gate, second_gate) = (Gate::closed(), Gate::closed());
            // With one slot, so that it cannot claim anew what it has lost.
            let first = lab
                .engine()
                .name("w")
                .queue("default", 1)
                .machine(code(&first_gate, 1));
            let first = first.start().await.unwrap();
            let order = lab.start(Script::any(), json!(null)).await.unwrap();
            first_gate.reached_by(1).await;
            // Another process takes the name, and with it all that the first one holds.
            let second = lab
                .again()
                .await
                .engine()
                .name("w")
                .machine(code(&second_gate, 2));
            let second = second.start().await.unwrap();
            second_gate.reached_by(1).await;
            first_gate.open();
            eventually("the first to lose its claim", async || {
                first.stats().stale == 1
            })
            .await;
            assert_eq!(rows(&lab).await, [0; 0]);
            second_gate.open();
            assert_eq!(lab.came_to(&order).await, json!(2));
            assert_eq!(rows(&lab).await, [2]);
            first.shutdown().await;
            second.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn an_outcome_that_is_refused_takes_the_rows_with_it_and_goes_to_the_error_handler() {
            // rules 4.2 and 17.2
            let lab = ready().await;
            let limits = Limits {
                state_bytes: 100,
                ..Limits::default()
            };
            let lab = lab.opened(Abide::options().limits(limits)).await;
            let code = Script::waiting(|_, ctx| {
                Box::pin(async move {
                    *ctx.state_mut() = json!("x".repeat(1_000));
                    write(ctx, 1, next(At::Two)).await
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            let order = lab.start(Script::any(), json!(null)).await.unwrap();
            let error = lab.failed_of(&order).await;
            assert!(error.contains("state_bytes"), "{error}");
            assert_eq!(rows(&lab).await, [0; 0]);
            assert_eq!(engine.stats().refused, 1);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_row_that_the_database_refuses_is_an_error_of_the_step_like_any_other() {
            // rules 5.2 and 17.2
            let lab = ready().await;
            let code = Script::waiting(|_, ctx| {
                Box::pin(async move {
                    let transaction = ctx.transaction::<StepTransaction>().await?;
                    let transaction = try_insert(transaction, 7).await?;
                    ctx.commit_with(transaction, done(json!("written")))
                })
            });
            let engine = lab.engine().machine(code).start().await.unwrap();
            let first = lab.start(Script::any(), json!(null)).await.unwrap();
            assert_eq!(lab.came_to(&first).await, json!("written"));
            let second = lab.start(Script::any(), json!(null)).await.unwrap();
            lab.failed_of(&second).await;
            assert_eq!(rows(&lab).await, [7]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn engines_that_die_again_and_again_write_each_row_once() {
            // rules 1.1, 5.3 and 17.2: the rows have no key that would tell a second one from the first.
            let lab = ready().await;
            let code = || {
                Script::waiting(|_, ctx| {
                    Box::pin(async move {
                        let at = ctx.state().as_i64().unwrap();
                        if at % 100 == 30 {
                            return done(json!(at));
                        }
                        *ctx.state_mut() = json!(at + 1);
                        let transaction = ctx.transaction::<StepTransaction>().await?;
                        let transaction = count(transaction, at).await;
                        ctx.commit_with(transaction, next(At::One))
                    })
                })
            };
            let starts = (0..10).map(|n| new_start(Script::any(), json!(n * 100)));
            let started = lab.start_all(starts).await.unwrap();
            let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
            for round in 1..=5 {
                let killable = lab
                    .killable(move |engine| engine.name("w").machine(code()))
                    .await;
                let steps = 20 + round * 7;
                eventually("some steps", async || {
                    let left = lab.depths().await.unwrap();
                    killable.stats().committed >= steps
                        || left.iter().map(|one| one.count).sum::<u64>() == 0
                })
                .await;
                killable.die().await;
            }
            let engine = lab
                .engine()
                .name("w")
                .machine(code())
                .start()
                .await
                .unwrap();
            lab.all_done(&ids).await;
            let mut expected: Vec<i64> = (0..10).flat_map(|n| n * 100..n * 100 + 30).collect();
            expected.sort_unstable();
            assert_eq!(counted(&lab).await, expected);
            engine.shutdown().await;
        }
    };
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use crate::common::written::sqlite::*;

    tests!(Lab::sqlite().await);
}

#[cfg(feature = "postgres")]
mod postgres {
    use crate::common::written::postgres::*;

    tests!(Lab::postgres().await);
}
