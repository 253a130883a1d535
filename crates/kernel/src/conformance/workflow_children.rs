//! The children of a workflow: of several operations at once, and none of their ends is lost.

use abide_core::model::{
    BarrierNumber, Cause, Children, Committed, HistoryEvent, InstanceId, Operated, Park, Start,
    Status, Unended, WaitKind, WorkerId,
};
use abide_core::rules::liveness::Liveness;

use super::build::{
    MINUTE, cancelling, commit, continue_as_new, done, json, key, lane, name, spawn, stop,
};
use super::coding::{
    Coded, awaiting, awaiting_children, child_starts, ended, go_on, joining, sleep, workflow,
};
use super::lab::Lab;
use super::random::Rng;
use crate::Op;

/// The counts of a workflow: children that have not ended, and how many of these it waits for.
async fn counts(lab: &Lab, id: InstanceId) -> (u32, u32) {
    let found = lab.get(id).await;
    (found.family.pending, found.family.needed)
}

async fn child(lab: &Lab, worker: WorkerId) -> abide_core::model::Claimed {
    let lanes = vec![lane("n", 1)];
    let found = lab.claim_from(worker, "default", lanes, 1).await.pop();
    found.expect("a child is runnable")
}

fn keyed_child(text: &str) -> Start {
    Start {
        key: Some(key(text)),
        ..child_starts(1).remove(0)
    }
}

pub async fn children_of_several_operations_are_started_in_one_commit(lab: Lab) {
    // rules 10.1 and 12.3
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(5))
        .starts(4, child_starts(1), 1)
        .starts(5, child_starts(3), 2)
        .starts(6, child_starts(1), 0);
    let id = lab.coded(worker, workflow(), turn).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.status, found.wait_kind()),
        (Status::AwaitingChildren, Some(WaitKind::Children))
    );
    assert_eq!(lab.liveness(id).await, Liveness::WaitingForChildren);
    assert_eq!(
        counts(&lab, id).await,
        (5, 1),
        "the nearest of them wakes it"
    );
    let events = lab.events(id).await;
    let spawned: Vec<(i32, u32, u32)> = events
        .iter()
        .filter_map(|entry| match entry.what {
            HistoryEvent::ChildrenSpawned {
                barrier,
                count,
                duplicates,
            } => Some((barrier.0, count, duplicates)),
            _ => None,
        })
        .collect();
    assert_eq!(spawned, [(4, 1, 0), (5, 3, 0), (6, 1, 0)]);
    for (operation, count) in [(4, 1), (5, 3), (6, 1)] {
        let barrier = BarrierNumber(operation);
        let children = lab.store.children(id, barrier).await.unwrap();
        assert_eq!(children.len(), count);
    }
}

pub async fn a_workflow_may_leave_children_behind_with_its_last_turn(lab: Lab) {
    // rules 10.1 and 16.1
    let worker = lab.worker("w").await;
    let turn = Coded::then(ended()).starts(1, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    assert_eq!(lab.kinds(id).await, ["children_spawned", "done"]);
    lab.end_children(worker, 1).await;
    assert_eq!(lab.kinds(id).await, ["children_spawned", "done"]);
}

pub async fn ends_are_counted_over_all_operations(lab: Lab) {
    // rules 10.2 and 10.3
    let worker = lab.worker("w").await;
    let turn = Coded::then(go_on())
        .starts(1, child_starts(2), 0)
        .starts(2, child_starts(2), 0);
    let id = lab.coded(worker, workflow(), turn).await;
    assert_eq!(counts(&lab, id).await, (4, 0));
    lab.turn(worker, id, Coded::parks(joining(2, 0, 3))).await;
    assert_eq!(counts(&lab, id).await, (4, 3));
    lab.end_children(worker, 1).await;
    let failing = child(&lab, worker).await;
    lab.commit(failing.claim, stop("no")).await;
    assert_eq!(counts(&lab, id).await, (2, 1), "a failed one counts");
    lab.end_children(worker, 1).await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.cause), (id, Cause::Children));
    assert_eq!(claimed.children_pending, 1);
    assert_eq!(lab.count_events(id, "child_ended").await, 3);
    assert_eq!(
        lab.count_events(id, "children_joined").await,
        0,
        "its operations tell that"
    );
}

