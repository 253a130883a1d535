//! Instances that are passed over, because a transaction with them fails each time.

use std::sync::Arc;

use abide_core::model::{InstanceId, Status};

use super::build::{MINUTE, done, later, name, plain};
use super::lab::{Lab, OVER_LEASE};
use crate::{Answer, Op};

/// Runs an operation that passes over that instance; what that is answered.
async fn passing(lab: &Lab, over: InstanceId, name_only: bool, op: Op) -> Answer {
    let over = Op::PassOver {
        instances: vec![over],
        name_only,
    };
    let mut answers = lab.store.run(Arc::new([over, op])).await.unwrap();
    assert_eq!(answers.len(), 2);
    answers.remove(1)
}

async fn three_due(lab: &Lab) -> [InstanceId; 3] {
    let due = [
        lab.start(later(MINUTE)).await,
        lab.start(later(2 * MINUTE)).await,
        lab.start(later(3 * MINUTE)).await,
    ];
    lab.pass(4 * MINUTE);
    due
}

pub async fn what_is_passed_over_is_not_fired_and_the_next_is(lab: Lab) {
    // rule 1.4
    let [bad, second, third] = three_due(&lab).await;
    let fired = passing(&lab, bad, false, Op::Fire { limit: 1 }).await;
    assert!(matches!(fired, Answer::Fired { count: 1, .. }), "{fired:?}");
    assert_eq!(lab.status(bad).await, Status::Scheduled);
    assert_eq!(lab.status(second).await, Status::Runnable);
    assert_eq!(lab.status(third).await, Status::Scheduled);
    // Only that transaction passes it over.
    assert_eq!(lab.fire().await, 2);
}

pub async fn what_is_only_named_is_not_touched(lab: Lab) {
    // rule 1.4
    let [bad, second, third] = three_due(&lab).await;
    let named = passing(&lab, bad, true, Op::Fire { limit: 1 }).await;
    assert_eq!(named, Answer::Named(vec![second]));
    for id in [bad, second, third] {
        assert_eq!(lab.status(id).await, Status::Scheduled);
    }
}

pub async fn what_is_passed_over_at_a_sign_off_can_be_taken_back_at_once(lab: Lab) {
    // rules 1.4 and 6.7
    for named in [false, true] {
        let worker = lab.worker("leaves").await;
        let held = [lab.start(plain()).await, lab.start(plain()).await];
        assert_eq!(lab.claim_some(worker, 2).await.len(), 2);
        let op = match named {
            false => Op::SignOff { worker, limit: 9 },
            true => Op::SignOffNamed {
                name: name("leaves"),
                limit: 9,
            },
        };
        let touched = passing(&lab, held[0], false, op).await;
        let expected = Answer::Touched {
            count: 1,
            more: false,
        };
        assert_eq!(touched, expected);
        assert_eq!(lab.status(held[0]).await, Status::Executing);
        assert_eq!(lab.status(held[1]).await, Status::Runnable);
        assert_eq!(lab.reclaim().await, 1, "no time has passed");
        assert_eq!(lab.status(held[0]).await, Status::Runnable);
        for _ in held {
            let other = lab.worker("other").await;
            lab.step(other, done()).await;
        }
    }
}

pub async fn what_is_passed_over_is_not_taken_back_and_the_next_is(lab: Lab) {
    // rules 1.4 and 5.3
    let dead = lab.worker("dead").await;
    let held = [lab.start(plain()).await, lab.start(plain()).await];
    assert_eq!(lab.claim_some(dead, 2).await.len(), 2);
    lab.pass(OVER_LEASE);
    let touched = passing(&lab, held[0], false, Op::Reclaim { limit: 1 }).await;
    assert!(
        matches!(touched, Answer::Touched { count: 1, .. }),
        "{touched:?}"
    );
    assert_eq!(lab.status(held[0]).await, Status::Executing);
    assert_eq!(lab.status(held[1]).await, Status::Runnable);
}
