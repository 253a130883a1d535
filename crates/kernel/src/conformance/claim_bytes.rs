//! Claims of large instances: how much one claim brings, and how what is left stays (rule 16.4).

use std::collections::BTreeSet;

use abide_core::model::{Claimed, InstanceId, Operator, Outcome, Start, Status, WorkerId};

use super::bounds::{MEGABYTE, text};
use super::build::{MINUTE, json, lane, name, paying, plain, spawn, urgent, wait};
use super::eventing::{any, awaits, that};
use super::lab::{Lab, ids};
use super::remote_claims::lease;
use crate::{Answer, ClaimRequest, Listed, Op, WaiterFilter, claimed_bytes};

/// The most that one claim brings, unless a limit is given.
const MOST: usize = 16 * MEGABYTE;

/// A start whose history is kept.
fn small() -> Start {
    Start {
        history: Some(true),
        ..plain()
    }
}

/// The same with a state of about a megabyte.
fn large() -> Start {
    Start {
        state: json(&text(MEGABYTE - 100)),
        ..small()
    }
}

/// Checks that the claims are together within the limit of one claim.
fn assert_within(claimed: &[Claimed]) {
    let bytes = |one: &Claimed| {
        let children = one.children.iter().map(Listed::bytes);
        claimed_bytes(one) + children.sum::<usize>()
    };
    let bytes: usize = claimed.iter().map(bytes).sum();
    assert!(bytes <= MOST, "{bytes}");
}

/// Checks that an instance was not claimed yet.
async fn assert_untouched(lab: &Lab, id: InstanceId) {
    let found = lab.get(id).await;
    assert_eq!((found.status, found.attempt), (Status::Runnable, 0));
    assert_eq!((found.worker, found.deaths), (None, 0));
    assert_eq!(lab.kinds(id).await, Vec::<&str>::new());
}

pub async fn what_is_too_much_for_a_claim_is_not_claimed_at_all(lab: Lab) {
    // A thousand instances of 1 MiB were claimed and read whole, and most of them given back.
    let (one, other) = (lab.worker("w").await, lab.worker("v").await);
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(lab.start(large()).await);
    }
    let mut listener = lab.store.listen();
    let first = lease(&lab, one, 100, MINUTE).await;
    assert_within(&first);
    assert_eq!(ids(&first), all[..16]);
    for id in &all[16..] {
        assert_untouched(&lab, *id).await;
    }
    // Workers that wait for work are notified that there is more.
    let notified = |effects: &crate::Effects| effects.ready.contains(&name("default"));
    assert!(super::waking::heard(&mut listener, notified).await);
    let second = lease(&lab, other, 100, MINUTE).await;
    assert_eq!(ids(&second), all[16..]);
    let epoch = first[0].claim.epoch();
    let claimed = first.iter().chain(&second);
    for claimed in claimed {
        assert_eq!((claimed.attempt, claimed.claim.epoch()), (0, epoch));
    }
}

async fn lease_lanes(lab: &Lab, worker: WorkerId, machines: &[&str]) -> Vec<Claimed> {
    let request = ClaimRequest {
        worker,
        queue: name("default"),
        lanes: machines.iter().map(|machine| lane(machine, 1)).collect(),
        limit: 100,
        lease: Some(MINUTE),
    };
    match lab.run(Op::Claim(request)).await {
        Answer::Claimed(claimed) => claimed,
        other => panic!("a claim is not answered with {other:?}"),
    }
}

pub async fn a_claim_of_several_machines_takes_the_first_that_fit(lab: Lab) {
    // rules 6.1 and 16.4: in the order in which they are to run, whichever machine they are of.
    let worker = lab.worker("w").await;
    let mut all = Vec::new();
    for number in 0..20 {
        let machine = name(["m", "n", "o"][number % 3]);
        all.push(lab.start(Start { machine, ..large() }).await);
    }
    let first = lab.start(urgent(-5)).await;
    let lanes = ["m", "n", "o", "absent"];
    let claimed = lease_lanes(&lab, worker, &lanes).await;
    assert_within(&claimed);
    assert_eq!(ids(&claimed), [&[first], &all[..16]].concat());
    for id in &all[16..] {
        assert_untouched(&lab, *id).await;
    }
    assert_eq!(ids(&lease_lanes(&lab, worker, &lanes).await), all[16..]);
}

pub async fn more_machines_than_one_statement_names_share_the_room(lab: Lab) {
    // SQLite reads 32 lanes at once.
    let worker = lab.worker("w").await;
    let machines: Vec<String> = (0..70).map(|number| format!("m{number:02}")).collect();
    let mut all = Vec::new();
    for number in (0..20).map(|number| number * 23 % 70) {
        let machine = name(&machines[number]);
        all.push(lab.start(Start { machine, ..large() }).await);
    }
    let lanes: Vec<&str> = machines.iter().map(String::as_str).collect();
    let claimed = lease_lanes(&lab, worker, &lanes).await;
    assert_eq!(ids(&claimed), all[..16]);
    for id in &all[16..] {
        assert_untouched(&lab, *id).await;
    }
    assert_eq!(ids(&lease_lanes(&lab, worker, &lanes).await), all[16..]);
}

