//! The decision table: what becomes of a delivery, line by line, and what is left of it.

use abide_core::model::{
    Arguments, Cancel, Command, CommandKind, CommandStatus, Delivered, InstanceId, NewCommand,
    Rejection, Sequence, Verdict,
};

use super::build::{
    MINUTE, adding, cancelling, continue_as_new, done, held, json, key, keyed, name, once, paying,
    plain, signal, stop, strict, updates,
};
use super::lab::Lab;
use crate::{CommandFilter, Op};

/// Asserts that a delivery was refused so, and that its record shows the same.
async fn refused(lab: &Lab, delivered: &Delivered, rejection: Rejection) {
    assert_eq!(delivered.verdict, Verdict::Rejected(rejection));
    assert!(!delivered.duplicate && !delivered.started);
    let record = delivered.record.clone().expect("a refusal leaves a record");
    assert_eq!(
        (record.status, record.rejection, record.sequence),
        (CommandStatus::Rejected, Some(rejection), None)
    );
    assert_eq!(
        (record.received_at, record.closed_at),
        (lab.now(), Some(lab.now()))
    );
    assert_eq!(lab.record(record.id).await, *record);
}

async fn count(lab: &Lab) -> usize {
    lab.records(CommandFilter::default()).await.len()
}

fn unknown_id(id: InstanceId) -> InstanceId {
    InstanceId(id.0 + 1_000_000)
}

pub async fn nothing_at_that_id_or_key_leaves_no_record(lab: Lab) {
    // rule 7.3
    let id = lab.start(plain()).await;
    for delivery in [
        signal(unknown_id(id), "paid"),
        signal(key("missing"), "paid"),
        adding(key("missing"), 1),
        once("d", signal(unknown_id(id), "paid")),
    ] {
        let answer = lab.deliver(delivery).await;
        assert_eq!((answer.verdict, answer.record), (Verdict::NoTarget, None));
        assert_eq!(answer.verdict.outcome(), "no_target");
    }
    assert_eq!(count(&lab).await, 0);
}

pub async fn the_same_message_again_is_answered_with_the_first(lab: Lab) {
    // rule 7.3
    let id = lab.start(plain()).await;
    let delivery = once("d", paying(id, "paid", "{\"a\":1,\"b\":2.0}"));
    let first = lab.accept(delivery.clone()).await;
    lab.pass(super::build::SECOND);
    let same = once("d", paying(id, "paid", "{\"b\":2,\"a\":1}"));
    for again in [delivery, same] {
        let answer = lab.deliver(again).await;
        assert_eq!(
            (answer.verdict, answer.duplicate),
            (Verdict::Received, true)
        );
        assert_eq!(answer.record.as_deref(), Some(&first));
    }
    assert_eq!((count(&lab).await, lab.get(id).await.inbox.signals), (1, 1));
}

pub async fn a_duplicate_is_known_after_the_instance_has_ended(lab: Lab) {
    // rule 7.3
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let first = lab.accept(once("d", signal(id, "paid"))).await;
    lab.step(worker, done()).await;
    let answer = lab.deliver(once("d", signal(id, "paid"))).await;
    assert_eq!(
        (answer.verdict, answer.duplicate),
        (Verdict::Received, true)
    );
    let record = answer.record.unwrap();
    assert_eq!(
        (record.id, record.status),
        (first.id, CommandStatus::Discarded)
    );
    let other = lab.deliver(once("d", signal(id, "shipped"))).await;
    refused(&lab, &other, Rejection::ConflictingDuplicate).await;
}

pub async fn the_same_dedup_key_for_something_else_is_refused(lab: Lab) {
    // rule 7.3
    let id = lab.start(plain()).await;
    lab.accept(once("d", paying(id, "paid", "1"))).await;
    for other in [
        paying(id, "paid", "2"),
        paying(id, "paid", "\"1\""),
        signal(id, "paid"),
        paying(id, "shipped", "1"),
    ] {
        let answer = lab.deliver(once("d", other)).await;
        refused(&lab, &answer, Rejection::ConflictingDuplicate).await;
        assert_eq!(answer.verdict.outcome(), "rejected_conflicting_duplicate");
        assert_eq!(Rejection::ConflictingDuplicate.reason(), "dedup_conflict");
    }
    let again = lab.deliver(once("d", paying(id, "paid", "1"))).await;
    assert!(again.duplicate, "refusals have not replaced it");
}

