//! Deploys: what one build cannot run is left to others, and nothing is lost meanwhile.

use abide_core::model::{
    Cause, Claimed, CommandStatus, Committed, HistoryEvent, InstanceId, Operated, Outcome, Status,
    WorkerId,
};
use abide_core::rules::liveness::{Code, Liveness};

use super::build::{
    MINUTE, answer, cancelling, commit, done, keyed, lane, name, next, plain, retry, stop, updates,
    urgent, wait, within,
};
use super::invariants::examined;
use super::lab::{LEASE, Lab, OVER_LEASE, command_ids, ids};
use crate::{Answer, NewWorker, Op};

fn block() -> Outcome {
    Outcome::Block {
        reason: "machine m has no step \"go\"".to_owned(),
    }
}

/// A worker of a build.
async fn worker(lab: &Lab, build: &str) -> WorkerId {
    let worker = NewWorker {
        name: name(&format!("worker of {build}")),
        lease: LEASE,
        queues: vec![name("default")],
        lanes: vec![lane("m", 1), lane("other", 1)],
        build: Some(name(build)),
    };
    match lab.run(Op::Register(worker)).await {
        Answer::Registered(worker) => worker.id,
        other => panic!("{other:?}"),
    }
}

/// Lets go on what a build may run, that lives or has just come; how many.
async fn released(lab: &Lab, build: &str, fresh: bool) -> usize {
    let op = Op::ReleaseBlocked {
        build: Some(name(build)),
        fresh,
        lanes: vec![lane("m", 1)],
        after: InstanceId(0),
        limit: 100,
    };
    match lab.run(op).await {
        Answer::Released { count, .. } => count,
        other => panic!("{other:?}"),
    }
}

/// Has a build block what it is given.
async fn blocks(lab: &Lab, worker: WorkerId) -> Claimed {
    let claimed = lab.claim(worker).await;
    let again = claimed.claim.again();
    let answered = lab.commit(again, block()).await;
    assert_eq!(answered, Committed::Moved(Status::Scheduled));
    claimed
}

pub async fn a_build_that_cannot_run_a_step_loses_nothing(lab: Lab) {
    // rules 12.4, 4.1 and 7.6
    let old = worker(&lab, "old").await;
    let id = lab.parked(old, plain(), &["paid"], None).await;
    let paid = lab.signal(id, "paid").await;
    let met = blocks(&lab, old).await;
    assert_eq!(command_ids(&met.awaited), [paid.id]);
    let found = lab.get(id).await;
    assert!(found.is_blocked());
    assert_eq!((found.due_at, found.worker), (None, None));
    assert_eq!(
        (found.attempt, found.step_seq, found.step.clone()),
        (met.attempt, met.step_seq, met.step.clone())
    );
    assert_eq!(found.unfit, [name("old")]);
    let record = lab.record(paid.id).await;
    assert_eq!(
        (record.status, record.closed_at),
        (CommandStatus::Received, None)
    );
    assert_eq!(found.inbox.signals, 1);
    let health = lab.health(id).await;
    let reason = health.reason.expect("it is not well");
    assert_eq!(
        (health.liveness, reason.code),
        (Liveness::Blocked, Code::Blocked)
    );
    assert!(
        reason.text.contains("has no step \"go\"") && reason.text.contains("build old"),
        "{}",
        reason.text
    );
    let events = lab.events(id).await;
    let Some(HistoryEvent::Blocked {
        step,
        step_sequence,
        attempt,
        build,
        ..
    }) = events.last().map(|one| &one.what)
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (step, *step_sequence, *attempt),
        (&met.step, met.step_seq, 0)
    );
    assert_eq!(build.as_ref(), Some(&name("old")));
    // Nothing wakes it, and what comes is accepted and waits.
    lab.pass(MINUTE * 60 * 24);
    assert_eq!((lab.fire().await, lab.reclaim().await), (0, 0));
    let later = lab.signal(id, "paid").await;
    assert!(lab.get(id).await.is_blocked());
    assert!(examined(lab.store.as_ref()).await.unwrap().is_empty());
    // Another build runs the same step with the same signal.
    let new = worker(&lab, "new").await;
    assert_eq!(released(&lab, "new", false).await, 1);
    let again = lab.claim(new).await;
    assert_eq!(
        (
            again.step.clone(),
            again.step_seq,
            again.attempt,
            again.cause
        ),
        (met.step, met.step_seq, 0, Cause::Replay)
    );
    assert_eq!(
        command_ids(&again.awaited),
        [paid.id],
        "what came later was not handed to that step"
    );
    assert_eq!(again.inbox.signals, 2);
    lab.commit(again.claim, next("ship")).await;
    let found = lab.get(id).await;
    assert!(found.unfit.is_empty() && found.last_error.is_none());
    assert_eq!(lab.record(paid.id).await.status, CommandStatus::Applied);
    assert_eq!(lab.record(later.id).await.status, CommandStatus::Received);
}

