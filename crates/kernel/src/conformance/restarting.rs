//! Restarting: a new run of what failed or was cancelled, from where it ended.

use abide_core::model::{
    BarrierNumber, Cause, CommandStatus, InstanceId, Operated, Scope, Sequence, Start, Status,
    UniqueKey,
};

use super::build::{
    MINUTE, cancelling, continue_as_new, done, held, json, key, keyed, later, name, next, once,
    paying, plain, retry, signal, spawn, stop, urgent, wait,
};
use super::lab::Lab;
use crate::{Filter, Op};

pub async fn a_failed_one_goes_on_where_it_ended(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, next("pay")).await;
    lab.step(worker, retry(0)).await;
    lab.step(worker, stop("no")).await;
    lab.pass(MINUTE);
    let answer = lab.restart(key("k")).await;
    let Operated::Restarted { id, run_number } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((run_number, answer.outcome()), (2, "restarted"));
    let new = lab.get(id).await;
    assert_eq!(
        (
            new.row.status,
            new.row.step.as_str(),
            new.row.attempt,
            new.row.step_seq
        ),
        (Status::Runnable, "pay", 0, 1)
    );
    assert_eq!(new.state, json("{\"again\":1}"), "its last state");
    assert_eq!(
        (new.row.run.first, new.key, new.row.last_error),
        (Some(first), Some(key("k")), None)
    );
    let old = lab.get(first).await;
    assert_eq!(
        (old.status, old.last_error.as_deref()),
        (Status::Failed, Some("no"))
    );
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.cause), (id, Cause::Start));
    assert_eq!(lab.kinds(first).await.last(), Some(&"continued"));
}

pub async fn a_cancelled_one_goes_on_too_and_at_the_step_named(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, plain(), &["a"], Some(1000)).await;
    lab.cancel(cancelling(first)).await;
    let op = Op::Restart(vec![(first.into(), Some(name("other")))]);
    let Operated::Restarted { id, .. } = lab.operate(op).await else {
        panic!("it is restarted")
    };
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.step.as_str(), claimed.state),
        (id, "other", json("{\"waits\":1}"))
    );
    assert!(!claimed.timed_out && claimed.awaits.is_empty());
}

pub async fn what_was_discarded_stays_so(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let lost = lab.accept(once("d", paying(first, "a", "1"))).await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    assert_eq!(lab.record(lost.id).await.status, CommandStatus::Discarded);
    assert!(lab.inbox(second).await.is_empty());
    // The chain goes on: its numbers, and what it has seen.
    let again = lab.deliver(once("d", paying(second, "a", "1"))).await;
    assert!(again.duplicate);
    assert_eq!(lab.signal(second, "b").await.sequence, Some(Sequence(2)));
    let old = lab.deliver(signal(first, "b")).await;
    assert_eq!(old.current, Some(second));
}

pub async fn what_is_neither_failed_nor_cancelled_is_refused(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let runs = lab.start(plain()).await;
    let scheduled = lab.start(later(MINUTE)).await;
    for (id, status) in [(runs, Status::Runnable), (scheduled, Status::Scheduled)] {
        let answer = lab.restart(id).await;
        assert_eq!(answer, Operated::NotRestartable(status));
        assert_eq!(answer.outcome(), "rejected_not_restartable");
    }
    lab.step(worker, done()).await;
    assert_eq!(
        lab.restart(runs).await,
        Operated::NotRestartable(Status::Done)
    );
    let missing = InstanceId(runs.0 + 1_000_000);
    assert_eq!(lab.restart(missing).await, Operated::NoTarget);
}

pub async fn a_run_that_was_restarted_is_not_the_newest_any_more(lab: Lab) {
    // rules 2.5 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    assert_eq!(lab.restart(first).await, Operated::NotCurrent(second));
    assert_eq!(
        lab.restart(second).await,
        Operated::NotRestartable(Status::Runnable)
    );
    lab.step(worker, stop("again")).await;
    let third = lab.restarted(key("k")).await;
    assert_eq!(lab.get(third).await.run.number, 3);
    let filter = Filter {
        chain: Some(first),
        ..Filter::default()
    };
    assert_eq!(
        lab.store.list(&filter, None, 9).await.unwrap().items.len(),
        3
    );
}

pub async fn a_key_that_was_taken_meanwhile_is_reported(lab: Lab) {
    // rules 2.2 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, stop("no")).await;
    let other = lab.start(keyed("k")).await;
    let before = lab.get(first).await;
    let answer = lab.restart(first).await;
    assert_eq!(answer, Operated::KeyTaken(other));
    assert_eq!(lab.get(first).await, before, "nothing has changed");
    lab.step(worker, done()).await;
    lab.restarted(first).await;
}

pub async fn a_key_that_is_held_for_good_passes_to_the_new_run(lab: Lab) {
    // rules 2.2 and 11.2
    let worker = lab.worker("w").await;
    let start = Start {
        scope: Scope::ALWAYS,
        unique_key: Some(UniqueKey::new(*b"u").unwrap()),
        unique_scope: Scope::ALWAYS,
        ..keyed("k")
    };
    let first = lab.start(start.clone()).await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    assert_eq!(
        lab.starts(vec![start]).await,
        [Ok(abide_core::model::Started::Duplicate(second))]
    );
}