pub async fn duplicates_in_one_batch_are_judged_like_those_across(lab: Lab) {
    // rule 7.3
    let id = lab.start(plain()).await;
    let each = lab
        .deliver_all(vec![
            once("d", paying(id, "paid", "1")),
            once("d", paying(id, "paid", "1")),
            once("d", paying(id, "paid", "2")),
            once("e", paying(id, "paid", "1")),
        ])
        .await;
    let each: Vec<Delivered> = each.into_iter().map(Result::unwrap).collect();
    assert_eq!(each[0].record, each[1].record);
    assert!(!each[0].duplicate && each[1].duplicate);
    refused(&lab, &each[2], Rejection::ConflictingDuplicate).await;
    assert_eq!(each[3].record.as_ref().unwrap().sequence, Some(Sequence(2)));
    assert_eq!(count(&lab).await, 3);
}

pub async fn dedup_keys_are_each_instances_own(lab: Lab) {
    // rule 7.3
    let ids = lab.start_all(super::build::many(2)).await;
    lab.accept(once("d", paying(ids[0], "paid", "1"))).await;
    lab.accept(once("d", paying(ids[1], "shipped", "2"))).await;
}

pub async fn a_signal_and_an_update_may_share_a_dedup_key(lab: Lab) {
    // rules 7.3 and 9.3
    lab.under(updates()).await;
    let id = lab.start(plain()).await;
    lab.accept(once("d", signal(id, "add"))).await;
    lab.accept(once("d", adding(id, 1))).await;
}

pub async fn a_refused_message_does_not_use_up_its_dedup_key(lab: Lab) {
    // rule 7.3
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    let bad = lab.deliver(once("d", paying(id, "paid", "\"five\""))).await;
    refused(&lab, &bad, Rejection::InvalidSignal).await;
    lab.accept(once("d", paying(id, "paid", "5"))).await;
}

pub async fn what_is_reserved_takes_no_message(lab: Lab) {
    // rules 2.7 and 7.3
    lab.run(Op::Reserve(vec![(name("m"), key("k"))])).await;
    let answer = lab.deliver(signal(key("k"), "paid")).await;
    refused(&lab, &answer, Rejection::NotStarted).await;
    assert_eq!(answer.verdict.outcome(), "rejected_not_started");
    assert_eq!(Rejection::NotStarted.reason(), "instance_not_started");
    let update = lab.deliver(adding(key("k"), 1)).await;
    refused(&lab, &update, Rejection::NotStarted).await;
}

pub async fn an_old_run_refuses_and_names_the_newest(lab: Lab) {
    // rules 2.5 and 7.3
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.step(worker, continue_as_new("again")).await;
    let newest = lab.find(key("k")).await.unwrap().id;
    let answer = lab.deliver(signal(first, "paid")).await;
    refused(&lab, &answer, Rejection::NotCurrent).await;
    assert_eq!(answer.current, Some(newest));
    assert_eq!(answer.verdict.outcome(), "rejected_not_current");
    assert_eq!(Rejection::NotCurrent.reason(), "run_not_current");
    lab.step(worker, done()).await;
    let answer = lab.deliver(signal(first, "paid")).await;
    refused(&lab, &answer, Rejection::NotCurrent).await;
    let by_key = lab.deliver(signal(key("k"), "paid")).await;
    refused(&lab, &by_key, Rejection::NotActive).await;
    assert_eq!(by_key.current, None);
}

pub async fn what_has_ended_takes_no_message(lab: Lab) {
    // rule 7.3
    let worker = lab.worker("w").await;
    for outcome in [done(), stop("no")] {
        let id = lab.start(plain()).await;
        lab.step(worker, outcome).await;
        let answer = lab.deliver(signal(id, "paid")).await;
        refused(&lab, &answer, Rejection::NotActive).await;
        assert_eq!(answer.verdict.outcome(), "rejected_not_active");
        assert_eq!(answer.current, None);
    }
    assert_eq!(Rejection::NotActive.reason(), "run_not_active");
}

