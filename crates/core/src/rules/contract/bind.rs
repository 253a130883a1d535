//! Binding arguments to parameters.

use std::collections::BTreeMap;

use serde_json::Value;

use super::meter::Steps;
use super::types::Type;
use super::unfit::{ARGUMENTS, Problem, Problems, Unfit};
use super::{list, object, same};
use crate::model::{Arguments, Json, Name, Parameter};

/// The compiled parameters of one signal or update.
pub(super) struct Signature {
    slots: Vec<Slot>,
    /// The positions of the parameters, by name.
    positions: BTreeMap<String, usize>,
}

/// One parameter.
struct Slot {
    name: String,
    /// The compiled type, or the reason why it could not be compiled. In that case the contract is refused, or an
    /// earlier release had accepted it.
    type_: Result<Type, String>,
    is_nullable: bool,
    is_variadic: bool,
    default: Option<Json>,
}

/// The arguments that were given for a parameter.
enum Given<'a> {
    Nothing,
    One(&'a Json),
    /// For a variadic parameter.
    Rest(Vec<&'a Json>),
}

impl Signature {
    /// Compiles parameters, and reports their problems.
    pub(super) fn new(parameters: &[Parameter], problem: &mut dyn FnMut(String)) -> Self {
        let mut positions = BTreeMap::new();
        let mut slots = Vec::new();
        for (position, parameter) in parameters.iter().enumerate() {
            let name = &parameter.name;
            let mut problem = |text: &str| problem(format!("parameter {name:?}: {text}"));
            if let Err(refusal) = Name::new(name) {
                problem(&refusal.to_string());
            }
            if positions.insert(name.clone(), position).is_some() {
                problem("there are two of this name");
            }
            if parameter.variadic && position + 1 < parameters.len() {
                problem("a variadic parameter must be the last");
            }
            slots.push(Slot::new(parameter, &mut problem));
        }
        Self { slots, positions }
    }

    /// Returns the values by parameter name, in the contract's order, or all problems of the arguments.
    pub(super) fn bind(&self, arguments: &Arguments, steps: &mut Steps) -> Result<Json, Unfit> {
        let mut problems = Problems::new(steps);
        let values = match arguments {
            // rule 8.3: if there are parameters, a payload that is an object counts as named arguments.
            Arguments::Payload(payload) if self.is_by_name(payload) => {
                match Arguments::from_json(payload) {
                    Ok(Arguments::Named(values)) => {
                        let given = self.by_name(&values, &mut problems);
                        self.values(given, &mut problems)
                    }
                    _ => {
                        let message = "has a key that is not a string";
                        problems.add(ARGUMENTS, Problem::new("unreadable", message));
                        Vec::new()
                    }
                }
            }
            Arguments::Payload(payload) => {
                let given = self.by_position(std::slice::from_ref(payload), &mut problems);
                self.values(given, &mut problems)
            }
            Arguments::Positional(values) => {
                let given = self.by_position(values, &mut problems);
                self.values(given, &mut problems)
            }
            Arguments::Named(values) => {
                let given = self.by_name(values, &mut problems);
                self.values(given, &mut problems)
            }
        };
        problems.finish()?;
        let names = self.slots.iter().map(|slot| slot.name.as_str());
        Ok(object(names.zip(values)))
    }

    fn is_by_name(&self, payload: &Json) -> bool {
        !self.slots.is_empty() && payload.as_str().trim_start().starts_with('{')
    }

    fn by_position<'a>(&self, values: &'a [Json], problems: &mut Problems<'_>) -> Vec<Given<'a>> {
        let mut left = values.iter();
        let given = self.slots.iter().map(|slot| match slot.is_variadic {
            true => Given::Rest(left.by_ref().collect()),
            false => left.next().map_or(Given::Nothing, Given::One),
        });
        let given = given.collect();
        if left.len() > 0 {
            let most = self.slots.len();
            let message = format!("are {}, but at most {most} can be given", values.len());
            problems.add(ARGUMENTS, Problem::new("too_many", message));
        }
        given
    }

    fn by_name<'a>(
        &self,
        values: &'a [(String, Json)],
        problems: &mut Problems<'_>,
    ) -> Vec<Given<'a>> {
        let mut given: Vec<Given<'a>> = self.slots.iter().map(|_| Given::Nothing).collect();
        for (name, value) in values {
            let value_of = self.positions.get(name).and_then(|at| given.get_mut(*at));
            match value_of {
                None => problems.add(name, Problem::new("unknown", "is not a parameter")),
                Some(unset @ Given::Nothing) => *unset = Given::One(value),
                Some(_) => problems.add(name, Problem::new("given_twice", "is given twice")),
            }
        }
        given
    }

    fn values(&self, given: Vec<Given<'_>>, problems: &mut Problems<'_>) -> Vec<Json> {
        let slots = self.slots.iter().zip(given);
        slots
            .map(|(slot, given)| slot.value(given, problems))
            .collect()
    }
}

