//! Contracts: stored when the instance starts, and the authority for that run from then on.

use std::time::Duration;

use abide_core::model::{
    Accepts, Arguments, CommandStatus, Committed, Contract, Contracted, Declared, NewCommand,
    Parameter, Park, Rejection, Start, Status, Verdict,
};
use serde_json::Value;

use super::build::{
    MINUTE, adding, cancelling, continue_as_new, done, json, key, keyed, name, paying, plain,
    signal, strict, under, updates, wait,
};
use super::lab::Lab;
use super::sweeping::sweep;
use crate::{Answer, Op, Survey};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn sent(delivery: NewCommand, arguments: Arguments) -> NewCommand {
    NewCommand {
        arguments,
        ..delivery
    }
}

pub async fn the_contract_of_an_instance_is_the_one_it_started_under(lab: Lab) {
    // rule 8.2
    lab.under(strict()).await;
    let old = lab.start(plain()).await;
    lab.under(updates()).await;
    let new = lab.start(plain()).await;
    let answer = lab.deliver(signal(old, "shipped")).await;
    assert_eq!(answer.verdict, Verdict::Rejected(Rejection::UnknownSignal));
    lab.signal(new, "shipped").await;
    assert_eq!(lab.get(old).await.contract, Some(strict().id()));
    assert_eq!(lab.get(new).await.contract, Some(updates().id()));
}

pub async fn a_contract_can_be_read_back(lab: Lab) {
    // rule 8.2
    lab.under(strict()).await;
    let stored = lab.store.contract(strict().id()).await.unwrap();
    assert_eq!(stored.unwrap().to::<Contract>().unwrap(), strict());
    assert_eq!(lab.store.contract(updates().id()).await.unwrap(), None);
    let ids = [updates().id(), strict().id()];
    let page = lab.store.contracts_page(&ids).await.unwrap();
    assert_eq!((page.found.len(), page.rest.len()), (1, 0));
}

pub async fn declaring_a_contract_again_changes_nothing(lab: Lab) {
    // rule 8.2
    for _ in 0..2 {
        lab.under(strict()).await;
    }
    let id = lab.start(plain()).await;
    lab.accept(paying(id, "paid", "5")).await;
}

pub async fn a_contract_that_makes_no_sense_is_refused_with_the_declaration(lab: Lab) {
    // rule 8.1
    let paid = Accepts {
        name: name("paid"),
        parameters: Some(vec![Parameter::new("amount", "no such type")]),
    };
    let bad = Contract {
        signals: vec![paid],
        ..Contract::default()
    };
    let op = Op::Declare {
        machines: vec![under(&bad)],
        contracts: vec![strict(), bad.clone()],
    };
    lab.try_run(vec![op]).await.unwrap_err();
    assert_eq!(lab.store.contract(strict().id()).await.unwrap(), None);
    assert_eq!(lab.get(lab.start(plain()).await).await.contract, None);
}

pub async fn a_start_may_name_its_contract_or_none(lab: Lab) {
    // rule 8.2
    lab.under(strict()).await;
    lab.run(Op::Declare {
        machines: Vec::new(),
        contracts: vec![updates()],
    })
    .await;
    let of = |contract| Start {
        contract,
        ..plain()
    };
    let free = lab.start(of(Contracted::Free)).await;
    let other = lab.start(of(Contracted::Of(updates().id()))).await;
    assert_eq!(lab.get(free).await.contract, None);
    assert_eq!(lab.get(other).await.contract, Some(updates().id()));
    lab.signal(free, "shipped").await;
    let refused = lab.deliver(adding(free, 1)).await;
    assert_eq!(refused.verdict, Verdict::Rejected(Rejection::UnknownUpdate));
    lab.update(other).await;
}

pub async fn arguments_are_stored_by_parameter(lab: Lab) {
    // rule 8.3
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    let named = |pairs: &[(&str, &str)]| {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), json(value));
        Arguments::Named(pairs.iter().map(pair).collect())
    };
    let both = "{\"amount\":5,\"note\":\"x\"}";
    let alone = "{\"amount\":5,\"note\":null}";
    for (arguments, stored) in [
        (Arguments::Payload(json("5")), alone),
        (Arguments::Payload(json("{\"amount\":5}")), alone),
        (Arguments::Positional(vec![json("5"), json("\"x\"")]), both),
        (named(&[("note", "\"x\""), ("amount", "5")]), both),
        (named(&[("amount", "5"), ("note", "null")]), alone),
    ] {
        let record = lab.accept(sent(signal(id, "paid"), arguments)).await;
        assert_eq!(record.arguments, json(stored));
        assert_eq!(lab.record(record.id).await.arguments, json(stored));
    }
}

