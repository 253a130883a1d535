//! Two transactions on two connections, stepped statement by statement through every order in which they can meet.
//!
//! Each store talks to the server through a gate that lets one statement pass at a time. The one that passes goes on
//! until the server has answered, or until it waits for a lock, and then the next choice is made; all choices are tried.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{
    self, claim, commit_all, commits, json, key, keyed, name, register, signal, start, start_all,
    wait, wait_until,
};
use crate::stepping::Room;
use abide_kernel::model::{Cause, Claimed, InstanceId, NewCommand, Outcome, Status, Verdict};
use abide_kernel::{Answer, Op, Store, Target, WaiterFilter};

/// The script after this one, when all choices are tried from the last one backwards.
fn following(mut chosen: Vec<bool>) -> Option<Vec<bool>> {
    while let Some(last) = chosen.pop() {
        if !last {
            chosen.push(true);
            return Some(chosen);
        }
    }
    None
}

/// The instance as it ended up, and what the next claim is handed.
async fn woken(room: &Room, id: InstanceId, trail: &str) -> (Claimed, usize) {
    let instance = room.store.get(&id.into()).await.unwrap().unwrap();
    assert_eq!(instance.status, Status::Runnable, "{trail}");
    assert_eq!(instance.inbox.signals, 1, "{trail}");
    let pending = room.store.inbox(id).await.unwrap();
    assert_eq!(pending.len(), 1, "{trail}");
    let worker = register(&room.store, "next").await;
    let mut claimed = claim(&room.store, worker, &["m"], 9).await;
    assert_eq!(claimed.len(), 1, "{trail}");
    let claimed = claimed.remove(0);
    assert_eq!(
        (claimed.claim.id(), claimed.step.as_str()),
        (id, "woken"),
        "{trail}"
    );
    let handed = claimed.awaited.len();
    assert!(
        claimed.awaited.iter().all(|one| *one == pending[0]),
        "{trail}"
    );
    (claimed, handed)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_of_deliver_and_park_loses_the_wake_up() {
    // rule 7.1
    for by_key in [false, true] {
        let room = Room::new().await;
        let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
        while let Some(choices) = script {
            let worker = register(&room.store, "w").await;
            let id = start_all(&room.store, vec![keyed("m", "k")]).await[0].id();
            let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
            let parks = commits(vec![wait(held, &["paid"], "woken")]);
            let target: Target = if by_key { key("k").into() } else { id.into() };
            let delivers = Op::Deliver(vec![signal(target, "paid", "1")]);
            let (_, chosen, trail) = room.meet([delivers, parks], &choices).await;

            let (claimed, handed) = woken(&room, id, &trail).await;
            assert_eq!(handed, 1, "{trail}");
            assert!(!claimed.timed_out, "{trail}");
            commit_all(&room.store, vec![common::done(claimed)]).await;
            assert!(trails.insert(trail), "every order is another");
            script = following(chosen);
        }
        met("deliver and park", &trails);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_deliver_and_deadline_one_of_them_wakes() {
    // rule 7.5
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    let (mut by_signal, mut by_deadline) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let parks = wait_until(held, &["paid"], "woken", Some(1000));
        commit_all(&room.store, vec![parks]).await;
        room.clock.advance(Duration::from_secs(1));
        let delivers = Op::Deliver(vec![signal(id, "paid", "1")]);
        let fires = Op::Fire { limit: 10 };
        let (answers, chosen, trail) = room.meet([delivers, fires], &choices).await;

        let Answer::Fired { count: fired, .. } = answers[1] else {
            panic!()
        };
        let (claimed, handed) = woken(&room, id, &trail).await;
        assert_eq!(claimed.timed_out, fired == 1, "{trail}");
        let (cause, expected) = match fired {
            1 => (Cause::Timeout, 0),
            _ => (Cause::Signal, 1),
        };
        assert_eq!((claimed.cause, handed), (cause, expected), "{trail}");
        let history = room.store.history(id, 0, 99).await.unwrap();
        let events = history.iter().flat_map(|row| row.unpack().unwrap());
        let timeouts = events
            .filter(|event| event.what.kind() == "timed_out")
            .count();
        assert_eq!(timeouts, fired, "{trail}");
        by_signal += usize::from(fired == 0);
        by_deadline += fired;
        commit_all(&room.store, vec![common::done(claimed)]).await;
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met_unless_locked("deliver and deadline", &trails);
    assert!(by_signal > 0 && by_deadline > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_publish_and_park_the_event_is_before_the_waiter_or_in_it() {
    // rule 14.6: a wait that looks back as far as it began misses nothing.
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    let (mut before, mut within) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let order = trails.len().to_string();
        let mut parks = common::wait_for_event(held, &["paid"], &order);
        if let abide_kernel::model::Outcome::Wait(wait) = &mut parks.outcome {
            wait.events[0].lookback_ms = Some(60_000);
        }
        let publishes = Op::Publish(vec![common::event("paid", &order)]);
        let (answers, chosen, trail) = room.meet([publishes, commits(vec![parks])], &choices).await;
        let [publish, _] = answers;
        let matched = common::published(publish)[0].matched;
        within += matched;
        before += 1 - matched;

        let (claimed, handed) = woken(&room, id, &trail).await;
        assert_eq!(handed, 1, "{trail}");
        assert_eq!(claimed.cause, Cause::Event, "{trail}");
        commit_all(&room.store, vec![common::done(claimed)]).await;
        let all = WaiterFilter::default();
        let left = room.store.waiters(&all, None, 9).await.unwrap();
        assert_eq!(left.items, [], "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("publish and park", &trails);
    assert!(before > 0 && within > 0, "{before} before, {within} within");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_publish_and_deadline_one_of_them_wakes() {
    // rule 14.5: from where the types are locked on; what comes before touches nothing that the other does.
    const AHEAD: usize = 3;
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(vec![false; AHEAD]), BTreeSet::new());
    let (mut by_event, mut by_deadline) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let order = trails.len().to_string();
        let parks = common::wait_for_event(held, &["paid"], &order);
        commit_all(&room.store, vec![parks]).await;
        room.clock.advance(Duration::from_secs(1));
        let publishes = Op::Publish(vec![common::event("paid", &order)]);
        let fires = Op::Fire { limit: 10 };
        let (answers, chosen, trail) = room.meet([publishes, fires], &choices).await;
        let [publish, fired] = answers;
        let matched = common::published(publish)[0].matched as usize;
        let Answer::Fired { count: fired, .. } = fired else {
            panic!()
        };
        assert_eq!(matched + fired, 1, "{trail}");
        by_event += matched;
        by_deadline += fired;
        let worker = register(&room.store, "next").await;
        let claimed = claim(&room.store, worker, &["m"], 9).await.remove(0);
        assert_eq!(claimed.claim.id(), id, "{trail}");
        assert_eq!(claimed.awaited.len(), matched, "{trail}");
        assert_eq!(claimed.timed_out, fired == 1, "{trail}");
        commit_all(&room.store, vec![common::done(claimed)]).await;
        let all = WaiterFilter::default();
        let left = room.store.waiters(&all, None, 9).await.unwrap();
        assert_eq!(left.items, [], "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen).filter(|script| script.len() > AHEAD);
    }
    met_unless_locked("publish and deadline", &trails);
    assert!(by_event > 0 && by_deadline > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_hold_and_start_the_signal_is_in_the_inbox() {
    // rule 7.8
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    while let Some(choices) = script {
        let text = format!("k{}", trails.len());
        let hold = NewCommand {
            hold_for: Some(Duration::from_secs(60)),
            ..signal(key(&text), "paid", "1")
        };
        let ops = [Op::Deliver(vec![hold]), Op::Start(vec![keyed("m", &text)])];
        let (_, chosen, trail) = room.meet(ops, &choices).await;
        let instance = room.store.get(&key(&text).into()).await.unwrap().unwrap();
        assert_eq!(instance.inbox.signals, 1, "{trail}");
        let pending = room.store.inbox(instance.id).await.unwrap();
        assert_eq!(pending.len(), 1, "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("hold and start", &trails);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_deliver_and_continue_the_newest_run_has_the_signal() {
    // rules 2.4 and 2.5
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    while let Some(choices) = script {
        let text = format!("k{}", trails.len());
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![keyed("m", &text)]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let again = Outcome::ContinueAsNew {
            step: name("begin"),
            state: json("{}"),
            version: None,
        };
        let ops = [
            Op::Deliver(vec![signal(key(&text), "paid", "1")]),
            commits(vec![common::commit(held, again, false)]),
        ];
        let (answers, chosen, trail) = room.meet(ops, &choices).await;
        let Answer::Delivered(delivered) = &answers[0] else {
            panic!()
        };
        let delivered = delivered[0].as_ref().unwrap();
        assert_eq!(delivered.verdict, Verdict::Received, "{trail}");
        let newest = room.store.get(&key(&text).into()).await.unwrap().unwrap();
        assert_eq!(newest.run.first, Some(id), "{trail}");
        assert_eq!(newest.inbox.signals, 1, "{trail}");
        let pending = room.store.inbox(newest.id).await.unwrap();
        assert_eq!(pending.len(), 1, "{trail}");
        let claimed = claim(&room.store, worker, &["m"], 9).await;
        commit_all(&room.store, claimed.into_iter().map(common::done).collect()).await;
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("deliver and continue", &trails);
}

/// Asserts that each was first at its lock in some order, and kept the other waiting there.
fn met(pair: &str, trails: &BTreeSet<String>) {
    assert!(has_gone_on_alone("a!", pair, trails));
    assert!(has_gone_on_alone("b!", pair, trails));
}

/// The same where the second passes over what the first has locked instead of waiting for it (rule 6.8).
fn met_unless_locked(pair: &str, trails: &BTreeSet<String>) {
    assert!(!has_gone_on_alone("a!", pair, trails), "a timer has waited");
    assert!(has_gone_on_alone("b!", pair, trails));
}

/// Returns true if in some order one of the two took a step while the other waited for a lock.
fn has_gone_on_alone(step: &str, pair: &str, trails: &BTreeSet<String>) -> bool {
    println!("{} orders of {pair}", trails.len());
    trails.iter().any(|trail| trail.contains(step))
}
