//! Claiming: which instances are served, in which order, and what a claim carries.

use abide_core::model::{Cause, Kind, Start, Status, When};

use super::build::{MINUTE, SECOND, done, json, key, lane, later, many, name, plain, urgent};
use super::lab::{Lab, ids};
use crate::{Answer, ClaimRequest, Op};

pub async fn a_queue_is_served_by_priority_then_due_time_then_id(lab: Lab) {
    // rule 6.1
    let now = lab.now();
    let at = |priority, due| Start {
        when: When::At(due),
        ..urgent(priority)
    };
    let starts = vec![
        at(5, now),
        at(-5, now),
        at(0, now),
        at(0, now - SECOND),
        at(0, now),
        at(i16::MAX, now - MINUTE),
        at(i16::MIN, now),
    ];
    let started = lab.start_all(starts).await;
    let order = [6, 1, 3, 2, 4, 0, 5].map(|at| started[at]);
    let worker = lab.worker("w").await;
    assert_eq!(lab.claim_ids(worker, 2).await, order[..2]);
    assert_eq!(lab.claim_ids(worker, 100).await, order[2..]);
}

pub async fn the_order_holds_across_machines_and_versions(lab: Lab) {
    // rule 6.1
    let of = |machine, version, priority| Start {
        machine: name(machine),
        version: Some(version),
        ..urgent(priority)
    };
    let starts = vec![
        of("a", 1, 3),
        of("b", 1, 1),
        of("a", 2, 2),
        of("b", 1, 3),
        of("a", 1, 0),
        of("a", 2, 3),
    ];
    let started = lab.start_all(starts).await;
    let worker = lab.worker("w").await;
    let lanes = || vec![lane("b", 1), lane("a", 2), lane("a", 1)];
    let first = ids(&lab.claim_from(worker, "default", lanes(), 4).await);
    assert_eq!(first, [4, 1, 2, 0].map(|at| started[at]));
    let rest = ids(&lab.claim_from(worker, "default", lanes(), 4).await);
    assert_eq!(rest, [3, 5].map(|at| started[at]));
}

pub async fn a_worker_is_given_only_what_it_has_code_for(lab: Lab) {
    // rule 2.6
    let of = |machine, version| Start {
        machine: name(machine),
        version: Some(version),
        ..plain()
    };
    let started = lab
        .start_all(vec![of("m", 1), of("m", 2), of("n", 1), of("mm", 1)])
        .await;
    let worker = lab.worker("w").await;
    assert_eq!(
        ids(&lab
            .claim_from(worker, "default", vec![lane("m", 2)], 10)
            .await),
        [started[1]]
    );
    assert!(
        lab.claim_from(worker, "default", vec![lane("m", 3), lane("x", 1)], 10)
            .await
            .is_empty()
    );
    let left = lab.get(started[0]).await;
    assert_eq!(
        (left.status, left.attempt, left.worker),
        (Status::Runnable, 0, None)
    );
    assert_eq!(
        ids(&lab
            .claim_from(worker, "default", vec![lane("n", 1), lane("n", 1)], 10)
            .await),
        [started[2]]
    );
}

pub async fn a_queue_gives_only_what_is_in_it(lab: Lab) {
    // rule 6.1
    let slow = lab
        .start(Start {
            queue: Some(name("slow")),
            ..plain()
        })
        .await;
    let plain = lab.start(plain()).await;
    let worker = lab.worker("w").await;
    assert_eq!(
        ids(&lab.claim_from(worker, "slow", vec![lane("m", 1)], 10).await),
        [slow]
    );
    assert!(
        lab.claim_from(worker, "slo", vec![lane("m", 1)], 10)
            .await
            .is_empty()
    );
    assert_eq!(lab.claim_ids(worker, 10).await, [plain]);
}

pub async fn nothing_is_claimed_twice(lab: Lab) {
    // rule 6.1
    let started = lab.start_all(many(3)).await;
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    assert_eq!(lab.claim_ids(one, 2).await, started[..2]);
    assert_eq!(lab.claim_ids(two, 2).await, started[2..]);
    assert!(lab.claim_some(one, 2).await.is_empty());
    assert_eq!(lab.get(started[0]).await.worker, Some(one));
    assert_eq!(lab.get(started[2]).await.worker, Some(two));
}

