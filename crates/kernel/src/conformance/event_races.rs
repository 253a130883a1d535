//! Events, waits, signals and deadlines at the same time: nothing is lost between them, and nothing comes twice.

use std::collections::BTreeSet;

use abide_core::model::{
    Claimed, Committed, InstanceId, Outcome, Publish, Published, Refusal, Start, Status,
};

use super::build::{MINUTE, commit, done, keyed, many, signal};
use super::concurrency::{TASKS, persist, together, work};
use super::eventing::{any, awaits, back, known_as, order, ordered, publishing};
use super::lab::{Lab, WAITERS};
use crate::{Answer, Op};

/// The number of instances.
const TARGETS: usize = 12;

async fn publish(lab: Lab, publishes: Vec<Publish>) -> Vec<Published> {
    let answers = persist(lab.store.as_ref(), vec![Op::Publish(publishes)]).await;
    match answers.unwrap().pop() {
        Some(Answer::Published(each)) => each.into_iter().map(Result::unwrap).collect(),
        other => panic!("{other:?}"),
    }
}

async fn park(lab: Lab, claimed: Claimed, outcome: Outcome) -> Committed {
    let ops = vec![Op::Commit {
        commits: vec![commit(claimed.claim, outcome)],
        serves: Vec::new(),
    }];
    let answers = persist(lab.store.as_ref(), ops).await;
    match answers.unwrap().pop() {
        Some(Answer::Committed(mut each)) => each.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn claimed(lab: &Lab, count: usize) -> Vec<Claimed> {
    lab.start_all(many(count)).await;
    let worker = lab.worker("w").await;
    lab.claim_some(worker, count).await
}

pub async fn of_publish_and_wait_every_interleaving_is_before_or_in_it(lab: Lab) {
    // rules 14.1 and 14.6
    for round in 0..4 {
        let all = claimed(&lab, TARGETS).await;
        let ids: Vec<InstanceId> = all.iter().map(|one| one.claim.id()).collect();
        let parks = all.into_iter().enumerate().map(|(at, one)| {
            let (lab, id) = (lab.clone(), (round * TARGETS + at) as i64);
            async move {
                let moved = park(lab, one, awaits(vec![order(id)], &[])).await;
                assert_eq!(moved, Committed::Moved(Status::AwaitingSignal));
                0
            }
        });
        let publishes = (0..TARGETS).map(|at| {
            let (lab, id) = (lab.clone(), (round * TARGETS + at) as i64);
            async move { publish(lab, vec![ordered(id), ordered(-1)]).await[0].matched }
        });
        let (_, matched) = tokio::join!(together(parks), together(publishes));
        let (mut woken, mut waiting) = (0, BTreeSet::new());
        for id in &ids {
            let found = lab.get(*id).await;
            match found.status {
                Status::Runnable => woken += 1,
                _ => drop(waiting.insert(*id)),
            }
            let came = lab.inbox(*id).await.len();
            assert_eq!(came, usize::from(found.status == Status::Runnable));
        }
        assert_eq!(matched.into_iter().sum::<u32>(), woken);
        let standing: BTreeSet<InstanceId> = lab.waits_for_events().await.into_iter().collect();
        assert_eq!(standing, waiting);
        lab.pass(MINUTE);
        lab.fire().await;
        let worker = lab.worker("w").await;
        for one in lab.claim_some(worker, 100).await {
            lab.commit(one.claim, done()).await;
        }
    }
}

pub async fn who_looks_back_misses_nothing(lab: Lab) {
    // rule 14.6
    for round in 0..4 {
        let all = claimed(&lab, TARGETS).await;
        let ids: Vec<InstanceId> = all.iter().map(|one| one.claim.id()).collect();
        let parks = all.into_iter().enumerate().map(|(at, one)| {
            let (lab, id) = (lab.clone(), (round * TARGETS + at) as i64);
            async move {
                let waits = awaits(vec![back(order(id), 60_000)], &[]);
                drop(park(lab, one, waits).await);
            }
        });
        let publishes = (0..TARGETS).map(|at| {
            let (lab, id) = (lab.clone(), (round * TARGETS + at) as i64);
            async move { drop(publish(lab, vec![ordered(id)]).await) }
        });
        tokio::join!(together(parks), together(publishes));
        for id in &ids {
            assert_eq!(lab.status(*id).await, Status::Runnable);
            assert_eq!(lab.inbox(*id).await.len(), 1, "neither none nor two");
        }
        assert!(lab.waiters().await.is_empty());
        let worker = lab.worker("w").await;
        for one in lab.claim_some(worker, 100).await {
            lab.commit(one.claim, done()).await;
        }
    }
}

pub async fn of_many_who_publish_one_event_id_one_does(lab: Lab) {
    // rule 14.1
    for round in 0..5 {
        let all = claimed(&lab, 3).await;
        for one in all {
            park(lab.clone(), one, awaits(vec![any("order")], &[])).await;
        }
        let event_id = format!("e{round}");
        let publishes = (0..TASKS).map(|at| {
            let event = known_as(&event_id, ordered(at as i64));
            publish(lab.clone(), vec![event.clone(), event])
        });
        let each: Vec<Published> = together(publishes).await.into_iter().flatten().collect();
        let fresh: Vec<_> = each.iter().filter(|one| !one.duplicate).collect();
        assert_eq!((fresh.len(), fresh[0].matched), (1, 3));
        assert!(each.iter().all(|one| one.sequence == fresh[0].sequence));
        let worker = lab.worker("w").await;
        for one in lab.claim_some(worker, 10).await {
            assert_eq!(one.awaited.len(), 1);
            lab.commit(one.claim, done()).await;
        }
    }
}

pub async fn a_wait_is_ended_by_one_of_event_signal_and_deadline(lab: Lab) {
    // rules 7.5 and 14.5
    for _ in 0..4 {
        let all = claimed(&lab, TARGETS).await;
        let ids: Vec<InstanceId> = all.iter().map(|one| one.claim.id()).collect();
        for one in all {
            let waits = awaits(vec![any("order")], &["s"]);
            park(lab.clone(), one, waits).await;
        }
        lab.pass(MINUTE);
        let acts = (0..TASKS).map(|task| {
            let (lab, ids) = (lab.clone(), ids.clone());
            async move {
                match task % 3 {
                    0 => drop(publish(lab, vec![ordered(1), ordered(2)]).await),
                    1 => {
                        let fire = Op::Fire { limit: 3 };
                        persist(lab.store.as_ref(), vec![fire]).await.unwrap();
                    }
                    _ => {
                        let signals = ids.iter().skip(task).step_by(2);
                        let signals = signals.map(|id| signal(*id, "s")).collect();
                        let op = vec![Op::Deliver(signals)];
                        persist(lab.store.as_ref(), op).await.unwrap();
                    }
                }
            }
        });
        together(acts).await;
        for id in &ids {
            let ends = lab.count_events(*id, "event_matched").await
                + lab.count_events(*id, "timed_out").await;
            assert!(ends <= 1, "{:?}", lab.kinds(*id).await);
            assert_eq!(lab.status(*id).await, Status::Runnable);
        }
        assert!(lab.waiters().await.is_empty());
        let worker = lab.worker("w").await;
        for one in lab.claim_some(worker, 100).await {
            lab.commit(one.claim, done()).await;
        }
    }
}

pub async fn of_many_who_would_wait_no_more_do_than_the_limit(lab: Lab) {
    // rule 14.7
    let all = claimed(&lab, WAITERS + 10).await;
    let parks = all
        .into_iter()
        .map(|one| park(lab.clone(), one, awaits(vec![any("order")], &[])));
    let answers = together(parks).await;
    let is_full = |one: &&Committed| matches!(one, Committed::Refused(Refusal::TooManyWaiters { event_type, .. }) if event_type.as_str() == "order");
    assert_eq!(answers.iter().filter(is_full).count(), 10);
    assert_eq!(lab.waiters().await.len(), WAITERS);
}

pub async fn what_is_published_while_many_work_comes_to_everyone_once(lab: Lab) {
    // rules 7.1, 14.1 and 14.6
    let starts: Vec<Start> = (0..TARGETS).map(|at| keyed(&format!("t{at}"))).collect();
    lab.start_all(starts).await;
    // Everyone takes part until it has received the event that it is over, and publishing goes on until all were.
    let until_it_is_over = |claimed: &Claimed| match claimed.awaited.is_empty() {
        false => done(),
        true => awaits(vec![any("over")], &[]),
    };
    let mut workers = Vec::new();
    for at in 0..3 {
        workers.push(lab.worker(&format!("w{at}")).await);
    }
    let works = workers
        .into_iter()
        .map(|worker| work(lab.clone(), worker, until_it_is_over));
    let teller = |_| {
        let lab = lab.clone();
        async move {
            let mut matched = 0;
            while !lab.store.depths().await.unwrap().is_empty() {
                matched += publish(lab.clone(), vec![publishing("over", "1")]).await[0].matched;
                tokio::task::yield_now().await;
            }
            matched
        }
    };
    let (_, matched) = tokio::join!(together(works), together((0..3).map(teller)));
    assert_eq!(matched.into_iter().sum::<u32>() as usize, TARGETS);
}
