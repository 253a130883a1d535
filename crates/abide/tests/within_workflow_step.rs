//! Steps of workflows that write rows of their own in the transaction that their end is committed in.

#![cfg(any(feature = "sqlite", feature = "postgres"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Gate, Lab, Log, eventually};
use abide::client::new_start;
use abide::machine::Messages;
use abide::model::Limits;
use abide::prelude::*;
use abide::workflow::{Attempt, OneOf};
use abide_kernel::{Op, OwnTransaction};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

const GO: Signal<i64> = Signal::new("go");
const ADD: Update<i64, i64> = Update::new("add");
const BOOK: Flow<i64, Value> =
    Flow::new("book").messages(|| Messages::new().signal(GO).update(ADD));

fn ok<T>(value: T) -> Result<T, BoxError> {
    Ok(value)
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_in_memory_has_none_and_says_so() {
    // rule 17.2
    let lab = Lab::memory().await;
    let code = |wf: Workflow, n: i64| async move {
        let step = wf.step_with("book", |attempt| async move {
            let transaction = attempt
                .transaction::<abide::sqlite::StepTransaction>()
                .await?;
            attempt.commit_with(transaction, n)
        });
        Ok(json!(step.await?))
    };
    let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
    let run = lab.start(BOOK, 1).await.unwrap();
    let error = lab.failed_of(&run).await;
    assert!(
        error.contains(
            "this store does not support step transactions; open SQLite or PostgreSQL directly"
        ),
        "{error}"
    );
    engine.shutdown().await;
}

/// The point at which a worker that commits a step's rows is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// Before anything of it is committed.
    Before,
    /// After all of it is committed, and before the answer arrives.
    After,
}

/// A transaction whose end is lost so often.
struct Lossy<T> {
    inner: T,
    loss: Loss,
    left: Arc<AtomicUsize>,
    /// If set, the worker hangs there until it is killed. Otherwise it gets the error that the outcome is unknown.
    hangs: Option<Gate>,
}

impl<T: OwnTransaction> OwnTransaction for Lossy<T> {
    fn finish(
        self: Box<Self>,
        op: Op,
    ) -> BoxFuture<'static, abide_kernel::Result<abide_kernel::Answer>> {
        Box::pin(async move {
            let Self {
                inner,
                loss,
                left,
                hangs,
            } = *self;
            let less = |left: usize| left.checked_sub(1);
            let lost = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            if lost.is_err() {
                return Box::new(inner).finish(op).await;
            }
            match loss {
                Loss::Before => drop(inner),
                Loss::After => drop(Box::new(inner).finish(op).await.unwrap()),
            }
            if let Some(gate) = hangs {
                gate.pass().await;
            }
            Err(abide_kernel::Error::Unknown("the answer got lost".into()))
        })
    }
}

