//! Workflows: what one turn of the code comes to is committed at once.

use abide_core::model::{
    Cause, Claim, CommandStatus, Commit, Committed, Declared, HistoryEvent, InstanceId, Kind, Lane,
    Name, OperationKind, Park, Refusal, Start, Status, Then, TriedAgain,
};

use super::build::{MINUTE, SECOND, commit, json, lane, many, name, plain, under, updates, urgent};
use super::coding::{
    Coded, awaiting, awaiting_children, child_starts, completed, condition, conditional, ended,
    go_on, joining, keeping, opened, sleep, workflow,
};
use super::lab::{Lab, OVER_LEASE};
use crate::Filter;

fn serves() -> Vec<(Name, Vec<Lane>)> {
    vec![(name("default"), vec![lane("m", 1)])]
}

async fn keep_on(lab: &Lab, commit: Commit) -> Committed {
    let mut each = lab.commit_serving(vec![keeping(commit)], serves()).await;
    each.pop().unwrap()
}

fn kept(answer: Committed) -> Claim {
    match answer {
        Committed::Kept(claim, _) => claim,
        other => panic!("the claim should be kept, and is {other:?}"),
    }
}

async fn count(lab: &Lab) -> usize {
    let page = lab.store.list(&Filter::default(), None, 999).await;
    page.unwrap().items.len()
}

pub async fn what_a_turn_did_is_recorded_in_order_in_one_commit(lab: Lab) {
    // rules 12.3 and 16.1
    use OperationKind::{Signal, Step};
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let paid = lab.signal(id, "paid").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.kind, claimed.cause),
        (Kind::Workflow, Cause::Start)
    );
    lab.pass(SECOND);
    let operations = vec![
        opened(1, Step, "charge"),
        completed(1, Step, "charge", "[1.50]"),
        opened(2, Signal, "paid"),
        completed(2, Signal, "paid", "true"),
        opened(3, Signal, "sent"),
    ];
    let turn = Coded::parks(awaiting(3, &["sent"]))
        .tells(operations.clone())
        .takes(&[&paid])
        .starts(4, child_starts(2), 0);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(
        lab.kinds(id).await,
        [
            "signal_received",
            "signal_applied",
            "message_cursor_advanced",
            "operation_opened",
            "operation_completed",
            "operation_opened",
            "operation_completed",
            "operation_opened",
            "wait_opened",
            "children_spawned",
        ]
    );
    let events = lab.events(id).await;
    assert!(events[1..].iter().all(|event| event.at == lab.now()));
    let HistoryEvent::OperationOpened(first) = &events[3].what else {
        panic!("{events:?}")
    };
    assert_eq!(first.signature.to_string(), "step \"charge\"");
    let HistoryEvent::OperationCompleted(first) = &events[4].what else {
        panic!("{events:?}")
    };
    assert_eq!(
        first.outcome,
        abide_core::model::Ending::Value(json("[1.50]"))
    );
    assert_eq!(lab.record(paid.id).await.status, CommandStatus::Applied);
    assert_eq!(lab.get(id).await.history_seq as usize, events.len() + 1);
}

pub async fn it_goes_on_under_the_kept_claim_and_is_notified_of_its_inbox(lab: Lab) {
    // rules 4.3 and 12.3
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claimed = lab.claim(worker).await;
    let first = claimed.claim.again();
    lab.signal(id, "a").await;
    lab.signal(id, "b").await;
    let Committed::Kept(claim, inbox) =
        keep_on(&lab, commit(claimed.claim, Coded::then(go_on()).into())).await
    else {
        panic!("it goes on")
    };
    assert_eq!((inbox.signals, inbox.updates, inbox.sequence.0), (2, 0, 2));
    assert!(claim.epoch() > first.epoch());
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.worker, found.cause),
        (Status::Executing, Some(worker), Cause::Next)
    );
    assert_eq!((found.step_seq, found.attempt), (2, 0));
    assert_eq!(
        lab.commit(first, Coded::then(go_on()).into()).await,
        Committed::Kept(claim.again(), inbox),
        "the first was committed, and nothing has ended that hold"
    );
    let ended = lab.commit(claim, Coded::then(ended()).into()).await;
    assert_eq!(ended, Committed::Moved(Status::Done));
}

