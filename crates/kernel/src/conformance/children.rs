//! Children: started and counted in the commit that parks their parent.

use abide_core::model::{
    BarrierNumber, Cause, Claimed, Committed, Priority, Start, Status, WaitKind,
};

use super::build::{
    commit, declared, done, json, key, keyed, later, many, name, next, plain, spawn, stop, urgent,
};
use super::lab::{Lab, ids};

pub async fn spawn_starts_the_children_and_parks_the_parent_in_one_commit(lab: Lab) {
    // rule 10.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let children = vec![
        keyed("one"),
        Start {
            state: json("[2]"),
            priority: Priority(7),
            ..keyed("two")
        },
    ];
    assert_eq!(
        lab.step(worker, spawn(children)).await,
        Status::AwaitingChildren
    );
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending, found.family.barrier),
        (Status::AwaitingChildren, 2, BarrierNumber(1))
    );
    assert_eq!(
        (found.step.as_str(), found.step_seq, found.attempt),
        ("joined", 2, 0)
    );
    assert_eq!(
        (found.wait_kind(), found.wait_since()),
        (Some(WaitKind::Children), Some(lab.now()))
    );
    assert_eq!(
        (found.due_at, found.worker, found.state.as_str()),
        (None, None, "{\"spawned\":1}")
    );
    let two = lab.find(key("two")).await.unwrap();
    assert_eq!(
        (two.row.parent, two.row.parent_barrier),
        (Some(parent), BarrierNumber(1))
    );
    assert_eq!(
        (two.state, two.row.priority, two.row.status),
        (json("[2]"), Priority(7), Status::Runnable)
    );
    assert_eq!(
        (two.row.cause, two.row.created_at),
        (Cause::Start, lab.now())
    );
}

pub async fn children_take_what_they_leave_out_from_their_machine(lab: Lab) {
    // rules 2.6 and 10.1
    let worker = lab.worker("w").await;
    lab.declare(vec![declared("child", 4, "begin")]).await;
    lab.start(plain()).await;
    let child = Start {
        machine: name("child"),
        ..keyed("c")
    };
    let pinned = Start {
        version: Some(9),
        ..child.clone()
    };
    lab.step(
        worker,
        spawn(vec![
            child,
            Start {
                key: Some(key("d")),
                ..pinned
            },
        ]),
    )
    .await;
    let found = lab.find(key("c")).await.unwrap();
    assert_eq!(
        (found.version, found.row.step, found.row.queue),
        (4, name("begin"), name("slow"))
    );
    assert!(!found.row.history);
    assert_eq!(lab.find(key("d")).await.unwrap().version, 9);
}

pub async fn children_that_are_duplicates_are_not_counted(lab: Lab) {
    // rule 10.1
    let worker = lab.worker("w").await;
    let taken = lab
        .start(Start {
            priority: Priority(9),
            ..keyed("taken")
        })
        .await;
    let parent = lab.start(plain()).await;
    lab.step(
        worker,
        spawn(vec![keyed("a"), keyed("taken"), keyed("a"), keyed("b")]),
    )
    .await;
    assert_eq!(lab.get(parent).await.family.pending, 2);
    assert_eq!(
        lab.get(taken).await.parent,
        None,
        "the holder of the key does not become a child"
    );
    for _ in 0..2 {
        lab.step(worker, done()).await;
    }
    let joined = lab.claim(worker).await;
    assert_eq!((joined.claim.id(), joined.children.len()), (parent, 2));
}

pub async fn a_parent_whose_children_are_all_duplicates_goes_straight_on(lab: Lab) {
    // rule 10.1
    let worker = lab.worker("w").await;
    lab.start(Start {
        priority: Priority(9),
        ..keyed("taken")
    })
    .await;
    let parent = lab.start(plain()).await;
    for children in [vec![keyed("taken"), keyed("taken")], Vec::new()] {
        assert_eq!(lab.step(worker, spawn(children)).await, Status::Runnable);
        let found = lab.get(parent).await;
        assert_eq!((found.status, found.family.pending), (Status::Runnable, 0));
    }
    let joined = lab.claim(worker).await;
    assert_eq!(
        (joined.claim.id(), joined.cause, joined.joins),
        (parent, Cause::Children, Some(BarrierNumber(2)))
    );
    assert!(joined.children.is_empty());
}

pub async fn the_parent_goes_on_when_the_last_child_has_ended(lab: Lab) {
    // rules 10.2 and 10.3
    let worker = lab.worker("w").await;
    let parent = lab
        .start(Start {
            priority: Priority(5),
            ..plain()
        })
        .await;
    lab.step(worker, spawn(vec![keyed("good"), keyed("bad"), urgent(1)]))
        .await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("broken")).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending),
        (Status::AwaitingChildren, 1)
    );
    lab.pass(super::build::SECOND);
    lab.step(worker, done()).await;
    let found = lab.get(parent).await;
    assert_eq!(
        (found.status, found.family.pending, found.cause),
        (Status::Runnable, 0, Cause::Children)
    );
    assert_eq!((found.due_at, found.timed_out), (Some(lab.now()), false));
}

