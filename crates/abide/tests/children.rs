//! Children: spawned in the commit of their parent's step, joined when enough of them have ended.

use abide::client::new_start;
use abide::engine::EngineBuilder;
use abide::history::HistoryEvent;
use abide::model::{Cause, WaitKind};
use abide::store::Filter;
use abide::testing::Kit;
use abide::time::{hours, millis, minutes};
use abide::{Context, Job, Status};
use abide::{done, next, stop};
use serde_json::{Value, json};

use crate::common::{At, Gate, Lab, Script, eventually};

/// The child of most tests: doubles, and fails on 13.
const DOUBLE: Job<u32, u32> = Job::new("double");
/// A child that waits at a gate.
const STUCK: Job<u32, u32> = Job::new("stuck");

fn doubling(engine: EngineBuilder) -> EngineBuilder {
    engine.job(DOUBLE, |n| async move {
        if n == 13 {
            Err("13 cannot be doubled".into())
        } else {
            Ok(n * 2)
        }
    })
}

fn waiting(engine: EngineBuilder, gate: &Gate) -> EngineBuilder {
    let gate = gate.clone();
    engine.job(STUCK, move |n| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(n)
        }
    })
}

/// The children as a joining step sees them: key, status, result, error.
fn seen(ctx: &Context<Script>) -> Value {
    let children = ctx.children().iter().map(|child| {
        let result = child.result.as_ref().map(|result| result.as_str());
        json!([
            child.key,
            child.machine,
            child.status,
            result,
            child.last_error
        ])
    });
    children.collect()
}

