//! Documents, declarations, and which instances wait for what.

use abide_core::model::{
    Contract, Declared, Document, DocumentKind, InstanceId, Json, Start, Status, WaitKind,
};

use super::build::{
    MINUTE, done, json, later, many, name, plain, retry, spawn, under, updates, wait, within,
};
use super::coding::{Coded, condition, sleep, unfit, workflow};
use super::eventing::{any, awaits};
use super::lab::Lab;
use crate::{Answer, Clock, Error, Filter, Op, QueueDepth};

const GRAPH: DocumentKind = DocumentKind::Graph;
const TOKEN: DocumentKind = DocumentKind::Token;

async fn keep(lab: &Lab, documents: Vec<(DocumentKind, &str, Option<Json>)>) {
    let documents = documents.into_iter();
    let documents = documents.map(|(kind, text, body)| (kind, name(text), body));
    let answer = lab.run(Op::Keep(documents.collect())).await;
    assert_eq!(answer, Answer::Done);
}

async fn kept(lab: &Lab, kind: DocumentKind) -> Vec<Document> {
    lab.store.documents(kind).await.unwrap()
}

pub async fn a_document_is_kept_as_it_was_written_replaced_and_deleted(lab: Lab) {
    let body = json("{\"b\": 1,  \"a\":\"\\u0000é\"}");
    keep(&lab, vec![(GRAPH, "fulfilment", Some(body.clone()))]).await;
    let first = lab.clock.now();
    let document = Document {
        kind: GRAPH,
        name: name("fulfilment"),
        body,
        updated_at: first,
    };
    assert_eq!(kept(&lab, GRAPH).await, vec![document.clone()]);
    lab.clock.advance(MINUTE);
    keep(&lab, vec![(GRAPH, "fulfilment", Some(json("null")))]).await;
    let replaced = Document {
        body: json("null"),
        updated_at: first + MINUTE,
        ..document
    };
    assert_eq!(kept(&lab, GRAPH).await, [replaced]);
    keep(&lab, vec![(GRAPH, "fulfilment", None)]).await;
    assert!(kept(&lab, GRAPH).await.is_empty());
    keep(&lab, vec![(GRAPH, "fulfilment", None)]).await;
}

pub async fn documents_are_listed_by_name_and_those_of_another_kind_are_not(lab: Lab) {
    let one = || Some(json("1"));
    keep(
        &lab,
        vec![
            (GRAPH, "b", one()),
            (TOKEN, "b", one()),
            (GRAPH, "é", one()),
            (GRAPH, "B", one()),
            (GRAPH, "a", one()),
        ],
    )
    .await;
    let names = |all: Vec<Document>| all.into_iter().map(|one| one.name).collect::<Vec<_>>();
    let expected = ["B", "a", "b", "é"].map(name);
    assert_eq!(names(kept(&lab, GRAPH).await), expected);
    keep(&lab, vec![(GRAPH, "b", None), (TOKEN, "z", None)]).await;
    assert_eq!(names(kept(&lab, GRAPH).await), ["B", "a", "é"].map(name));
    assert_eq!(names(kept(&lab, TOKEN).await), [name("b")]);
}

pub async fn a_document_is_found_by_its_kind_and_its_whole_name(lab: Lab) {
    let kept = vec![
        (GRAPH, "a", Some(json("1"))),
        (GRAPH, "ab", Some(json("2"))),
        (TOKEN, "t", Some(json("3"))),
    ];
    keep(&lab, kept).await;
    for (kind, text, expected) in [
        (GRAPH, "a", Some("1")),
        (GRAPH, "ab", Some("2")),
        (TOKEN, "t", Some("3")),
        (GRAPH, "A", None),
        (GRAPH, "%", None),
        (GRAPH, "t", None),
        (TOKEN, "a", None),
    ] {
        let named = name(text);
        let found = lab.store.document(kind, &named).await.unwrap();
        let body = found.as_ref().map(|document| document.body.as_str());
        assert_eq!(body, expected, "{kind:?} {text}");
        let of_kind = self::kept(&lab, kind).await;
        let listed = of_kind.into_iter().find(|one| one.name == named);
        assert_eq!(found, listed, "as it is listed");
    }
}

pub async fn the_last_word_on_a_document_counts(lab: Lab) {
    keep(&lab, vec![(GRAPH, "gone", Some(json("0")))]).await;
    keep(
        &lab,
        vec![
            (GRAPH, "stays", None),
            (GRAPH, "gone", Some(json("1"))),
            (GRAPH, "stays", Some(json("1"))),
            (GRAPH, "gone", None),
            (GRAPH, "stays", Some(json("2"))),
        ],
    )
    .await;
    let all = kept(&lab, GRAPH).await;
    let all = all.iter().map(|one| (one.name.as_str(), one.body.as_str()));
    let all: Vec<_> = all.collect();
    assert_eq!(all, [("stays", "2")]);
    keep(&lab, vec![]).await;
}

