//! Contracts: stored when an instance starts, and enforced also by processes that have no code for it.

use abide::client::SendError;
use abide::contract::ValidationErrors;
use abide::model::{Json, Name};
use serde_json::{Value, json};

use crate::common::{Lab, Script};
use crate::signals::{Strict, args, named, payment, sent_to};

/// A start of the machine by its name alone.
fn wrong(error: SendError) -> ValidationErrors {
    match error {
        SendError::Rejected(rejected) => rejected.validation_errors().unwrap(),
        other => panic!("{other}"),
    }
}

/// The fields, each with the codes of its problems.
fn codes(errors: &ValidationErrors) -> Value {
    let of = |problems: &Vec<abide::contract::Problem>| {
        json!(
            problems
                .iter()
                .map(|one| one.code.as_ref())
                .collect::<Vec<_>>()
        )
    };
    errors
        .problems()
        .iter()
        .map(|(field, problems)| (field.clone(), of(problems)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

on_every_store! {
    async fn a_client_without_code_starts_and_signals_by_name_and_is_held_to_the_contract(lab: Lab) {
        // rules 2.6, 8.1 and 8.2
        let engine = lab.engine().machine(Strict).start().await.unwrap();
        let outside = lab.again().await;
        let id = outside.start("strict", Json::null()).key("order:1").await.unwrap().id();
        let error = outside.signal("order:1", "shipped", args(&[])).await.unwrap_err();
        assert_eq!(error.outcome(), Some("rejected_unknown_signal"));
        let error = outside.signal("order:1", "paid", named(&[("amount", json!("five")), ("colour", json!(1))])).await;
        assert_eq!(codes(&wrong(error.unwrap_err())), json!({"amount": ["wrong_type"], "colour": ["unknown"]}));
        outside.signal("order:1", "paid", named(&[("amount", json!(5))])).await.unwrap();
        assert_eq!(crate::signals::value(&lab.ended(id).await.result.unwrap()), json!(payment(5)));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn all_problems_are_reported_at_once(lab: Lab) {
        // rules 8.1 and 8.3
        lab.start(Strict, json!(null)).key("order:1").await.unwrap();
        let cases = [
            ("moved", args(&[]), json!({"place": ["missing"]})),
            ("moved", args(&[json!(1), json!(true), json!(2), json!("fine")]),
                json!({"place": ["wrong_type"], "floor": ["wrong_type"], "tags": ["wrong_type"]})),
            ("moved", named(&[("place", json!(null)), ("floor", json!(1.5)), ("tags", json!("no list"))]),
                json!({"place": ["null_not_allowed"], "floor": ["wrong_type"], "tags": ["wrong_type"]})),
            ("paid", args(&[json!(1.5), json!(2), json!(3)]),
                json!({"amount": ["wrong_type"], "note": ["wrong_type"], "arguments": ["too_many"]})),
            ("paid", named(&[("amount", json!(null)), ("extra", json!(1))]),
                json!({"amount": ["null_not_allowed"], "extra": ["unknown"]})),
        ];
        for (name, arguments, expected) in cases {
            let error = lab.signal("order:1", name, arguments.clone()).await.unwrap_err();
            assert_eq!(error.reason(), Some("invalid_signal_arguments"));
            assert_eq!(codes(&wrong(error)), expected, "{name} {arguments:?}");
        }
    }
}

on_every_store! {
    async fn arguments_are_bound_by_position_or_by_name_and_defaults_fill_in(lab: Lab) {
        // rules 8.1, 8.3 and 8.4
        let engine = lab.engine().machine(Strict).start().await.unwrap();
        let payload = |value: Value| abide::message::Arguments::Payload(Json::of(&value).unwrap());
        let cases = [
            (args(&[json!("attic")]), json!(["attic", 1, []])),
            (args(&[json!("attic"), json!("third"), json!("a"), json!("b")]), json!(["attic", "third", ["a", "b"]])),
            (named(&[("tags", json!(["a"])), ("place", json!("attic"))]), json!(["attic", 1, ["a"]])),
            (payload(json!({"place": "attic", "floor": 2})), json!(["attic", 2, []])),
            (payload(json!("attic")), json!(["attic", 1, []])),
        ];
        for (at, (arguments, expected)) in cases.into_iter().enumerate() {
            let order = lab.start(Strict, json!(null)).key(format!("k{at}")).await.unwrap();
            lab.signal(&order, "moved", arguments.clone()).await.unwrap();
            assert_eq!(lab.came_to(&order).await, expected, "{arguments:?}");
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn normalised_alike_they_are_the_same_signal(lab: Lab) {
        // rules 7.3 and 8.3
        let order = lab.start(Strict, json!(null)).key("order:1").await.unwrap();
        let send = |arguments| lab.signal("order:1", "moved", arguments).dedup("d");
        assert!(!send(args(&[json!("attic")])).await.unwrap().duplicate);
        assert!(send(named(&[("floor", json!(1)), ("place", json!("attic"))])).await.unwrap().duplicate);
        assert!(send(named(&[("floor", json!(2)), ("place", json!("attic"))])).await.is_err());
        let kept = &sent_to(&lab, order.id()).await[0].arguments;
        assert_eq!(crate::signals::value(kept), json!({"place": "attic", "floor": 1, "tags": []}));
    }
}

on_every_store! {
    async fn a_machine_that_declares_none_takes_any_signal_and_no_update(lab: Lab) {
        // rules 7.3 and 9.1
        let order = lab.start(Script::any(), json!(null)).key("order:1").await.unwrap();
        lab.signal(&order, "whatever", named(&[("a", json!(1))])).await.unwrap();
        let update: abide::Update<(), ()> = abide::Update::new("anything");
        let error = lab.update("order:1", update, &()).await.unwrap_err();
        let abide::client::UpdateError::Send(error) = error else { panic!("{error}") };
        assert_eq!((error.outcome(), error.reason()), (Some("rejected_unknown_update"), Some("unknown_update")));
    }
}

on_every_store! {
    async fn the_contract_that_an_instance_started_under_stays_its_own(lab: Lab) {
        // rule 8.2
        let old = lab.start(Strict, json!(null)).key("old").await.unwrap();
        // The machine is declared anew, and takes anything.
        let engine = lab.engine().machine(Anything).start().await.unwrap();
        let new = lab.start("strict", Json::null()).key("new").version(1).await.unwrap().id();
        lab.signal(new, "shipped", args(&[])).await.unwrap();
        let error = lab.signal(old.id(), "shipped", args(&[])).await.unwrap_err();
        assert_eq!(error.outcome(), Some("rejected_unknown_signal"));
        engine.shutdown().await;
    }
}

/// The same machine in a build that declares nothing.
struct Anything;

impl abide::Machine for Anything {
    const NAME: &'static str = "strict";
    type Step = crate::signals::Stage;
    type State = Value;
    type Output = Value;

    async fn step(
        &self,
        _: crate::signals::Stage,
        ctx: &mut abide::Context<Self>,
    ) -> abide::Outcome<Self> {
        ctx.wait_for("paid").then(crate::signals::Stage::Closed)
    }
}

on_every_store! {
    async fn a_contract_that_makes_no_sense_is_refused_when_something_starts(lab: Lab) {
        // rule 8.1
        let error = lab.start(Senseless, json!(null)).await.unwrap_err().to_string();
        assert!(error.contains("colour") && error.contains("twice"), "all that is wrong with it: {error}");
        let engine = lab.engine().machine(Senseless).start().await;
        assert!(engine.is_err());
    }
}

/// Declares what cannot be.
struct Senseless;

impl abide::Machine for Senseless {
    const NAME: &'static str = "senseless";
    type Step = crate::signals::Stage;
    type State = Value;
    type Output = Value;

    fn messages() -> abide::machine::Messages {
        use abide::contract::{Accepts, Parameter};
        let accepts = |name: &str, parameters: Vec<Parameter>| Accepts {
            name: Name::new(name).unwrap(),
            parameters: Some(parameters),
        };
        abide::machine::Messages::new()
            .signal_of(accepts("a", vec![Parameter::new("x", "colour")]))
            .signal_of(accepts(
                "b",
                vec![
                    Parameter::new("twice", "int"),
                    Parameter::new("twice", "int"),
                ],
            ))
    }

    async fn step(
        &self,
        _: crate::signals::Stage,
        _: &mut abide::Context<Self>,
    ) -> abide::Outcome<Self> {
        abide::done(json!(null))
    }
}