on_every_store! {
    async fn a_parent_goes_on_with_what_its_children_came_to(lab: Lab) {
        // rules 10.1, 10.2, 16.1
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match at {
            At::One => {
                let children = (1..=3).map(|n| new_start(DOUBLE, n).key(format!("child:{n}")));
                ctx.spawn(children).then(At::Two)
            }
            _ => {
                assert_eq!((ctx.cause(), ctx.timed_out(), ctx.missing().count()), (Cause::Children, false, 0));
                assert!(ctx.children().is_sorted_by_key(|child| child.id));
                done(seen(ctx))
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        let each = |n: u32| json!([format!("child:{n}"), "double", "done", (n * 2).to_string(), null]);
        assert_eq!(lab.came_to(&parent).await, json!([each(1), each(2), each(3)]));
        let kinds = ["started", "step_completed", "children_spawned", "child_ended", "child_ended", "child_ended",
            "children_joined", "step_completed", "done"];
        assert_eq!(lab.kinds(parent.id()).await, kinds);
        let children = lab.list(&Filter { parent: Some(parent.id()), ..Filter::default() }, None, 10).await.unwrap();
        assert_eq!(children.items.len(), 3);
        assert_eq!(lab.kinds(children.items[0].id).await, ["started", "step_completed", "done"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_failed_has_ended_like_any_other(lab: Lab) {
        // rule 10.3
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn([12, 13].map(|n| new_start(DOUBLE, n))).then(At::Two),
            _ => done(seen(ctx)),
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        let expected = json!([
            [null, "double", "done", "24", null],
            [null, "double", "failed", null, "13 cannot be doubled"],
        ]);
        assert_eq!(lab.came_to(&parent).await, expected);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn while_it_waits_a_parent_shows_how_many_are_left(lab: Lab) {
        // rules 3.1, 10.1
        let gate = Gate::closed();
        let engine = waiting(doubling(lab.engine()), &gate).machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn([new_start(DOUBLE, 1).into(), new_start(STUCK, 2).into(), start(new_start(STUCK, 3))]).then(At::Two),
            _ => done(json!(ctx.children().len())),
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        let row = lab.until(parent.id(), "one child to have ended", |row| row.family.pending == 2).await;
        assert_eq!((row.status, row.wait_kind()), (Status::AwaitingChildren, Some(WaitKind::Children)));
        assert_eq!((row.step.as_str(), row.due_at, row.worker), ("two", None, None));
        gate.open();
        assert_eq!(lab.came_to(&parent).await, json!(3));
        engine.shutdown().await;
    }
}

/// Children of several machines in one list have one type.
fn start<D: abide::machine::Definition>(
    spec: abide::client::StartBuilder<D>,
) -> Result<abide::model::Start, abide::Error> {
    spec.into()
}

on_every_store! {
    async fn a_barrier_opens_when_as_many_have_ended_as_it_needs(lab: Lab) {
        // rule 10.3
        let gate = Gate::closed();
        let engine = waiting(doubling(lab.engine()), &gate).machine(Script::new(|at, ctx| match at {
            At::One => {
                let children = [start(new_start(DOUBLE, 1)), start(new_start(STUCK, 7)), start(new_start(DOUBLE, 2))];
                ctx.spawn(children).at_least(2).then(At::Two)
            }
            _ => {
                let missing: Vec<_> = ctx.missing().map(|child| child.machine.to_string()).collect();
                done(json!([ctx.children().len(), missing, ctx.timed_out()]))
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!([3, ["stuck"], false]));
        gate.reached_by(1).await;
        gate.open();
        // The one that was not waited for runs on, and its end changes nothing any more.
        let children = lab.list(&Filter { parent: Some(parent.id()), ..Filter::default() }, None, 10).await.unwrap();
        lab.all_done(&children.items.iter().map(|child| child.id).collect::<Vec<_>>()).await;
        let kinds = ["started", "step_completed", "children_spawned", "child_ended", "child_ended",
            "children_joined", "step_completed", "done"];
        assert_eq!(lab.kinds(parent.id()).await, kinds);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_barrier_that_needs_more_than_there_are_is_refused_and_one_that_needs_none_does_not_wait(lab: Lab) {
        // rule 10.3
        let gate = Gate::closed();
        let engine = waiting(doubling(lab.engine()), &gate).machine(Script::new(|at, ctx| {
            let needs = ctx.state().as_u64().unwrap() as u32;
            match at {
                At::One if needs == 0 => ctx.spawn([new_start(STUCK, 1)]).at_least(0).then(At::Two),
                At::One => ctx.spawn([1, 2].map(|n| new_start(DOUBLE, n))).at_least(needs).then(At::Two),
                _ => done(json!([ctx.children().len(), ctx.missing().count()])),
            }
        }));
        let engine = engine.start().await.unwrap();
        let more = lab.start(Script::any(), json!(60)).await.unwrap();
        let all = lab.start(Script::any(), json!(2)).await.unwrap();
        let none = lab.start(Script::any(), json!(0)).await.unwrap();
        assert_eq!(lab.came_to(&all).await, json!([2, 0]));
        assert_eq!(lab.came_to(&none).await, json!([1, 1]));
        // The outcome goes to the error handler, like any that cannot be stored.
        let error = more.result().await.unwrap_err().to_string();
        assert!(error.contains("at least 60 of 2 children"), "{error}");
        gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_barriers_deadline_wakes_the_parent_and_shows_which_children_are_missing(lab: Lab) {
        // rule 10.3: a wake, and no failure.
        let gate = Gate::closed();
        let engine = waiting(doubling(lab.engine()), &gate).machine(Script::new(|at, ctx| match at {
            At::One => {
                let children = [start(new_start(DOUBLE, 1)), start(new_start(STUCK, 2).key("late"))];
                ctx.spawn(children).timeout(millis(ctx.state().as_u64().unwrap())).then(At::Two)
            }
            _ => {
                let missing: Vec<_> = ctx.missing().map(|child| child.key.clone()).collect();
                done(json!([ctx.timed_out(), ctx.cause() == Cause::Timeout, missing, ctx.attempt()]))
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(1_500)).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!([true, true, ["late"], 0]));
        let kinds = ["started", "step_completed", "children_spawned", "child_ended", "timed_out",
            "step_completed", "done"];
        assert_eq!(lab.kinds(parent.id()).await, kinds);
        gate.open();
        lab.ended(lab.get(abide::model::Key::new("late").unwrap()).await.unwrap().unwrap().id).await;
        // A barrier that opens in time forgets its deadline.
        let parent = lab.start(Script::any(), json!(3_600_000)).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!([false, false, [], 0]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_whose_key_is_taken_are_left_out(lab: Lab) {
        // rule 10.1
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match at {
            At::One => {
                let keys = ["taken", "free", "free", "other"];
                ctx.spawn((1..).zip(keys).map(|(n, key)| new_start(DOUBLE, n).key(key))).then(At::Two)
            }
            _ => done(seen(ctx)),
        }));
        let held = lab.start(DOUBLE, 0).key("taken").delay(hours(1)).await.unwrap();
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        let expected = json!([["free", "double", "done", "4", null], ["other", "double", "done", "8", null]]);
        assert_eq!(lab.came_to(&parent).await, expected);
        let events = lab.events(parent.id()).await;
        assert!(matches!(events[2].what, HistoryEvent::ChildrenSpawned { count: 2, duplicates: 2, .. }), "{events:?}");
        assert_eq!(lab.now(held.id()).await.parent, None, "it has no parent");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_parent_without_children_goes_straight_on(lab: Lab) {
        // rule 10.1
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "none" => ctx.spawn((0..0).map(|n| new_start(DOUBLE, n))).then(At::Two),
            At::One => ctx.spawn([new_start(DOUBLE, 1).key("taken")]).timeout(hours(1)).then(At::Two),
            _ => done(json!([ctx.children().len(), ctx.timed_out()])),
        }));
        lab.start(DOUBLE, 0).key("taken").delay(hours(1)).await.unwrap();
        let engine = engine.start().await.unwrap();
        for state in ["none", "all are duplicates"] {
            let parent = lab.start(Script::any(), json!(state)).await.unwrap();
            assert_eq!(lab.came_to(&parent).await, json!([0, false]));
            let kinds = ["started", "step_completed", "children_spawned", "children_joined", "step_completed", "done"];
            assert_eq!(lab.kinds(parent.id()).await, kinds);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_have_children(lab: Lab) {
        // rule 10.3
        let engine = lab.engine().machine(Script::new(|at, ctx| {
            let depth = ctx.state().as_u64().unwrap();
            match at {
                At::One if depth == 0 => done(json!(1)),
                At::One => ctx.spawn((0..3).map(|_| new_start(Script::any(), json!(depth - 1)))).then(At::Two),
                _ => {
                    let leaves = ctx.children().iter().map(|child| child.result.as_ref().unwrap().to::<u64>().unwrap());
                    done(json!(leaves.sum::<u64>()))
                }
            }
        }));
        let engine = engine.start().await.unwrap();
        let root = lab.start(Script::any(), json!(3)).await.unwrap();
        assert_eq!(lab.came_to(&root).await, json!(27));
        assert_eq!(lab.list(&Filter::default(), None, 100).await.unwrap().items.len(), 1 + 3 + 9 + 27);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_thousand_children_are_joined_once(lab: Lab) {
        // rule 10.2
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn((100..1_100).map(|n| new_start(DOUBLE, n))).then(At::Two),
            _ => {
                let results = ctx.children().iter().map(|child| child.result.as_ref().unwrap().to::<u32>().unwrap());
                done(json!(results.sum::<u32>()))
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!((100..1_100).map(|n| n * 2).sum::<u32>()));
        let kinds = lab.kinds(parent.id()).await;
        let count = |kind| kinds.iter().filter(|one| **one == kind).count();
        assert_eq!((count("child_ended"), count("children_joined"), count("step_completed")), (1_000, 1, 2));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_of_other_queues_are_run_by_the_workers_that_serve_them(lab: Lab) {
        // rule 10.2: the end of a child in another process wakes the parent in this one.
        const FAR: Job<u32, u32> = Job::new("far").queue("far away");
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn([1, 2].map(|n| new_start(FAR, n))).then(At::Two),
            _ => done(seen(ctx)),
        }));
        let near = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.until_status(parent.id(), Status::AwaitingChildren).await;
        let far = lab.again().await.engine().job(FAR, |n| async move { Ok(n + 1) }).start().await.unwrap();
        let expected = json!([[null, "far", "done", "2", null], [null, "far", "done", "3", null]]);
        assert_eq!(lab.came_to(&parent).await, expected);
        let committed = async || (near.stats().committed, far.stats().committed) == (2, 2);
        eventually("both to have counted what they committed", committed).await;
        far.shutdown().await;
        near.shutdown().await;
    }
}

on_every_store! {
    async fn a_second_barrier_counts_and_lists_its_own_children_only(lab: Lab) {
        // rule 10.2
        const LATE: Job<u32, u32> = Job::new("late");
        let (gate, late) = (Gate::closed(), Gate::closed());
        let at_late = late.clone();
        let engine = waiting(doubling(lab.engine()), &gate).job(LATE, move |n| {
            let late = at_late.clone();
            async move {
                late.pass().await;
                Ok(n)
            }
        });
        let engine = engine.machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn([start(new_start(DOUBLE, 1)), start(new_start(STUCK, 2))]).at_least(1).then(At::Two),
            At::Two => {
                *ctx.state_mut() = json!(ctx.children().len());
                ctx.spawn([new_start(LATE, 3)]).then(At::Three)
            }
            At::Three => done(json!([ctx.state(), seen(ctx)])),
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        late.reached_by(1).await;
        // The child that the first barrier left behind ends while the parent waits at the second.
        gate.open();
        let children = Filter { parent: Some(parent.id()), ..Filter::default() };
        let children = lab.list(&children, None, 10).await.unwrap().items;
        assert_eq!(children.len(), 3, "those of earlier barriers can be listed");
        let left = children.iter().find(|child| child.machine.as_str() == "stuck").unwrap();
        lab.ended(left.id).await;
        let row = lab.now(parent.id()).await;
        assert_eq!((row.status, row.family.pending), (Status::AwaitingChildren, 1));
        late.open();
        assert_eq!(lab.came_to(&parent).await, json!([2, [[null, "late", "done", "3", null]]]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_may_be_in_the_partition_of_its_parent(lab: Lab) {
        // rule 6.3: an instance that waits for children holds no partition.
        let engine = lab.engine().machine(Script::new(|at, ctx| {
            let child = |n: u32| new_start(Script::any(), json!(n)).step(At::Three).partition("customer:7");
            match at {
                At::One => ctx.spawn([child(1), child(2)]).then(At::Two),
                At::Two => done(json!(ctx.children().len())),
                At::Three => done(json!(null)),
            }
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).partition("customer:7").await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!(2));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_child_that_cannot_be_started_is_an_error_of_the_step(lab: Lab) {
        // rule 5.2
        let engine = lab.engine().machine(Script::new(|_, ctx| {
            ctx.spawn([new_start(DOUBLE, 1).key("fine"), new_start(DOUBLE, 2).key("12")]).then(At::Two)
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        let error = lab.failed_of(&parent).await;
        assert!(error.contains("digits only"), "{error}");
        assert_eq!(lab.list(&Filter::default(), None, 10).await.unwrap().items.len(), 1, "no child was started");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_outlive_a_parent_that_ends(lab: Lab) {
        let gate = Gate::closed();
        let engine = waiting(lab.engine(), &gate).machine(Script::new(|at, ctx| match at {
            At::One => ctx.spawn([new_start(STUCK, 5).key("orphan")]).at_least(0).then(At::Two),
            _ => stop("that is all"),
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.failed_of(&parent).await, "that is all");
        gate.open();
        let orphan = lab.handle::<u32>(abide::model::Key::new("orphan").unwrap()).await.unwrap().unwrap();
        assert_eq!(lab.came_to(&orphan).await, 5);
        engine.shutdown().await;
    }
}

/// A parent that spawns at `One` and joins at `Two`; its children go from `Three` to their end.
fn family() -> Script {
    Script::new(|at, ctx| match at {
        At::One => {
            let children = (0..3).map(|n| new_start(Script::any(), json!(n)).step(At::Three));
            ctx.spawn(children).then(At::Two)
        }
        At::Two => done(json!(ctx.children().len())),
        At::Three => done(json!(null)),
    })
}

#[tokio::test]
async fn a_crash_before_the_spawn_is_committed_leaves_no_children() {
    // rules 1.1, 10.1
    let kit = Kit::builder().machine(family()).build().await.unwrap();
    kit.kill_worker_before_commit(At::One);
    let parent = kit.start(Script::any(), json!(null)).await.unwrap();
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    assert_eq!(count(&kit).await, 1);
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    kit.assert_done(&parent, &json!(3)).await;
    assert_eq!(count(&kit).await, 4);
}

#[tokio::test]
async fn a_child_counts_once_however_often_its_worker_dies() {
    // rule 10.2
    let kit = Kit::builder().machine(family()).queue("default", 1);
    let kit = kit.build().await.unwrap();
    let parent = kit.start(Script::any(), json!(null)).await.unwrap();
    for round in 0..3 {
        // Those that a dead worker held beside its step may wait before they run again (rule 5.6).
        kit.kill_worker_before_commit(At::Three);
        kit.advance(minutes(10)).await;
        assert!(kit.worker_is_dead().await, "round {round}");
        kit.restart_worker().await.unwrap();
        kit.kill_worker_after_commit(At::Three);
        kit.advance(minutes(10)).await;
        assert!(kit.worker_is_dead().await, "round {round}");
        let pending = kit.get(parent.id()).await.unwrap().unwrap().family.pending;
        assert_eq!(pending, 2 - round);
        kit.restart_worker().await.unwrap();
    }
    kit.settle().await;
    kit.assert_done(&parent, &json!(3)).await;
}

#[tokio::test]
async fn a_deadline_far_away_is_met_to_the_moment() {
    // rules 6.5, 10.3
    let kit = Kit::builder().machine(Script::new(|at, ctx| match at {
        At::One => {
            let child = new_start(Script::any(), json!(null)).step(At::Three);
            ctx.spawn([child]).timeout(hours(24)).then(At::Two)
        }
        At::Two => done(json!(ctx.timed_out())),
        At::Three => ctx.sleep(hours(100)).then(At::Three),
    }));
    let kit = kit.build().await.unwrap();
    let parent = kit.start(Script::any(), json!(null)).await.unwrap();
    kit.advance(hours(24) - millis(1)).await;
    kit.assert_status(&parent, Status::AwaitingChildren).await;
    kit.advance(millis(1)).await;
    kit.assert_done(&parent, &json!(true)).await;
    kit.advance(minutes(1)).await;
}

async fn count(kit: &Kit) -> usize {
    let page = kit.list(&Filter::default(), None, 100).await.unwrap();
    page.items.len()
}

on_every_store! {
    async fn a_parent_whose_step_after_the_join_is_run_again_sees_the_same_children(lab: Lab) {
        // rule 10.2
        let engine = doubling(lab.engine()).machine(Script::new(|at, ctx| match (at, ctx.attempt()) {
            (At::One, _) => ctx.spawn([1, 2].map(|n| new_start(DOUBLE, n))).then(At::Two),
            (At::Two, 0) => {
                *ctx.state_mut() = seen(ctx);
                abide::machine::retry_in(millis(1))
            }
            (At::Two, _) => {
                assert_eq!(*ctx.state(), seen(ctx));
                next(At::Three)
            }
            (At::Three, _) => done(json!(ctx.children().len())),
        }));
        let engine = engine.start().await.unwrap();
        let parent = lab.start(Script::any(), json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&parent).await, json!(0), "the step after the one that joined joins nothing");
        engine.shutdown().await;
    }
}
