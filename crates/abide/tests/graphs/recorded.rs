//! The steps in the history of a graph's run, and in the records of its signals.

use abide::history::HistoryEvent;
use abide::model::{CommandStatus, Json, Name};
use abide::time::hours;
use abide::{Graph, Status};
use serde_json::{Value, json};

use crate::common::Lab;

/// The operations in a history, each with the kind of its event and the step that it belongs to.
async fn recorded_steps(
    lab: &Lab,
    of: abide::InstanceId,
) -> Vec<(&'static str, Option<u32>, String)> {
    let entries = lab.events(of).await.into_iter();
    let recorded = entries.filter_map(|entry| {
        let kind = entry.what.kind();
        let (operation, step) = match entry.what {
            HistoryEvent::OperationOpened(opened) => (Some(opened.operation), opened.graph_step),
            HistoryEvent::OperationCompleted(completed) => {
                (completed.operation, completed.graph_step)
            }
            HistoryEvent::SignalApplied {
                operation,
                graph_step,
                ..
            } => (operation, graph_step),
            _ => return None,
        };
        Some((kind, operation, step.map_or_else(String::new, String::from)))
    });
    recorded.collect()
}

on_every_store! {
    async fn the_history_names_the_step_of_each_operation(lab: Lab) {
        // rules 7.6, 15.4 and 16.1
        let graph = Graph::builder("approval")
            .task("make")
            .wait_for_signal("größe", "go").after("make")
            .wait_for_signal("color", "go").timeout(hours(1)).after("make")
            .build().unwrap();
        let engine = lab.engine().graph(&graph)
            .task("make", |value: Value| async move { Ok::<_, abide::BoxError>(value) })
            .start().await.unwrap();
        let run = lab.start(graph, json!(null)).await.unwrap();
        let id = run.id();
        lab.until(id, "to wait for signals", |one| one.status == Status::AwaitingSignal && one.waits().len() == 2).await;
        let waits = lab.now(id).await.waits().to_vec();
        let ids: Vec<String> = waits.iter().map(|wait| wait.id.to_string()).collect();
        assert_eq!(ids, [format!("wait:{id}:2"), format!("wait:{id}:3")]);
        for n in [1, 2] {
            lab.signal(id, "go", abide::message::Arguments::Positional(vec![Json::of(&n).unwrap()])).await.unwrap();
        }
        assert_eq!(lab.came_to(&run).await, json!({"größe": 1, "color": 2}));
        let mut recorded = recorded_steps(&lab, id).await;
        recorded.sort();
        let of = |kind: &'static str, number: u32, step: &str| (kind, Some(number), step.to_owned());
        let mut expected = Vec::new();
        for (number, step) in [(1, "make"), (2, "größe"), (3, "color")] {
            expected.push(of("operation_opened", number, step));
            expected.push(of("operation_completed", number, step));
            if number > 1 {
                expected.push(of("signal_applied", number, step));
            }
        }
        expected.sort();
        assert_eq!(recorded, expected);
        let mut records = lab.commands(id, None, 10).await.unwrap().items;
        records.reverse();
        let of = |one: abide::model::Command| (one.status, one.operation, one.graph_step, one.wait_id.unwrap().to_string());
        let records: Vec<_> = records.into_iter().map(of).collect();
        let step = |text: &str| Some(Name::new(text).unwrap());
        assert_eq!(records, [
            (CommandStatus::Applied, Some(2), step("größe"), format!("wait:{id}:2")),
            (CommandStatus::Applied, Some(3), step("color"), format!("wait:{id}:3")),
        ]);
        engine.shutdown().await;
    }
}