pub async fn a_restart_that_is_refused_for_its_unique_key_changes_nothing(lab: Lab) {
    // rules 2.2 and 11.2
    let worker = lab.worker("w").await;
    let unique = |text: &str| Start {
        scope: Scope::ALWAYS,
        unique_key: Some(UniqueKey::new(*b"u").unwrap()),
        ..keyed(text)
    };
    let first = lab.start(unique("k")).await;
    lab.step(worker, stop("no")).await;
    let other = lab.start(unique("j")).await;
    assert_eq!(lab.restart(first).await, Operated::KeyTaken(other));
    let found = lab.get(first).await;
    assert_eq!((found.scope, found.status), (Scope::ALWAYS, Status::Failed));
    assert_eq!(
        lab.starts(vec![Start {
            unique_key: None,
            ..unique("k")
        }])
        .await,
        [Ok(abide_core::model::Started::Duplicate(first))]
    );
}

pub async fn a_parent_that_still_waits_waits_for_the_child_once_more(lab: Lab) {
    // rules 10.2 and 11.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c1"), keyed("c2")]))
        .await;
    lab.step(worker, stop("no")).await;
    assert_eq!(lab.get(parent).await.family.pending, 1);
    let c1 = lab.restarted(key("c1")).await;
    let found = lab.get(parent).await;
    assert_eq!((found.family.pending, found.family.needed), (2, 2));
    let barrier = BarrierNumber(1);
    let children = lab.store.children(parent, barrier).await.unwrap();
    let mut there: Vec<_> = children.iter().map(|one| one.id).collect();
    there.sort_unstable();
    let c2 = lab.find(key("c2")).await.unwrap().id;
    assert_eq!(there, [c2, c1], "each chain once");
    lab.step(worker, done()).await;
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.children.len()), (parent, 2));
}

pub async fn a_child_restarted_after_the_barrier_opened_is_counted_and_opens_nothing(lab: Lab) {
    // rules 10.2 and 11.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c1")])).await;
    lab.step(worker, stop("no")).await;
    let joined = lab.claim(worker).await;
    lab.restarted(key("c1")).await;
    assert_eq!(lab.get(parent).await.family.pending, 1);
    lab.step(worker, done()).await;
    let found = lab.get(parent).await;
    assert_eq!((found.family.pending, found.status), (0, Status::Executing));
    assert_eq!(
        lab.commit(joined.claim, done()).await,
        abide_core::model::Committed::Moved(Status::Done)
    );
}

pub async fn a_child_of_a_parent_that_has_ended_is_restarted_alone(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("c1")])).await;
    lab.cancel(cancelling(parent)).await;
    lab.restarted(key("c1")).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
    assert_eq!(lab.status(parent).await, Status::Cancelled);
}

pub async fn a_stale_worker_of_the_old_run_changes_nothing(lab: Lab) {
    // rules 1.3 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let claim = lab.claim(worker).await.claim;
    lab.cancel(cancelling(first)).await;
    lab.restarted(first).await;
    assert_eq!(
        lab.commit(claim.again(), done()).await,
        abide_core::model::Committed::Stale
    );
    assert_eq!(lab.status(first).await, Status::Cancelled);
}

pub async fn a_chain_that_continued_is_restarted_from_its_last_run(lab: Lab) {
    // rules 2.4 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, stop("no")).await;
    let third = lab.restarted(key("k")).await;
    let found = lab.get(third).await;
    assert_eq!((found.run.number, found.run.first), (3, Some(first)));
    assert_eq!(found.state, json("{\"run\":2}"));
}

pub async fn what_was_held_is_handed_to_the_new_run(lab: Lab) {
    // rules 7.8 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, stop("no")).await;
    let record = lab.deliver(held("k", "a", MINUTE)).await.record.unwrap();
    let second = lab.restarted(first).await;
    assert_eq!(lab.inbox(second).await, [record.id]);
}

pub async fn what_is_held_under_a_dedup_key_that_the_chain_knows_is_refused(lab: Lab) {
    // rules 7.3, 7.8 and 11.2
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.accept(once("d", paying(first, "a", "1"))).await;
    lab.step(worker, stop("no")).await;
    lab.start(keyed("k")).await;
    lab.step(worker, done()).await;
    // The newest chain of the key has not seen it, so it is held; then the older one is restarted.
    let record = lab
        .deliver(once("d", held("k", "a", MINUTE)))
        .await
        .record
        .unwrap();
    assert_eq!(record.status, CommandStatus::Held);
    let second = lab.restarted(first).await;
    assert!(lab.inbox(second).await.is_empty());
    let record = lab.record(record.id).await;
    assert_eq!(
        (record.status, record.rejection),
        (
            CommandStatus::Rejected,
            Some(abide_core::model::Rejection::ConflictingDuplicate)
        )
    );
}

pub async fn several_are_restarted_in_one_call(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let ids = lab.start_all(vec![urgent(1), urgent(2)]).await;
    lab.step(worker, stop("no")).await;
    lab.step(worker, wait(&["a"], None)).await;
    let op = Op::Restart(ids.iter().map(|id| ((*id).into(), None)).collect());
    let crate::Answer::Operated(each) = lab.run(op).await else {
        panic!("an answer for each")
    };
    let outcomes: Vec<&str> = each.iter().map(Operated::outcome).collect();
    assert_eq!(outcomes, ["restarted", "rejected_not_restartable"]);
}
