//! Reading: one instance, lists page by page, endings, depths.

use std::collections::BTreeMap;

use abide_core::model::{Instance, InstanceId, Policy, RetrySpec, Start, Status};

use super::build::{
    MINUTE, done, json, key, keyed, later, many, name, plain, retry, spawn, stop, wait, within,
};
use super::coding::{Coded, unfit, workflow};
use super::failing::fail;
use super::lab::Lab;
use crate::{Ending, Error, Filter, Op, Page, Tally};

async fn list(
    lab: &Lab,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Page<Instance> {
    lab.store.list(filter, before, limit).await.unwrap()
}

/// All that a filter lets through, in pages of two.
async fn listed(lab: &Lab, filter: Filter) -> Vec<InstanceId> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = list(lab, &filter, before, 2).await;
        assert!(page.items.len() <= 2);
        all.extend(page.items.iter().map(|one| one.id));
        match page.next {
            Some(_) => before = page.next,
            None => return all,
        }
    }
}

fn backwards(ids: impl IntoIterator<Item = InstanceId>) -> Vec<InstanceId> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort_by(|a, b| b.cmp(a));
    ids
}

pub async fn an_instance_is_found_by_id_and_by_key(lab: Lab) {
    // rules 2.1 and 2.2
    let id = lab.start(keyed("order:42")).await;
    let by_id = lab.find(id).await.unwrap();
    assert_eq!(lab.find(key("order:42")).await.unwrap(), by_id);
    for absent in ["order:4", "order:421", "ORDER:42"] {
        assert!(lab.find(key(absent)).await.is_none(), "{absent}");
    }
    assert!(lab.find(InstanceId(id.0 + 1)).await.is_none());
    assert!(lab.find(InstanceId(-1)).await.is_none());
}

pub async fn a_key_stands_for_the_newest_that_has_it(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let mut last = None;
    for _ in 0..3 {
        let id = lab.start(keyed("k")).await;
        lab.step(worker, done()).await;
        assert!(last < Some(id));
        last = Some(id);
        assert_eq!(lab.find(key("k")).await.map(|found| found.id), last);
    }
}

pub async fn a_list_is_paged_newest_first_without_loss_or_doubles(lab: Lab) {
    let started = lab.start_all(many(7)).await;
    let all = Filter::default();
    assert_eq!(
        listed(&lab, Filter::default()).await,
        backwards(started.clone())
    );
    let page = list(&lab, &all, None, 3).await;
    assert_eq!(page.next, Some(page.items[2].id));
    lab.start_all(many(5)).await;
    let second = list(&lab, &all, page.next, 3).await;
    let expected = &backwards(started.clone())[3..6];
    let found: Vec<_> = second.items.iter().map(|one| one.id).collect();
    assert_eq!(found, expected, "what comes later shifts no page");
    let whole = list(&lab, &all, None, 12).await;
    assert_eq!(
        (whole.items.len(), whole.next),
        (12, None),
        "a page that ends with the list has no next"
    );
    let none = list(&lab, &all, Some(started[0]), 3).await;
    assert_eq!((none.items.len(), none.next), (0, None));
    assert_eq!(whole.items[11], lab.get(started[0]).await);
}

pub async fn an_empty_store_lists_nothing(lab: Lab) {
    let page = list(&lab, &Filter::default(), None, 10).await;
    assert_eq!((page.items.len(), page.next), (0, None));
    assert!(lab.store.depths().await.unwrap().is_empty());
    assert!(lab.store.workers().await.unwrap().is_empty());
}

