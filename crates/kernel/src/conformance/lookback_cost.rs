//! Looking back is an index look-up: what does not match costs nothing, and what is read at most is bounded.

use abide_core::model::{Commit, EventWait, Operator, Publish, Timestamp, WorkerId};

use super::build::{MINUTE, SECOND, commit, done, plain};
use super::eventing::{any, awaits, back, known_as, order, ordered, publishing, that};
use super::lab::{LOOKBACK, LOOKBACK_BYTES, Lab};
use super::lookback::found;
use crate::{Op, SweepRequest};

/// Longer than all of a test.
const EVER: u64 = u64::MAX;

/// Publishes so many events that no wait of the test is for.
async fn others(lab: &Lab, of: &str, count: usize) {
    let one = |at: usize| publishing(of, &format!("{{\"id\":\"other {at}\",\"n\":-1}}"));
    lab.publish_all((0..count).map(one).collect()).await;
}

/// Waits that look back, each twice, find what they should: the first time by reading what there is, then through the
/// index.
async fn finds(lab: &Lab, worker: WorkerId, wait: &EventWait, expected: Option<&str>) {
    for when in ["at first", "again"] {
        let met = found(lab, worker, vec![back(wait.clone(), EVER)]).await;
        assert_eq!(met.as_deref(), expected, "{when}: {wait:?}");
    }
}

/// A wait for the events of that type with this value at a path.
fn at(of: &str, path: &str, right: &str) -> EventWait {
    that(any(of), path, Operator::Eq, right)
}

async fn sweep(lab: &Lab, before: Timestamp) {
    let request = SweepRequest {
        before,
        after: None,
        limit: 10_000,
    };
    lab.run(Op::Sweep(request)).await;
}

pub async fn the_newest_is_found_behind_any_number_that_do_not_match(lab: Lab) {
    // rule 14.6
    //
    // A wait that looked back read all events of the type, page by page, and blocked all publishing: 200,000 took 13 s.
    let worker = lab.worker("w").await;
    lab.tell(known_as("before", ordered(1))).await;
    finds(&lab, worker, &order(1), Some("before")).await;
    // More than one lookback reads.
    others(&lab, "order", LOOKBACK + 1).await;
    finds(&lab, worker, &order(1), Some("before")).await;
    let batch = ["a", "b"].map(|event_id| known_as(event_id, ordered(1)));
    lab.publish_all(batch.to_vec()).await;
    others(&lab, "order", LOOKBACK + 1).await;
    finds(&lab, worker, &order(1), Some("b")).await;
    finds(&lab, worker, &order(2), None).await;
    // Another type has no lookback on that path.
    assert_eq!(lab.tell(publishing("paid", "{\"id\":1}")).await, 0);
    finds(&lab, worker, &order(1), Some("b")).await;
}

pub async fn a_path_that_is_looked_back_on_for_the_first_time_covers_the_newest(lab: Lab) {
    // rules 14.6 and 16.3: what is older than the newest so many is not found.
    let worker = lab.worker("w").await;
    lab.tell(known_as("just", ordered(1))).await;
    others(&lab, "order", LOOKBACK - 1).await;
    lab.tell(known_as("missed", publishing("paid", "{\"id\":1}")))
        .await;
    others(&lab, "paid", LOOKBACK).await;
    finds(&lab, worker, &order(1), Some("just")).await;
    finds(&lab, worker, &at("paid", "id", "1"), None).await;
    // Those that it covers stay covered.
    others(&lab, "order", LOOKBACK).await;
    finds(&lab, worker, &order(1), Some("just")).await;
}

pub async fn without_an_equality_the_newest_are_read(lab: Lab) {
    // rules 14.6 and 16.3
    let worker = lab.worker("w").await;
    let above = |n: &str| that(any("order"), "n", Operator::Gt, n);
    lab.tell(known_as("seven", publishing("order", "{\"n\":7}")))
        .await;
    lab.tell(known_as("five", publishing("order", "{\"n\":5}")))
        .await;
    others(&lab, "order", LOOKBACK - 2).await;
    finds(&lab, worker, &above("4"), Some("five")).await;
    finds(&lab, worker, &above("6"), Some("seven")).await;
    finds(&lab, worker, &above("8"), None).await;
    others(&lab, "order", 1).await;
    finds(&lab, worker, &above("6"), None).await;
    finds(&lab, worker, &above("4"), Some("five")).await;
}

pub async fn of_one_type_sixteen_paths_are_indexed(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    let on = |path: usize| at("order", &format!("p{path}"), "1");
    for path in 0..17 {
        finds(&lab, worker, &on(path), None).await;
    }
    let fields: Vec<String> = (0..17).map(|path| format!("\"p{path}\":1")).collect();
    let all = publishing("order", &format!("{{{}}}", fields.join(",")));
    lab.tell(known_as("all", all)).await;
    others(&lab, "order", LOOKBACK - 1).await;
    for path in [0, 15, 16] {
        finds(&lab, worker, &on(path), Some("all")).await;
    }
    others(&lab, "order", 1).await;
    finds(&lab, worker, &on(0), Some("all")).await;
    finds(&lab, worker, &on(15), Some("all")).await;
    finds(&lab, worker, &on(16), None).await;
    // Other types have their own.
    finds(&lab, worker, &at("paid", "p16", "1"), None).await;
    lab.tell(known_as("paid", publishing("paid", "{\"p16\":1}")))
        .await;
    others(&lab, "paid", LOOKBACK).await;
    finds(&lab, worker, &at("paid", "p16", "1"), Some("paid")).await;
}

