//! Requests in rows of the outbox: the JSON of the HTTP interface, written by any driver (rule 17.3).

use std::fmt;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json::given;
use super::{
    Arguments, Cancel, Children, InstanceId, Json, Key, Name, NewCommand, Policy, Priority,
    Publish, Refusal, Scope, Start, Target, Timestamp, UniqueKey, When,
};

/// Maximum size of a request in the outbox, in bytes of JSON. Both databases refuse a larger one when it is inserted.
pub const OUTBOX_REQUEST_BYTES_MAX: usize = 16 << 20;

/// The longest duration that a request may contain, in milliseconds: a hundred years.
const MS_MAX: u64 = 3_153_600_000_000;

/// One request of the outbox: an object with one field, which names the operation.
///
/// ```
/// use abide_core::model::{Key, Name, OutboxRequest, SignalRequest};
///
/// let paid = SignalRequest::new(Key::new("order:42")?, Name::new("paid")?);
/// let text = serde_json::to_string(&OutboxRequest::Signal(paid))?;
/// assert_eq!(text, r#"{"signal":{"target":"order:42","name":"paid"}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxRequest {
    /// Starts an instance of a machine or of a graph, or reserves its key.
    Start(Box<StartRequest>),
    /// Sends a signal.
    Signal(SignalRequest),
    /// Sends a signal to the live instance that holds a key, or starts an instance with it.
    SignalWithStart(Box<SignalWithStartRequest>),
    /// Publishes an event.
    Publish(Publish),
    /// Cancels an instance.
    Cancel(CancelRequest),
}

/// A request to start an instance, in the form of the body of `POST /v1/instances`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// The machine to start; either this or `graph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The graph to start; either this or `machine`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<Name>,
    /// The machine's version; if omitted, the newest known, or 1 if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The name that the business knows it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The step to begin at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Name>,
    /// The state that a machine begins with; null if omitted.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<Json>,
    /// The input that a graph begins with; null if omitted.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub input: Option<Json>,
    /// Creates an instance that has a key and no run yet; allowed only with `machine` and `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<bool>,
    /// The queue to wait in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// Priority: lower runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// Partition: at most one instance of a partition executes at a time, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<Key>,
    /// A second identity, which cannot be used as an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// The statuses in which it holds the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The statuses in which it holds the unique key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_scope: Option<Scope>,
    /// When it is due; either this or `delay_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// Delay after which it is due; either this or `due_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Its own failure policy, where that differs from what its machine declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
}

/// The operation that a request to start asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An instance that runs.
    Start(Box<Start>),
    /// An instance that has a key and no run yet.
    Reserve(Name, Key),
}

const NEITHER: &str = "it names neither a machine nor a graph: give one of them";
const GRAPH: &str = "graph/";

impl StartRequest {
    /// Creates a request to start a machine with a state.
    pub fn machine(machine: Name, state: Json) -> Self {
        Self {
            machine: Some(machine),
            state: Some(state),
            ..Self::default()
        }
    }

    /// Creates a request to start a graph with an input.
    pub fn graph(graph: Name, input: Json) -> Self {
        Self {
            graph: Some(graph),
            input: Some(input),
            ..Self::default()
        }
    }

    /// Returns the start or the reservation that it asks for. The caller looks up a graph and passes the start that the
    /// graph makes of the input.
    ///
    /// Errors: [`BadStart`](Refusal::BadStart) with all fields that contradict each other.
    pub fn wanted(self, of_graph: Option<Start>) -> Result<Wanted, Refusal> {
        self.check()?;
        if let (Some(true), Some(machine), Some(key)) = (self.reserve, &self.machine, &self.key) {
            return Ok(Wanted::Reserve(machine.clone(), key.clone()));
        }
        let plain = match (self.machine, of_graph) {
            (Some(machine), _) => Start {
                version: self.version,
                step: self.step,
                ..Start::of(machine, self.state.unwrap_or_default())
            },
            (None, Some(start)) => start,
            (None, None) => return Err(bad_start(NEITHER)),
        };
        let when = match (self.due_at, self.delay_ms) {
            (Some(moment), _) => When::At(moment),
            (None, Some(ms)) => When::After(time("delay_ms", ms)?),
            (None, None) => When::Now,
        };
        Ok(Wanted::Start(Box::new(Start {
            key: self.key,
            queue: self.queue.or(plain.queue),
            priority: Priority(self.priority.unwrap_or(0)),
            partition_key: self.partition_key,
            unique_key: self.unique_key.map(UniqueKey::new).transpose()?,
            scope: self.scope.unwrap_or_default(),
            unique_scope: self.unique_scope.unwrap_or_default(),
            when,
            policy: self.policy,
            ..plain
        })))
    }

