//! Whether what is sent keeps to what was declared, and what it then is.

mod bind;
mod meter;
mod schema;
mod types;
mod unfit;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use serde::Serialize;

use crate::model::{Accepts, Arguments, Command, Contract, Json, Name, Refusal, canonical};
use bind::Signature;
pub use meter::{Steps, VALIDATION_STEPS_MAX};
pub use unfit::{Problem, Unfit, ValidationErrors};

/// A contract made ready for use. Making one costs far more than using it: keep it.
pub struct Terms {
    contract: Contract,
    signals: BTreeMap<Name, Option<Signature>>,
    updates: BTreeMap<Name, Option<Signature>>,
}

impl Terms {
    /// Takes a contract that must make sense; the refusal tells all that is wrong with it.
    ///
    /// Nothing is fetched: a schema that refers to anything outside itself is refused.
    pub fn new(contract: &Contract) -> Result<Self, Refusal> {
        let mut problems = Vec::new();
        let terms = Self::with(contract, &mut problems);
        if problems.is_empty() {
            Ok(terms)
        } else {
            Err(Refusal::BadContract { problems })
        }
    }

    /// Takes a contract that was taken before, perhaps by an earlier release which refused less: an argument whose type
    /// would be refused now fits nothing, and the refusal tells why.
    pub fn stored(contract: &Contract) -> Self {
        Self::with(contract, &mut Vec::new())
    }

    fn with(contract: &Contract, problems: &mut Vec<String>) -> Self {
        Self {
            contract: contract.clone(),
            signals: signatures("signal", &contract.signals, problems),
            updates: signatures("update", &contract.updates, problems),
        }
    }

    /// The contract it was made from.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The signals that are declared.
    pub fn signals(&self) -> impl Iterator<Item = &Name> {
        self.signals.keys()
    }

    /// Whether a signal of that name can be sent (rule 7.3): a machine that declares no signals takes any.
    pub fn takes(&self, signal: &Name) -> bool {
        self.signals.is_empty() || self.signals.contains_key(signal)
    }

    /// The updates that are declared.
    pub fn updates(&self) -> impl Iterator<Item = &Name> {
        self.updates.keys()
    }

    /// The normalised arguments of a signal: an object by parameter names where there are parameters, else a list. Takes
    /// no more than the steps that are left (rule 8.5).
    pub fn signal(
        &self,
        name: &Name,
        arguments: &Arguments,
        steps: &mut Steps,
    ) -> Result<Json, Unfit> {
        if self.signals.is_empty() {
            return Ok(free(arguments));
        }
        fit(&self.signals, name, arguments, steps)
    }

    /// The normalised arguments of an update, likewise; only declared ones are taken.
    pub fn update(
        &self,
        name: &Name,
        arguments: &Arguments,
        steps: &mut Steps,
    ) -> Result<Json, Unfit> {
        fit(&self.updates, name, arguments, steps)
    }
}

/// The normalised arguments where nothing was declared: a list. A payload is one value, and so are arguments by name.
pub fn free(arguments: &Arguments) -> Json {
    match arguments {
        Arguments::Payload(value) => list(iter::once(value)),
        Arguments::Positional(values) => list(values.iter()),
        // rule 8.4: an object is never guessed to be more than one value.
        Arguments::Named(values) => list(iter::once(&object(
            values
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        ))),
    }
}

/// What a wait yields for normalised arguments: for none `true`, for one its value, for several the list of them.
pub fn yields(normalised: &Json) -> Json {
    let values = match Arguments::from_json(normalised) {
        Ok(Arguments::Positional(values)) => values,
        Ok(Arguments::Named(values)) => values.into_iter().map(|(_, value)| value).collect(),
        Ok(Arguments::Payload(_)) | Err(_) => return normalised.clone(),
    };
    match values.as_slice() {
        [] => written(&true),
        [value] => value.clone(),
        several => list(several.iter()),
    }
}

impl Command {
    /// What it was sent with, as a wait yields it: `true` for nothing, the value for one argument, their list for several.
    pub fn payload(&self) -> Json {
        yields(&self.arguments)
    }
}

/// Whether normalised arguments are equal as JSON values: neither the order of keys nor the spelling of numbers and
/// strings matters.
pub fn same(a: &Json, b: &Json) -> bool {
    a == b || canonical(a) == canonical(b)
}

/// What a list of declarations becomes; what is wrong with them is added to the problems.
fn signatures(
    what: &str,
    declared: &[Accepts],
    problems: &mut Vec<String>,
) -> BTreeMap<Name, Option<Signature>> {
    let mut names = BTreeSet::new();
    let mut signatures = BTreeMap::new();
    for Accepts { name, parameters } in declared {
        if !names.insert(name) {
            problems.push(format!("{what} {name:?} is declared twice"));
        }
        let signature = parameters.as_ref().map(|parameters| {
            Signature::new(parameters, &mut |problem| {
                problems.push(format!("{what} {name:?}: {problem}"));
            })
        });
        signatures.insert(name.clone(), signature);
    }
    signatures
}

fn fit(
    declared: &BTreeMap<Name, Option<Signature>>,
    name: &Name,
    arguments: &Arguments,
    steps: &mut Steps,
) -> Result<Json, Unfit> {
    match declared.get(name) {
        None => Err(Unfit::Unknown),
        Some(None) => Ok(free(arguments)),
        Some(Some(signature)) => signature.bind(arguments, steps),
    }
}

/// Values as a list, each with its text as it was given.
fn list<'a>(values: impl Iterator<Item = &'a Json>) -> Json {
    written(&values.collect::<Vec<_>>())
}

/// Values as an object in their order, each with its text as it was given.
fn object<'a>(values: impl Iterator<Item = (&'a str, Json)>) -> Json {
    struct Object<'a>(Vec<(&'a str, Json)>);
    impl Serialize for Object<'_> {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
        }
    }
    written(&Object(values.collect()))
}

/// Lists and objects of what is JSON already: there is nothing in them that could not be written.
fn written<T: Serialize>(value: &T) -> Json {
    Json::of(value).unwrap_or_default()
}
