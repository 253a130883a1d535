//! An event is before a wait or in it; a wait that looks back takes the newest that was before it.

use abide_core::model::{
    Cause, Committed, EventWait, HistoryEvent, InstanceId, Operator, Status, WorkerId,
};

use super::build::{MINUTE, SECOND, done, plain};
use super::coding::{Coded, workflow};
use super::eventing::{
    any, arguments_of, awaits, back, known_as, order, ordered, parks, publishing, that,
};
use super::lab::Lab;

/// Lets one wait; what it was woken by at once, if by anything.
pub(super) async fn found(lab: &Lab, worker: WorkerId, waits: Vec<EventWait>) -> Option<String> {
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let answer = lab.commit(claim, awaits(waits, &["s"])).await;
    let waiters = lab.waits_for_events().await;
    match answer {
        Committed::Moved(Status::AwaitingSignal) => {
            assert!(waiters.contains(&id));
            assert!(lab.inbox(id).await.is_empty());
            lab.signal(id, "s").await;
            lab.step(worker, done()).await;
            None
        }
        Committed::Moved(Status::Runnable) => {
            assert!(!waiters.contains(&id));
            let claimed = lab.claim(worker).await;
            assert_eq!((claimed.claim.id(), claimed.cause), (id, Cause::Event));
            let [event] = claimed.awaited.as_slice() else {
                panic!("{claimed:?}")
            };
            let source = event.source.clone();
            lab.commit(claimed.claim, done()).await;
            source
        }
        other => panic!("{other:?}"),
    }
}

pub async fn an_event_before_the_wait_is_not_in_it(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    assert_eq!(lab.tell(ordered(1)).await, 0);
    assert_eq!(found(&lab, worker, vec![order(1)]).await, None);
    assert_eq!(found(&lab, worker, vec![any("order")]).await, None);
}

pub async fn the_newest_within_the_time_is_taken(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    for (event_id, id) in [("a", 1), ("b", 1), ("c", 2), ("d", 1), ("e", 2)] {
        lab.tell(known_as(event_id, ordered(id))).await;
        lab.pass(SECOND);
    }
    let order_back = |id, ms| vec![back(order(id), ms)];
    let one = found(&lab, worker, order_back(1, 60_000)).await;
    assert_eq!(one.as_deref(), Some("d"));
    let other = found(&lab, worker, order_back(2, 60_000)).await;
    assert_eq!(other.as_deref(), Some("e"));
    assert_eq!(found(&lab, worker, order_back(3, 60_000)).await, None);
    // To the very moment, and not a moment longer.
    let exact = found(&lab, worker, order_back(1, 2_000)).await;
    assert_eq!(exact.as_deref(), Some("d"));
    assert_eq!(found(&lab, worker, order_back(1, 1_999)).await, None);
    assert_eq!(found(&lab, worker, order_back(1, 0)).await, None);
    let ever = found(&lab, worker, order_back(1, u64::MAX)).await;
    assert_eq!(ever.as_deref(), Some("d"));
}

pub async fn of_several_waits_that_look_back_the_newest_event_counts(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    for (event_id, id) in [("a", 1), ("b", 2), ("c", 3)] {
        lab.tell(known_as(event_id, ordered(id))).await;
    }
    lab.tell(known_as("p", publishing("paid", "1"))).await;
    for (waits, newest) in [
        (vec![back(order(1), 9), back(order(2), 9)], "b"),
        (vec![back(order(2), 9), back(order(1), 9)], "b"),
        (vec![order(3), back(order(1), 9), order(2)], "a"),
        (vec![back(any("order"), 9), back(order(1), 9)], "c"),
        (vec![back(order(1), 9), back(any("paid"), 9), order(3)], "p"),
        (vec![back(any("paid"), 9), back(any("order"), 9)], "p"),
    ] {
        let met = found(&lab, worker, waits).await;
        assert_eq!(met.as_deref(), Some(newest));
    }
}

pub async fn it_is_found_behind_many_that_do_not_match(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    lab.tell(known_as("old", ordered(1))).await;
    lab.tell(known_as("wanted", ordered(1))).await;
    let others = (0..1_200).map(|at| ordered(2 + at)).collect();
    lab.publish_all(others).await;
    let met = found(&lab, worker, vec![back(order(1), 1)]).await;
    assert_eq!(met.as_deref(), Some("wanted"));
    assert_eq!(found(&lab, worker, vec![back(order(-1), 1)]).await, None);
    let met = found(&lab, worker, vec![back(order(1201), 1)]).await;
    assert!(met.is_some());
}

pub async fn what_it_finds_is_recorded_like_any_other_match(lab: Lab) {
    // rules 7.6, 14.6 and 16.1
    let worker = lab.worker("w").await;
    lab.tell(known_as("e", ordered(1))).await;
    lab.pass(SECOND);
    let id = lab.start(plain()).await;
    let waits = awaits(vec![back(order(1), 5_000)], &[]);
    assert_eq!(lab.step(worker, waits).await, Status::Runnable);
    assert_eq!(
        lab.kinds(id).await,
        ["step_completed", "wait_opened", "event_matched"]
    );
    let events: Vec<_> = lab.events(id).await;
    let (HistoryEvent::WaitOpened { wait_id: one, .. }, HistoryEvent::EventMatched { wait_id, .. }) =
        (&events[1].what, &events[2].what)
    else {
        panic!("{events:?}")
    };
    assert_eq!(one.as_ref(), Some(wait_id));
    lab.pass(2 * MINUTE);
    assert_eq!(lab.fire().await, 0, "no deadline is left");
    let claimed = lab.claim(worker).await;
    assert!(!claimed.timed_out);
    let came = &claimed.awaited[0];
    assert_eq!(came.wait_id.as_ref(), Some(wait_id));
    assert_eq!(came.arguments, arguments_of("{\"id\":1}"));
}

pub async fn it_waits_when_nothing_was_there(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    lab.tell(ordered(2)).await;
    let waits = awaits(vec![back(order(1), 60_000)], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    assert_eq!(lab.tell(ordered(2)).await, 0);
    assert_eq!(lab.tell(ordered(1)).await, 1);
    assert_eq!(lab.claim(worker).await.claim.id(), id);
}

pub async fn what_is_duplicate_is_not_newer(lab: Lab) {
    // rules 14.1 and 14.6
    let worker = lab.worker("w").await;
    lab.tell(known_as("e", ordered(1))).await;
    lab.pass(MINUTE);
    assert!(lab.publish(known_as("e", ordered(1))).await.duplicate);
    assert_eq!(found(&lab, worker, vec![back(order(1), 1_000)]).await, None);
}

pub async fn a_workflow_looks_back_too(lab: Lab) {
    // rules 12.2 and 14.6
    let worker = lab.worker("w").await;
    lab.tell(known_as("e", ordered(1))).await;
    lab.pass(SECOND);
    let events = vec![
        (4, order(1)),
        (
            6,
            back(that(order(1), "x", Operator::Exists, "false"), 2_000),
        ),
    ];
    let park = parks(events, lab.now() + MINUTE);
    let id: InstanceId = lab.coded(worker, workflow(), Coded::parks(park)).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert!(lab.waiters().await.is_empty());
    let claimed = lab.claim(worker).await;
    let wait_id = claimed.awaited[0].wait_id.clone().unwrap();
    assert_eq!(wait_id.as_str(), format!("wait:{id}:6"));
}
