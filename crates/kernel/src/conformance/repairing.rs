//! Whether an instance is well, what is told of it, and repair, which on a store that only the engine wrote finds
//! nothing to do.

use abide_core::model::{InstanceId, Operated, Status, WaitKind};
use abide_core::rules::liveness::{Around, Liveness, liveness, waiting};

use super::build::{
    MINUTE, SECOND, answer, cancelling, continue_as_new, done, key, later, name, plain, retry,
    spawn, stop, updates, urgent, wait, within,
};
use super::lab::Lab;
use crate::{Answer, Op};

async fn lives(lab: &Lab, id: InstanceId) -> Liveness {
    liveness(&lab.get(id).await, Around::default())
}

pub async fn nothing_healthy_needs_repair(lab: Lab) {
    // rules 11.3 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let mut all = vec![lab.start(later(MINUTE)).await];
    all.push(lab.start(plain()).await);
    lab.claim(worker).await;
    let waits = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(waits, "buffered").await;
    all.push(waits);
    all.push(lab.parked(worker, plain(), &[], Some(1000)).await);
    all.push(lab.start(plain()).await);
    lab.step(worker, spawn(vec![urgent(9), urgent(9)])).await;
    all.push(lab.start(plain()).await);
    lab.step(worker, retry(1000)).await;
    all.push(lab.start(within("p")).await);
    all.push(lab.start(within("p")).await);
    let aside = lab.parked(worker, urgent(-1), &["a"], None).await;
    lab.update(aside).await;
    all.push(aside);
    for id in all {
        let before = lab.get(id).await;
        let answer = lab.repair(id).await;
        assert_eq!(answer, Operated::RepairNotNeeded, "{before:?}");
        assert_eq!(answer.outcome(), "repair_not_needed");
        assert_eq!(lab.get(id).await, before, "nothing is touched");
    }
}

pub async fn repair_refuses_like_a_delivery(lab: Lab) {
    // rules 7.3 and 11.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, done()).await;
    assert_eq!(lab.repair(id).await, Operated::NotActive(Status::Done));
    assert_eq!(lab.repair(key("nobody")).await, Operated::NoTarget);
}

pub async fn an_examination_is_paged_and_finds_nothing(lab: Lab) {
    // rule 11.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let ended = lab.start_all(super::build::many(3)).await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, wait(&["a"], None)).await;
    lab.cancel(cancelling(lab.start(plain()).await)).await;
    lab.restarted(ended[1]).await;
    let (mut seen, mut after) = (0, InstanceId(0));
    loop {
        match lab.run(Op::Examine { after, limit: 2 }).await {
            Answer::Examined {
                count,
                findings,
                next,
            } => {
                assert!(count <= 2 && findings.is_empty(), "{findings:?}");
                seen += count;
                match next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 6);
}

pub async fn each_position_has_its_liveness(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let scheduled = lab.start(later(MINUTE)).await;
    let running = lab.start(plain()).await;
    lab.claim(worker).await;
    let signal = lab.parked(worker, plain(), &["a", "b"], Some(1000)).await;
    let timer = lab.parked(worker, plain(), &[], Some(1000)).await;
    let children = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    let closed = lab.start(plain()).await;
    lab.step(worker, done()).await;
    let ready = lab.start(plain()).await;
    for (id, expected) in [
        (scheduled, "scheduled"),
        (running, "running"),
        (signal, "waiting_for_signal"),
        (timer, "scheduled"),
        (children, "waiting_for_children"),
        (closed, "closed"),
        (ready, "ready"),
    ] {
        assert_eq!(lives(&lab, id).await.name(), expected);
    }
    let unserved = Around {
        served: Some(false),
        ..Around::default()
    };
    let found = liveness(&lab.get(ready).await, unserved);
    assert_eq!(found, Liveness::WaitingForWorker);
    let waits = waiting(&lab.get(signal).await).unwrap();
    assert_eq!(
        (waits.kind, waits.names),
        (WaitKind::Signal, vec![name("a"), name("b")])
    );
    assert_eq!(
        (waits.since, waits.deadline),
        (Some(lab.now()), Some(lab.now() + SECOND))
    );
    assert!(waits.id.is_some());
    let kinds = [timer, children].map(|id| async move { id });
    for (id, kind) in kinds.into_iter().zip([WaitKind::Timer, WaitKind::Children]) {
        let waits = waiting(&lab.get(id.await).await).unwrap();
        assert_eq!(waits.kind, kind);
    }
    for id in [scheduled, running, closed, ready] {
        assert_eq!(waiting(&lab.get(id).await), None);
    }
}

pub async fn what_is_aside_for_an_update_still_waits(lab: Lab) {
    // rules 9.1 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], Some(60_000)).await;
    let before = waiting(&lab.get(id).await);
    let update = lab.update(id).await;
    assert_eq!(lives(&lab, id).await, Liveness::Ready);
    assert_eq!(waiting(&lab.get(id).await), before);
    let claim = lab.claim(worker).await.claim;
    assert_eq!(lives(&lab, id).await, Liveness::Running);
    lab.commit(claim, answer(&[update.id], None)).await;
    assert_eq!(lives(&lab, id).await, Liveness::WaitingForSignal);
    assert_eq!(waiting(&lab.get(id).await), before);
}

pub async fn a_buffered_signal_that_nobody_waits_for_is_healthy(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(id, "b").await;
    assert_eq!(lives(&lab, id).await, Liveness::WaitingForSignal);
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
}

pub async fn a_step_that_is_tried_again_waits_for_nothing(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(id, "a").await;
    lab.step(worker, retry(60_000)).await;
    let found = lab.get(id).await;
    assert_eq!((found.status, waiting(&found)), (Status::Scheduled, None));
    assert_eq!(lives(&lab, id).await, Liveness::Scheduled);
}