pub async fn a_parent_that_joins_is_handed_its_children(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let good = Start {
        state: json("\"g\""),
        machine: name("m"),
        ..keyed("good")
    };
    lab.step(worker, spawn(vec![good, plain()])).await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("broken")).await;
    let joined = lab.claim(worker).await;
    assert_eq!(
        (joined.claim.id(), joined.joins),
        (parent, Some(BarrierNumber(1)))
    );
    assert_eq!(
        (joined.step.as_str(), joined.state.as_str()),
        ("joined", "{\"spawned\":1}")
    );
    let [good, bad] = joined.children.as_slice() else {
        panic!("{:?}", joined.children)
    };
    assert_eq!(
        (good.key.clone(), &good.machine, good.status),
        (Some(key("good")), &name("m"), Status::Done)
    );
    assert_eq!(
        (good.state.as_str(), good.result.clone()),
        ("\"g\"", Some(json("{\"sum\":42}")))
    );
    assert_eq!(
        (bad.status, bad.last_error.as_deref(), &bad.result),
        (Status::Failed, Some("broken"), &None)
    );
    assert_eq!(lab.children(parent).await, joined.children);
}

pub async fn a_step_that_joins_is_handed_its_children_again_when_it_runs_again(lab: Lab) {
    // rules 1.2 and 10.2
    let worker = lab.worker("w").await;
    lab.start(plain()).await;
    lab.step(worker, spawn(many(1))).await;
    lab.step(worker, done()).await;
    lab.step(worker, super::build::retry(0)).await;
    let joined = lab.claim(worker).await;
    assert_eq!((joined.children.len(), joined.attempt), (1, 1));
    lab.commit(joined.claim, next("after")).await;
    let after = lab.claim(worker).await;
    assert_eq!(
        (after.joins, after.children.len()),
        (None, 0),
        "the next step does not join"
    );
}

pub async fn each_parent_of_a_batch_is_handed_its_own_children(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let parents = lab.start_all(many(4)).await;
    let claimed = lab.claim_some(worker, 4).await;
    let counts = [2, 0, 1, 3];
    let commits = claimed
        .into_iter()
        .zip(counts)
        .map(|(one, count)| commit(one.claim, spawn(many(count))));
    lab.commit_all(commits.collect()).await;
    // The parent without children is runnable already: pass it by, and end the six children.
    let mut joined = Vec::new();
    for one in lab.claim_some(worker, 100).await {
        match one.joins {
            Some(_) => joined.push(one),
            None => {
                lab.commit(one.claim, done()).await;
            }
        }
    }
    joined.extend(lab.claim_some(worker, 100).await);
    joined.sort_by_key(|one| one.claim.id());
    assert_eq!(ids(&joined), parents);
    let handed: Vec<usize> = joined
        .iter()
        .map(|one: &Claimed| one.children.len())
        .collect();
    assert_eq!(handed, counts);
}

pub async fn siblings_that_end_in_one_commit_lower_the_count_together(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let parents = lab.start_all(many(2)).await;
    for _ in 0..2 {
        let parent = lab.claim(worker).await;
        lab.commit(parent.claim, spawn(vec![urgent(1), urgent(1), urgent(1)]))
            .await;
    }
    let children = lab.claim_some(worker, 5).await;
    let commits = children
        .into_iter()
        .map(|one| commit(one.claim, done()))
        .collect();
    let answers = lab.commit_all(commits).await;
    assert!(
        answers
            .iter()
            .all(|answer| *answer == Committed::Moved(Status::Done))
    );
    let [first, second] = [lab.get(parents[0]).await, lab.get(parents[1]).await];
    assert_eq!((first.status, first.family.pending), (Status::Runnable, 0));
    assert_eq!(
        (second.status, second.family.pending),
        (Status::AwaitingChildren, 1)
    );
    let kinds = lab.kinds(parents[0]).await;
    let expected = [
        "step_completed",
        "children_spawned",
        "child_ended",
        "child_ended",
        "child_ended",
        "children_joined",
    ];
    assert_eq!(kinds, expected);
}

pub async fn a_child_that_ends_twice_is_counted_once(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(many(2))).await;
    let child = lab.claim(worker).await.claim;
    let twice = child.again();
    let first = lab.commit(child, done()).await;
    assert_eq!(first, Committed::Moved(Status::Done));
    let again = lab.commit(twice, done()).await;
    assert_eq!(again, Committed::Repeated(Status::Done));
    assert_eq!(lab.get(parent).await.family.pending, 1);
}

pub async fn a_scheduled_child_is_waited_for(lab: Lab) {
    // rule 10.1
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![later(super::build::MINUTE)]))
        .await;
    assert!(lab.claim_some(worker, 9).await.is_empty());
    lab.pass(super::build::MINUTE);
    lab.fire().await;
    lab.step(worker, done()).await;
    assert_eq!(lab.status(parent).await, Status::Runnable);
}

pub async fn a_family_of_exactly_the_limit_is_taken(lab: Lab) {
    // rules 10.1 and 16.3
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    let status = lab.step(worker, spawn(many(10_000))).await;
    assert_eq!(status, Status::AwaitingChildren);
    assert_eq!(lab.get(parent).await.family.pending, 10_000);
    let ended = lab.claim_some(worker, 500).await.into_iter();
    let commits = ended.map(|one| commit(one.claim, done())).collect();
    lab.commit_all(commits).await;
    assert_eq!(lab.get(parent).await.family.pending, 9_500);
}

pub async fn children_have_children_to_any_depth(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let root = lab.start(plain()).await;
    for _ in 0..20 {
        lab.step(worker, spawn(many(1))).await;
    }
    lab.step(worker, done()).await;
    for _ in 0..20 {
        assert!(!lab.status(root).await.is_terminal());
        lab.step(worker, done()).await;
    }
    assert_eq!(lab.status(root).await, Status::Done);
}
