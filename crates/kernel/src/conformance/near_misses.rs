//! Problems that are never called healthy: steps that keep failing, and waits beside which something came that nearly
//! was for them.

use abide_core::model::{
    Declared, InstanceId, Name, Operation, OperationKind, RetrySpec, Status, TriedAgain, WorkerId,
};
use abide_core::rules::liveness::{Code, Liveness, Reason};

use super::build::{MINUTE, SECOND, done, plain, signal, under, updates, wait};
use super::coding::{Coded, awaiting, completed, go_on, sleep, workflow};
use super::eventing::{any, awaits, known_as, order, ordered, parks, publishing};
use super::failing::fail;
use super::lab::Lab;
use crate::{Filter, describe_page};

async fn reason(lab: &Lab, id: InstanceId) -> Option<Reason> {
    lab.health(id).await.reason
}

async fn code(lab: &Lab, id: InstanceId) -> Option<Code> {
    reason(lab, id).await.map(|reason| reason.code)
}

/// Lets time pass until a retry is due, and fires it.
async fn try_again(lab: &Lab) {
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 1);
}

pub async fn a_step_that_failed_more_than_three_times_in_a_row_is_not_healthy(lab: Lab) {
    // rule 13.1
    let retry = RetrySpec {
        max_attempts: 9,
        delay_ms: 1000,
        factor: None,
        max_delay_ms: None,
    };
    let machine = Declared {
        contract: None,
        retry: Some(retry),
        ..under(&updates())
    };
    lab.declare(vec![machine]).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    for _ in 0..3 {
        lab.step(worker, fail("no luck")).await;
        assert_eq!(reason(&lab, id).await, None, "that happens");
        try_again(&lab).await;
    }
    lab.step(worker, fail("no luck")).await;
    let health = lab.health(id).await;
    assert_eq!(health.liveness, Liveness::Scheduled);
    let Reason { code, text, .. } = health.reason.expect("it is not well");
    assert_eq!(code, Code::Failing);
    assert!(text.contains("4 times in a row: no luck"), "{text}");
    // Wherever it stands, and in lists too.
    try_again(&lab).await;
    let all = Filter::default();
    let page = describe_page(&*lab.store, &all, None, 9)
        .await
        .unwrap()
        .items;
    let (_, listed) = page.first().unwrap();
    assert_eq!(listed.liveness, Liveness::Ready);
    assert_eq!(listed.reason.as_ref().unwrap().code, Code::Failing);
    let claim = lab.claim(worker).await.claim;
    let health = lab.health(id).await;
    assert_eq!(health.liveness, Liveness::Running);
    assert_eq!(health.reason.unwrap().code, Code::Failing);
    // It succeeds: the next wait is healthy.
    lab.commit(claim, wait(&["paid"], None)).await;
    assert_eq!(reason(&lab, id).await, None);
}

fn tried_again(attempts: u32, lab: &Lab) -> Operation {
    Operation::TriedAgain(TriedAgain {
        operation: 1,
        name: Name::stored("charge"),
        attempts,
        error: "card declined".into(),
        due_at: lab.now() + SECOND,
        graph_step: None,
        folded: None,
    })
}

pub async fn a_workflow_whose_step_keeps_failing_says_so_until_a_step_ends(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    for attempts in 1..=4 {
        let again = tried_again(attempts, &lab);
        let parks = Coded::parks(sleep(1, lab.now() + SECOND)).tells(vec![again]);
        lab.turn(worker, id, parks).await;
        let expected = (attempts > 3).then_some(Code::Failing);
        assert_eq!(code(&lab, id).await, expected, "{attempts}");
        try_again(&lab).await;
    }
    // Another turn, which knows nothing of that step, does not hide it.
    lab.turn(worker, id, Coded::then(go_on())).await;
    let text = reason(&lab, id).await.unwrap().text;
    assert!(
        text.contains("charge has failed 4 times in a row: card declined"),
        "{text}"
    );
    let ends = completed(1, OperationKind::Step, "charge", "1");
    let ends = Coded::parks(awaiting(2, &["paid"])).tells(vec![ends]);
    lab.turn(worker, id, ends).await;
    assert_eq!(reason(&lab, id).await, None);
}

