//! Keys: the instances that they address, the starts that they refuse, and when they are free again.

use abide::client::{StartError, new_start};
use abide::model::{Key, Refusal, Scope};
use abide::store::Filter;
use abide::time::hours;
use abide::{Error, Job, Status, done, stop};
use serde_json::json;

use crate::common::{Lab, Script};

const OTHER: Job<u32, u32> = Job::new("other");

/// Ends well, or badly if its state is `"fail"`.
fn ending() -> Script {
    Script::new(|_, ctx| {
        if ctx.state() == "fail" {
            stop("on request")
        } else {
            done(ctx.state().clone())
        }
    })
}

fn holder<T: std::fmt::Debug>(started: Result<T, StartError>) -> abide::InstanceId {
    match started {
        Err(StartError::Duplicate { holder }) => holder,
        other => panic!("it should be a duplicate, but is {other:?}"),
    }
}

on_every_store! {
    async fn a_key_addresses_its_instance_and_keeps_others_out(lab: Lab) {
        // rule 2.2
        let first = lab.start(Script::any(), json!(1)).key("order:42").await.unwrap();
        assert!(first.is_new() && first.key().unwrap().as_str() == "order:42");
        let second = lab.start(Script::any(), json!(2)).key("order:42").await;
        let text = second.as_ref().unwrap_err().to_string();
        assert!(text.contains("duplicate") && text.contains(&first.id().to_string()), "{text}");
        assert_eq!(holder(second), first.id());
        // Whatever the machine, and from wherever.
        let other = lab.again().await;
        assert_eq!(holder(other.start(OTHER, 2).key("order:42").await), first.id());
        let found = other.get(Key::new("order:42").unwrap()).await.unwrap().unwrap();
        assert_eq!((found.id, found.state.as_str()), (first.id(), "1"));
        assert_eq!(lab.get(Key::new("order:43").unwrap()).await.unwrap(), None);
        assert_eq!(lab.list(&Filter::default(), None, 10).await.unwrap().items.len(), 1);
    }
}

