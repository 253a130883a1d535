//! A restarted run is handed what the failed step was handed.

use abide_core::model::{CommandStatus, HistoryEvent, Operated, ResumeKind, Sequence, Status};

use super::build::{
    MINUTE, cancelling, done, json, keyed, name, next, once, paying, plain, retry, stop, wait,
};
use super::lab::{Lab, command_ids};
use crate::{CommandFilter, Op};

pub async fn the_signal_that_woke_the_failed_step_is_handed_again(lab: Lab) {
    // rules 11.2, 7.1 and 7.6
    let worker = lab.worker("w").await;
    let first = lab
        .parked(worker, keyed("k"), &["paid", "called_off"], None)
        .await;
    let paid = lab.accept(once("d", paying(first, "paid", "100"))).await;
    let unread = lab.signal(first, "other").await;
    lab.step(worker, stop("no ship")).await;
    let applied = lab.record(paid.id).await;
    assert_eq!(
        (applied.status, applied.instance),
        (CommandStatus::Applied, Some(first))
    );

    let second = lab.restarted(first).await;
    assert_eq!(
        lab.record(paid.id).await,
        applied,
        "what was recorded stays as it was"
    );
    assert_eq!(lab.record(unread.id).await.status, CommandStatus::Discarded);
    let found = lab.get(second).await;
    assert_eq!((found.status, found.attempt), (Status::Runnable, 0));
    assert_eq!(
        (found.inbox.signals, found.inbox.commands),
        (1, Sequence(1))
    );
    let claimed = lab.claim(worker).await;
    let [again] = claimed.awaited.as_slice() else {
        panic!("{:?}", claimed.awaited)
    };
    assert_ne!(again.id, paid.id, "each run has a record of its own");
    assert_eq!(
        (&again.name, &again.arguments, again.chain),
        (&paid.name, &paid.arguments, paid.chain)
    );
    assert_eq!(
        again.sequence,
        Some(Sequence(3)),
        "it has the next position in the chain"
    );
    assert_eq!(
        (&again.source, &again.wait_id),
        (&paid.source, &applied.wait_id)
    );
    assert_eq!(
        (again.status, again.command_sequence),
        (CommandStatus::Received, Some(Sequence(1)))
    );
    assert_eq!(again.received_at, paid.received_at);
    let source = lab
        .get(second)
        .await
        .resume_source()
        .expect("something woke it");
    assert_eq!(
        (source.kind, source.command_id),
        (ResumeKind::Signal, Some(again.id))
    );
    let events = lab.events(second).await;
    let handed = events.iter().find_map(|one| match &one.what {
        HistoryEvent::HandedAgain {
            run_id, signals, ..
        } => Some((*run_id, signals.clone())),
        _ => None,
    });
    let (run_id, signals) = handed.expect("the history records it");
    assert_eq!(run_id, first);
    let [signal] = signals.as_slice() else {
        panic!("{signals:?}")
    };
    assert_eq!((signal.command_id, signal.copy_of), (again.id, paid.id));
    assert_eq!(Some(signal.message_sequence), again.sequence);

    // It is consumed as ever, its dedup key is still known, and the chain's numbers go on.
    lab.commit(claimed.claim, done()).await;
    let record = lab.record(again.id).await;
    assert_eq!(
        (record.status, record.instance),
        (CommandStatus::Applied, Some(second))
    );
    let third = lab.deliver(once("d", paying(second, "paid", "100"))).await;
    assert!(third.duplicate);
    let record = third.record.expect("there is a record");
    assert_eq!(record.id, paid.id, "the first record speaks for the chain");
}

pub async fn it_is_handed_again_as_often_as_it_is_restarted(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let mut run = lab.parked(worker, plain(), &["a", "b"], None).await;
    lab.signal(run, "b").await;
    lab.signal(run, "a").await;
    lab.signal(run, "b").await;
    let mut seen = Vec::new();
    for round in 0..3 {
        let claimed = lab.claim(worker).await;
        let names: Vec<&str> = claimed
            .awaited
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, ["b", "a", "b"], "round {round}");
        seen.extend(command_ids(&claimed.awaited));
        lab.commit(claimed.claim, stop("no")).await;
        run = lab.restarted(run).await;
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), count), (9, 9));
    // What comes now is numbered after them.
    let next = lab.signal(run, "a").await;
    assert_eq!(
        (next.sequence, next.command_sequence),
        (Some(Sequence(13)), Some(Sequence(4)))
    );
    let inbox = lab.inbox(run).await;
    assert_eq!(inbox.len(), 4);
    assert_eq!(inbox.last(), Some(&next.id));
}

pub async fn at_another_step_nothing_is_handed(lab: Lab) {
    // rule 11.2: a run that begins elsewhere begins without what was bad for the step that failed
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, plain(), &["paid"], None).await;
    lab.signal(first, "paid").await;
    lab.step(worker, stop("no")).await;
    let op = Op::Restart(vec![(first.into(), Some(name("from_the_start")))]);
    let Operated::Restarted { id, .. } = lab.operate(op).await else {
        panic!("it is restarted")
    };
    let claimed = lab.claim(worker).await;
    assert!(claimed.awaited.is_empty() && claimed.awaits.is_empty());
    assert_eq!(claimed.inbox.signals, 0);
    lab.commit(claimed.claim, wait(&["paid"], None)).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    // The step that failed may be named, too.
    lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    let step = claimed.step.clone();
    lab.commit(claimed.claim, stop("no")).await;
    let op = Op::Restart(vec![(id.into(), Some(step))]);
    assert!(matches!(lab.operate(op).await, Operated::Restarted { .. }));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.awaited.len(), 1);
    lab.commit(claimed.claim, done()).await;
}

pub async fn a_deadline_that_woke_the_failed_step_is_reported_again(lab: Lab) {
    // rules 11.2 and 7.5
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, plain(), &["paid"], Some(1_000)).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    let claimed = lab.claim(worker).await;
    assert!(claimed.timed_out && claimed.awaited.is_empty());
    lab.commit(claimed.claim, stop("no")).await;
    let op = Op::Restart(vec![(second.into(), Some(name("other")))]);
    assert!(matches!(lab.operate(op).await, Operated::Restarted { .. }));
    assert!(
        !lab.claim(worker).await.timed_out,
        "another step did not wait"
    );
}

pub async fn what_earlier_steps_consumed_is_not_handed_again(lab: Lab) {
    // rules 11.2 and 4.1
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(first, "a").await;
    lab.step(worker, next("two")).await;
    lab.step(worker, retry(0)).await;
    lab.step(worker, stop("no")).await;
    let second = lab.restarted(first).await;
    assert!(lab.inbox(second).await.is_empty());
    assert!(!lab.kinds(second).await.contains(&"handed_again"));
    let claimed = lab.claim(worker).await;
    assert!(claimed.awaited.is_empty() && claimed.awaits.is_empty());
    assert_eq!(claimed.state, json("{\"again\":1}"));
}

pub async fn what_a_cancellation_discarded_stays_so(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let first = lab.parked(worker, plain(), &["a"], None).await;
    lab.signal(first, "a").await;
    let claimed = lab.claim(worker).await;
    lab.cancel(cancelling(first)).await;
    drop(claimed);
    let second = lab.restarted(first).await;
    assert!(lab.inbox(second).await.is_empty());
    let all = lab
        .records(CommandFilter {
            instance: Some(first),
            ..CommandFilter::default()
        })
        .await;
    assert!(all.iter().all(|one| one.status == CommandStatus::Discarded));
}
