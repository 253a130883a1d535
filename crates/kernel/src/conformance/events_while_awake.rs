//! A workflow that is awake while an event is published finds it when it parks again.
//!
//! The bug: an event that came while no waiter stood for a workflow was found by comparing the time that the
//! publisher had taken with the time at which the workflow was woken, less a minute. A publisher that was held up for
//! longer than that between the two, on another machine, had its event acknowledged, and no workflow ever got it.

use abide_core::model::{
    Claimed, Committed, InstanceId, OperationKind, Park, Status, Then, WorkerId,
};

use super::build::{MINUTE, SECOND, signal};
use super::coding::{Coded, completed, go_on, keeping, opened, signal_waits, unfit, workflow};
use super::eventing::{any, known_as, order, ordered, parks};
use super::lab::Lab;
use super::random::Rng;
use crate::Op;

/// Waits for the event `order` of that id under operation 1, and for the signal `s`.
fn for_order(lab: &Lab, id: i64) -> Park {
    Park {
        signals: signal_waits(9, &["s"]),
        ..parks(vec![(1, order(id))], lab.now() + 60 * MINUTE)
    }
}

/// A turn that begins to wait for the event `order` under operation 1.
fn begins(then: Then) -> Coded {
    Coded::then(then).tells(vec![opened(1, OperationKind::Event, "order")])
}

/// Starts a workflow that waits for the order 1 and for the signal `s`, and wakes it by the signal.
async fn awake(lab: &Lab, worker: WorkerId) -> Claimed {
    let turn = begins(Then::Park(for_order(lab, 1)));
    let id = lab.coded(worker, workflow(), turn).await;
    woken(lab, worker, id).await
}

/// Wakes a workflow by the signal `s`.
async fn woken(lab: &Lab, worker: WorkerId, id: InstanceId) -> Claimed {
    lab.signal(id, "s").await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    claimed
}

/// Parks it again as it was, with the signals taken that it was handed.
async fn parks_again(lab: &Lab, claimed: Claimed, park: Park) -> Status {
    let taken: Vec<_> = claimed.awaited.iter().collect();
    let turn = Coded::parks(park).takes(&taken);
    match lab.commit(claimed.claim, turn.into()).await {
        Committed::Moved(status) => status,
        other => panic!("{other:?}"),
    }
}

/// The events that it is handed, by the operation that each is for.
fn events(claimed: &Claimed) -> Vec<(String, String)> {
    let id = claimed.claim.id();
    let events = claimed.awaited.iter();
    let events = events.filter(|one| one.name.event_type().is_some());
    let events = events.map(|one| {
        let of = one.wait_id.as_ref().unwrap().as_str();
        let operation = of.strip_prefix(&format!("wait:{id}:")).unwrap();
        (operation.to_owned(), one.source.clone().unwrap())
    });
    events.collect()
}

fn is(operation: &str, event_id: &str) -> (String, String) {
    (operation.to_owned(), event_id.to_owned())
}

pub async fn the_first_that_matched_meanwhile_is_found(lab: Lab) {
    // rule 14.6
    let worker = lab.worker("w").await;
    let claimed = awake(&lab, worker).await;
    assert_eq!(lab.tell(ordered(2)).await, 0);
    assert_eq!(lab.tell(known_as("a", ordered(1))).await, 0);
    assert_eq!(lab.tell(known_as("b", ordered(1))).await, 0);
    let park = for_order(&lab, 1);
    assert_eq!(parks_again(&lab, claimed, park).await, Status::Runnable);
    assert!(lab.waiters().await.is_empty());
    assert_eq!(events(&lab.claim(worker).await), [is("1", "a")]);
}

pub async fn a_publisher_that_was_held_up_is_not_missed(lab: Lab) {
    // rule 14.6: it took its time, and was then stopped for an hour.
    let worker = lab.worker("w").await;
    let turn = begins(Then::Park(for_order(&lab, 1)));
    let id = lab.coded(worker, workflow(), turn).await;
    let taken = lab.now();
    lab.pass(60 * MINUTE);
    let claimed = woken(&lab, worker, id).await;
    let now = lab.now();
    lab.clock.set(taken);
    assert_eq!(lab.tell(known_as("late", ordered(1))).await, 0);
    lab.clock.set(now);
    let park = for_order(&lab, 1);
    assert_eq!(parks_again(&lab, claimed, park).await, Status::Runnable);
    assert_eq!(events(&lab.claim(worker).await), [is("1", "late")]);
}

