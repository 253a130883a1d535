//! Starting: what becomes a row, and what it looks like.

use abide_core::model::{
    Cause, Declared, Json, Kind, Priority, Refusal, Scope, Start, Started, Status, UniqueKey, When,
};

use super::build::{MINUTE, SECOND, declared, json, key, keyed, later, many, name, plain};
use super::lab::Lab;
use crate::{Error, Filter, Op};

pub async fn a_started_instance_is_one_row_with_all_that_it_was_given(lab: Lab) {
    // rules 2.1 and 3.1
    let start = Start {
        version: Some(7),
        step: Some(name("pack")),
        state: json("{\"lines\": [1, 2]}"),
        key: Some(key("order:42")),
        scope: Scope::LIVE.and(Status::Done),
        unique_key: Some(UniqueKey::new([0, 255, 7]).unwrap()),
        unique_scope: Scope::ALWAYS,
        queue: Some(name("parcels")),
        priority: Priority(-3),
        partition_key: Some(key("customer:7")),
        history: Some(true),
        ..plain()
    };
    let id = lab.start(start.clone()).await;
    let found = lab.get(id).await;
    assert_eq!(
        (found.kind, &found.machine, found.version),
        (Kind::Machine, &start.machine, 7)
    );
    assert_eq!(
        (&found.first_step, &found.step),
        (&name("pack"), &name("pack"))
    );
    assert_eq!(
        (found.step_seq, found.attempt, found.cause),
        (1, 0, Cause::Start)
    );
    assert_eq!(
        (&found.state, &found.result, &found.last_error),
        (&start.state, &None, &None)
    );
    assert_eq!((&found.key, found.scope), (&start.key, start.scope));
    assert_eq!(
        (&found.unique_key, found.unique_scope),
        (&start.unique_key, start.unique_scope)
    );
    assert_eq!(
        (&found.queue, found.priority),
        (&name("parcels"), Priority(-3))
    );
    assert_eq!(
        (found.status, found.due_at),
        (Status::Runnable, Some(lab.now()))
    );
    assert_eq!(
        (&found.partition_key, found.behind),
        (&start.partition_key, false)
    );
    assert_eq!(
        (found.worker, found.timed_out, found.wait_kind()),
        (None, false, None)
    );
    assert_eq!((found.awaited(), found.wait_since()), (&[][..], None));
    assert_eq!(
        (
            found.parent,
            found.parent_barrier.0,
            found.family.barrier.0,
            found.family.pending
        ),
        (None, 0, 0, 0)
    );
    assert_eq!((found.history, found.finished_at), (true, None));
    assert_eq!((found.created_at, found.updated_at), (lab.now(), lab.now()));
}

pub async fn what_a_start_leaves_out_comes_from_the_newest_declaration(lab: Lab) {
    // rule 2.6
    lab.declare(vec![
        declared("m", 1, "old"),
        declared("m", 3, "new"),
        declared("m", 2, "middle"),
    ])
    .await;
    let newest = lab.get(lab.start(plain()).await).await;
    assert_eq!(
        (newest.version, newest.row.step, newest.row.queue),
        (3, name("new"), name("slow"))
    );
    assert!(!newest.row.history);
    let pinned = lab
        .get(
            lab.start(Start {
                version: Some(1),
                ..plain()
            })
            .await,
        )
        .await;
    assert_eq!((pinned.version, pinned.row.step), (1, name("old")));
}

pub async fn a_declaration_takes_the_place_of_the_one_before(lab: Lab) {
    // rule 2.6
    lab.declare(vec![declared("m", 1, "old")]).await;
    lab.declare(vec![declared("m", 1, "new")]).await;
    assert_eq!(lab.get(lab.start(plain()).await).await.step, name("new"));
}

pub async fn a_machine_without_a_declaration_can_be_started(lab: Lab) {
    // rule 2.6
    lab.declare(vec![Declared {
        machine: name("another"),
        ..declared("m", 9, "x")
    }])
    .await;
    let found = lab.get(lab.start(plain()).await).await;
    assert_eq!(
        (found.version, found.row.step, found.row.queue),
        (1, name("start"), name("default"))
    );
    assert!(found.row.history);
}

pub async fn what_is_due_later_is_scheduled_and_what_was_due_before_is_runnable(lab: Lab) {
    // rule 3.1
    let found = lab.get(lab.start(later(MINUTE)).await).await;
    assert_eq!(
        (found.status, found.due_at),
        (Status::Scheduled, Some(lab.now() + MINUTE))
    );
    let past = lab.now() - SECOND;
    let found = lab
        .get(
            lab.start(Start {
                when: When::At(past),
                ..plain()
            })
            .await,
        )
        .await;
    assert_eq!((found.status, found.due_at), (Status::Runnable, Some(past)));
}

