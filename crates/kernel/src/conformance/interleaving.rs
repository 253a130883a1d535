//! Messages, steps and starts at the same time: whatever comes between, nothing is lost and nothing comes twice.

use std::collections::BTreeSet;

use abide_core::model::{Claimed, CommandStatus, Delivered, NewCommand, Outcome, Start};

use super::build::{
    MINUTE, adding, answer, done, held, key, keyed, once, signal, starting, updates, wait,
};
use super::concurrency::{TASKS, persist, together, work};
use super::lab::{Lab, command_ids};
use crate::{Answer, CommandFilter, Op};

/// The number of instances.
const TARGETS: usize = 5;

fn target(at: usize) -> String {
    format!("t{at}")
}

async fn deliver(lab: Lab, deliveries: Vec<NewCommand>) -> Vec<Delivered> {
    let answers = persist(lab.store.as_ref(), vec![Op::Deliver(deliveries)]).await;
    match answers.unwrap().pop() {
        Some(Answer::Delivered(each)) => each.into_iter().map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

/// Each task delivers what it makes up for every target, half of them in the other order.
async fn send(lab: &Lab, makes: fn(usize) -> NewCommand) {
    let sends = |task: usize| {
        let lab = lab.clone();
        async move {
            let mut targets: Vec<usize> = (0..TARGETS).collect();
            if task.is_multiple_of(2) {
                targets.reverse();
            }
            for pair in targets.chunks(2) {
                let deliveries = pair.iter().map(|at| makes(*at)).collect();
                deliver(lab.clone(), deliveries).await;
                tokio::task::yield_now().await;
            }
        }
    };
    together((0..TASKS).map(sends)).await;
}

async fn run(lab: &Lab, outcome: fn(&Claimed) -> Outcome) {
    let mut workers = Vec::new();
    for at in 0..3 {
        workers.push(lab.worker(&format!("w{at}")).await);
    }
    let works = |worker| work(lab.clone(), worker, outcome);
    together(workers.into_iter().map(works)).await;
}

async fn start_targets(lab: &Lab) {
    let starts: Vec<Start> = (0..TARGETS).map(|at| keyed(&target(at))).collect();
    lab.start_all(starts).await;
}

pub async fn of_deliver_and_park_every_interleaving_ends_runnable(lab: Lab) {
    // rules 7.1 and 7.4
    start_targets(&lab).await;
    let until_all_have_come = |claimed: &Claimed| match claimed.awaited.len() == TASKS {
        true => done(),
        false => wait(&["s"], None),
    };
    tokio::join!(
        send(&lab, |at| signal(key(&target(at)), "s")),
        run(&lab, until_all_have_come),
    );
    let applied = CommandFilter {
        status: Some(CommandStatus::Applied),
        ..CommandFilter::default()
    };
    assert_eq!(lab.records(applied).await.len(), TASKS * TARGETS);
}

pub async fn updates_and_signals_come_through_together(lab: Lab) {
    // rules 7.1, 9.1 and 9.4
    lab.under(updates()).await;
    start_targets(&lab).await;
    let answers_first = |claimed: &Claimed| match claimed.awaited.len() == TASKS {
        _ if !claimed.updates.is_empty() => answer(&command_ids(&claimed.updates), None),
        true => done(),
        false => wait(&["s"], None),
    };
    // All updates are there before the last signals, so that no instance ends before it has answered.
    tokio::join!(
        async {
            send(&lab, |at| adding(key(&target(at)), 1)).await;
            send(&lab, |at| signal(key(&target(at)), "s")).await;
        },
        run(&lab, answers_first),
    );
    for status in [CommandStatus::Completed, CommandStatus::Applied] {
        let filter = CommandFilter {
            status: Some(status),
            ..CommandFilter::default()
        };
        assert_eq!(lab.records(filter).await.len(), TASKS * TARGETS);
    }
}

pub async fn of_many_messages_with_one_dedup_key_one_is_accepted(lab: Lab) {
    // rule 7.3
    let id = lab.start(keyed("k")).await;
    for round in 0..5 {
        let sends = |_| {
            let delivery = once(&format!("d{round}"), signal(key("k"), "s"));
            deliver(lab.clone(), vec![delivery])
        };
        let each = together((0..TASKS).map(sends)).await;
        let fresh = each.iter().flatten().filter(|one| !one.duplicate).count();
        let records: BTreeSet<_> = each
            .iter()
            .flatten()
            .map(|one| one.record.as_ref().unwrap().id)
            .collect();
        assert_eq!((fresh, records.len()), (1, 1));
        assert_eq!(lab.inbox(id).await.len(), round + 1);
    }
}

pub async fn of_many_signals_that_would_start_one_exactly_one_does(lab: Lab) {
    // rule 7.9
    for round in 0..5 {
        let text = format!("k{round}");
        let sends = |_| deliver(lab.clone(), vec![starting(keyed(&text), "s")]);
        let each = together((0..TASKS).map(sends)).await;
        let started = each.iter().flatten().filter(|one| one.started).count();
        assert_eq!(started, 1);
        let id = lab.find(key(&text)).await.unwrap().id;
        assert_eq!(lab.inbox(id).await.len(), TASKS);
    }
}

pub async fn a_signal_for_who_is_just_starting_is_held_or_delivered_and_never_lost(lab: Lab) {
    // rule 7.8
    for round in 0..5 {
        let text = format!("k{round}");
        let acts = |task: usize| {
            let (lab, text) = (lab.clone(), text.clone());
            async move {
                match task == TASKS / 2 {
                    true => {
                        let start = Op::Start(vec![keyed(&text)]);
                        persist(lab.store.as_ref(), vec![start]).await.unwrap();
                    }
                    false => drop(deliver(lab, vec![held(&text, "s", MINUTE)]).await),
                }
            }
        };
        together((0..TASKS).map(acts)).await;
        let id = lab.find(key(&text)).await.unwrap().id;
        assert_eq!(lab.inbox(id).await.len(), TASKS - 1);
    }
}