pub async fn siblings_that_end_together_are_one_wake(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(1)).starts(1, child_starts(3), 3);
    let id = lab.coded(worker, workflow(), turn).await;
    let all = lab
        .claim_from(worker, "default", vec![lane("n", 1)], 3)
        .await;
    let commits = all.into_iter().map(|one| commit(one.claim, done()));
    lab.commit_all(commits.collect()).await;
    assert_eq!(counts(&lab, id).await, (0, 0));
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert_eq!(lab.count_events(id, "child_ended").await, 3);
}

pub async fn ends_between_the_look_and_the_park_are_not_lost(lab: Lab) {
    // rules 7.1 and 10.2
    let worker = lab.worker("w").await;
    // So many of three have ended before the park, and so many of them are waited for.
    for ended_before in 0..=3_u32 {
        for needed in 1..=3_u32 {
            let turn = Coded::then(go_on()).starts(1, child_starts(3), 0);
            let id = lab.coded(worker, workflow(), turn).await;
            let claimed = lab.claim(worker).await;
            assert_eq!(claimed.children_pending, 3);
            lab.end_children(worker, ended_before as usize).await;
            let park = Coded::parks(joining(1, claimed.children_ended, needed));
            let answer = lab.commit(claimed.claim, park.into()).await;
            let enough = ended_before >= needed;
            let status = match enough {
                true => Status::Runnable,
                false => Status::AwaitingChildren,
            };
            assert_eq!(
                answer,
                Committed::Moved(status),
                "{ended_before} of {needed}"
            );
            if !enough {
                let left = needed - ended_before;
                assert_eq!(counts(&lab, id).await, (3 - ended_before, left));
                lab.end_children(worker, left as usize - 1).await;
                assert_eq!(lab.status(id).await, Status::AwaitingChildren);
                lab.end_children(worker, 1).await;
            }
            let claimed = lab.claim(worker).await;
            assert_eq!((claimed.claim.id(), claimed.cause), (id, Cause::Children));
            let rest = claimed.children_pending as usize;
            lab.commit(claimed.claim, Coded::then(ended()).into()).await;
            lab.end_children(worker, rest).await;
        }
    }
}

pub async fn a_child_that_ends_in_the_batch_of_the_park_is_not_lost(lab: Lab) {
    // rules 1.1 and 10.2
    let worker = lab.worker("w").await;
    for parent_first in [true, false] {
        let turn = Coded::then(go_on()).starts(1, child_starts(1), 0);
        let id = lab.coded(worker, workflow(), turn).await;
        let parent = lab.claim(worker).await.claim;
        let child = child(&lab, worker).await.claim;
        let mut commits = vec![
            commit(parent, Coded::parks(joining(1, 0, 1)).into()),
            commit(child, done()),
        ];
        if !parent_first {
            commits.reverse();
        }
        lab.commit_all(commits).await;
        assert_eq!(lab.status(id).await, Status::Runnable, "{parent_first}");
        lab.turn(worker, id, Coded::then(ended())).await;
    }
}

pub async fn of_new_and_earlier_children_the_nearest_wakes_it(lab: Lab) {
    // rules 10.2 and 10.3
    let worker = lab.worker("w").await;
    for (earlier, new, needed) in [(2, 1, 1), (1, 2, 1), (2, 2, 2)] {
        let turn = Coded::then(go_on()).starts(1, child_starts(2), 0);
        let id = lab.coded(worker, workflow(), turn).await;
        let turn = Coded::parks(joining(2, 0, earlier)).starts(2, child_starts(3), new);
        lab.turn(worker, id, turn).await;
        assert_eq!(counts(&lab, id).await, (5, needed));
        lab.cancel(cancelling(id)).await;
        lab.turn(worker, id, Coded::then(ended())).await;
    }
}

