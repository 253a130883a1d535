//! Checks arguments against contracts, and normalises them.

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

/// A compiled contract. Compiling costs far more than using it: keep it.
pub struct Terms {
    contract: Contract,
    signals: BTreeMap<Name, Option<Signature>>,
    updates: BTreeMap<Name, Option<Signature>>,
}

impl Terms {
    /// Compiles a contract that must be valid; the refusal lists all problems.
    ///
    /// Nothing is fetched: a schema with a reference to anything outside itself is refused.
    pub fn new(contract: &Contract) -> Result<Self, Refusal> {
        let mut problems = Vec::new();
        let terms = Self::with(contract, &mut problems);
        if problems.is_empty() {
            Ok(terms)
        } else {
            Err(Refusal::BadContract { problems })
        }
    }

    /// Compiles a contract that was accepted before, perhaps by an earlier release that refused less. If a parameter's
    /// type would be refused now, no argument matches it, and the refusal says why.
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

    /// The contract that it was compiled from.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The signals that are declared.
    pub fn signals(&self) -> impl Iterator<Item = &Name> {
        self.signals.keys()
    }

    /// `true` if a signal with that name can be sent (rule 7.3): a machine that declares no signals accepts any.
    pub fn takes(&self, signal: &Name) -> bool {
        self.signals.is_empty() || self.signals.contains_key(signal)
    }

    /// The updates that are declared.
    pub fn updates(&self) -> impl Iterator<Item = &Name> {
        self.updates.keys()
    }

    /// Returns the normalised arguments of a signal: an object by parameter names if there are parameters, otherwise a
    /// list. Uses at most the steps that are left (rule 8.5).
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

    /// Returns the normalised arguments of an update, in the same way; only declared updates are accepted.
    pub fn update(
        &self,
        name: &Name,
        arguments: &Arguments,
        steps: &mut Steps,
    ) -> Result<Json, Unfit> {
        fit(&self.updates, name, arguments, steps)
    }
}

/// Returns the normalised arguments if nothing is declared: a list. A payload is one value, and so are named arguments.
pub fn free(arguments: &Arguments) -> Json {
    match arguments {
        Arguments::Payload(value) => list(iter::once(value)),
        Arguments::Positional(values) => list(values.iter()),
        // rule 8.4: an object is never taken for more than one value.
        Arguments::Named(values) => list(iter::once(&object(
            values
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        ))),
    }
}

/// Returns arguments as they were given, for the record of a refused command: by name if they were given by name,
/// otherwise a list. If there is a contract, a payload that is an object counts as named arguments.
pub fn given(arguments: &Arguments, is_declared: bool) -> Json {
    match arguments {
        Arguments::Named(values) => object(
            values
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone())),
        ),
        Arguments::Payload(value)
            if is_declared && value.as_str().trim_start().starts_with('{') =>
        {
            value.clone()
        }
        Arguments::Payload(_) | Arguments::Positional(_) => free(arguments),
    }
}

/// Returns the value that a wait yields for normalised arguments: `true` for none, the value for one, the list of
/// values for several.
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
    /// Returns its arguments as a wait yields them: `true` for none, the value for one argument, the list for several.
    pub fn payload(&self) -> Json {
        yields(&self.arguments)
    }
}

/// `true` if normalised arguments are equal as JSON values: the order of keys and the spelling of numbers and strings
/// make no difference.
pub fn same(a: &Json, b: &Json) -> bool {
    a == b || canonical(a) == canonical(b)
}

/// Compiles a list of declarations; their problems are added to `problems`.
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

/// Returns values as a list, each with its text as it was given.
fn list<'a>(values: impl Iterator<Item = &'a Json>) -> Json {
    written(&values.collect::<Vec<_>>())
}

/// Returns values as an object in their order, each with its text as it was given.
fn object<'a>(values: impl Iterator<Item = (&'a str, Json)>) -> Json {
    struct Object<'a>(Vec<(&'a str, Json)>);
    impl Serialize for Object<'_> {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
        }
    }
    written(&Object(values.collect()))
}

/// Writes lists and objects whose parts are already JSON, so writing cannot fail.
fn written<T: Serialize>(value: &T) -> Json {
    Json::of(value).unwrap_or_default()
}
