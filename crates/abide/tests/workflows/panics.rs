//! Code of workflows that panics: the run is blocked, and nothing that was done is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::{Flow, Signal, Status, Workflow};
use serde_json::{Value, json};

use crate::common::{Lab, eventually};
use crate::workflows::recorded::{blocked, ok};

const RUN: Flow<Value, Value> = Flow::new("panics");
const PAID: Signal<u32> = Signal::new("paid");

on_every_store! {
    async fn a_panic_blocks_the_run_and_a_build_that_does_not_goes_on(lab: Lab) {
        // rules 12.4 and 5.2
        for kept in [0, 100] {
            let charged = Arc::new(AtomicUsize::new(0));
            let code = |panics: bool| {
                let charged = charged.clone();
                move |wf: Workflow, _: Value| {
                    let charged = charged.clone();
                    async move {
                        let paid: u32 = wf.signal(PAID).await?;
                        let charge = || {
                            let charged = charged.clone();
                            async move { ok(charged.fetch_add(1, Ordering::SeqCst)) }
                        };
                        wf.step("charge", charge).await?;
                        assert!(!panics, "the code went wild");
                        Ok(json!(paid))
                    }
                }
            };
            let engine = lab.engine().workflow(RUN, code(true)).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, json!(null)).await.unwrap();
            lab.signal(&run, PAID, &7).await.unwrap();
            let why = blocked(&lab, run.id()).await;
            assert!(why.contains("panicked: the code went wild"), "{why}");
            assert_eq!(lab.now(run.id()).await.attempt, 0);
            engine.shutdown().await;

            let engine = lab.engine().workflow(RUN, code(false)).workflows_kept(kept).start().await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(7));
            assert_eq!(charged.load(Ordering::SeqCst), 1, "what was committed before is not run again");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_panic_at_the_first_line_blocks_too_and_a_repair_lets_it_be_tried_again(lab: Lab) {
        // rules 12.4 and 11.3
        let wild = Arc::new(AtomicUsize::new(0));
        let tried = wild.clone();
        let code = move |_: Workflow, _: Value| {
            let tries = tried.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(tries > 1, "not yet");
                Ok(json!(tries))
            }
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        blocked(&lab, run.id()).await;
        lab.repair(run.id()).await.unwrap();
        eventually("it to be tried again", async || wild.load(Ordering::SeqCst) == 2).await;
        blocked(&lab, run.id()).await;
        lab.repair(run.id()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(2));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn code_that_panics_while_it_cleans_up_is_cancelled_all_the_same(lab: Lab) {
        // rule 11.1
        let code = |wf: Workflow, _: Value| async move {
            let paid = wf.signal(PAID).await;
            assert!(paid.is_ok(), "not clean");
            Ok(json!(null))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        lab.cancel(&run, "not wanted").await.unwrap();
        let row = lab.ended(run.id()).await;
        assert_eq!(row.status, Status::Cancelled);
        assert!(row.last_error.clone().unwrap().contains("not clean"));
        engine.shutdown().await;
    }
}