pub async fn all_conditions_are_checked_of_what_the_index_finds(lab: Lab) {
    // rules 14.2, 14.6 and 16.3
    let worker = lab.worker("w").await;
    let amount = |n: i64| publishing("order", &format!("{{\"id\":1,\"n\":{n}}}"));
    for (event_id, n) in [("five", 5), ("fifty", 50), ("seven", 7)] {
        lab.tell(known_as(event_id, amount(n))).await;
    }
    let above = |n: &str| that(order(1), "n", Operator::Gt, n);
    finds(&lab, worker, &above("10"), Some("fifty")).await;
    finds(&lab, worker, &above("6"), Some("seven")).await;
    finds(&lab, worker, &above("50"), None).await;
    // Beyond so many with the same value it does not read.
    let same = |count| (0..count).map(|_| amount(0)).collect::<Vec<Publish>>();
    lab.publish_all(same(LOOKBACK - 2)).await;
    finds(&lab, worker, &above("10"), Some("fifty")).await;
    lab.publish_all(same(1)).await;
    finds(&lab, worker, &above("10"), None).await;
    finds(&lab, worker, &above("6"), Some("seven")).await;
}

pub async fn whatever_events_say_is_found(lab: Lab) {
    // rules 14.3 and 14.6
    let worker = lab.worker("w").await;
    let long = format!("\"{}\"", "ü".repeat(20_000));
    let values = [
        "null",
        "true",
        "42",
        "\"\"",
        "\"é\\u0000\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "[1,{\"a\":null}]",
        "{\"b\":1,\"a\":2}",
        "123456789012345678901234567890",
        long.as_str(),
    ];
    // Half of them before the first lookback, and half afterwards.
    for round in ["before", "after"] {
        for (n, value) in values.iter().enumerate() {
            let event = publishing("order", &format!("{{\"a\":{{\"id\":{value}}},\"n\":{n}}}"));
            lab.tell(known_as(&format!("{round} {n}"), event)).await;
        }
        lab.tell(publishing("order", "{\"a\":{}}")).await;
        lab.tell(publishing("order", "[]")).await;
        for (n, value) in values.iter().enumerate() {
            let wait = at("order", "a.id", value);
            finds(&lab, worker, &wait, Some(&format!("{round} {n}"))).await;
        }
    }
    let on = |op, right: &str| that(any("order"), "a.id", op, right);
    finds(
        &lab,
        worker,
        &at("order", "a.id", "\"42\""),
        Some("after 2"),
    )
    .await;
    finds(&lab, worker, &on(Operator::EqTyped, "\"42\""), None).await;
    // The newest of a list, wherever in it that stands.
    let list = on(Operator::In, "[\"none\",42,{\"a\":2,\"b\":1},null]");
    finds(&lab, worker, &list, Some("after 7")).await;
}

pub async fn what_is_duplicate_is_indexed_once(lab: Lab) {
    // rules 14.1 and 14.6
    let worker = lab.worker("w").await;
    finds(&lab, worker, &order(1), None).await;
    let twice = vec![known_as("e", ordered(1)), known_as("e", ordered(1))];
    for duplicate in [false, true] {
        let published = lab.publish_all(twice.clone()).await;
        assert_eq!(published[0].as_ref().unwrap().duplicate, duplicate);
        assert!(published[1].as_ref().unwrap().duplicate);
        finds(&lab, worker, &order(1), Some("e")).await;
    }
    // Its payload is the one that it had when it was new.
    assert!(lab.publish(known_as("e", ordered(2))).await.duplicate);
    finds(&lab, worker, &order(2), None).await;
}

pub async fn the_time_is_looked_at_event_by_event(lab: Lab) {
    // rule 14.6: a publisher whose clock was behind stands behind others in the order of events.
    let worker = lab.worker("w").await;
    for waits in [order(1), that(any("order"), "id", Operator::Gte, "1")] {
        lab.pass(10 * MINUTE);
        let now = lab.now();
        lab.tell(known_as(&format!("right {now}"), ordered(1)))
            .await;
        lab.clock.set(now - 5 * MINUTE);
        let late = (0..LOOKBACK / 2).map(|_| ordered(1)).collect();
        lab.publish_all(late).await;
        lab.clock.set(now);
        for _ in 0..2 {
            let met = found(&lab, worker, vec![back(waits.clone(), 60_000)]).await;
            assert_eq!(met, Some(format!("right {now}")));
        }
    }
}

pub async fn what_is_published_in_the_commit_that_looks_back_is_indexed(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    lab.start_all(vec![plain(), plain()]).await;
    let mut claims = lab.claim_some(worker, 2).await.into_iter();
    let mut waits = |id| -> Commit {
        let claim = claims.next().unwrap().claim;
        commit(claim, awaits(vec![back(order(id), EVER)], &["s"]))
    };
    let publishes = |id: i64| {
        let event_id = format!("e{id}");
        Op::Publish(vec![known_as(&event_id, ordered(id))])
    };
    let commits = |commit| Op::Commit {
        commits: vec![commit],
        serves: Vec::new(),
    };
    // The first makes the path known, and receives what comes next.
    let ops = vec![publishes(1), commits(waits(2)), publishes(2), publishes(3)];
    lab.try_run(ops).await.unwrap();
    let ops = vec![publishes(4), commits(waits(4))];
    lab.try_run(ops).await.unwrap();
    assert!(lab.waiters().await.is_empty());
    for claimed in lab.claim_some(worker, 2).await {
        lab.commit(claimed.claim, done()).await;
    }
    others(&lab, "order", LOOKBACK).await;
    for id in 1..=4 {
        finds(&lab, worker, &order(id), Some(&format!("e{id}"))).await;
    }
}

pub async fn what_is_read_is_bounded_in_bytes(lab: Lab) {
    // rules 14.6 and 16.4: a few events as large as they may be hold up publishers no longer than many small ones.
    let worker = lab.worker("w").await;
    let large = |of: &str, id: i64| {
        let filler = "x".repeat(LOOKBACK_BYTES / 8);
        publishing(of, &format!("{{\"id\":{id},\"x\":\"{filler}\"}}"))
    };
    for of in ["order", "paid"] {
        lab.tell(known_as("wanted", publishing(of, "{\"id\":1}")))
            .await;
    }
    lab.publish_all((0..7).map(|_| large("order", 2)).collect())
        .await;
    finds(&lab, worker, &order(1), Some("wanted")).await;
    lab.publish_all((0..8).map(|_| large("paid", 2)).collect())
        .await;
    finds(&lab, worker, &at("paid", "id", "1"), None).await;
    finds(
        &lab,
        worker,
        &that(any("paid"), "id", Operator::Lt, "2"),
        None,
    )
    .await;
    // Through the index what does not match is not read.
    lab.publish_all((0..8).map(|_| large("order", 2)).collect())
        .await;
    finds(&lab, worker, &order(1), Some("wanted")).await;
    let not_large = that(order(2), "x", Operator::Exists, "false");
    finds(&lab, worker, &not_large, None).await;
}

pub async fn what_is_swept_is_not_looked_back_at(lab: Lab) {
    // rules 14.6 and 16.2
    let worker = lab.worker("w").await;
    lab.tell(known_as("old", ordered(1))).await;
    finds(&lab, worker, &order(1), Some("old")).await;
    lab.tell(known_as("older", ordered(2))).await;
    lab.pass(SECOND);
    let before = lab.now();
    lab.tell(known_as("new", ordered(3))).await;
    lab.pass(SECOND);
    finds(&lab, worker, &order(2), Some("older")).await;
    sweep(&lab, before).await;
    assert_eq!(lab.published().await.len(), 1);
    finds(&lab, worker, &order(1), None).await;
    finds(&lab, worker, &order(2), None).await;
    finds(&lab, worker, &order(3), Some("new")).await;
    lab.tell(known_as("old", ordered(1))).await;
    finds(&lab, worker, &order(1), Some("old")).await;
}

pub async fn a_path_that_is_not_used_is_forgotten(lab: Lab) {
    // rules 14.6 and 16.2
    let worker = lab.worker("w").await;
    let on = |path: usize| at("order", &format!("p{path}"), "1");
    for path in 0..16 {
        finds(&lab, worker, &on(path), None).await;
    }
    let event = |path: usize| publishing("order", &format!("{{\"p{path}\":1}}"));
    lab.pass(90 * MINUTE);
    lab.tell(known_as("first", event(1))).await;
    // That it is used is noted, now and then.
    finds(&lab, worker, &on(0), None).await;
    lab.pass(30 * MINUTE);
    sweep(&lab, lab.now() - 60 * MINUTE).await;
    let worker = lab.worker("x").await;
    // The one that was used still is, and there is room for others.
    for (path, event_id) in [(0, "used"), (1, "gap")] {
        lab.tell(known_as(event_id, event(path))).await;
    }
    finds(&lab, worker, &on(16), None).await;
    lab.tell(known_as("room", event(16))).await;
    others(&lab, "order", 700).await;
    // What was published while it was forgotten is newer than what was indexed before.
    finds(&lab, worker, &on(1), Some("gap")).await;
    others(&lab, "order", LOOKBACK).await;
    for (path, event_id) in [(0, "used"), (1, "gap"), (16, "room")] {
        finds(&lab, worker, &on(path), Some(event_id)).await;
    }
}
