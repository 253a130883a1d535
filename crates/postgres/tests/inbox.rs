//! Signals and updates on several connections at once: what is PostgreSQL's own about the inbox.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    self, claim, commit, commit_all, connect, database, deliver, done, fresh, json, key, keyed,
    name, open, parked, register, signal, start, start_all, until_blocked, wait,
    with_one_connection,
};
use abide_kernel::model::{
    Accepts, Answered, Cancel, Children, CommandStatus, Committed, Contract, Contracted,
    InstanceId, Join, NewCommand, Operated, Outcome, Rejection, Start, Started, Status, Verdict,
};
use abide_kernel::{Answer, CommandFilter, Filter, Op, Store, SweepRequest, Target};
use abide_pgtest::psql;
use abide_postgres::Postgres;

fn deduped(delivery: NewCommand, dedup_key: &str) -> NewCommand {
    NewCommand {
        dedup_key: Some(name(dedup_key)),
        ..delivery
    }
}

/// The number of commands in that status.
async fn count(store: &Postgres, status: CommandStatus) -> usize {
    let filter = CommandFilter {
        status: Some(status),
        ..CommandFilter::default()
    };
    let page = store.commands(&filter, None, 9).await.unwrap();
    page.items.len()
}

fn held(text: &str, dedup_key: Option<&str>) -> NewCommand {
    NewCommand {
        hold_for: Some(Duration::from_secs(3600)),
        dedup_key: dedup_key.map(name),
        ..signal(key(text), "paid", "1")
    }
}

fn with_start(start: Start, argument: &str) -> NewCommand {
    NewCommand {
        start: Some(Box::new(start.clone())),
        ..signal(start.key.unwrap(), "paid", argument)
    }
}

#[tokio::test]
async fn a_signal_by_id_or_key_wakes_who_waits_and_is_handed_over() {
    // rules 7.1 and 7.4
    let store = fresh().await;
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, keyed("m", "k"), &["paid", "sent"]).await;
    let delivered = deliver(
        &store,
        vec![
            signal(id, "other", "0"),
            signal(key("k"), "paid", "1"),
            signal(id, "sent", "\"a\\u0000b\""),
        ],
    )
    .await;
    assert!(delivered.iter().all(|one| one.verdict == Verdict::Received));
    assert!(
        deliver(&store, vec![signal(key("absent"), "paid", "1")]).await[0]
            .record
            .is_none()
    );

    let claimed = claim(&store, worker, &["m"], 9).await.remove(0);
    let handed: Vec<_> = claimed
        .awaited
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        (claimed.step.as_str(), &handed[..]),
        ("woken", &["paid", "sent"][..])
    );
    assert_eq!(Some(&claimed.awaited[0]), delivered[1].record.as_deref());
    assert_eq!(Some(&claimed.awaited[1]), delivered[2].record.as_deref());
    assert_eq!(store.inbox(id).await.unwrap().len(), 3);
    commit_all(&store, vec![common::next(claimed, "more")]).await;

    let left = store.inbox(id).await.unwrap();
    assert_eq!((left.len(), left[0].name.as_str()), (1, "other"));
    let instance = store.get(&Target::Id(id)).await.unwrap().unwrap();
    let inbox = instance.inbox;
    assert_eq!((inbox.sequence.0, inbox.cursor.0, inbox.signals), (3, 3, 1));
    let of_run = CommandFilter {
        instance: Some(id),
        ..CommandFilter::default()
    };
    let page = store.commands(&of_run, None, 2).await.unwrap();
    assert_eq!((page.items.len(), page.next), (2, Some(page.items[1].id)));
    let rest = store.commands(&of_run, page.next, 2).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    let applied = store
        .records(&[delivered[1].record.as_ref().unwrap().id])
        .await
        .unwrap();
    assert_eq!(
        (applied[0].status, applied[0].step_sequence),
        (CommandStatus::Applied, Some(2))
    );
}

