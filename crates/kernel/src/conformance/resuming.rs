//! The source that an instance was woken by, from the moment a command wakes it until that is applied.

use abide_core::model::{
    CommandId, Committed, InstanceId, Kind, Outcome, ResumeKind, ResumeSource, Status, WaitId,
    WaitKind,
};
use abide_core::rules::liveness::waiting;

use super::build::{
    MINUTE, SECOND, answer, cancelling, done, next, plain, retry, spawn, updates, wait,
};
use super::coding::{Coded, awaiting, child_starts, ended, go_on, workflow};
use super::eventing::{awaits, known_as, order, ordered, parks};
use super::lab::{Lab, OVER_LEASE};

fn by(kind: ResumeKind, command_id: Option<CommandId>) -> Option<ResumeSource> {
    Some(ResumeSource { command_id, kind })
}

/// The source that an instance shows as what woke it; it must show its wait, too.
async fn source(lab: &Lab, id: InstanceId) -> Option<ResumeSource> {
    let found = lab.get(id).await;
    let wait = waiting(&found).unwrap_or_else(|| panic!("it shows its wait: {found:?}"));
    assert_eq!(wait.kind, found.wait_kind().unwrap());
    wait.resume_source
}

/// Checks that no source is shown any more: what woke it is applied.
async fn is_over(lab: &Lab, id: InstanceId) {
    let found = lab.get(id).await;
    assert_eq!((found.resume_source(), waiting(&found)), (None, None));
}

pub async fn a_signal_is_named_from_when_it_comes_until_it_is_applied(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["a", "b"], Some(60_000)).await;
    let before = waiting(&lab.get(id).await).unwrap();
    assert_eq!(before.resume_source, None);
    let first = lab.signal(id, "b").await;
    let woken = by(ResumeKind::Signal, Some(first.id));
    let after = waiting(&lab.get(id).await).unwrap();
    assert_eq!((after.kind, &after.id), (before.kind, &before.id));
    assert_eq!((after.names, after.since), (before.names, before.since));
    assert_eq!((after.deadline, after.resume_source), (None, woken));
    // Others do not change what it was woken by.
    lab.signal(id, "a").await;
    lab.signal(id, "c").await;
    assert_eq!(source(&lab, id).await, woken);
    let claim = lab.claim(worker).await.claim;
    assert_eq!(lab.status(id).await, Status::Executing);
    assert_eq!(source(&lab, id).await, woken);
    lab.signal(id, "a").await;
    assert_eq!(source(&lab, id).await, woken);
    lab.commit(claim, next("x")).await;
    is_over(&lab, id).await;
}

pub async fn an_event_is_named_as_one(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, awaits(vec![order(1)], &["s"])).await;
    assert_eq!(lab.tell(known_as("e", ordered(1))).await, 1);
    let event = lab.inbox(id).await[0];
    assert_eq!(source(&lab, id).await, by(ResumeKind::Event, Some(event)));
    lab.step(worker, done()).await;
    is_over(&lab, id).await;
}

pub async fn a_deadline_and_the_end_of_children_have_no_command(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let timeout = by(ResumeKind::Timeout, None);
    for signals in [&["a"][..], &[]] {
        let id = lab.parked(worker, plain(), signals, Some(60_000)).await;
        lab.pass(MINUTE);
        assert_eq!(lab.fire().await, 1);
        assert_eq!(source(&lab, id).await, timeout, "{signals:?}");
        // What comes after the deadline is not what woke it.
        lab.signal(id, "a").await;
        let claim = lab.claim(worker).await.claim;
        assert_eq!(source(&lab, id).await, timeout, "{signals:?}");
        lab.commit(claim, done()).await;
    }
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(child_starts(2))).await;
    lab.end_children(worker, 1).await;
    assert_eq!(source(&lab, parent).await, None, "one is missing");
    lab.end_children(worker, 1).await;
    let joined = by(ResumeKind::Children, None);
    assert_eq!(source(&lab, parent).await, joined);
    lab.step(worker, next("x")).await;
    is_over(&lab, parent).await;
}

pub async fn a_signal_that_was_there_when_it_parked_is_named_at_once(lab: Lab) {
    // rule 13.1
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let early = lab.signal(id, "paid").await;
    lab.signal(id, "paid").await;
    lab.step(worker, wait(&["paid"], None)).await;
    let woken = by(ResumeKind::Signal, Some(early.id));
    assert_eq!(source(&lab, id).await, woken);
    let wait_id = waiting(&lab.get(id).await).unwrap().id;
    assert_eq!(wait_id, early.wait_id);
}

pub async fn it_is_kept_when_the_step_is_tried_again_and_when_its_worker_dies(lab: Lab) {
    // rules 5.3 and 13.1
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let paid = lab.signal(id, "paid").await;
    let woken = by(ResumeKind::Signal, Some(paid.id));
    lab.step(worker, retry(1_000)).await;
    assert_eq!(lab.status(id).await, Status::Scheduled);
    assert_eq!(source(&lab, id).await, woken);
    lab.pass(SECOND);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(source(&lab, id).await, woken, "it is due, not timed out");
    let claim = lab.claim(worker).await.claim;
    lab.pass(OVER_LEASE);
    let other = lab.worker("other").await;
    assert_eq!(lab.reclaim().await, 1);
    assert_eq!(source(&lab, id).await, woken);
    assert_eq!(lab.commit(claim, done()).await, Committed::Stale);
    lab.step(other, next("x")).await;
    is_over(&lab, id).await;
}