pub async fn a_signal_of_nearly_the_name_is_shown_and_its_sender_hears_of_it(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let names = ["paid", "approved-by"];
    let id = lab.parked(worker, plain(), &names, None).await;
    for other in ["shipped", "x", "größer"] {
        let delivered = lab.deliver(signal(id, other)).await;
        assert_eq!(delivered.similar, None, "{other}");
        assert_eq!(reason(&lab, id).await, None, "it waits for its wait");
    }
    let slip = lab.deliver(signal(id, "Approved_by")).await;
    assert_eq!(slip.similar.as_ref().map(Name::as_str), Some("approved-by"));
    let slip = slip.record.unwrap();
    let health = lab.health(id).await;
    assert_eq!(health.liveness, Liveness::WaitingForSignal);
    let Reason {
        code,
        text,
        command_id,
    } = health.reason.expect("it is not well");
    assert_eq!((code, command_id), (Code::SimilarSignal, Some(slip.id)));
    assert!(
        text.contains("\"Approved_by\"") && text.contains("\"approved-by\""),
        "{text}"
    );
    // The right one ends the wait, and its sender hears nothing.
    let right = lab.deliver(signal(id, "paid")).await;
    assert_eq!(right.similar, None);
    assert_eq!(reason(&lab, id).await, None);
    // While it does not wait nothing can be a slip.
    assert_eq!(lab.deliver(signal(id, "payed")).await.similar, None);
    lab.step(worker, done()).await;
}

async fn waits_for_order(lab: &Lab, worker: WorkerId) -> InstanceId {
    let id = lab
        .awaiting(worker, plain(), awaits(vec![order(1)], &[]))
        .await;
    lab.pass(SECOND);
    id
}

pub async fn an_event_that_did_not_match_is_shown_and_its_publisher_hears_of_it(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let early = lab.publish(known_as("early", ordered(2))).await;
    assert!(!early.unmatched, "nothing waits for it");
    lab.pass(SECOND);
    let id = waits_for_order(&lab, worker).await;
    assert_eq!(
        reason(&lab, id).await,
        None,
        "that one came before the wait"
    );
    let other = lab.publish(publishing("other", "1")).await;
    assert!(!other.unmatched);
    assert_eq!(reason(&lab, id).await, None, "that is of another type");
    let missed = lab.publish(known_as("näher", ordered(2))).await;
    assert!(missed.unmatched && missed.matched == 0);
    let health = lab.health(id).await;
    assert_eq!(health.liveness, Liveness::WaitingForEvent);
    let Reason { code, text, .. } = health.reason.expect("it is not well");
    assert_eq!(code, Code::UnmatchedEvent);
    assert!(text.contains("\"näher\" of type \"order\""), "{text}");
    let again = lab.publish(known_as("näher", ordered(2))).await;
    assert!(again.duplicate && !again.unmatched);
    let right = lab.publish(ordered(1)).await;
    assert!(!right.unmatched && right.matched == 1);
    assert_eq!(reason(&lab, id).await, None);
    lab.step(worker, done()).await;
}

pub async fn a_workflow_that_waits_for_several_types_shows_the_newest_that_did_not_match(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let until = lab.now() + MINUTE;
    let waits = parks(vec![(1, order(1)), (2, order(3)), (3, any("other"))], until);
    let id = lab.coded(worker, workflow(), Coded::parks(waits)).await;
    lab.pass(SECOND);
    lab.publish(known_as("first", ordered(2))).await;
    lab.publish(known_as("second", ordered(2))).await;
    let text = reason(&lab, id).await.unwrap().text;
    assert!(text.contains("\"second\""), "{text}");
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
}
