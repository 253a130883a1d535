//! The signals that wake a step, and those that it then gets.

use abide::model::{Cause, WaitKind};
use abide::{Status, done, next};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{GO, NOTE, PAID, Payment, args, parked, payment, sent_to, value, waits_for};

on_every_store! {
    async fn a_signal_wakes_the_step_that_waits_for_it_with_what_it_was_sent_with(lab: Lab) {
        // rules 7.1 and 7.4
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).then(At::Two),
            _ => {
                assert!(ctx.got(PAID) && ctx.got("paid") && !ctx.got(NOTE) && !ctx.timed_out());
                assert_eq!((ctx.cause(), ctx.attempt(), ctx.signals().len()), (Cause::Signal, 0, 1));
                assert!(ctx.awaited(NOTE).unwrap_err().to_string().contains("there is no \"note\" among them"));
                assert!(ctx.awaited_all(NOTE)?.is_empty() && ctx.payload("note").is_none());
                done(json!(ctx.awaited(PAID)?))
            }
        })).start().await.unwrap();
        let id = parked(&lab, "order:1").await;
        let row = lab.now(id).await;
        assert_eq!((row.wait_kind(), row.due_at, row.awaited().len()), (Some(WaitKind::Signal), None, 1));
        let sent = Payment { amount: 7, note: Some("for the kettle".into()) };
        let receipt = lab.signal("order:1", PAID, &sent).await.unwrap();
        assert_eq!((receipt.instance(), receipt.sequence().unwrap().0, receipt.duplicate), (Some(id), 1, false));
        assert_eq!(receipt.record.outcome(), "signal_received");
        let row = lab.ended(id).await;
        assert_eq!(row.result.as_ref().unwrap().to::<Payment>().unwrap(), sent);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn any_of_several_names_wakes(lab: Lab) {
        // rule 7.2
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One if ctx.state() == "any" => ctx.wait_for_any(["paid", "note", "stopped"]).then(At::Two),
            At::One => ctx.wait_for(PAID).or(NOTE).or("stopped").then(At::Two),
            _ => done(json!(ctx.signals().iter().map(|one| one.name.as_str()).collect::<Vec<_>>())),
        })).start().await.unwrap();
        for how in ["or", "any"] {
            let keys = ["a", "b", "c"].map(|one| format!("{how}:{one}"));
            let mut orders = Vec::new();
            for key in &keys {
                let order = lab.start(Script::any(), json!(how)).key(key).await.unwrap();
                assert_eq!(lab.until_status(order.id(), Status::AwaitingSignal).await.awaited().len(), 3);
                orders.push(order);
            }
            lab.signal(&keys[0], PAID, &payment(1)).await.unwrap();
            lab.signal(&keys[1], NOTE, &"hello".into()).await.unwrap();
            lab.signal(&keys[2], "stopped", args(&[])).await.unwrap();
            for (order, name) in orders.iter().zip(["paid", "note", "stopped"]) {
                assert_eq!(lab.came_to(order).await, json!([name]));
            }
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_signal_that_is_not_waited_for_wakes_nothing_and_stays_for_a_later_wait(lab: Lab) {
        // rules 7.2 and 7.4
        let engine = lab.engine().machine(Script::waiting(|at, ctx| Box::pin(async move {
            let there: Vec<String> = ctx.inbox().await?.iter().map(|one| one.name.to_string()).collect();
            match at {
                At::One => ctx.wait_for(GO).then(At::Two),
                At::Two => {
                    assert_eq!(there, ["note", "go"], "all of them");
                    assert!(ctx.got(GO) && !ctx.got(NOTE), "it was handed what it waited for");
                    ctx.wait_for(NOTE).then(At::Three)
                }
                At::Three => {
                    assert!(ctx.got(NOTE) && !ctx.got(GO));
                    done(json!(ctx.awaited(NOTE)?))
                }
            }
        }))).start().await.unwrap();
        let id = parked(&lab, "order:1").await;
        lab.signal(id, NOTE, &"early".into()).await.unwrap();
        let row = lab.now(id).await;
        assert_eq!((row.status, row.inbox.signals), (Status::AwaitingSignal, 1));
        assert_eq!(lab.describe(id).await.unwrap().unwrap().liveness.name(), "waiting_for_signal");
        lab.signal(id, GO, &()).await.unwrap();
        assert_eq!(value(&lab.ended(id).await.result.unwrap()), json!("early"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_a_wait_yields_depends_on_how_many_arguments_there_were(lab: Lab) {
        // rule 8.4
        let engine = lab.engine().machine(waits_for("x")).start().await.unwrap();
        let object = json!({"a": 1, "b": [2]});
        for (at, (sent, yielded)) in [
            (args(&[]), json!(true)),
            (args(&[json!("one")]), json!("one")),
            (args(&[json!(null)]), json!(null)),
            (args(&[json!(1), json!([2]), json!({"three": 3})]), json!([1, [2], {"three": 3}])),
            (abide::message::Arguments::Payload(abide::model::Json::of(&object).unwrap()), object.clone()),
            (crate::signals::named(&[("a", json!(1)), ("b", json!([2]))]), object.clone()),
        ].into_iter().enumerate() {
            let order = lab.start(Script::any(), json!(null)).key(format!("order:{at}a")).await.unwrap();
            lab.signal(&order, "x", sent).await.unwrap();
            assert_eq!(lab.came_to(&order).await, yielded);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn typed_and_untyped_senders_and_receivers_understand_each_other(lab: Lab) {
        // rules 8.3 and 8.4
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).then(At::Two),
            _ => done(json!([ctx.awaited(PAID)?, value(&ctx.payload("paid").unwrap())])),
        })).start().await.unwrap();
        let whole = json!({"amount": 5, "note": null});
        let orders = ["typed", "named", "payload", "positional"];
        let mut handles = Vec::new();
        for key in orders {
            handles.push(lab.start(Script::any(), json!(null)).key(key).await.unwrap());
        }
        lab.signal("typed", PAID, &payment(5)).await.unwrap();
        lab.signal("named", "paid", crate::signals::named(&[("amount", json!(5))])).await.unwrap();
        let payload = abide::message::Arguments::Payload(abide::model::Json::of(&json!({"amount": 5})).unwrap());
        lab.signal("payload", "paid", payload).await.unwrap();
        lab.signal("positional", "paid", args(&[json!(5), json!(null)])).await.unwrap();
        for handle in &handles {
            assert_eq!(lab.came_to(handle).await[0], whole);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_cannot_be_read_as_its_type_blocks_the_instance(lab: Lab) {
        // rules 8.4 and 12.4: a build whose type is another one may read it
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).then(At::Two),
            _ => done(json!(ctx.awaited(PAID)?)),
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).await.unwrap();
        lab.signal(&order, "paid", args(&[json!("five")])).await.unwrap();
        lab.until(order.id(), "it to be blocked", |row| row.is_blocked()).await;
        let why = lab.describe(order.id()).await.unwrap().unwrap().reason.unwrap().text;
        assert!(why.contains("the value of a signal") && why.contains("paid"), "{why}");
        // It is there for the build that can read it.
        assert_eq!(sent_to(&lab, order.id()).await[0].status.name(), "received");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_wait_whose_name_is_none_or_that_waits_for_nothing_goes_to_the_error_handler(lab: Lab) {
        // rules 4.2 and 5.2
        let engine = lab.engine().machine(Script::new(|_, ctx| match ctx.state().as_str() {
            Some("nothing") => ctx.wait_for_any(Vec::<&str>::new()).then(At::Two),
            Some("name") => ctx.wait_for("").or("fine").then(At::Two),
            Some("many") => ctx.wait_for_any((0..101).map(|n| format!("s{n}"))).then(At::Two),
            _ => ctx.wait_for("fine").or("\u{7}").then(At::Two),
        })).start().await.unwrap();
        for (how, expected) in [("nothing", "it waits for nothing"), ("name", "name"), ("control", "control"),
            ("many", "names_per_wait")] {
            let order = lab.start(Script::any(), json!(how)).await.unwrap();
            let error = lab.failed_of(&order).await;
            assert!(error.contains(expected), "{how}: {error}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn each_signal_is_consumed_by_the_outcome_of_the_step_that_was_handed_it(lab: Lab) {
        // rules 4.1, 7.6 and 7.7
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(GO).then(At::Two),
            // A step tried again keeps what it was handed.
            At::Two if ctx.attempt() == 0 => {
                assert!(ctx.got(GO));
                abide::machine::retry_in(abide::time::millis(1))
            }
            At::Two => {
                assert!(ctx.got(GO));
                next(At::Three)
            }
            At::Three => {
                assert!(!ctx.got(GO) && ctx.signals().is_empty());
                done(json!("through"))
            }
        })).start().await.unwrap();
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.signal(&order, GO, &()).await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!("through"));
        let sent = sent_to(&lab, order.id()).await;
        assert_eq!((sent[0].status.name(), sent[0].step_sequence), ("applied", Some(2)));
        assert_eq!(lab.now(order.id()).await.inbox.cursor.0, 1);
        let kinds = lab.kinds(order.id()).await;
        let moved = kinds.iter().position(|kind| *kind == "message_cursor_advanced").unwrap();
        assert_eq!(kinds[moved - 1], "signal_applied");
        engine.shutdown().await;
    }
}