pub async fn a_build_does_not_get_again_what_it_could_not_run(lab: Lab) {
    // rule 12.4: two builds live side by side, and it goes to the one that knows the step
    let (old, new) = (worker(&lab, "old").await, worker(&lab, "new").await);
    let id = lab.start(urgent(0)).await;
    let behind = lab.start(plain()).await;
    assert_eq!(blocks(&lab, old).await.claim.id(), id);
    assert_eq!(
        released(&lab, "old", false).await,
        0,
        "that build cannot run it"
    );
    assert!(lab.get(id).await.is_blocked());
    assert_eq!(released(&lab, "new", false).await, 1);
    assert_eq!(
        released(&lab, "new", false).await,
        0,
        "it is not blocked any more"
    );
    let urgent_one = lab.get(id).await;
    assert_eq!(
        (urgent_one.row.status, urgent_one.row.unfit),
        (Status::Runnable, vec![name("old")])
    );
    // The old build steps over it, in one lane and in several.
    let claimed = lab.claim_some(old, 1).await;
    assert_eq!(ids(&claimed), [behind]);
    let other = plain_of("other");
    let third = lab.start(other).await;
    let lanes = vec![lane("m", 1), lane("other", 1)];
    let claimed = lab.claim_from(old, "default", lanes.clone(), 9).await;
    assert_eq!(ids(&claimed), [third]);
    assert_eq!(ids(&lab.claim_from(new, "default", lanes, 9).await), [id]);
}

fn plain_of(machine: &str) -> abide_core::model::Start {
    abide_core::model::Start {
        machine: name(machine),
        ..plain()
    }
}

pub async fn each_build_tries_once_and_then_it_waits(lab: Lab) {
    // rule 12.4: builds that live do not hand it to each other without end
    let first = worker(&lab, "build 1").await;
    let id = lab.start(plain()).await;
    blocks(&lab, first).await;
    let mut kinds = lab.kinds(id).await.len();
    for number in 2..=16 {
        let build = format!("build {number}");
        let next = worker(&lab, &build).await;
        assert_eq!(released(&lab, &build, false).await, 1, "{build}");
        assert!(lab.claim_some(first, 9).await.is_empty());
        assert_eq!(blocks(&lab, next).await.attempt, 0);
        let now = lab.kinds(id).await.len();
        assert_eq!(now, kinds + 2, "it was let go on, and blocked");
        kinds = now;
    }
    for number in 1..=17 {
        assert_eq!(released(&lab, &format!("build {number}"), false).await, 0);
    }
    assert_eq!(
        lab.get(id).await.unfit.len(),
        16,
        "all that is kept is bounded"
    );
    // One that has just come may try all the same, also one that could not before.
    assert_eq!(released(&lab, "build 1", true).await, 1);
    assert_eq!(lab.claim_some(first, 9).await.len(), 1);
}

pub async fn a_build_that_comes_again_may_try_again_and_so_may_all_after_a_repair(lab: Lab) {
    // rules 12.4 and 11.3
    let old = worker(&lab, "old").await;
    let id = lab.start(plain()).await;
    blocks(&lab, old).await;
    assert_eq!(released(&lab, "old", true).await, 1);
    let again = lab.claim(old).await;
    lab.commit(again.claim, block()).await;
    assert_eq!(lab.get(id).await.unfit, [name("old")]);
    assert_eq!(lab.repair(id).await, Operated::RepairDispatched);
    assert_eq!(lab.kinds(id).await.last(), Some(&"repaired"));
    assert!(lab.get(id).await.unfit.is_empty());
    lab.step(old, done()).await;
    assert_eq!(lab.repair(id).await.outcome(), "rejected_not_active");
}