on_every_store! {
    async fn or_existing_returns_the_instance_that_is_there_already(lab: Lab) {
        // rule 2.2
        let first = lab.start(Script::any(), json!("first")).key("order:1").or_existing().await.unwrap();
        let again = lab.start(Script::any(), json!("again")).key("order:1").or_existing().await.unwrap();
        assert!(first.is_new() && !again.is_new());
        assert_eq!(first.id(), again.id());
        let engine = lab.engine().machine(ending()).start().await.unwrap();
        assert_eq!(lab.came_to(&again).await, json!("first"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_key_is_free_again_when_its_holder_has_ended_and_finds_the_newest(lab: Lab) {
        // rule 2.2
        let engine = lab.engine().machine(ending()).start().await.unwrap();
        let mut last = None;
        for state in ["one", "fail", "three"] {
            let started = lab.start(Script::any(), json!(state)).key("order:1").await.unwrap();
            lab.ended(started.id()).await;
            let found = lab.get(Key::new("order:1").unwrap()).await.unwrap().unwrap();
            assert_eq!(found.id, started.id(), "the newest is found");
            assert_ne!(last.replace(started.id()), Some(started.id()));
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_key_is_taken_for_as_long_as_its_scope_says(lab: Lab) {
        // rule 2.2
        let engine = lab.engine().machine(ending()).start().await.unwrap();
        let start = |key: &str, state: &str, scope| lab.start(Script::any(), json!(state)).key(key).scope(scope);
        let once = Scope::LIVE.and(Status::Done);
        let done = start("once", "ok", once).await.unwrap();
        lab.ended(done.id()).await;
        assert_eq!(holder(start("once", "ok", once).await), done.id(), "it is done, and done once");
        let failed = start("until it works", "fail", once).await.unwrap();
        lab.ended(failed.id()).await;
        assert!(start("until it works", "ok", once).await.unwrap().is_new());
        let always = start("ever", "fail", Scope::ALWAYS).await.unwrap();
        lab.ended(always.id()).await;
        assert_eq!(holder(start("ever", "ok", Scope::LIVE).await), always.id());
        // In no status: the key is an address and nothing more.
        let start = |state: &str| lab.start(Script::any(), json!(state)).key("mere address").scope(Scope::NEVER);
        let (a, b) = (start("a").delay(hours(1)).await.unwrap(), start("b").delay(hours(1)).await.unwrap());
        assert_ne!(a.id(), b.id());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_unique_key_keeps_others_out_and_addresses_nothing(lab: Lab) {
        // rule 2.2
        let bytes = [0_u8, 255, 7];
        let first = lab.start(Script::any(), json!(1)).unique_key(bytes).await.unwrap();
        assert_eq!(holder(lab.start(Script::any(), json!(2)).unique_key(bytes).await), first.id());
        let same = lab.start(Script::any(), json!(3)).unique_key(bytes).or_existing().await.unwrap();
        assert_eq!(same.id(), first.id());
        lab.start(Script::any(), json!(4)).unique_key([1_u8]).await.unwrap();
        // A key and a unique key of the same bytes are two things.
        lab.start(Script::any(), json!(5)).key("text").await.unwrap();
        lab.start(Script::any(), json!(6)).unique_key("text").delay(hours(1)).await.unwrap();
        assert_eq!(lab.get(Key::new("text").unwrap()).await.unwrap().unwrap().state.as_str(), "5");
        // It has a scope of its own.
        let engine = lab.engine().machine(ending()).start().await.unwrap();
        let start = || lab.start(Script::any(), json!(7)).unique_key("day:1").unique_scope(Scope::ALWAYS);
        let ended = start().await.unwrap();
        lab.ended(ended.id()).await;
        assert_eq!(holder(start().await), ended.id());
        lab.ended(first.id()).await;
        assert!(lab.start(Script::any(), json!(8)).unique_key(bytes).await.unwrap().is_new());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_bad_key_is_refused_before_anything_is_written(lab: Lab) {
        // rule 2.2
        for (key, expected) in [
            ("", "empty"),
            ("42", "digits only"),
            ("a\nb", "control character"),
            (&"x".repeat(256), "longer than 255 bytes"),
        ] {
            let refused = [
                lab.start(Script::any(), json!(1)).key(key).await.err(),
                lab.start(Script::any(), json!(1)).partition(key).await.err(),
                lab.start_all([new_start(Script::any(), json!(1)), new_start(Script::any(), json!(2)).key(key)])
                    .await
                    .err()
                    .map(StartError::Error),
            ];
            for error in refused {
                let error = error.unwrap();
                let StartError::Error(Error::Refused(Refusal::BadName { .. })) = &error else { panic!("{error:?}") };
                assert!(error.to_string().contains(expected), "{error}");
            }
        }
        let long = lab.start(Script::any(), json!(1)).unique_key([7; 256]).await.unwrap_err();
        assert!(long.to_string().contains("hash it first"), "{long}");
        let queue = lab.start(Script::any(), json!(1)).queue("").key("fine").await.unwrap_err();
        assert!(queue.to_string().contains("empty"), "{queue}");
        assert_eq!(lab.list(&Filter::default(), None, 10).await.unwrap().items, []);
        for good in ["order:42", "ключ", "42a", &"x".repeat(255), " ", "a'b\"c%_\\"] {
            let started = lab.start(Script::any(), json!(1)).key(good).await.unwrap();
            assert_eq!(lab.get(Key::new(good).unwrap()).await.unwrap().unwrap().id, started.id(), "{good}");
        }
    }
}

on_every_store! {
    async fn of_many_callers_that_start_under_one_key_at_once_one_wins(lab: Lab) {
        // rule 2.2
        let handles = [lab.again().await, lab.again().await];
        let starts = (0..40).map(|n| {
            let abide = handles[n % 2].clone();
            tokio::spawn(async move { abide.start(Script::any(), json!(n)).key("contended").await })
        });
        let starts: Vec<_> = starts.collect();
        let (mut new, mut holders) = (Vec::new(), Vec::new());
        for start in starts {
            match start.await.unwrap() {
                Ok(handle) => new.push(handle.id()),
                Err(StartError::Duplicate { holder }) => holders.push(holder),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((new.len(), holders.len()), (1, 39));
        assert!(holders.iter().all(|holder| *holder == new[0]));
    }
}
