//! Runs: a chain goes on as new, with its key, its messages and its place at the parent's barrier.

use abide_core::model::{
    Cause, CommandStatus, InstanceId, Outcome, Rejection, Scope, Sequence, Start, Started, Status,
    UniqueKey, Verdict,
};

use super::build::{
    MINUTE, adding, answer, cancelling, continue_as_new, done, json, key, keyed, name, next, once,
    paying, plain, retry, signal, spawn, updates, urgent, wait, within,
};
use super::lab::{Lab, command_ids};
use crate::Filter;

/// The run that a key stands for.
async fn newest(lab: &Lab, text: &str) -> InstanceId {
    lab.find(key(text)).await.expect("somebody has the key").id
}

pub async fn a_run_closes_and_the_next_opens_in_one_commit(lab: Lab) {
    // rule 2.4
    let worker = lab.worker("w").await;
    let start = Start {
        priority: abide_core::model::Priority(3),
        ..keyed("k")
    };
    let first = lab.start(start).await;
    lab.step(worker, next("b")).await;
    lab.pass(MINUTE);
    let status = lab.step(worker, continue_as_new("again")).await;
    assert_eq!(status, Status::Continued);
    let old = lab.get(first).await;
    assert_eq!(
        (old.row.status, old.row.finished_at, old.state),
        (Status::Continued, Some(lab.now()), json("{\"to\":1}"))
    );
    assert_eq!((old.row.run.number, old.row.run.first), (1, None));
    let new = lab.find(key("k")).await.unwrap();
    assert_ne!(new.row.id, first);
    assert_eq!((new.row.run.number, new.row.run.first), (2, Some(first)));
    assert_eq!(
        (
            new.row.status,
            new.row.step.as_str(),
            new.first_step.as_str()
        ),
        (Status::Runnable, "again", "again")
    );
    assert_eq!(
        (new.state, new.row.step_seq, new.row.attempt),
        (json("{\"run\":2}"), 1, 0)
    );
    assert_eq!(
        (new.row.priority.0, new.row.created_at, new.row.due_at),
        (3, lab.now(), Some(lab.now()))
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.claim.id(), claimed.cause),
        (new.row.id, Cause::Start)
    );
}

pub async fn the_runs_of_a_chain_are_numbered_and_listed(lab: Lab) {
    // rule 2.4
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    for _ in 0..3 {
        lab.step(worker, continue_as_new("again")).await;
    }
    lab.start(plain()).await;
    let filter = Filter {
        chain: Some(first),
        ..Filter::default()
    };
    let runs = lab.store.list(&filter, None, 9).await.unwrap().items;
    let numbers: Vec<u32> = runs.iter().map(|run| run.run.number).collect();
    assert_eq!(numbers, [4, 3, 2, 1]);
    assert_eq!(runs[0].id, newest(&lab, "k").await);
    assert_eq!(runs[3].id, first);
}

pub async fn pending_messages_move_to_the_new_run_in_order(lab: Lab) {
    // rule 2.4
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let claimed = lab.claim(worker).await;
    let a = lab.signal(first, "a").await;
    let update = lab.update(first).await;
    let b = lab.signal(first, "b").await;
    lab.commit(claimed.claim, continue_as_new("again")).await;
    let second = newest(&lab, "k").await;
    assert_eq!(lab.inbox(second).await, [a.id, update.id, b.id]);
    assert!(lab.inbox(first).await.is_empty());
    let old = lab.get(first).await.inbox;
    assert_eq!((old.signals, old.updates), (0, 0));
    let new = lab.get(second).await.inbox;
    assert_eq!(
        (new.signals, new.updates, new.sequence),
        (2, 1, Sequence(3))
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.updates), [update.id]);
    assert!(claimed.awaited.is_empty(), "it has not waited for anything");
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    lab.step(worker, wait(&["a", "b"], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [a.id, b.id]);
    lab.commit(claimed.claim, next("x")).await;
    let taken = lab.record(a.id).await;
    assert_eq!(
        (taken.status, taken.instance, taken.chain),
        (CommandStatus::Applied, Some(second), Some(first))
    );
}