    /// Refuses fields that contradict each other.
    pub fn check(&self) -> Result<(), Refusal> {
        let problems = self.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(bad_start(problems.join("; "))),
        }
    }

    fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        match (&self.machine, &self.graph) {
            (None, None) => problems.push(NEITHER),
            (Some(_), Some(_)) => problems.push("it names a machine and a graph: give one of them"),
            (Some(machine), None) => {
                if machine.as_str().starts_with(GRAPH) {
                    problems.push("the machines of graphs are started as graphs: give `graph` with the rest of the name");
                }
                if self.input.is_some() {
                    problems.push("`input` is a graph's: a machine begins with `state`");
                }
            }
            (None, Some(_)) => {
                let of_machines = [
                    (
                        self.state.is_some(),
                        "`state` is a machine's: a graph begins with `input`",
                    ),
                    (self.version.is_some(), "a graph has no `version`"),
                    (self.step.is_some(), "a graph has no `step` to begin at"),
                    (
                        self.policy.is_some(),
                        "a graph has no `policy`: its tasks have `retry` and `timeout_ms` of their own",
                    ),
                ];
                let met = of_machines.into_iter().filter(|(is, _)| *is);
                problems.extend(met.map(|(_, problem)| problem));
            }
        }
        if self.due_at.is_some() && self.delay_ms.is_some() {
            problems.push("it is due at a moment and after a time: give `due_at` or `delay_ms`");
        }
        if self.reserve == Some(true) {
            let alone = Self {
                machine: self.machine.clone(),
                key: self.key.clone(),
                reserve: self.reserve,
                ..Self::default()
            };
            if *self != alone {
                problems.push("a reservation takes `machine` and `key` alone: the rest comes with the start that opens it");
            }
            if self.key.is_none() {
                problems.push("a reservation needs a `key`");
            }
        }
        problems
    }
}

fn bad_start(problem: impl Into<String>) -> Refusal {
    let problem = problem.into();
    Refusal::BadStart { problem }
}

/// A request to send a signal, in the form of the path and the body of `POST /v1/instances/{target}/signals/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// The instance, by key or by id.
    #[serde(with = "target")]
    pub target: Target,
    /// The signal.
    pub name: Name,
    /// One value; either this or `arguments`.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Json>,
    /// Arguments, positional or named; either this or `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Dedup key: a signal that is sent again with the same key is the same signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<Name>,
    /// Time to keep it for a key that no instance holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_for_ms: Option<u64>,
}

impl SignalRequest {
    /// Creates a signal without arguments.
    pub fn new(target: impl Into<Target>, name: Name) -> Self {
        Self {
            target: target.into(),
            name,
            payload: None,
            arguments: None,
            dedup_key: None,
            hold_for_ms: None,
        }
    }

    /// Returns the delivery that it asks for.
    pub fn delivery(self) -> Result<NewCommand, Refusal> {
        let hold_for = self.hold_for_ms.map(|ms| time("hold_for_ms", ms));
        Ok(NewCommand {
            arguments: arguments(self.payload, self.arguments)?,
            dedup_key: self.dedup_key,
            hold_for: hold_for.transpose()?,
            ..NewCommand::signal(self.target, self.name)
        })
    }
}

