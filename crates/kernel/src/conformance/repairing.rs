//! The health of an instance, what is reported of it, and repair, which on a store that only the engine wrote finds
//! nothing to do.

use abide_core::model::{InstanceId, Json, Operated, Start, Status, WaitKind};
use abide_core::rules::liveness::{Code, Health, Liveness, Waiting, waiting};

use super::build::{
    MINUTE, SECOND, answer, cancelling, commit, continue_as_new, done, join, key, lane, later,
    many, name, plain, retry, signal, spawn, stop, strict, updates, urgent, wait, within,
};
use super::coding::{Coded, unfit, workflow};
use super::faulty::Faulty;
use super::lab::{LEASE, Lab, OVER_LEASE};
use crate::{Answer, Filter, NewWorker, Op, describe, describe_page};

async fn lives(lab: &Lab, id: InstanceId) -> Liveness {
    lab.liveness(id).await
}

/// Its liveness, and the reason why it is not well.
async fn unwell(lab: &Lab, id: InstanceId) -> (Liveness, Code, String) {
    let Health { liveness, reason } = lab.health(id).await;
    let reason = reason.expect("it is not well");
    assert_eq!(reason.command_id, None, "it is about no message");
    (liveness, reason.code, reason.text)
}

/// A start of a machine that no worker of these tests has code for.
fn foreign() -> Start {
    Start {
        queue: Some(name("mail")),
        version: Some(7),
        ..Start::of(name("letter"), Json::null())
    }
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
    assert_eq!(lab.repair(key("missing")).await, Operated::NoTarget);
}

pub async fn an_examination_is_paged_and_finds_nothing(lab: Lab) {
    // rule 11.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let ended = lab.start_all(many(3)).await;
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
    for id in [scheduled, running, signal, timer, children, closed, ready] {
        assert_eq!(lab.health(id).await.reason, None, "all are well");
    }
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
    let aside = waiting(&lab.get(id).await).unwrap();
    assert!(aside.resume_source.is_some(), "it shows what it runs for");
    let same = Waiting {
        resume_source: None,
        ..aside
    };
    assert_eq!(Some(same), before);
    let claim = lab.claim(worker).await.claim;
    assert_eq!(lives(&lab, id).await, Liveness::Running);
    lab.commit(claim, answer(&[update.id], None)).await;
    assert_eq!(lives(&lab, id).await, Liveness::WaitingForSignal);
    assert_eq!(waiting(&lab.get(id).await), before);
}

pub async fn a_buffered_signal_without_a_wait_is_healthy(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(id, "b").await;
    assert_eq!(lives(&lab, id).await, Liveness::WaitingForSignal);
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
}

pub async fn a_step_that_is_tried_again_says_what_had_woken_it(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let signal = lab.signal(id, "a").await;
    lab.step(worker, retry(60_000)).await;
    let found = lab.get(id).await;
    let wait = waiting(&found).unwrap();
    assert_eq!((found.status, wait.deadline), (Status::Scheduled, None));
    let woken = wait.resume_source.and_then(|source| source.command_id);
    assert_eq!(woken, Some(signal.id));
    assert_eq!(lives(&lab, id).await, Liveness::Scheduled);
}

pub async fn what_no_worker_can_run_says_which_worker_it_lacks(lab: Lab) {
    // rule 13.1
    let id = lab.start(plain()).await;
    let lacking = (
        Liveness::WaitingForWorker,
        Code::NoWorker,
        "no live worker serves queue default with code for m version 1".to_owned(),
    );
    assert_eq!(unwell(&lab, id).await, lacking);
    let worker = lab.worker("w").await;
    assert_eq!(lives(&lab, id).await, Liveness::Ready);
    lab.pass(OVER_LEASE);
    assert_eq!(unwell(&lab, id).await, lacking, "it has died");
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
    let _ = worker;
}

pub async fn children_that_no_worker_can_run_are_reported_for_their_parent(lab: Lab) {
    // rules 10.2 and 13.1: a join that nothing can open was called healthy.
    let worker = lab.worker("w").await;
    let all = lab.start(plain()).await;
    let mixed = vec![foreign(), urgent(9), foreign()];
    lab.step(worker, spawn(mixed.clone())).await;
    let some = lab.start(plain()).await;
    lab.step(worker, join(mixed.clone(), Some(1), None)).await;
    let two = lab.start(plain()).await;
    lab.step(worker, join(mixed, Some(2), Some(60_000))).await;
    let text = "2 of the children that it waits for could run, and no live worker serves queue mail with code for letter \
                version 7; start one";
    let stranded = (
        Liveness::WaitingForChildren,
        Code::ChildrenUnserved,
        text.to_owned(),
    );
    assert_eq!(unwell(&lab, all).await, stranded);
    assert_eq!(unwell(&lab, two).await, stranded);
    let well = lab.health(some).await;
    assert_eq!(
        (well.liveness, well.reason),
        (Liveness::WaitingForChildren, None),
        "the one that can run opens it"
    );
    assert_eq!(lab.repair(all).await, Operated::RepairNotNeeded);
    let late = NewWorker {
        name: name("late"),
        lease: LEASE,
        queues: vec![name("mail")],
        lanes: vec![lane("letter", 7)],
        build: None,
    };
    lab.run(Op::Register(late)).await;
    for id in [all, two] {
        assert_eq!(lab.health(id).await.reason, None, "now they can run");
    }
}

