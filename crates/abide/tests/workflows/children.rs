//! Children of workflows: jobs, machines and other workflows.

use abide::client::{StartBuilder, new_start};
use abide::engine::Engine;
use abide::prelude::*;
use abide::store::Filter;
use abide::workflow::{OneOf, OperationError, WorkflowCode};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Script};
use crate::workflows::recorded::blocked;

const PARENT: Flow<u32, Value> = Flow::new("parent");
const KID: Job<u32, u32> = Job::new("kid");
const BAD: Job<u32, u32> = Job::new("bad");
const HELD: Job<u32, u32> = Job::new("held");
const SUB: Flow<u32, u32> = Flow::new("sub");
const NEXT: Flow<u32, u32> = Flow::new("next");

async fn kid(n: u32) -> Result<u32, BoxError> {
    Ok(n * 10)
}

async fn bad(n: u32) -> Result<u32, BoxError> {
    Err(format!("bad {n}").into())
}

async fn sub(wf: Workflow, n: u32) -> Result<u32, BoxError> {
    wf.sleep(millis(5)).await?;
    let kids = wf.children((0..n).map(|n| new_start(KID, n))).await?;
    let kids = kids.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(kids.into_iter().sum())
}

/// Goes on in a new run that many times.
async fn next(wf: Workflow, n: u32) -> Result<u32, BoxError> {
    wf.sleep(millis(1)).await?;
    if n < 5 {
        wf.continue_as_new(n + 1)
    } else {
        Ok(n)
    }
}

fn held(
    gate: &Gate,
) -> impl Fn(u32) -> BoxFuture<'static, Result<u32, BoxError>> + Send + Sync + 'static {
    let gate = gate.clone();
    move |n| {
        let gate = gate.clone();
        Box::pin(async move {
            if n > 0 {
                gate.pass().await;
            }
            Ok(n)
        })
    }
}

async fn engine(lab: &Lab, gate: &Gate, code: impl WorkflowCode<u32, Value>) -> Engine {
    engine_kept(lab, gate, 100, code).await
}

async fn engine_kept(
    lab: &Lab,
    gate: &Gate,
    kept: usize,
    code: impl WorkflowCode<u32, Value>,
) -> Engine {
    let script = Script::new(|at, ctx| match at {
        At::One => abide::next(At::Two),
        _ => done(json!([ctx.state(), "done"])),
    });
    let engine = lab
        .engine()
        .workflows_kept(kept)
        .workflow(PARENT, code)
        .workflow(SUB, sub)
        .workflow(NEXT, next);
    let engine = engine
        .queue("default", 50)
        .grace(millis(50))
        .job(KID, kid)
        .job(BAD, bad)
        .job(HELD, held(gate))
        .machine(script);
    engine.start().await.unwrap()
}

