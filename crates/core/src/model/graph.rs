//! Graphs of tasks, as data.

use std::collections::BTreeMap;
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
    /// Its name, unique in the graph.
    pub name: String,
    /// The steps that must be over before it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The condition under which it is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_if: Option<SkipIf>,
    /// A task, by the name under which its code is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Time limit of one attempt at the task, from its claim by a worker to its end. The time in the queue does not
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Time limit of the whole task, from the start of the step to its end: its waits in the queue, all attempts and
    /// the delays between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_timeout_ms: Option<u64>,
    /// The retry policy of the task.
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
    /// A duration to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepSpec>,
    /// Another graph, by its name or inline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<SubGraph>,
}

/// The condition under which a step is skipped: on the output of a step before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkipIf {
    /// The step.
    pub step: String,
    /// A path into its output.
    pub field: String,
    /// The operator.
    pub op: Operator,
    /// The value to compare with.
    pub value: Json,
}

/// A retry policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Retry))]
#[serde(deny_unknown_fields)]
pub struct RetrySpec {
    /// Maximum number of attempts, including the first.
    #[cfg_attr(feature = "openapi", schema(value_type = i64, minimum = 1, maximum = 4_294_967_295_i64))]
    pub max_attempts: u32,
    /// Delay before the second attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = i64, minimum = 0, maximum = 315_360_000_000_i64))]
    pub delay_ms: u64,
    /// Factor by which the delay grows each time; 1 if omitted. Kept here in hundredths.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "factor")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, minimum = 1, maximum = 1000))]
    pub factor: Option<u32>,
    /// The longest delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>, minimum = 0, maximum = 315_360_000_000_i64))]
    pub max_delay_ms: Option<u64>,
}

impl RetrySpec {
    /// Creates a policy with this maximum number of attempts, including the first, and a delay that doubles each time.
    pub const fn doubling(max_attempts: u32, delay_ms: u64) -> Self {
        Self {
            max_attempts,
            delay_ms,
            factor: Some(200),
            max_delay_ms: None,
        }
    }

    /// `true` if its factor is allowed: from 1 to 1000.
    pub fn has_fit_factor(&self) -> bool {
        self.factor
            .is_none_or(|factor| (100..=100_000).contains(&factor))
    }

    /// Returns the delay after that many attempts, or `None` if none is left.
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

/// The factor is written as a number, and stored in hundredths.
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
        // The rules decide which factors are allowed; here the value only has to be representable.
        if !(0.0..=f64::from(u32::MAX) / 100.0).contains(&factor) {
            return Err(serde::de::Error::custom(format!(
                "{factor} is not a factor: give a number from 1 to 1000"
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
    /// The conditions: one, or a list of them.
    #[serde(rename = "match", default)]
    pub conditions: Matches,
    /// Timeout of the wait.
    pub timeout_ms: u64,
    /// Look back: also match an event that was published within this time before.
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
        // Written by hand: an untagged enum tries the variants in turn, and loses which field was invalid.
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

/// A condition on an event, before the value that it compares with is resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchSpec {
    /// A path into the event's payload.
    pub left: String,
    /// The operator.
    pub op: Operator,
    /// The value to compare with.
    pub right: Right,
}

/// The right side of a condition: a value, or a reference to the run's input or to the output of a step.
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
            // A string would be read back as a reference, and an object might be.
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
                "{text:?} is not a reference: write `input.…` or `step.….output.…`, or {{\"const\": {text:?}}} for the text itself"
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
    /// Timeout of the wait; none if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The duration that a step sleeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SleepSpec {
    /// The duration.
    pub duration_ms: u64,
}

/// A graph as a step of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubGraph {
    /// By its name: it is looked up when the outer graph is built.
    Named(String),
    /// Inline.
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

/// A problem of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GraphProblem {
    /// The step, if the problem belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The problem, and what is expected instead.
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

/// The status of a step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// It has not begun.
    Pending,
    /// It is running or waiting.
    Running,
    /// It ended with an output.
    Done,
    /// It was skipped.
    Skipped,
    /// It failed for good.
    Failed,
    /// It was not over when the run ended: it was never begun, or was cancelled.
    Cancelled,
}

/// The state of a graph's run: its input, its graph, and the status of each step (rule 15.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphState {
    /// The input of the run.
    pub input: Json,
    /// The graph that the run is pinned to.
    pub graph: GraphSpec,
    /// Its steps, by name.
    #[serde(default)]
    pub steps: BTreeMap<String, StepState>,
}

/// The state of one step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Its status.
    pub status: StepStatus,
    /// Its output, if it is done; may be null.
    #[serde(
        default,
        deserialize_with = "null_too",
        skip_serializing_if = "Option::is_none"
    )]
    pub output: Option<Json>,
    /// Its error, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Deserializes an output that is present, including null.
fn null_too<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

impl StepState {
    /// Creates the state of a step with that status, without output or error.
    pub const fn of(status: StepStatus) -> Self {
        Self {
            status,
            output: None,
            error: None,
        }
    }
}
