//! Limits on what is stored and waited for, at every entrance.

use abide_core::model::{
    BarrierNumber, Delivered, InstanceId, NewCommand, Operator, Outcome, Refusal, Rejection, Start,
    Verdict,
};

use super::build::{MINUTE, done, json, key, keyed, next, paying, plain, spawn, wait};
use super::eventing::{any, awaits, publishing, that};
use super::lab::{Lab, ids as ids_of};
use super::remote_claims::lease;
use crate::{CommandFilter, EventFilter, Filter, Listed, Op};

/// A document of so many levels.
fn nested(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1))
}

fn is_too_deep(refusal: &Refusal, met: usize) -> bool {
    matches!(refusal, Refusal::LimitExceeded { limit, most: 128, met: found } if limit == "json_depth" && *found == met)
}

pub async fn a_document_that_is_nested_too_deeply_is_refused_at_every_entrance(lab: Lab) {
    // rule 16.3: a worker in another language could not read it, and would stop.
    let worker = lab.worker("w").await;
    let of = |levels| Start {
        state: json(&nested(levels)),
        ..plain()
    };
    let started = lab.starts(vec![of(128), of(129), plain()]).await;
    assert!(started[0].is_ok() && started[2].is_ok());
    assert!(is_too_deep(started[1].as_ref().unwrap_err(), 129));
    let id = started[2].as_ref().unwrap().id();
    // Arguments are stored in a list or an object.
    let refused = lab
        .run(Op::Deliver(vec![
            paying(id, "a", &nested(127)),
            paying(id, "a", &nested(128)),
            paying(key("missing"), "a", &nested(5_000)),
        ]))
        .await;
    let crate::Answer::Delivered(each) = refused else {
        panic!("{refused:?}")
    };
    assert!(each[0].is_ok());
    assert!(is_too_deep(each[1].as_ref().unwrap_err(), 129));
    assert!(is_too_deep(each[2].as_ref().unwrap_err(), 5_001));
    let published = lab.publish_all(vec![publishing("e", &nested(129))]).await;
    assert!(is_too_deep(published[0].as_ref().unwrap_err(), 129));
    // An outcome that cannot be stored leaves the claim as it was (rule 4.2).
    let claim = lab.claim(worker).await.claim;
    let state = json(&nested(129));
    let result = state.clone();
    let mut deep = next("b");
    if let Outcome::Next { state: to, .. } = &mut deep {
        *to = state;
    }
    for outcome in [deep, Outcome::Done { result }] {
        let refusal = lab.refused(claim.again(), outcome).await;
        assert!(is_too_deep(&refusal, 129), "{refusal}");
    }
    lab.commit(claim, done()).await;
}

pub async fn conditions_that_are_too_large_are_refused(lab: Lab) {
    // rule 16.3: every event of the type would be checked against them.
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    let claim = lab.claim(worker).await.claim;
    let of = |bytes: usize| {
        let text = format!("\"{}\"", "x".repeat(bytes));
        that(any("e"), "a.b", Operator::Eq, &text)
    };
    let two = awaits(vec![of(40_000), of(40_000)], &[]);
    let text = lab.refused(claim.again(), two).await.to_string();
    assert!(
        text.contains("conditions_bytes") && text.contains("65536"),
        "{text}"
    );
    let deep = that(any("e"), "a.b", Operator::Eq, &nested(129));
    let refusal = lab.refused(claim.again(), awaits(vec![deep], &[])).await;
    assert!(is_too_deep(&refusal, 129), "{refusal}");
    lab.commit(claim, awaits(vec![of(60_000)], &[])).await;
    lab.publish_all(vec![publishing("e", "{}")]).await;
}

/// A text of so many bytes of JSON.
pub(super) fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

pub(super) const MEGABYTE: usize = 1 << 20;

/// The limit that a refusal names, with its value and the size that exceeds it.
fn exceeded(answer: &Delivered) -> (&str, usize, usize) {
    assert_eq!(answer.verdict, Verdict::Rejected(Rejection::InboxFull));
    let limit = answer.limit.as_ref().unwrap();
    (&limit.limit, limit.most, limit.met)
}

