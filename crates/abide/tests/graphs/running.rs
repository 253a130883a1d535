//! A run of a graph, from its start to its end.

use abide::graph::output;
use abide::message::eq;
use abide::time::{hours, millis, secs};
use abide::{Event, Graph, Status};
use serde_json::{Value, json};

use crate::common::{Lab, eventually};

fn shop() -> Graph {
    let paid =
        Event::new("payment.received").matching("order_id", eq(output("create-order", "id")));
    Graph::builder("webhook-handler")
        .task("create-order")
        .timeout(secs(10))
        .wait_for_event("payment", paid, hours(1))
        .after("create-order")
        .task("stock")
        .after("create-order")
        .task("fulfill")
        .after("payment")
        .after("stock")
        .skip_if("payment", "timeout", eq(true))
        .build()
        .unwrap()
}

on_every_store! {
    async fn tasks_run_side_by_side_and_what_each_is_given_is_what_came_before_it(lab: Lab) {
        // rules 15.1, 15.3 and 15.4
        let graph = shop();
        let engine = lab.engine().graph(&graph)
            .task("create-order", |order: Value| async move { Ok(json!({"id": order["id"]})) })
            .task("stock", |order: Value| async move { Ok(json!([order["id"], 3])) })
            .task("fulfill", |all: Value| async move { Ok(all) })
            .start().await.unwrap();
        let run = lab.start(graph.clone(), json!({"id": "ord_1"})).await.unwrap();
        eventually("a waiter", async || {
            !lab.event_waits(&Default::default(), None, 9).await.unwrap().items.is_empty()
        }).await;
        let payment = json!({"order_id": "ord_1", "amount": 99});
        // Whether it finds the wait open, or the run awake because a task has ended, it is not lost (rule 14.6).
        lab.publish("payment.received", &payment).await.unwrap();
        let result: Value = lab.came_to(&run).await;
        assert_eq!(result, json!({"fulfill": {"payment": payment, "stock": ["ord_1", 3]}}));
        let row = lab.now(run.id()).await;
        let state: Value = row.state.to().unwrap();
        assert_eq!(state["input"], json!({"id": "ord_1"}));
        assert_eq!(state["steps"]["stock"], json!({"status": "done", "output": ["ord_1", 3]}));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_task_that_fails_for_good_fails_the_run_and_cancels_the_running_tasks(lab: Lab) {
        // rule 15.4
        let graph = Graph::builder("fails")
            .task("bad").retry(2, millis(10))
            .task("slow")
            .task("never").after("slow")
            .build().unwrap();
        let engine = lab.engine().graph(&graph)
            .task("bad", |_: Value| async move { Err::<Value, _>("no luck".into()) })
            .task("slow", |_: Value| async move { tokio::time::sleep(secs(600)).await; Ok(json!(null)) })
            .grace(millis(10))
            .start().await.unwrap();
        let run = lab.start(graph.clone(), json!(null)).await.unwrap();
        lab.ended(run.id()).await;
        let row = lab.now(run.id()).await;
        assert_eq!(row.status, Status::Failed);
        assert!(row.last_error.as_ref().unwrap().contains("no luck"), "{:?}", row.last_error);
        let filter = abide::store::Filter { parent: Some(run.id()), ..Default::default() };
        let children = lab.list(&filter, None, 9).await.unwrap().items;
        let mut ends: Vec<_> = children.iter().map(|child| (child.machine.to_string(), child.status.name())).collect();
        ends.sort();
        assert_eq!(ends, [("task/bad".to_owned(), "failed"), ("task/slow".to_owned(), "cancelled")]);
        engine.shutdown().await;
    }
}
