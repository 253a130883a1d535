//! Graphs of tasks, as data.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{Json, Operator};

/// A graph: its name, and its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// Its name.
    pub name: String,
    /// Its steps, in the order in which they were written.
    pub steps: Vec<StepSpec>,
}

/// A step of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name, which no other step has.
    pub name: String,
    /// The steps that it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// When it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_if: Option<SkipIf>,
    /// A task, by the name under which its code is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// How long one attempt at the task may take, from its start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When the task is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// The queue in which the task waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// An event to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_event: Option<EventSpec>,
    /// A signal to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_signal: Option<SignalSpec>,
    /// Time to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepSpec>,
    /// Another graph: by its name, or as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<SubGraph>,
}

/// What makes a step be left out: what a step before it came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkipIf {
    /// The step.
    pub step: String,
    /// Where to look in its output.
    pub field: String,
    /// How to compare.
    pub op: Operator,
    /// What with.
    pub value: Json,
}

/// When a task is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// How often it is tried, the first time counted.
    pub max_attempts: u32,
    /// How long to wait before the second attempt.
    pub delay_ms: u64,
    /// By how much that grows each time, in hundredths; 100 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "factor")]
    pub factor: Option<u32>,
    /// The longest it grows to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
}

impl RetrySpec {
    /// Whether its delays grow, and not beyond all measure: by 1 to 1000.
    pub fn has_fit_factor(&self) -> bool {
        self.factor
            .is_none_or(|factor| (100..=100_000).contains(&factor))
    }

    /// How long to wait after that many attempts; none when they are spent.
    pub fn delay_ms(&self, attempts: u32) -> Option<u64> {
        if attempts >= self.max_attempts {
            return None;
        }
        let mut delay = self.delay_ms;
        for _ in 1..attempts {
            let factor = u64::from(self.factor.unwrap_or(100));
            delay = (delay / 100)
                .saturating_mul(factor)
                .saturating_add(delay % 100 * factor / 100);
        }
        Some(delay.min(self.max_delay_ms.unwrap_or(u64::MAX)))
    }
}

/// A factor is written as a number, and kept in hundredths.
mod factor {
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub fn serialize<S: Serializer>(factor: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
        match factor {
            Some(factor) => to.serialize_f64(f64::from(*factor) / 100.0),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        let Some(factor) = Option::<f64>::deserialize(from)? else {
            return Ok(None);
        };
        // Rules say which are taken; here, what can be kept.
        if !(0.0..=f64::from(u32::MAX) / 100.0).contains(&factor) {
            return Err(serde::de::Error::custom(format!(
                "{factor} is no factor: give a number from 1 to 1000"
            )));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        Ok(Some((factor * 100.0).round() as u32))
    }
}

/// An event that a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSpec {
    /// Its type.
    pub event: String,
    /// What it must say: one condition, or a list of them.
    #[serde(rename = "match", default)]
    pub conditions: Matches,
    /// How long to wait.
    pub timeout_ms: u64,
    /// How far back to look for one that was published already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookback_ms: Option<u64>,
}

/// One condition, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Matches(pub Vec<MatchSpec>);

impl Serialize for Matches {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Matches {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // By hand: what is tried in turn forgets which field was wrong.
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Matches;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a condition, which is an object, or a list of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, one: A) -> Result<Matches, A::Error> {
                let one = MatchSpec::deserialize(MapAccessDeserializer::new(one))?;
                Ok(Matches(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<Matches, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(many)).map(Matches)
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

/// A condition on an event, before what it compares with is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchSpec {
    /// Where to look in the event's payload.
    pub left: String,
    /// How to compare.
    pub op: Operator,
    /// What with.
    pub right: Right,
}

/// What a condition compares with: a value, or a reference to the run's input or to what a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// A value.
    Const(Json),
    /// `input.path` or `step.<name>.output.path`.
    Reference(String),
}

impl Serialize for Right {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Const<'c> {
            r#const: &'c Json,
        }
        match self {
            Self::Reference(reference) => to.serialize_str(reference),
            // A text, which would be read as a reference, and an object, which might.
            Self::Const(value) if value.as_str().starts_with(['"', '{']) => {
                Const { r#const: value }.serialize(to)
            }
            Self::Const(value) => value.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Right {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Const {
            r#const: Json,
        }
        let json = Json::deserialize(from)?;
        if let Ok(text) = json.to::<String>() {
            if text.starts_with("input.") || text.starts_with("step.") {
                return Ok(Self::Reference(text));
            }
            return Err(serde::de::Error::custom(format!(
                "{text:?} is no reference: write `input.…` or `step.….output.…`, or {{\"const\": {text:?}}} for the text itself"
            )));
        }
        Ok(Self::Const(match json.to::<Const>() {
            Ok(constant) => constant.r#const,
            Err(_) => json,
        }))
    }
}

/// A signal that a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalSpec {
    /// Its name.
    pub signal: String,
    /// How long to wait; for ever when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Time that a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SleepSpec {
    /// How long.
    pub duration_ms: u64,
}

/// A graph as a step of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubGraph {
    /// By its name: it is looked up when the graph around it is built.
    Named(String),
    /// As it is.
    Whole(Box<GraphSpec>),
}

impl SubGraph {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Whole(graph) => &graph.name,
        }
    }
}

impl Serialize for SubGraph {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => to.serialize_str(name),
            Self::Whole(graph) => graph.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for SubGraph {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NameOrGraph;
        impl<'de> Visitor<'de> for NameOrGraph {
            type Value = SubGraph;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a graph, or a graph, which is an object")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<SubGraph, E> {
                Ok(SubGraph::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, graph: A) -> Result<SubGraph, A::Error> {
                let graph = GraphSpec::deserialize(MapAccessDeserializer::new(graph))?;
                Ok(SubGraph::Whole(Box::new(graph)))
            }
        }
        from.deserialize_any(NameOrGraph)
    }
}

/// Something that is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphProblem {
    /// The step, when it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What it is, and what would be right.
    pub message: String,
}

impl fmt::Display for GraphProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(step) => write!(f, "step {step:?}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Where a step of a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// It has not begun.
    Pending,
    /// It runs, or waits.
    Running,
    /// It has come to something.
    Done,
    /// It was left out.
    Skipped,
    /// It failed for good.
    Failed,
    /// It was not over when the run ended: it was never begun, or was told to end.
    Cancelled,
}
