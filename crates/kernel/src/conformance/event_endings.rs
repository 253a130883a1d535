//! The end of waits for events: match or timeout, and nothing is left behind.

use abide_core::model::{
    Cancel, Cause, Committed, Operated, Operator, Park, Refusal, Status, Unended,
};

use super::build::{
    MINUTE, SECOND, cancelling, commit, done, json, lane, many, plain, spawn, stop,
};
use super::coding::{Coded, child_starts, ended, go_on, workflow};
use super::eventing::{any, awaits, order, ordered, parks, publishing, that, within_ms};
use super::lab::{Lab, WAITERS};

pub async fn a_wait_that_times_out_is_over(lab: Lab) {
    // rules 7.5 and 14.5
    let worker = lab.worker("w").await;
    let waits = within_ms(vec![order(1), any("paid")], &[], Some(5_000));
    let id = lab.awaiting(worker, plain(), waits).await;
    lab.pass(4 * SECOND);
    assert_eq!(lab.fire().await, 0);
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 1);
    assert!(lab.waiters().await.is_empty());
    assert_eq!(lab.tell(ordered(1)).await, 0, "it is too late");
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.cause, claimed.timed_out, claimed.attempt),
        (Cause::Timeout, true, 0)
    );
    assert!(claimed.awaited.is_empty() && lab.inbox(id).await.is_empty());
    assert_eq!(lab.tell(ordered(1)).await, 0);
    lab.commit(claimed.claim, done()).await;
    assert_eq!(lab.count_events(id, "timed_out").await, 1);
    assert_eq!(lab.count_events(id, "event_matched").await, 0);
}

pub async fn a_wait_that_was_matched_does_not_time_out(lab: Lab) {
    // rules 7.5 and 14.5
    let worker = lab.worker("w").await;
    let waits = within_ms(vec![order(1)], &[], Some(5_000));
    let id = lab.awaiting(worker, plain(), waits).await;
    // The deadline is over, and nothing has been done about it: what is committed first counts.
    lab.pass(6 * SECOND);
    assert_eq!(lab.tell(ordered(1)).await, 1);
    assert_eq!(lab.fire().await, 0);
    let claimed = lab.claim(worker).await;
    assert!(!claimed.timed_out && claimed.awaited.len() == 1);
    assert_eq!(lab.count_events(id, "timed_out").await, 0);
}

pub async fn whatever_ends_a_wait_leaves_no_waiter_and_takes_none_but_its_own(lab: Lab) {
    // rule 14.7
    let worker = lab.worker("w").await;
    let waits = || awaits(vec![order(1), any("paid")], &["s"]);
    let other = lab.awaiting(worker, plain(), waits()).await;
    lab.pass(30 * SECOND);
    for which in 0..5 {
        let id = lab.awaiting(worker, plain(), waits()).await;
        assert_eq!(lab.waiters().await.len(), 4);
        match which {
            0 => {
                lab.cancel(cancelling(id)).await;
                // A run that is restarted begins where it ended, and waits for nothing yet.
                let again = lab.restarted(id).await;
                assert_eq!(lab.waiters().await.len(), 2);
                lab.step(worker, waits()).await;
                assert_eq!(lab.waits_for_events().await, [other, other, again, again]);
                lab.cancel(cancelling(again)).await;
            }
            1 => drop(lab.signal(id, "s").await),
            2 => {
                let force = Cancel {
                    force: true,
                    ..cancelling(id)
                };
                lab.cancel(force).await;
            }
            3 => {
                let repaired = lab.repair(id).await;
                assert_eq!(repaired, Operated::RepairNotNeeded);
                assert_eq!(lab.waiters().await.len(), 4, "a repair changes nothing");
                lab.cancel(cancelling(id)).await;
            }
            _ => {
                let parent = lab.start(plain()).await;
                lab.step(worker, spawn(many(1))).await;
                let child = lab.claim(worker).await;
                lab.commit(child.claim, waits()).await;
                assert_eq!(lab.waiters().await.len(), 6);
                lab.cancel(cancelling(parent)).await;
                assert_eq!(lab.waiters().await.len(), 4, "children are ended too");
                lab.cancel(cancelling(id)).await;
            }
        }
        assert_eq!(lab.waits_for_events().await, [other, other], "case {which}");
        for one in lab.claim_some(worker, 10).await {
            lab.commit(one.claim, done()).await;
        }
    }
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    assert!(lab.waiters().await.is_empty());
}

