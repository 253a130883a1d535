//! Cancelling: it ends whatever it does, and its children with it unless they are to be left.

use abide_core::model::{Cancel, Children, CommandStatus, Committed, InstanceId, Operated, Status};

use super::build::{
    MINUTE, cancelling, continue_as_new, done, join, key, keyed, later, next, plain, signal, spawn,
    stop, updates, urgent, wait, within,
};
use super::lab::{Lab, ids};
use crate::Op;

fn leaving(id: InstanceId) -> Cancel {
    Cancel {
        children: Children::Leave,
        ..cancelling(id)
    }
}

async fn cancelled(lab: &Lab, id: InstanceId, children: usize) {
    let answer = lab.cancel(cancelling(id)).await;
    assert_eq!(answer, Operated::Cancelled { id, children });
}

pub async fn it_can_be_cancelled_from_every_status(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let scheduled = lab.start(later(MINUTE)).await;
    let executing = lab.start(plain()).await;
    lab.claim(worker).await;
    let waits = lab.parked(worker, plain(), &["a"], Some(1000)).await;
    let sleeps = lab.parked(worker, plain(), &[], Some(1000)).await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    let runnable = lab.start(plain()).await;
    for (id, children) in [
        (scheduled, 0),
        (executing, 0),
        (waits, 0),
        (sleeps, 0),
        (parent, 1),
        (runnable, 0),
    ] {
        cancelled(&lab, id, children).await;
        let found = lab.get(id).await;
        assert_eq!(
            (found.status, found.finished_at, found.due_at),
            (Status::Cancelled, Some(lab.now()), None)
        );
        assert_eq!(found.last_error.as_deref(), Some("no longer wanted"));
        assert_eq!(lab.kinds(id).await.last(), Some(&"cancelled"));
        assert_eq!((found.worker, found.wait_kind()), (None, None));
    }
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 0, "no timer is left");
    assert!(lab.claim_some(worker, 9).await.is_empty());
}

pub async fn it_wins_over_a_step_that_runs(lab: Lab) {
    // rules 1.3 and 11.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let a = lab.signal(id, "a").await;
    let claim = lab.claim(worker).await.claim;
    let mut listener = lab.store.listen();
    cancelled(&lab, id, 0).await;
    let notified = |effects: &crate::Effects| effects.cancelled.contains(&id);
    assert!(super::waking::heard(&mut listener, notified).await);
    for outcome in [done(), next("x"), spawn(vec![plain()])] {
        assert_eq!(lab.commit(claim.again(), outcome).await, Committed::Stale);
    }
    let found = lab.get(id).await;
    assert_eq!((found.status, found.result), (Status::Cancelled, None));
    assert_eq!(lab.record(a.id).await.status, CommandStatus::Discarded);
}

pub async fn a_cancel_in_the_transaction_of_the_commit_is_judged_in_its_order(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let ops = vec![
        Op::Commit {
            commits: vec![super::build::commit(claim, done())],
            serves: Vec::new(),
        },
        Op::Cancel(vec![cancelling(id), cancelling(id)]),
    ];
    let answers = lab.try_run(ops).await.unwrap();
    let not_active = Operated::NotActive(Status::Done);
    assert_eq!(
        answers[1],
        crate::Answer::Operated(vec![not_active, not_active])
    );
}

pub async fn what_has_ended_is_not_cancelled(lab: Lab) {
    // rules 11.1 and 11.2
    let worker = lab.worker("w").await;
    for (outcome, status) in [(done(), Status::Done), (stop("no"), Status::Failed)] {
        let id = lab.start(plain()).await;
        lab.step(worker, outcome).await;
        let answer = lab.cancel(cancelling(id)).await;
        assert_eq!(answer, Operated::NotActive(status));
        assert_eq!(answer.outcome(), "rejected_not_active");
    }
    let id = lab.start(plain()).await;
    cancelled(&lab, id, 0).await;
    assert_eq!(
        lab.cancel(cancelling(id)).await,
        Operated::NotActive(Status::Cancelled)
    );
    let answer = lab.cancel(cancelling(key("missing"))).await;
    assert_eq!(
        (answer, answer.outcome()),
        (Operated::NoTarget, "no_target")
    );
}

pub async fn it_closes_the_inbox(lab: Lab) {
    // rules 4.1, 9.2 and 11.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let x = lab.signal(id, "x").await;
    let update = lab.update(id).await;
    cancelled(&lab, id, 0).await;
    assert_eq!(lab.record(x.id).await.status, CommandStatus::Discarded);
    let failed = lab.record(update.id).await;
    assert_eq!(failed.status, CommandStatus::Failed);
    assert!(failed.error.unwrap().contains("cancelled"));
    let found = lab.get(id).await;
    assert_eq!((found.inbox.signals, found.inbox.updates), (0, 0));
    assert_eq!(found.aside, None);
    assert!(
        lab.deliver(signal(id, "a"))
            .await
            .verdict
            .rejection()
            .is_some()
    );
}

