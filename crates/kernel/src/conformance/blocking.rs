//! Blocked workflows: the code does not fit the history, and nothing is lost until it does.

use abide_core::model::{
    Cause, CommandStatus, Committed, HistoryEvent, InstanceId, Kind, Operated, Park, Start, Status,
    WorkerId,
};
use abide_core::rules::liveness::{Code, Liveness};

use super::build::{MINUTE, cancelling, lane, updates, within};
use super::coding::{
    Coded, awaiting, awaiting_children, child_starts, ended, go_on, sleep, unfit, workflow,
};
use super::invariants::examined;
use super::lab::{Lab, OVER_LEASE, command_ids, ids};
use crate::{Answer, Op};

const WHY: &str = "at operation 2 the history has sleep, and the code asks for step \"charge\": deploy the code that fits (build w)";

async fn blocked(lab: &Lab, worker: WorkerId, start: Start) -> InstanceId {
    let id = lab.coded(worker, start, Coded::then(unfit())).await;
    assert!(lab.get(id).await.is_blocked());
    id
}

async fn release(
    lab: &Lab,
    machine: &str,
    after: InstanceId,
    limit: usize,
) -> (usize, Option<InstanceId>) {
    let op = Op::ReleaseBlocked {
        build: None,
        fresh: false,
        lanes: vec![lane(machine, 1)],
        after,
        limit,
    };
    match lab.run(op).await {
        Answer::Released { count, next } => (count, next),
        other => panic!("a release is not answered with {other:?}"),
    }
}

pub async fn code_that_does_not_fit_parks_and_says_both_sides(lab: Lab) {
    // rules 12.4 and 13.1
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let status = lab.turn(worker, id, Coded::then(unfit())).await;
    assert_eq!(status, Status::Scheduled);
    let found = lab.get(id).await;
    assert_eq!((found.due_at, found.worker), (None, None));
    assert_eq!((found.cause, found.kind), (Cause::Replay, Kind::Workflow));
    assert_eq!(found.last_error.as_deref(), Some(WHY));
    assert_eq!(found.finished_at, None, "it is not failed");
    let health = lab.health(id).await;
    let reason = health.reason.expect("it is not well");
    assert_eq!(health.liveness, Liveness::ReplayBlocked);
    assert_eq!(
        (reason.code, reason.text.as_str()),
        (Code::ReplayBlocked, WHY)
    );
    let events = lab.events(id).await;
    let Some(HistoryEvent::ReplayBlocked(blocked)) = events.last().map(|event| &event.what) else {
        panic!("{events:?}")
    };
    assert_eq!(
        (
            blocked.operation,
            blocked.recorded.as_str(),
            blocked.requested.as_str()
        ),
        (2, "sleep", "step \"charge\"")
    );
}

pub async fn nothing_wakes_it_and_nothing_is_lost(lab: Lab) {
    // rules 12.4, 7.1 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting(3, &["paid"])
    };
    let turn = Coded::parks(park.clone()).starts(1, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let first = lab.signal(id, "paid").await;
    lab.turn(worker, id, Coded::then(unfit())).await;
    let before = lab.get(id).await;
    let second = lab.signal(id, "paid").await;
    let update = lab.update(id).await;
    lab.end_children(worker, 1).await;
    lab.pass(MINUTE * 60 * 24 * 365);
    assert_eq!(lab.fire().await, 0, "its deadline does not fire");
    lab.reclaim().await;
    let worker = lab.worker("w").await;
    assert!(lab.claim_some(worker, 9).await.is_empty());
    let after = lab.get(id).await;
    assert!(after.is_blocked() && after.last_error == before.last_error);
    assert_eq!((after.inbox.signals, after.inbox.updates), (2, 1));
    assert_eq!(after.family.pending, 0);
    assert_eq!(after.aside, None);
    assert_eq!(lab.store.next_due().await.unwrap(), None);
    assert!(examined(lab.store.as_ref()).await.unwrap().is_empty());
    assert_eq!(lab.repair(id).await, Operated::RepairDispatched);
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Replay);
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    assert_eq!(claimed.inbox.signals, 2);
    let turn = Coded::parks(park)
        .takes(&[&first, &second])
        .answers(&[update.id]);
    lab.commit(claimed.claim, turn.into()).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.row.status, found.row.last_error),
        (Status::AwaitingSignal, None)
    );
    assert_eq!(lab.record(second.id).await.status, CommandStatus::Applied);
    assert_eq!(lab.fire().await, 1, "its deadline is long past");
}

pub async fn a_turn_that_blocks_does_nothing_else(lab: Lab) {
    // rules 12.3 and 12.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let paid = lab.signal(id, "paid").await;
    let update = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    let turn = Coded::then(unfit())
        .takes(&[&paid])
        .answers(&[update.id])
        .starts(1, child_starts(1), 1);
    for expected in [Committed::Moved, Committed::Repeated] {
        let answer = lab.commit(claim.again(), turn.clone().into()).await;
        assert_eq!(answer, expected(Status::Scheduled));
    }
    assert_eq!(lab.inbox(id).await, [paid.id, update.id]);
    assert_eq!(lab.get(id).await.family.pending, 0);
    assert_eq!(
        lab.kinds(id).await,
        ["signal_received", "update_accepted", "replay_blocked"]
    );
}