pub async fn the_sequence_goes_on_and_the_cursor_is_inherited(lab: Lab) {
    // rules 2.4 and 7.7
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, keyed("k"), &["a"], None).await;
    lab.signal(first, "a").await;
    lab.step(worker, continue_as_new("again")).await;
    let second = newest(&lab, "k").await;
    let inbox = lab.get(second).await.inbox;
    assert_eq!((inbox.sequence, inbox.cursor), (Sequence(1), Sequence(1)));
    let b = lab.signal(key("k"), "b").await;
    assert_eq!(
        (b.sequence, b.instance, b.chain),
        (Some(Sequence(2)), Some(second), Some(first))
    );
}

pub async fn dedup_keys_belong_to_the_chain(lab: Lab) {
    // rules 2.4 and 7.3
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let record = lab.accept(once("d", paying(first, "a", "1"))).await;
    lab.step(worker, continue_as_new("again")).await;
    let again = lab.deliver(once("d", paying(key("k"), "a", "1"))).await;
    assert!(again.duplicate);
    assert_eq!(again.record.unwrap().id, record.id);
    let other = lab.deliver(once("d", paying(key("k"), "a", "2"))).await;
    assert_eq!(
        other.verdict,
        Verdict::Rejected(Rejection::ConflictingDuplicate)
    );
    lab.step(worker, done()).await;
    // A key that was freed and is started again begins a new chain.
    let anew = lab.start(keyed("k")).await;
    let fresh = lab.accept(once("d", paying(key("k"), "a", "2"))).await;
    assert_eq!(
        (fresh.instance, fresh.chain, fresh.sequence),
        (Some(anew), Some(anew), Some(Sequence(1)))
    );
    assert_eq!(lab.get(anew).await.run.number, 1);
}

pub async fn a_key_stays_taken_while_its_chain_goes_on(lab: Lab) {
    // rules 2.2 and 2.4
    let worker = lab.worker("w").await;
    for scope in [
        Scope::LIVE,
        Scope::ALWAYS,
        Scope::LIVE.and(Status::Continued),
    ] {
        let start = Start {
            scope,
            unique_key: Some(UniqueKey::new(*b"u").unwrap()),
            unique_scope: scope,
            ..keyed("k")
        };
        lab.start(start.clone()).await;
        lab.step(worker, continue_as_new("again")).await;
        let second = newest(&lab, "k").await;
        assert_eq!(
            lab.starts(vec![start.clone()]).await,
            [Ok(Started::Duplicate(second))]
        );
        let by_unique_key = Start {
            key: None,
            ..start.clone()
        };
        assert_eq!(
            lab.starts(vec![by_unique_key]).await,
            [Ok(Started::Duplicate(second))]
        );
        lab.step(worker, done()).await;
        if scope == Scope::ALWAYS {
            assert_eq!(
                lab.starts(vec![start.clone()]).await,
                [Ok(Started::Duplicate(second))]
            );
            let sweep = crate::SweepRequest {
                before: lab.now() + MINUTE,
                after: None,
                limit: 99,
            };
            lab.run(crate::Op::Sweep(sweep)).await;
        }
    }
}

pub async fn a_run_without_a_key_continues_too(lab: Lab) {
    // rule 2.4
    let worker = lab.worker("w").await;
    let first = lab.start(within("p")).await;
    lab.step(worker, continue_as_new("again")).await;
    let claimed = lab.claim(worker).await;
    let found = lab.get(claimed.claim.id()).await;
    assert_eq!((found.row.run.first, found.key), (Some(first), None));
    assert_eq!(found.row.partition_key, Some(key("p")));
}

pub async fn continued_is_not_an_end_for_a_parent(lab: Lab) {
    // rules 2.4 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![keyed("child")])).await;
    let first = newest(&lab, "child").await;
    for _ in 0..2 {
        lab.step(worker, continue_as_new("again")).await;
        let found = lab.get(parent).await;
        assert_eq!(
            (found.status, found.family.pending),
            (Status::AwaitingChildren, 1)
        );
    }
    let last = newest(&lab, "child").await;
    assert_eq!(lab.get(last).await.parent, Some(parent));
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    let children: Vec<_> = joined
        .children
        .iter()
        .map(|one| (one.id, one.status))
        .collect();
    assert_eq!(
        children,
        [(last, Status::Done)],
        "the chain's last run stands at the barrier"
    );
    assert_eq!(
        lab.store
            .children(parent, joined.joins.unwrap())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        lab.kinds(parent).await,
        [
            "step_completed",
            "children_spawned",
            "child_ended",
            "children_joined"
        ]
    );
    assert_eq!(lab.status(first).await, Status::Continued);
}