pub async fn a_document_over_the_limit_is_refused_with_all_that_came_with_it(lab: Lab) {
    // rule 16.3
    let large = Json::of(&"x".repeat(1 << 20)).unwrap();
    let ops = vec![
        Op::Start(many(1)),
        Op::Keep(vec![(GRAPH, name("small"), Some(json("1")))]),
        Op::Keep(vec![(GRAPH, name("large"), Some(large))]),
    ];
    let refused = lab.try_run(ops).await;
    let Err(Error::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert!(refusal.to_string().contains("state_bytes"), "{refusal}");
    assert!(kept(&lab, GRAPH).await.is_empty());
    assert!(lab.store.depths().await.unwrap().is_empty());
}

pub async fn all_that_is_declared_is_listed_by_machine_and_version(lab: Lab) {
    let of = |machine: &str, version| Declared {
        machine: name(machine),
        version,
        contract: None,
        ..under(&Contract::default())
    };
    assert!(lab.store.machines().await.unwrap().is_empty());
    let machines = vec![of("n", 1), of("m", 10), of("m", 2), of("M", 1)];
    lab.run(Op::Declare {
        machines,
        contracts: vec![],
    })
    .await;
    let contract = updates();
    let declared = Declared {
        machine: name("n"),
        ..under(&contract)
    };
    lab.run(Op::Declare {
        machines: vec![declared.clone()],
        contracts: vec![contract],
    })
    .await;
    let expected = [of("M", 1), of("m", 2), of("m", 10), declared];
    assert_eq!(lab.store.machines().await.unwrap(), expected);
}

pub async fn what_is_declared_is_listed_page_by_page(lab: Lab) {
    // rule 16.4: all of it was read at once, however much it was.
    let of = |machine: &str, version| Declared {
        machine: name(machine),
        version,
        contract: None,
        ..under(&Contract::default())
    };
    let machines = vec![of("a", 2), of("a", 10), of("b", 1), of("é", 1), of("é", 2)];
    lab.run(Op::Declare {
        machines: machines.clone(),
        contracts: vec![],
    })
    .await;
    for limit in [1, 2, 4, 5, 9] {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = lab.store.machines_page(after, limit).await.unwrap();
            assert!(page.items.len() <= limit);
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, machines, "{limit}");
    }
}