/// The same tests for both databases: what opens a transaction, writes a row in it, and counts the rows.
macro_rules! tests {
    ($lab:expr) => {
        use super::*;

        /// Writes a row, and comes to it.
        async fn book(attempt: Attempt, row: i64) -> Result<i64, BoxError> {
            let transaction = attempt.transaction::<StepTransaction>().await?;
            let transaction = insert(transaction, row).await;
            attempt.commit_with(transaction, row)
        }

        /// Counts a row in a transaction whose end may be lost, and comes to it.
        async fn lossy(
            attempt: Attempt,
            row: i64,
            loss: Loss,
            left: Arc<AtomicUsize>,
            hangs: Option<Gate>,
        ) -> Result<i64, BoxError> {
            let inner = attempt.transaction::<StepTransaction>().await?;
            let inner = count(inner, row).await;
            let transaction = Lossy {
                inner,
                loss,
                left,
                hangs,
            };
            attempt.commit_with(transaction, row)
        }

        /// One step, which books its row when it has passed the gate.
        fn booking_at(
            gate: &Gate,
        ) -> impl Fn(Workflow, i64) -> BoxFuture<'static, Result<Value, BoxError>> + Clone + use<> {
            let gate = gate.clone();
            move |wf, n| {
                let gate = gate.clone();
                Box::pin(async move {
                    let step = wf.step_with("book", |attempt| {
                        let gate = gate.clone();
                        async move {
                            gate.pass().await;
                            book(attempt, n).await
                        }
                    });
                    Ok(json!(step.await?))
                })
            }
        }

        async fn ready() -> Lab {
            let lab: Lab = $lab;
            prepare(&lab).await;
            lab
        }

        async fn counted_after(lab: &Lab, n: i64) -> Vec<i64> {
            let rows = counted(lab).await.into_iter();
            rows.filter(|row| *row > n).collect()
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn rows_and_the_end_of_the_step_are_committed_together() {
            // rules 1.1, 12.3 and 17.2
            let lab = ready().await;
            for kept in [100, 0] {
                let code = |wf: Workflow, n: i64| async move {
                    let first = wf
                        .step_with("first", |attempt| book(attempt, n + 1))
                        .await?;
                    let second = wf
                        .step_with("second", |attempt| book(attempt, n + 2))
                        .await?;
                    let went = wf.signal(GO).await?;
                    let third = wf
                        .step_with("third", |attempt| book(attempt, n + 3))
                        .await?;
                    Ok(json!([first, second, went, third]))
                };
                let engine = lab.engine().workflows_kept(kept).workflow(BOOK, code);
                let engine = engine.start().await.unwrap();
                let n = 10 * i64::try_from(kept).unwrap();
                let run = lab.start(BOOK, n).await.unwrap();
                lab.until_status(run.id(), Status::AwaitingSignal).await;
                let written = rows(&lab).await;
                assert!(
                    written.ends_with(&[n + 1, n + 2]) || kept == 0,
                    "{written:?}"
                );
                lab.signal(&run, GO, &7).await.unwrap();
                assert_eq!(lab.came_to(&run).await, json!([n + 1, n + 2, 7, n + 3]));
                let written = rows(&lab).await;
                for row in n + 1..=n + 3 {
                    assert_eq!(written.iter().filter(|one| **one == row).count(), 1);
                }
                assert_eq!(engine.stats().stale, 0);
                engine.shutdown().await;
            }
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn steps_side_by_side_each_commit_their_own_and_other_steps_run_once() {
            // rules 1.1 and 17.2
            let lab = ready().await;
            for kept in [100, 0] {
                let plain = Log::new();
                let noted = plain.clone();
                let code = move |wf: Workflow, n: i64| {
                    let noted = noted.clone();
                    async move {
                        let booked = (1..=4).map(|at| {
                            wf.step_with(format!("book {at}"), move |attempt| book(attempt, n + at))
                        });
                        let other = wf.step("other", || {
                            let noted = noted.clone();
                            async move {
                                noted.note(n);
                                tokio::time::sleep(millis(5)).await;
                                ok(n)
                            }
                        });
                        let (booked, other) =
                            wf.all((wf.all(booked.collect::<Vec<_>>()), other)).await;
                        let booked = booked.into_iter().collect::<Result<Vec<_>, _>>()?;
                        Ok(json!([booked, other?]))
                    }
                };
                let engine = lab.engine().workflows_kept(kept).workflow(BOOK, code);
                let engine = engine.start().await.unwrap();
                let base = 100 * (1 + i64::try_from(kept).unwrap());
                let runs = (0..3).map(|run| lab.start(BOOK, base + 10 * run));
                let runs: Vec<_> =
                    futures_util::future::join_all(runs.map(IntoFuture::into_future)).await;
                for (run, at) in runs.into_iter().map(Result::unwrap).zip(0..) {
                    let n = base + 10 * at;
                    assert_eq!(
                        lab.came_to(&run).await,
                        json!([[n + 1, n + 2, n + 3, n + 4], n])
                    );
                    let written = rows(&lab).await;
                    let mine: Vec<_> = written
                        .into_iter()
                        .filter(|row| (n..n + 10).contains(row))
                        .collect();
                    assert_eq!(mine, [n + 1, n + 2, n + 3, n + 4]);
                }
                assert_eq!(plain.len(), 3, "they ran on beside it");
                engine.shutdown().await;
            }
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_step_that_fails_leaves_nothing_and_its_failure_is_recorded() {
            // rules 5.2, 12.3 and 17.2
            let lab = ready().await;
            let code = |wf: Workflow, how: i64| async move {
                let step = wf.step_with("book", |attempt| async move {
                    let transaction = attempt.transaction::<StepTransaction>().await?;
                    let transaction = insert(transaction, how).await;
                    match how {
                        1 => return Err("no".into()),
                        2 => panic!("no"),
                        3 => {
                            drop(transaction);
                            return Ok("nothing was written".to_owned());
                        }
                        4 => {
                            attempt.commit_with(transaction, "x")?;
                            return Err("no, after all".into());
                        }
                        5 => tokio::time::sleep(secs(60)).await,
                        _ => return attempt.commit_with(transaction, "x".repeat(2 << 20)),
                    }
                    attempt.commit_with(transaction, String::new())
                });
                Ok(json!(step.time_limit(secs(1)).await?))
            };
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            for (how, error) in [
                (1, "no"),
                (2, "no"),
                (4, "after all"),
                (5, "time limit"),
                (6, "result_bytes"),
            ] {
                let run = lab.start(BOOK, how).await.unwrap();
                let failed = lab.failed_of(&run).await;
                assert!(failed.contains(error) || how == 5, "{how}: {failed}");
                assert!(lab.kinds(run.id()).await.contains(&"operation_completed"));
            }
            let run = lab.start(BOOK, 3).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!("nothing was written"));
            assert_eq!(rows(&lab).await, [0; 0]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_retry_runs_it_again_in_a_new_transaction() {
            // rules 5.1 and 17.2
            let lab = ready().await;
            let code = |wf: Workflow, n: i64| async move {
                let step = wf.step_with("book", |attempt| async move {
                    let (number, transaction) = (
                        attempt.number(),
                        attempt.transaction::<StepTransaction>().await?,
                    );
                    let transaction = insert(transaction, n + i64::from(number)).await;
                    if number < 2 {
                        return Err(format!("attempt {number}").into());
                    }
                    attempt.commit_with(transaction, number)
                });
                Ok(json!(
                    step.retry(Retry::every(millis(1)).attempts(3)).await?
                ))
            };
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            let run = lab.start(BOOK, 10).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(2));
            assert_eq!(rows(&lab).await, [12]);
            let kinds = lab.kinds(run.id()).await;
            assert_eq!(
                kinds
                    .iter()
                    .filter(|kind| **kind == "operation_retried")
                    .count(),
                2
            );
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_worker_that_has_lost_its_claim_commits_none_of_its_rows() {
            // rules 1.3 and 17.2
            let lab = ready().await;
            let gate = Gate::closed();
            // The others write meanwhile, so the transaction is opened when they have.
            let code = booking_at(&gate);
            let engine = lab
                .engine()
                .name("w")
                .queue("default", 1)
                .workflow(BOOK, code.clone());
            let engine = engine.start().await.unwrap();
            let run = lab.start(BOOK, 1).await.unwrap();
            gate.reached_by(1).await;
            // Another process takes the name, and with it all that the first one holds.
            let second = lab.again().await.engine().name("w");
            let elsewhere = |wf: Workflow, n: i64| async move {
                Ok(json!(
                    wf.step_with("book", |attempt| book(attempt, n + 1)).await?
                ))
            };
            let second = second.workflow(BOOK, elsewhere).start().await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(2));
            gate.open();
            eventually("the first to lose its claim", async || {
                engine.stats().stale >= 1
            })
            .await;
            assert_eq!(rows(&lab).await, [2]);
            engine.shutdown().await;
            second.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_turn_that_is_refused_takes_the_rows_with_it() {
            // rules 4.2 and 17.2
            let lab = ready().await;
            let limits = Limits {
                result_bytes: 100,
                ..Limits::default()
            };
            let lab = lab.opened(Abide::options().limits(limits)).await;
            let code = |wf: Workflow, n: i64| async move {
                let booked = wf.step_with("book", |attempt| book(attempt, n)).await?;
                Ok(json!("x".repeat(1_000 + usize::try_from(booked)?)))
            };
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            let run = lab.start(BOOK, 1).await.unwrap();
            let error = lab.failed_of(&run).await;
            assert!(error.contains("result_bytes"), "{error}");
            assert_eq!(rows(&lab).await, [0; 0]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn what_is_cancelled_by_force_while_it_writes_leaves_nothing() {
            // rules 11.1 and 17.2
            let lab = ready().await;
            let gate = Gate::closed();
            let code = booking_at(&gate);
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            let run = lab.start(BOOK, 1).await.unwrap();
            gate.reached_by(1).await;
            lab.cancel(&run, "enough").force().await.unwrap();
            gate.open();
            assert_eq!(lab.ended(run.id()).await.status, Status::Cancelled);
            // The engine is as well as before.
            let other = lab.start(BOOK, 2).await.unwrap();
            assert_eq!(lab.came_to(&other).await, json!(2));
            assert_eq!(rows(&lab).await, [2]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_step_that_lost_to_another_leaves_nothing() {
            // rules 12.1 and 17.2
            let lab = ready().await;
            let code = |wf: Workflow, n: i64| async move {
                let slow = wf.step_with("slow", |attempt| async move {
                    let transaction = attempt.transaction::<StepTransaction>().await?;
                    let transaction = insert(transaction, n).await;
                    std::future::pending::<()>().await;
                    attempt.commit_with(transaction, n)
                });
                match wf.select((slow, wf.sleep(millis(20)))).await {
                    OneOf::First(booked) => Ok(json!(booked?)),
                    OneOf::Second(slept) => {
                        slept?;
                        // The way is free for the next.
                        Ok(json!(
                            wf.step_with("next", |attempt| book(attempt, n + 1)).await?
                        ))
                    }
                }
            };
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            let run = lab.start(BOOK, 1).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(2));
            assert_eq!(rows(&lab).await, [2]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn messages_that_come_while_it_writes_are_committed_with_it_or_after_it() {
            // rules 9.1 and 17.2: the update begins a step, which needs a commit before it; the one that writes goes first.
            let lab = ready().await;
            let gate = Gate::closed();
            let at_gate = gate.clone();
            let code = move |wf: Workflow, n: i64| {
                let gate = at_gate.clone();
                async move {
                    wf.on_update_async(ADD, |wf, row| async move {
                        Ok(wf
                            .step_with("add", move |attempt| book(attempt, row))
                            .await?)
                    });
                    let step = wf.step_with("book", |attempt| {
                        let gate = gate.clone();
                        async move {
                            gate.pass().await;
                            book(attempt, n).await
                        }
                    });
                    let booked = step.await?;
                    wf.condition("added", || wf.updates_in_progress() == 0)
                        .await?;
                    Ok(json!(booked))
                }
            };
            let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
            let run = lab.start(BOOK, 1).await.unwrap();
            gate.reached_by(1).await;
            assert_eq!(lab.update(&run, ADD, &5).await.unwrap(), 5);
            gate.open();
            assert_eq!(lab.came_to(&run).await, json!(1));
            assert_eq!(rows(&lab).await, [1, 5]);
            engine.shutdown().await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_commit_whose_answer_got_lost_is_not_done_twice() {
            // rules 1.1 and 17.2
            let lab = ready().await;
            for (loss, n) in [(Loss::Before, 10), (Loss::After, 20)] {
                let left = Arc::new(AtomicUsize::new(2));
                let at_step = left.clone();
                let code = move |wf: Workflow, n: i64| {
                    let left = at_step.clone();
                    async move {
                        let mut booked = Vec::new();
                        for at in 1..=3 {
                            let left = left.clone();
                            let step = wf.step_with("book", move |attempt| {
                                lossy(attempt, n + at, loss, left.clone(), None)
                            });
                            booked.push(step.await?);
                        }
                        Ok(json!(booked))
                    }
                };
                let engine = lab.engine().workflow(BOOK, code).start().await.unwrap();
                let run = lab.start(BOOK, n).await.unwrap();
                assert_eq!(
                    lab.came_to(&run).await,
                    json!([n + 1, n + 2, n + 3]),
                    "{loss:?}"
                );
                assert_eq!(left.load(Ordering::SeqCst), 0);
                let written = counted_after(&lab, n).await;
                assert_eq!(written, [n + 1, n + 2, n + 3], "{loss:?}");
                engine.shutdown().await;
            }
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_worker_that_dies_around_the_commit_writes_each_row_once() {
            // rules 1.1, 5.3 and 17.2
            let lab = ready().await;
            for (loss, n) in [(Loss::Before, 10), (Loss::After, 20)] {
                let (left, hangs) = (Arc::new(AtomicUsize::new(1)), Gate::closed());
                let at_step = (left.clone(), hangs.clone());
                let code = move |wf: Workflow, n: i64| {
                    let (left, hangs) = at_step.clone();
                    async move {
                        let step = wf.step_with("book", |attempt| {
                            let (left, hangs) = (left.clone(), Some(hangs.clone()));
                            lossy(attempt, n + 1, loss, left, hangs)
                        });
                        Ok(json!(step.await?))
                    }
                };
                let doing = code.clone();
                let killable = lab
                    .killable(move |engine| engine.name("w").workflow(BOOK, doing))
                    .await;
                let run = lab.start(BOOK, n).await.unwrap();
                hangs.reached_by(1).await;
                killable.die().await;
                let written = counted_after(&lab, n).await;
                assert_eq!(written.len(), usize::from(loss == Loss::After));
                let engine = lab
                    .engine()
                    .name("w")
                    .workflow(BOOK, code)
                    .start()
                    .await
                    .unwrap();
                assert_eq!(lab.came_to(&run).await, json!(n + 1));
                let written = counted_after(&lab, n).await;
                assert_eq!(written, [n + 1], "{loss:?}");
                engine.shutdown().await;
            }
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn engines_that_die_again_and_again_write_each_row_once() {
            // rules 1.1, 5.3 and 17.2: the rows have no key that would tell a second one from the first.
            let lab = ready().await;
            let code = || {
                |wf: Workflow, n: i64| async move {
                    for at in 0..10 {
                        let one = |at| {
                            wf.step_with("book", move |attempt: Attempt| async move {
                                let transaction = attempt.transaction::<StepTransaction>().await?;
                                let transaction = count(transaction, n + at).await;
                                attempt.commit_with(transaction, ())
                            })
                        };
                        let (a, b) = wf.all((one(2 * at), one(2 * at + 1))).await;
                        (a?, b?);
                    }
                    Ok(json!(n))
                }
            };
            let starts = (0..5).map(|n| new_start(BOOK, n * 100));
            let started = lab.start_all(starts).await.unwrap();
            let ids: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
            for round in 1..=4 {
                let killable = lab
                    .killable(move |engine| engine.name("w").workflow(BOOK, code()))
                    .await;
                let turns = 10 + round * 5;
                eventually("some turns", async || {
                    let left = lab.depths().await.unwrap();
                    killable.stats().committed >= turns
                        || left.iter().map(|one| one.count).sum::<u64>() == 0
                })
                .await;
                killable.die().await;
            }
            let engine = lab.engine().name("w").workflow(BOOK, code());
            let engine = engine.start().await.unwrap();
            lab.all_done(&ids).await;
            let expected: Vec<i64> = (0..5).flat_map(|n| n * 100..n * 100 + 20).collect();
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
