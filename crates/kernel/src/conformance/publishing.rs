//! Publishing: an event is stored once, and comes to every instance that waits for it.

use std::time::Duration;

use abide_core::model::{
    Cause, Claimed, CommandStatus, InstanceId, Name, Operator, Published, Refusal, Status,
};

use super::build::{MINUTE, SECOND, commit, done, json, many, name, next, plain, urgent, within};
use super::eventing::{
    any, arguments_of, awaits, back, known_as, order, ordered, publishing, that, within_ms,
};
use super::lab::Lab;
use crate::{Answer, Op};

pub async fn an_event_is_kept_as_it_was_published(lab: Lab) {
    // rule 14.1
    let text = "{\"b\": [1.50, \"é\\u0041\"],\n \"a\": null}";
    let first = lab.publish(known_as("e", publishing("order", text))).await;
    assert_eq!((first.matched, first.duplicate), (0, false));
    assert_eq!(first.event_id, name("e"));
    lab.pass(SECOND);
    let second = lab.publish(publishing("paid", "7")).await;
    assert!(second.sequence > first.sequence);
    let kept = lab.published().await;
    let [two, one] = kept.as_slice() else {
        panic!("{kept:?}")
    };
    assert_eq!(
        (one.sequence, one.event_type.as_str(), &one.event_id),
        (first.sequence, "order", &name("e"))
    );
    assert_eq!(one.payload.as_str(), text, "word for word");
    assert_eq!(
        (two.sequence, &two.event_id, two.published_at),
        (second.sequence, &second.event_id, lab.now())
    );
    assert_eq!(one.published_at, lab.now() - SECOND);
}