pub async fn it_does_not_go_on_under_a_claim_that_it_would_not_keep(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let status = lab.turn(worker, id, Coded::then(go_on())).await;
    assert_eq!(status, Status::Runnable);
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.cause, claimed.step_seq, claimed.attempt),
        (Cause::Next, 2, 0)
    );
}

pub async fn a_pending_update_takes_the_claim_unless_steps_are_running(lab: Lab) {
    // rules 4.3 and 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let update = lab.update(id).await;
    let running = Coded::then(Then::GoOn { running: true });
    let answer = keep_on(&lab, commit(claim, running.into())).await;
    let Committed::Kept(claim, inbox) = answer else {
        panic!("its steps run: {answer:?}")
    };
    assert_eq!(inbox.updates, 1, "it is notified");
    let answer = keep_on(&lab, commit(claim, Coded::then(go_on()).into())).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert!(!claimed.aside, "it has something to go on with");
    let turn = Coded::then(go_on()).answers(&[update.id]);
    kept(keep_on(&lab, commit(claimed.claim, turn.into())).await);
    assert_eq!(lab.record(update.id).await.status, CommandStatus::Completed);
}

pub async fn more_urgent_work_takes_the_claim_unless_steps_are_running(lab: Lab) {
    // rule 4.3
    let worker = lab.worker("w").await;
    lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    lab.start(urgent(-1)).await;
    let running = Coded::then(Then::GoOn { running: true });
    let claim = kept(keep_on(&lab, commit(claim, running.into())).await);
    let answer = keep_on(&lab, commit(claim, Coded::then(go_on()).into())).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
}

pub async fn a_turn_that_breaks_a_rule_changes_nothing(lab: Lab) {
    // rules 4.2 and 16.3
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let paid = lab.signal(id, "paid").await;
    let claim = lab.claim(worker).await.claim;
    let before = (lab.get(id).await, lab.kinds(id).await);
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let names: Vec<String> = (0..1000).map(|at| format!("s{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fat = Start {
        state: json(&large),
        ..plain()
    };
    let versioned = |version| Then::ContinueAsNew {
        state: json("1"),
        version: Some(version),
    };
    let all_keys = Park {
        conditions: (1..)
            .zip(&names)
            .map(|(number, key)| conditional(number, Some(key)))
            .collect(),
        ..condition(1, "k")
    };
    let step = OperationKind::Step;
    let refused = [
        Coded::then(ended()).tells(vec![completed(1, step, "big", &large)]),
        Coded::then(Then::Done {
            result: json(&large),
        }),
        Coded::then(Then::ContinueAsNew {
            state: json(&large),
            version: None,
        }),
        Coded::parks(awaiting_children(1)),
        Coded::parks(awaiting_children(1)).starts(1, child_starts(2), 0),
        Coded::parks(awaiting(1, &names)),
        Coded::parks(all_keys),
        Coded::then(go_on()).starts(1, vec![fat], 1),
        Coded::then(go_on()).starts(1, many(10_001), 1),
        Coded::then(versioned(0)),
        Coded::then(versioned(u32::MAX)),
    ];
    for turn in refused {
        let turn = turn.takes(&[&paid]).starts(9, child_starts(1), 0);
        let outcome = format!("{:?}", abide_core::model::Outcome::from(turn.clone()));
        let answer = lab.commit(claim.again(), turn.into()).await;
        let outcome = &outcome[outcome.len().saturating_sub(300)..];
        assert!(
            matches!(answer, Committed::Refused(_)),
            "{answer:?}: {outcome}"
        );
        assert_eq!((lab.get(id).await, lab.kinds(id).await), before);
    }
    let nothing = lab.commit(claim.again(), Coded::parks(awaiting_children(1)).into());
    let Committed::Refused(Refusal::BadOutcome { problem }) = nothing.await else {
        panic!("it waits for nothing")
    };
    assert!(problem.contains("waits for nothing"), "{problem}");
    assert_eq!(count(&lab).await, 1, "no child was started");
    let good = Coded::then(ended()).takes(&[&paid]);
    let answer = lab.commit(claim, good.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Done), "the claim holds");
}