pub async fn a_workflow_that_ends_leaves_no_waiter(lab: Lab) {
    // rules 11.1 and 14.7
    let worker = lab.worker("w").await;
    let park = || parks(vec![(1, order(1)), (2, any("paid"))], lab.now() + MINUTE);
    let other = lab.coded(worker, workflow(), Coded::parks(park())).await;
    let id = lab.coded(worker, workflow(), Coded::parks(park())).await;
    let force = Cancel {
        force: true,
        ..cancelling(id)
    };
    let answer = lab.cancel(force).await;
    assert_eq!(answer, Operated::Cancelled { id, children: 0 });
    assert_eq!(lab.waits_for_events().await, [other, other]);
    // One whose cancellation is requested stays where it is until it answers.
    let requested = lab.coded(worker, workflow(), Coded::parks(park())).await;
    lab.cancel(cancelling(requested)).await;
    assert_eq!(lab.waiters().await.len(), 4);
    let claimed = lab.claim(worker).await;
    let cancel = claimed.updates[0].id;
    let turn = Coded::then(go_on()).answers(&[cancel]);
    lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(lab.waits_for_events().await, [other, other]);
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, Coded::then(ended()).into()).await;
    assert_eq!(lab.tell(ordered(1)).await, 1);
}

pub async fn a_family_that_waits_for_events(lab: Lab) {
    // rules 10.2 and 14.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(many(3))).await;
    for child in lab.claim_some(worker, 3).await {
        lab.commit(child.claim, awaits(vec![order(1)], &[])).await;
    }
    assert_eq!(lab.tell(ordered(1)).await, 3);
    for child in lab.claim_some(worker, 3).await {
        assert_eq!(child.awaited.len(), 1);
        lab.commit(child.claim, done()).await;
    }
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), parent);
    let answer = lab.commit(claimed.claim, awaits(vec![order(2)], &[])).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.tell(ordered(2)).await, 1);
}

pub async fn a_child_that_ends_in_the_commit_in_which_its_parent_parks_leaves_no_waiter(lab: Lab) {
    // rules 10.2 and 14.7
    let worker = lab.worker("w").await;
    let begin = Coded::then(go_on()).starts(1, child_starts(1), 0);
    let id = lab.coded(worker, workflow(), begin).await;
    let child = lab
        .claim_from(worker, "default", vec![lane("n", 1)], 1)
        .await
        .remove(0);
    let parent = lab.claim(worker).await;
    let park = Park {
        children: Some(Unended {
            seen: parent.children_ended,
            needed: 1,
        }),
        ..parks(vec![(2, order(1))], lab.now() + MINUTE)
    };
    let commits = vec![
        commit(parent.claim, Coded::parks(park).into()),
        commit(child.claim, done()),
    ];
    lab.commit_all(commits).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert!(lab.waiters().await.is_empty());
    assert_eq!(lab.tell(ordered(1)).await, 0);
}

pub async fn no_more_may_wait_for_a_type_than_the_limit(lab: Lab) {
    // rules 14.7 and 16.3
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(WAITERS + 3)).await;
    let mut claimed = lab.claim_some(worker, WAITERS + 3).await;
    let rest = claimed.split_off(WAITERS - 1);
    for one in claimed {
        lab.commit(one.claim, awaits(vec![order(1)], &[])).await;
    }
    // Of one batch each is judged for itself: the first is the last that fits.
    let commits = rest.into_iter().map(|one| {
        let waits = awaits(vec![any("paid"), order(2)], &["s"]);
        commit(one.claim, waits)
    });
    let mut again = Vec::new();
    for answer in lab.commit_all(commits.collect()).await {
        again.push(match answer {
            Committed::Moved(Status::AwaitingSignal) => None,
            Committed::Refused(refusal) => Some(refusal),
            other => panic!("{other:?}"),
        });
    }
    let full = Refusal::TooManyWaiters {
        event_type: super::build::name("order"),
        most: WAITERS,
        met: WAITERS + 1,
    };
    assert_eq!(
        again,
        [None, Some(full.clone()), Some(full.clone()), Some(full)]
    );
    let waiters = lab.waiters().await;
    let of = |of: &str| {
        let of = waiters.iter().filter(|one| one.event_type.as_str() == of);
        of.count()
    };
    assert_eq!((of("order"), of("paid")), (WAITERS, 1));
    for id in &ids[WAITERS..] {
        assert_eq!(lab.status(*id).await, Status::Executing, "as it was");
    }
    // Each one that ends makes room for one.
    lab.cancel(cancelling(ids[0])).await;
    let fresh = lab.awaiting(worker, plain(), awaits(vec![order(3)], &[]));
    let fresh = fresh.await;
    assert_eq!(lab.tell(ordered(3)).await, 1);
    assert_eq!(lab.tell(ordered(1)).await, (WAITERS - 2) as u32);
    assert_eq!(lab.status(fresh).await, Status::Runnable);
}