pub async fn all_errors_are_reported_at_once_and_kept(lab: Lab) {
    // rule 8.3
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    let arguments = Arguments::Named(vec![
        ("note".into(), json("7")),
        ("extra".into(), json("1")),
    ]);
    let answer = lab.deliver(sent(signal(id, "paid"), arguments)).await;
    let record = answer.record.unwrap();
    assert_eq!(record.status, CommandStatus::Rejected);
    let errors = record.validation_errors.clone().unwrap();
    let errors: Value = serde_json::from_str(errors.as_str()).unwrap();
    let fields: Vec<&String> = errors.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["amount", "extra", "note"]);
    let lists = errors.as_object().unwrap().values();
    assert!(
        lists
            .clone()
            .all(|list| list.as_array().is_some_and(|list| !list.is_empty()))
    );
    assert_eq!(lab.record(record.id).await, *record);
    let many = Arguments::Positional(vec![json("1"), json("null"), json("3")]);
    let answer = lab.deliver(sent(signal(id, "paid"), many)).await;
    let errors = answer.record.unwrap().validation_errors.unwrap();
    assert!(errors.as_str().contains("\"arguments\""), "{errors:?}");
}

pub async fn nothing_is_coerced(lab: Lab) {
    // rule 8.1
    lab.under(strict()).await;
    let id = lab.start(plain()).await;
    for (payload, good) in [
        ("5", true),
        ("5.0", true),
        ("5.5", false),
        ("\"5\"", false),
        ("true", false),
        ("null", false),
    ] {
        let answer = lab.deliver(paying(id, "paid", payload)).await;
        assert_eq!(answer.verdict == Verdict::Received, good, "{payload}");
    }
}

pub async fn without_a_contract_an_object_is_one_value(lab: Lab) {
    // rule 8.4
    let id = lab.start(plain()).await;
    let object = "{\"amount\":5}";
    let one = lab.accept(paying(id, "paid", object)).await;
    assert_eq!(one.arguments, json("[{\"amount\":5}]"));
    let none = lab.accept(signal(id, "paid")).await;
    assert_eq!(none.arguments, json("[]"));
    let two = Arguments::Positional(vec![json("1"), json("[2]")]);
    let two = lab.accept(sent(signal(id, "paid"), two)).await;
    assert_eq!(two.arguments, json("[1,[2]]"));
}

pub async fn a_run_that_continues_takes_the_newest_contract_of_its_version(lab: Lab) {
    // rules 2.4 and 8.2
    lab.under(updates()).await;
    let two = Declared {
        version: 2,
        ..under(&updates())
    };
    lab.run(Op::Declare {
        machines: vec![two],
        contracts: vec![updates()],
    })
    .await;
    let worker = lab.worker("w").await;
    lab.start(Start {
        version: Some(1),
        ..keyed("k")
    })
    .await;
    lab.step(worker, continue_as_new("again")).await;
    let same = lab.find(key("k")).await.unwrap();
    assert_eq!((same.version, same.contract), (1, Some(updates().id())));
    // What is declared meanwhile counts from the next run on, and what is pending goes along.
    lab.signal(same.id, "shipped").await;
    lab.under(strict()).await;
    let contract = lab.get(same.id).await.contract;
    assert_eq!(contract, Some(updates().id()), "not in the middle of a run");
    lab.step(worker, continue_as_new("again")).await;
    let newest = lab.find(key("k")).await.unwrap();
    assert_eq!((newest.version, newest.contract), (1, Some(strict().id())));
    assert_eq!(lab.inbox(newest.id).await.len(), 1);
    let newer = abide_core::model::Outcome::ContinueAsNew {
        step: name("again"),
        state: json("1"),
        version: Some(2),
    };
    lab.step(worker, newer).await;
    let newer = lab.find(key("k")).await.unwrap();
    assert_eq!((newer.version, newer.contract), (2, Some(updates().id())));
}

pub async fn a_wait_for_what_the_contract_does_not_declare_is_refused(lab: Lab) {
    // rule 8.6
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    lab.start_all(vec![plain(), super::coding::workflow()])
        .await;
    let claims = lab.claim_some(worker, 2).await;
    let park = super::coding::Coded::parks(Park {
        operation: 1,
        signals: super::coding::signal_waits(1, &["nothing"]),
        ..Park::default()
    });
    let refused = [
        lab.refused(claims[0].claim.again(), wait(&["paid", "nothing"], None))
            .await,
        lab.refused(claims[1].claim.again(), park.into()).await,
    ];
    for refusal in refused {
        let text = refusal.to_string();
        assert!(
            text.contains("\"nothing\"") && text.contains("declare"),
            "{text}"
        );
    }
    let waits = lab
        .commit(claims[0].claim.again(), wait(&["paid"], None))
        .await;
    assert_eq!(waits, Committed::Moved(Status::AwaitingSignal));
}

pub async fn a_run_of_what_is_not_declared_keeps_its_contract(lab: Lab) {
    // rule 8.2: and a version that was not declared has none.
    lab.under(strict()).await;
    let worker = lab.worker("w").await;
    lab.start(keyed("k")).await;
    let unknown = abide_core::model::Outcome::ContinueAsNew {
        step: name("again"),
        state: json("1"),
        version: Some(7),
    };
    let claimed = lab.claim(worker).await;
    lab.commit(claimed.claim, unknown).await;
    let found = lab.find(key("k")).await.unwrap();
    assert_eq!((found.version, found.contract), (7, None));
}