pub async fn a_signal_that_is_not_declared_is_refused(lab: Lab) {
    // rules 7.3 and 8.2
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    let answer = lab.deliver(signal(id, "shipped")).await;
    refused(&lab, &answer, Rejection::UnknownSignal).await;
    assert_eq!(answer.verdict.outcome(), "rejected_unknown_signal");
    let offer = answer.offer.as_ref().map(ToString::to_string);
    assert_eq!(
        offer.as_deref(),
        Some("paid, stop"),
        "what could have been sent"
    );
    let taken = lab.deliver(signal(id, "stop")).await;
    assert_eq!(taken.offer, None);
    assert_eq!(Rejection::UnknownSignal.reason(), "unknown_signal");
}

pub async fn a_machine_that_declares_no_signals_takes_any(lab: Lab) {
    // rule 7.3
    lab.under(updates()).await;
    let id = lab.start(plain()).await;
    lab.accept(paying(id, "whatever", "[1,2]")).await;
}

pub async fn arguments_that_break_the_contract_are_refused(lab: Lab) {
    // rules 7.3 and 8.3
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    let answer = lab.deliver(paying(id, "paid", "\"five\"")).await;
    refused(&lab, &answer, Rejection::InvalidSignal).await;
    assert_eq!(answer.verdict.outcome(), "rejected_invalid_arguments");
    assert_eq!(
        Rejection::InvalidSignal.reason(),
        "invalid_signal_arguments"
    );
}

pub async fn an_inbox_takes_as_many_as_the_limit_says_and_no_more(lab: Lab) {
    // rules 7.3 and 16.3
    lab.under(updates()).await;
    let id = lab.start(plain()).await;
    let mut deliveries = vec![signal(id, "s"); 99];
    deliveries.push(adding(id, 1));
    let each = lab.deliver_all(deliveries).await;
    let taken = |one: &Result<Delivered, _>| {
        one.as_ref()
            .is_ok_and(|one| one.verdict.rejection().is_none())
    };
    assert!(each.iter().all(taken), "the limit itself is taken");
    for over in [signal(id, "s"), adding(id, 2)] {
        let answer = lab.deliver(over).await;
        refused(&lab, &answer, Rejection::InboxFull).await;
        assert_eq!(answer.verdict.outcome(), "rejected_limit_exceeded");
    }
    assert_eq!(Rejection::InboxFull.reason(), "inbox_full");
    let worker = lab.worker("w").await;
    let claimed = lab.claim(worker).await;
    lab.commit(
        claimed.claim,
        super::build::answer(&[claimed.updates[0].id], None),
    )
    .await;
    lab.signal(id, "s").await;
}

pub async fn an_inbox_fills_up_in_the_middle_of_a_batch(lab: Lab) {
    // rules 7.3 and 16.3
    let id = lab.start(plain()).await;
    let each = lab.deliver_all(vec![signal(id, "s"); 103]).await;
    let full = |one: &Result<Delivered, _>| {
        one.as_ref().unwrap().verdict.rejection() == Some(Rejection::InboxFull)
    };
    assert_eq!(each.iter().position(full), Some(100));
    assert_eq!(each.iter().filter(|one| full(one)).count(), 3);
    assert_eq!(lab.get(id).await.inbox.signals, 100);
}

pub async fn a_payload_over_the_limit_is_refused_and_not_kept(lab: Lab) {
    // rules 7.3 and 16.3
    let id = lab.start(plain()).await;
    // As it is stored: a list of one text.
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 4));
    lab.accept(paying(id, "s", &text(1 << 20))).await;
    let answer = lab.deliver(paying(id, "s", &text((1 << 20) + 1))).await;
    refused(&lab, &answer, Rejection::PayloadTooLarge).await;
    assert_eq!(answer.verdict.outcome(), "rejected_limit_exceeded");
    assert_eq!(Rejection::PayloadTooLarge.reason(), "payload_too_large");
    let exceeded = answer.limit.as_ref().unwrap();
    assert_eq!(exceeded.limit, "payload_bytes");
    assert_eq!((exceeded.most, exceeded.met), (1 << 20, (1 << 20) + 1));
    assert_eq!(answer.record.unwrap().arguments, json("null"));
}