pub async fn an_update_is_named_while_it_is_answered_and_the_wait_goes_on(lab: Lab) {
    // rules 9.1 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], Some(60_000)).await;
    let before = waiting(&lab.get(id).await).unwrap();
    let (one, two) = (lab.update(id).await, lab.update(id).await);
    let named = |update: CommandId| by(ResumeKind::Update, Some(update));
    assert_eq!(source(&lab, id).await, named(one.id), "the first");
    let deadline = waiting(&lab.get(id).await).unwrap().deadline;
    assert_eq!(deadline, before.deadline, "it waits on");
    // One is answered; now it runs for the other.
    lab.step(worker, answer(&[one.id], None)).await;
    assert_eq!(source(&lab, id).await, named(two.id));
    lab.step(worker, answer(&[two.id], None)).await;
    assert_eq!(waiting(&lab.get(id).await).unwrap(), before);
    // A signal that comes while an update is handled is what the step will run for.
    let three = lab.update(id).await;
    let claim = lab.claim(worker).await.claim;
    assert_eq!(source(&lab, id).await, named(three.id));
    let paid = lab.signal(id, "paid").await;
    let woken = by(ResumeKind::Signal, Some(paid.id));
    assert_eq!(source(&lab, id).await, woken);
    lab.commit(claim, answer(&[three.id], None)).await;
    assert_eq!(source(&lab, id).await, woken);
    let four = lab.update(id).await;
    assert_eq!(source(&lab, id).await, woken, "it was woken before");
    lab.step(worker, answer(&[four.id], Some(next("x")))).await;
    is_over(&lab, id).await;
}

pub async fn an_update_that_came_while_the_step_ran_is_named_when_it_parks(lab: Lab) {
    // rules 9.1 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let parking: [fn() -> Outcome; 3] = [
        || wait(&["paid"], None),
        || spawn(child_starts(1)),
        || Coded::parks(awaiting(1, &["paid"])).into(),
    ];
    for (at, outcome) in parking.into_iter().enumerate() {
        let start = match at {
            2 => workflow(),
            _ => plain(),
        };
        let id = lab.start(start).await;
        let claim = lab.claim(worker).await.claim;
        let (one, two) = (lab.update(id).await, lab.update(id).await);
        lab.commit(claim, outcome()).await;
        let named = by(ResumeKind::Update, Some(one.id));
        assert_eq!(source(&lab, id).await, named, "{at}");
        if at < 2 {
            lab.step(worker, answer(&[one.id, two.id], None)).await;
            assert_eq!(source(&lab, id).await, None, "{at}");
            lab.cancel(cancelling(id)).await;
            continue;
        }
        let turn = Coded::then(ended()).answers(&[one.id, two.id]);
        lab.turn(worker, id, turn).await;
    }
}

pub async fn a_retry_that_waits_is_not_taken_for_an_update(lab: Lab) {
    // rules 9.1 and 13.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let paid = lab.signal(id, "paid").await;
    let woken = by(ResumeKind::Signal, Some(paid.id));
    lab.step(worker, retry(60_000)).await;
    let update = lab.update(id).await;
    assert_eq!(source(&lab, id).await, woken);
    lab.step(worker, answer(&[update.id], None)).await;
    assert_eq!(lab.status(id).await, Status::Scheduled);
    assert_eq!(source(&lab, id).await, woken);
}

pub async fn of_several_waits_of_a_workflow_the_one_that_was_ended_is_shown(lab: Lab) {
    // rules 7.6 and 13.1
    let worker = lab.worker("w").await;
    let events = parks(vec![(5, order(1))], lab.now() + MINUTE);
    let park = || abide_core::model::Park {
        signals: awaiting(2, &["x", "y"]).signals,
        ..events.clone()
    };
    let id = lab.coded(worker, workflow(), Coded::parks(park())).await;
    let of = |operation: u32| Some(WaitId::stored(format!("wait:{id}:{operation}")));
    assert_eq!(waiting(&lab.get(id).await).unwrap().id, of(2));
    let y = lab.signal(id, "y").await;
    lab.signal(id, "x").await;
    let shown = waiting(&lab.get(id).await).unwrap();
    assert_eq!((shown.kind, shown.id), (WaitKind::Signal, of(3)));
    assert_eq!(shown.resume_source, by(ResumeKind::Signal, Some(y.id)));
    assert_eq!(shown.waits.len(), 3);
    let claimed = lab.claim(worker).await;
    let taken: Vec<_> = claimed.awaited.iter().collect();
    let turn = Coded::parks(events.clone()).takes(&taken);
    lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(waiting(&lab.get(id).await).unwrap().resume_source, None);
    lab.tell(known_as("e", ordered(1))).await;
    let shown = waiting(&lab.get(id).await).unwrap();
    assert_eq!((shown.kind, shown.id), (WaitKind::Event, of(5)));
    assert_eq!(shown.resume_source.unwrap().kind, ResumeKind::Event);
    // It goes on: what woke it is applied, though nothing is waited for.
    lab.turn(worker, id, Coded::then(go_on())).await;
    is_over(&lab, id).await;
}

pub async fn a_workflow_that_is_cancelled_says_so(lab: Lab) {
    // rules 11.1 and 13.1
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting(1, &["paid"]));
    let id = lab.coded(worker, workflow(), turn).await;
    assert_eq!(lab.get(id).await.kind, Kind::Workflow);
    lab.cancel(cancelling(id)).await;
    let cancel = lab.inbox(id).await[0];
    let named = by(ResumeKind::Cancel, Some(cancel));
    assert_eq!(lab.get(id).await.resume_source(), named);
}