pub async fn pending_messages_count_where_they_are_sent_along(lab: Lab) {
    let worker = lab.worker("w").await;
    let mut all = Vec::new();
    // Each is woken by a signal, and has 9 MiB of them.
    for _ in 0..2 {
        all.push(lab.parked(worker, plain(), &["a"], None).await);
    }
    for id in &all {
        for _ in 0..9 {
            lab.accept(paying(*id, "a", &text(MEGABYTE - 100))).await;
        }
    }
    // Of a large inbox that was not waited for nothing is sent.
    let mut unread = Vec::new();
    for _ in 0..2 {
        let id = lab.start(plain()).await;
        for _ in 0..9 {
            lab.accept(paying(id, "a", &text(MEGABYTE - 100))).await;
        }
        unread.push(id);
    }
    let first = lease(&lab, worker, 100, MINUTE).await;
    assert_within(&first);
    assert_eq!((ids(&first), first[0].awaited.len()), (vec![all[0]], 9));
    let second = lease(&lab, worker, 100, MINUTE).await;
    assert_eq!(ids(&second), [all[1], unread[0], unread[1]]);
    assert_eq!(second[0].awaited.len(), 9);
}

pub async fn one_instance_that_is_larger_than_a_claim_is_claimed_alone(lab: Lab) {
    let worker = lab.worker("w").await;
    let id = lab.start(large()).await;
    let mut waits = wait(&["a"], None);
    if let Outcome::Wait(wait) = &mut waits {
        wait.state = json(&text(MEGABYTE - 100));
    }
    lab.step(worker, waits).await;
    let signals = vec![paying(id, "a", &text(MEGABYTE - 100)); 16];
    let taken = lab.deliver_all(signals).await;
    assert!(taken.iter().all(Result::is_ok));
    let small = lab.start(small()).await;
    let claimed = lease(&lab, worker, 100, MINUTE).await;
    assert_eq!((ids(&claimed), claimed[0].awaited.len()), (vec![id], 16));
    assert!(claimed_bytes(&claimed[0]) > MOST);
    assert_untouched(&lab, small).await;
    assert_eq!(ids(&lease(&lab, worker, 100, MINUTE).await), [small]);
}

/// Starts parents, each of which joins so many children whose results have about a megabyte.
async fn joining(lab: &Lab, worker: WorkerId, parents: usize, children: usize) -> Vec<InstanceId> {
    let parents = lab.start_all(vec![small(); parents]).await;
    for claimed in lab.claim_some(worker, parents.len()).await {
        let child = Start {
            machine: name("child"),
            ..plain()
        };
        lab.commit(claimed.claim, spawn(vec![child; children]))
            .await;
    }
    for _ in 0..parents.len() * children {
        let mut claimed = lease_lanes(lab, worker, &["child"]).await.into_iter();
        let Some(first) = claimed.next() else { break };
        for one in [first].into_iter().chain(claimed) {
            let result = json(&text(MEGABYTE - 100));
            lab.commit(one.claim, Outcome::Done { result }).await;
        }
    }
    parents
}

pub async fn what_has_children_that_are_too_much_is_left_for_the_next_claim(lab: Lab) {
    // The children of all that was claimed were read, and most of them for nothing.
    let worker = lab.worker("w").await;
    let parents = joining(&lab, worker, 5, 7).await;
    let histories = lab.kinds(parents[4]).await;
    let mut seen = BTreeSet::new();
    for expected in [2, 2, 1] {
        let left = parents.iter().filter(|id| !seen.contains(*id));
        let left: Vec<InstanceId> = left.copied().collect();
        let claimed = lease(&lab, worker, 100, MINUTE).await;
        assert_within(&claimed);
        assert_eq!(claimed.len(), expected);
        for one in &claimed {
            assert_eq!(one.children.len(), 7);
            assert_eq!((one.attempt, one.children_ended), (0, 7));
        }
        seen.extend(ids(&claimed));
        for id in left.iter().filter(|id| !seen.contains(*id)) {
            let found = lab.get(*id).await;
            assert_eq!((found.status, found.attempt), (Status::Runnable, 0));
            assert_eq!(lab.kinds(*id).await, histories);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), parents);
}

pub async fn a_page_of_waits_has_so_many_bytes_too(lab: Lab) {
    // rule 16.4: each wait may have conditions of 64 KiB.
    let worker = lab.worker("w").await;
    let all = lab.start_all(vec![plain(); 80]).await;
    for (number, one) in lab.claim_some(worker, 80).await.into_iter().enumerate() {
        let of_type = any(&format!("e{}", number / 10));
        let condition = that(of_type, "a.b", Operator::Eq, &text(64_000));
        lab.commit(one.claim, awaits(vec![condition], &[])).await;
    }
    let filter = WaiterFilter::default();
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = lab.store.waiters(&filter, after, 1_000).await.unwrap();
        let bytes: usize = page.items.iter().map(Listed::bytes).sum();
        assert!(bytes <= 4 * MEGABYTE && !page.items.is_empty(), "{bytes}");
        found.extend(page.items.iter().map(|one| one.instance));
        (after, pages) = (page.next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (all, 2));
}

pub async fn one_whose_children_alone_are_too_much_is_claimed_alone_with_all(lab: Lab) {
    let worker = lab.worker("w").await;
    let parents = joining(&lab, worker, 1, 20).await;
    let small = lab.start(plain()).await;
    let claimed = lease(&lab, worker, 100, MINUTE).await;
    assert_eq!((ids(&claimed), claimed[0].children.len()), (parents, 20));
    assert_eq!(ids(&lease(&lab, worker, 100, MINUTE).await), [small]);
}
