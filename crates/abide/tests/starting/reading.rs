//! Finding instances: by id, by key, in lists.

use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::model::{Key, Name};
use abide::store::Filter;
use abide::time::hours;
use abide::{InstanceId, Job, Status, done};
use serde_json::json;

use crate::common::{Lab, Script};

const MAIL: Job<u32, u32> = Job::new("mail").queue("post");

on_every_store! {
    async fn a_list_is_paged_newest_first(lab: Lab) {
        let started = lab.start_all((0..25).map(|n| new_start(MAIL, n))).await.unwrap();
        let mut newest: Vec<_> = started.into_iter().map(|one| one.unwrap().id()).collect();
        newest.reverse();
        let (mut seen, mut before, mut pages) = (Vec::new(), None, Vec::new());
        loop {
            let page = lab.list(&Filter::default(), before, 10).await.unwrap();
            pages.push(page.items.len());
            seen.extend(page.items.into_iter().map(|row| row.id));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), (newest, vec![10, 10, 5]));
    }
}

on_every_store! {
    async fn a_list_shows_what_meets_every_condition(lab: Lab) {
        let engine = lab.engine().machine(Script::new(|_, _| done(json!(null)))).start().await.unwrap();
        let ended = lab.start(Script::any(), json!(0)).key("order:1").await.unwrap();
        lab.came_to(&ended).await;
        let waiting = lab.start(Script::any(), json!(0)).key("order:2").delay(hours(1)).await.unwrap();
        let mail = lab.start(MAIL, 1).key("order:3%_").await.unwrap();
        let other = lab.start(MAIL, 1).key("invoice:1").await.unwrap();
        let name = |text: &str| Some(Name::new(text).unwrap());
        let prefix = |text: &str| Some(text.to_owned());
        let all = Filter::default();
        for (filter, expected) in [
            (Filter { status: Some(Status::Done), ..all.clone() }, vec![ended.id()]),
            (Filter { machine: name("script"), ..all.clone() }, vec![waiting.id(), ended.id()]),
            (Filter { queue: name("post"), ..all.clone() }, vec![other.id(), mail.id()]),
            (Filter { key_prefix: prefix("order:"), ..all.clone() }, vec![mail.id(), waiting.id(), ended.id()]),
            (Filter { key_prefix: prefix("order:3%"), ..all.clone() }, vec![mail.id()]),
            (Filter { key_prefix: prefix("%"), ..all.clone() }, vec![]),
            (Filter { machine: name("mail"), key_prefix: prefix("order:"), ..all.clone() }, vec![mail.id()]),
            (Filter { status: Some(Status::Scheduled), queue: name("post"), ..all.clone() }, vec![]),
            (Filter { parent: Some(ended.id()), ..all.clone() }, vec![]),
        ] {
            let found: Vec<_> = lab.list(&filter, None, 10).await.unwrap().items.iter().map(|row| row.id).collect();
            assert_eq!(found, expected, "{filter:?}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_is_not_there_is_not_found(lab: Lab) {
        let missing = InstanceId(987_654_321);
        assert_eq!(lab.get(missing).await.unwrap(), None);
        assert_eq!(lab.get(Key::new("missing").unwrap()).await.unwrap(), None);
        assert!(lab.handle::<u32>(missing).await.unwrap().is_none());
        assert_eq!(lab.history(missing).await.unwrap(), []);
        assert_eq!(lab.depths().await.unwrap(), []);
        assert_eq!(lab.workers().await.unwrap(), []);
    }
}

on_every_store! {
    async fn a_history_begins_with_how_the_instance_was_started(lab: Lab) {
        // rule 16.1
        let mail = lab.start(MAIL, 7).key("mail:7").await.unwrap();
        let history = mail.history().await.unwrap();
        assert_eq!((history.len(), history[0].seq), (1, 1));
        let HistoryEvent::Started { machine, version, step, key, parent, .. } = &history[0].what else {
            panic!("{history:?}")
        };
        assert_eq!((machine.as_str(), *version, step.as_str()), ("mail", 1, "run"));
        assert_eq!((key.as_ref().unwrap().as_str(), *parent), ("mail:7", None));
        assert_eq!(history[0].at, lab.now(mail.id()).await.created_at);
    }
}

on_every_store! {
    async fn a_long_history_is_read_whole_and_in_order(lab: Lab) {
        // rule 16.1
        // More commits than are read at once.
        const STEPS: u64 = 1_010;
        let engine = lab.engine().machine(Script::new(|_, ctx| {
            let n = ctx.state().as_u64().unwrap() + 1;
            *ctx.state_mut() = json!(n);
            if n == STEPS { done(json!(n)) } else { abide::next(crate::common::At::One) }
        }));
        let engine = engine.start().await.unwrap();
        let long = lab.start(Script::any(), json!(0)).await.unwrap();
        lab.came_to(&long).await;
        let history = lab.events(long.id()).await;
        assert_eq!(history.len() as u64, STEPS + 2);
        assert!(history.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        assert!(history.is_sorted_by_key(|entry| entry.at));
        engine.shutdown().await;
    }
}