pub async fn it_cascades_over_generations(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let root = lab.start(urgent(-9)).await;
    lab.step(worker, spawn(vec![keyed("c1"), keyed("c2")]))
        .await;
    lab.step(worker, spawn(vec![keyed("g1"), keyed("g2")]))
        .await;
    let c2 = lab.claim(worker).await;
    assert_eq!(c2.key, Some(key("c2")));
    lab.step(worker, spawn(vec![keyed("gg")])).await;
    lab.step(worker, done()).await;
    let bystander = lab.start(plain()).await;
    cancelled(&lab, root, 4).await;
    for (text, status) in [
        ("c1", Status::Cancelled),
        ("c2", Status::Cancelled),
        ("g1", Status::Cancelled),
        ("g2", Status::Done),
        ("gg", Status::Cancelled),
    ] {
        assert_eq!(lab.find(key(text)).await.unwrap().status, status, "{text}");
    }
    assert_eq!(lab.commit(c2.claim, done()).await, Committed::Stale);
    assert_eq!(ids(&lab.claim_some(worker, 9).await), [bystander]);
}

pub async fn it_cascades_to_the_run_that_a_child_has_gone_on_as(lab: Lab) {
    // rules 2.4 and 11.1
    let worker = lab.worker("w").await;
    let root = lab.start(urgent(-9)).await;
    lab.step(worker, spawn(vec![keyed("c1")])).await;
    lab.step(worker, spawn(vec![keyed("g1")])).await;
    lab.step(worker, done()).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, continue_as_new("again")).await;
    cancelled(&lab, root, 1).await;
    let newest = lab.find(key("c1")).await.unwrap();
    assert_eq!((newest.status, newest.run.number), (Status::Cancelled, 3));
    assert!(lab.claim_some(worker, 9).await.is_empty());
}

pub async fn children_can_be_left(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    let root = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c1")])).await;
    assert_eq!(
        lab.cancel(leaving(root)).await,
        Operated::Cancelled {
            id: root,
            children: 0
        }
    );
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    assert_eq!(lab.status(root).await, Status::Cancelled);
}

pub async fn children_of_an_earlier_barrier_are_cancelled_too(lab: Lab) {
    // rules 10.3 and 11.1
    let worker = lab.worker("w").await;
    let root = lab.start(plain()).await;
    lab.step(worker, join(vec![urgent(9)], Some(0), None)).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    cancelled(&lab, root, 2).await;
}

pub async fn a_parents_barrier_sees_it_as_an_end(lab: Lab) {
    // rules 10.2 and 11.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c1"), keyed("c2")]))
        .await;
    let c1 = lab.find(key("c1")).await.unwrap().id;
    cancelled(&lab, c1, 0).await;
    assert_eq!(lab.get(parent).await.family.pending, 1);
    let c2 = lab.find(key("c2")).await.unwrap().id;
    cancelled(&lab, c2, 0).await;
    let joined = lab.claim(worker).await;
    assert_eq!(joined.claim.id(), parent);
    let ends: Vec<Status> = joined.children.iter().map(|one| one.status).collect();
    assert_eq!(ends, [Status::Cancelled; 2]);
    assert_eq!(
        joined.children[0].last_error.as_deref(),
        Some("no longer wanted")
    );
}

pub async fn it_frees_the_partition(lab: Lab) {
    // rules 6.3 and 11.1
    let worker = lab.worker("w").await;
    let front = lab.start(within("p")).await;
    let second = lab.start(within("p")).await;
    let third = lab.start(within("p")).await;
    lab.claim(worker).await;
    cancelled(&lab, second, 0).await;
    assert!(lab.claim_some(worker, 9).await.is_empty());
    cancelled(&lab, front, 0).await;
    assert_eq!(lab.claim_ids(worker, 9).await, [third]);
}

pub async fn it_frees_the_key(lab: Lab) {
    // rules 2.2 and 11.1
    let id = lab.start(keyed("k")).await;
    cancelled(&lab, id, 0).await;
    assert_ne!(lab.start(keyed("k")).await, id);
}

pub async fn a_long_reason_is_cut(lab: Lab) {
    // rule 16.3
    let id = lab.start(plain()).await;
    let cancel = Cancel {
        reason: "x".repeat(20 << 10),
        ..cancelling(id)
    };
    lab.cancel(cancel).await;
    assert!(lab.get(id).await.row.last_error.unwrap().len() < 17 << 10);
}

pub async fn listeners_are_notified_of_its_end(lab: Lab) {
    // rules 6.6 and 11.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    let mut listener = lab.store.listen();
    cancelled(&lab, parent, 1).await;
    let notified =
        |effects: &crate::Effects| effects.ended.contains(&parent) || effects.ended_elsewhere;
    assert!(super::waking::heard(&mut listener, notified).await);
}

pub async fn the_sender_of_an_update_that_is_pending_at_the_cancellation_is_notified(lab: Lab) {
    // rules 9.2 and 11.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let update = lab.update(id).await;
    let mut listener = lab.store.listen();
    cancelled(&lab, id, 0).await;
    let notified =
        |effects: &crate::Effects| effects.answered.contains(&update.id) || effects.ended_elsewhere;
    assert!(super::waking::heard(&mut listener, notified).await);
}

pub async fn a_child_that_waits_is_cancelled_with_its_signals(lab: Lab) {
    // rules 4.1 and 11.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c")])).await;
    lab.step(worker, wait(&["a"], None)).await;
    let x = lab.signal(key("c"), "x").await;
    cancelled(&lab, parent, 1).await;
    assert_eq!(lab.record(x.id).await.status, CommandStatus::Discarded);
}