pub async fn what_was_let_go_on_by_a_worker_that_died_says_so(lab: Lab) {
    // rules 12.4, 13.1 and 11.3
    let old = worker(&lab, "old").await;
    worker(&lab, "new").await;
    let id = lab.start(plain()).await;
    blocks(&lab, old).await;
    assert_eq!(released(&lab, "new", false).await, 1);
    assert_eq!(
        lab.liveness(id).await,
        Liveness::Ready,
        "the new build will take it"
    );
    lab.pass(OVER_LEASE);
    let old = worker(&lab, "old").await;
    let health = lab.health(id).await;
    assert_eq!(health.liveness, Liveness::Blocked);
    let text = health.reason.expect("it is not well").text;
    assert!(text.contains("could not be run by build old"), "{text}");
    assert!(lab.claim_some(old, 9).await.is_empty());
    assert_eq!(lab.repair(id).await, Operated::RepairDispatched);
    assert_eq!(lab.claim_ids(old, 9).await, [id]);
}

pub async fn updates_wait_with_an_instance_that_cannot_be_run(lab: Lab) {
    // rules 12.4, 9.1 and 9.4: it is claimed for an update, and its state cannot be read
    lab.under(updates()).await;
    let old = worker(&lab, "old").await;
    let id = lab.parked(old, plain(), &["paid"], Some(60_000)).await;
    let update = lab.update(id).await;
    let met = blocks(&lab, old).await;
    assert!(met.aside);
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Accepted);
    assert!(lab.get(id).await.is_blocked());
    assert!(examined(lab.store.as_ref()).await.unwrap().is_empty());
    let second = lab.update(id).await;
    let new = worker(&lab, "new").await;
    released(&lab, "new", false).await;
    let again = lab.claim(new).await;
    assert!(again.aside && again.awaited.is_empty());
    assert_eq!(command_ids(&again.updates), [update.id, second.id]);
    lab.commit(again.claim, answer(&[update.id, second.id], None))
        .await;
    let found = lab.get(id).await;
    assert_eq!(found.status, Status::AwaitingSignal, "it waits as before");
    assert!(found.due_at.is_some() && found.aside.is_none());
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1, "its deadline has passed meanwhile");
}

pub async fn a_signal_that_comes_while_updates_wait_is_handed_after_them(lab: Lab) {
    // rules 12.4 and 7.1
    lab.under(updates()).await;
    let old = worker(&lab, "old").await;
    let id = lab.parked(old, plain(), &["paid"], None).await;
    let update = lab.update(id).await;
    blocks(&lab, old).await;
    let paid = lab.signal(id, "paid").await;
    let found = lab.get(id).await;
    assert!(found.is_blocked(), "{found:?}");
    assert!(examined(lab.store.as_ref()).await.unwrap().is_empty());
    let new = worker(&lab, "new").await;
    released(&lab, "new", false).await;
    let again = lab.claim(new).await;
    assert_eq!(command_ids(&again.updates), [update.id]);
    assert_eq!(command_ids(&again.awaited), [paid.id]);
    assert!(!again.aside);
}

pub async fn it_is_cancelled_at_once_and_keeps_its_key(lab: Lab) {
    // rules 12.4, 2.2 and 11.1
    let old = worker(&lab, "old").await;
    let id = lab.start(keyed("k")).await;
    blocks(&lab, old).await;
    let again = lab.starts(vec![keyed("k")]).await;
    assert_eq!(again, [Ok(abide_core::model::Started::Duplicate(id))]);
    assert_eq!(
        lab.cancel(cancelling(id)).await,
        Operated::Cancelled { id, children: 0 }
    );
    let found = lab.get(id).await;
    assert_eq!(
        (found.row.status, found.row.unfit),
        (Status::Cancelled, Vec::new())
    );
    assert_eq!(released(&lab, "new", true).await, 0);
}

