//! Waking: the notifications that a commit sends to listeners.

use std::sync::Arc;
use std::time::Duration;

use super::build::{MINUTE, done, later, many, name, plain, within};
use super::lab::Lab;
use crate::{Effects, Listener};

/// Listens until a notification fits, or says that anything may have changed.
pub(super) async fn heard(listener: &mut Listener, fits: impl Fn(&Effects) -> bool) -> bool {
    let listen = async {
        while let Some(effects) = listener.next().await {
            let effects: Arc<Effects> = effects;
            if effects.anything || fits(&effects) {
                return true;
            }
        }
        false
    };
    // Real time, and only to end a test that would otherwise hang.
    tokio::time::timeout(Duration::from_secs(20), listen)
        .await
        .unwrap_or(false)
}

pub async fn listeners_are_notified_at_once_of_work_that_becomes_runnable(lab: Lab) {
    // rule 6.6
    let ready = |effects: &Effects| effects.ready.contains(&name("default"));
    let mut listener = lab.store.listen();
    lab.start(plain()).await;
    assert!(heard(&mut listener, ready).await);
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    let mut listener = lab.store.listen();
    lab.run(crate::Op::GiveBack(vec![claimed.claim])).await;
    assert!(heard(&mut listener, ready).await);
}

pub async fn listeners_are_notified_of_the_time_of_what_is_due_later(lab: Lab) {
    // rules 6.5 and 6.6
    let mut listener = lab.store.listen();
    lab.start(later(MINUTE)).await;
    let due = lab.now() + MINUTE;
    assert!(
        heard(&mut listener, |effects| effects
            .due
            .is_some_and(|at| at <= due))
        .await
    );
    lab.pass(MINUTE);
    let mut listener = lab.store.listen();
    lab.fire().await;
    assert!(
        heard(&mut listener, |effects| effects
            .ready
            .contains(&name("default")))
        .await
    );
}

pub async fn listeners_are_notified_of_an_end(lab: Lab) {
    // rule 6.6
    let worker = lab.worker("w").await;
    let started = lab.start_all(many(2)).await;
    let mut listener = lab.store.listen();
    lab.step(worker, done()).await;
    assert!(
        heard(&mut listener, |effects| effects.ended.contains(&started[0])
            || effects.ended_elsewhere)
        .await
    );
}

pub async fn listeners_are_notified_of_the_next_of_a_partition_when_it_is_freed(lab: Lab) {
    // rules 6.3 and 6.6
    let worker = lab.worker("w").await;
    let slow = abide_core::model::Start {
        queue: Some(name("slow")),
        ..within("p")
    };
    lab.start(within("p")).await;
    lab.start(slow).await;
    let mut listener = lab.store.listen();
    lab.step(worker, done()).await;
    assert!(
        heard(&mut listener, |effects| effects
            .ready
            .contains(&name("slow")))
        .await
    );
}