pub async fn what_was_published_before_it_began_is_not_in_it(lab: Lab) {
    // rule 14.6: whatever its publisher's clock shows.
    let worker = lab.worker("w").await;
    lab.clock.set(lab.now() + MINUTE);
    lab.tell(ordered(1)).await;
    lab.clock.set(lab.now() - MINUTE);
    let claimed = awake(&lab, worker).await;
    let id = claimed.claim.id();
    // A wait that is begun while another stands is not given what came before it.
    lab.tell(known_as("between", ordered(2))).await;
    let park = Park {
        events: vec![(1, order(1)), (2, order(2))],
        ..for_order(&lab, 1)
    };
    let turn = Coded::parks(park).tells(vec![opened(2, OperationKind::Event, "order")]);
    let taken: Vec<_> = claimed.awaited.iter().collect();
    let answer = lab.commit(claimed.claim, turn.takes(&taken).into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
    assert_eq!(lab.waits_for_events().await, [id, id]);
    assert_eq!(lab.tell(known_as("in", ordered(2))).await, 1);
    assert_eq!(events(&lab.claim(worker).await), [is("2", "in")]);
}

pub async fn a_wait_begins_with_the_commit_that_tells_of_it(lab: Lab) {
    // rules 12.3 and 14.6: the code goes on, a step runs say, before it parks for the first time.
    let worker = lab.worker("w").await;
    for kept in [false, true] {
        let id = lab.start(workflow()).await;
        let claimed = lab.claim(worker).await;
        lab.tell(known_as(&format!("before {kept}"), ordered(1)))
            .await;
        let turn = begins(go_on()).into();
        let claim = if kept {
            let commit = keeping(super::build::commit(claimed.claim, turn));
            match lab.commit_all(vec![commit]).await.remove(0) {
                Committed::Kept(claim, _) => claim,
                other => panic!("{other:?}"),
            }
        } else {
            lab.commit(claimed.claim, turn).await;
            lab.claim(worker).await.claim
        };
        let event = format!("after {kept}");
        lab.tell(known_as(&event, ordered(1))).await;
        let park = Coded::parks(for_order(&lab, 1));
        let answer = lab.commit(claim, park.into()).await;
        assert_eq!(answer, Committed::Moved(Status::Runnable));
        let claimed = lab.claim(worker).await;
        assert_eq!(claimed.claim.id(), id);
        assert_eq!(events(&claimed), [is("1", &event)]);
    }
}

pub async fn two_waits_for_one_event_have_it_once_each(lab: Lab) {
    // rules 14.1 and 14.6
    let worker = lab.worker("w").await;
    let both = |lab: &Lab| parks(vec![(1, any("order")), (2, order(1))], lab.now() + MINUTE);
    let operations = [1, 2].map(|at| opened(at, OperationKind::Event, "order"));
    let turn = Coded::parks(both(&lab)).tells(operations.to_vec());
    let id = lab.coded(worker, workflow(), turn).await;
    assert_eq!(lab.tell(known_as("e", ordered(1))).await, 1);
    let claimed = lab.claim(worker).await;
    assert_eq!(events(&claimed), [is("1", "e")]);
    let taken: Vec<_> = claimed.awaited.iter().collect();
    let park = parks(vec![(2, order(1))], lab.now() + MINUTE);
    let ended = completed(1, OperationKind::Event, "order", "1");
    let turn = Coded::parks(park).tells(vec![ended]).takes(&taken);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.claim.id(), id);
    assert_eq!(events(&claimed), [is("2", "e")]);
}

pub async fn a_crash_and_code_that_does_not_fit_lose_no_event(lab: Lab) {
    // rules 1.3, 12.4 and 14.6
    let worker = lab.worker("w").await;
    let claimed = awake(&lab, worker).await;
    let id = claimed.claim.id();
    let signals = claimed.awaited.clone();
    lab.tell(known_as("e", ordered(1))).await;
    lab.run(Op::GiveBack(vec![claimed.claim])).await;
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, Coded::then(unfit()).into()).await;
    lab.repair(id).await;
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, Coded::then(go_on()).into()).await;
    let claimed = lab.claim(worker).await;
    let taken: Vec<_> = signals.iter().collect();
    let turn = Coded::parks(for_order(&lab, 1)).takes(&taken);
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    assert_eq!(events(&lab.claim(worker).await), [is("1", "e")]);
}

