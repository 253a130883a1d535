//! Jobs: one async function with a retry policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide::machine::Retry;
use abide::model::Name;
use abide::testing::Kit;
use abide::time::{millis, minutes, secs};
use abide::{Job, Status};

use crate::common::{Gate, Lab};

const DOUBLE: Job<u32, u32> = Job::new("double");
const FLAKY: Job<u32, u32> = Job::new("flaky").retry(Retry::every(millis(1)).attempts(3));

on_every_store! {
    async fn a_job_ends_with_what_its_function_returns(lab: Lab) {
        // rule 16.1
        let engine = lab.engine().job(DOUBLE, |n| async move { Ok(n * 2) }).start().await.unwrap();
        let job = lab.start(DOUBLE, 21).key("job:1").await.unwrap();
        assert_eq!(lab.came_to(&job).await, 42);
        assert_eq!(lab.kinds(job.id()).await, ["started", "step_completed", "done"]);
        let row = lab.now(job.id()).await;
        assert_eq!((row.machine.as_str(), row.step.as_str(), row.version), ("double", "run", 1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_job_that_fails_is_retried_as_its_policy_says(lab: Lab) {
        // rule 5.1
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let engine = lab.engine().job(FLAKY, move |enough| {
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move { if run < enough { Err(format!("run {run}").into()) } else { Ok(run) } }
        });
        let engine = engine.start().await.unwrap();
        let job = lab.start(FLAKY, 3).await.unwrap();
        assert_eq!(lab.came_to(&job).await, 3);
        let again = ["step_failed", "retried"];
        let kinds = [&["started"][..], &again, &again, &["step_completed", "done"]].concat();
        assert_eq!(lab.kinds(job.id()).await, kinds);
        let job = lab.start(FLAKY, 99).await.unwrap();
        assert_eq!(lab.failed_of(&job).await, "run 6");
        let kinds = [&["started"][..], &again, &again, &["step_failed", "failed"]].concat();
        assert_eq!(lab.kinds(job.id()).await, kinds);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_job_that_panics_fails_without_hurting_the_engine(lab: Lab) {
        // rule 5.2
        let engine = lab.engine().job(DOUBLE, |n| {
            assert_ne!(n, 1, "panics in the call");
            async move {
                assert_ne!(n, 2, "panics in the future");
                Ok(n)
            }
        });
        let engine = engine.start().await.unwrap();
        let jobs = [lab.start(DOUBLE, 1).await, lab.start(DOUBLE, 2).await, lab.start(DOUBLE, 3).await];
        let [call, future, sound] = jobs.map(Result::unwrap);
        assert!(lab.failed_of(&call).await.contains("panics in the call"));
        assert!(lab.failed_of(&future).await.contains("panics in the future"));
        assert_eq!(lab.came_to(&sound).await, 3);
        assert_eq!(lab.kinds(call.id()).await, ["started", "step_failed", "failed"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_job_over_its_time_limit_is_an_error(lab: Lab) {
        // rule 5.4
        const NAP: Job<(), ()> = Job::new("nap").time_limit(millis(30));
        let gate = Gate::closed();
        let engine = lab.engine().job(NAP, move |()| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(())
            }
        });
        let engine = engine.start().await.unwrap();
        let job = lab.start(NAP, ()).await.unwrap();
        assert_eq!(lab.failed_of(&job).await, "ran longer than its time limit of 30ms");
        assert_eq!(lab.kinds(job.id()).await, ["started", "step_failed", "failed"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_job_without_history_has_none(lab: Lab) {
        // rule 16.1
        const QUIET: Job<u32, u32> = Job::new("quiet").without_history();
        let engine = lab.engine().job(QUIET, |n| async move { Ok(n) }).start().await.unwrap();
        let job = lab.start(QUIET, 7).await.unwrap();
        assert_eq!(lab.came_to(&job).await, 7);
        assert_eq!(lab.kinds(job.id()).await, [""; 0]);
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_job_may_be_retried_for_as_long_as_it_takes() {
    // rule 5.1
    const STUBBORN: Job<(), ()> = Job::new("stubborn").retry(Retry::every(secs(10)));
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let kit = Kit::builder().job(STUBBORN, move |()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err("not yet".into()) }
    });
    let kit = kit.build().await.unwrap();
    let job = kit.start(STUBBORN, ()).await.unwrap();
    kit.advance(minutes(10)).await;
    kit.assert_status(&job, Status::Scheduled).await;
    assert_eq!(runs.load(Ordering::SeqCst), 61);
}

#[tokio::test]
async fn what_is_registered_twice_is_refused() {
    let lab = Lab::memory().await;
    let twice = lab
        .engine()
        .job(DOUBLE, |n| async move { Ok(n) })
        .job(DOUBLE, |n| async move { Ok(n) });
    let error = twice.start().await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "invalid engine: machine double version 1 is registered twice; register it once, or give one of them another version"
    );
}

#[tokio::test]
async fn an_engine_that_would_run_nothing_is_refused() {
    let lab = Lab::memory().await;
    let error = lab.engine().start().await.err().unwrap().to_string();
    assert!(error.contains("nothing is registered"), "{error}");
    // Also when it serves a queue: it would claim nothing from it.
    let error = lab.engine().queue("mail", 8).start().await.err().unwrap();
    assert!(
        error.to_string().contains("nothing is registered"),
        "{error}"
    );
    let idle = lab.engine().job(DOUBLE, |n| async move { Ok(n) });
    let error = idle.queue("mail", 0).start().await.err().unwrap();
    assert!(
        error
            .to_string()
            .contains("\"mail\" has a concurrency of 0"),
        "{error}"
    );
}

on_every_store! {
    async fn an_engine_without_code_fires_timers_and_takes_more_queues(lab: Lab) {
        let engine = lab.engine().without_code().start().await.unwrap();
        let error = engine.serve(Name::new("mail").unwrap(), 0).await.err().unwrap();
        assert!(error.to_string().contains("\"mail\" has a concurrency of 0"), "{error}");
        engine.serve(Name::new("mail").unwrap(), 1).await.unwrap();
        let later = lab.start(DOUBLE, 1).delay(millis(20)).await.unwrap();
        lab.until_status(later.id(), Status::Runnable).await;
        assert_eq!(engine.stats().claimed, 0);
        engine.shutdown().await;
    }
}