pub async fn an_inbox_takes_so_many_bytes_and_no_more(lab: Lab) {
    // rule 16.4: 400 pending signals of 1 MiB made one claim 799 MiB.
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let large = paying(id, "a", &text(MEGABYTE - 100));
    let mut taken = 0;
    let full = loop {
        let answer = lab.deliver(large.clone()).await;
        if answer.verdict != Verdict::Received {
            break answer;
        }
        taken += 1;
        assert!(taken < 20, "the inbox never is full");
    };
    let (limit, most, met) = exceeded(&full);
    assert_eq!((limit, most, taken), ("inbox_bytes", 16 << 20, 16));
    assert!(met > most && met < most + 2 * MEGABYTE, "{met}");
    // What is small still fits, and so does what comes in one batch, as far as it does.
    let small = vec![paying(id, "b", "1"), large.clone(), paying(id, "b", "2")];
    let crate::Answer::Delivered(each) = lab.run(Op::Deliver(small)).await else {
        panic!("deliveries are answered")
    };
    let verdicts = each.iter().map(|one| one.as_ref().unwrap().verdict);
    let full = Verdict::Rejected(Rejection::InboxFull);
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [Verdict::Received, full, Verdict::Received]
    );
    // A step that waits for them gets them all: they are no more than that.
    lab.step(worker, wait(&["a"], None)).await;
    let claimed = lab.claim(worker).await;
    assert_eq!(claimed.awaited.len(), 16);
}

pub async fn bytes_that_were_consumed_make_room_again(lab: Lab) {
    // rule 16.4: what is counted is what is pending, however much went through before.
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.accept(paying(id, "stays", "1")).await;
    for _ in 0..3 {
        for _ in 0..7 {
            lab.accept(paying(id, "a", &text(MEGABYTE - 100))).await;
        }
        lab.step(worker, wait(&["a"], None)).await;
        lab.step(worker, next("more")).await;
    }
    assert_eq!(lab.get(id).await.inbox.signals, 1);
}

pub async fn a_key_has_so_much_held_for_it_and_no_more(lab: Lab) {
    // rule 16.4: signals that were held had no limit at all.
    let held = |payload: &str| NewCommand {
        hold_for: Some(MINUTE),
        ..paying(key("k"), "a", payload)
    };
    for _ in 0..16 {
        let answer = lab.deliver(held(&text(MEGABYTE - 200))).await;
        assert_eq!(answer.verdict, Verdict::Held);
    }
    let full = lab.deliver(held(&text(MEGABYTE - 200))).await;
    let (limit, most, _) = exceeded(&full);
    assert_eq!((limit, most), ("held_bytes", 16 << 20));
    let other = NewCommand {
        hold_for: Some(MINUTE),
        ..paying(key("other"), "a", "1")
    };
    let many = vec![other; 1_001];
    let crate::Answer::Delivered(each) = lab.run(Op::Deliver(many)).await else {
        panic!("deliveries are answered")
    };
    let last = each.last().unwrap().as_ref().unwrap();
    assert_eq!(exceeded(last), ("held_per_key", 1_000, 1_001));
    let taken = each
        .iter()
        .filter(|one| one.as_ref().unwrap().verdict == Verdict::Held);
    assert_eq!(taken.count(), 1_000);
    // What was held too long counts no more.
    lab.pass(2 * MINUTE);
    assert_eq!(lab.deliver(held("1")).await.verdict, Verdict::Held);
}