pub async fn a_park_that_is_woken_at_once_loses_no_event(lab: Lab) {
    // rules 7.1 and 14.6: no waiter ever stood for it.
    let worker = lab.worker("w").await;
    let id = lab.start(workflow()).await;
    let claimed = lab.claim(worker).await;
    lab.signal(id, "s").await;
    let turn = begins(Then::Park(for_order(&lab, 1)));
    let answer = lab.commit(claimed.claim, turn.into()).await;
    assert_eq!(answer, Committed::Moved(Status::Runnable));
    lab.tell(known_as("e", ordered(1))).await;
    let claimed = lab.claim(worker).await;
    let park = for_order(&lab, 1);
    assert_eq!(parks_again(&lab, claimed, park).await, Status::Runnable);
    assert_eq!(events(&lab.claim(worker).await), [is("1", "e")]);
}

pub async fn a_new_run_begins_anew(lab: Lab) {
    // rules 2.4 and 14.6
    let worker = lab.worker("w").await;
    let claimed = awake(&lab, worker).await;
    lab.tell(ordered(1)).await;
    let next = Then::ContinueAsNew {
        state: super::build::json("2"),
        version: None,
    };
    lab.commit(claimed.claim, Coded::then(next).into()).await;
    let claimed = lab.claim(worker).await;
    let taken: Vec<_> = claimed.awaited.iter().collect();
    let turn = begins(Then::Park(parks(vec![(1, order(1))], lab.now() + MINUTE)));
    let answer = lab.commit(claimed.claim, turn.takes(&taken).into()).await;
    assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
}

pub async fn whatever_comes_between_the_first_match_ends_the_wait(lab: Lab) {
    // rules 14.1, 14.5 and 14.6
    let worker = lab.worker("w").await;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (mut published, mut first) = (0, None);
        let mut publish = async |rng: &mut Rng, matches: bool, first: &mut Option<String>| {
            published += 1;
            let event_id = format!("{seed}-{published}");
            // The time that it took does not determine when it comes.
            let now = lab.now();
            lab.clock.set(now - SECOND * rng.below(300) as u32);
            let order = ordered(if matches { seed as i64 } else { -1 });
            lab.publish(known_as(&event_id, order)).await;
            lab.clock.set(now);
            if matches {
                first.get_or_insert(event_id);
            }
        };
        publish(&mut rng, true, &mut None).await;
        let id = lab.start(workflow()).await;
        let claimed = lab.claim(worker).await;
        let then = match rng.chance(50) {
            true => go_on(),
            false => Then::Park(for_order(&lab, seed as i64)),
        };
        lab.commit(claimed.claim, begins(then).into()).await;
        let mut came = None;
        for turn in 0.. {
            lab.pass(SECOND);
            let last = turn > 12;
            if rng.chance(50) || last {
                let matches = rng.chance(25) || last;
                publish(&mut rng, matches, &mut first).await;
            }
            if rng.chance(40) {
                lab.deliver(signal(id, "s")).await;
            }
            if lab.status(id).await != Status::Runnable {
                continue;
            }
            let claimed = lab.claim(worker).await;
            assert_eq!(claimed.claim.id(), id);
            if let Some((_, event)) = events(&claimed).pop() {
                came = Some(event);
                let ends = Then::Done {
                    result: super::build::json("1"),
                };
                lab.commit(claimed.claim, Coded::then(ends).into()).await;
                break;
            }
            if rng.chance(40) {
                let matches = rng.chance(30);
                publish(&mut rng, matches, &mut first).await;
            }
            match rng.below(5) {
                0 => drop(lab.run(Op::GiveBack(vec![claimed.claim])).await),
                1 => drop(lab.commit(claimed.claim, Coded::then(go_on()).into()).await),
                2 => {
                    // It waits for something else too; what it was handed stays.
                    let park = Park {
                        signals: signal_waits(8, &["s", "t"]),
                        ..for_order(&lab, seed as i64)
                    };
                    lab.commit(claimed.claim, Coded::parks(park).into()).await;
                }
                _ => drop(parks_again(&lab, claimed, for_order(&lab, seed as i64)).await),
            }
        }
        assert_eq!(came, first, "seed {seed}");
        assert!(lab.waiters().await.is_empty());
    }
}
