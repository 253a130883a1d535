//! Workers that die in a step: how often, what that costs, and when it is enough.

use std::time::Duration;

use abide_core::model::{
    Cause, CommandStatus, Committed, Declared, HistoryEvent, Instance, InstanceId, Kind, Policy,
    Refusal, RetrySpec, Scope, Start, Status,
};
use abide_core::rules::liveness::{Code, Liveness};

use super::build::{
    MINUTE, SECOND, answer, done, keyed, many, name, next, plain, retry, returning, spawn, under,
    updates, wait, within,
};
use super::coding::{Coded, go_on, workflow};
use super::lab::{Lab, OVER_LEASE};
use super::remote_claims::{enlist, lease, lease_one};
use crate::Op;

/// A start that fails after that many deaths.
fn enduring(max_deaths: u32, start: Start) -> Start {
    let max_deaths = Some(max_deaths);
    Start {
        policy: Some(Policy {
            max_deaths,
            ..Policy::default()
        }),
        ..start
    }
}

/// Lets a worker claim the first there is, and die.
async fn die(lab: &Lab) -> Instance {
    let worker = lab.worker("dying").await;
    let id = lab.claim(worker).await.claim.id();
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    lab.get(id).await
}

/// Lets time pass until an instance is due, if that is later.
async fn until_due(lab: &Lab, id: InstanceId) {
    let found = lab.get(id).await;
    if found.status == Status::Scheduled {
        let due_at = found.due_at.expect("it is due some time");
        lab.pass(due_at.since(lab.now()));
        assert_eq!(lab.fire().await, 1);
    }
    assert_eq!(lab.status(id).await, Status::Runnable);
}

/// The same so often, each time when it is due again.
async fn die_often(lab: &Lab, count: u32) -> Instance {
    let mut found = die(lab).await;
    for _ in 1..count {
        until_due(lab, found.id).await;
        found = die(lab).await;
    }
    found
}

fn error_of(instance: &Instance) -> &str {
    instance.last_error.as_deref().unwrap_or_default()
}

pub async fn deaths_are_counted_apart_from_attempts(lab: Lab) {
    // rules 5.3 and 5.5
    let id = lab.start(plain()).await;
    let worker = lab.worker("w").await;
    lab.step(worker, retry(0)).await;
    assert_eq!(
        (lab.get(id).await.attempt, lab.get(id).await.deaths),
        (1, 0)
    );
    let found = die(&lab).await;
    assert_eq!((found.attempt, found.deaths), (2, 1));
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.attempt, claimed.deaths), (2, 1));
    lab.commit(claimed.claim, retry(0)).await;
    assert_eq!(lab.get(id).await.deaths, 1, "it is the same step");
    lab.step(worker, next("b")).await;
    let found = lab.get(id).await;
    assert_eq!((found.attempt, found.deaths), (0, 0), "a new step begins");
}

