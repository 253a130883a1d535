//! Signals: what is delivered is in the inbox, in order, and wakes the instance that waits for it.

use abide_core::model::{Cause, CommandStatus, Sequence, Status};

use super::build::{
    MINUTE, done, join, key, keyed, later, many, next, paying, plain, retry, signal, spawn, urgent,
    wait, within,
};
use super::lab::{Lab, command_ids};
use crate::{Op, Target};

pub async fn a_signal_wakes_who_waits_for_it(lab: Lab) {
    // rule 7.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let record = lab.accept(paying(id, "paid", "{\"sum\":5}")).await;
    assert_eq!(
        (record.status, record.sequence, record.instance),
        (CommandStatus::Received, Some(Sequence(1)), Some(id))
    );
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.due_at, found.timed_out),
        (Status::Runnable, Some(lab.now()), false)
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.step.as_str(), claimed.cause, claimed.attempt),
        ("woken", Cause::Signal, 0)
    );
    assert_eq!(claimed.awaited, [lab.record(record.id).await]);
    assert_eq!(claimed.awaited[0].arguments.as_str(), "[{\"sum\":5}]");
}

pub async fn only_a_signal_that_is_waited_for_wakes(lab: Lab) {
    // rule 7.2
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let other = lab.signal(id, "shipped").await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    let paid = lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    assert_eq!(lab.inbox(id).await, [other.id, paid.id]);
}

pub async fn what_did_not_match_stays_for_a_later_wait(lab: Lab) {
    // rule 7.2
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let shipped = lab.signal(id, "shipped").await;
    lab.signal(id, "paid").await;
    lab.step(worker, next("later")).await;
    assert_eq!(
        lab.step(worker, wait(&["shipped"], None)).await,
        Status::Runnable
    );
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Signal);
    assert_eq!(command_ids(&claimed.awaited), [shipped.id]);
}

pub async fn a_signal_that_comes_before_the_wait_is_not_lost(lab: Lab) {
    // rule 7.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let early = lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.awaited.is_empty(), "it has not waited for anything");
    assert_eq!(claimed.inbox.signals, 1);
    let committed = lab.commit(claimed.claim, wait(&["paid"], None)).await;
    assert_eq!(
        committed,
        abide_core::model::Committed::Moved(Status::Runnable)
    );
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [early.id]);
}

pub async fn a_signal_that_comes_while_the_step_runs_is_found_when_it_parks(lab: Lab) {
    // rule 7.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let meanwhile = lab.signal(id, "paid").await;
    assert_eq!(lab.status(id).await, Status::Executing);
    lab.commit(claimed.claim, wait(&["paid"], Some(1000))).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [meanwhile.id]);
    assert!(!claimed.timed_out);
}

pub async fn a_signal_and_the_park_in_one_transaction_meet_in_either_order(lab: Lab) {
    // rule 7.1
    let worker = lab.worker("w").await;
    for signal_first in [true, false] {
        let id = lab.start(plain()).await;
        let claim = lab.claim(worker).await.claim;
        let deliver = Op::Deliver(vec![signal(id, "paid")]);
        let park = Op::Commit {
            commits: vec![super::build::commit(claim, wait(&["paid"], None))],
            serves: Vec::new(),
        };
        let ops = match signal_first {
            true => vec![deliver, park],
            false => vec![park, deliver],
        };
        lab.try_run(ops).await.unwrap();
        let claimed = lab.claim(worker).await;
        assert_eq!((claimed.claim.id(), claimed.awaited.len()), (id, 1));
        lab.commit(claimed.claim, done()).await;
    }
}

pub async fn a_signal_wakes_nothing_that_does_not_wait_for_signals(lab: Lab) {
    // rule 7.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![urgent(9)])).await;
    let sleeper = lab.parked(worker, plain(), &[], Some(60_000)).await;
    let scheduled = lab.start(later(MINUTE)).await;
    let runnable = lab.start(plain()).await;
    for id in [parent, sleeper, scheduled, runnable] {
        let before = lab.get(id).await;
        lab.signal(id, "paid").await;
        let after = lab.get(id).await;
        assert_eq!(
            (after.status, after.due_at, after.cause),
            (before.status, before.due_at, before.cause)
        );
        assert_eq!(
            (after.inbox.signals, after.inbox.sequence),
            (1, Sequence(1))
        );
    }
}

pub async fn signals_are_numbered_in_the_order_in_which_they_came(lab: Lab) {
    // rule 7.1
    let ids = lab.start_all(many(2)).await;
    let deliveries = [0, 1, 0, 0, 1].map(|at: usize| signal(ids[at], "s"));
    let each = lab.deliver_all(deliveries.into()).await;
    let placed: Vec<_> = each
        .iter()
        .map(|one| one.as_ref().unwrap().record.as_ref().unwrap())
        .map(|record| (record.instance.unwrap(), record.sequence.unwrap().0))
        .collect();
    let [one, two] = [ids[0], ids[1]];
    assert_eq!(placed, [(one, 1), (two, 1), (one, 2), (one, 3), (two, 2)]);
    assert_eq!(lab.signal(one, "s").await.sequence, Some(Sequence(4)));
}

pub async fn a_refused_signal_takes_no_number(lab: Lab) {
    // rule 7.1
    let id = lab.start(plain()).await;
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    lab.signal(id, "s").await;
    assert!(
        lab.deliver(paying(id, "s", &huge))
            .await
            .verdict
            .rejection()
            .is_some()
    );
    assert_eq!(lab.signal(id, "s").await.sequence, Some(Sequence(2)));
}