pub async fn children_whose_keys_are_all_taken_wake_it_at_once(lab: Lab) {
    // rules 2.2 and 10.1
    let worker = lab.worker("w").await;
    lab.start(keyed_child("k")).await;
    let turn = Coded::parks(awaiting(2, &["paid"]))
        .starts(1, vec![keyed_child("k")], 1)
        .starts(2, child_starts(1), 1);
    let id = lab.start(workflow()).await;
    assert_eq!(lab.turn(worker, id, turn).await, Status::Runnable);
    assert_eq!(lab.get(id).await.family.pending, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.cause, Cause::Children);
    let spawned = lab
        .events(id)
        .await
        .into_iter()
        .find_map(|entry| match entry.what {
            HistoryEvent::ChildrenSpawned {
                count, duplicates, ..
            } => Some((count, duplicates)),
            _ => None,
        });
    assert_eq!(spawned, Some((0, 1)), "it is recorded");
    // One that is not waited for wakes nothing.
    let turn =
        Coded::parks(joining(2, claimed.children_ended, 1)).starts(3, vec![keyed_child("k")], 0);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingChildren));
    // Some are left of those that are waited for.
    let some = vec![keyed_child("k"), keyed_child("l")];
    let turn = Coded::parks(awaiting_children(1)).starts(1, some, 2);
    let other = lab.coded(worker, workflow(), turn).await;
    assert_eq!(counts(&lab, other).await, (1, 1));
}

pub async fn a_child_that_continues_as_new_ends_once(lab: Lab) {
    // rules 2.4 and 10.2
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(1)).starts(1, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    for _ in 0..2 {
        let first = child(&lab, worker).await;
        lab.commit(first.claim, continue_as_new("again")).await;
        assert_eq!(counts(&lab, id).await, (1, 1));
        assert_eq!(lab.status(id).await, Status::AwaitingChildren);
    }
    lab.end_children(worker, 1).await;
    assert_eq!(counts(&lab, id).await, (0, 0));
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert_eq!(lab.count_events(id, "child_ended").await, 1);
}

pub async fn a_workflow_child_that_continues_as_new_keeps_its_place(lab: Lab) {
    // rules 2.4 and 10.2
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(3)).starts(3, vec![workflow()], 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let claimed = lab.claim(worker).await;
    let next = abide_core::model::Then::ContinueAsNew {
        state: json("2"),
        version: None,
    };
    lab.commit(claimed.claim, Coded::then(next).into()).await;
    assert_eq!(counts(&lab, id).await, (1, 1));
    let claimed = lab.claim(worker).await;
    let found = lab.get(claimed.claim.id()).await;
    assert_eq!(
        (found.parent, found.parent_barrier, found.run.number),
        (Some(id), BarrierNumber(3), 2)
    );
    lab.commit(claimed.claim, Coded::then(ended()).into()).await;
    assert_eq!(counts(&lab, id).await, (0, 0));
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn a_child_that_is_restarted_is_counted_once_more(lab: Lab) {
    // rule 11.2
    let worker = lab.worker("w").await;
    let turn = Coded::then(go_on()).starts(1, child_starts(2), 0);
    let id = lab.coded(worker, workflow(), turn).await;
    let claim = lab.claim(worker).await.claim;
    let failing = child(&lab, worker).await.claim;
    let failed = failing.id();
    lab.commit(failing, stop("no")).await;
    assert_eq!(lab.get(id).await.family.pending, 1);
    let run = lab.restarted(failed).await;
    assert_eq!(lab.get(id).await.family.pending, 2);
    lab.commit(claim, Coded::parks(joining(1, 1, 2)).into())
        .await;
    assert_eq!(counts(&lab, id).await, (2, 2));
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(id).await, Status::AwaitingChildren);
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(run).await, Status::Done);
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert_eq!(counts(&lab, id).await, (0, 0));
}