pub async fn one_wait_for_too_many_of_a_type_is_refused(lab: Lab) {
    // rule 14.7
    let worker = lab.worker("w").await;
    lab.start_all(many(2)).await;
    let first = lab.claim(worker).await;
    let too_many = vec![order(1); WAITERS + 1];
    let refusal = lab
        .refused(first.claim.again(), awaits(too_many, &[]))
        .await;
    assert!(
        refusal.to_string().contains("type \"order\"")
            && refusal.to_string().contains("waiters_per_type"),
        "{refusal}"
    );
    // One of a list stands at each of its values, and is counted so.
    let values = |count: usize| {
        let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
        let list = format!("[{}]", values.join(","));
        awaits(vec![that(any("order"), "id", Operator::In, &list)], &[])
    };
    let claim = first.claim.again();
    let refusal = lab.refused(claim, values(WAITERS + 1)).await;
    assert!(
        refusal.to_string().contains("waiters_per_type"),
        "{refusal}"
    );
    lab.commit(first.claim, values(WAITERS)).await;
    assert_eq!(lab.waiters().await.len(), 1, "it is listed once");
    let second = lab.claim(worker).await;
    let claim = second.claim.again();
    lab.refused(claim, awaits(vec![order(1)], &[])).await;
    assert_eq!(lab.tell(ordered(7)).await, 1);
    let answer = lab.commit(second.claim, values(WAITERS)).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
}

pub async fn however_waits_come_and_go_their_number_is_known(lab: Lab) {
    // rule 14.7
    let worker = lab.worker("w").await;
    let one_of = that(any("order"), "id", Operator::In, "[1,2,3]");
    for round in 0..3 {
        let waits = awaits(vec![order(1), one_of.clone(), any("order")], &["s"]);
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(lab.awaiting(worker, plain(), waits.clone()).await);
        }
        lab.signal(ids[0], "s").await;
        lab.cancel(cancelling(ids[1])).await;
        assert_eq!(lab.tell(ordered(3 + round)).await, 2);
        let claimed = lab.claim_some(worker, 10).await;
        assert_eq!(claimed.len(), 3);
        for one in claimed {
            lab.commit(one.claim, stop("no")).await;
        }
        assert!(lab.waiters().await.is_empty());
    }
    for _ in 0..WAITERS {
        let waits = awaits(vec![any("order")], &[]);
        lab.awaiting(worker, plain(), waits).await;
    }
    lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    lab.refused(claim, awaits(vec![any("order")], &[])).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, WAITERS);
    assert_eq!(lab.tell(publishing("order", "1")).await, 0);
}

pub async fn a_commit_of_a_wait_that_is_sent_again_opens_nothing_twice(lab: Lab) {
    // rules 1.3 and 14.7
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claimed = lab.claim(worker).await;
    let twice = claimed.claim.again();
    let waits = || awaits(vec![order(1), any("paid")], &[]);
    lab.commit(claimed.claim, waits()).await;
    let before = lab.waiters().await;
    lab.pass(SECOND);
    lab.commit(twice.again(), waits()).await;
    assert_eq!(lab.waiters().await, before);
    assert_eq!(lab.tell(ordered(1)).await, 1);
    lab.commit(twice, waits()).await;
    assert!(lab.waiters().await.is_empty());
    assert_eq!(lab.get(id).await.state, json("{\"waits\":1}"));
}
