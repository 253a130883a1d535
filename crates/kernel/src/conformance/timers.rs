//! Timers: what is due, and when the engine must check again.

use abide_core::model::{Status, Timestamp};

use super::build::{MINUTE, SECOND, done, join, later, many, plain, retry, wait};
use super::lab::Lab;
use crate::Op;

async fn next_due(lab: &Lab) -> Option<Timestamp> {
    lab.store.next_due().await.unwrap()
}

pub async fn the_next_due_time_is_the_earliest_of_all_kinds(lab: Lab) {
    // rule 6.5
    let worker = lab.worker("w").await;
    let begin = lab.now();
    assert_eq!(next_due(&lab).await, None);
    lab.start(plain()).await;
    assert_eq!(
        next_due(&lab).await,
        None,
        "no timer waits for what is runnable"
    );
    lab.step(worker, retry(50_000)).await;
    assert_eq!(next_due(&lab).await, Some(begin + SECOND * 50));
    lab.start(plain()).await;
    lab.step(worker, wait(&["s"], Some(40_000))).await;
    assert_eq!(next_due(&lab).await, Some(begin + SECOND * 40));
    lab.start(plain()).await;
    lab.step(worker, join(vec![later(MINUTE)], None, Some(30_000)))
        .await;
    assert_eq!(next_due(&lab).await, Some(begin + SECOND * 30));
    lab.start(later(SECOND * 20)).await;
    assert_eq!(next_due(&lab).await, Some(begin + SECOND * 20));
    lab.pass(SECOND * 30);
    assert_eq!(lab.fire().await, 2);
    assert_eq!(next_due(&lab).await, Some(begin + SECOND * 40));
}

pub async fn what_is_due_fires_at_its_moment_and_not_before(lab: Lab) {
    // rule 6.5
    let id = lab.start(later(SECOND)).await;
    let due = lab.get(id).await.due_at.unwrap();
    lab.clock.set(due - std::time::Duration::from_micros(1));
    assert_eq!(lab.fire().await, 0);
    lab.clock.set(due);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(
        (lab.status(id).await, lab.get(id).await.due_at),
        (Status::Runnable, Some(due))
    );
    assert_eq!(lab.fire().await, 0);
}

pub async fn what_is_overdue_fires_at_once_oldest_first(lab: Lab) {
    // rule 6.5
    let worker = lab.worker("w").await;
    let seconds = [3, 1, 2, 5, 4];
    let started = lab
        .start_all(seconds.map(|s| later(SECOND * s)).into())
        .await;
    lab.pass(MINUTE * 60 * 24);
    assert_eq!(lab.touch(Op::Fire { limit: 2 }).await, (2, true));
    assert_eq!(lab.claim_ids(worker, 10).await, [started[1], started[2]]);
    assert_eq!(lab.touch(Op::Fire { limit: 10 }).await, (3, false));
    assert_eq!(
        lab.claim_ids(worker, 10).await,
        [started[0], started[4], started[3]]
    );
}

pub async fn firing_is_bounded(lab: Lab) {
    // rule 16.3
    lab.start_all(vec![later(SECOND); 25]).await;
    lab.pass(SECOND);
    let mut counts = Vec::new();
    loop {
        let (count, more) = lab.touch(Op::Fire { limit: 10 }).await;
        counts.push(count);
        if !more {
            break;
        }
    }
    assert_eq!(counts, [10, 10, 5]);
}

pub async fn times_in_the_far_future_are_accepted(lab: Lab) {
    let worker = lab.worker("w").await;
    let never = lab.start(later(std::time::Duration::MAX)).await;
    assert_eq!(lab.get(never).await.due_at, Some(Timestamp::MAX));
    let asleep = lab.start(plain()).await;
    lab.step(worker, wait(&[], Some(u64::MAX))).await;
    assert_eq!(lab.get(asleep).await.due_at, Some(Timestamp::MAX));
    assert_eq!(
        (next_due(&lab).await, lab.fire().await),
        (Some(Timestamp::MAX), 0)
    );
}

pub async fn what_executes_has_no_deadline(lab: Lab) {
    // rule 6.5
    let worker = lab.worker("w").await;
    lab.start_all(many(2)).await;
    lab.step(worker, wait(&["s"], Some(1000))).await;
    lab.claim(worker).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(next_due(&lab).await, None);
    lab.step(worker, done()).await;
}