pub async fn an_end_is_not_hidden_behind_a_restart(lab: Lab) {
    // rules 10.2 and 11.2
    //
    // A parent read its counts: of two children one had failed, so it waited for one more. Before it parked, the
    // failed one was restarted and the other one ended. As many were unended as before, and the parent waited for
    // an end that had come.
    let worker = lab.worker("w").await;
    let turn = Coded::then(go_on()).starts(1, child_starts(2), 0);
    let id = lab.coded(worker, workflow(), turn).await;
    let failing = child(&lab, worker).await.claim;
    let failed = failing.id();
    lab.commit(failing, stop("no")).await;
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.children_pending, claimed.children_ended), (1, 1));
    let other = child(&lab, worker).await.claim;
    let run = lab.restarted(failed).await;
    lab.commit(other, done()).await;
    let park = Coded::parks(joining(1, claimed.children_ended, 1));
    let answer = lab.commit(claimed.claim, park.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert_eq!((claimed.claim.id(), claimed.children_ended), (id, 2));
    // The restarted one is waited for once more.
    let park = Coded::parks(joining(1, claimed.children_ended, 1));
    let answer = lab.commit(claimed.claim, park.into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingChildren));
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(run).await, Status::Done);
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn however_children_end_and_are_restarted_the_parent_sees_them_all(lab: Lab) {
    // rules 10.2 and 11.2
    let worker = lab.worker("w").await;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (count, wanted) = (rng.between(2, 4), rng.between(1, 4) as u32);
        let turn = Coded::then(go_on()).starts(1, child_starts(count), 0);
        let id = lab.coded(worker, workflow(), turn).await;
        let children = async || {
            let children = lab.store.children(id, BarrierNumber(1)).await;
            children.expect("the store can be read")
        };
        // One child ends, or one that failed is restarted.
        let something = async |rng: &mut Rng| {
            let mut failed = children().await;
            failed.retain(|child| child.status == Status::Failed);
            if !failed.is_empty() && rng.chance(50) {
                lab.restarted(rng.pick(&failed).id).await;
            } else {
                let lanes = vec![lane("n", 1)];
                let held = lab.claim_from(worker, "default", lanes, 1).await.pop();
                if let Some(held) = held {
                    let ends = match rng.chance(50) {
                        true => done(),
                        false => stop("no"),
                    };
                    lab.commit(held.claim, ends).await;
                }
            }
        };
        for round in 0.. {
            assert!(
                round < 400,
                "seed {seed}: it waits, and nothing comes any more"
            );
            if lab.status(id).await != Status::Runnable {
                if round < 20 {
                    something(&mut rng).await;
                } else {
                    // No child is restarted any more: what is left ends, and that must be enough.
                    let lanes = vec![lane("n", 1)];
                    let rest = lab.claim_from(worker, "default", lanes, 9).await;
                    let ends = rest.into_iter().map(|one| commit(one.claim, done()));
                    lab.commit_all(ends.collect()).await;
                }
                continue;
            }
            let claimed = lab.claim(worker).await;
            assert_eq!(claimed.claim.id(), id);
            for _ in 0..rng.below(3) {
                something(&mut rng).await;
            }
            let all = children().await;
            let ended = all
                .iter()
                .filter(|child| child.status.is_terminal())
                .count();
            let left = wanted.min(count as u32).saturating_sub(ended as u32);
            for _ in 0..rng.below(3) {
                something(&mut rng).await;
            }
            if left == 0 {
                lab.commit(claimed.claim, Coded::then(super::coding::ended()).into())
                    .await;
                break;
            }
            let park = Coded::parks(joining(1, claimed.children_ended, left));
            lab.commit(claimed.claim, park.into()).await;
        }
        let lanes = vec![lane("n", 1)];
        for rest in lab.claim_from(worker, "default", lanes, 9).await {
            lab.commit(rest.claim, done()).await;
        }
    }
}

pub async fn a_childs_end_while_the_code_runs_or_sleeps_does_not_wake_it(lab: Lab) {
    // rule 10.2
    let worker = lab.worker("w").await;
    let turn = Coded::then(go_on()).starts(1, child_starts(4), 0);
    let id = lab.coded(worker, workflow(), turn).await;
    let claim = lab.claim(worker).await.claim;
    let mut listener = lab.store.listen();
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(id).await, Status::Executing);
    let notified = |effects: &crate::Effects| effects.received.contains(&id);
    assert!(super::waking::heard(&mut listener, notified).await);
    lab.commit(claim, Coded::parks(sleep(2, lab.now() + MINUTE)).into())
        .await;
    lab.end_children(worker, 1).await;
    assert_eq!(
        lab.status(id).await,
        Status::Scheduled,
        "it does not wait for them"
    );
    lab.pass(MINUTE);
    lab.fire().await;
    lab.turn(worker, id, Coded::parks(awaiting(3, &["paid"])))
        .await;
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert_eq!(lab.get(id).await.family.pending, 1);
}