pub async fn blocked_children_are_reported_for_their_parent(lab: Lab) {
    // rules 12.4 and 13.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![workflow()])).await;
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, Coded::then(unfit()).into()).await;
    let (liveness, code, text) = unwell(&lab, parent).await;
    assert_eq!(
        (liveness, code),
        (Liveness::WaitingForChildren, Code::ChildrenBlocked)
    );
    assert!(text.starts_with("1 of the children"), "{text}");
}

pub async fn what_should_have_gone_on_is_overdue(lab: Lab) {
    // rules 6.5 and 13.1
    let worker = lab.worker("w").await;
    let scheduled = lab.start(later(SECOND)).await;
    let waits = lab.parked(worker, plain(), &["a"], Some(1_000)).await;
    let forever = lab.parked(worker, plain(), &["a"], None).await;
    lab.pass(SECOND * 11);
    for id in [scheduled, waits] {
        assert_eq!(lab.health(id).await.reason, None, "a little late is well");
    }
    lab.pass(SECOND);
    let (liveness, code, text) = unwell(&lab, waits).await;
    assert_eq!(
        (liveness, code),
        (Liveness::WaitingForSignal, Code::Overdue)
    );
    assert!(text.contains("workers are running"), "{text}");
    lab.pass(OVER_LEASE);
    let (liveness, code, text) = unwell(&lab, scheduled).await;
    assert_eq!((liveness, code), (Liveness::Scheduled, Code::Overdue));
    assert!(text.contains("no worker is running"), "{text}");
    assert_eq!(lab.health(forever).await.reason, None);
    assert_eq!(lab.repair(waits).await, Operated::RepairNotNeeded);
    lab.fire().await;
    assert_eq!(lives(&lab, waits).await, Liveness::WaitingForWorker);
}

pub async fn what_a_silent_worker_holds_is_reported_as_such(lab: Lab) {
    // rules 5.3 and 13.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.claim(worker).await;
    assert_eq!(lab.health(id).await.reason, None);
    lab.pass(OVER_LEASE);
    let (liveness, code, text) = unwell(&lab, id).await;
    assert_eq!((liveness, code), (Liveness::Running, Code::WorkerSilent));
    assert!(text.contains(&worker.to_string()), "{text}");
    assert_eq!(lab.repair(id).await, Operated::RepairNotNeeded);
}

pub async fn a_page_shows_the_same_health_as_a_single_read(lab: Lab) {
    // rule 13.1
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    lab.start_all(many(3)).await;
    lab.step(worker, wait(&["paid"], None)).await;
    lab.step(worker, spawn(vec![foreign(), urgent(9)])).await;
    lab.step(worker, done()).await;
    lab.start_all(vec![within("p"), within("p"), later(SECOND), foreign()])
        .await;
    lab.claim(worker).await;
    for pass in [SECOND, SECOND * 20, OVER_LEASE] {
        lab.pass(pass);
        let page = describe_page(&*lab.store, &Filter::default(), None, 100)
            .await
            .unwrap();
        assert_eq!(page.items.len(), 9);
        for (instance, health) in page.items {
            assert_eq!(lab.health(instance.id).await, health, "{instance:?}");
        }
    }
}

pub async fn a_long_page_costs_as_many_reads_as_a_short_one(lab: Lab) {
    // rules 13.1 and 16.4
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    lab.start_all(many(300)).await;
    for _ in 0..20 {
        lab.step(worker, wait(&["paid"], None)).await;
        lab.step(worker, spawn(vec![urgent(9)])).await;
        lab.step(worker, done()).await;
    }
    let counted = Faulty::new(lab.store.clone(), |_| None);
    let mut costs = Vec::new();
    for limit in [1, 320, 320] {
        let before = counted.reads();
        let page = describe_page(&*counted, &Filter::default(), None, limit)
            .await
            .unwrap();
        assert_eq!(page.items.len(), limit);
        costs.push(counted.reads() - before);
    }
    assert!(costs.iter().all(|cost| *cost <= 4), "{costs:?}");
}

pub async fn a_signal_that_comes_while_it_is_looked_at_is_not_missed(lab: Lab) {
    // rules 7.1 and 13.1: the row was read before the signal came, and its inbox after it.
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a"], None).await;
    let other = lab.parked(worker, plain(), &["a"], None).await;
    let racing = Faulty::new(lab.store.clone(), |_| None);
    let send = |to: InstanceId| vec![Op::Deliver(vec![signal(to, "a")])];
    racing.meanwhile(send(id));
    let seen = describe(&*racing, &id.into()).await.unwrap().unwrap();
    assert_eq!(
        (seen.0.status, seen.1.liveness),
        (Status::Runnable, Liveness::Ready),
        "it is read again"
    );
    racing.meanwhile(send(other));
    let page = describe_page(&*racing, &Filter::default(), None, 10)
        .await
        .unwrap();
    for (instance, health) in page.items {
        assert_ne!(health.liveness, Liveness::RepairNeeded, "{instance:?}");
    }
}

pub async fn a_child_that_ends_while_its_parent_is_looked_at_is_not_missed(lab: Lab) {
    // rules 10.2 and 13.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    let child = lab.claim(worker).await;
    let racing = Faulty::new(lab.store.clone(), |_| None);
    racing.meanwhile(vec![Op::Commit {
        commits: vec![commit(child.claim, done())],
        serves: Vec::new(),
    }]);
    let page = describe_page(&*racing, &Filter::default(), None, 10)
        .await
        .unwrap();
    let seen = page.items.iter().find(|(one, _)| one.id == parent);
    let (instance, health) = seen.expect("it is on the page");
    assert_eq!(
        (instance.status, health.liveness),
        (Status::AwaitingChildren, Liveness::WaitingForChildren)
    );
    assert_eq!(lives(&lab, parent).await, Liveness::Ready);
}