pub async fn a_list_can_be_filtered_by_each_thing_and_by_all(lab: Lab) {
    let worker = lab.worker("w").await;
    let of = |machine, queue, text| Start {
        machine: name(machine),
        queue: Some(name(queue)),
        ..keyed(text)
    };
    let parent = lab.start(plain()).await;
    lab.step(
        worker,
        spawn(vec![
            of("m", "fast", "a:1"),
            of("n", "fast", "a:2"),
            of("n", "slow", "b:1"),
        ]),
    )
    .await;
    let children = lab.children(parent).await;
    let child = |at: usize| children[at].id;
    let others = lab
        .start_all(vec![of("n", "fast", "a:3"), later(MINUTE)])
        .await;
    let none = Filter::default;
    let cases = [
        (
            Filter {
                status: Some(Status::Scheduled),
                ..none()
            },
            vec![others[1]],
        ),
        (
            Filter {
                status: Some(Status::AwaitingChildren),
                ..none()
            },
            vec![parent],
        ),
        (
            Filter {
                status: Some(Status::Cancelled),
                ..none()
            },
            vec![],
        ),
        (
            Filter {
                machine: Some(name("n")),
                ..none()
            },
            vec![child(1), child(2), others[0]],
        ),
        (
            Filter {
                queue: Some(name("slow")),
                ..none()
            },
            vec![child(2)],
        ),
        (
            Filter {
                key_prefix: Some("a:".into()),
                ..none()
            },
            vec![child(0), child(1), others[0]],
        ),
        (
            Filter {
                key_prefix: Some("a:3".into()),
                ..none()
            },
            vec![others[0]],
        ),
        (
            Filter {
                key_prefix: Some("A".into()),
                ..none()
            },
            vec![],
        ),
        (
            Filter {
                parent: Some(parent),
                ..none()
            },
            vec![child(0), child(1), child(2)],
        ),
        (
            Filter {
                parent: Some(others[0]),
                ..none()
            },
            vec![],
        ),
        (
            Filter {
                status: Some(Status::Runnable),
                machine: Some(name("n")),
                queue: Some(name("fast")),
                key_prefix: Some("a".into()),
                parent: Some(parent),
                chain: Some(child(1)),
                ..none()
            },
            vec![child(1)],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(
            listed(&lab, filter.clone()).await,
            backwards(expected),
            "{filter:?}"
        );
    }
}

pub async fn a_key_prefix_is_matched_literally(lab: Lab) {
    let texts = [
        "a%b",
        "a_b",
        "axb",
        "a\\b",
        "é1",
        "e1",
        "🦀1",
        "🦀",
        "z\u{10ffff}",
        "z",
    ];
    let starts = texts.map(keyed);
    let started = lab.start_all(starts.into()).await;
    for prefix in ["a%", "a_", "a", "a\\", "é", "🦀", "z", "z\u{10ffff}", ""] {
        let expected = texts
            .iter()
            .zip(&started)
            .filter(|(text, _)| text.starts_with(prefix));
        let expected = backwards(expected.map(|(_, id)| *id));
        let filter = Filter {
            key_prefix: Some(prefix.to_owned()),
            ..Filter::default()
        };
        assert_eq!(listed(&lab, filter).await, expected, "{prefix}");
    }
}

pub async fn endings_tell_who_has_ended_and_who_is_not_there(lab: Lab) {
    let worker = lab.worker("w").await;
    let started = lab.start_all(many(3)).await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    let absent = InstanceId(started[2].0 + 100);
    let ids = [started[2], absent, started[1], started[0]];
    let (mut endings, missing) = lab.store.endings(&ids).await.unwrap();
    endings.sort_by_key(|ending| ending.id);
    let good = Ending {
        id: started[0],
        status: Status::Done,
        result: Some(json("{\"sum\":42}")),
        last_error: None,
    };
    let bad = Ending {
        id: started[1],
        status: Status::Failed,
        result: None,
        last_error: Some("no".into()),
    };
    assert_eq!((endings, missing), (vec![good, bad], vec![absent]));
    assert_eq!(lab.store.endings(&[]).await.unwrap(), (vec![], vec![]));
}

pub async fn depths_count_what_has_not_ended_queue_by_queue(lab: Lab) {
    let worker = lab.worker("w").await;
    let slow = Start {
        queue: Some(name("slow")),
        ..plain()
    };
    lab.start_all(many(6)).await;
    lab.start_all(vec![slow.clone(), slow, later(MINUTE)]).await;
    lab.step(worker, done()).await;
    lab.step(worker, wait(&["s"], None)).await;
    lab.step(worker, stop("no")).await;
    lab.claim(worker).await;
    let depths = lab.store.depths().await.unwrap();
    let counts: BTreeMap<_, _> = depths
        .iter()
        .map(|depth| ((depth.queue.as_str(), depth.status), depth.count))
        .collect();
    let expected = [
        (("default", Status::Scheduled), 1),
        (("default", Status::Runnable), 2),
        (("default", Status::Executing), 1),
        (("default", Status::AwaitingSignal), 1),
        (("slow", Status::Runnable), 2),
    ];
    assert_eq!(depths.len(), expected.len());
    assert_eq!(counts, expected.into());
}

pub async fn lanes_are_named_once_each_while_something_of_them_is_ready(lab: Lab) {
    let named = async || -> Vec<String> {
        let lanes = lab.store.ready_lanes().await.unwrap().into_iter();
        let texts =
            lanes.map(|one| format!("{} {} {}", one.queue, one.lane.machine, one.lane.version));
        texts.collect()
    };
    assert!(named().await.is_empty());
    let other = |machine: &str, version, queue: &str| Start {
        machine: name(machine),
        version: Some(version),
        queue: Some(name(queue)),
        ..plain()
    };
    // Neither what is due later nor what stands behind another is ready.
    lab.start_all(vec![later(MINUTE), within("p"), within("p")])
        .await;
    lab.start_all(vec![
        other("größer", 2, "slow"),
        other("größer", 1, "slow"),
        other("n", 1, "slow"),
    ])
    .await;
    lab.start_all(vec![other("n", 1, "slow"); 30]).await;
    let all = ["default m 1", "slow größer 1", "slow größer 2", "slow n 1"];
    let mut found = named().await;
    found.sort_unstable();
    assert_eq!(found, all);
    let worker = lab.worker("w").await;
    lab.claim(worker).await;
    // The one in front of its partition runs, and the other still stands behind it.
    assert!(!named().await.contains(&"default m 1".to_owned()));
}

pub async fn what_is_blocked_failing_or_ended_is_counted(lab: Lab) {
    // Rules 11.3 and 13.1 judge single instances; this is how many there are.
    assert_eq!(lab.store.tally().await.unwrap(), Tally::default());
    let worker = lab.worker("w").await;
    lab.start_all(many(6)).await;
    lab.step(worker, done()).await;
    lab.step(worker, done()).await;
    lab.step(worker, stop("no")).await;
    lab.step(worker, fail("no policy")).await;
    lab.step(worker, wait(&["s"], None)).await;
    // A step that requests another run has not failed.
    lab.step(worker, retry(86_400_000)).await;
    lab.coded(worker, workflow(), Coded::then(unfit())).await;
    let policy = Policy {
        retry: Some(RetrySpec::doubling(9, 1)),
        ..Policy::default()
    };
    let failing = Start {
        policy: Some(policy),
        ..plain()
    };
    let ids = lab.start_all(vec![failing; 3]).await;
    for tries in 1..=4 {
        for _ in &ids {
            lab.step(worker, fail("again")).await;
        }
        lab.pass(MINUTE);
        lab.fire().await;
        // Up to three failures in a row are no reason to worry.
        let failing = lab.store.tally().await.unwrap().failing;
        assert_eq!(failing, if tries > 3 { 3 } else { 0 }, "{tries}");
    }
    let seen = lab.store.tally().await.unwrap();
    assert_eq!((seen.blocked, seen.failing), (1, 3), "{seen:?}");
    assert_eq!(seen.ended, [(Status::Done, 2), (Status::Failed, 2)].into());
    assert!(!seen.is_cut());
    // Wherever such an instance stands: ready so far, and now held.
    lab.claim(worker).await;
    assert_eq!(lab.store.tally().await.unwrap(), seen);
}

pub async fn a_closed_store_says_so(lab: Lab) {
    let id = lab.start(plain()).await;
    lab.store.close().await;
    assert!(matches!(
        lab.try_run(vec![Op::Start(many(1))]).await,
        Err(Error::Closed)
    ));
    assert!(matches!(
        lab.store.get(&id.into()).await,
        Err(Error::Closed)
    ));
    lab.store.close().await;
}