pub async fn an_event_id_is_one_event_of_a_type(lab: Lab) {
    // rule 14.1
    let worker = lab.worker("w").await;
    let first = lab.publish(known_as("e", ordered(1))).await;
    let waits = awaits(vec![any("order")], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    let again = lab.publish(known_as("e", ordered(2))).await;
    let expected = Published {
        duplicate: true,
        ..first.clone()
    };
    assert_eq!(again, expected, "the first is answered");
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    let kept = lab.published().await;
    assert_eq!((kept.len(), &kept[0].payload), (1, &json("{\"id\":1}")));
    let other = publishing("paid", "1");
    assert_eq!(lab.tell(known_as("e", other)).await, 0, "of another type");
    assert_eq!(lab.tell(known_as("E", ordered(2))).await, 1);
}

pub async fn an_event_id_is_one_event_in_one_batch_too(lab: Lab) {
    // rule 14.1
    let worker = lab.worker("w").await;
    let waits = awaits(vec![any("order")], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    let batch = vec![
        known_as("e", ordered(1)),
        known_as("f", publishing("paid", "1")),
        known_as("e", ordered(2)),
        known_as("e", ordered(1)),
    ];
    let each = lab.publish_all(batch).await;
    let each: Vec<Published> = each.into_iter().map(Result::unwrap).collect();
    let summary: Vec<_> = each
        .iter()
        .map(|one| (one.matched, one.duplicate))
        .collect();
    assert_eq!(summary, [(1, false), (0, false), (0, true), (0, true)]);
    assert_eq!(each[0].sequence, each[2].sequence);
    assert_eq!(lab.published().await.len(), 2);
    let came = lab.claim(worker).await.awaited;
    assert_eq!((came[0].instance, came.len()), (Some(id), 1));
    assert_eq!(came[0].arguments, arguments_of("{\"id\":1}"));
}

pub async fn an_event_without_an_id_is_never_known_already(lab: Lab) {
    // rule 14.1
    let first = lab.publish(ordered(1)).await;
    let given = first.event_id.as_str();
    let number: i64 = given.rsplit('-').next().unwrap().parse().unwrap();
    let prefix = given.strip_suffix(&number.to_string()).unwrap().to_owned();
    let taken = |at: i64| known_as(&format!("{prefix}{at}"), ordered(at));
    // Each of them takes a number, too.
    lab.publish_all((number + 300..number + 600).map(taken).collect())
        .await;
    for at in 0..5 {
        let batch = lab.publish_all(vec![ordered(at), ordered(at)]).await;
        let ids: Vec<Name> = batch
            .into_iter()
            .map(|one| {
                let one = one.unwrap();
                assert!(!one.duplicate, "{one:?}");
                one.event_id
            })
            .collect();
        assert_ne!(ids[0], ids[1]);
    }
}

pub async fn entries_are_answered_in_order_and_one_that_is_refused_stops_no_other(lab: Lab) {
    // rules 14.1 and 16.3
    let worker = lab.worker("w").await;
    let waits = awaits(vec![any("order")], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    let batch = vec![
        publishing("order", &huge),
        publishing("other", "1"),
        publishing("order", "2"),
        publishing("other", &huge),
        publishing("other", "3"),
    ];
    let each = lab.publish_all(batch).await;
    for refused in [&each[0], &each[3]] {
        let Err(Refusal::LimitExceeded { .. }) = refused else {
            panic!("{refused:?}")
        };
        let text = refused.as_ref().unwrap_err().to_string();
        assert!(
            text.contains("payload") && text.contains("1048576"),
            "{text}"
        );
    }
    let matched: Vec<_> = each.iter().flatten().map(|one| one.matched).collect();
    assert_eq!(matched, [0, 1, 0]);
    let kept: Vec<String> = lab
        .published()
        .await
        .iter()
        .map(|event| event.payload.to_string())
        .collect();
    assert_eq!(kept, ["3", "2", "1"]);
    assert_eq!(lab.status(id).await, Status::Runnable);
    assert!(lab.publish_all(Vec::new()).await.is_empty());
}

pub async fn a_batch_over_the_limit_publishes_nothing(lab: Lab) {
    // rule 16.3
    let batch = vec![ordered(1); 100_001];
    assert!(lab.try_run(vec![Op::Publish(batch)]).await.is_err());
    assert!(lab.published().await.is_empty());
}

pub async fn all_who_match_get_it_who_waits_longest_first(lab: Lab) {
    // rules 7.1 and 14.1
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(6)).await;
    let mut claimed: Vec<Claimed> = lab.claim_some(worker, 6).await;
    // The last to start waits first; the third waits for another order.
    let mut waited = Vec::new();
    while let Some(one) = claimed.pop() {
        waited.push(one.claim.id());
        let of = i64::from(one.claim.id() != ids[2]);
        lab.commit(one.claim, awaits(vec![order(of)], &[])).await;
        if claimed.len() != 1 {
            lab.pass(SECOND);
        }
    }
    waited.retain(|id| *id != ids[2]);
    // The two that came at the same time are ordered by their ids.
    waited.swap(3, 4);
    let event = lab.publish(known_as("e", ordered(1))).await;
    assert_eq!(event.matched, 5);
    let mut came = Vec::new();
    for one in lab.claim_some(worker, 6).await {
        assert_eq!(one.cause, Cause::Event);
        let [matched] = one.awaited.as_slice() else {
            panic!("{one:?}")
        };
        assert_eq!(
            (matched.name.as_str(), matched.source.as_deref()),
            ("event:order", Some("e"))
        );
        assert_eq!(matched.arguments, arguments_of("{\"id\":1}"));
        came.push((matched.id, one.claim.id()));
    }
    came.sort_unstable();
    let came: Vec<InstanceId> = came.into_iter().map(|(_, id)| id).collect();
    assert_eq!(came, waited);
    assert_eq!(lab.waits_for_events().await, [ids[2]]);
}

pub async fn of_several_events_a_wait_takes_the_first_that_matches(lab: Lab) {
    // rules 14.1 and 14.5
    let worker = lab.worker("w").await;
    let waits = awaits(vec![order(1), order(2), any("paid")], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    let batch = vec![
        ordered(3),
        ordered(2),
        ordered(1),
        publishing("paid", "1"),
        ordered(2),
    ];
    let each = lab.publish_all(batch).await;
    let matched: Vec<_> = each.iter().flatten().map(|one| one.matched).collect();
    assert_eq!(matched, [0, 1, 0, 0, 0]);
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    assert_eq!(claimed.awaited.len(), 1);
    assert_eq!(claimed.awaited[0].arguments, arguments_of("{\"id\":2}"));
    assert_eq!(lab.count_events(id, "event_matched").await, 1);
}

pub async fn a_type_matches_exactly(lab: Lab) {
    // rule 14.2
    let worker = lab.worker("w").await;
    let waits = awaits(vec![any("order.paid")], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    for other in [
        "order",
        "order.paid.late",
        "Order.paid",
        "order_paid",
        "order.%",
    ] {
        assert_eq!(lab.tell(publishing(other, "1")).await, 0, "{other}");
    }
    assert_eq!(lab.status(id).await, Status::AwaitingSignal);
    assert_eq!(lab.tell(publishing("order.paid", "1")).await, 1);
}

pub async fn long_names_and_any_script_are_taken(lab: Lab) {
    // rule 14.1
    let worker = lab.worker("w").await;
    let long = "é".repeat(124);
    let waits = awaits(
        vec![that(any(&long), "é.ü", Operator::Eq, "\"ß'\\\\\"")],
        &[],
    );
    let id = lab.awaiting(worker, plain(), waits).await;
    let payload = "{\"\\u00e9\":{\"ü\":\"ß'\\\\\"}}";
    let event = known_as(&"ö".repeat(127), publishing(&long, payload));
    let published = lab.publish(event.clone()).await;
    assert_eq!((published.matched, published.duplicate), (1, false));
    assert!(lab.publish(event).await.duplicate);
    let came = lab.claim(worker).await.awaited.remove(0);
    assert_eq!(came.instance, Some(id));
    assert_eq!(came.name.event_type(), Some(long.as_str()));
    assert_eq!(came.arguments, arguments_of(payload));
    let longer = format!("{long}xx");
    let refused = lab
        .publish_all(vec![publishing(&longer, "1"), ordered(1)])
        .await;
    assert!(matches!(refused[0], Err(Refusal::BadEvent { .. })) && refused[1].is_ok());
    lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    lab.refused(claim, awaits(vec![any(&longer)], &[])).await;
}

pub async fn a_payload_may_be_any_json(lab: Lab) {
    // rule 14.1
    let worker = lab.worker("w").await;
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let deep = nested(128);
    let long = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    let bodies = [
        "null",
        "true",
        "-0.0",
        "1e400",
        "\"\"",
        "\"\\u0000 \\ud800\"",
        "[]",
        "{\"\":{}}",
        &deep,
        &long,
    ];
    for body in bodies {
        let waits = vec![
            that(any("any"), "a.b", Operator::Eq, "1"),
            that(any("any"), "a", Operator::Exists, "false"),
        ];
        let id = lab.awaiting(worker, plain(), awaits(waits, &[])).await;
        assert_eq!(lab.tell(publishing("any", body)).await, 1);
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.claim.id(), id);
        let (met, wanted) = (&claimed.awaited[0].arguments, arguments_of(body));
        assert!(met == &wanted, "{}", &body[..body.len().min(40)]);
        lab.commit(claimed.claim, done()).await;
    }
    assert_eq!(lab.published().await.len(), bodies.len());
    // rule 16.3: deeper than workers in other languages read.
    for deeper in [nested(129), nested(50_000)] {
        let refused = lab.publish_all(vec![publishing("any", &deeper)]).await;
        let text = refused[0].as_ref().unwrap_err().to_string();
        assert!(
            text.contains("json_depth") && text.contains("128"),
            "{text}"
        );
    }
}

pub async fn conditions_are_evaluated_at_every_kind_of_path(lab: Lab) {
    // rules 14.2, 14.3 and 14.4
    let worker = lab.worker("w").await;
    let long = format!("\"{}\"", "y".repeat(4000));
    let lists = format!("[3, {long}, null, [1,{{\"b\":2,\"a\":1}}], \"\\u0000\"]");
    let waits = [
        ("eq", that(any("e"), "a", Operator::Eq, "42")),
        ("typed", that(any("e"), "a", Operator::EqTyped, "42.0")),
        ("ne", that(any("e"), "a", Operator::Ne, "42")),
        ("gt", that(any("e"), "a", Operator::Gt, "41.5")),
        ("in", that(any("e"), "a", Operator::In, &lists)),
        ("missing", that(any("e"), "a", Operator::Exists, "false")),
        ("nested", that(any("e"), "x.0.y", Operator::Eq, "\"42\"")),
        (
            "both",
            that(
                that(any("e"), "z", Operator::Gte, "\"m\""),
                "a",
                Operator::Eq,
                "\"42\"",
            ),
        ),
        ("all", any("e")),
    ];
    let table: [(&str, &[&str]); 10] = [
        ("{\"a\":42}", &["eq", "typed", "gt", "all"]),
        ("{\"a\":\"42\",\"z\":\"n\"}", &["eq", "ne?", "both", "all"]),
        ("{\"a\":41}", &["ne", "all"]),
        ("{\"a\":3.0}", &["ne", "in", "all"]),
        ("{\"a\":null}", &["ne", "in", "all"]),
        ("{\"a\":[1.0,{\"a\":1,\"b\":2}]}", &["ne", "in", "all"]),
        ("{\"a\":\"\\u0000\"}", &["ne", "in", "all"]),
        ("{\"x\":[{\"y\":42.0}]}", &["missing", "nested", "all"]),
        ("{\"a\":LONG}", &["ne", "in", "all"]),
        ("7", &["missing", "all"]),
    ];
    let mut ids: Vec<InstanceId> = Vec::new();
    for (payload, expected) in table {
        for (_, wait) in &waits {
            let outcome = awaits(vec![wait.clone()], &[]);
            ids.push(lab.awaiting(worker, plain(), outcome).await);
        }
        let payload = payload.replace("LONG", &long);
        let matched = lab.tell(publishing("e", &payload)).await;
        let mut met = Vec::new();
        for (id, (which, _)) in ids.drain(..).zip(&waits) {
            if lab.status(id).await == Status::Runnable {
                met.push(*which);
            }
        }
        let expected: Vec<&str> = expected
            .iter()
            .copied()
            .filter(|one| !one.ends_with('?'))
            .collect();
        let mut sorted = (met.clone(), expected.clone());
        sorted.0.sort_unstable();
        sorted.1.sort_unstable();
        assert_eq!(sorted.0, sorted.1, "{}", &payload[..payload.len().min(60)]);
        assert_eq!(matched as usize, met.len());
        // Everyone ends, so that the next begin anew.
        for one in lab.claim_some(worker, 100).await {
            lab.commit(one.claim, done()).await;
        }
        lab.pass(MINUTE);
        lab.fire().await;
        for one in lab.claim_some(worker, 100).await {
            lab.commit(one.claim, done()).await;
        }
        assert!(lab.waiters().await.is_empty());
    }
}

pub async fn a_transaction_sees_its_own_waiters_and_events(lab: Lab) {
    // rules 14.1 and 14.6
    let worker = lab.worker("w").await;
    let ids = lab.start_all(many(3)).await;
    let mut claimed = lab.claim_some(worker, 3).await.into_iter();
    let mut park = |wait| Op::Commit {
        commits: vec![commit(
            claimed.next().unwrap().claim,
            awaits(vec![wait], &[]),
        )],
        serves: Vec::new(),
    };
    let (first, second, third) = (park(order(1)), park(order(1)), park(back(order(1), 0)));
    let ops = vec![first, Op::Publish(vec![ordered(1)]), second, third];
    let answers = lab.try_run(ops).await.unwrap();
    let Answer::Published(each) = &answers[1] else {
        panic!("{answers:?}")
    };
    assert_eq!(each[0].as_ref().unwrap().matched, 1);
    let mut stand = Vec::new();
    for id in &ids {
        stand.push(lab.status(*id).await);
    }
    use Status::{AwaitingSignal, Runnable};
    assert_eq!(stand, [Runnable, AwaitingSignal, Runnable]);
    assert_eq!(lab.waits_for_events().await, [ids[1]]);
}

pub async fn a_transaction_that_fails_publishes_nothing(lab: Lab) {
    // rules 1.1 and 14.1
    let worker = lab.worker("w").await;
    let waits = awaits(vec![order(1)], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    let before = (lab.get(id).await, lab.waiters().await);
    let ops = vec![
        Op::Publish(vec![known_as("e", ordered(1))]),
        Op::Start(many(100_001)),
    ];
    assert!(lab.try_run(ops).await.is_err());
    assert_eq!((lab.get(id).await, lab.waiters().await), before);
    assert!(lab.published().await.is_empty() && lab.inbox(id).await.is_empty());
    let event = lab.publish(known_as("e", ordered(1))).await;
    assert_eq!((event.matched, event.duplicate), (1, false));
}

pub async fn who_is_woken_stands_in_its_queue_and_partition(lab: Lab) {
    // rules 6.3 and 14.1
    let worker = lab.worker("w").await;
    let waits = || awaits(vec![order(1)], &[]);
    let first = lab.awaiting(worker, within("p"), waits()).await;
    let second = lab.awaiting(worker, within("p"), waits()).await;
    let free = lab.awaiting(worker, urgent(-5), waits()).await;
    let waiters = lab.waiters().await;
    let partitions: Vec<_> = waiters.iter().map(|one| one.partition.clone()).collect();
    let p = super::build::key("p");
    assert_eq!(partitions, [Some(p.clone()), Some(p), None]);
    assert_eq!(lab.tell(ordered(1)).await, 3);
    let claimed = lab.claim_some(worker, 5).await;
    assert_eq!(
        super::lab::ids(&claimed),
        [free, first],
        "one of a partition"
    );
    assert!(lab.get(second).await.behind);
    for one in claimed {
        lab.commit(one.claim, done()).await;
    }
    assert_eq!(lab.claim_ids(worker, 5).await, [second]);
}

pub async fn the_record_of_a_message_names_the_step_that_took_it(lab: Lab) {
    // rules 7.6, 7.7 and 14.1
    let worker = lab.worker("w").await;
    let waits = within_ms(vec![order(1)], &[], Some(5_000));
    let id = lab.awaiting(worker, plain(), waits).await;
    lab.pass(Duration::from_millis(4_999));
    lab.tell(known_as("e", ordered(1))).await;
    let claimed = lab.claim(worker).await;
    let event = claimed.awaited[0].clone();
    assert_eq!(event.status, CommandStatus::Received);
    lab.commit(claimed.claim, next("then")).await;
    let record = lab.record(event.id).await;
    assert_eq!(
        (record.status, record.step_sequence, &record.wait_id),
        (CommandStatus::Applied, Some(2), &event.wait_id)
    );
    let found = lab.get(id).await;
    assert_eq!((found.inbox.signals, found.inbox.cursor.0), (0, 1));
}