pub async fn the_first_line_that_applies_decides(lab: Lab) {
    // rule 7.3
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    let first = lab.start(keyed("k")).await;
    lab.accept(once("d", paying(first, "paid", "5"))).await;
    let verdict = async |delivery: NewCommand| lab.deliver(delivery).await.verdict.rejection();
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    // 3 before 7 and 8.
    let unknown = once("d", signal(first, "shipped"));
    assert_eq!(
        verdict(unknown).await,
        Some(Rejection::ConflictingDuplicate)
    );
    let invalid = once("d", paying(first, "paid", "\"x\""));
    assert_eq!(
        verdict(invalid).await,
        Some(Rejection::ConflictingDuplicate)
    );
    // 7 before 9, 8 before 9.
    assert_eq!(
        verdict(paying(first, "shipped", &huge)).await,
        Some(Rejection::UnknownSignal)
    );
    assert_eq!(
        verdict(paying(first, "paid", &huge)).await,
        Some(Rejection::InvalidSignal)
    );
    // 7 and 8 before a full inbox.
    lab.deliver_all(vec![signal(first, "stop"); 99]).await;
    assert_eq!(
        verdict(signal(first, "shipped")).await,
        Some(Rejection::UnknownSignal)
    );
    assert_eq!(
        verdict(signal(first, "paid")).await,
        Some(Rejection::InvalidSignal)
    );
    assert_eq!(
        verdict(signal(first, "stop")).await,
        Some(Rejection::InboxFull)
    );
    // 2 before a full inbox.
    assert!(
        lab.deliver(once("d", paying(first, "paid", "5")))
            .await
            .duplicate
    );
    lab.step(worker, continue_as_new("again")).await;
    // 5 before 7; 2 before 5.
    assert_eq!(
        verdict(signal(first, "shipped")).await,
        Some(Rejection::NotCurrent)
    );
    assert!(
        lab.deliver(once("d", paying(first, "paid", "5")))
            .await
            .duplicate
    );
    lab.step(worker, done()).await;
    // 6 before 7 and 8; 3 before 6.
    assert_eq!(
        verdict(signal(key("k"), "shipped")).await,
        Some(Rejection::NotActive)
    );
    assert_eq!(
        verdict(signal(key("k"), "paid")).await,
        Some(Rejection::NotActive)
    );
    assert_eq!(
        verdict(once("d", paying(key("k"), "paid", "6"))).await,
        Some(Rejection::ConflictingDuplicate)
    );
}

pub async fn a_record_tells_who_sent_it_and_when(lab: Lab) {
    // rule 7.3
    let id = lab.start(keyed("k")).await;
    let from = |source: &str, delivery: NewCommand| NewCommand {
        source: Some(source.to_owned()),
        ..delivery
    };
    let good = lab
        .accept(from("api:alice", once("d", paying(id, "paid", "5"))))
        .await;
    assert_eq!(
        (good.source.as_deref(), good.claimed_source.as_deref()),
        lab.recorded("api:alice", None)
    );
    assert_eq!(
        (good.received_at, good.kind),
        (lab.now(), CommandKind::Signal)
    );
    assert_eq!(good.dedup_key, Some(name("d")));
    assert_eq!((good.key.clone(), good.closed_at), (Some(key("k")), None));
    let bad = lab
        .deliver(from("api:bob", once("d", paying(id, "paid", "6"))))
        .await;
    refused(&lab, &bad, Rejection::ConflictingDuplicate).await;
    let bad = bad.record.unwrap();
    assert_eq!(
        (bad.source.as_deref(), bad.claimed_source.as_deref()),
        lab.recorded("api:bob", None)
    );
    assert_eq!((bad.instance, bad.chain), (Some(id), Some(id)));
    // A caller that names no source claims nothing.
    let plain = lab.signal(id, "paid").await;
    assert_eq!((plain.source, plain.claimed_source), (lab.caller, None));
}

