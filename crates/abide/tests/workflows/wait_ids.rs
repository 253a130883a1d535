//! The waits of a workflow's code, each with an id of its own; and what a workflow was woken for.

use abide::InstanceId;
use abide::client::{Receipt, WaitsFilter, new_signal};
use abide::history::HistoryEvent;
use abide::model::{Command, CommandId, CommandStatus, ResumeKind, ResumeSource};
use abide::prelude::*;
use abide::workflow::OneOf;
use serde_json::{Value, json};

use crate::common::Lab;

const X: Signal<u32> = Signal::new("x");
const Y: Signal<u32> = Signal::new("y");
const GO: Signal<u32> = Signal::new("go");
const RUN: Flow<(), Value> = Flow::new("run");

fn own(id: InstanceId, operation: u32) -> String {
    format!("wait:{id}:{operation}")
}

/// All that was sent to a run, oldest first: its name, its wait's id, and the operation that took it.
async fn taken(lab: &Lab, id: InstanceId) -> Vec<(String, String, Option<u32>)> {
    let mut items = lab.commands(id, None, 100).await.unwrap().items;
    items.reverse();
    let of = |one: Command| {
        assert_eq!(one.status, CommandStatus::Applied);
        let wait_id = one.wait_id.unwrap().to_string();
        (one.name.to_string(), wait_id, one.operation)
    };
    items.into_iter().map(of).collect()
}

/// The ids of each signal in a history: received, then applied.
async fn recorded_ids(lab: &Lab, id: InstanceId) -> Vec<(CommandId, String)> {
    let entries = lab.events(id).await.into_iter();
    let ids = entries.filter_map(|entry| match entry.what {
        HistoryEvent::SignalReceived {
            command_id,
            wait_id,
            ..
        }
        | HistoryEvent::SignalApplied {
            command_id,
            wait_id,
            ..
        } => Some((command_id, wait_id.to_string())),
        _ => None,
    });
    ids.collect()
}

/// The open waits of a run: operation, name and id.
async fn open(lab: &Lab, id: InstanceId) -> Vec<(u32, String, String)> {
    let wait = lab.describe(id).await.unwrap().unwrap().wait.unwrap();
    let waits = wait.waits.into_iter();
    let waits = waits.map(|one| {
        (
            one.operation,
            one.name.unwrap().to_string(),
            one.id.to_string(),
        )
    });
    waits.collect()
}

on_every_store! {
    async fn waits_side_by_side_are_distinct_from_end_to_end(lab: Lab) {
        // rules 7.6 and 12.2
        let code = |wf: Workflow, (): ()| async move {
            let (x, y) = wf.all((wf.signal(X), wf.signal(Y))).await;
            Ok(json!([x?, y?]))
        };
        let engine = lab.engine().workflow(RUN, code).start().await.unwrap();
        let run = lab.start(RUN, ()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let id = run.id();
        assert_eq!(open(&lab, id).await, [(2, "x".into(), own(id, 2)), (3, "y".into(), own(id, 3))]);
        let filter = WaitsFilter { instance: Some(id), ..WaitsFilter::default() };
        let listed = lab.waits(&filter, None, 10).await.unwrap().items.into_iter();
        let listed: Vec<_> = listed.map(|one| (one.name, one.operation, one.wait_id.unwrap().to_string())).collect();
        assert_eq!(listed, [("x".into(), Some(2), own(id, 2)), ("y".into(), Some(3), own(id, 3))]);
        lab.signal(&run, Y, &2).await.unwrap();
        lab.signal(&run, X, &1).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([1, 2]));
        assert_eq!(taken(&lab, id).await, [("y".into(), own(id, 3), Some(3)), ("x".into(), own(id, 2), Some(2))]);
        let mut ids = recorded_ids(&lab, id).await;
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2, "received and applied show one id: {ids:?}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn two_of_one_name_have_the_ids_of_the_waits_that_take_them(lab: Lab) {
        // rules 7.6 and 12.2
        for kept in [0, 100] {
            let code = |wf: Workflow, (): ()| async move {
                let (a, b) = wf.all((wf.signal(GO), wf.signal(GO))).await;
                wf.sleep(millis(1)).await?;
                Ok(json!([a?, b?, wf.signal(GO).await?]))
            };
            let engine = lab.engine().workflow(RUN, code).workflows_kept(kept).start().await.unwrap();
            let run = lab.start(RUN, ()).await.unwrap();
            let id = run.id();
            lab.until_status(id, Status::AwaitingSignal).await;
            // All in one commit: the third is left over, whatever the engine does meanwhile.
            let goes = (1..=3).map(|n| new_signal(id, GO, &n));
            let receipts = lab.signal_all(goes).await.unwrap().into_iter();
            let receipts: Vec<Receipt> = receipts.collect::<Result<_, _>>().unwrap();
            let ids: Vec<String> = receipts.iter().map(|one| one.record.wait_id.as_ref().unwrap().to_string()).collect();
            assert_eq!(ids, [own(id, 2), own(id, 3), format!("signal:{}", receipts[2].record.id)]);
            assert_eq!(lab.came_to(&run).await, json!([1, 2, 3]));
            let taken = taken(&lab, id).await;
            let expected: Vec<_> = ids.into_iter().zip([2, 3, 5]).map(|(id, operation)| ("go".to_owned(), id, Some(operation))).collect();
            assert_eq!(taken, expected);
            engine.shutdown().await;
        }
    }
}

/// Takes the first of two, and then the second.
async fn one_then_the_other(wf: Workflow, (): ()) -> Result<Value, BoxError> {
    let first = match wf.select((wf.signal(X), wf.signal(Y))).await {
        OneOf::First(x) => json!(["x", x?]),
        OneOf::Second(y) => json!(["y", y?]),
    };
    wf.sleep(millis(1)).await?;
    Ok(json!([first, wf.signal(Y).await?]))
}

on_every_store! {
    async fn a_signal_for_a_branch_that_lost_keeps_its_id(lab: Lab) {
        // rules 7.6, 12.2 and 13.1
        let engine = lab.engine().workflow(RUN, one_then_the_other).start().await.unwrap();
        let run = lab.start(RUN, ()).await.unwrap();
        let id = run.id();
        lab.until_status(id, Status::AwaitingSignal).await;
        engine.shutdown().await;
        // Both come before it runs: the first wins.
        let x = lab.signal(&run, X, &1).await.unwrap();
        let y = lab.signal(&run, Y, &2).await.unwrap();
        assert_eq!(y.record.wait_id.unwrap().as_str(), own(id, 3));
        let view = lab.describe(id).await.unwrap().unwrap();
        let wait = view.wait.unwrap();
        assert_eq!((view.instance.status, wait.id.unwrap().as_str()), (Status::Runnable, own(id, 2).as_str()));
        let source = ResumeSource { command_id: Some(x.record.id), kind: ResumeKind::Signal };
        assert_eq!(wait.resume_source, Some(source));
        let engine = lab.engine().workflow(RUN, one_then_the_other).start().await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!([["x", 1], 2]));
        assert_eq!(taken(&lab, id).await, [("x".into(), own(id, 2), Some(2)), ("y".into(), own(id, 3), Some(5))]);
        assert!(lab.describe(id).await.unwrap().unwrap().wait.is_none());
        engine.shutdown().await;
    }
}
