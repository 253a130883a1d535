//! Workflows that continue as new, and those that are restarted.

use abide_core::model::{
    CommandStatus, Committed, HistoryEvent, InstanceId, Kind, OperationKind, Sequence, Start,
    Status, Then,
};

use super::build::{json, key, keyed, lane, name, updates};
use super::coding::{Coded, awaiting, awaiting_children, child_starts, ended, opened, workflow};
use super::lab::{Lab, command_ids};
use crate::Op;

fn keyed_workflow() -> Start {
    Start {
        key: Some(key("k")),
        ..workflow()
    }
}

fn anew(version: Option<u32>) -> Then {
    Then::ContinueAsNew {
        state: json("{\"round\":2}"),
        version,
    }
}

async fn newest(lab: &Lab) -> InstanceId {
    lab.find(key("k")).await.unwrap().id
}

pub async fn it_continues_as_new_with_all_that_is_pending(lab: Lab) {
    // rules 2.4 and 12.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed_workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let a = lab.signal(first, "a").await;
    let update = lab.update(first).await;
    let b = lab.signal(first, "b").await;
    let turn = Coded::then(anew(None))
        .tells(vec![opened(1, OperationKind::Signal, "a")])
        .takes(&[&a]);
    let answer = lab.commit(claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Continued));
    let second = newest(&lab).await;
    assert_ne!(first, second);
    assert_eq!(lab.inbox(second).await, [update.id, b.id]);
    assert!(lab.inbox(first).await.is_empty());
    let found = lab.get(second).await;
    assert_eq!(
        (found.kind, found.run.number, found.run.first),
        (Kind::Workflow, 2, Some(first))
    );
    assert_eq!(found.state.as_str(), "{\"round\":2}");
    assert_eq!((found.step.as_str(), found.step_seq), ("start", 1));
    assert_eq!((found.inbox.signals, found.inbox.updates), (1, 1));
    assert_eq!(
        (found.inbox.sequence, found.inbox.cursor),
        (Sequence(3), Sequence(1))
    );
    assert_eq!(lab.get(first).await.state.as_str(), "{\"input\":1}");
    let taken = lab.record(a.id).await;
    assert_eq!(
        (taken.status, taken.instance),
        (CommandStatus::Applied, Some(first)),
        "what was taken stays with the run that did"
    );
    let events = lab.events(first).await;
    let continued = HistoryEvent::Continued {
        run_id: second,
        run_number: 2,
    };
    assert_eq!(events.last().unwrap().what, continued);
    assert!(lab.kinds(second).await.is_empty(), "its history is its own");
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), second);
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    let turn = Coded::parks(awaiting(1, &["b"])).answers(&[update.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable), "it is there");
}

pub async fn it_may_go_on_in_another_version(lab: Lab) {
    // rules 2.4 and 2.6
    let worker = lab.worker("w").await;
    lab.coded(worker, keyed_workflow(), Coded::then(anew(Some(2))))
        .await;
    assert!(lab.claim_some(worker, 1).await.is_empty());
    let lanes = vec![lane("m", 2)];
    let claimed = lab.claim_from(worker, "default", lanes, 1).await;
    assert_eq!((claimed[0].version, claimed[0].kind), (2, Kind::Workflow));
}

pub async fn children_that_it_leaves_behind_do_not_wake_the_next_run(lab: Lab) {
    // rules 2.4 and 10.2
    let worker = lab.worker("w").await;
    let turn = Coded::then(anew(None)).starts(1, child_starts(2), 0);
    let first = lab.coded(worker, keyed_workflow(), turn).await;
    let second = newest(&lab).await;
    let turn = Coded::parks(awaiting_children(1)).starts(1, child_starts(1), 1);
    lab.turn(worker, second, turn).await;
    lab.end_children(worker, 2).await;
    let found = lab.get(second).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
    let last = lab.events(first).await.pop().unwrap();
    assert_eq!(
        last.what.kind(),
        "continued",
        "nothing is recorded after its end"
    );
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(second).await, Status::Runnable);
}

pub async fn a_failed_one_is_restarted_from_what_it_began_with(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let stop = Then::Stop {
        reason: "no".into(),
    };
    let turn = Coded::then(stop).tells(vec![opened(1, OperationKind::Now, "now")]);
    let id = lab.coded(worker, keyed_workflow(), turn).await;
    let run = lab.restarted(id).await;
    let found = lab.get(run).await;
    assert_eq!((found.kind, found.run.number), (Kind::Workflow, 2));
    assert_eq!(found.state.as_str(), "{\"input\":1}");
    assert!(found.history && lab.kinds(run).await.is_empty());
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.kind), (run, Kind::Workflow));
    let answer = lab.commit(claimed.claim, Coded::then(ended()).into()).await;
    assert_eq!(answer, Committed::Moved(Status::Done));
}

pub async fn what_was_reserved_is_opened_as_what_it_is_started_as(lab: Lab) {
    // rules 2.6 and 2.7
    let worker = lab.worker("w").await;
    lab.run(Op::Reserve(vec![(name("m"), key("k"))])).await;
    let id = lab.start(keyed_workflow()).await;
    let found = lab.get(id).await;
    assert_eq!((found.kind, found.history), (Kind::Workflow, true));
    assert_eq!(lab.claim(worker).await.kind, Kind::Workflow);
}

pub async fn a_key_that_was_freed_is_started_anew_as_what_it_is_started_as(lab: Lab) {
    // rules 2.2 and 2.6
    let worker = lab.worker("w").await;
    lab.coded(worker, keyed_workflow(), Coded::then(ended()))
        .await;
    let machine = lab.start(keyed("k")).await;
    assert_eq!(lab.get(machine).await.kind, Kind::Machine);
}