pub async fn a_repair_lets_it_be_tried_again_and_says_so(lab: Lab) {
    // rules 11.3 and 12.4
    let worker = lab.worker("w").await;
    let id = blocked(&lab, worker, workflow()).await;
    assert_eq!(lab.repair(id).await, Operated::RepairDispatched);
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
    let found = lab.get(id).await;
    assert_eq!(
        (found.row.status, found.row.last_error),
        (Status::Runnable, None)
    );
    assert_eq!(lab.kinds(id).await, ["replay_blocked", "repaired"]);
    lab.turn(worker, id, Coded::then(unfit())).await;
    assert!(lab.get(id).await.is_blocked(), "it does not fit still");
    assert_eq!(lab.repair(id).await, Operated::RepairDispatched);
    assert_eq!(
        lab.turn(worker, id, Coded::then(ended())).await,
        Status::Done
    );
    assert_eq!(
        lab.kinds(id).await,
        [
            "replay_blocked",
            "repaired",
            "replay_blocked",
            "repaired",
            "done"
        ]
    );
}

pub async fn those_with_code_are_released_page_by_page(lab: Lab) {
    // rule 12.4
    let worker = lab.worker("w").await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(blocked(&lab, worker, workflow()).await);
    }
    let other = Start {
        version: Some(2),
        ..workflow()
    };
    let other = lab.start(other).await;
    let claimed = lab
        .claim_from(worker, "default", vec![lane("m", 2)], 1)
        .await;
    for one in claimed {
        lab.commit(one.claim, Coded::then(unfit()).into()).await;
    }
    let sleeps = lab
        .coded(
            worker,
            workflow(),
            Coded::parks(sleep(1, lab.now() + MINUTE)),
        )
        .await;
    let waits = lab
        .coded(worker, workflow(), Coded::parks(awaiting(1, &["paid"])))
        .await;
    assert_eq!(release(&lab, "n", InstanceId(0), 9).await, (0, None));
    assert_eq!(
        release(&lab, "m", InstanceId(0), 2).await,
        (2, Some(all[1]))
    );
    assert_eq!(release(&lab, "m", all[1], 2).await, (2, Some(all[3])));
    assert_eq!(release(&lab, "m", all[3], 2).await, (1, None));
    assert_eq!(release(&lab, "m", InstanceId(0), 9).await, (0, None));
    assert_eq!(lab.claim_ids(worker, 9).await, all);
    assert!(lab.get(other).await.is_blocked(), "that is another version");
    assert_eq!(lab.status(sleeps).await, Status::Scheduled);
    assert_eq!(lab.status(waits).await, Status::AwaitingSignal);
    for id in all {
        assert_eq!(lab.kinds(id).await, ["replay_blocked", "repaired"]);
    }
}

pub async fn nothing_but_what_is_blocked_is_released(lab: Lab) {
    // rule 12.4
    let worker = lab.worker("w").await;
    let id = blocked(&lab, worker, workflow()).await;
    lab.repair(id).await;
    let ready = lab.get(id).await;
    assert_eq!(release(&lab, "m", InstanceId(0), 9).await, (0, None));
    assert_eq!(lab.get(id).await, ready);
    lab.claim(worker).await;
    let runs = lab.get(id).await;
    assert_eq!(release(&lab, "m", InstanceId(0), 9).await, (0, None));
    assert_eq!(lab.get(id).await, runs);
}

pub async fn a_cancel_ends_it_at_once(lab: Lab) {
    // rules 11.1 and 12.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.coded(worker, workflow(), Coded::then(go_on())).await;
    lab.turn(worker, id, Coded::then(unfit())).await;
    let (paid, update) = (lab.signal(id, "paid").await, lab.update(id).await);
    let cancelled = Operated::Cancelled { id, children: 0 };
    assert_eq!(lab.cancel(cancelling(id)).await, cancelled);
    assert_eq!(lab.status(id).await, Status::Cancelled);
    assert_eq!(lab.record(paid.id).await.status, CommandStatus::Discarded);
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Failed);
    assert_eq!(lab.repair(id).await, Operated::NotActive(Status::Cancelled));
}

pub async fn it_does_not_block_its_partition(lab: Lab) {
    // rules 6.3 and 12.4
    let worker = lab.worker("w").await;
    let start = || Start {
        kind: Some(Kind::Workflow),
        ..within("p")
    };
    let first = lab.start(start()).await;
    let second = lab.start(start()).await;
    lab.turn(worker, first, Coded::then(unfit())).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), second);
    assert_eq!(lab.repair(first).await, Operated::RepairDispatched);
    assert!(
        lab.claim_some(worker, 9).await.is_empty(),
        "it stands behind"
    );
    lab.commit(claimed.claim, Coded::then(ended()).into()).await;
    assert_eq!(
        lab.turn(worker, first, Coded::then(ended())).await,
        Status::Done
    );
}

pub async fn its_parent_waits_for_it(lab: Lab) {
    // rules 10.2 and 12.4
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(1)).starts(1, vec![workflow()], 1);
    let parent = lab.coded(worker, workflow(), turn).await;
    let child = lab.claim(worker).await;
    let id = child.claim.id();
    lab.commit(child.claim, Coded::then(unfit()).into()).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
    lab.repair(id).await;
    lab.turn(worker, id, Coded::then(ended())).await;
    assert_eq!(lab.status(parent).await, Status::Runnable);
}

pub async fn who_dies_while_it_is_tried_again_does_not_block_it(lab: Lab) {
    // rules 5.3 and 12.4
    let worker = lab.worker("dead").await;
    let id = blocked(&lab, worker, workflow()).await;
    lab.repair(id).await;
    assert_eq!(ids(&[lab.claim(worker).await]), [id]);
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.is_blocked()),
        (Status::Runnable, false)
    );
    let worker = lab.worker("w").await;
    assert_eq!(
        lab.turn(worker, id, Coded::then(ended())).await,
        Status::Done
    );
}
