//! Waits of machines: what ends them, what is left of them, and what is refused.

use abide::client::event_of;
use abide::message::{eq, exists, gt, one_of};
use abide::model::{Json, Limits, Name};
use abide::store::{EventFilter, WaiterFilter};
use abide::testing::Kit;
use abide::time::{hours, millis, secs};
use abide::{Abide, Event, Signal, Status, done};
use serde_json::{Value, json};

use crate::common::{At, Lab, Script, eventually, soon};

const PAID: Signal<u32> = Signal::new("paid");

/// Waits for the tick whose `n` is its state, for an hour; ends with its payload.
fn waits() -> Script {
    Script::new(|at, ctx| match at {
        At::One => {
            let tick = Event::new("tick").matching("n", eq(ctx.state()));
            ctx.wait_for_event(tick).timeout(hours(1)).then(At::Two)
        }
        _ => done(json!([ctx.event::<Value>()?, ctx.timed_out()])),
    })
}

/// The number of registered waiters.
pub async fn standing(lab: &Abide) -> usize {
    lab.event_waits(&WaiterFilter::default(), None, 5_000)
        .await
        .unwrap()
        .items
        .len()
}

/// Waits until that many are registered.
pub async fn until_standing(lab: &Abide, count: usize) {
    eventually(&format!("{count} waiters"), async || {
        standing(lab).await == count
    })
    .await;
}

async fn matched(lab: &Abide, event_type: &str, payload: &Value) -> u32 {
    lab.publish(event_type, payload).await.unwrap().matched
}