pub async fn documents_are_listed_page_by_page(lab: Lab) {
    // rule 16.4: all of them were read at once, however large they were.
    let body = Json::of(&"x".repeat(900_000)).unwrap();
    let names = ["a", "b", "c", "d", "e", "é"];
    for text in names {
        keep(&lab, vec![(GRAPH, text, Some(body.clone()))]).await;
    }
    keep(&lab, vec![(TOKEN, "b", Some(json("1")))]).await;
    for (limit, expected) in [(2, vec![2, 2, 2]), (5, vec![4, 2]), (9, vec![4, 2])] {
        let (mut after, mut counts, mut all) = (None, Vec::new(), Vec::new());
        loop {
            let page = lab.store.documents_page(GRAPH, after, limit).await.unwrap();
            counts.push(page.items.len());
            all.extend(page.items.into_iter().map(|one| one.name));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((counts, all), (expected, names.map(name).to_vec()));
    }
    assert_eq!(kept(&lab, GRAPH).await.len(), 6);
}

async fn waiting(lab: &Lab, kind: Option<WaitKind>, text: Option<&str>) -> Vec<InstanceId> {
    let filter = Filter {
        wait_kind: kind,
        waiting_for: text.map(name),
        ..Filter::default()
    };
    let page = lab.store.list(&filter, None, 100).await.unwrap();
    let mut ids: Vec<_> = page.items.iter().map(|one| one.id).collect();
    ids.reverse();
    ids
}

pub async fn those_who_wait_are_found_by_the_kind_of_wait_and_by_what_for(lab: Lab) {
    let worker = lab.worker("w").await;
    let begun = async |outcome| {
        let id = lab.start(plain()).await;
        lab.step(worker, outcome).await;
        id
    };
    let signal = begun(wait(&["paid", "it's"], None)).await;
    let event = begun(awaits(vec![any("paid"), any("order")], &[])).await;
    let both = begun(awaits(vec![any("order")], &["go"])).await;
    let timer = begun(wait(&[], Some(1_000))).await;
    let asleep = Coded::parks(sleep(1, lab.clock.now() + MINUTE));
    let asleep = lab.coded(worker, workflow(), asleep).await;
    let parent = begun(spawn(vec![later(MINUTE)])).await;
    let truth = Coded::parks(condition(1, "paid"));
    let truth = lab.coded(worker, workflow(), truth).await;
    let delayed = begun(retry(1_000)).await;
    let ready = lab.start(plain()).await;
    for (kind, expected) in [
        (WaitKind::Signal, vec![signal, both]),
        (WaitKind::Event, vec![event]),
        (WaitKind::Timer, vec![timer, asleep]),
        (WaitKind::Children, vec![parent]),
        (WaitKind::Condition, vec![truth]),
    ] {
        assert_eq!(waiting(&lab, Some(kind), None).await, expected, "{kind:?}");
    }
    for (text, expected) in [
        ("paid", vec![signal, event, truth]),
        ("it's", vec![signal]),
        ("order", vec![event, both]),
        ("go", vec![both]),
        ("pai", vec![]),
        ("%", vec![]),
    ] {
        assert_eq!(waiting(&lab, None, Some(text)).await, expected, "{text}");
    }
    let by_kind_and_name = waiting(&lab, Some(WaitKind::Event), Some("paid")).await;
    assert_eq!(by_kind_and_name, [event]);
    // What has been woken waits no more, though its row still tells of the wait.
    lab.signal(signal, "paid").await;
    assert_eq!(lab.get(signal).await.status, Status::Runnable);
    assert_eq!(waiting(&lab, None, Some("paid")).await, [event, truth]);
    assert_eq!(waiting(&lab, Some(WaitKind::Signal), None).await, [both]);
    assert!(ready > delayed);
}

pub async fn who_runs_for_nothing_but_updates_waits_all_the_same(lab: Lab) {
    // rule 9.1
    lab.under(updates()).await;
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    lab.step(worker, wait(&["paid"], None)).await;
    lab.update(id).await;
    assert_eq!(lab.get(id).await.status, Status::Runnable);
    assert_eq!(waiting(&lab, Some(WaitKind::Signal), None).await, [id]);
    assert_eq!(waiting(&lab, None, Some("paid")).await, [id]);
    assert!(waiting(&lab, Some(WaitKind::Event), None).await.is_empty());
}

pub async fn depths_tell_what_is_waited_for_and_since_when_the_oldest_is_ready(lab: Lab) {
    let worker = lab.worker("w").await;
    let first = lab.clock.now();
    for outcome in [
        wait(&["s"], None),
        wait(&["t"], None),
        awaits(vec![any("order")], &[]),
        wait(&[], Some(1_000)),
        spawn(vec![later(MINUTE)]),
        retry(1_000),
        done(),
    ] {
        lab.start(plain()).await;
        lab.step(worker, outcome).await;
    }
    // rule 12.4: what is blocked is scheduled, and due at no time.
    let blocked = Coded::then(unfit());
    lab.coded(worker, workflow(), blocked).await;
    lab.start_all(vec![within("p"), within("p")]).await;
    lab.clock.advance(MINUTE / 2);
    lab.start_all(many(2)).await;
    lab.start(Start {
        queue: Some(name("slow")),
        ..plain()
    })
    .await;
    let mut depths = lab.store.depths().await.unwrap();
    depths.sort_by_key(|one| {
        let kind = one.wait_kind.map(WaitKind::code);
        (one.queue.clone(), one.status, kind)
    });
    let of = |queue: &str, status, wait_kind, count| QueueDepth {
        queue: name(queue),
        status,
        wait_kind,
        count,
        blocked: 0,
        oldest: None,
    };
    let ready = |queue: &str, count, oldest| QueueDepth {
        oldest: Some(oldest),
        ..of(queue, Status::Runnable, None, count)
    };
    let expected = [
        QueueDepth {
            blocked: 1,
            ..of("default", Status::Scheduled, None, 3)
        },
        of("default", Status::Scheduled, Some(WaitKind::Timer), 1),
        ready("default", 4, first),
        of("default", Status::AwaitingSignal, Some(WaitKind::Signal), 2),
        of("default", Status::AwaitingSignal, Some(WaitKind::Event), 1),
        of(
            "default",
            Status::AwaitingChildren,
            Some(WaitKind::Children),
            1,
        ),
        ready("slow", 1, first + MINUTE / 2),
    ];
    assert_eq!(depths, expected);
}
