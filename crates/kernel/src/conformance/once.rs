//! Requests that may arrive more than once: each is carried out once, and answered alike for a day (rule 1.5).

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Cancel, Children, Fingerprint, NewCommand, Publish, Refusal, RequestId, Start, Started, Status,
    Timestamp,
};

use super::build::{SECOND, commit, done, json, key, keyed, lane, many, name, plain, stop, wait};
use super::lab::Lab;
use crate::{Answer, ClaimRequest, Error, Filter, Once, Op, Remembered, SweepRequest};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn id(key: &str, body: &str) -> RequestId {
    RequestId::new("alice", name(key), Fingerprint::of([body]))
}

fn request(key: &str, ops: Vec<Op>) -> Once {
    let id = id(key, "that");
    Once {
        id,
        ops: ops.into(),
    }
}

fn starting(key: &str) -> Once {
    request(key, vec![Op::Start(vec![plain()])])
}

async fn carry_out(lab: &Lab, requests: Vec<Once>) -> Vec<Result<Remembered, Refusal>> {
    match lab.run(Op::Once(requests)).await {
        Answer::Once(each) => each,
        other => panic!("requests are not answered with {other:?}"),
    }
}

async fn one(lab: &Lab, request: Once) -> Result<Remembered, Refusal> {
    let mut each = carry_out(lab, vec![request]).await;
    assert_eq!(each.len(), 1);
    each.remove(0)
}

async fn count(lab: &Lab) -> usize {
    let page = lab.store.list(&Filter::default(), None, 1_000).await;
    page.unwrap().items.len()
}

async fn sweep(lab: &Lab, limit: usize) {
    let before = Timestamp::MIN;
    let after = None;
    lab.run(Op::Sweep(SweepRequest {
        before,
        after,
        limit,
    }))
    .await;
}

pub async fn a_request_that_arrives_again_is_carried_out_once_and_answered_alike(lab: Lab) {
    // rule 1.5
    let first = one(&lab, starting("r")).await.unwrap();
    assert!(!first.replayed);
    let [Answer::Started(each)] = first.answers.as_slice() else {
        panic!("{first:?}");
    };
    assert!(matches!(each.as_slice(), [Ok(Started::New(_))]));
    for _ in 0..3 {
        lab.pass(SECOND);
        let again = one(&lab, starting("r")).await.unwrap();
        assert!(again.replayed);
        assert_eq!(again.answers, first.answers);
    }
    assert_eq!(count(&lab).await, 1);
}

pub async fn every_kind_of_write_is_carried_out_once(lab: Lab) {
    // rule 1.5
    let worker = lab.worker("w").await;
    let waiting = lab.start(keyed("waiting")).await;
    lab.step(worker, wait(&["go"], None)).await;
    let failed = lab.start(plain()).await;
    lab.step(worker, stop("no")).await;
    let cancelled = lab.start(plain()).await;
    let writes = || {
        let publish = Publish {
            event_type: name("paid"),
            event_id: None,
            payload: json("1"),
        };
        let cancel = Cancel {
            target: cancelled.into(),
            reason: "no".into(),
            children: Children::Cascade,
            force: false,
            source: None,
            claimed_source: None,
        };
        vec![
            ("start", Op::Start(vec![plain()])),
            ("reserve", Op::Reserve(vec![(name("m"), key("reserved"))])),
            (
                "deliver",
                Op::Deliver(vec![NewCommand::signal(waiting, name("other"))]),
            ),
            ("publish", Op::Publish(vec![publish])),
            ("cancel", Op::Cancel(vec![cancel])),
            ("restart", Op::Restart(vec![(failed.into(), None)])),
            ("repair", Op::Repair(vec![waiting.into()])),
        ]
    };
    for ((what, op), (_, again)) in writes().into_iter().zip(writes()) {
        assert!(!op.is_repeatable(), "{what}");
        let first = one(&lab, request(what, vec![op])).await.unwrap();
        let second = one(&lab, request(what, vec![again])).await.unwrap();
        assert_eq!((first.replayed, second.replayed), (false, true), "{what}");
        assert_eq!(first.answers, second.answers, "{what}");
    }
    assert_eq!(lab.store.inbox(waiting).await.unwrap().len(), 1);
    let events = lab.store.events(&Default::default(), None, 10).await;
    assert_eq!(events.unwrap().items.len(), 1);
    assert_eq!(lab.find(cancelled).await.unwrap().status, Status::Cancelled);
    assert_eq!(
        count(&lab).await,
        6,
        "three, one started, one reserved, one restarted"
    );
}

