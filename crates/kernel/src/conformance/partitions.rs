//! Partitions: one at a time, in order, and no matter how many wait.

use abide_core::model::{InstanceId, Priority, Start, Status, When};

use super::build::{
    MINUTE, SECOND, commit, done, key, lane, later, name, next, next_after, plain, retry, spawn,
    stop, wait, within,
};
use super::lab::{Lab, OVER_LEASE, ids};
use crate::{Answer, ClaimRequest, Op};

fn prior(partition: &str, priority: i16) -> Start {
    Start {
        priority: Priority(priority),
        ..within(partition)
    }
}

async fn executing(lab: &Lab, ids: &[InstanceId]) -> Vec<InstanceId> {
    let mut found = Vec::new();
    for id in ids {
        if lab.status(*id).await == Status::Executing {
            found.push(*id);
        }
    }
    found
}

pub async fn of_one_partition_one_executes_at_a_time_in_order(lab: Lab) {
    // rule 6.3
    let worker = lab.worker("w").await;
    let started = lab
        .start_all(vec![within("p"), within("p"), prior("p", -1), within("p")])
        .await;
    for at in [2, 0, 1, 3] {
        let claimed = lab.claim_some(worker, 10).await;
        assert_eq!(ids(&claimed), [started[at]]);
        assert_eq!(executing(&lab, &started).await, [started[at]]);
        for one in claimed {
            lab.commit(one.claim, done()).await;
        }
    }
}

pub async fn different_partitions_and_none_run_side_by_side(lab: Lab) {
    // rule 6.3
    let worker = lab.worker("w").await;
    let starts = vec![
        within("p"),
        within("p"),
        within("q"),
        plain(),
        within("q"),
        plain(),
    ];
    let started = lab.start_all(starts).await;
    assert_eq!(
        lab.claim_ids(worker, 10).await,
        [0, 2, 3, 5].map(|at| started[at])
    );
}

pub async fn a_partition_is_one_across_queues_machines_and_workers(lab: Lab) {
    // rule 6.3
    let (one, two) = (lab.worker("one").await, lab.worker("two").await);
    let first = lab.start(within("p")).await;
    let second = lab
        .start(Start {
            queue: Some(name("slow")),
            machine: name("n"),
            ..within("p")
        })
        .await;
    assert!(
        lab.claim_from(two, "slow", vec![lane("n", 1)], 1)
            .await
            .is_empty()
    );
    let claimed = lab.claim(one).await;
    assert_eq!(claimed.claim.id(), first);
    assert!(
        lab.claim_from(two, "slow", vec![lane("n", 1)], 1)
            .await
            .is_empty()
    );
    lab.commit(claimed.claim, done()).await;
    assert_eq!(
        ids(&lab.claim_from(two, "slow", vec![lane("n", 1)], 1).await),
        [second]
    );
}

pub async fn a_thousand_that_wait_do_not_hide_the_others(lab: Lab) {
    // rules 6.2 and 6.3
    let worker = lab.worker("w").await;
    let mut starts = vec![within("p"); 1000];
    starts.extend([within("q"), plain()]);
    let started = lab.start_all(starts).await;
    assert_eq!(
        lab.claim_ids(worker, 10).await,
        [started[0], started[1000], started[1001]]
    );
}

pub async fn the_more_urgent_passes_one_that_has_not_begun(lab: Lab) {
    // rule 6.3
    let worker = lab.worker("w").await;
    let calm = lab.start(prior("p", 5)).await;
    let early = Start {
        when: When::At(lab.now() - SECOND),
        ..prior("p", 1)
    };
    let urgent = lab.start_all(vec![prior("p", 1), early]).await;
    assert!(lab.get(calm).await.behind && lab.get(urgent[0]).await.behind);
    assert!(!lab.get(urgent[1]).await.behind);
    let claimed = lab.claim_some(worker, 10).await;
    assert_eq!(ids(&claimed), [urgent[1]]);
    let last = lab.start(prior("p", -9)).await;
    assert!(
        lab.claim_some(worker, 10).await.is_empty(),
        "none passes one that executes"
    );
    for one in claimed {
        lab.commit(one.claim, done()).await;
    }
    assert_eq!(lab.claim_ids(worker, 10).await, [last]);
}

pub async fn every_outcome_frees_the_partition(lab: Lab) {
    // rule 6.3
    let worker = lab.worker("w").await;
    let outcomes = [
        next_after("b", 1000),
        retry(1000),
        wait(&["s"], None),
        spawn(vec![later(MINUTE)]),
        done(),
        stop("no"),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let partition = format!("p{number}");
        let started = lab
            .start_all(vec![within(&partition), within(&partition)])
            .await;
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.claim.id(), started[0]);
        lab.commit(claimed.claim, outcome).await;
        assert_eq!(lab.claim_ids(worker, 10).await, [started[1]]);
    }
}

pub async fn what_goes_on_at_once_goes_behind_who_was_there_before(lab: Lab) {
    // rules 6.1 and 6.3
    let worker = lab.worker("w").await;
    let started = lab.start_all(vec![within("p"), within("p")]).await;
    lab.pass(SECOND);
    lab.step(worker, next("b")).await;
    assert_eq!(lab.claim_ids(worker, 10).await, [started[1]]);
}

