//! The state of a run that ends without its code (rule 15.4). The bug: steps that were not over stayed `pending` or
//! `running` for ever.

use abide::model::Scope;
use abide::store::Filter;
use abide::time::hours;
use abide::{BoxError, Event, Graph, InstanceId, Status};
use serde_json::{Value, json};

use super::claim;
use super::steps::children;
use crate::common::{Gate, Lab, eventually};

async fn echo(value: Value) -> Result<Value, BoxError> {
    Ok(value)
}

/// The status of each step, by name, as the instance and a list show it.
async fn statuses(lab: &Lab, id: InstanceId) -> Value {
    let steps = |state: &abide::model::Json| -> Value {
        let state: Value = state.to().unwrap();
        let steps = state["steps"].as_object().unwrap().iter();
        steps
            .map(|(name, step)| (name.clone(), step["status"].clone()))
            .collect()
    };
    let shown = steps(&lab.now(id).await.state);
    let all = lab.list(&Filter::default(), None, 100).await.unwrap();
    let listed = all.items.iter().find(|one| one.id == id).unwrap();
    assert_eq!(steps(&listed.state), shown);
    shown
}

on_every_store! {
    async fn a_run_that_is_cancelled_before_it_began_shows_its_steps_as_cancelled(lab: Lab) {
        // rule 15.4
        let graph = Graph::builder("early").task("a").task("b").after("a").build().unwrap();
        let run = lab.start(graph.clone(), json!({"n": 1})).await.unwrap();
        assert_eq!(statuses(&lab, run.id()).await, json!({"a": "pending", "b": "pending"}));
        lab.cancel(run.id(), "enough").await.unwrap();
        assert_eq!(lab.now(run.id()).await.status, Status::Cancelled);
        assert_eq!(statuses(&lab, run.id()).await, json!({"a": "cancelled", "b": "cancelled"}));
        let state: Value = lab.now(run.id()).await.state.to().unwrap();
        assert_eq!(state["input"], json!({"n": 1}));
        // rule 11.2: the new run begins at the beginning, and shows that.
        let again = lab.restart(run.id()).await.unwrap();
        assert_eq!(statuses(&lab, again).await, json!({"a": "pending", "b": "pending"}));
        let engine = lab.engine().graph(&graph).task("a", echo).task("b", echo).start().await.unwrap();
        assert_eq!(lab.ended(again).await.status, Status::Done);
        assert_eq!(statuses(&lab, again).await, json!({"a": "done", "b": "done"}));
        assert_eq!(statuses(&lab, run.id()).await, json!({"a": "cancelled", "b": "cancelled"}));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_forced_cancel_shows_the_steps_of_the_run_and_of_its_graphs_as_cancelled(lab: Lab) {
        // rules 11.1 and 15.4
        let inner = Graph::builder("within").task("slow").task("after").after("slow").build().unwrap();
        let graph = Graph::builder("around").task("first").graph("g", &inner).after("first")
            .wait_for_event("e", Event::new("x"), hours(1)).after("first").task("last").after("g").build().unwrap();
        let gate = Gate::closed();
        let at_gate = gate.clone();
        let engine = lab.engine().graph(&graph).task("first", echo)
            .task("slow", move |_: Value| { let gate = at_gate.clone(); async move { gate.pass().await; Ok(json!(1)) } })
            .start().await.unwrap();
        let run = lab.start(graph, json!(7)).await.unwrap();
        gate.reached_by(1).await;
        let ran = json!({"first": "done", "g": "running", "e": "running", "last": "pending"});
        eventually("the run to show how far it came", async || statuses(&lab, run.id()).await == ran).await;
        let all = children(&lab, run.id()).await;
        let within = all.iter().find(|child| child.machine.as_str() == "graph/within").unwrap().id;
        lab.cancel(run.id(), "enough").force().await.unwrap();
        assert_eq!(lab.now(run.id()).await.status, Status::Cancelled);
        assert_eq!(statuses(&lab, run.id()).await, json!({"first": "done", "g": "cancelled", "e": "cancelled", "last": "cancelled"}));
        let state: Value = lab.now(run.id()).await.state.to().unwrap();
        assert_eq!(state["steps"]["first"]["output"], json!(7));
        assert_eq!(lab.now(within).await.status, Status::Cancelled);
        assert_eq!(statuses(&lab, within).await, json!({"slow": "cancelled", "after": "cancelled"}));
        gate.open();
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_run_whose_workers_died_too_often_shows_its_steps_as_cancelled(lab: Lab) {
        // rules 5.7 and 15.4
        let graph = Graph::builder("deadly").task("a").task("b").after("a").build().unwrap();
        let run = lab.start(graph.clone(), json!(1)).max_deaths(1).await.unwrap();
        let store = lab.store().await;
        assert_eq!(claim(&store, &graph, "mortal").await.1.len(), 1);
        assert_eq!(claim(&store, &graph, "mortal").await.1.len(), 0, "its death was the last that the run may have");
        let ended = lab.ended(run.id()).await;
        assert_eq!(ended.status, Status::Failed);
        assert!(ended.last_error.clone().unwrap().contains("the worker died once"));
        assert_eq!(statuses(&lab, run.id()).await, json!({"a": "cancelled", "b": "cancelled"}));
    }
}

on_every_store! {
    async fn a_run_that_fails_of_a_taken_key_shows_its_steps_as_cancelled(lab: Lab) {
        // rules 2.8 and 15.4
        let graph = Graph::builder("keyed").task("a").wait_for_signal("s", "go").after("a").task("b").after("s").build().unwrap();
        let scope: Scope = [Status::Runnable].into_iter().collect();
        let engine = lab.engine().graph(&graph).task("a", echo).start().await.unwrap();
        let run = lab.start(graph.clone(), json!(1)).key("order:1").scope(scope).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        let holder = lab.start(graph, json!(2)).key("order:1").scope(scope).await.unwrap();
        lab.signal(run.id(), "go", abide::message::Arguments::default()).await.unwrap();
        let ended = lab.ended(run.id()).await;
        assert_eq!(ended.status, Status::Failed);
        assert!(ended.last_error.clone().unwrap().contains("order:1"));
        assert_eq!(statuses(&lab, run.id()).await, json!({"a": "done", "s": "cancelled", "b": "cancelled"}));
        assert_eq!(statuses(&lab, holder.id()).await, json!({"a": "pending", "s": "pending", "b": "pending"}));
    }
}