pub async fn the_same_key_with_another_request_is_refused(lab: Lab) {
    // rule 1.5
    one(&lab, starting("r")).await.unwrap();
    let other = Once {
        id: id("r", "something else"),
        ops: Arc::from([Op::Start(vec![keyed("k")])]),
    };
    let refused = one(&lab, other).await.unwrap_err();
    assert_eq!(refused, Refusal::RequestReused { key: name("r") });
    assert!(refused.to_string().contains("\"r\""), "{refused}");
    assert_eq!(count(&lab).await, 1);
}

pub async fn the_keys_of_two_callers_never_meet(lab: Lab) {
    // rule 1.5
    let of = |caller: &str, key: &str| Once {
        id: RequestId {
            caller: caller.into(),
            ..id(key, caller)
        },
        ops: Arc::from([Op::Start(vec![plain()])]),
    };
    // Also where one name ends as the other begins.
    for (caller, key) in [("bob", "r"), ("carol", "r"), ("bobr", "x"), ("bob", "rx")] {
        let carried = one(&lab, of(caller, key)).await.unwrap();
        assert!(!carried.replayed, "{caller} {key}");
    }
    assert_eq!(count(&lab).await, 4);
}

pub async fn the_parts_of_a_request_are_distinguished(lab: Lab) {
    // rule 1.5: a request of several transactions that broke off goes on where it was.
    let part = |part| Once {
        id: RequestId {
            part,
            ..id("r", "that")
        },
        ops: Arc::from([Op::Start(vec![plain()])]),
    };
    let first = one(&lab, part(0)).await.unwrap();
    let again = one(&lab, part(0)).await.unwrap();
    let second = one(&lab, part(1)).await.unwrap();
    assert_eq!(first.answers, again.answers);
    assert!(again.replayed && !second.replayed && second.answers != first.answers);
    assert_eq!(count(&lab).await, 2);
}

