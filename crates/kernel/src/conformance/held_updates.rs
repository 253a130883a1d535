//! Updates that a workflow's code knows of and has not answered: they stay pending, and wake nothing.

use abide_core::model::{
    CommandStatus, Committed, InstanceId, Operated, Park, Status, Then, WorkerId,
};

use super::build::{MINUTE, cancelling, commit, json, updates};
use super::coding::{Coded, awaiting, condition, ended, go_on, keeping, sleep, unfit, workflow};
use super::invariants::examined;
use super::lab::{Lab, command_ids};

/// A workflow that waits for the signal `paid`.
async fn parked(lab: &Lab, worker: WorkerId) -> InstanceId {
    lab.under(updates()).await;
    let turn = Coded::parks(awaiting(1, &["paid"]));
    lab.coded(worker, workflow(), turn).await
}

/// Checks that it is where it should be, and that no check finds a problem with it.
async fn is_at_rest(lab: &Lab, worker: WorkerId, id: InstanceId, held: u32) {
    let found = lab.get(id).await;
    assert_eq!((found.inbox.updates, found.aside), (held, None));
    assert!(
        lab.claim_some(worker, 1).await.is_empty(),
        "nothing woke it"
    );
    assert_ne!(lab.liveness(id).await.name(), "repair_needed");
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
    assert_eq!(examined(&*lab.store).await.unwrap(), [""; 0]);
    assert_eq!(lab.get(id).await, found);
}

pub async fn an_update_that_the_code_holds_stays_pending_and_does_not_wake_it(lab: Lab) {
    // rules 9.1, 9.2 and 13.1
    let worker = lab.worker("w").await;
    for (park, status) in [
        (awaiting(1, &["paid"]), Status::AwaitingSignal),
        (condition(1, "ready"), Status::AwaitingSignal),
        (sleep(1, lab.now() + MINUTE), Status::Scheduled),
    ] {
        let id = parked(&lab, worker).await;
        let update = lab.update(id).await;
        let claimed = lab.claim(worker).await;
        assert!(claimed.aside);
        assert_eq!(command_ids(&claimed.updates), [update.id]);
        let turn = Coded::parks(park).holds(1);
        let answer = lab.commit(claimed.claim, turn.into()).await;
        assert_eq!(answer, Committed::Moved(status));
        is_at_rest(&lab, worker, id, 1).await;
        let record = lab.record(update.id).await;
        assert_eq!(
            (record.status, record.closed_at),
            (CommandStatus::Accepted, None)
        );
        // A signal that is not waited for changes nothing of that.
        lab.signal(id, "other").await;
        is_at_rest(&lab, worker, id, 1).await;
        // Another update does, and the claim brings both.
        let second = lab.update(id).await;
        let claimed = lab.claim(worker).await;
        assert_eq!(command_ids(&claimed.updates), [update.id, second.id]);
        let turn = Coded::parks(awaiting(1, &["paid"])).answers(&[second.id]);
        lab.commit(claimed.claim, turn.holds(1).into()).await;
        is_at_rest(&lab, worker, id, 1).await;
        let record = lab.record(second.id).await;
        assert_eq!(record.status, CommandStatus::Completed);
    }
}

pub async fn a_signal_behind_a_held_update_is_taken_and_brings_it_along(lab: Lab) {
    // rules 9.1 and 9.4
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let update = lab.update(id).await;
    lab.turn(worker, id, Coded::parks(awaiting(1, &["paid"])).holds(1))
        .await;
    let paid = lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    assert!(!claimed.aside);
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    let turn = Coded::then(ended()).takes(&[&paid]).answers(&[update.id]);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Done));
    let record = lab.record(update.id).await;
    assert_eq!(
        (record.status, record.result),
        (CommandStatus::Completed, Some(json("{\"ok\":1}")))
    );
}

pub async fn one_that_comes_while_the_code_runs_wakes_it_beside_those_that_it_holds(lab: Lab) {
    // rules 7.1 and 9.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let first = lab.update(id).await;
    let claimed = lab.claim(worker).await;
    let second = lab.update(id).await;
    let turn = Coded::parks(awaiting(1, &["paid"])).holds(1);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [first.id, second.id]);
    let turn = Coded::parks(awaiting(1, &["paid"])).holds(2);
    lab.commit(claimed.claim, turn.into()).await;
    is_at_rest(&lab, worker, id, 2).await;
}

pub async fn code_that_goes_on_keeps_its_claim_when_it_holds_all_that_is_pending(lab: Lab) {
    // rules 4.3 and 9.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let turn = Coded::then(go_on()).holds(1);
    let mut each = lab
        .commit_all(vec![keeping(commit(claim, turn.clone().into()))])
        .await;
    let Some(Committed::Kept(claim, inbox)) = each.pop() else {
        panic!("the claim is kept")
    };
    assert_eq!(inbox.updates, 1);
    lab.update(id).await;
    let each = lab
        .commit_all(vec![keeping(commit(claim, turn.into()))])
        .await;
    assert_eq!(each, [Committed::Moved(Status::Runnable)]);
    assert_eq!(lab.claim(worker).await.updates.len(), 2);
}

pub async fn a_cancellation_reaches_code_that_holds_updates(lab: Lab) {
    // rules 9.1, 9.2 and 11.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let update = lab.update(id).await;
    lab.turn(worker, id, Coded::parks(awaiting(1, &["paid"])).holds(1))
        .await;
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelling { id, children: 0 });
    let claimed = lab.claim(worker).await;
    let [_, cancel] = &claimed.updates[..] else {
        panic!("both are there: {:?}", claimed.updates)
    };
    let turn = Coded::then(Then::Cancelled {
        reason: "no longer wanted".into(),
    });
    let turn = turn.answers(&[cancel.id]);
    lab.commit(claimed.claim, turn.into()).await;
    let record = lab.record(update.id).await;
    assert_eq!(record.status, CommandStatus::Failed);
    assert!(record.error.unwrap().contains("cancelled"));
}

pub async fn a_blocked_workflow_has_them_when_it_is_tried_again(lab: Lab) {
    // rules 9.1 and 12.4
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let update = lab.update(id).await;
    lab.turn(worker, id, Coded::parks(awaiting(1, &["paid"])).holds(1))
        .await;
    lab.signal(id, "paid").await;
    lab.turn(worker, id, Coded::then(unfit())).await;
    assert_eq!(lab.liveness(id).await.name(), "replay_blocked");
    assert!(lab.claim_some(worker, 1).await.is_empty());
    let repaired = lab.repair(id).await;
    assert_eq!(repaired.outcome(), "repair_dispatched");
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [update.id]);
}

pub async fn its_deadline_wakes_it_with_what_it_holds(lab: Lab) {
    // rules 7.5 and 9.1
    let worker = lab.worker("w").await;
    let id = parked(&lab, worker).await;
    let update = lab.update(id).await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(1, &["paid"])
    };
    lab.turn(worker, id, Coded::parks(park).holds(1)).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert!(claimed.timed_out && !claimed.aside);
    assert_eq!(command_ids(&claimed.updates), [update.id]);
}