pub async fn it_does_not_block_its_partition_while_it_waits(lab: Lab) {
    // rules 12.4 and 6.3
    let (old, new) = (worker(&lab, "old").await, worker(&lab, "new").await);
    let first = lab.start(within("p")).await;
    let second = lab.start(within("p")).await;
    assert_eq!(blocks(&lab, old).await.claim.id(), first);
    let claimed = lab.claim(old).await;
    assert_eq!(claimed.claim.id(), second);
    assert_eq!(released(&lab, "new", false).await, 1);
    assert!(
        lab.claim_some(new, 9).await.is_empty(),
        "another of its partition executes"
    );
    lab.commit(claimed.claim, done()).await;
    assert!(lab.claim_some(old, 9).await.is_empty());
    assert_eq!(lab.claim_ids(new, 9).await, [first]);
}

pub async fn a_retry_and_a_death_count_and_a_block_does_not(lab: Lab) {
    // rules 12.4 and 5.3
    let old = worker(&lab, "old").await;
    let id = lab.start(plain()).await;
    lab.step(old, retry(0)).await;
    assert_eq!(blocks(&lab, old).await.attempt, 1);
    let new = worker(&lab, "new").await;
    released(&lab, "new", false).await;
    assert_eq!(lab.claim(new).await.attempt, 1);
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    let found = lab.get(id).await;
    assert_eq!(
        (found.row.attempt, found.row.unfit),
        (2, vec![name("old")]),
        "it is still nothing for the old build"
    );
    let old = worker(&lab, "old").await;
    assert!(lab.claim_some(old, 9).await.is_empty());
    let new = worker(&lab, "new").await;
    lab.step(new, stop("no")).await;
    assert_eq!(lab.get(id).await.attempt, 2);
}

pub async fn a_block_stands_by_itself_in_a_batch(lab: Lab) {
    // rules 12.4, 1.4 and 1.7
    lab.under(updates()).await;
    let old = worker(&lab, "old").await;
    lab.start_all(vec![plain(); 3]).await;
    let claimed = lab.claim_some(old, 3).await;
    let copies: Vec<_> = claimed.iter().map(|one| one.claim.again()).collect();
    let [first, second, third] = claimed.try_into().expect("three of them");
    let update = answer(&[], Some(block()));
    let commits = vec![
        commit(first.claim, block()),
        commit(second.claim, wait(&["a"], None)),
        commit(third.claim, update),
    ];
    let answers = lab.commit_all(commits).await;
    assert_eq!(answers[0], Committed::Moved(Status::Scheduled));
    assert_eq!(answers[1], Committed::Moved(Status::AwaitingSignal));
    assert!(
        matches!(&answers[2], Committed::Refused(_)),
        "{:?}",
        answers[2]
    );
    let [first, second, third] = copies.try_into().expect("three of them");
    assert!(lab.get(second.id()).await.unfit.is_empty());
    // Sent again it changes nothing.
    let repeated = lab.commit(first, block()).await;
    assert_eq!(repeated, Committed::Repeated(Status::Scheduled));
    assert_eq!(
        lab.commit(third, done()).await,
        Committed::Moved(Status::Done)
    );
}

pub async fn a_worker_that_names_no_build_is_a_build_of_its_own(lab: Lab) {
    // rule 12.4
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    let id = lab.start(plain()).await;
    blocks(&lab, one).await;
    assert_eq!(lab.get(id).await.unfit, [name("one")]);
    assert_eq!(released(&lab, "two", false).await, 1);
    assert!(lab.claim_some(one, 9).await.is_empty());
    assert_eq!(lab.claim_ids(two, 9).await, [id]);
    // And one that goes on under its name may name its build later.
    let more = NewWorker {
        name: name("one"),
        lease: LEASE,
        queues: Vec::new(),
        lanes: Vec::new(),
        build: Some(name("fixed")),
    };
    let Answer::Registered(enlisted) = lab.run(Op::Enlist(more)).await else {
        panic!("it is enlisted")
    };
    assert_eq!((enlisted.id, enlisted.build), (one, Some(name("fixed"))));
    let living = lab.store.workers().await.unwrap();
    let listed = living
        .iter()
        .find(|worker| worker.id == one)
        .expect("it lives");
    assert_eq!(listed.build().as_str(), "fixed");
}
