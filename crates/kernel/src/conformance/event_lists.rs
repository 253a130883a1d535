//! Events and waits for them, as they are listed, and how long they are kept.

use abide_core::model::{EventSequence, InstanceId, Operator};

use super::build::{SECOND, name, plain};
use super::eventing::{any, arguments_of, awaits, known_as, order, ordered, publishing, that};
use super::lab::{Lab, command_ids};
use crate::{EventFilter, Op, SweepRequest, WaiterFilter};

pub async fn events_are_listed_newest_first_page_by_page(lab: Lab) {
    // rule 14.1
    for at in 0..7 {
        lab.publish(ordered(at)).await;
        lab.publish(publishing("paid", "1")).await;
    }
    for of_type in [Some(name("order")), None, Some(name("none"))] {
        let filter = EventFilter {
            event_type: of_type.clone(),
        };
        let expected: Vec<EventSequence> = lab
            .published()
            .await
            .iter()
            .filter(|event| of_type.as_ref().is_none_or(|of| event.event_type == *of))
            .map(|event| event.sequence)
            .collect();
        let (mut met, mut before) = (Vec::new(), None);
        loop {
            let page = lab.store.events(&filter, before, 3).await.unwrap();
            assert!(page.items.len() <= 3);
            met.extend(page.items.iter().map(|event| event.sequence));
            match page.next {
                Some(_) => before = page.next,
                None => break,
            }
        }
        assert!(met.is_sorted_by(|one, other| one > other));
        assert_eq!(met, expected);
    }
    let exact = lab.store.events(&EventFilter::default(), None, 14).await;
    assert_eq!(exact.unwrap().next, None, "a full page may be the last");
}

pub async fn waiters_are_listed_page_by_page(lab: Lab) {
    // rule 14.7
    let worker = lab.worker("w").await;
    let mut expected = Vec::new();
    for at in 0..4 {
        let one_of = that(any("paid"), "id", Operator::In, "[1,2,\"1\",3]");
        let waits = awaits(vec![order(at), one_of, any("order")], &["s"]);
        let id = lab.awaiting(worker, plain(), waits).await;
        expected.extend([(id, 0, "order"), (id, 1, "paid"), (id, 2, "order")]);
    }
    let chosen = expected[4].0;
    for (of_type, instance) in [
        (None, None),
        (Some("order"), None),
        (Some("paid"), None),
        (None, Some(chosen)),
        (Some("paid"), Some(chosen)),
        (Some("none"), None),
    ] {
        let filter = WaiterFilter {
            event_type: of_type.map(name),
            instance,
        };
        let (mut met, mut after) = (Vec::new(), None);
        loop {
            let page = lab.store.waiters(&filter, after, 2).await.unwrap();
            assert!(page.items.len() <= 2);
            let items = page.items.into_iter();
            met.extend(items.map(|one| (one.instance, one.position, one.event_type)));
            match page.next {
                Some(_) => after = page.next,
                None => break,
            }
        }
        let wanted = |one: &&(InstanceId, u32, &str)| {
            of_type.is_none_or(|of| of == one.2) && instance.is_none_or(|id| id == one.0)
        };
        let expected = expected.iter().filter(wanted);
        let expected: Vec<_> = expected.map(|(id, at, of)| (*id, *at, name(of))).collect();
        assert_eq!(met, expected, "{filter:?}");
    }
}

pub async fn events_are_kept_for_a_time_and_then_forgotten(lab: Lab) {
    // rules 14.1 and 16.2
    let sweep = |before, limit| {
        let lab = lab.clone();
        async move {
            let request = SweepRequest {
                before,
                after: None,
                limit,
            };
            lab.run(Op::Sweep(request)).await;
            lab.published().await.len()
        }
    };
    for at in 0..5 {
        let event = known_as(&format!("e{at}"), ordered(at));
        lab.publish(event).await;
        lab.pass(SECOND);
    }
    let begin = lab.now() - 5 * SECOND;
    assert_eq!(sweep(begin, 10).await, 5, "they are not older than that");
    assert_eq!(sweep(begin + 4 * SECOND, 3).await, 2, "a batch is bounded");
    assert_eq!(
        sweep(begin + 4 * SECOND, 3).await,
        1,
        "the oldest went first"
    );
    assert_eq!(lab.published().await[0].event_id, name("e4"));
    assert!(lab.publish(known_as("e4", ordered(4))).await.duplicate);
    let again = lab.publish(known_as("e0", ordered(0))).await;
    assert!(!again.duplicate, "what was forgotten is not known any more");
}

pub async fn what_was_forgotten_stays_in_the_inbox(lab: Lab) {
    // rules 7.6 and 16.2
    let worker = lab.worker("w").await;
    let waits = awaits(vec![order(1)], &[]);
    let id = lab.awaiting(worker, plain(), waits).await;
    lab.tell(ordered(1)).await;
    lab.pass(SECOND);
    let request = SweepRequest {
        before: lab.now(),
        after: None,
        limit: 100,
    };
    lab.run(Op::Sweep(request)).await;
    assert!(lab.published().await.is_empty());
    let claimed = lab.claim(worker).await;
    assert_eq!(command_ids(&claimed.awaited), lab.inbox(id).await);
    assert_eq!(claimed.awaited[0].arguments, arguments_of("{\"id\":1}"));
}