pub async fn a_step_that_kills_its_worker_fails_after_five_deaths(lab: Lab) {
    // rules 5.6 and 5.7: it ran again without limit, whatever its policy was.
    let retries = Policy {
        retry: Some(RetrySpec::doubling(1_000, 1)),
        ..Policy::default()
    };
    let start = Start {
        policy: Some(retries),
        ..plain()
    };
    let id = lab.start(start).await;
    let found = die(&lab).await;
    assert_eq!(
        (found.status, found.cause, found.deaths),
        (Status::Runnable, Cause::Reclaim, 1),
        "the first costs no time"
    );
    lab.worker("idle").await;
    assert_eq!(lab.health(id).await.reason, None, "one may die of anything");
    for (deaths, most) in [(2, 5), (3, 20), (4, 80)] {
        until_due(&lab, id).await;
        let found = die(&lab).await;
        assert_eq!(
            (found.status, found.attempt, found.deaths),
            (Status::Scheduled, deaths, deaths)
        );
        let delay = found.due_at.unwrap().since(lab.now());
        assert!(delay <= SECOND * most && delay * 2 >= SECOND * most);
        let health = lab.health(id).await;
        let reason = health.reason.expect("it is not well");
        assert_eq!(
            (health.liveness, reason.code),
            (Liveness::Scheduled, Code::WorkerDied)
        );
        let expected = format!("died {deaths} times in step start");
        assert!(reason.text.contains(&expected), "{}", reason.text);
        let worker = lab.worker("idle").await;
        assert!(lab.claim_some(worker, 9).await.is_empty(), "not before");
        let last = lab.events(id).await.pop().unwrap().what;
        assert!(
            matches!(&last, HistoryEvent::Reclaimed { deaths: died, due_at, .. }
                if *died == deaths && *due_at == found.due_at),
            "{last:?}"
        );
    }
    until_due(&lab, id).await;
    let found = die(&lab).await;
    assert_eq!((found.status, found.deaths), (Status::Failed, 5));
    assert!(error_of(&found).starts_with("the worker died 5 times in step start; "));
    let mut expected = vec!["reclaimed"; 5];
    expected.push("failed");
    assert_eq!(lab.kinds(id).await, expected);
    let again = lab.restarted(id).await;
    assert_eq!(lab.get(again).await.deaths, 0, "a new run begins");
}

/// Has all that is open die twice, so that it is suspected of killing its workers; then lets time pass until all of it is
/// due again.
async fn make_suspects(lab: &Lab, ids: &[InstanceId]) {
    for _ in 0..2 {
        let worker = lab.worker("dying").await;
        assert_eq!(lab.claim_some(worker, 99).await.len(), ids.len());
        lab.pass(OVER_LEASE);
        assert_eq!(lab.reclaim().await, ids.len());
    }
    fall_due(lab, ids).await;
}

/// Lets time pass until all of these are due.
async fn fall_due(lab: &Lab, ids: &[InstanceId]) {
    lab.pass(MINUTE);
    lab.fire().await;
    for id in ids {
        assert_eq!(lab.status(*id).await, Status::Runnable);
    }
}

pub async fn a_worker_holds_one_suspect_at_a_time(lab: Lab) {
    // rule 5.6: a long step that shared its workers with one that killed them died as often, and failed with it.
    let ids = lab.start_all(many(3)).await;
    make_suspects(&lab, &ids).await;
    let innocent = lab.start(plain()).await;
    let first = enlist(&lab, "first", MINUTE).await;
    let claimed = lease(&lab, first, 9, MINUTE).await;
    assert_eq!(claimed.len(), 2, "one suspect, and what never killed any");
    assert_eq!(claimed[1].claim.id(), innocent);
    let suspect = claimed.into_iter().next().unwrap().claim;
    let others: Vec<InstanceId> = ids.into_iter().filter(|id| *id != suspect.id()).collect();
    for id in &others {
        let found = lab.get(*id).await;
        assert_eq!(
            (found.status, found.attempt, found.deaths),
            (Status::Scheduled, 2, 2),
            "it waits again, and nothing is counted"
        );
        let delay = found.due_at.unwrap().since(lab.now());
        assert!(delay <= SECOND * 5 && delay * 2 >= SECOND * 5);
    }

    // While it holds one, it gets no other; somebody else does.
    lab.pass(SECOND * 6);
    lab.fire().await;
    assert!(lease(&lab, first, 9, MINUTE).await.is_empty());
    lab.pass(SECOND * 6);
    lab.fire().await;
    let second = enlist(&lab, "second", MINUTE).await;
    let claimed = lease(&lab, second, 9, MINUTE).await;
    assert_eq!(claimed.len(), 1);

    // When its own has moved on, it gets the next.
    lab.commit(suspect, next("b")).await;
    lab.pass(SECOND * 6);
    lab.fire().await;
    let claimed = lease(&lab, first, 9, MINUTE).await;
    let deaths: Vec<u32> = claimed.iter().map(|one| one.deaths).collect();
    assert_eq!(deaths.iter().filter(|deaths| **deaths == 2).count(), 1);
    assert_eq!(deaths.len(), 2, "and the one that has moved on");
}

