//! A signal that starts its target.

use abide::client::new_start;
use abide::store::Filter;
use abide::{Status, done};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::signals::{NOTE, PAID, decision, payment, sent_to};

on_every_store! {
    async fn it_starts_with_the_signal_in_its_inbox_or_goes_to_the_instance_that_is_there(lab: Lab) {
        // rule 7.9
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).then(At::Two),
            _ if ctx.signals().len() < 2 => ctx.wait_for(PAID).then(At::Two),
            _ => done(json!([ctx.state(), ctx.awaited_all(PAID)?.iter().map(|one| one.amount).collect::<Vec<_>>()])),
        })).start().await.unwrap();
        let send = |state: &str, amount: i64| {
            let order = new_start(Script::any(), json!(state)).key("order:1");
            lab.signal_with_start(order, PAID, &payment(amount))
        };
        let first = send("first", 1).await.unwrap();
        let second = send("second", 2).await.unwrap();
        assert!(first.started && !second.started);
        assert_eq!(first.instance(), second.instance());
        assert_eq!((first.sequence().unwrap().0, second.sequence().unwrap().0), (1, 2));
        let id = first.instance().unwrap();
        assert_eq!(crate::signals::value(&lab.ended(id).await.result.unwrap()), json!(["first", [1, 2]]));
        // No instance has the key any more, so another is started.
        let third = send("third", 3).dedup("d").await.unwrap();
        assert!(third.started && third.instance() != Some(id));
        assert_eq!(third.sequence().unwrap().0, 1, "a chain of its own");
        let again = send("third", 3).dedup("d").await.unwrap();
        assert!(again.duplicate && !again.started && again.id() == third.id());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn when_the_signal_would_be_refused_nothing_starts(lab: Lab) {
        // rules 7.9 and 8.2
        let order = || new_start(crate::signals::Strict, json!(null)).key("order:1");
        let unknown = lab.signal_with_start(order(), NOTE, &"a".into()).await.unwrap_err();
        assert_eq!(decision(&unknown), ("rejected_unknown_signal", Some("unknown_signal")));
        let bad: abide::Signal<String> = abide::Signal::new("paid");
        let invalid = lab.signal_with_start(order(), bad, &"five".into()).await.unwrap_err();
        assert_eq!(decision(&invalid).1, Some("invalid_signal_arguments"));
        assert!(lab.list(&Filter::default(), None, 10).await.unwrap().items.is_empty());
        let good = lab.signal_with_start(order(), PAID, &payment(1)).await.unwrap();
        assert!(good.started);
        assert_eq!(lab.now(good.instance().unwrap()).await.status, Status::Runnable);
    }
}

on_every_store! {
    async fn a_start_without_a_key_is_refused(lab: Lab) {
        // rule 7.9
        let error = lab.signal_with_start(new_start(Script::any(), json!(null)), PAID, &payment(1)).await.unwrap_err();
        assert!(error.outcome().is_none() && error.to_string().contains("key"), "{error}");
        assert!(lab.list(&Filter::default(), None, 10).await.unwrap().items.is_empty());
    }
}

on_every_store! {
    async fn of_fifty_at_once_one_starts_and_all_are_delivered(lab: Lab) {
        // rules 2.2 and 7.9
        let engine = lab.engine().machine(Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(PAID).then(At::Two),
            _ if ctx.signals().len() < 50 => ctx.wait_for(PAID).then(At::Two),
            _ => done(json!(ctx.awaited_all(PAID)?.iter().map(|one| one.amount).sum::<i64>())),
        })).start().await.unwrap();
        let other = lab.again().await;
        let sends = (0..50).map(|n| {
            let abide = if n % 2 == 0 { (*lab).clone() } else { other.clone() };
            tokio::spawn(async move {
                let order = new_start(Script::any(), json!(null)).key("order:1");
                abide.signal_with_start(order, PAID, &payment(n)).await.unwrap()
            })
        });
        let mut started = 0;
        let mut id = None;
        for send in sends.collect::<Vec<_>>() {
            let receipt = send.await.unwrap();
            started += usize::from(receipt.started);
            assert!(id.is_none() || id == receipt.instance());
            id = receipt.instance();
        }
        assert_eq!(started, 1);
        assert_eq!(crate::signals::value(&lab.ended(id.unwrap()).await.result.unwrap()), json!((0..50).sum::<i64>()));
        assert!(sent_to(&lab, id.unwrap()).await.iter().map(|one| one.sequence.unwrap().0).eq(1..=50));
        engine.shutdown().await;
    }
}
