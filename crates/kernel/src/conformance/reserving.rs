//! Reserving: a key that is taken before anything runs under it.

use abide_core::model::{Cause, InstanceId, Operated, Rejection, Start, Started, Status, Verdict};

use super::build::{
    MINUTE, cancelling, done, held, json, key, keyed, later, name, plain, signal, spawn, strict,
    within,
};
use super::lab::Lab;
use super::taken_keys::holding;
use crate::{Answer, Op};

async fn reserve(lab: &Lab, machine: &str, text: &str) -> Started {
    let op = Op::Reserve(vec![(name(machine), key(text))]);
    match lab.run(op).await {
        Answer::Started(each) => each[0].clone().unwrap(),
        other => panic!("a reservation is not answered with {other:?}"),
    }
}

pub(super) async fn reserved(lab: &Lab, text: &str) -> InstanceId {
    match reserve(lab, "m", text).await {
        Started::New(id) => id,
        other => panic!("it should be new, and is {other:?}"),
    }
}

pub async fn a_reserved_instance_has_a_key_and_no_run(lab: Lab) {
    // rule 2.7
    let worker = lab.worker("w").await;
    let id = reserved(&lab, "k").await;
    let found = lab.find(key("k")).await.unwrap();
    assert_eq!((found.id, found.status), (id, Status::Reserved));
    assert!(lab.claim_some(worker, 9).await.is_empty());
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 0);
    assert!(lab.kinds(id).await.is_empty());
}

pub async fn a_start_opens_what_was_reserved_with_the_same_id(lab: Lab) {
    // rule 2.7
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    let id = reserved(&lab, "k").await;
    lab.pass(MINUTE);
    let start = Start {
        state: json("{\"a\":1}"),
        step: Some(name("first")),
        priority: abide_core::model::Priority(4),
        ..keyed("k")
    };
    assert_eq!(lab.starts(vec![start]).await, [Ok(Started::New(id))]);
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.step.as_str(), found.first_step.as_str()),
        (Status::Runnable, "first", "first")
    );
    assert_eq!(
        (found.priority.0, found.due_at, found.contract),
        (4, Some(lab.now()), Some(strict().id()))
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.cause, claimed.state),
        (id, Cause::Start, json("{\"a\":1}"))
    );
}

pub async fn what_is_opened_may_be_due_later_or_stand_in_a_partition(lab: Lab) {
    // rules 2.7 and 6.3
    let worker = lab.worker("w").await;
    let one = reserved(&lab, "k").await;
    let two = reserved(&lab, "j").await;
    lab.start(within("p")).await;
    let front = lab.claim(worker).await;
    let keyed = |text: &str, start: Start| Start {
        key: Some(key(text)),
        ..start
    };
    let started = lab
        .starts(vec![keyed("k", later(MINUTE)), keyed("j", within("p"))])
        .await;
    assert_eq!(started, [Ok(Started::New(one)), Ok(Started::New(two))]);
    assert_eq!(lab.status(one).await, Status::Scheduled);
    assert!(lab.get(two).await.behind);
    assert!(lab.claim_some(worker, 9).await.is_empty());
    lab.commit(front.claim, done()).await;
    assert_eq!(lab.claim(worker).await.claim.id(), two);
}

pub async fn a_start_of_another_machine_does_not_open_it(lab: Lab) {
    // rule 2.7
    let id = reserved(&lab, "k").await;
    let other = Start {
        machine: name("n"),
        ..keyed("k")
    };
    assert_eq!(lab.starts(vec![other]).await, [Ok(Started::Duplicate(id))]);
    assert_eq!(lab.status(id).await, Status::Reserved);
}

pub async fn of_two_starts_one_opens_it(lab: Lab) {
    // rule 2.7
    let id = reserved(&lab, "k").await;
    let started = lab.starts(vec![keyed("k"), keyed("k")]).await;
    assert_eq!(started, [Ok(Started::New(id)), Ok(Started::Duplicate(id))]);
    assert_eq!(
        lab.starts(vec![keyed("k")]).await,
        [Ok(Started::Duplicate(id))]
    );
}