pub async fn a_worker_gets_no_suspect_beside_one_it_holds_whatever_else_it_holds(lab: Lab) {
    // rules 5.6 and 5.7: steps whose deaths have no limit are not suspected, however often workers died in them, and
    // hide no suspect.
    let starts = [enduring(0, plain()), plain(), enduring(0, plain()), plain()];
    let ids = lab.start_all(starts.to_vec()).await;
    make_suspects(&lab, &ids).await;
    lab.start_all(many(3)).await;
    let [first, second] = [&ids[1], &ids[3]];
    let worker = enlist(&lab, "first", MINUTE).await;
    let claimed = lease(&lab, worker, 9, MINUTE).await;
    let got: Vec<InstanceId> = claimed.iter().map(|one| one.claim.id()).collect();
    assert_eq!(got.len(), 6, "all but the second suspect: {got:?}");
    let (kept, other) = match got.contains(first) {
        true => (first, second),
        false => (second, first),
    };
    assert!(got.contains(kept) && !got.contains(other));
    lab.pass(SECOND * 6);
    lab.fire().await;
    assert!(lease(&lab, worker, 9, MINUTE).await.is_empty());
    // When its suspect has moved on, it gets the other one.
    for one in claimed {
        let commit = match one.claim.id() == *kept {
            true => next("b"),
            false => done(),
        };
        lab.commit(one.claim, commit).await;
    }
    lab.pass(SECOND * 6);
    lab.fire().await;
    let claimed = lease(&lab, worker, 9, MINUTE).await;
    assert!(claimed.iter().any(|one| one.claim.id() == *other));
}

pub async fn a_suspect_that_is_given_back_waits_again(lab: Lab) {
    // rules 5.4 and 5.6
    let id = lab.start(plain()).await;
    make_suspects(&lab, &[id]).await;
    for way in 0..3 {
        let worker = lab.worker("w").await;
        let claim = lab.claim(worker).await.claim;
        assert_eq!(lab.touch(returning(claim, way)).await.0, 1);
        let found = lab.get(id).await;
        assert_eq!(
            (found.status, found.attempt, found.deaths),
            (Status::Scheduled, 2, 2)
        );
        fall_due(&lab, &[id]).await;
    }

    // One whose deaths have no limit is never suspected.
    let worker = lab.worker("w").await;
    lab.step(worker, done()).await;
    let ids = lab
        .start_all(vec![enduring(0, plain()), enduring(0, plain())])
        .await;
    make_suspects(&lab, &ids).await;
    let remote = enlist(&lab, "remote", MINUTE).await;
    let claimed = lease(&lab, remote, 9, MINUTE).await;
    assert_eq!(claimed.len(), 2);
    let claims = claimed.into_iter().map(|one| one.claim).collect();
    lab.touch(Op::GiveBack(claims)).await;
    for id in ids {
        assert_eq!(lab.status(id).await, Status::Runnable);
    }
}

pub async fn how_many_deaths_there_may_be_is_declared_or_given(lab: Lab) {
    // rule 5.7
    let declared = Declared {
        contract: None,
        max_deaths: Some(2),
        ..under(&updates())
    };
    lab.declare(vec![declared]).await;
    let id = lab.start(plain()).await;
    let found = die_often(&lab, 2).await;
    assert_eq!((found.id, found.status), (id, Status::Failed));
    let own = lab.start(enduring(1, plain())).await;
    let found = die(&lab).await;
    assert_eq!((found.id, found.status), (own, Status::Failed));
    assert!(error_of(&found).starts_with("the worker died once in step start"));
    let own = lab.start(enduring(7, plain())).await;
    let found = die_often(&lab, 6).await;
    assert_eq!((found.id, found.status), (own, Status::Scheduled));
    until_due(&lab, own).await;
    assert_eq!(die(&lab).await.status, Status::Failed);

    // Without a limit it runs again at once, however often they die.
    let own = lab.start(enduring(0, plain())).await;
    for deaths in 1..=9 {
        let found = die(&lab).await;
        assert_eq!((found.id, found.status), (own, Status::Runnable));
        assert_eq!(found.deaths, deaths);
    }
    let worker = lab.worker("last").await;
    lab.step(worker, done()).await;

    let refused = enduring(1_000_001, plain());
    let answer = lab.starts(vec![refused]).await.pop().unwrap();
    let Err(Refusal::BadPolicy { problems }) = answer else {
        panic!("it should be refused, and is {answer:?}")
    };
    assert!(
        problems[0].contains("max_deaths is 1000000 at most"),
        "{problems:?}"
    );
}

