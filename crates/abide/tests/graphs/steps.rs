//! The kinds of steps in a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide::graph::{GraphSpec, input, output};
use abide::message::{eq, exists, gt};
use abide::model::{Instance, Limits};
use abide::store::Filter;
use abide::time::{hours, millis, secs};
use abide::{Abide, BoxError, Event, Graph, InstanceId, Job, Status};
use abide_kernel::{Op, SweepRequest};
use serde_json::{Value, json};

use crate::common::{Gate, Lab, Log, Most, eventually};

pub async fn children(lab: &Lab, of: InstanceId) -> Vec<Instance> {
    let filter = Filter {
        parent: Some(of),
        ..Default::default()
    };
    let mut children = lab.list(&filter, None, 500).await.unwrap().items;
    children.sort_by_key(|child| child.id);
    children
}

pub async fn step(lab: &Lab, of: InstanceId, name: &str) -> Value {
    lab.now(of).await.state.to::<Value>().unwrap()["steps"][name].clone()
}

async fn until_step(lab: &Lab, of: InstanceId, name: &str, status: &str) {
    let what = format!("{name} to be {status}");
    eventually(&what, async || {
        step(lab, of, name).await["status"] == json!(status)
    })
    .await;
}

async fn echo(value: Value) -> Result<Value, BoxError> {
    Ok(value)
}

on_every_store! {
    async fn steps_are_left_out_and_count_as_done_with_null(lab: Lab) {
        // rules 15.3 and 15.4
        let graph = Graph::builder("skips").task("a")
            .task("yes").after("a").skip_if("a", "n", gt(5))
            .task("no").after("a").skip_if("a", "gone", exists(true))
            .task("next").after("yes").task("join").after("yes").after("no")
            .task("last").after("next").skip_if("a", "n", eq("6"))
            .build().unwrap();
        let mut builder = lab.engine().graph(&graph);
        for name in ["a", "yes", "no", "next", "join", "last"] {
            builder = builder.task(name, echo);
        }
        let engine = builder.start().await.unwrap();
        let run = lab.start(graph.clone(), json!({"n": 6})).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"join": {"no": {"n": 6}, "yes": null}, "last": null}));
        assert_eq!(step(&lab, run.id(), "yes").await, json!({"status": "skipped"}));
        assert_eq!(step(&lab, run.id(), "next").await, json!({"status": "done", "output": null}));
        let run = lab.start(graph.clone(), json!({"n": 1})).await.unwrap();
        let one = json!({"n": 1});
        assert_eq!(lab.came_to(&run).await, json!({"join": {"no": one, "yes": one}, "last": one}));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn branches_run_side_by_side_on_two_engines(lab: Lab) {
        // rule 15.3
        let graph = Graph::builder("wide").task("a").task("b").build().unwrap();
        let gate = Gate::closed();
        let task = |gate: &Gate| { let gate = gate.clone(); move |_: Value| { let gate = gate.clone(); async move { gate.pass().await; Ok(json!(1)) } } };
        let (one, two) = (lab.again().await, lab.again().await);
        let one = one.engine().name("one").graph(&graph).task("a", task(&gate)).start().await.unwrap();
        let two = two.engine().name("two").task("b", task(&gate)).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        gate.reached_by(2).await;
        assert_eq!(step(&lab, run.id(), "a").await, json!({"status": "running"}));
        gate.open();
        assert_eq!(lab.came_to(&run).await, json!({"a": 1, "b": 1}));
        one.shutdown().await;
        two.shutdown().await;
    }
}

