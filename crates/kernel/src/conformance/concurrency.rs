//! Many at once through one store: nothing is claimed twice, lost or counted wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::model::{
    Claimed, Committed, InstanceId, Outcome, Priority, Start, Started, Status, WorkerId,
};
use tokio::task::JoinSet;

use super::build::{commit, done, keyed, lane, many, name, next, plain, retry, spawn, within};
use super::lab::Lab;
use crate::{Answer, ClaimRequest, Op, Result, Store};

/// The number of tasks that run at once.
pub(super) const TASKS: usize = 8;

/// Runs operations until the store takes them: those of others may be in the way.
pub(super) async fn persist(store: &dyn Store, ops: Vec<Op>) -> Result<Vec<Answer>> {
    let ops: Arc<[Op]> = ops.into();
    loop {
        match store.run(ops.clone()).await {
            Err(error) if error.is_passing() => tokio::task::yield_now().await,
            answered => return answered,
        }
    }
}

async fn claim(lab: &Lab, worker: WorkerId, limit: usize) -> Vec<Claimed> {
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane("m", 1)],
        limit,
        lease: None,
    };
    match persist(lab.store.as_ref(), vec![Op::Claim(request)])
        .await
        .unwrap()
        .pop()
    {
        Some(Answer::Claimed(claimed)) => claimed,
        other => panic!("{other:?}"),
    }
}

/// Every step that was run: of which instance, which one, at which attempt.
pub(super) type Ran = Vec<(InstanceId, u32, u32)>;

/// Claims and commits until nothing is left that has not ended.
pub(super) async fn work(lab: Lab, worker: WorkerId, outcome: fn(&Claimed) -> Outcome) -> Ran {
    let mut ran = Ran::new();
    loop {
        // A store in memory never waits, and the others want to run too.
        tokio::task::yield_now().await;
        let claimed = claim(&lab, worker, 7).await;
        if claimed.is_empty() {
            match lab.store.depths().await.unwrap().is_empty() {
                true => return ran,
                false => continue,
            }
        }
        let mut commits = Vec::new();
        for one in claimed {
            ran.push((one.claim.id(), one.step_seq, one.attempt));
            let outcome = outcome(&one);
            commits.push(commit(one.claim, outcome));
        }
        let answers = persist(
            lab.store.as_ref(),
            vec![Op::Commit {
                commits,
                serves: Vec::new(),
            }],
        )
        .await
        .unwrap();
        let [Answer::Committed(each)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert!(
            each.iter().all(|one| matches!(one, Committed::Moved(_))),
            "{each:?}"
        );
    }
}

/// Lets all of them run at once; the first that panics ends the test.
pub(super) async fn together<T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks: JoinSet<T> = futures.into_iter().collect();
    let mut all = Vec::new();
    while let Some(one) = tasks.join_next().await {
        all.push(one.unwrap());
    }
    all
}

/// Lets eight workers work; how often each step of each attempt was run.
async fn work_together(
    lab: &Lab,
    outcome: fn(&Claimed) -> Outcome,
) -> BTreeMap<(InstanceId, u32, u32), usize> {
    let mut workers = Vec::new();
    for number in 0..TASKS {
        workers.push(lab.worker(&format!("worker-{number}")).await);
    }
    let work = workers
        .into_iter()
        .map(|worker| work(lab.clone(), worker, outcome));
    let mut counts = BTreeMap::new();
    for step in together(work).await.into_iter().flatten() {
        *counts.entry(step).or_default() += 1;
    }
    counts
}

pub async fn eight_workers_run_every_step_exactly_once(lab: Lab) {
    // rules 1.1 and 6.1
    let started = lab.start_all(many(500)).await;
    let counts = work_together(&lab, |one| match (one.step_seq, one.attempt) {
        (1, _) => next("b"),
        (2, 0) => retry(0),
        _ => done(),
    })
    .await;
    let expected = started
        .iter()
        .flat_map(|id| [(*id, 1, 0), (*id, 2, 0), (*id, 2, 1)]);
    assert_eq!(counts, expected.map(|step| (step, 1)).collect());
    for id in started {
        assert_eq!(lab.status(id).await, Status::Done);
    }
}

pub async fn eight_workers_keep_partitions_apart(lab: Lab) {
    // rule 6.3
    let partition = |number: usize| match number % 5 {
        0 => plain(),
        other => within(&format!("p{other}")),
    };
    let started = lab.start_all((0..200).map(partition).collect()).await;
    let counts = work_together(
        &lab,
        |one| if one.step_seq < 2 { next("b") } else { done() },
    )
    .await;
    assert_eq!(counts.len(), 2 * started.len());
    assert!(counts.values().all(|count| *count == 1));
}

pub async fn eight_workers_join_every_family_once(lab: Lab) {
    // rules 10.1 and 10.2
    let parents = lab
        .start_all(vec![
            Start {
                key: None,
                priority: Priority(1),
                ..plain()
            };
            40
        ])
        .await;
    let counts = work_together(&lab, |one| match (one.priority.0, one.step_seq) {
        (1, 1) => spawn(vec![
            Start {
                priority: Priority(2),
                ..plain()
            };
            6
        ]),
        (1, 2) => {
            assert_eq!(one.children.len(), 6);
            assert!(
                one.children
                    .iter()
                    .all(|child| child.status == Status::Done)
            );
            done()
        }
        _ => done(),
    })
    .await;
    assert_eq!(counts.len(), parents.len() * 2 + parents.len() * 6);
    assert!(counts.values().all(|count| *count == 1));
    for parent in parents {
        let found = lab.get(parent).await;
        assert_eq!(
            (found.status, found.family.pending, found.family.barrier.0),
            (Status::Done, 0, 1)
        );
    }
}

pub async fn of_many_starts_with_one_key_exactly_one_is_new(lab: Lab) {
    // rules 2.2 and 2.3
    for round in 0..10 {
        let start = |task: usize| {
            let lab = lab.clone();
            let mut starts = vec![keyed(&format!("x{round}")), keyed(&format!("y{round}"))];
            // Half of them in the other order, which is what deadlocks are made of.
            if task.is_multiple_of(2) {
                starts.reverse();
            }
            async move {
                persist(lab.store.as_ref(), vec![Op::Start(starts)])
                    .await
                    .unwrap()
            }
        };
        let (mut new, mut all) = (Vec::new(), Vec::new());
        for answers in together((0..TASKS).map(start)).await {
            let [Answer::Started(each)] = answers.as_slice() else {
                panic!("{answers:?}")
            };
            for one in each {
                let started = one.clone().unwrap();
                all.push(started.id());
                if let Started::New(id) = started {
                    new.push(id);
                }
            }
        }
        all.sort();
        all.dedup();
        new.sort();
        assert_eq!(new.len(), 2);
        assert_eq!(
            new, all,
            "all the others are answered with the two that are new"
        );
    }
}

pub async fn of_many_commits_of_one_claim_one_counts(lab: Lab) {
    // rules 1.3 and 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(many(2))).await;
    let claimed = lab.claim(worker).await;
    let end = |_| {
        let (lab, commits) = (lab.clone(), vec![commit(claimed.claim.again(), done())]);
        let serves = Vec::new();
        async move {
            persist(lab.store.as_ref(), vec![Op::Commit { commits, serves }])
                .await
                .unwrap()
        }
    };
    let mut first = 0;
    for answers in together((0..TASKS).map(end)).await {
        let [Answer::Committed(each)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        match each.as_slice() {
            [Committed::Moved(Status::Done)] => first += 1,
            [Committed::Repeated(Status::Done)] => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(first, 1);
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
}