pub async fn a_lease_that_lapses_is_a_death(lab: Lab) {
    // rules 5.5 and 5.7: the claims of remote workers are taken back by a timer.
    let id = lab.start(enduring(2, plain())).await;
    for expected in [Status::Runnable, Status::Failed] {
        let remote = enlist(&lab, "remote", MINUTE).await;
        lease_one(&lab, remote).await;
        lab.pass(MINUTE);
        assert_eq!(lab.fire().await, 1);
        assert_eq!(lab.status(id).await, expected);
    }
    assert_eq!(lab.kinds(id).await, ["reclaimed", "reclaimed", "failed"]);
}

pub async fn giving_back_in_good_order_does_not_count_as_a_death(lab: Lab) {
    // rules 5.4 and 5.5
    let id = lab.start(enduring(1, plain())).await;
    for way in 0..4 {
        let worker = enlist(&lab, "w", MINUTE).await;
        let claim = lab.claim(worker).await.claim;
        assert_eq!(lab.touch(returning(claim, way)).await.0, 1);
        let found = lab.get(id).await;
        assert_eq!(
            (found.status, found.attempt, found.deaths),
            (Status::Runnable, 0, 0)
        );
    }
    assert!(lab.kinds(id).await.is_empty());
}

pub async fn a_remote_worker_that_comes_back_under_its_name_has_died(lab: Lab) {
    // rules 5.3 and 5.5: it signed its former self off, and its deaths were not recorded.
    let ids = lab.start_all(many(2)).await;
    let former = enlist(&lab, "w", MINUTE).await;
    let other = enlist(&lab, "other", MINUTE).await;
    let lost = lease_one(&lab, former).await;
    let kept = lease_one(&lab, other).await;
    let come_back = || vec![Op::Expire { name: name("w") }, Op::Reclaim { limit: 10 }];
    for taken in [1, 0] {
        let answers = lab.try_run(come_back()).await.unwrap();
        assert!(
            matches!(answers.as_slice(), [crate::Answer::Done, crate::Answer::Touched { count, .. }] if *count == taken),
            "{answers:?}"
        );
    }
    let found = lab.get(ids[0]).await;
    assert_eq!(
        (found.status, found.attempt, found.deaths),
        (Status::Runnable, 1, 1)
    );
    let last = lab.events(ids[0]).await.pop().unwrap().what;
    assert!(
        matches!(&last, HistoryEvent::Reclaimed { worker, .. } if *worker == name("w")),
        "{last:?}"
    );
    assert_eq!(lab.commit(lost.claim, done()).await, Committed::Stale);
    assert_eq!(
        lab.commit(kept.claim, done()).await,
        Committed::Moved(Status::Done),
        "what others hold is theirs"
    );
    let again = enlist(&lab, "w", MINUTE).await;
    assert_ne!(again, former);
    assert_eq!(lab.step(again, done()).await, Status::Done);
}

