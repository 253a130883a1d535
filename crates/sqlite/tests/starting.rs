//! Starting many at once: rows that are alike are inserted together.

use abide_core::model::{Instance, Json, Key, Priority, Start, Started, UniqueKey, When};
use abide_kernel::{Answer, Clock, Op, Store};

use crate::common::{Database, name, plain, run};

/// So many starts that differ only in their states.
fn alike(count: usize, like: &Start) -> Vec<Start> {
    let starts = (0..count).map(|n| Start {
        state: Json::parse(format!("{{\"n\":{n}}}")).unwrap(),
        ..like.clone()
    });
    starts.collect()
}

/// The instances that starts become, and the ids that they are answered with.
async fn started(store: &dyn Store, starts: Vec<Start>) -> Vec<(Started, Instance)> {
    let Answer::Started(each) = run(store, Op::Start(starts)).await else {
        panic!("a start is not answered");
    };
    let mut found = Vec::new();
    for one in each {
        let one = one.unwrap();
        let (Started::New(id) | Started::Duplicate(id)) = one;
        found.push((one, store.get(&id.into()).await.unwrap().unwrap()));
    }
    found
}

#[tokio::test]
async fn a_batch_starts_what_its_starts_would_start_one_by_one() {
    let (together, apart) = (Database::new(), Database::new());
    let ((together, clock), (apart, other_clock)) = (together.clocked(), apart.clocked());
    other_clock.set(clock.now());
    let plain = plain();
    let keyed = Start {
        key: Some(Key::new("order:1").unwrap()),
        ..plain.clone()
    };
    let variants = [
        (
            31,
            Start {
                queue: Some(name("other")),
                ..plain.clone()
            },
        ),
        (
            32,
            Start {
                priority: Priority(3),
                ..plain.clone()
            },
        ),
        (
            33,
            Start {
                when: When::At(clock.now() + std::time::Duration::from_secs(60)),
                ..plain.clone()
            },
        ),
        (
            70,
            Start {
                machine: name("n"),
                history: Some(false),
                ..plain.clone()
            },
        ),
        // All but the first are duplicates.
        (40, keyed),
        (
            40,
            Start {
                unique_key: Some(UniqueKey::new([7]).unwrap()),
                ..plain.clone()
            },
        ),
        // All but the first are behind it.
        (
            40,
            Start {
                partition_key: Some(Key::new("customer:1").unwrap()),
                ..plain.clone()
            },
        ),
        (100, plain),
    ];
    let starts: Vec<Start> = variants
        .iter()
        .flat_map(|(count, like)| alike(*count, like))
        .collect();
    let at_once = started(together.as_ref(), starts.clone()).await;
    let mut one_by_one = Vec::new();
    for start in starts {
        one_by_one.extend(started(apart.as_ref(), vec![start]).await);
    }
    assert_eq!(at_once, one_by_one);
    together.close().await;
    apart.close().await;
}