pub async fn a_page_has_so_many_bytes_and_says_where_the_next_begins(lab: Lab) {
    // rule 16.4: a page of signals was 399 MiB.
    let large = text(MEGABYTE - 100);
    let mut ids = Vec::new();
    for _ in 0..10 {
        let state = json(&large);
        let id = lab.start(Start { state, ..plain() }).await;
        lab.accept(paying(id, "a", &large)).await;
        ids.push(id);
    }
    lab.publish_all(vec![publishing("e", &large); 10]).await;
    let most = 4 * MEGABYTE;

    let (mut before, mut found) = (None, Vec::new());
    loop {
        let page = lab
            .store
            .list(&Filter::default(), before, 100)
            .await
            .unwrap();
        let bytes: usize = page.items.iter().map(|one| one.state.size()).sum();
        assert!(bytes <= most && !page.items.is_empty(), "{bytes}");
        found.extend(page.items.iter().map(|one| one.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    ids.reverse();
    assert_eq!(found, ids);

    let filter = CommandFilter::default();
    let commands = paged(most, async |before| {
        let page = lab.store.commands(&filter, before, 100).await.unwrap();
        let sizes = page.items.iter().map(|one| one.arguments.size());
        (sizes.collect(), page.next)
    });
    assert_eq!(commands.await, 10);
    let filter = EventFilter::default();
    let events = paged(most, async |before| {
        let page = lab.store.events(&filter, before, 100).await.unwrap();
        let sizes = page.items.iter().map(|one| one.payload.size());
        (sizes.collect(), page.next)
    });
    assert_eq!(events.await, 10);
}

/// The number of entries of all pages, none of which is empty or has more bytes than that.
async fn paged<C>(most: usize, page: impl AsyncFn(Option<C>) -> (Vec<usize>, Option<C>)) -> usize {
    let (mut before, mut count) = (None, 0);
    loop {
        let (sizes, next) = page(before).await;
        let bytes: usize = sizes.iter().sum();
        assert!(bytes <= most && !sizes.is_empty(), "{bytes}");
        count += sizes.len();
        before = next;
        if before.is_none() {
            return count;
        }
    }
}

pub async fn a_claim_has_so_many_bytes_and_the_rest_is_there_for_the_next(lab: Lab) {
    // rule 16.4: what a worker over HTTP claimed was read whole before what was too much was given back.
    let (one, other) = (lab.worker("w").await, lab.worker("v").await);
    let state = json(&text(MEGABYTE - 100));
    let mut ids = Vec::new();
    for _ in 0..20 {
        let state = state.clone();
        ids.push(lab.start(Start { state, ..plain() }).await);
    }
    let first = ids_of(&lease(&lab, one, 100, MINUTE).await);
    let second = ids_of(&lease(&lab, other, 100, MINUTE).await);
    assert_eq!((first.len(), second.len()), (16, 4));
    let mut all = [first, second].concat();
    all.sort_unstable();
    assert_eq!(all, ids);
    assert_eq!(lab.get(ids[19]).await.attempt, 0);
}

pub async fn children_and_endings_and_records_come_in_pages_of_so_many_bytes(lab: Lab) {
    // rule 16.4: one answer had all children of a barrier, however large what they came to was.
    let worker = lab.worker("w").await;
    let parent = lab.start(plain()).await;
    lab.step(worker, spawn(vec![plain(); 10])).await;
    let result = json(&text(MEGABYTE - 100));
    let claimed = lab.claim_some(worker, 9).await;
    for one in claimed {
        let result = result.clone();
        lab.commit(one.claim, Outcome::Done { result }).await;
    }
    let barrier = BarrierNumber(1);
    let (most, mut after, mut children) = (4 * MEGABYTE, None, Vec::new());
    loop {
        let page = lab.store.children_page(parent, barrier, after).await;
        let page = page.unwrap();
        let bytes: usize = page.items.iter().map(Listed::bytes).sum();
        assert!(bytes <= most && !page.items.is_empty(), "{bytes}");
        children.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(children.len(), 10);
    assert_eq!(lab.store.children(parent, barrier).await.unwrap(), children);

    let absent = InstanceId(children[9].id.0 + 100);
    let mut ids: Vec<InstanceId> = children.iter().map(|child| child.id).collect();
    ids.extend([absent, parent]);
    // They need not be requested in their order.
    ids.reverse();
    let (mut rest, mut ended, mut missing) = (ids.clone(), Vec::new(), Vec::new());
    while !rest.is_empty() {
        let page = lab.store.endings_page(&rest).await.unwrap();
        let bytes: usize = page.ended.iter().map(Listed::bytes).sum();
        assert!(bytes <= most && page.rest.len() < rest.len(), "{bytes}");
        ended.extend(page.ended);
        missing.extend(page.missing);
        rest = page.rest;
    }
    assert_eq!((ended.len(), &missing), (9, &vec![absent]));
    assert_eq!(lab.store.endings(&ids).await.unwrap().0.len(), 9);

    let mut ids = Vec::new();
    for _ in 0..10 {
        let large = paying(parent, "a", &text(MEGABYTE - 100));
        ids.push(lab.accept(large).await.id);
    }
    let (mut rest, mut found) = (ids.clone(), Vec::new());
    while !rest.is_empty() {
        let page = lab.store.records_page(&rest).await.unwrap();
        let bytes: usize = page.found.iter().map(Listed::bytes).sum();
        assert!(bytes <= most && page.rest.len() < rest.len(), "{bytes}");
        found.extend(page.found.iter().map(|one| one.id));
        rest = page.rest;
    }
    assert_eq!(found, ids);
}