pub async fn what_is_not_due_is_not_claimed(lab: Lab) {
    // rule 6.1
    let worker = lab.worker("w").await;
    let id = lab.start(later(MINUTE)).await;
    lab.pass(MINUTE - SECOND);
    assert_eq!(lab.fire().await, 0);
    assert!(lab.claim_some(worker, 1).await.is_empty());
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(lab.claim_ids(worker, 1).await, [id]);
}

pub async fn a_claim_of_nothing_or_without_code_takes_nothing(lab: Lab) {
    let id = lab.start(plain()).await;
    let worker = lab.worker("w").await;
    assert!(lab.claim_some(worker, 0).await.is_empty());
    assert!(
        lab.claim_from(worker, "default", Vec::new(), 5)
            .await
            .is_empty()
    );
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn a_claim_carries_all_that_the_step_needs(lab: Lab) {
    // rule 1.2
    let start = Start {
        key: Some(key("k")),
        partition_key: Some(key("p")),
        state: json("{\"a\": 1}"),
        step: Some(name("pack")),
        ..urgent(4)
    };
    let id = lab.start(start).await;
    let worker = lab.worker("w").await;
    let due_at = lab.now();
    lab.pass(SECOND);
    let claimed = lab.claim(worker).await;
    let claim = &claimed.claim;
    assert_eq!(
        (
            claim.id(),
            claim.worker(),
            claim.partition(),
            claim.parent()
        ),
        (id, worker, Some(&key("p")), None)
    );
    assert_eq!(
        (claimed.key, claimed.kind, claimed.machine),
        (Some(key("k")), Kind::Machine, name("m"))
    );
    assert_eq!(
        (claimed.version, claimed.step, claimed.step_seq),
        (1, name("pack"), 1)
    );
    assert_eq!((claimed.attempt, claimed.state), (0, json("{\"a\": 1}")));
    assert_eq!(
        (claimed.queue, claimed.priority.0, claimed.due_at),
        (name("default"), 4, due_at)
    );
    assert_eq!((claimed.cause, claimed.timed_out), (Cause::Start, false));
    assert_eq!((claimed.joins, claimed.children), (None, Vec::new()));
    let held = lab.get(id).await;
    assert_eq!(
        (held.status, held.worker, held.due_at),
        (Status::Executing, Some(worker), Some(due_at))
    );
}

pub async fn a_transaction_sees_what_it_has_done_itself(lab: Lab) {
    // rule 1.1
    let worker = lab.worker("w").await;
    let request = |queue| ClaimRequest {
        worker,
        queue: name(queue),
        lanes: vec![lane("m", 1)],
        limit: 10,
        lease: None,
    };
    let slow = Start {
        queue: Some(name("slow")),
        ..plain()
    };
    let ops = vec![
        Op::Claim(request("default")),
        Op::Start(many(2)),
        Op::Claim(request("default")),
        Op::Start(vec![slow]),
        Op::Claim(request("slow")),
        Op::Claim(request("default")),
    ];
    let answers = lab.try_run(ops).await.unwrap();
    let claimed = answers.iter().filter_map(|answer| match answer {
        Answer::Claimed(claimed) => Some(claimed.len()),
        _ => None,
    });
    assert_eq!(claimed.collect::<Vec<_>>(), [0, 2, 1, 0]);
}

pub async fn what_is_claimed_runs_even_when_the_clock_went_back(lab: Lab) {
    let id = lab.start(plain()).await;
    let worker = lab.worker("w").await;
    lab.clock.set(lab.now() - MINUTE);
    assert_eq!(
        lab.claim_ids(worker, 1).await,
        [id],
        "what is runnable stays so"
    );
    let found = lab.get(id).await;
    assert_eq!(found.status, Status::Executing);
    lab.clock.set(lab.now() + MINUTE);
    lab.start(plain()).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
}
