//! Lists of waits.

use abide::client::WaitsFilter;
use abide::message::eq;
use abide::model::{Limits, WaitKind};
use abide::time::hours;
use abide::{Abide, Event, Flow, Status, Workflow, done};
use serde_json::{Value, json};

use crate::common::{At, Lab, Script};

on_every_store! {
    async fn what_instances_wait_for_is_listed_by_kind_name_key_and_instance(lab: Lab) {
        // rule 13.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if *ctx.state() == json!("both") => {
                let event = Event::new("paid").matching("id", eq(7));
                ctx.wait_for_event(event).or("go").timeout(hours(1)).then(At::Two)
            }
            At::One => ctx.wait_for("go").or("stop").then(At::Two),
            _ => done(json!(null)),
        }));
        let engine = engine.start().await.unwrap();
        let mut ids = Vec::new();
        for (key, state) in [("a:1", "both"), ("a:2", "signals"), ("b:1", "both")] {
            let run = lab.start(Script::any(), json!(state)).key(key).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            ids.push(run.id());
        }
        let names = async |filter: WaitsFilter| {
            let page = lab.waits(&filter, None, 100).await.unwrap();
            assert!(page.next.is_none());
            let mut names: Vec<String> = page.items.iter()
                .map(|wait| format!("{} {} {}", wait.key.as_ref().unwrap(), wait.kind.name(), wait.name))
                .collect();
            names.sort();
            names
        };
        let all = names(WaitsFilter::default()).await;
        assert_eq!(all, ["a:1 event paid", "a:1 signal go", "a:2 signal go", "a:2 signal stop", "b:1 event paid", "b:1 signal go"]);
        let of_kind = WaitsFilter { kind: Some(WaitKind::Event), ..Default::default() };
        assert_eq!(names(of_kind).await, ["a:1 event paid", "b:1 event paid"]);
        let of_name = WaitsFilter { name: Some("stop".into()), ..Default::default() };
        assert_eq!(names(of_name).await, ["a:2 signal stop"]);
        let of_key = WaitsFilter { key_prefix: Some("b:".into()), ..Default::default() };
        assert_eq!(names(of_key).await, ["b:1 event paid", "b:1 signal go"]);
        let of_one = WaitsFilter { instance: Some(ids[0]), kind: Some(WaitKind::Event), ..Default::default() };
        let one = lab.waits(&of_one, None, 9).await.unwrap().items;
        assert_eq!((one.len(), one[0].conditions.len(), one[0].deadline.is_some()), (1, 1, true));
        for (prefix, count) in [("a:", 2), ("a:1", 2), ("b:", 0), ("", 2)] {
            // It was ignored beside an instance.
            let of_both = WaitsFilter { instance: Some(ids[0]), key_prefix: Some(prefix.into()), ..Default::default() };
            assert_eq!(lab.waits(&of_both, None, 9).await.unwrap().items.len(), count, "{prefix:?}");
        }
        for limit in [0, 1] {
            // The bug: an empty page was marked as the last.
            let first = lab.waits(&WaitsFilter::default(), None, limit).await.unwrap();
            assert_eq!((first.items.len(), first.next), (2, Some(ids[2])), "{limit}");
        }
        let first = lab.waits(&WaitsFilter::default(), None, 1).await.unwrap();
        let rest = lab.waits(&WaitsFilter::default(), first.next, 100).await.unwrap();
        assert_eq!(rest.items.len(), 4);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn more_waits_than_a_page_of_them_are_all_listed(lab: Lab) {
        // rule 13.1: those after the first page of an instance's waits for events were left out.
        const MANY: Flow<u32, usize> = Flow::new("many");
        let limits = Limits { names_per_wait: 1_000, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let code = |wf: Workflow, count: u32| async move {
            let tick = |n| Event::new("tick").matching("n", eq(n));
            let waits = (0..count).map(|n| wf.event::<Value>(tick(n)).timeout(hours(1)));
            Ok(wf.all(waits.collect::<Vec<_>>()).await.len())
        };
        let engine = lab.engine().workflow(MANY, code).start().await.unwrap();
        let run = lab.start(MANY, 450).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let of_run = WaitsFilter { instance: Some(run.id()), ..WaitsFilter::default() };
        for filter in [of_run, WaitsFilter::default()] {
            let page = lab.waits(&filter, None, 10).await.unwrap();
            assert!(page.next.is_none());
            let operations: Vec<u32> = page.items.iter().filter_map(|wait| wait.operation).collect();
            let mut distinct = operations.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!((operations.len(), distinct.len()), (450, 450));
        }
        engine.shutdown().await;
    }
}