pub async fn a_partition_is_freed_when_its_holder_dies(lab: Lab) {
    // rules 5.3 and 6.3
    let worker = lab.worker("w").await;
    let started = lab.start_all(vec![within("p"), prior("p", 3)]).await;
    lab.claim(worker).await;
    lab.pass(OVER_LEASE);
    let heir = lab.worker("heir").await;
    assert!(lab.claim_some(heir, 10).await.is_empty());
    assert_eq!(lab.reclaim().await, 1);
    assert_eq!(lab.claim_ids(heir, 10).await, started[..1]);
}

pub async fn a_partition_is_freed_when_its_holder_gives_it_back(lab: Lab) {
    // rules 5.4 and 6.3
    let worker = lab.worker("w").await;
    let calm = lab.start(prior("p", 3)).await;
    let claim = lab.claim(worker).await.claim;
    let urgent = lab.start(prior("p", 1)).await;
    lab.run(Op::GiveBack(vec![claim.again()])).await;
    assert_eq!(lab.claim_ids(worker, 10).await, [urgent]);
    lab.run(Op::GiveBackExcept {
        worker,
        known: Vec::new(),
        limit: 10,
    })
    .await;
    assert_eq!(lab.claim_ids(worker, 10).await, [urgent]);
    lab.run(Op::SignOff { worker, limit: 10 }).await;
    let heir = lab.worker("heir").await;
    lab.step(heir, done()).await;
    assert_eq!(lab.claim_ids(heir, 10).await, [calm]);
}

pub async fn what_becomes_due_takes_its_place(lab: Lab) {
    // rules 6.3 and 6.5
    let worker = lab.worker("w").await;
    let sleeper = lab
        .start(Start {
            when: When::After(MINUTE),
            ..prior("p", 0)
        })
        .await;
    let awake = lab.start(prior("p", 1)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(
        claimed.claim.id(),
        awake,
        "one that sleeps holds no position"
    );
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    assert!(lab.get(sleeper).await.behind);
    assert!(lab.claim_some(worker, 10).await.is_empty());
    lab.commit(claimed.claim, done()).await;
    assert_eq!(lab.claim_ids(worker, 10).await, [sleeper]);
}

pub async fn several_that_become_due_together_stand_in_order(lab: Lab) {
    // rules 6.3 and 6.5
    let worker = lab.worker("w").await;
    let sleeps = |priority, seconds| Start {
        when: When::After(SECOND * seconds),
        ..prior("p", priority)
    };
    let started = lab
        .start_all(vec![sleeps(2, 1), sleeps(1, 3), sleeps(1, 2)])
        .await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 3);
    for at in [2, 1, 0] {
        let mut claimed = lab.claim_some(worker, 10).await;
        assert_eq!(ids(&claimed), [started[at]]);
        lab.commit(claimed.remove(0).claim, done()).await;
    }
}

pub async fn children_keep_to_their_partitions(lab: Lab) {
    // rules 6.3 and 10.1
    let worker = lab.worker("w").await;
    let before = lab.start(prior("p", 2)).await;
    let parent = lab
        .start(Start {
            priority: Priority(-1),
            ..within("q")
        })
        .await;
    lab.step(
        worker,
        spawn(vec![prior("p", 3), prior("p", 1), within("q"), within("r")]),
    )
    .await;
    let children = lab.children(parent).await;
    let child = |at: usize| children[at].id;
    let claimed = lab.claim_some(worker, 10).await;
    assert_eq!(
        ids(&claimed),
        [child(2), child(3), child(1)],
        "{before} was passed by its urgent rival"
    );
    let commits = claimed
        .into_iter()
        .map(|one| commit(one.claim, done()))
        .collect();
    lab.commit_all(commits).await;
    assert_eq!(lab.claim_ids(worker, 10).await, [before]);
}

pub async fn two_steps_of_a_partition_in_one_transaction_are_two_claims(lab: Lab) {
    // rule 6.3
    let worker = lab.worker("w").await;
    let started = lab.start_all(vec![within("p"), within("p")]).await;
    let claim = lab.claim(worker).await.claim;
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane("m", 1)],
        limit: 10,
        lease: None,
    };
    let ops = vec![
        Op::Commit {
            commits: vec![commit(claim, done())],
            serves: Vec::new(),
        },
        Op::Claim(request),
    ];
    let answers = lab.try_run(ops).await.unwrap();
    let [_, Answer::Claimed(claimed)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!(ids(claimed), [started[1]]);
}

pub async fn a_partition_may_have_any_name(lab: Lab) {
    let worker = lab.worker("w").await;
    let names = ["🦀", "' or 1=1; --", "p", "P", &"x".repeat(255)];
    for text in names {
        lab.start_all(vec![within(text), within(text)]).await;
    }
    let claimed = lab.claim_some(worker, 100).await;
    let partitions: Vec<_> = claimed
        .iter()
        .map(|one| one.claim.partition().cloned())
        .collect();
    assert_eq!(partitions, names.map(|text| Some(key(text))));
}