#[tokio::test]
async fn a_batch_of_a_thousand_is_delivered_in_order() {
    // rule 7.1
    let store = fresh().await;
    let worker = register(&store, "w").await;
    let ids: Vec<_> = start_all(
        &store,
        (0..500).map(|n| keyed("m", &format!("k{n}"))).collect(),
    )
    .await
    .iter()
    .map(|one| one.id())
    .collect();
    let claimed = claim(&store, worker, &["m"], 500).await;
    commit_all(
        &store,
        claimed
            .into_iter()
            .map(|one| wait(one, &["paid"], "woken"))
            .collect(),
    )
    .await;
    let all: Vec<NewCommand> = (0..1000)
        .map(|n| match n % 2 {
            0 => signal(ids[n / 2], "paid", &n.to_string()),
            _ => signal(key(&format!("k{}", n / 2)), "paid", &n.to_string()),
        })
        .collect();
    let delivered = deliver(&store, all).await;
    let numbers: Vec<_> = delivered
        .iter()
        .map(|one| one.record.as_ref().unwrap().id)
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    let claimed = claim(&store, worker, &["m"], 500).await;
    assert_eq!(claimed.len(), 500);
    for one in &claimed {
        let numbers: Vec<_> = one
            .awaited
            .iter()
            .map(|one| one.sequence.unwrap().0)
            .collect();
        assert_eq!(numbers, [1, 2]);
    }
    let done: Vec<_> = claimed.into_iter().map(done).collect();
    commit_all(&store, done).await;
    assert!(store.inbox(ids[7]).await.unwrap().is_empty());

    let before = store.clock().now() + Duration::from_secs(60);
    let sweep = SweepRequest {
        before,
        after: None,
        limit: 1000,
    };
    let swept = common::one(&store, Op::Sweep(sweep)).await;
    assert!(
        matches!(swept, Answer::Swept { deleted: 500, .. }),
        "{swept:?}"
    );
    // rule 16.2: with all that belongs to them.
    let page = store
        .commands(&CommandFilter::default(), None, 10)
        .await
        .unwrap();
    assert!(page.items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_sent_by_two_at_once_comes_in_once() {
    // rule 7.3
    let store = Arc::new(fresh().await);
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, keyed("m", "k"), &["other"]).await;
    for round in 0..20 {
        let sent = (0..6).map(|n| {
            let (store, dedup) = (store.clone(), format!("d{round}"));
            tokio::spawn(async move {
                let target: Target = if n % 2 == 0 {
                    id.into()
                } else {
                    key("k").into()
                };
                deliver(&store, vec![deduped(signal(target, "paid", "7"), &dedup)])
                    .await
                    .remove(0)
            })
        });
        let sent: Vec<_> = sent.collect();
        let (mut firsts, mut records) = (0, BTreeSet::new());
        for one in sent {
            let delivered = one.await.unwrap();
            assert_eq!(delivered.verdict, Verdict::Received);
            firsts += usize::from(!delivered.duplicate);
            records.insert(delivered.record.unwrap().id);
        }
        assert_eq!((firsts, records.len()), (1, 1));
    }
    assert_eq!(store.inbox(id).await.unwrap().len(), 20);
    let other = deliver(&store, vec![deduped(signal(id, "paid", "8"), "d3")])
        .await
        .remove(0);
    assert_eq!(
        other.verdict,
        Verdict::Rejected(Rejection::ConflictingDuplicate)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_while_somebody_starts_is_never_lost() {
    // rule 7.8
    let store = Arc::new(fresh().await);
    for round in 0..40 {
        let text = format!("k{round}");
        let starts = (0..2).map(|_| {
            let (store, text) = (store.clone(), text.clone());
            tokio::spawn(async move {
                start_all(&store, vec![keyed("m", &text)]).await;
            })
        });
        let holds = (0..3).map(|_| {
            let (store, text) = (store.clone(), text.clone());
            tokio::spawn(async move {
                let delivered = deliver(&store, vec![held(&text, None)]).await.remove(0);
                assert!(matches!(
                    delivered.verdict,
                    Verdict::Held | Verdict::Received
                ));
            })
        });
        let all: Vec<_> = holds.chain(starts).collect();
        for one in all {
            one.await.unwrap();
        }
        let id = store
            .get(&Target::Key(key(&text)))
            .await
            .unwrap()
            .unwrap()
            .id;
        let inbox = store.inbox(id).await.unwrap();
        let numbers: Vec<_> = inbox.iter().map(|one| one.sequence.unwrap().0).collect();
        assert_eq!(numbers, [1, 2, 3], "round {round}");
    }
    assert_eq!(count(&store, CommandStatus::Held).await, 0);
}

#[tokio::test]
async fn a_held_signal_that_is_not_taken_expires_and_is_forgotten() {
    // rules 7.8 and 16.2
    let store = fresh().await;
    let brief = NewCommand {
        hold_for: Some(Duration::from_millis(1)),
        ..held("k", None)
    };
    let first = deliver(
        &store,
        vec![brief, held("k", Some("d")), held("k", Some("d"))],
    )
    .await;
    assert!(first[2].duplicate && first[2].record == first[1].record);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let by_key = CommandFilter {
        key: Some(key("k")),
        ..CommandFilter::default()
    };
    let sweep = |before| {
        Op::Sweep(SweepRequest {
            before,
            after: None,
            limit: 10,
        })
    };
    common::one(&store, sweep(store.clock().now() - Duration::from_secs(60))).await;
    let statuses: Vec<_> = store
        .commands(&by_key, None, 9)
        .await
        .unwrap()
        .items
        .iter()
        .map(|one| one.status)
        .collect();
    assert_eq!(statuses, [CommandStatus::Held, CommandStatus::Expired]);
    common::one(&store, sweep(store.clock().now())).await;
    let left = store.commands(&by_key, None, 9).await.unwrap().items;
    assert_eq!((left.len(), left[0].status), (1, CommandStatus::Held));
    let id = start_all(&store, vec![keyed("m", "k")]).await[0].id();
    assert_eq!(store.inbox(id).await.unwrap()[0].id, left[0].id);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_start_what_they_are_for_start_one() {
    // rule 7.9
    let store = Arc::new(fresh().await);
    for round in 0..20 {
        let text = format!("k{round}");
        let sent: Vec<_> = (0..5)
            .map(|n| {
                let (store, start) = (store.clone(), keyed("m", &text));
                tokio::spawn(async move {
                    match n {
                        4 => {
                            let started = start_all(&store, vec![start]).await.remove(0);
                            usize::from(matches!(started, Started::New(_)))
                        }
                        _ => {
                            let sent = with_start(start, &n.to_string());
                            let delivered = deliver(&store, vec![sent]).await.remove(0);
                            assert_eq!(delivered.verdict, Verdict::Received);
                            usize::from(delivered.started)
                        }
                    }
                })
            })
            .collect();
        let mut started = 0;
        for one in sent {
            started += one.await.unwrap();
        }
        assert_eq!(started, 1, "round {round}");
        let id = store
            .get(&Target::Key(key(&text)))
            .await
            .unwrap()
            .unwrap()
            .id;
        assert_eq!(store.inbox(id).await.unwrap().len(), 4);
    }
    assert_eq!(
        store
            .list(&Filter::default(), None, 99)
            .await
            .unwrap()
            .items
            .len(),
        20
    );
}

#[tokio::test]
async fn an_update_is_handed_over_answered_and_remembered() {
    // rules 9.2 and 9.4
    let url = database();
    let (store, other) = (open(&url).await, open(&url).await);
    let mut listener = other.listen();
    let worker = register(&store, "w").await;
    let add = Accepts {
        name: name("add"),
        parameters: None,
    };
    let contract = Contract {
        updates: vec![add],
        ..Contract::default()
    };
    let id = contract.id();
    let text = contract.to_json();
    let declare = || Op::Declare {
        machines: Vec::new(),
        contracts: vec![contract.clone()],
    };
    common::one(&store, declare()).await;
    common::one(&store, declare()).await;
    assert_eq!(store.contract(id).await.unwrap(), Some(text));
    let begin = Start {
        contract: Contracted::Of(id),
        ..start("m")
    };
    let instance = parked(&store, worker, begin, &["paid"]).await;

    let delivered = deliver(&store, vec![NewCommand::update(instance, name("add"))])
        .await
        .remove(0);
    assert_eq!(delivered.verdict, Verdict::Accepted);
    let update = delivered.record.unwrap().id;
    let aside = store.get(&Target::Id(instance)).await.unwrap().unwrap();
    assert_eq!(aside.aside.unwrap().status, Status::AwaitingSignal);
    assert_eq!((aside.status, aside.contract), (Status::Runnable, Some(id)));
    let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
    assert!(claimed.aside && claimed.updates[0].id == update && claimed.awaited.is_empty());
    let answered = Answered {
        update_id: update,
        result: json("5"),
        error: None,
    };
    let outcome = Outcome::Answer {
        updates: vec![answered],
        state: None,
        then: None,
    };
    let moved = commit_all(&store, vec![commit(claimed, outcome, false)]).await;
    assert_eq!(moved[0], Committed::Moved(Status::AwaitingSignal));
    let record = store.records(&[update]).await.unwrap().remove(0);
    assert_eq!(
        (record.status, record.result),
        (CommandStatus::Completed, Some(json("5")))
    );
    // rule 9.2: a caller that waits for the answer in another process is notified.
    let heard = async { while !listener.next().await.unwrap().ended_elsewhere {} };
    tokio::time::timeout(Duration::from_secs(20), heard)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_by_key_finds_the_run_that_goes_on() {
    // rules 2.4 and 2.5
    let store = Arc::new(fresh().await);
    let worker = register(&store, "w").await;
    let first = start_all(&store, vec![keyed("m", "k")]).await[0].id();
    let mut sent = 0;
    for round in 0..15 {
        let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
        let old = claimed.claim.id();
        let again = Outcome::ContinueAsNew {
            step: name("begin"),
            state: json("{}"),
            version: None,
        };
        let going_on = tokio::spawn({
            let store = store.clone();
            async move { commit_all(&store, vec![commit(claimed, again, false)]).await }
        });
        let deliveries: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    deliver(&store, vec![signal(key("k"), "paid", "1")])
                        .await
                        .remove(0)
                })
            })
            .collect();
        assert_eq!(
            going_on.await.unwrap()[0],
            Committed::Moved(Status::Continued)
        );
        for one in deliveries {
            assert_eq!(
                one.await.unwrap().verdict,
                Verdict::Received,
                "round {round}"
            );
            sent += 1;
        }
        let newest = store.get(&Target::Key(key("k"))).await.unwrap().unwrap();
        assert_eq!(
            (newest.run.number, newest.run.first),
            (round + 2, Some(first))
        );
        assert_eq!(newest.inbox.signals, sent);
        let inbox = store.inbox(newest.id).await.unwrap();
        let numbers: Vec<_> = inbox.iter().map(|one| one.sequence.unwrap().0).collect();
        assert_eq!(numbers, (1..=i64::from(sent)).collect::<Vec<_>>());
        assert!(store.inbox(old).await.unwrap().is_empty());
        let delivered = deliver(&store, vec![signal(old, "paid", "1")])
            .await
            .remove(0);
        assert_eq!(delivered.verdict, Verdict::Rejected(Rejection::NotCurrent));
        assert_eq!(delivered.current, Some(newest.id));
    }
    let of_chain = Filter {
        chain: Some(first),
        ..Filter::default()
    };
    assert_eq!(
        store.list(&of_chain, None, 99).await.unwrap().items.len(),
        16
    );
    let of_chain = CommandFilter {
        chain: Some(first),
        ..CommandFilter::default()
    };
    let records = store.commands(&of_chain, None, 99).await.unwrap().items;
    assert_eq!(records.len() as u32, sent + 15);
}

#[tokio::test]
async fn a_family_is_cancelled_together_and_others_hear_of_it() {
    // rule 11.1
    let url = database();
    let (store, other) = (open(&url).await, open(&url).await);
    let mut listener = other.listen();
    let worker = register(&store, "w").await;
    let parent = start_all(&store, vec![keyed("m", "k")]).await[0].id();
    let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
    let spawn = Outcome::Spawn {
        children: vec![start("child"), start("child")],
        next: name("joined"),
        state: json("{}"),
        join: Join::default(),
        timeout_ms: None,
    };
    commit_all(&store, vec![commit(claimed, spawn, false)]).await;
    let held = claim(&store, worker, &["child"], 1).await.remove(0);
    let runs = held.claim.id();
    deliver(
        &store,
        vec![signal(parent, "paid", "1"), signal(runs, "paid", "1")],
    )
    .await;
    let cancel = Cancel {
        target: key("k").into(),
        reason: "enough".into(),
        children: Children::Cascade,
        force: false,
        source: None,
        claimed_source: None,
    };
    let Answer::Operated(operated) = common::one(&store, Op::Cancel(vec![cancel])).await else {
        panic!()
    };
    assert_eq!(
        operated,
        [Operated::Cancelled {
            id: parent,
            children: 2
        }]
    );
    let cancelled = Filter {
        status: Some(Status::Cancelled),
        ..Filter::default()
    };
    assert_eq!(
        store.list(&cancelled, None, 9).await.unwrap().items.len(),
        3
    );
    assert_eq!(count(&store, CommandStatus::Discarded).await, 2);
    assert_eq!(
        commit_all(&store, vec![done(held)]).await,
        [Committed::Stale]
    );
    let heard = async {
        loop {
            let effects = listener.next().await.unwrap();
            if !effects.cancelled.is_empty() {
                return effects.cancelled.clone();
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(20), heard)
        .await
        .unwrap();
    assert_eq!(heard, [runs]);

    // rule 11.2
    let restart = Op::Restart(vec![(parent.into(), Some(name("anew")))]);
    let Answer::Operated(operated) = common::one(&store, restart).await else {
        panic!()
    };
    let Operated::Restarted { id, run_number: 2 } = operated[0] else {
        panic!("{operated:?}")
    };
    let run = store.get(&Target::Key(key("k"))).await.unwrap().unwrap();
    assert_eq!(
        (run.id, run.step.as_str(), run.run.first),
        (id, "anew", Some(parent))
    );
    let Answer::Operated(operated) =
        common::one(&store, Op::Repair(vec![id.into(), parent.into()])).await
    else {
        panic!()
    };
    assert_eq!(
        operated,
        [Operated::RepairNotNeeded, Operated::NotCurrent(id)]
    );
}

#[tokio::test]
async fn what_is_reserved_is_opened_by_a_start_with_its_key() {
    // rule 2.7
    let store = fresh().await;
    let reserve = || Op::Reserve(vec![(name("m"), key("k"))]);
    let Answer::Started(first) = common::one(&store, reserve()).await else {
        panic!()
    };
    let id = first[0].as_ref().unwrap().id();
    let Answer::Started(again) = common::one(&store, reserve()).await else {
        panic!()
    };
    assert_eq!(again[0], Ok(Started::Duplicate(id)));
    let delivered = deliver(&store, vec![signal(key("k"), "paid", "1")])
        .await
        .remove(0);
    assert_eq!(delivered.verdict, Verdict::Rejected(Rejection::NotStarted));
    let depths = store.depths().await.unwrap();
    assert_eq!((depths[0].status, depths[0].count), (Status::Reserved, 1));
    let begin = Start {
        partition_key: Some(key("p")),
        ..keyed("m", "k")
    };
    assert_eq!(start_all(&store, vec![begin]).await, [Started::New(id)]);
    let worker = register(&store, "w").await;
    let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
    assert_eq!((claimed.claim.id(), claimed.step.as_str()), (id, "begin"));
}

#[tokio::test]
async fn what_is_wrong_is_found() {
    // rule 11.3
    let url = database();
    let store = open(&url).await;
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, start("m"), &["paid"]).await;
    start_all(&store, vec![start("m"); 4]).await;
    deliver(&store, vec![signal(id, "other", "1")]).await;
    let examine = |after| Op::Examine { after, limit: 3 };
    let first = common::one(&store, examine(abide_kernel::model::InstanceId(0))).await;
    let Answer::Examined {
        count: 3,
        findings,
        next: Some(next),
    } = first
    else {
        panic!("{first:?}")
    };
    assert!(findings.is_empty(), "{findings:?}");
    let last = common::one(&store, examine(next)).await;
    assert!(
        matches!(
            last,
            Answer::Examined {
                count: 2,
                next: None,
                ..
            }
        ),
        "{last:?}"
    );
    // A wake-up that was lost, which cannot be: what it waits for is there.
    psql(&url, "update abide.signals set name = 'paid'");
    let found = common::one(&store, examine(abide_kernel::model::InstanceId(0))).await;
    assert!(
        matches!(&found, Answer::Examined { findings, .. } if findings.len() == 1 && findings[0].instance == id),
        "{found:?}"
    );
    let Answer::Operated(operated) = common::one(&store, Op::Repair(vec![id.into()])).await else {
        panic!()
    };
    assert_eq!(operated, [Operated::RepairDispatched]);
    assert_eq!(
        store.get(&id.into()).await.unwrap().unwrap().status,
        Status::Runnable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_by_key_does_not_wait_for_a_run_that_went_on_while_it_was_looked_up() {
    // rule 2.5: the holder of the older run may be about to lock the newer, so that both would wait for each other.
    let url = database();
    // One connection, which has its statements prepared by then: preparing would wait for the lock as well.
    let store = Arc::new(with_one_connection(&url).await);
    let old = start_all(&store, vec![keyed("m", "k")]).await[0].id();
    deliver(&store, vec![signal(key("k"), "paid", "1")]).await;
    let eye = connect(&url).await;

    // No row is locked from here on, but rows can be read: the run is found, and goes on before it is locked.
    let mut host = connect(&url).await;
    let goes_on = host.transaction().await.unwrap();
    goes_on
        .batch_execute("lock table abide.instances in exclusive mode")
        .await
        .unwrap();
    let sent = tokio::spawn({
        let store = store.clone();
        async move { deliver(&store, vec![signal(key("k"), "paid", "2")]).await }
    });
    until_blocked(&eye, 1).await;
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let mut other = connect(&url).await;
    let holds = tokio::spawn(async move {
        let holds = other.transaction().await.unwrap();
        let lock = format!("select from abide.instances where id = {old} for update");
        holds.batch_execute(&lock).await.unwrap();
        released.await.unwrap();
    });
    until_blocked(&eye, 2).await;
    goes_on
        .batch_execute(&format!(
            "update abide.instances set status = 9, finished_at = now() where id = {old}; \
            insert into abide.instances \
                select (jsonb_populate_record(i, '{{\"id\": 1000000, \"status\": 2, \"finished_at\": null}}')).* \
                from abide.instances i where id = {old}"
        ))
        .await
        .unwrap();
    goes_on.commit().await.unwrap();

    let sent = tokio::time::timeout(Duration::from_secs(30), sent).await;
    let sent = sent.expect("it waits for the older run").unwrap().remove(0);
    assert_eq!(sent.verdict, Verdict::Received);
    assert_eq!(sent.record.unwrap().instance, Some(InstanceId(1_000_000)));
    release.send(()).unwrap();
    holds.await.unwrap();
}

#[tokio::test]
async fn a_signal_in_the_hosts_transaction_is_there_when_that_commits() {
    // rule 17.1
    let url = database();
    let store = open(&url).await;
    let worker = register(&store, "w").await;
    let id = parked(&store, worker, keyed("m", "k"), &["paid"]).await;
    let mut client = connect(&url).await;
    for commits in [false, true] {
        let transaction = client.transaction().await.unwrap();
        let ops = [Op::Deliver(vec![
            deduped(signal(key("k"), "paid", "1"), "d"),
            held("later", None),
            with_start(keyed("m", "new"), "1"),
        ])];
        let answers = store.run_within(&transaction, &ops).await.unwrap();
        let Answer::Delivered(delivered) = &answers[0] else {
            panic!()
        };
        let verdicts: Vec<_> = delivered
            .iter()
            .map(|one| one.as_ref().unwrap().verdict)
            .collect();
        assert_eq!(
            verdicts,
            [Verdict::Received, Verdict::Held, Verdict::Received]
        );
        assert!(claim(&store, worker, &["m"], 9).await.is_empty());
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        let records = store
            .commands(&CommandFilter::default(), None, 9)
            .await
            .unwrap();
        assert_eq!(records.items.len(), if commits { 3 } else { 0 });
    }
    let claimed = claim(&store, worker, &["m"], 9).await;
    assert_eq!(claimed.len(), 2);
    assert!(
        claimed
            .iter()
            .any(|one| one.claim.id() == id && one.awaited.len() == 1)
    );
}