pub async fn requests_in_one_batch_are_answered_entry_by_entry_in_order(lab: Lab) {
    // rule 1.5
    let target = lab.start(plain()).await;
    let before = one(&lab, starting("before")).await.unwrap();
    let same_kind = vec![
        request("a", vec![Op::Start(many(2))]),
        starting("before"),
        request("b", vec![Op::Start(Vec::new())]),
        request("c", vec![Op::Start(vec![keyed("k"), keyed("k")])]),
    ];
    let each = carry_out(&lab, same_kind).await;
    let sizes: Vec<usize> = each
        .iter()
        .map(|one| match one.as_ref().unwrap().answers.as_slice() {
            [Answer::Started(each)] => each.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [2, 1, 0, 2]);
    let replayed: Vec<bool> = each
        .iter()
        .map(|one| one.as_ref().unwrap().replayed)
        .collect();
    assert_eq!(replayed, [false, true, false, false]);
    assert_eq!(each[1].as_ref().unwrap().answers, before.answers);
    assert_eq!(count(&lab).await, 5);
    let mixed = vec![
        starting("d"),
        request(
            "e",
            vec![
                Op::Deliver(vec![NewCommand::signal(target, name("go"))]),
                Op::Start(vec![plain()]),
            ],
        ),
    ];
    let each = carry_out(&lab, mixed).await;
    assert!(matches!(
        each[1].as_ref().unwrap().answers.as_slice(),
        [Answer::Delivered(_), Answer::Started(_)]
    ));
    assert_eq!(count(&lab).await, 7);
    assert_eq!(carry_out(&lab, Vec::new()).await, []);
}

pub async fn one_that_comes_twice_in_a_batch_is_carried_out_once(lab: Lab) {
    // rule 1.5
    let other = Once {
        id: id("r", "something else"),
        ops: Arc::from([Op::Start(vec![plain()])]),
    };
    let each = carry_out(&lab, vec![starting("r"), starting("r"), other]).await;
    let [Ok(first), Ok(second), Err(third)] = each.as_slice() else {
        panic!("{each:?}");
    };
    assert_eq!(first.answers, second.answers);
    assert_eq!((first.replayed, second.replayed), (false, true));
    assert_eq!(third.reason(), "idempotency_key_reused");
    assert_eq!(count(&lab).await, 1);
}

pub async fn what_was_refused_is_refused_again_in_the_same_words(lab: Lab) {
    // rule 1.5: the first answer counts, also when it would be another by now.
    let holder = lab.start(keyed("k")).await;
    let taken = || request("r", vec![Op::Start(vec![keyed("k")])]);
    let first = one(&lab, taken()).await.unwrap();
    assert_eq!(
        first.answers,
        [Answer::Started(vec![Ok(Started::Duplicate(holder))])]
    );
    let worker = lab.worker("w").await;
    lab.step(worker, done()).await;
    let again = one(&lab, taken()).await.unwrap();
    assert_eq!((again.replayed, again.answers), (true, first.answers));
    assert_eq!(count(&lab).await, 1);
}

pub async fn of_many_at_once_one_is_carried_out(lab: Lab) {
    // rule 1.5: the others are answered with its result, or that it is in progress; and get the result when they retry.
    let asking = (0..16).map(|_| {
        let lab = lab.clone();
        tokio::spawn(async move {
            loop {
                match lab.try_run(vec![Op::Once(vec![starting("r")])]).await {
                    Ok(answers) => match answers.into_iter().next() {
                        Some(Answer::Once(mut each)) => match each.remove(0) {
                            Ok(one) => return one,
                            Err(Refusal::RequestRunning { .. }) => tokio::task::yield_now().await,
                            Err(refusal) => panic!("{refusal}"),
                        },
                        other => panic!("{other:?}"),
                    },
                    Err(error) if error.is_passing() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut first = Vec::new();
    let mut answers = Vec::new();
    for one in asking {
        let one = one.await.unwrap();
        first.extend((!one.replayed).then_some(()));
        answers.push(one.answers);
    }
    assert_eq!(first.len(), 1);
    assert!(answers.windows(2).all(|two| two[0] == two[1]));
    assert_eq!(count(&lab).await, 1);
}

pub async fn what_was_rolled_back_is_not_remembered(lab: Lab) {
    // rule 1.5: the answer is written in the transaction of the write.
    let too_many: Vec<Start> = vec![plain(); 100_001];
    let ops = vec![Op::Once(vec![starting("r")]), Op::Start(too_many)];
    let error = lab.try_run(ops).await.unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert_eq!(count(&lab).await, 0);
    let carried = one(&lab, starting("r")).await.unwrap();
    assert!(!carried.replayed);
    assert_eq!(count(&lab).await, 1);
}

pub async fn an_answer_too_large_to_be_kept_is_never_carried_out_twice(lab: Lab) {
    // rule 1.5: a claim answers with the states of what it claims.
    let worker = lab.worker("w").await;
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    let starts = (0..5).map(|_| Start {
        state: json(&large),
        ..plain()
    });
    lab.start_all(starts.collect()).await;
    let claiming = || {
        let claim = ClaimRequest {
            worker,
            queue: name("default"),
            lanes: vec![lane("m", 1)],
            limit: 5,
            lease: None,
        };
        request("r", vec![Op::Claim(claim)])
    };
    let first = one(&lab, claiming()).await.unwrap();
    let Some(Answer::Claimed(claimed)) = first.answers.into_iter().next() else {
        panic!("a claim is answered with claims");
    };
    assert_eq!(claimed.len(), 5);
    let refused = one(&lab, claiming()).await.unwrap_err();
    assert_eq!(refused, Refusal::AnswerNotKept { key: name("r") });
    for one in claimed {
        lab.run(Op::Commit {
            commits: vec![commit(one.claim, done())],
            serves: Vec::new(),
        })
        .await;
    }
}

pub async fn a_request_is_remembered_for_a_day_and_then_forgotten(lab: Lab) {
    // rule 1.5
    one(&lab, starting("r")).await.unwrap();
    lab.pass(DAY);
    sweep(&lab, 10).await;
    assert!(one(&lab, starting("r")).await.unwrap().replayed);
    lab.pass(SECOND);
    sweep(&lab, 10).await;
    assert!(!one(&lab, starting("r")).await.unwrap().replayed);
    assert_eq!(count(&lab).await, 2);
}

pub async fn requests_are_forgotten_a_batch_at_a_time(lab: Lab) {
    // rule 1.5
    for n in 0..5 {
        one(&lab, starting(&format!("r{n}"))).await.unwrap();
        lab.pass(SECOND);
    }
    lab.pass(DAY);
    sweep(&lab, 2).await;
    let mut left = 0;
    for n in 0..5 {
        let again = one(&lab, starting(&format!("r{n}"))).await.unwrap();
        left += usize::from(again.replayed);
    }
    assert_eq!(left, 3);
}