impl Slot {
    fn new(parameter: &Parameter, problem: &mut dyn FnMut(&str)) -> Self {
        let type_ = Type::new(&parameter.type_);
        if let Err(text) = &type_ {
            problem(text);
        }
        let slot = Self {
            name: parameter.name.clone(),
            type_,
            is_nullable: parameter.nullable,
            is_variadic: parameter.variadic,
            default: parameter.default.clone(),
        };
        if let Some(default) = &parameter.default {
            if parameter.variadic {
                problem(
                    "a variadic parameter is an empty list when it is left out, and has no default",
                );
            }
            let mut steps = Steps::default();
            let known = slot.type_.is_ok();
            for found in known
                .then(|| slot.problems(default, &mut steps))
                .into_iter()
                .flatten()
            {
                problem(&format!("its default {}", found.message));
            }
            if steps.are_spent() {
                problem("checking its default takes too long");
            }
            // A contract is stored and read back as values.
            let stored = default.to::<Value>().and_then(|value| Json::of(&value));
            if !stored.is_ok_and(|stored| same(&stored, default)) {
                problem(
                    "its default has a number that is too large or too fine, or is nested too deeply",
                );
            }
        }
        slot
    }

    /// Returns the value of the parameter, or `null` if it has a problem, which is reported.
    fn value(&self, given: Given<'_>, problems: &mut Problems<'_>) -> Json {
        let taken;
        let rest: Vec<&Json> = match given {
            Given::One(value) if !self.is_variadic => {
                self.check(value, "", problems);
                return value.clone();
            }
            Given::Nothing if !self.is_variadic => {
                if let Some(default) = &self.default {
                    return default.clone();
                }
                if !self.is_nullable {
                    problems.add(&self.name, Problem::new("missing", "must be given"));
                }
                return Json::null();
            }
            Given::Nothing => Vec::new(),
            Given::Rest(values) => values,
            // rule 8.3: a variadic parameter that is given by name is a list.
            Given::One(value) => match Arguments::from_json(value) {
                Ok(Arguments::Positional(values)) => {
                    taken = values;
                    taken.iter().collect()
                }
                _ => {
                    let message = "must be an array: it takes all that is left";
                    problems.add(&self.name, Problem::new("wrong_type", message));
                    return Json::null();
                }
            },
        };
        for (position, value) in rest.iter().enumerate() {
            self.check(value, &format!("[{position}] "), problems);
        }
        list(rest.into_iter())
    }

    fn check(&self, value: &Json, prefix: &str, problems: &mut Problems<'_>) {
        if problems.are_unknown() {
            return;
        }
        for problem in self.problems(value, problems.steps()) {
            let message = format!("{prefix}{}", problem.message);
            problems.add(&self.name, Problem { message, ..problem });
        }
    }

    fn problems(&self, value: &Json, steps: &mut Steps) -> Vec<Problem> {
        let is_null = value.as_str().trim() == "null";
        match &self.type_ {
            _ if is_null && self.is_nullable => Vec::new(),
            Ok(type_) => type_.problems(value, steps),
            Err(why) => vec![Problem::new(
                "unreadable",
                format!("cannot be checked: {why}"),
            )],
        }
    }
}