pub async fn a_batch_is_answered_entry_by_entry_in_order(lab: Lab) {
    // rule 2.3
    let taken = lab.start(keyed("taken")).await;
    let batch = vec![
        keyed("one"),
        keyed("taken"),
        plain(),
        keyed("one"),
        keyed("two"),
    ];
    let answers = lab.starts(batch).await;
    let [
        Ok(Started::New(one)),
        Ok(second),
        Ok(Started::New(third)),
        Ok(fourth),
        Ok(Started::New(two)),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!(
        (*second, *fourth),
        (Started::Duplicate(taken), Started::Duplicate(*one))
    );
    for (id, expected) in [(one, Some("one")), (third, None), (two, Some("two"))] {
        assert_eq!(lab.get(*id).await.key, expected.map(key));
    }
}

pub async fn one_refused_entry_touches_no_other(lab: Lab) {
    // rules 2.3 and 16.3
    let big = json(&format!("\"{}\"", "x".repeat(1 << 20)));
    let bad = Start {
        state: big,
        ..keyed("big")
    };
    let worse = Start {
        version: Some(0),
        ..keyed("zero")
    };
    let answers = lab
        .starts(vec![keyed("a"), bad, keyed("b"), worse, keyed("c")])
        .await;
    let [Ok(_), Err(big), Ok(_), Err(zero), Ok(_)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    let (most, met) = (1 << 20, (1 << 20) + 2);
    assert_eq!(
        *big,
        Refusal::LimitExceeded {
            limit: "state_bytes".into(),
            most,
            met
        }
    );
    assert_eq!(*zero, Refusal::BadVersion { version: 0 });
    for (text, there) in [
        ("a", true),
        ("big", false),
        ("b", true),
        ("zero", false),
        ("c", true),
    ] {
        assert_eq!(lab.find(key(text)).await.is_some(), there, "{text}");
    }
}

pub async fn an_empty_batch_starts_nothing(lab: Lab) {
    // rule 2.3
    assert_eq!(lab.starts(Vec::new()).await, []);
    assert!(lab.try_run(Vec::new()).await.unwrap().is_empty());
}

pub async fn a_batch_over_the_limit_is_refused_as_a_whole(lab: Lab) {
    // rule 16.3
    let answer = lab
        .try_run(vec![Op::Start(many(2)), Op::Start(many(100_001))])
        .await;
    let Err(Error::Refused(Refusal::LimitExceeded { limit, most, met })) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (limit, most, met),
        ("batch_entries".into(), 100_000, 100_001)
    );
    assert!(
        lab.store
            .list(&Filter::default(), None, 10)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

pub async fn a_hundred_thousand_are_started_in_one_call(lab: Lab) {
    // rule 2.3
    let mut batch = many(99_998);
    batch.extend([keyed("last"), keyed("last")]);
    let answers = lab.starts(batch).await;
    let new = answers
        .iter()
        .filter(|one| matches!(one, Ok(Started::New(_))))
        .count();
    assert_eq!((answers.len(), new), (100_000, 99_999));
    let depths = lab.store.depths().await.unwrap();
    assert_eq!(
        depths.iter().map(|depth| depth.count).collect::<Vec<_>>(),
        [99_999]
    );
    let worker = lab.worker("w").await;
    assert_eq!(lab.claim_ids(worker, 100).await.len(), 100);
}

pub async fn states_are_kept_as_they_were_written(lab: Lab) {
    // rule 2.1
    let texts = [
        "null",
        "0",
        "\"\"",
        "{\"b\":1,  \"a\" : \"\\u0000\\ud83d\\ude00 é 🦀\"}",
        "[1e400, 12345678901234567890123456789, 1.10]",
        "{\"same\":1,\"same\":2}",
    ];
    for text in texts {
        let id = lab
            .start(Start {
                state: json(text),
                ..plain()
            })
            .await;
        assert_eq!(lab.get(id).await.state.as_str(), text);
    }
}

pub async fn a_state_of_exactly_the_limit_is_taken(lab: Lab) {
    // rule 16.3
    let state = json(&format!("\"{}\"", "x".repeat((1 << 20) - 2)));
    let id = lab
        .start(Start {
            state: state.clone(),
            ..plain()
        })
        .await;
    assert!(lab.get(id).await.state == state);
}

pub async fn a_start_without_a_state_begins_with_null(lab: Lab) {
    let id = lab.start(plain()).await;
    assert_eq!(lab.get(id).await.state, Json::null());
}