pub async fn a_parent_is_notified_of_a_child_that_killed_its_workers(lab: Lab) {
    // rules 5.7 and 10.2, by a lease of its worker and by one of its own.
    for remote in [false, true] {
        let worker = lab.worker("w").await;
        let parent = lab.start(within("p")).await;
        lab.step(worker, spawn(vec![enduring(1, plain())])).await;
        if remote {
            let worker = enlist(&lab, "remote", MINUTE).await;
            lease_one(&lab, worker).await;
            lab.pass(MINUTE);
            lab.fire().await;
        } else {
            die(&lab).await;
        }
        let found = lab.get(parent).await;
        assert_eq!((found.status, found.family.pending), (Status::Runnable, 0));
        let worker = lab.worker("w").await;
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.children[0].status, Status::Failed);
        let error = claimed.children[0].last_error.as_deref();
        assert!(error.unwrap().starts_with("the worker died once"));
        lab.commit(claimed.claim, done()).await;
    }
}

pub async fn the_inbox_of_one_that_killed_its_workers_is_closed(lab: Lab) {
    // rules 4.1 and 5.7: as when its step stops.
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab
        .parked(worker, enduring(2, plain()), &["paid"], None)
        .await;
    let handed = lab.signal(id, "paid").await;
    let found = die(&lab).await;
    assert_eq!((found.attempt, found.deaths), (1, 1));
    let other = lab.signal(id, "other").await;
    let update = lab.update(id).await;
    assert_eq!(die(&lab).await.status, Status::Failed);
    let mut became = Vec::new();
    for id in [handed.id, other.id, update.id] {
        became.push(lab.record(id).await.status);
    }
    use CommandStatus::{Applied, Discarded, Failed};
    assert_eq!(became, [Applied, Discarded, Failed]);
    assert!(lab.inbox(id).await.is_empty());
}

pub async fn a_workflow_that_kills_its_worker_fails_too(lab: Lab) {
    // rules 5.5 and 5.7: every commit of its code is a step that has moved on.
    let id = lab.start(enduring(3, workflow())).await;
    die_often(&lab, 2).await;
    until_due(&lab, id).await;
    let worker = lab.worker("w").await;
    lab.turn(worker, id, Coded::then(go_on())).await;
    assert_eq!(lab.get(id).await.deaths, 0);
    let found = die_often(&lab, 3).await;
    assert_eq!(
        (found.id, found.status, found.kind),
        (id, Status::Failed, Kind::Workflow)
    );
    assert!(error_of(&found).starts_with("the worker died 3 times"));

    let other = Start {
        policy: Some(Policy {
            step_timeout_ms: Some(5),
            ..Policy::default()
        }),
        ..workflow()
    };
    let answer = lab.starts(vec![other]).await.pop().unwrap();
    assert!(
        matches!(answer, Err(Refusal::BadPolicy { .. })),
        "{answer:?}"
    );
}

pub async fn what_comes_to_one_whose_workers_died_waits_with_it(lab: Lab) {
    // rules 5.6, 7.4, 9.1 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let first = lab.signal(id, "paid").await;
    let found = die_often(&lab, 2).await;
    assert_eq!(found.status, Status::Scheduled);
    let second = lab.signal(id, "paid").await;
    let update = lab.update(id).await;
    let waits = lab.get(id).await;
    assert_eq!(
        (waits.status, waits.due_at, waits.cause),
        (Status::Scheduled, found.due_at, Cause::Reclaim)
    );
    let reason = lab.health(id).await.reason.unwrap();
    assert_eq!(reason.code, Code::WorkerDied, "no update was missed");
    until_due(&lab, id).await;
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    let awaited: Vec<_> = claimed.awaited.iter().map(|one| one.id).collect();
    assert_eq!(awaited, [first.id, second.id]);
    assert!(!claimed.aside && claimed.deaths == 2);
    lab.commit(claimed.claim, next("b")).await;
    assert_eq!(lab.record(second.id).await.status, CommandStatus::Applied);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        claimed.updates[0].id, update.id,
        "it comes after what woke it"
    );
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    assert_eq!(lab.step(worker, done()).await, Status::Done);
}