on_every_store! {
    async fn an_event_and_a_signal_in_one_wait_and_the_first_ends_it(lab: Lab) {
        // rules 14.1, 14.5 and 7.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).or_event(Event::new("paid").matching("n", eq(1))).or_event(Event::new("void"))
                .timeout(hours(1)).then(At::Two),
            _ => {
                let signal = ctx.got(PAID).then(|| ctx.awaited(PAID)).transpose()?;
                done(json!([ctx.event::<Value>()?, signal]))
            }
        })).start().await.unwrap();
        for how in ["event", "other", "signal"] {
            let run = lab.start(Script::any(), json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!(standing(&lab).await, 2);
            let expected = match how {
                "event" => { assert_eq!(matched(&lab, "paid", &json!({"n": "1"})).await, 1); json!([{"n": "1"}, null]) }
                "other" => { assert_eq!(matched(&lab, "void", &json!(7)).await, 1); json!([7, null]) }
                _ => { lab.signal(run.id(), PAID, &5).await.unwrap(); json!([null, 5]) }
            };
            assert_eq!(lab.came_to(&run).await, expected, "{how}");
            assert_eq!(standing(&lab).await, 0, "rule 14.7");
            assert_eq!(matched(&lab, "void", &json!(8)).await, 0);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn all_waiters_get_it_and_the_conditions_are_a_conjunction(lab: Lab) {
        // rules 14.1 and 14.2
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => {
                let event = Event::new("tick").matching("n", one_of(ctx.state().as_array().unwrap()))
                    .matching("size", gt(5)).matching("void", exists(false));
                ctx.wait_for_event(event).timeout(hours(1)).then(At::Two)
            }
            _ => done(json!(ctx.event::<Value>()?)),
        })).start().await.unwrap();
        let mut runs = Vec::new();
        for list in [json!([1, 2]), json!(["2", 3]), json!([4]), json!([2.0, 2])] {
            runs.push(lab.start(Script::any(), list).await.unwrap());
        }
        for run in &runs {
            lab.until_status(run.id(), Status::AwaitingSignal).await;
        }
        assert_eq!(matched(&lab, "tick", &json!({"n": 2, "size": 5})).await, 0);
        assert_eq!(matched(&lab, "tick", &json!({"n": 2, "size": 6, "void": null})).await, 0);
        assert_eq!(matched(&lab, "tock", &json!({"n": 2, "size": 6})).await, 0);
        assert_eq!(matched(&lab, "tick", &json!({"size": 6})).await, 0);
        let event = json!({"n": 2, "size": 6});
        assert_eq!(matched(&lab, "tick", &event).await, 3);
        for at in [0, 1, 3] {
            assert_eq!(lab.came_to(&runs[at]).await, event);
        }
        assert_eq!(standing(&lab).await, 1);
        assert_eq!(lab.now(runs[2].id()).await.status, Status::AwaitingSignal);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn bodies_of_every_kind_and_size_stop_nothing(lab: Lab) {
        // rule 14.1
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for_event(Event::new("any")).timeout(hours(1)).then(At::Two),
            _ => done(json!(ctx.event::<Json>()?.unwrap().as_str().len())),
        })).start().await.unwrap();
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let deep = nested(127);
        let odd = json!({"": 0, "a.b": {"\u{0}": "\u{0}"}, "ключ": "\u{1f600}\"\\</"});
        let large = json!("x".repeat(1_000_000));
        for body in [json!(null), json!(true), json!(-0.5), json!(""), json!([]), json!({}), odd, large, deep] {
            let run = lab.start(Script::any(), json!(null)).await.unwrap();
            lab.until_status(run.id(), Status::AwaitingSignal).await;
            assert_eq!(matched(&lab, "any", &body).await, 1);
            assert_eq!(lab.came_to(&run).await, json!(body.to_string().len()));
            // What waits for a field of it is not disturbed either.
            assert_eq!(matched(&lab, "tick", &body).await, 0);
        }
        let run = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let large = json!("x".repeat(1 << 20));
        for (bad, limit) in [(&large, "payload_bytes"), (&nested(128), "json_depth"), (&nested(1_000), "json_depth")] {
            let refused = lab.publish("any", bad).await.unwrap_err().to_string();
            assert!(refused.contains(limit), "{refused}");
        }
        let each = lab.publish_all([event_of("any", &large), event_of("any", &json!(1))]).await.unwrap();
        assert!(each[0].is_err() && each[1].as_ref().is_ok_and(|one| one.matched == 1));
        assert_eq!(lab.came_to(&run).await, json!(1));
        for bad in ["", "a\u{0}b", &"x".repeat(250)] {
            assert!(lab.publish(bad, &json!(1)).await.is_err(), "{bad:?}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_event_id_makes_it_one_event_of_its_type(lab: Lab) {
        // rule 14.1
        let engine = lab.engine().machine(waits()).start().await.unwrap();
        let first = lab.publish("tick", &json!({"n": 1})).event_id("e").await.unwrap();
        let run = lab.start(Script::any(), json!(1)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let again = lab.publish("tick", &json!({"n": 1})).event_id("e").await.unwrap();
        assert_eq!((again.duplicate, again.matched, again.sequence), (true, 0, first.sequence));
        let other = lab.publish("tock", &json!({"n": 1})).event_id("e").await.unwrap();
        assert!(!other.duplicate && other.sequence != first.sequence);
        let tick = |id: &str| event_of("tick", &json!({"n": 1})).event_id(id);
        let each = lab.publish_all([tick("f"), tick("f"), tick("e")]).await.unwrap();
        let each: Vec<_> = each.into_iter().map(|one| one.unwrap()).map(|one| (one.duplicate, one.matched)).collect();
        assert_eq!(each, [(false, 1), (true, 0), (true, 0)]);
        assert_eq!(lab.came_to(&run).await, json!([{"n": 1}, false]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_looks_back_for_the_newest_only_when_it_has_a_lookback(lab: Lab) {
        // rule 14.6
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => {
                let mut tick = Event::new("tick").matching("n", gt(0));
                if ctx.state() == &json!(true) {
                    tick = tick.lookback(hours(1));
                }
                ctx.wait_for_event(tick).timeout(hours(1)).then(At::Two)
            }
            _ => done(json!(ctx.event::<Value>()?)),
        })).start().await.unwrap();
        for n in [1, 2, 0] {
            assert_eq!(matched(&lab, "tick", &json!({"n": n})).await, 0);
        }
        let back = lab.start(Script::any(), json!(true)).await.unwrap();
        assert_eq!(lab.came_to(&back).await, json!({"n": 2}));
        let plain = lab.start(Script::any(), json!(false)).await.unwrap();
        lab.until_status(plain.id(), Status::AwaitingSignal).await;
        assert_eq!(matched(&lab, "tick", &json!({"n": 3})).await, 1);
        assert_eq!(lab.came_to(&plain).await, json!({"n": 3}));
        assert_eq!(standing(&lab).await, 0);
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_wait_does_not_look_back_too_far_and_its_time_is_up_once() {
    // rules 14.5 and 14.6
    let script = Script::new(|at, ctx| match at {
        At::One => ctx
            .wait_for_event(Event::new("tick").lookback(secs(10)))
            .timeout(secs(60))
            .then(At::Two),
        _ => done(json!([ctx.event::<Value>()?, ctx.timed_out()])),
    });
    let kit = Kit::builder().machine(script).build().await.unwrap();
    kit.publish("tick", &json!("old")).await.unwrap();
    kit.advance(secs(11)).await;
    let run = kit.start(Script::any(), json!(null)).await.unwrap();
    kit.settle().await;
    assert_eq!(standing(&kit).await, 1);
    kit.advance(secs(59)).await;
    kit.assert_status(&run, Status::AwaitingSignal).await;
    kit.advance(secs(1)).await;
    kit.assert_done(&run, &json!([null, true])).await;
    assert_eq!(standing(&kit).await, 0);
    assert_eq!(
        kit.publish("tick", &json!("late")).await.unwrap().matched,
        0
    );
}

on_every_store! {
    async fn what_cannot_be_waited_for_is_refused_with_all_that_is_wrong(lab: Lab) {
        // rules 14.2 and 14.5
        let engine = lab.engine().machine(Script::new(|_, ctx| match ctx.state().as_str().unwrap() {
            "forever" => ctx.wait_for_event(Event::new("tick")).then(At::Two),
            "zero" => ctx.wait_for_event(Event::new("tick")).timeout(millis(0)).then(At::Two),
            "named" => ctx.wait_for("event:tick").timeout(hours(1)).then(At::Two),
            _ => {
                let tick = Event::new("tick").matching("a..b", eq(1)).matching("", eq(1)).matching("c", gt(true))
                    .matching("d", exists(true)).matching("e", one_of(vec![0; 101]));
                ctx.wait_for_event(tick).timeout(hours(1)).then(At::Two)
            }
        })).start().await.unwrap();
        let wrongs = [("forever", vec!["timeout"]), ("zero", vec!["timeout"]), ("named", vec!["event"]),
            ("all", vec!["a..b", "empty", "c gt", "e in"])];
        for (how, expected) in wrongs {
            let run = lab.start(Script::any(), json!(how)).await.unwrap();
            let what = format!("{how} to be refused");
            let row = lab.until(run.id(), &what, |row| row.last_error.is_some()).await;
            let error = row.last_error.clone().unwrap();
            for part in expected {
                assert!(error.contains(part), "{how}: {error}");
            }
            assert!(row.status != Status::AwaitingSignal);
        }
        assert_eq!(standing(&lab).await, 0);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_that_looks_like_an_event_cannot_be_sent(lab: Lab) {
        // rule 14.1
        let engine = lab.engine().machine(waits()).start().await.unwrap();
        let run = lab.start(Script::any(), json!(1)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let sent = lab.signal(run.id(), "event:tick", vec![Json::from(json!({"n": 1}))].into()).await;
        assert!(sent.is_err());
        assert_eq!(standing(&lab).await, 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn no_more_wait_for_a_type_than_may_and_those_there_are_untouched(lab: Lab) {
        // rule 14.7
        let limits = Limits { waiters_per_type: 2, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let engine = lab.engine().machine(waits()).start().await.unwrap();
        let mut runs = Vec::new();
        for n in [1, 2, 3] {
            let run = lab.start(Script::any(), json!(n)).await.unwrap();
            lab.until(run.id(), "it to wait or be refused", |row| row.status == Status::AwaitingSignal || row.last_error.is_some()).await;
            runs.push(run);
        }
        let refused = lab.now(runs[2].id()).await;
        assert!(refused.last_error.as_ref().is_some_and(|error| error.contains("waiters_per_type")), "{:?}", refused.last_error);
        assert_eq!(standing(&lab).await, 2);
        for n in [1, 2] {
            assert_eq!(matched(&lab, "tick", &json!({"n": n})).await, 1);
            assert_eq!(lab.came_to(&runs[n - 1]).await, json!([{"n": n}, false]));
        }
        let run = lab.start(Script::any(), json!(4)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn cancelling_leaves_no_waiter_and_removes_none_but_its_own(lab: Lab) {
        // rule 14.7
        let engine = lab.engine().machine(waits()).start().await.unwrap();
        let one = lab.start(Script::any(), json!(1)).await.unwrap();
        let two = lab.start(Script::any(), json!(1)).await.unwrap();
        until_standing(&lab, 2).await;
        lab.cancel(one.id(), "enough").await.unwrap();
        lab.ended(one.id()).await;
        let left = lab.event_waits(&WaiterFilter::default(), None, 9).await.unwrap().items;
        assert_eq!(left.iter().map(|waiter| waiter.instance).collect::<Vec<_>>(), [two.id()]);
        assert_eq!(matched(&lab, "tick", &json!({"n": 1})).await, 1);
        assert_eq!(lab.came_to(&two).await, json!([{"n": 1}, false]));
        assert_eq!(lab.now(one.id()).await.status, Status::Cancelled);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn events_and_waits_are_listed_by_pages(lab: Lab) {
        // rules 14.1 and 14.7
        let engine = lab.engine().machine(waits()).start().await.unwrap();
        let mut runs = Vec::new();
        for n in 0..5 {
            runs.push(lab.start(Script::any(), json!(n)).await.unwrap());
        }
        until_standing(&lab, 5).await;
        let before = lab.now(runs[0].id()).await;
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = lab.event_waits(&WaiterFilter::default(), after, 2).await.unwrap();
            assert!(page.items.len() <= 2);
            seen.extend(page.items);
            after = page.next;
            if after.is_none() { break; }
        }
        assert_eq!(seen.iter().map(|waiter| waiter.instance).collect::<Vec<_>>(), runs.iter().map(|run| run.id()).collect::<Vec<_>>());
        assert_eq!(seen[0].path, "n");
        assert!(seen[0].since <= seen[0].deadline.unwrap() && seen[0].deadline == before.due_at);
        let of = WaiterFilter { instance: Some(runs[3].id()), event_type: Some(Name::new("tick").unwrap()) };
        assert_eq!(lab.event_waits(&of, None, 9).await.unwrap().items, [seen[3].clone()]);
        let none = WaiterFilter { event_type: Some(Name::new("tock").unwrap()), ..of };
        assert!(lab.event_waits(&none, None, 9).await.unwrap().items.is_empty());
        for n in 10..17 {
            lab.publish(if n % 2 == 0 { "even" } else { "odd" }, &json!(n)).await.unwrap();
        }
        let (mut seen, mut before) = (Vec::new(), None);
        let even = EventFilter { event_type: Some(Name::new("even").unwrap()) };
        loop {
            let page = Abide::events(&lab, &even, before, 3).await.unwrap();
            seen.extend(page.items.into_iter().map(|event| event.payload.to::<u32>().unwrap()));
            before = page.next;
            if before.is_none() { break; }
        }
        assert_eq!(seen, [16, 14, 12, 10], "newest first");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_restart_with_open_waits_and_no_other_traffic_loses_no_event_and_no_deadline(lab: Lab) {
        // rules 14.1, 14.5 and 4.3
        let script = || Script::new(|at, ctx| match at {
            At::One => {
                let time = if ctx.state() == &json!("short") { secs(2) } else { hours(1) };
                ctx.wait_for_event(Event::new("tick").matching("n", eq(ctx.state()))).timeout(time).then(At::Two)
            }
            _ => done(json!([ctx.event::<Value>()?, ctx.timed_out()])),
        });
        let killable = lab.killable(move |engine| engine.machine(script())).await;
        let long = lab.start(Script::any(), json!("long")).await.unwrap();
        let other = lab.start(Script::any(), json!("other")).await.unwrap();
        let short = lab.start(Script::any(), json!("short")).await.unwrap();
        until_standing(&lab, 3).await;
        let due = lab.now(short.id()).await.due_at.unwrap();
        killable.die().await;
        // No engine runs now.
        assert_eq!(matched(&lab, "tick", &json!({"n": "long"})).await, 1);
        let again = lab.again().await;
        let engine = again.engine().poll(hours(1)).machine(script()).start().await.unwrap();
        assert_eq!(lab.came_to(&long).await, json!([{"n": "long"}, false]));
        assert_eq!(lab.came_to(&short).await, json!([null, true]));
        let ended = lab.now(short.id()).await.finished_at.unwrap();
        let late = ended.as_micros() - due.as_micros();
        assert!((0..2_000_000).contains(&late), "{late} µs");
        assert_eq!(matched(&lab, "tick", &json!({"n": "other"})).await, 1);
        assert_eq!(lab.came_to(&other).await, json!([{"n": "other"}, false]));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_thousand_waits_and_a_thousand_events_from_two_sides_are_a_thousand_matches(lab: Lab) {
        // rules 14.1 and 14.4
        const MANY: u32 = 1_000;
        let (one, two) = (lab.again().await, lab.again().await);
        let engines = [one.engine().name("one").machine(waits()).start().await.unwrap(),
            two.engine().name("two").machine(waits()).start().await.unwrap()];
        let specs = (0..MANY).map(|n| abide::client::new_start(Script::any(), json!(n)));
        let runs = lab.start_all(specs).await.unwrap();
        let publish = |from: Abide, odd: u32| async move {
            let mut matched = 0;
            for start in (0..MANY).step_by(50) {
                let events = (start..start + 50).filter(|n| n % 2 == odd);
                let events: Vec<_> = events.map(|n| event_of("tick", &json!({"n": n})).event_id(format!("e{n}"))).collect();
                for one in from.publish_all(events).await.unwrap() {
                    matched += one.unwrap().matched;
                }
            }
            matched
        };
        soon("all to wait", async {
            while standing(&lab).await < MANY as usize { tokio::time::sleep(millis(20)).await; }
        }).await;
        let (odd, even) = tokio::join!(tokio::spawn(publish(one.clone(), 1)), tokio::spawn(publish(two.clone(), 0)));
        assert_eq!((odd.unwrap(), even.unwrap()), (MANY / 2, MANY / 2));
        for (n, run) in (0..MANY).zip(runs) {
            let run = run.unwrap();
            assert_eq!(lab.ended(run.id()).await.result.unwrap().to::<Value>().unwrap(), json!([{"n": n}, false]));
            let taken = lab.kinds(run.id()).await.into_iter().filter(|kind| *kind == "event_matched").count();
            assert_eq!(taken, 1);
        }
        assert_eq!(standing(&lab).await, 0);
        for engine in engines {
            engine.shutdown().await;
        }
    }
}
