//! Arguments that are accepted, arguments that are refused, and the reported problems. A JSON Schema validator is the
//! second opinion.

mod binding;
mod contracts;
mod properties;
mod steps;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::{Parameter, TypeSpec};

fn text(text: &str) -> Json {
    Json::parse(text.into()).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn contract(parameters: Vec<Parameter>) -> Contract {
    let accepts = Accepts {
        name: name("s"),
        parameters: Some(parameters),
    };
    Contract {
        signals: vec![accepts.clone()],
        updates: vec![accepts],
    }
}

/// Binds arguments, written as JSON, to parameters. Returns the normalised arguments, or the codes of the problems.
fn sent(parameters: &[Parameter], arguments: &str) -> Result<String, Value> {
    let terms = Terms::new(&contract(parameters.to_vec())).unwrap();
    let arguments: Arguments = serde_json::from_str(arguments).unwrap();
    let signal = terms.signal(&name("s"), &arguments, &mut Steps::default());
    let update = terms.update(&name("s"), &arguments, &mut Steps::default());
    assert_eq!(signal, update);
    match signal {
        Ok(json) => Ok(json.as_str().into()),
        Err(Unfit::Unknown) => panic!("it is declared"),
        Err(Unfit::Invalid(errors)) => Err(codes(&errors)),
        Err(Unfit::TooLong { .. }) => panic!("it takes few steps"),
    }
}

fn codes(errors: &ValidationErrors) -> Value {
    let fields = errors.problems().iter().map(|(field, problems)| {
        let codes: Vec<&str> = problems.iter().map(|it| it.code.as_ref()).collect();
        (field.clone(), json!(codes))
    });
    Value::Object(fields.collect())
}

fn order() -> Vec<Parameter> {
    vec![
        Parameter::new("сумма", "int"),
        Parameter::new("note", "string").nullable(),
        Parameter::new("rate", "float").default_to(text("1.50")),
    ]
}