/// A turn that does everything that a turn can do.
async fn busy(lab: &Lab, id: InstanceId) -> Coded {
    let paid = lab.signal(id, "paid").await;
    let update = lab.update(id).await;
    Coded::parks(awaiting(2, &["other"]))
        .tells(vec![opened(1, OperationKind::Step, "charge")])
        .takes(&[&paid])
        .answers(&[update.id])
        .starts(2, child_starts(2), 1)
}

pub async fn a_lost_claim_drops_all_of_a_turn(lab: Lab) {
    // rules 1.3, 5.3 and 12.3
    lab.under(updates()).await;
    let dead = lab.worker("dead").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(dead).await.claim;
    let turn = busy(&lab, id).await;
    lab.pass(OVER_LEASE);
    assert_eq!(lab.reclaim().await, 1);
    let before = (lab.get(id).await, lab.kinds(id).await);
    for turn in [
        turn,
        Coded::then(ended()),
        Coded::then(super::coding::unfit()),
    ] {
        let answer = lab.commit(claim.again(), turn.into()).await;
        assert_eq!(answer, Committed::Stale);
    }
    assert_eq!((lab.get(id).await, lab.kinds(id).await), before);
    assert_eq!(count(&lab).await, 1, "no child was started");
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.attempt, claimed.cause), (1, Cause::Reclaim));
    assert_eq!(lab.count_events(id, "reclaimed").await, 1);
}

pub async fn a_turn_that_is_sent_again_is_answered_as_before(lab: Lab) {
    // rules 1.1 and 12.3
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claim = lab.claim(worker).await.claim;
    let turn = busy(&lab, id).await;
    let parked = lab.commit(claim.again(), turn.clone().into()).await;
    assert_eq!(parked, Committed::Moved(Status::AwaitingSignal));
    let after = (lab.get(id).await, lab.kinds(id).await, count(&lab).await);
    let again = lab.commit(claim, turn.into()).await;
    assert_eq!(again, Committed::Repeated(Status::AwaitingSignal));
    let now = (lab.get(id).await, lab.kinds(id).await, count(&lab).await);
    assert_eq!(now, after, "it was committed once");

    let fit = lab.coded(worker, workflow(), Coded::then(go_on())).await;
    let claim = lab.claim(worker).await.claim;
    let unfit = || Coded::then(super::coding::unfit()).into();
    for expected in [Committed::Moved, Committed::Repeated] {
        let answer = lab.commit(claim.again(), unfit()).await;
        assert_eq!(answer, expected(Status::Scheduled));
    }
    assert_eq!(lab.count_events(fit, "replay_blocked").await, 1);
}

pub async fn its_state_stays_what_it_began_with(lab: Lab) {
    // rule 12.1
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let turns = [
        Coded::then(go_on()),
        Coded::parks(sleep(1, lab.now())),
        Coded::then(go_on()).starts(2, child_starts(1), 0),
        Coded::then(ended()),
    ];
    for turn in turns {
        lab.fire().await;
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.state.as_str(), "{\"input\":1}");
        assert_eq!(claimed.step.as_str(), "start", "a workflow has one step");
        lab.commit(claimed.claim, turn.into()).await;
    }
    let found = lab.get(id).await;
    assert_eq!(found.state.as_str(), "{\"input\":1}");
    assert_eq!(found.result.unwrap().as_str(), "{\"sum\":42}");
}

pub async fn a_workflow_always_keeps_its_history(lab: Lab) {
    // rule 16.1
    let worker = lab.worker("w").await;
    let quiet = Start {
        history: Some(false),
        ..workflow()
    };
    lab.declare(vec![Declared {
        kind: Kind::Workflow,
        machine: name("m"),
        version: 1,
        first_step: name("run"),
        queue: name("default"),
        history: false,
        contract: None,
        retry: None,
        step_timeout_ms: None,
        max_deaths: None,
    }])
    .await;
    for start in [quiet, plain()] {
        let turn = Coded::then(ended()).tells(vec![opened(1, OperationKind::Now, "now")]);
        let id = lab.coded(worker, start, turn).await;
        let found = lab.get(id).await;
        assert_eq!((found.kind, found.history), (Kind::Workflow, true));
        assert_eq!(lab.kinds(id).await, ["operation_opened", "done"]);
    }
}