pub async fn a_join_has_its_deadline(lab: Lab) {
    // rule 10.3
    let worker = lab.worker("w").await;
    let park = Park {
        until: Some(lab.now() + MINUTE),
        ..awaiting_children(1)
    };
    let turn = Coded::parks(park).starts(1, child_starts(2), 2);
    let id = lab.coded(worker, workflow(), turn).await;
    lab.end_children(worker, 1).await;
    lab.pass(MINUTE);
    assert_eq!(lab.fire().await, 1);
    let claimed = lab.claim(worker).await;
    assert!(claimed.timed_out);
    assert_eq!(
        (claimed.cause, claimed.children_pending),
        (Cause::Timeout, 1)
    );
    assert!(claimed.children.is_empty(), "its operations read their own");
    lab.end_children(worker, 1).await;
    let seen = Coded::parks(Park {
        children: Some(Unended {
            seen: claimed.children_ended,
            needed: 1,
        }),
        ..awaiting_children(1)
    });
    let answer = lab.commit(claimed.claim, seen.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    assert_eq!(lab.get(id).await.family.pending, 0);
}

pub async fn a_child_of_a_child_counts_for_its_own_parent(lab: Lab) {
    // rules 10.2 and 10.3
    let worker = lab.worker("w").await;
    let turn = Coded::parks(awaiting_children(1)).starts(1, child_starts(1), 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let middle = child(&lab, worker).await.claim;
    lab.commit(middle, spawn(child_starts(2))).await;
    lab.end_children(worker, 2).await;
    assert_eq!(counts(&lab, id).await, (1, 1));
    lab.end_children(worker, 1).await;
    assert_eq!(lab.status(id).await, Status::Runnable);
}

pub async fn the_children_go_with_a_workflow_that_is_ended_by_force(lab: Lab) {
    // rule 11.1
    let worker = lab.worker("w").await;
    for (children, count) in [(Children::Cascade, 3), (Children::Leave, 0)] {
        let turn = Coded::parks(awaiting_children(2))
            .starts(1, child_starts(1), 0)
            .starts(2, child_starts(2), 2);
        let id = lab.coded(worker, workflow(), turn).await;
        let held = child(&lab, worker).await.claim;
        let cancel = abide_core::model::Cancel {
            force: true,
            children,
            ..cancelling(id)
        };
        let answer = lab.cancel(cancel).await;
        let cancelled = Operated::Cancelled {
            id,
            children: count,
        };
        assert_eq!(answer, cancelled);
        let ended = lab.commit(held.again(), done()).await;
        match children {
            Children::Cascade => assert_eq!(ended, Committed::Stale),
            Children::Leave => {
                assert_eq!(ended, Committed::Moved(Status::Done));
                lab.end_children(worker, 2).await;
            }
        }
        assert_eq!(lab.kinds(id).await.last(), Some(&"cancelled"));
    }
}

pub async fn a_child_may_be_a_workflow_of_another_name(lab: Lab) {
    // rules 10.1 and 2.6
    let worker = lab.worker("w").await;
    let other = Start {
        machine: name("n"),
        ..workflow()
    };
    let turn = Coded::parks(awaiting_children(1)).starts(1, vec![other], 1);
    let id = lab.coded(worker, workflow(), turn).await;
    let claimed = child(&lab, worker).await;
    assert_eq!(claimed.kind, abide_core::model::Kind::Workflow);
    let ops = vec![Op::Commit {
        commits: vec![commit(claimed.claim, Coded::then(ended()).into())],
        serves: Vec::new(),
    }];
    lab.try_run(ops).await.unwrap();
    assert_eq!(lab.status(id).await, Status::Runnable);
}