on_every_store! {
    async fn a_hundred_tasks_at_once_and_one_that_joins_them(lab: Lab) {
        // rule 15.3
        let mut builder = Graph::builder("many");
        for n in 0..100 {
            builder = builder.task_named(format!("t{n}"), "work");
        }
        builder = builder.task("join");
        for n in 0..100 {
            builder = builder.after(format!("t{n}"));
        }
        let graph = builder.build().unwrap();
        let most = Most::default();
        let inside = most.clone();
        let engine = lab.engine().graph(&graph)
            .task("work", move |n: Value| { let inside = inside.enter(); async move { tokio::time::sleep(millis(20)).await; drop(inside); Ok(n) } })
            .task("join", |all: Value| async move { Ok(json!(all.as_object().unwrap().len())) })
            .start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"join": 100}));
        assert!(most.seen() > 1);
        assert_eq!(children(&lab, run.id()).await.len(), 101);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_is_tried_again_after_its_delays_and_when_it_takes_too_long(lab: Lab) {
        // rules 15.1, 15.3 and 15.4: each task is one child, however often it is tried.
        let graph = Graph::builder("again").task("flaky").retry(3, millis(40)).task("slow").timeout(millis(800)).retry(2, millis(1)).build().unwrap();
        let (flaky, slow) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let engine = lab.engine().grace(millis(10)).graph(&graph)
            .task("flaky", move |_: Value| { let n = flaky.fetch_add(1, Ordering::SeqCst); async move { if n < 2 { Err("not yet".into()) } else { Ok(json!(n)) } } })
            .task("slow", move |_: Value| { let n = slow.fetch_add(1, Ordering::SeqCst); async move { if n == 0 { tokio::time::sleep(secs(600)).await; } Ok(json!(n)) } })
            .start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"flaky": 2, "slow": 1}));
        let all = children(&lab, run.id()).await;
        let ends = |task: &str| all.iter().filter(|child| child.machine.as_str() == task).map(|child| child.status.name()).collect::<Vec<_>>();
        assert_eq!(ends("task/flaky"), ["done"]);
        assert_eq!(ends("task/slow"), ["done"]);
        let flaky = all.iter().find(|child| child.machine.as_str() == "task/flaky").unwrap();
        assert_eq!(flaky.attempt, 2);
        let again = ["step_failed", "retried"];
        assert_eq!(lab.kinds(flaky.id).await, [&["started"][..], &again, &again, &["step_completed", "done"]].concat());
        let tries: Vec<_> = lab.events(flaky.id).await.iter().filter_map(|entry| match entry.what {
            abide::history::HistoryEvent::Retried { due_at, .. } => Some(due_at.since(entry.at)),
            _ => None,
        }).collect();
        assert_eq!(tries, [millis(40), millis(80)]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_whose_time_is_up_for_good_fails_the_run(lab: Lab) {
        // rule 15.4
        let graph = Graph::builder("late").task("slow").timeout(millis(50)).task("after").after("slow").build().unwrap();
        let engine = lab.engine().grace(millis(10)).graph(&graph)
            .task("slow", |_: Value| async move { tokio::time::sleep(secs(600)).await; Ok(json!(1)) }).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        let error = lab.failed_of(&run).await;
        assert!(error.contains("slow") && error.contains("longer than its time limit of 50ms"), "{error}");
        assert_eq!(step(&lab, run.id(), "slow").await["status"], json!("failed"));
        assert_eq!(step(&lab, run.id(), "after").await["status"], json!("cancelled"));
        let all = children(&lab, run.id()).await;
        assert_eq!(all.len(), 1);
        assert_eq!(lab.ended(all[0].id).await.status, Status::Failed);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn it_waits_for_time_for_signals_and_for_events(lab: Lab) {
        // rules 15.1, 14.2 and 14.5
        let event = |who| Event::new("paid").matching("id", eq(output("a", "id"))).matching("who", eq(who));
        let graph = Graph::builder("waits").task("a").sleep("z", millis(30)).after("a")
            .wait_for_event("e", event(input("who")), hours(1)).after("a")
            .wait_for_event("never", event(input("other")), millis(50)).after("a")
            .wait_for_signal("s", "go").after("a")
            .wait_for_signal("late", "stop").after("a").timeout(millis(50))
            .build().unwrap();
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).graph(&graph).task("a", |_: Value| async move { Ok(json!({"id": 7})) }).start().await.unwrap();
            let run = lab.start(graph.clone(), json!({"who": "me", "other": "you"})).await.unwrap();
            for name in ["z", "never", "late"] {
                until_step(&lab, run.id(), name, "done").await;
            }
            assert_eq!(step(&lab, run.id(), "never").await["output"], json!({"timeout": true}));
            assert_eq!(step(&lab, run.id(), "e").await, json!({"status": "running"}));
            eventually("one to wait", async || lab.event_waits(&Default::default(), None, 9).await.unwrap().items.len() == 1).await;
            assert_eq!(lab.publish("paid", &json!({"id": 8, "who": "me"})).await.unwrap().matched, 0);
            assert_eq!(lab.publish("paid", &json!({"id": "7", "who": "me"})).await.unwrap().matched, 1);
            until_step(&lab, run.id(), "e", "done").await;
            lab.signal(run.id(), "go", vec![abide::model::Json::from(json!({"by": 1}))].into()).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!({"e": {"id": "7", "who": "me"}, "late": {"timeout": true},
                "never": {"timeout": true}, "s": {"by": 1}, "z": null}));
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_wait_that_there_is_no_room_for_fails_its_step(lab: Lab) {
        // rules 14.7 and 15.4
        let limits = Limits { waiters_per_type: 1, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let graph = Graph::builder("full").task("a").wait_for_event("e", Event::new("paid"), hours(1)).after("a")
            .task("never").after("e").build().unwrap();
        let engine = lab.engine().graph(&graph).task("a", |_: Value| async move { Ok(json!(7)) }).start().await.unwrap();
        let first = lab.start(graph.clone(), json!(null)).await.unwrap();
        eventually("one to wait", async || lab.event_waits(&Default::default(), None, 9).await.unwrap().items.len() == 1).await;
        let second = lab.start(graph.clone(), json!(null)).await.unwrap();
        let error = lab.failed_of(&second).await;
        let expected = "2 waits for events of type \"paid\" are over the limit waiters_per_type of 1";
        assert!(error.contains("step \"e\"") && error.contains(expected), "{error}");
        let seen = step(&lab, second.id(), "e").await;
        assert!(seen["status"] == "failed" && seen["error"].as_str().unwrap().contains(expected), "{seen}");
        assert_eq!(step(&lab, second.id(), "a").await["status"], json!("done"));
        assert_eq!(step(&lab, second.id(), "never").await["status"], json!("cancelled"));
        assert_eq!(step(&lab, first.id(), "e").await["status"], json!("running"), "the first one still waits");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_reference_that_cannot_be_resolved_fails_the_step_and_leaves_nothing_running(lab: Lab) {
        // rules 14.2 and 15.4
        let event = Event::new("paid").matching("id", eq(output("a", "id.deep")));
        let graph = Graph::builder("lost").task("a").task("beside").after("a").wait_for_event("e", event, hours(1)).after("a")
            .task("never").after("e").build().unwrap();
        let engine = lab.engine().grace(millis(10)).graph(&graph).task("a", |_: Value| async move { Ok(json!({"id": 7})) })
            .task("beside", |_: Value| async move { tokio::time::sleep(secs(600)).await; Ok(json!(1)) }).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        let error = lab.failed_of(&run).await;
        assert!(error.contains("step.a.output.id.deep") && error.contains("cannot be resolved"), "{error}");
        assert_eq!(step(&lab, run.id(), "e").await["status"], json!("failed"));
        for child in children(&lab, run.id()).await {
            assert!(lab.ended(child.id).await.status.is_terminal());
        }
        assert!(lab.event_waits(&Default::default(), None, 9).await.unwrap().items.is_empty());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn cancelling_the_run_cancels_its_tasks_and_its_graphs(lab: Lab) {
        // rules 15.4 and 11.2
        let inner = Graph::builder("inner").task("slow").build().unwrap();
        let graph = Graph::builder("outer").task("slow").graph("g", &inner).wait_for_event("e", Event::new("x"), hours(1))
            .task_named("last", "slow").after("slow").build().unwrap();
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let engine = lab.engine().grace(millis(10)).graph(&graph)
            .task("slow", move |_: Value| { let gate = at_gate.clone(); async move { gate.pass().await; Ok(json!(1)) } }).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        gate.reached_by(2).await;
        lab.cancel(run.id(), "enough").await.unwrap();
        assert_eq!(lab.ended(run.id()).await.status, Status::Cancelled);
        for name in ["slow", "g", "e", "last"] {
            assert_eq!(step(&lab, run.id(), name).await["status"], json!("cancelled"), "{name}");
        }
        for child in children(&lab, run.id()).await {
            assert_eq!(lab.ended(child.id).await.status, Status::Cancelled);
            for child in children(&lab, child.id).await {
                assert_eq!(lab.ended(child.id).await.status, Status::Cancelled);
            }
        }
        assert!(lab.event_waits(&Default::default(), None, 9).await.unwrap().items.is_empty());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_graph_is_a_step_of_a_graph_twice(lab: Lab) {
        // rules 15.1 and 15.3
        let inner = Graph::builder("inner").task("x").task("y").after("x").build().unwrap();
        let graph = Graph::builder("outer").task("a").graph("g", &inner).after("a").graph("h", &inner).after("g").build().unwrap();
        let engine = lab.engine().graph(&graph).task("a", echo)
            .task("x", |n: Value| async move { Ok(json!({"x": n})) }).task("y", echo).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"h": {"y": {"x": {"y": {"x": 1}}}}}));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_run_keeps_the_definition_that_it_was_started_with(lab: Lab) {
        // rule 15.1
        let graph = Graph::builder("g").wait_for_signal("w", "go").task("old").after("w").build().unwrap();
        let changed = Graph::builder("g").task("new").build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).key("k").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert!(lab.start(graph.clone(), json!(null)).key("k").await.is_err(), "the key is taken");
        engine.shutdown().await;
        let engine = lab.again().await.engine().graph(&changed).task("old", echo).task("new", |_: Value| async move { Ok(json!("new")) }).start().await.unwrap();
        lab.signal(run.id(), "go", vec![abide::model::Json::from(json!(5))].into()).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"old": 5}));
        let run = lab.start(changed.clone(), json!(null)).key("k").await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"new": "new"}));
        let pinned: GraphSpec = serde_json::from_value(lab.now(run.id()).await.state.to::<Value>().unwrap()["graph"].clone()).unwrap();
        assert_eq!(&pinned, changed.spec());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_process_dies_in_the_middle_and_the_next_goes_on(lab: Lab) {
        // rules 15.3, 12.2 and 5.3
        let graph = Graph::builder("g").task("a").task("b").after("a").task("c").after("b").task("d").after("a").build().unwrap();
        let (log, gate) = (Log::new(), Gate::closed());
        let build = |log: &Log<String>, gate: &Gate, kept: usize, name: &'static str| {
            let (log, gate, graph) = (log.clone(), gate.clone(), graph.clone());
            move |engine: abide::engine::EngineBuilder| {
                let mut engine = engine.name(name).lease(millis(900)).workflows_kept(kept).graph(&graph);
                for task in ["a", "b", "c", "d"] {
                    let (log, gate) = (log.clone(), gate.clone());
                    engine = engine.task(task, move |n: Value| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.note(task.to_owned());
                            if task == "b" { gate.pass().await; }
                            Ok(json!(n.as_u64().unwrap() + 1))
                        }
                    });
                }
                engine
            }
        };
        let killable = lab.killable(build(&log, &gate, 100, "one")).await;
        let run = lab.start(graph.clone(), json!(0)).await.unwrap();
        gate.reached_by(1).await;
        until_step(&lab, run.id(), "d", "done").await;
        killable.die().await;
        gate.open();
        let engine = build(&log, &gate, 0, "two")(lab.again().await.engine()).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"c": 3, "d": 2}));
        let count = |task: &str| log.read().iter().filter(|one| *one == task).count();
        assert_eq!((count("a"), count("b"), count("c"), count("d")), (1, 2, 1, 1));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_is_a_plain_instance_that_any_worker_may_run(lab: Lab) {
        // rule 15.3
        const SHIP: Job<Value, Value> = Job::new("task/ship");
        let graph = Graph::builder("g").task("ship").queue("docks").build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!({"id": 1})).await.unwrap();
        eventually("the task", async || !children(&lab, run.id()).await.is_empty()).await;
        let task = children(&lab, run.id()).await.remove(0);
        assert_eq!((task.machine.as_str(), task.version, task.step.as_str(), task.queue.as_str()), ("task/ship", 1, "run", "docks"));
        assert_eq!(task.state.to::<Value>().unwrap(), json!({"id": 1}));
        let worker = lab.again().await.engine().queue("docks", 1).job(SHIP, |order: Value| async move { Ok(json!({"shipped": order["id"]})) }).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"ship": {"shipped": 1}}));
        engine.shutdown().await;
        worker.shutdown().await;
    }
}

on_every_store! {
    async fn tasks_that_have_ended_are_kept_until_their_run_has_read_them(lab: Lab) {
        // rule 16.2: a sweep deleted the finished tasks of a graph that was still waiting (2 of 2), and the run got
        // the error that they had ended with "its key, or its unique key, is taken".
        let graph = Graph::builder("kept").task("a").task("b").build().unwrap();
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).await.unwrap();
        eventually("both tasks to be there", async || children(&lab, run.id()).await.len() == 2).await;
        engine.shutdown().await;
        let worker = lab.engine().task("a", echo).task("b", echo).start().await.unwrap();
        eventually("both tasks to end", async || {
            children(&lab, run.id()).await.iter().all(|task| task.status == Status::Done)
        }).await;
        worker.shutdown().await;
        let store = lab.store().await;
        let sweep = SweepRequest { before: store.clock().now() + hours(1), after: None, limit: 100 };
        store.run([Op::Sweep(sweep)].into()).await.unwrap();
        assert_eq!(children(&lab, run.id()).await.len(), 2);
        let engine = lab.engine().graph(&graph).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!({"a": 1, "b": 1}));
        engine.shutdown().await;
    }
}