/// Surveys the contracts that are in use, page by page; how many were deleted.
async fn survey(lab: &Lab) -> usize {
    let mut page = Some(Survey::default());
    let mut deleted = 0;
    while let Some(next) = page {
        match lab.run(Op::Survey(next)).await {
            Answer::Surveyed {
                next,
                deleted: gone,
            } => {
                page = next;
                deleted += gone;
            }
            other => panic!("a survey is not answered with {other:?}"),
        }
    }
    deleted
}

async fn is_kept(lab: &Lab, contract: &Contract) -> bool {
    let stored = lab.store.contract(contract.id()).await.unwrap();
    stored.is_some()
}

pub async fn contracts_that_nothing_names_any_more_are_deleted(lab: Lab) {
    // rule 16.2: they were kept for ever.
    lab.under(strict()).await;
    let old = lab.start(plain()).await;
    lab.under(updates()).await;
    let brief = Contract {
        signals: vec![Accepts {
            name: name("brief"),
            parameters: None,
        }],
        ..Contract::default()
    };
    let given = || Start {
        contract: Contracted::Given(Box::new(brief.clone())),
        ..plain()
    };
    let ended = lab.start(given()).await;
    assert_eq!(survey(&lab).await, 0, "all were used today");
    lab.cancel(cancelling(ended)).await;
    lab.pass(DAY + MINUTE * 60);
    assert_eq!(
        survey(&lab).await,
        0,
        "each is named by an instance or a machine"
    );
    assert_eq!(sweep(&lab, lab.now(), None, 10).await.0, 1);
    lab.pass(DAY + MINUTE * 60);
    assert_eq!(survey(&lab).await, 1);
    assert!(is_kept(&lab, &strict()).await && is_kept(&lab, &updates()).await);
    assert!(!is_kept(&lab, &brief).await);
    // The authority over a run that goes on is there as long as the run.
    let answer = lab.deliver(signal(old, "shipped")).await;
    assert_eq!(answer.verdict, Verdict::Rejected(Rejection::UnknownSignal));
    lab.cancel(cancelling(old)).await;
    assert_eq!(sweep(&lab, lab.now() + MINUTE, None, 10).await.0, 1);
    lab.pass(DAY + MINUTE * 60);
    assert_eq!(survey(&lab).await, 1);
    assert!(!is_kept(&lab, &strict()).await && is_kept(&lab, &updates()).await);
}

pub async fn more_unused_contracts_than_one_page_has_are_deleted_by_one_survey(lab: Lab) {
    // rule 16.2: the last page deleted a thousand, and the others waited for the next survey.
    const MANY: usize = 1_200;
    let given = |number: usize| Start {
        contract: Contracted::Given(Box::new(Contract {
            signals: vec![Accepts {
                name: name(&format!("s{number}")),
                parameters: None,
            }],
            ..Contract::default()
        })),
        ..plain()
    };
    let started = lab.starts((0..MANY).map(given).collect()).await;
    let ids = started.into_iter().map(|one| one.unwrap().id());
    let cancelled = lab.run(Op::Cancel(ids.map(cancelling).collect())).await;
    assert!(matches!(cancelled, Answer::Operated(_)));
    lab.pass(MINUTE);
    let mut swept = 0;
    while swept < MANY {
        let (deleted, _) = sweep(&lab, lab.now(), None, 1_000).await;
        assert!(deleted > 0, "{swept} of {MANY} were swept");
        swept += deleted;
    }
    lab.pass(DAY + MINUTE * 60);
    assert_eq!(survey(&lab).await, MANY);
}

pub async fn a_contract_that_is_sent_again_stays(lab: Lab) {
    // rule 16.2
    let given = || Start {
        contract: Contracted::Given(Box::new(updates())),
        ..plain()
    };
    let worker = lab.worker("w").await;
    for _ in 0..3 {
        lab.start(given()).await;
        lab.step(worker, done()).await;
        sweep(&lab, lab.now() + MINUTE, None, 10).await;
        lab.pass(DAY - MINUTE * 60);
        assert_eq!(survey(&lab).await, 0);
    }
    lab.pass(MINUTE * 120);
    assert_eq!(survey(&lab).await, 1);
    // What was deleted is stored anew.
    let id = lab.start(given()).await;
    lab.accept(adding(id, 1)).await;
}

pub async fn what_a_machine_declared_until_now_stays_for_a_day(lab: Lab) {
    // rule 16.2: somebody may be starting an instance with it.
    lab.under(strict()).await;
    lab.pass(DAY * 4);
    lab.under(updates()).await;
    assert_eq!(survey(&lab).await, 0);
    lab.pass(DAY + MINUTE * 60);
    assert_eq!(survey(&lab).await, 1);
    assert!(!is_kept(&lab, &strict()).await);
}