pub async fn a_signal_finds_its_target_by_key(lab: Lab) {
    // rules 2.5 and 7.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, keyed("order:1"), &["paid"], None).await;
    let record = lab.signal(key("order:1"), "paid").await;
    assert_eq!(
        (record.instance, record.key, record.chain),
        (Some(id), Some(key("order:1")), Some(id))
    );
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn one_wake_for_all_signals_of_a_batch(lab: Lab) {
    // rules 7.1 and 7.4
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], None).await;
    let each = lab
        .deliver_all(["b", "x", "a", "b"].map(|text| signal(id, text)).into())
        .await;
    let sent: Vec<_> = each
        .into_iter()
        .map(|one| one.unwrap().record.unwrap().id)
        .collect();
    let claimed = lab.claim_some(worker, 9).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(
        command_ids(&claimed[0].awaited),
        [sent[0], sent[2], sent[3]]
    );
}

pub async fn a_signal_in_a_transaction_that_fails_was_never_there(lab: Lab) {
    // rules 7.1 and 17.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let ops = vec![
        Op::Deliver(vec![signal(id, "paid")]),
        Op::Start(many(100_001)),
    ];
    lab.try_run(ops).await.unwrap_err();
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.inbox.signals, found.inbox.sequence),
        (Status::AwaitingSignal, 0, Sequence(0))
    );
    assert!(lab.inbox(id).await.is_empty());
}

pub async fn a_stale_step_consumes_nothing(lab: Lab) {
    // rules 1.3 and 4.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let paid = lab.signal(id, "paid").await;
    let lost = lab.claim(worker).await.claim;
    lab.pass(super::lab::OVER_LEASE);
    lab.reclaim().await;
    let stale = lab.commit(lost, next("x")).await;
    assert_eq!(stale, abide_core::model::Committed::Stale);
    let worker = lab.worker("v").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
    assert_eq!(claimed.attempt, 1);
}

pub async fn a_commit_that_is_sent_again_consumes_once(lab: Lab) {
    // rules 1.3 and 4.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    lab.signal(id, "paid").await;
    let claim = lab.claim(worker).await.claim;
    lab.commit(claim.again(), next("x")).await;
    let second = lab.signal(id, "paid").await;
    lab.commit(claim, next("x")).await;
    assert_eq!(lab.inbox(id).await, [second.id]);
    assert_eq!(lab.get(id).await.inbox.signals, 1);
}

pub async fn who_is_woken_in_a_partition_stands_in_line(lab: Lab) {
    // rules 6.3 and 7.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, within("p"), &["paid"], None).await;
    lab.start(within("p")).await;
    let front = lab.claim(worker).await;
    lab.signal(id, "paid").await;
    assert!(lab.get(id).await.behind);
    assert!(lab.claim_some(worker, 9).await.is_empty());
    lab.commit(front.claim, done()).await;
    assert_eq!(lab.claim(worker).await.claim.id(), id);
}

pub async fn a_step_that_is_tried_again_keeps_what_it_was_handed(lab: Lab) {
    // rules 4.1 and 1.2
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let paid = lab.signal(id, "paid").await;
    lab.step(worker, retry(1000)).await;
    lab.signal(id, "paid").await;
    lab.pass(MINUTE);
    lab.fire().await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.attempt, claimed.cause), (1, Cause::Retry));
    assert_eq!(command_ids(&claimed.awaited), [paid.id]);
}

pub async fn a_signal_does_not_open_a_barrier(lab: Lab) {
    // rules 7.2 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let early = lab.signal(parent, "paid").await;
    lab.step(worker, join(vec![urgent(9)], None, None)).await;
    assert_eq!(lab.status(parent).await, Status::AwaitingChildren);
    lab.step(worker, done()).await;
    let joined = lab.claim(worker).await;
    assert_eq!((joined.cause, joined.awaited.len()), (Cause::Children, 0));
    lab.commit(joined.claim, wait(&["paid"], None)).await;
    assert_eq!(command_ids(&lab.claim(worker).await.awaited), [early.id]);
}

pub async fn an_inbox_is_read_by_sequence_and_records_newest_first(lab: Lab) {
    // rule 7.6
    let id = lab.start(keyed("k")).await;
    let mut sent = Vec::new();
    for text in ["a", "b", "a"] {
        sent.push(lab.signal(id, text).await);
        lab.pass(super::build::SECOND);
    }
    assert_eq!(lab.store.inbox(id).await.unwrap(), sent);
    let filter = crate::CommandFilter {
        key: Some(key("k")),
        name: Some(super::build::name("a")),
        status: Some(CommandStatus::Received),
        ..crate::CommandFilter::default()
    };
    let page = lab.store.commands(&filter, None, 1).await.unwrap();
    assert_eq!(
        (command_ids(&page.items), page.next),
        (vec![sent[2].id], Some(sent[2].id))
    );
    let page = lab.store.commands(&filter, page.next, 9).await.unwrap();
    assert_eq!(
        (command_ids(&page.items), page.next),
        (vec![sent[0].id], None)
    );
    assert_eq!(
        lab.find(Target::Key(key("k"))).await.unwrap().inbox.signals,
        3
    );
}