pub async fn a_child_continues_beside_its_siblings(lab: Lab) {
    // rules 2.4 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(1), urgent(2)])).await;
    let mut both = lab.claim_some(worker, 2).await;
    let (two, one) = (both.pop().unwrap().claim, both.pop().unwrap().claim);
    lab.commit_all(vec![
        super::build::commit(one, continue_as_new("again")),
        super::build::commit(two, done()),
    ])
    .await;
    assert_eq!(lab.get(parent).await.family.pending, 1);
    lab.step(worker, done()).await;
    assert_eq!(lab.claim(worker).await.children.len(), 2);
}

pub async fn an_old_run_can_neither_be_cancelled_nor_repaired_nor_restarted(lab: Lab) {
    // rules 2.5 and 11.1
    use abide_core::model::Operated;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    let second = newest(&lab, "k").await;
    let refused = Operated::NotCurrent(second);
    assert_eq!(refused.outcome(), "rejected_not_current");
    assert_eq!(lab.cancel(cancelling(first)).await, refused);
    assert_eq!(lab.restart(first).await, refused);
    assert_eq!(lab.repair(first).await, refused);
    assert!(matches!(
        lab.cancel(cancelling(key("k"))).await,
        Operated::Cancelled { .. }
    ));
}

pub async fn a_key_stands_for_the_newest_run_of_whatever_chain(lab: Lab) {
    // rule 2.5
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    lab.step(worker, done()).await;
    let anew = lab.start(keyed("k")).await;
    assert_eq!(newest(&lab, "k").await, anew);
    assert_eq!(lab.signal(key("k"), "a").await.instance, Some(anew));
}

pub async fn a_run_that_continues_keeps_what_its_chain_was_not_handed(lab: Lab) {
    // rules 2.4 and 4.1
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, keyed("k"), &["a"], None).await;
    let a = lab.signal(first, "a").await;
    let claimed = lab.claim(worker).await;
    let late = lab.signal(first, "a").await;
    lab.commit(claimed.claim, continue_as_new("again")).await;
    let second = newest(&lab, "k").await;
    assert_eq!(lab.record(a.id).await.status, CommandStatus::Applied);
    assert_eq!(lab.inbox(second).await, [late.id]);
}

pub async fn a_continuation_that_is_sent_again_opens_one_run(lab: Lab) {
    // rules 1.3 and 2.4
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    let claim = lab.claim(worker).await.claim;
    lab.commit(claim.again(), continue_as_new("again")).await;
    lab.commit(claim, continue_as_new("again")).await;
    assert_eq!(lab.get(newest(&lab, "k").await).await.run.number, 2);
    let filter = Filter {
        chain: Some(first),
        ..Filter::default()
    };
    assert_eq!(
        lab.store.list(&filter, None, 9).await.unwrap().items.len(),
        2
    );
}

pub async fn a_continuation_with_a_bad_version_is_refused(lab: Lab) {
    // rules 2.6 and 4.2
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    let claimed = lab.claim(worker).await;
    let outcome = Outcome::ContinueAsNew {
        step: name("again"),
        state: json("1"),
        version: Some(0),
    };
    let refused = lab.commit(claimed.claim, outcome).await;
    assert!(matches!(refused, abide_core::model::Committed::Refused(_)));
}

pub async fn a_chain_goes_on_after_many_runs_with_its_inbox(lab: Lab) {
    // rule 2.4
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(lab.signal(key("k"), "a").await.id);
        lab.step(worker, continue_as_new("again")).await;
    }
    lab.step(worker, retry(0)).await;
    lab.step(worker, wait(&["a"], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), sent);
    let placed: Vec<i64> = claimed
        .awaited
        .iter()
        .map(|one| one.sequence.unwrap().0)
        .collect();
    assert_eq!(placed, [1, 2, 3, 4, 5]);
}

pub async fn an_update_by_key_reaches_the_newest_run(lab: Lab) {
    // rules 2.5 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    let second = newest(&lab, "k").await;
    assert_eq!(lab.update(key("k")).await.instance, Some(second));
    let old = lab.deliver(adding(first, 1)).await;
    assert_eq!(
        (old.verdict, old.current),
        (Verdict::Rejected(Rejection::NotCurrent), Some(second))
    );
    assert_eq!(
        lab.deliver(signal(second, "a")).await.verdict,
        Verdict::Received
    );
}