pub async fn a_start_whose_unique_key_is_taken_does_not_open_it(lab: Lab) {
    // rules 2.2 and 2.7
    // Found by simulation: opening it all the same failed the whole transaction, however often it was tried.
    let id = reserved(&lab, "k").await;
    let unique = |start: Start| Start {
        unique_key: Some(abide_core::model::UniqueKey::new(*b"u").unwrap()),
        ..start
    };
    let holder = lab.start(unique(plain())).await;
    let started = lab.starts(vec![unique(keyed("k")), keyed("k")]).await;
    assert_eq!(
        started,
        [Ok(Started::Duplicate(holder)), Ok(Started::New(id))]
    );
    let page = lab.store.list(&crate::Filter::default(), None, 9).await;
    assert_eq!(page.unwrap().items.len(), 2, "nothing was left by trying");
}

pub async fn a_key_is_reserved_once(lab: Lab) {
    // rules 2.2 and 2.7
    let id = reserved(&lab, "k").await;
    assert_eq!(reserve(&lab, "m", "k").await, Started::Duplicate(id));
    assert_eq!(reserve(&lab, "n", "k").await, Started::Duplicate(id));
    let taken = lab.start(keyed("j")).await;
    assert_eq!(reserve(&lab, "m", "j").await, Started::Duplicate(taken));
}

pub async fn signals_to_it_are_refused_until_it_is_started(lab: Lab) {
    // rule 2.7
    let id = reserved(&lab, "k").await;
    for delivery in [
        signal(id, "a"),
        signal(key("k"), "a"),
        held("k", "a", MINUTE),
    ] {
        let answer = lab.deliver(delivery).await;
        assert_eq!(answer.verdict, Verdict::Rejected(Rejection::NotStarted));
    }
    lab.starts(vec![keyed("k")]).await;
    lab.signal(id, "a").await;
}

pub async fn what_was_held_before_is_handed_over_when_it_starts(lab: Lab) {
    // rules 2.7 and 7.8
    lab.deliver(held("k", "a", MINUTE)).await;
    let id = reserved(&lab, "k").await;
    assert_eq!(lab.get(id).await.inbox.signals, 0);
    lab.starts(vec![keyed("k")]).await;
    assert_eq!(lab.inbox(id).await.len(), 1);
}

pub async fn a_reserved_one_can_be_cancelled_and_frees_its_key(lab: Lab) {
    // rules 2.7 and 11.1
    let id = reserved(&lab, "k").await;
    assert_eq!(
        lab.cancel(cancelling(key("k"))).await,
        Operated::Cancelled { id, children: 0 }
    );
    assert_eq!(lab.status(id).await, Status::Cancelled);
    let new = lab.start(keyed("k")).await;
    assert_ne!(new, id);
}

pub async fn a_reserved_one_is_not_repaired_or_restarted(lab: Lab) {
    // rules 2.7, 11.2 and 11.3
    let id = reserved(&lab, "k").await;
    assert_eq!(lab.repair(id).await, Operated::NotStarted);
    assert_eq!(lab.restart(id).await, Operated::NotStarted);
    assert_eq!(Operated::NotStarted.outcome(), "rejected_not_started");
}

pub async fn a_child_opens_what_was_reserved_and_is_waited_for(lab: Lab) {
    // rules 2.7 and 10.1
    let worker = lab.worker("w").await;
    let id = reserved(&lab, "child").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("child")])).await;
    let child = lab.get(id).await;
    assert_eq!(
        (child.parent, child.status),
        (Some(parent), Status::Runnable)
    );
    assert_eq!(lab.get(parent).await.family.pending, 1);
    lab.step(worker, done()).await;
    assert_eq!(lab.claim(worker).await.children[0].id, id);
}

pub async fn a_restart_does_not_open_what_was_reserved(lab: Lab) {
    // rules 2.5, 2.7 and 2.8: the reserved one is older than the run that would go on under its id
    let old = reserved(&lab, "k").await;
    let id = lab
        .start(holding("k", &[Status::Runnable], later(MINUTE)))
        .await;
    lab.cancel(cancelling(id)).await;
    assert_eq!(lab.restart(id).await, Operated::KeyTaken(old));
    assert_eq!(lab.status(old).await, Status::Reserved);
    let started = lab.starts(vec![keyed("k")]).await;
    assert_eq!(started, [Ok(Started::New(old))]);
}