on_every_store! {
    async fn a_child_may_be_a_job_a_machine_or_a_workflow(lab: Lab) {
        // rules 10.1, 10.2 and 12.1
        let code = |wf: Workflow, _: u32| async move {
            let job = wf.child(new_start(KID, 7)).await?;
            let machine = wf.child(new_start(Script::any(), json!("it")).key("machine")).await?;
            let flow = wf.child(new_start(SUB, 4)).await?;
            let next = wf.child(new_start(NEXT, 0)).await?;
            Ok(json!([job, machine, flow, next]))
        };
        for kept in [100, 0] {
            let engine = engine_kept(&lab, &Gate::closed(), kept, code).await;
            let run = lab.start(PARENT, 0).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!([70, ["it", "done"], 60, 5]));
            let kinds = lab.kinds(run.id()).await;
            assert_eq!(kinds.iter().filter(|kind| **kind == "children_spawned").count(), 4);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn children_come_to_their_results_in_the_order_in_which_they_were_requested(lab: Lab) {
        // rules 10.1 and 10.2
        let code = |wf: Workflow, count: u32| async move {
            let kids = wf.children((0..count).map(|n| new_start(KID, n))).await?;
            let none = wf.children(Vec::<StartBuilder<Job<u32, u32>>>::new()).await?;
            let kids = kids.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(json!([kids, none.len()]))
        };
        let engine = engine(&lab, &Gate::closed(), code).await;
        for count in [0, 1, 20] {
            let run = lab.start(PARENT, count).await.unwrap();
            let expected: Vec<_> = (0..count).map(|n| n * 10).collect();
            assert_eq!(lab.came_to(&run).await, json!([expected, 0]));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_thousand_children_in_one_go(lab: Lab) {
        // rules 2.3, 10.1 and 10.2
        let code = |wf: Workflow, count: u32| async move {
            let kids = wf.children((0..count).map(|n| new_start(KID, n))).await?;
            let kids = kids.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(json!([kids.len(), kids.iter().sum::<u32>()]))
        };
        let engine = engine(&lab, &Gate::closed(), code).await;
        let run = lab.start(PARENT, 1_000).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([1_000, 10 * 999 * 1_000 / 2]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_fails_is_an_error_that_the_code_can_catch(lab: Lab) {
        // rules 10.3 and 12.1
        let code = |wf: Workflow, how: u32| async move {
            let one = wf.child(new_start(BAD, 1)).await;
            if how > 0 {
                one?;
            } else if !matches!(&one, Err(OperationError::Child { status: Status::Failed, error: Some(error), .. }) if error.contains("bad 1")) {
                return Ok(json!(["unexpected", format!("{one:?}")]));
            }
            let many = wf.children([new_start(BAD, 1), new_start(BAD, 2)]).await?;
            Ok(json!(many.iter().filter(|one| one.is_err()).count()))
        };
        let engine = engine(&lab, &Gate::closed(), code).await;
        let caught = lab.start(PARENT, 0).await.unwrap();
        assert_eq!(lab.came_to(&caught).await, json!(2));
        let failed = lab.start(PARENT, 1).await.unwrap();
        let error = lab.failed_of(&failed).await;
        assert!(error.contains("bad 1") && error.contains("failed"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn at_least_so_many_and_the_others_go_on(lab: Lab) {
        // rule 10.3
        let code = |wf: Workflow, least: u32| async move {
            let specs = (0..6).map(|n| new_start(HELD, u32::from(n >= 4) * n));
            let some = wf.children(specs).at_least(least).await?;
            Ok(json!(some.len()))
        };
        let gate = Gate::closed();
        let engine = engine(&lab, &gate, code).await;
        for least in [0, 1, 4] {
            let run = lab.start(PARENT, least).await.unwrap();
            let came: u32 = serde_json::from_value(lab.came_to(&run).await).unwrap();
            assert!(came >= least && came <= 4, "{came} of {least}");
        }
        let run = lab.start(PARENT, 6).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingChildren).await;
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!(6));
        // More than there are can never end: the run waits for code that requests fewer, and has started none (rule 12.4).
        let run = lab.start(PARENT, 60).await.unwrap();
        let why = blocked(&lab, run.id()).await;
        assert!(why.contains("at least 60 of 6 children") && why.contains("wait for 6 at most"), "{why}");
        let own = Filter { parent: Some(run.id()), ..Filter::default() };
        assert!(lab.list(&own, None, 10).await.unwrap().items.is_empty());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_whose_time_is_up_goes_on_without_its_parent(lab: Lab) {
        // rules 7.5 and 10.3
        let code = |wf: Workflow, _: u32| async move {
            let one = wf.child(new_start(HELD, 1).key("slow")).timeout(millis(30)).await?;
            let many = wf.children([new_start(HELD, 0), new_start(HELD, 2)]).timeout(millis(30)).await?;
            let quick = wf.child(new_start(KID, 1)).timeout(hours(1)).await?;
            Ok(json!([one, many.is_none(), quick]))
        };
        let gate = Gate::closed();
        let engine = engine(&lab, &gate, code).await;
        let run = lab.start(PARENT, 0).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([null, true, 10]));
        let slow = lab.get("slow").await.unwrap().unwrap();
        assert!(!slow.status.is_terminal());
        gate.open();
        lab.ended(slow.id).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_whose_key_is_taken_is_not_started_and_its_parent_gets_an_error(lab: Lab) {
        // rules 2.2 and 10.1
        let code = |wf: Workflow, _: u32| async move {
            let one = wf.child(new_start(KID, 1).key("taken")).await;
            let one = matches!(one, Err(OperationError::NotStarted { .. }));
            let keys = ["taken", "a", "b", "a"];
            let some = wf.children(keys.map(|key| new_start(KID, 2).key(key))).await?;
            let none = wf.children(["taken", "taken"].map(|key| new_start(KID, 3).key(key))).await?;
            let held = wf.all((wf.child(new_start(KID, 4).key("taken")), wf.sleep(millis(1)))).await.0.is_err();
            Ok(json!([one, some.len(), none.len(), held]))
        };
        let gate = Gate::closed();
        let engine = engine(&lab, &gate, code).await;
        lab.start(HELD, 1).key("taken").await.unwrap();
        let run = lab.start(PARENT, 0).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([true, 2, 0, true]));
        gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_in_all_and_in_select_with_steps_signals_and_timers(lab: Lab) {
        // rules 10.2 and 12.1
        let code = |wf: Workflow, _: u32| async move {
            let step = wf.step("step", || async { tokio::time::sleep(millis(20)).await; Ok::<_, BoxError>(1) });
            let (a, b, step) = wf.all((wf.child(new_start(KID, 1)), wf.children([new_start(KID, 2), new_start(KID, 3)]), step)).await;
            let b = b?.into_iter().collect::<Result<Vec<_>, _>>()?;
            let all = wf.all((0..10).map(|n| wf.child(new_start(KID, n))).collect::<Vec<_>>()).await;
            let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
            let first = match wf.select((wf.child(new_start(HELD, 1).key("loser")), wf.child(new_start(KID, 5)), wf.signal::<u32>("never"))).await {
                OneOf::First(_) => json!("held"),
                OneOf::Second(kid) => json!(kid?),
                _ => json!("signal"),
            };
            let second = match wf.select((wf.child(new_start(HELD, 1)), wf.sleep(millis(20)))).await {
                OneOf::First(_) => json!("held"),
                _ => json!("slept"),
            };
            Ok(json!([a?, b, step?, all, first, second]))
        };
        let gate = Gate::closed();
        for kept in [100, 0] {
            let engine = engine_kept(&lab, &gate, kept, code).await;
            let run = lab.start(PARENT, 0).await.unwrap();
            let tens: Vec<_> = (0..10).map(|n| n * 10).collect();
            assert_eq!(lab.came_to(&run).await, json!([10, [20, 30], 1, tens, 50, "slept"]));
            let loser = lab.get("loser").await.unwrap().unwrap();
            assert!(!loser.status.is_terminal(), "it goes on");
            lab.cancel("loser", "over").await.unwrap();
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_child_that_ends_while_a_step_of_its_parent_runs_is_noticed_meanwhile(lab: Lab) {
        // rules 6.6 and 10.2
        let steps = Gate::closed();
        let at_steps = steps.clone();
        let code = move |wf: Workflow, _: u32| {
            let gate = at_steps.clone();
            async move {
                let step = wf.step("long", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(1) } });
                let child = async {
                    let kid = wf.child(new_start(HELD, 1)).await?;
                    let after = wf.child(new_start(KID, kid)).await?;
                    Ok::<_, BoxError>(after)
                };
                let (step, after) = wf.all((step, child)).await;
                Ok(json!([step?, after?]))
            }
        };
        let gate = Gate::closed();
        let engine = engine(&lab, &gate, code).await;
        let run = lab.start(PARENT, 0).await.unwrap();
        steps.reached_by(1).await;
        gate.reached_by(1).await;
        gate.open();
        // The second child is there although the step has not ended.
        crate::common::eventually("the second child", async || {
            let all = lab.list(&Filter::default(), None, 10).await.unwrap().items;
            all.len() == 3
        }).await;
        assert_eq!(lab.now(run.id()).await.status, Status::Executing);
        steps.open();
        assert_eq!(lab.came_to(&run).await, json!([1, 10]));
        assert_eq!(steps.arrivals(), 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_step_next_to_children_that_end_before_it(lab: Lab) {
        // rule 10.2: a child that ends while the parent's turn runs is not missed when it parks.
        let code = |wf: Workflow, n: u32| async move {
            let step = wf.step("short", || async { tokio::time::sleep(millis(3)).await; Ok::<_, BoxError>(1) });
            let (kids, step) = wf.all((wf.children((0..n).map(|n| new_start(KID, n))), step)).await;
            Ok(json!([kids?.len(), step?]))
        };
        for kept in [100, 0] {
            let engine = engine_kept(&lab, &Gate::closed(), kept, code).await;
            let mut runs = Vec::new();
            for n in 0..40 {
                runs.push((n % 8, lab.start(PARENT, n % 8).await.unwrap()));
            }
            for (n, run) in runs {
                assert_eq!(lab.came_to(&run).await, json!([n, 1]));
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn cancelling_the_parent_reaches_its_children_and_theirs(lab: Lab) {
        // rule 11.1
        let code = |wf: Workflow, depth: u32| async move {
            if depth > 0 {
                wf.child(new_start(PARENT, depth - 1)).await?;
            } else {
                wf.children([new_start(HELD, 1), new_start(HELD, 2)]).await?;
            }
            Ok(json!(null))
        };
        let gate = Gate::closed();
        let engine = engine(&lab, &gate, code).await;
        let run = lab.start(PARENT, 2).key("top").await.unwrap();
        gate.reached_by(2).await;
        let cancelled = lab.cancel("top", "enough").await.unwrap();
        assert_eq!((cancelled.id, cancelled.children, cancelled.ended), (run.id(), 4, false));
        assert_eq!(lab.ended(run.id()).await.status, Status::Cancelled);
        crate::common::eventually("all to have ended", async || {
            let all = lab.list(&Filter::default(), None, 10).await.unwrap().items;
            all.len() == 5 && all.iter().all(|one| one.status == Status::Cancelled)
        }).await;
        // Or they are left alone.
        let run = lab.start(PARENT, 1).key("top").await.unwrap();
        gate.reached_by(4).await;
        let cancelled = lab.cancel("top", "enough").leave_children().await.unwrap();
        assert_eq!(cancelled.children, 0);
        assert_eq!(lab.ended(run.id()).await.status, Status::Cancelled);
        gate.open();
        crate::common::eventually("the others to be done", async || {
            let all = lab.list(&Filter::default(), None, 20).await.unwrap().items;
            all.iter().filter(|one| one.status == Status::Done).count() == 3
        }).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_ends_in_another_process_is_noticed_while_a_step_of_its_parent_runs(lab: Lab) {
        // rules 6.6 and 10.2
        let steps = Gate::closed();
        let at_steps = steps.clone();
        let code = move |wf: Workflow, _: u32| {
            let gate = at_steps.clone();
            async move {
                let step = wf.step("long", || { let gate = gate.clone(); async move { gate.pass().await; Ok::<_, BoxError>(1) } });
                Ok(match wf.select((wf.child(new_start(HELD, 1)), step)).await {
                    OneOf::First(kid) => json!(["kid", kid?]),
                    OneOf::Second(step) => json!(["step", step?]),
                })
            }
        };
        let gate = Gate::closed();
        let parents = lab.engine().poll(hours(1)).workflow(PARENT, code).start().await.unwrap();
        let kids = lab.again().await.engine().poll(hours(1)).job(HELD, held(&gate)).start().await.unwrap();
        let run = lab.start(PARENT, 0).await.unwrap();
        steps.reached_by(1).await;
        gate.reached_by(1).await;
        let since = std::time::Instant::now();
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!(["kid", 1]));
        assert!(since.elapsed() < millis(2_500), "it took {:?}", since.elapsed());
        parents.shutdown().await;
        kids.shutdown().await;
    }
}

on_every_store! {
    async fn a_tree_of_workflows_with_little_memory(lab: Lab) {
        // rules 10.2 and 12.1: parents that are replayed at every turn miss no child, however it falls.
        let code = |wf: Workflow, depth: u32| async move {
            let below = wf.all((0..3 * u32::from(depth > 0)).map(|_| wf.child(new_start(PARENT, depth - 1))).collect::<Vec<_>>());
            let pause = wf.step("pause", || async { tokio::time::sleep(millis(2)).await; Ok::<_, BoxError>(1) });
            let (below, pause) = wf.all((below, pause)).await;
            let mut count: u64 = pause?;
            for one in below {
                count += one?.as_u64().unwrap_or_default();
            }
            wf.sleep(millis(1)).await?;
            Ok(json!(count))
        };
        for kept in [0, 5] {
            let engine = engine_kept(&lab, &Gate::closed(), kept, code).await;
            let run = lab.start(PARENT, 4).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!(1 + 3 + 9 + 27 + 81));
            engine.shutdown().await;
        }
    }
}