pub async fn a_turn_of_one_that_keeps_no_history_is_refused(lab: Lab) {
    // rule 16.1: it could not be replayed.
    let worker = lab.worker("w").await;
    let quiet = Start {
        history: Some(false),
        ..plain()
    };
    lab.start(quiet).await;
    let claim = lab.claim(worker).await.claim;
    let turn = Coded::then(ended());
    let answer = lab.commit(claim.again(), turn.into()).await;
    assert!(matches!(answer, Committed::Refused(_)), "{answer:?}");
    let done = lab.commit(claim, super::build::done()).await;
    assert!(
        matches!(done, Committed::Moved(_)),
        "the claim is as it was"
    );
}

pub async fn an_undeclared_machine_is_a_workflow_from_its_first_turn_on(lab: Lab) {
    // rules 2.6 and 10.2
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(lab.get(id).await.kind, Kind::Machine);
    lab.turn(
        worker,
        id,
        Coded::then(go_on())
            .starts(1, child_starts(1), 0)
            .starts(2, child_starts(2), 0),
    )
    .await;
    let found = lab.get(id).await;
    assert_eq!((found.kind, found.family.pending), (Kind::Workflow, 3));
    let claimed = lab.claim(worker).await;
    assert_eq!(
        (claimed.kind, claimed.children_pending),
        (Kind::Workflow, 3)
    );
    lab.commit(claimed.claim, Coded::parks(joining(3, 0, 3)).into())
        .await;
    lab.end_children(worker, 3).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn a_declared_workflow_is_started_as_one(lab: Lab) {
    // rule 2.6
    lab.declare(vec![Declared {
        kind: Kind::Workflow,
        ..under(&updates())
    }])
    .await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    assert_eq!(lab.get(id).await.kind, Kind::Workflow);
    assert_eq!(lab.claim(worker).await.kind, Kind::Workflow);
}

pub async fn its_end_closes_the_inbox(lab: Lab) {
    // rules 4.1 and 9.2
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let ends = [
        (ended(), Status::Done),
        (
            Then::Stop {
                reason: "no stock".into(),
            },
            Status::Failed,
        ),
        (
            Then::Cancelled {
                reason: "no stock".into(),
            },
            Status::Cancelled,
        ),
    ];
    for (then, status) in ends {
        let id = lab.start(workflow()).await;
        let (a, b) = (lab.signal(id, "a").await, lab.signal(id, "b").await);
        let (kept, late) = (lab.update(id).await, lab.update(id).await);
        let turn = Coded::then(then).takes(&[&b]).answers(&[kept.id]);
        assert_eq!(lab.turn(worker, id, turn).await, status);
        let found = lab.get(id).await;
        assert_eq!((found.inbox.signals, found.inbox.updates), (0, 0));
        let error = (status != Status::Done).then_some("no stock");
        assert_eq!(found.last_error.as_deref(), error);
        assert_eq!(found.finished_at, Some(lab.now()));
        assert_eq!(lab.kinds(id).await.last(), Some(&status.name()));
        let mut became = Vec::new();
        for id in [a.id, b.id, kept.id, late.id] {
            became.push(lab.record(id).await.status);
        }
        use CommandStatus::{Applied, Completed, Discarded, Failed};
        assert_eq!(became, [Discarded, Applied, Completed, Failed]);
    }
}

pub async fn a_step_that_failed_is_tried_again_in_its_time(lab: Lab) {
    // rules 5.1 and 16.1
    let worker = lab.worker("w").await;
    let due_at = lab.now() + MINUTE;
    let again = abide_core::model::Operation::TriedAgain(TriedAgain {
        operation: 1,
        name: name("charge"),
        attempts: 1,
        error: "no answer".into(),
        due_at,
        graph_step: None,
        folded: None,
    });
    let operations = vec![opened(1, OperationKind::Step, "charge"), again];
    let turn = Coded::parks(sleep(1, due_at)).tells(operations);
    let id = lab.coded(worker, workflow(), turn).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.due_at),
        (Status::Scheduled, Some(due_at))
    );
    assert_eq!(found.attempt, 0, "the code has not failed");
    assert_eq!(
        lab.kinds(id).await,
        ["operation_opened", "operation_retried", "wait_opened"]
    );
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    assert_eq!(
        lab.turn(worker, id, Coded::then(ended())).await,
        Status::Done
    );
}