pub async fn deaths_in_updates_end_with_the_updates(lab: Lab) {
    // rules 5.5, 5.7 and 9.1: the step was not begun, so they are not the step's.
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab
        .parked(worker, enduring(3, plain()), &["paid"], None)
        .await;
    let update = lab.update(id).await;
    let found = die_often(&lab, 2).await;
    assert_eq!(
        (found.status, found.attempt, found.deaths),
        (Status::Scheduled, 0, 2)
    );
    let paid = lab.signal(id, "paid").await;
    assert_eq!(lab.status(id).await, Status::Scheduled, "it does not hurry");
    until_due(&lab, id).await;
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.updates[0].id, update.id);
    lab.commit(
        claimed.claim,
        answer(&[update.id], Some(wait(&["paid"], None))),
    )
    .await;
    let found = lab.get(id).await;
    assert_eq!((found.status, found.deaths), (Status::Runnable, 0));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.awaited[0].id, paid.id, "no signal was lost");
    lab.commit(claimed.claim, wait(&["more"], None)).await;

    let update = lab.update(id).await;
    die(&lab).await;
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, answer(&[update.id], None)).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.deaths),
        (Status::AwaitingSignal, 0),
        "back where it stood"
    );
    lab.update(id).await;
    let found = die_often(&lab, 3).await;
    assert_eq!(found.status, Status::Failed);
    let text = "the worker died 3 times in an update before step woken";
    assert!(error_of(&found).starts_with(text), "{found:?}");
}

pub async fn neighbours_of_a_poisoned_step_run_before_it_and_apart(lab: Lab) {
    // rule 5.6: what the dead worker held beside it must not die with it again and again.
    let ids = lab.start_all(many(20)).await;
    for _ in 0..2 {
        let worker = lab.worker("dying").await;
        assert_eq!(lab.claim_some(worker, 20).await.len(), 20);
        lab.pass(OVER_LEASE);
        assert_eq!(lab.reclaim().await, 20);
    }
    let innocent = lab.start(plain()).await;
    let worker = lab.worker("w").await;
    assert_eq!(lab.claim_ids(worker, 99).await, [innocent]);
    let mut due = Vec::new();
    for id in ids {
        due.push(lab.get(id).await.due_at.unwrap());
    }
    due.sort();
    due.dedup();
    assert_eq!(due.len(), 20, "each has a time of its own");
    let spread = due[19].since(due[0]);
    assert!(
        spread > SECOND && spread <= Duration::from_millis(2500),
        "{spread:?}"
    );
}

pub async fn a_partition_goes_on_without_one_whose_workers_died(lab: Lab) {
    // rules 5.6 and 6.3
    let ids = lab.start_all(vec![within("p"), within("p")]).await;
    let found = die_often(&lab, 2).await;
    assert_eq!((found.id, found.status), (ids[0], Status::Scheduled));
    let worker = lab.worker("w").await;
    assert_eq!(lab.claim_ids(worker, 9).await, [ids[1]]);
    let due_at = found.due_at.unwrap();
    lab.pass(due_at.since(lab.now()));
    lab.fire().await;
    let found = lab.get(ids[0]).await;
    assert_eq!((found.status, found.behind), (Status::Runnable, true));
}

pub async fn one_whose_workers_died_gives_up_a_key_that_was_taken(lab: Lab) {
    // rules 2.8 and 5.6: it goes back to its queue, by way of a pause.
    let waiting = Scope::NEVER.and(Status::Runnable);
    let start = || Start {
        scope: waiting,
        ..keyed("k")
    };
    let id = lab.start(start()).await;
    let found = die_often(&lab, 2).await;
    assert_eq!((found.id, found.status), (id, Status::Scheduled));
    let successor = lab.start(start()).await;
    until_due(&lab, id).await;
    assert_eq!(lab.count_events(id, "key_given_up").await, 1);
    assert_eq!(lab.status(successor).await, Status::Runnable);
}