pub async fn what_a_sender_claims_to_be_is_kept_beside_its_source(lab: Lab) {
    // rules 7.3 and 7.8
    lab.under(updates()).await;
    let id = lab.start(keyed("k")).await;
    let claiming = |delivery: NewCommand| NewCommand {
        source: Some("http:till".into()),
        claimed_source: Some("desk 3".into()),
        ..delivery
    };
    let is_kept = |record: &Command| {
        assert_eq!(
            (record.source.as_deref(), record.claimed_source.as_deref()),
            lab.recorded("http:till", Some("desk 3")),
            "{record:?}"
        );
    };
    let sent = claiming(once("d", signal(id, "paid")));
    let first = lab.accept(sent.clone()).await;
    is_kept(&first);
    is_kept(&lab.record(first.id).await);
    let again = NewCommand {
        source: Some("another".into()),
        claimed_source: None,
        ..sent
    };
    is_kept(&lab.deliver(again).await.record.unwrap());
    is_kept(&lab.accept(claiming(adding(id, 1))).await);
    is_kept(
        &lab.deliver(claiming(signal(id, "paid")))
            .await
            .record
            .unwrap(),
    );
    // One that is held is written again when somebody starts.
    let waiting = claiming(held("later", "paid", MINUTE));
    let waiting = lab.deliver(waiting).await.record.unwrap();
    is_kept(&waiting);
    lab.start(keyed("later")).await;
    let handed = lab.record(waiting.id).await;
    assert_eq!(handed.status, CommandStatus::Received);
    is_kept(&handed);
}

pub async fn a_claim_that_is_long_or_unclean_is_refused_and_touches_no_other(lab: Lab) {
    // rule 7.3
    let id = lab.start(plain()).await;
    // Behind a server it is the source that is claimed; in front of none it is as long as its owner likes.
    let claiming = |text: &str| match lab.caller {
        Some(_) => (Some(text.to_owned()), None),
        None => (None, Some(text.to_owned())),
    };
    for bad in ["", "a\nb", "\u{0}", "\u{9b}", &"x".repeat(256)] {
        let (source, claimed_source) = claiming(bad);
        let delivery = NewCommand {
            source: source.clone(),
            claimed_source: claimed_source.clone(),
            ..signal(id, "paid")
        };
        let with_start = NewCommand {
            start: Some(Box::new(keyed("new"))),
            ..delivery.clone()
        };
        let each = lab
            .deliver_all(vec![delivery, signal(id, "paid"), with_start])
            .await;
        let outcomes: Vec<&str> = each
            .iter()
            .map(|one| {
                one.as_ref()
                    .map_or_else(|why| why.reason(), |one| one.verdict.outcome())
            })
            .collect();
        assert_eq!(
            outcomes,
            ["bad_source", "signal_received", "bad_source"],
            "{bad:?}"
        );
        let cancel = Cancel {
            source,
            claimed_source,
            ..cancelling(id)
        };
        let error = lab.try_run(vec![Op::Cancel(vec![cancel])]).await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("invalid source") && error.contains("255"),
            "{error}"
        );
    }
    assert_eq!(count(&lab).await, 5);
    let (source, claimed_source) = claiming(&"é".repeat(127));
    lab.accept(NewCommand {
        source,
        claimed_source,
        ..signal(id, "paid")
    })
    .await;
}

pub async fn one_refused_message_touches_no_other(lab: Lab) {
    // rule 7.3
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    let id = lab.parked(worker, plain(), &["paid"], None).await;
    let named = Arguments::Named(vec![("amount".into(), json("7"))]);
    let each = lab
        .deliver_all(vec![
            signal(unknown_id(id), "paid"),
            signal(id, "shipped"),
            NewCommand {
                arguments: named,
                ..signal(id, "paid")
            },
            signal(id, "paid"),
        ])
        .await;
    let outcomes: Vec<&str> = each
        .iter()
        .map(|one| one.as_ref().unwrap().verdict.outcome())
        .collect();
    assert_eq!(
        outcomes,
        [
            "no_target",
            "rejected_unknown_signal",
            "signal_received",
            "rejected_invalid_arguments"
        ]
    );
    assert_eq!(lab.claim(worker).await.awaited.len(), 1);
    assert_eq!(count(&lab).await, 3);
}

pub async fn a_batch_of_deliveries_over_the_limit_is_refused_as_a_whole(lab: Lab) {
    // rule 16.3
    let id = lab.start(plain()).await;
    let op = Op::Deliver(vec![signal(id, "s"); 100_001]);
    lab.try_run(vec![op]).await.unwrap_err();
    assert_eq!(count(&lab).await, 0);
}