/// A request to send a signal or to start an instance with it, in the form of the body of `POST /v1/signal-with-start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalWithStartRequest {
    /// The start to make if no live instance holds its key; it must have a key.
    pub start: StartRequest,
    /// The signal.
    pub name: Name,
    /// One value; either this or `arguments`.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub payload: Option<Json>,
    /// Arguments, positional or named; either this or `payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// Dedup key: a signal that is sent again with the same key is the same signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<Name>,
}

impl SignalWithStartRequest {
    /// Returns the delivery that it asks for. For a graph, the caller passes the start that it has looked up.
    pub fn delivery(self, of_graph: Option<Start>) -> Result<NewCommand, Refusal> {
        let Some(key) = self.start.key.clone() else {
            return Err(bad_start("`start` needs a `key`: the signal is sent to it"));
        };
        let Wanted::Start(start) = self.start.wanted(of_graph)? else {
            return Err(bad_start(
                "a reserved instance takes no signals: leave `reserve` out",
            ));
        };
        Ok(NewCommand {
            arguments: arguments(self.payload, self.arguments)?,
            dedup_key: self.dedup_key,
            start: Some(start),
            ..NewCommand::signal(key, self.name)
        })
    }
}

/// A request to cancel an instance, in the form of the path and the body of `POST /v1/instances/{target}/cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// The instance, by key or by id.
    #[serde(with = "target")]
    pub target: Target,
    /// The reason, which is recorded in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The effect on its children.
    #[serde(default)]
    pub children: Children,
    /// `true` to end a workflow at once, without letting its code clean up.
    #[serde(default)]
    pub force: bool,
}

impl CancelRequest {
    /// The reason that is recorded in the history if a request gives none.
    pub const NO_REASON: &'static str = "no reason was given";

    /// Creates a cancellation of an instance and of its children.
    pub fn new(target: impl Into<Target>) -> Self {
        Self {
            target: target.into(),
            reason: None,
            children: Children::default(),
            force: false,
        }
    }

    /// Returns the cancellation that it asks for.
    pub fn cancel(self) -> Cancel {
        Cancel {
            target: self.target,
            reason: self.reason.unwrap_or_else(|| Self::NO_REASON.to_owned()),
            children: self.children,
            force: self.force,
            source: None,
            claimed_source: None,
        }
    }
}

/// Returns the arguments of a request that gives a payload or arguments.
fn arguments(payload: Option<Json>, arguments: Option<Json>) -> Result<Arguments, Refusal> {
    match (payload, arguments) {
        (Some(_), Some(_)) => Err(bad_request("give a `payload` or `arguments`, not both")),
        (Some(payload), None) => Ok(Arguments::Payload(payload)),
        (None, Some(arguments)) => Arguments::from_json(&arguments).map_err(|_| {
            bad_request("`arguments` must be a list, by position, or an object, by name")
        }),
        (None, None) => Ok(Arguments::default()),
    }
}

fn bad_request(problem: impl Into<String>) -> Refusal {
    let problem = problem.into();
    Refusal::BadRequest { problem }
}

fn time(field: &str, ms: u64) -> Result<Duration, Refusal> {
    match ms <= MS_MAX {
        true => Ok(Duration::from_millis(ms)),
        false => Err(bad_request(format!(
            "`{field}` is {ms}: {MS_MAX} is the most, a hundred years in milliseconds"
        ))),
    }
}

/// The target of a request: a number is an id, and so is a text of digits only; any other text is a key.
mod target {
    use super::*;

    pub fn serialize<S: Serializer>(target: &Target, to: S) -> Result<S::Ok, S::Error> {
        match target {
            Target::Id(id) => id.serialize(to),
            Target::Key(key) => key.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
        from.deserialize_any(IdOrKey)
    }

    struct IdOrKey;

    impl Visitor<'_> for IdOrKey {
        type Value = Target;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the key of an instance, or its id")
        }

        fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Target, E> {
            Ok(Target::Id(InstanceId(id)))
        }

        fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Target, E> {
            let id = i64::try_from(id).map_err(|_| too_large(id))?;
            self.visit_i64(id)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Target, E> {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if digits {
                let id = text.parse::<i64>().map_err(|_| too_large(text))?;
                return self.visit_i64(id);
            }
            Key::new(text).map(Target::Key).map_err(E::custom)
        }
    }

    fn too_large<E: serde::de::Error>(id: impl fmt::Display) -> E {
        E::custom(format_args!("no id is as large as {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<OutboxRequest, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    fn start(text: &str) -> Result<Wanted, Refusal> {
        match read(&format!(r#"{{"start": {text}}}"#)) {
            Ok(OutboxRequest::Start(request)) => request.wanted(None),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_request_is_read_as_it_is_written() {
        // rule 17.3
        for text in [
            r#"{"start":{"machine":"checkout","key":"order:42","state":null}}"#,
            r#"{"start":{"graph":"trip","input":{"to":"Ōsaka \u0000"},"priority":-3}}"#,
            r#"{"signal":{"target":"order:42","name":"paid","payload":[1,2]}}"#,
            r#"{"signal":{"target":7,"name":"paid","arguments":{"amount":1e2},"dedup_key":"x","hold_for_ms":5}}"#,
            r#"{"signal_with_start":{"start":{"machine":"m","key":"k"},"name":"go"}}"#,
            r#"{"publish":{"type":"paid","payload":{"a":1.50},"event_id":null}}"#,
            r#"{"cancel":{"target":"order:42","reason":"gone","children":"leave","force":true}}"#,
        ] {
            let request = read(text).unwrap();
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
        }
    }

    #[test]
    fn a_target_is_an_id_when_it_is_digits_and_a_key_otherwise() {
        let target = |text: &str| match read(&format!(r#"{{"cancel": {{"target": {text}}}}}"#)) {
            Ok(OutboxRequest::Cancel(cancel)) => Ok(cancel.target),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(target("42"), Ok(Target::Id(InstanceId(42))));
        assert_eq!(target("\"42\""), Ok(Target::Id(InstanceId(42))));
        assert_eq!(
            target("\"order:42\""),
            Ok(Target::Key(Key::stored("order:42")))
        );
        for bad in ["\"99999999999999999999\"", "18446744073709551615"] {
            assert!(target(bad).unwrap_err().contains("no id is as large"));
        }
        for bad in ["null", "1.5", "[]", "\"\"", r#""a\u0000b""#] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn contradictions_and_unknown_fields_are_refused() {
        for (text, problem) in [
            ("{}", "neither a machine nor a graph"),
            (
                r#"{"machine":"m","graph":"g"}"#,
                "names a machine and a graph",
            ),
            (r#"{"machine":"graph/g"}"#, "started as graphs"),
            (r#"{"machine":"m","input":1}"#, "`input` is a graph's"),
            (
                r#"{"graph":"g","state":null,"step":"s"}"#,
                "`state` is a machine's",
            ),
            (
                r#"{"machine":"m","delay_ms":1,"due_at":"2026-01-01T00:00:00Z"}"#,
                "`due_at` or `delay_ms`",
            ),
            (r#"{"machine":"m","reserve":true}"#, "needs a `key`"),
            (
                r#"{"machine":"m","key":"k","reserve":true,"state":null}"#,
                "alone",
            ),
            (r#"{"machine":"m","delay_ms":3153600000001}"#, "`delay_ms`"),
        ] {
            let refusal = start(text).unwrap_err().to_string();
            assert!(refusal.contains(problem), "{text}: {refusal}");
        }
        for bad in [
            r#"{"start":{"machine":"m","stat":1}}"#,
            r#"{"begin":{}}"#,
            r#"{"start":{"machine":"m"},"signal":{"target":"k","name":"n"}}"#,
            "[]",
            "null",
            "\"start\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let both = r#"{"signal":{"target":"k","name":"n","payload":1,"arguments":[1]}}"#;
        let Ok(OutboxRequest::Signal(signal)) = read(both) else {
            panic!()
        };
        assert!(
            signal
                .delivery()
                .unwrap_err()
                .to_string()
                .contains("not both")
        );
    }
}
