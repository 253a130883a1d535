//! Graphs: checking a definition, the input of a step, and the order of the steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::{
    Condition, EventSpec, EventWait, GraphProblem, GraphSpec, Json, MatchSpec, Name, Parsed, Path,
    Policy, Refusal, Right, StepSpec, StepStatus, SubGraph,
};

use super::event::{self, Payload};
use super::retry;

mod state;

pub use state::{begin, cancel_rest, ended, restarted};

/// Maximum number of steps of a graph.
const MOST: usize = 1_000;
/// Maximum nesting of graphs.
const DEPTH: usize = 8;

/// Returns all problems of a graph (rule 15.2).
pub fn check(graph: &GraphSpec) -> Vec<GraphProblem> {
    check_at(graph, 0)
}

fn check_at(graph: &GraphSpec, depth: usize) -> Vec<GraphProblem> {
    let mut problems = Vec::new();
    let mut whole = |message: String| {
        problems.push(GraphProblem {
            step: None,
            message,
        })
    };
    if let Err(refusal) = Name::new(machine_of(&graph.name)) {
        whole(format!("its name: {refusal}"));
    }
    if graph.name.is_empty() {
        whole("it has no name".into());
    }
    if graph.steps.is_empty() {
        whole("it has no steps".into());
    }
    if graph.steps.len() > MOST {
        whole(format!(
            "{} steps, and {MOST} are the most",
            graph.steps.len()
        ));
    }
    if depth > DEPTH {
        whole(format!("graphs stand in each other more than {DEPTH} deep"));
        return problems;
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for step in &graph.steps {
        *names.entry(&step.name).or_default() += 1;
    }
    let mut twice: Vec<&str> = names
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|(name, _)| *name)
        .collect();
    twice.sort_unstable();
    for name in twice {
        problems.push(problem(name, "there are two steps of this name".into()));
    }
    let ancestors = ancestors(graph);
    for step in &graph.steps {
        let of = |message: String| problem(&step.name, message);
        if step.name.is_empty() || step.name.len() > Path::MOST || step.name.contains('.') {
            problems.push(of(
                "a name has 1 to 255 bytes and no dots, so that references are unambiguous".into(),
            ));
        }
        for after in &step.after {
            if !names.contains_key(after.as_str()) {
                problems.push(of(format!(
                    "it comes after {after:?}, and there is no such step"
                )));
            }
        }
        let mut again = step.after.iter().enumerate();
        if let Some((_, after)) =
            again.find(|(at, after)| step.after.iter().take(*at).any(|one| one == *after))
        {
            problems.push(of(format!("it comes after {after:?} twice")));
        }
        problems.extend(kinds(step).into_iter().map(of));
        let before = ancestors.get(step.name.as_str());
        let is_before = |name: &str| before.is_some_and(|before| before.contains(name));
        problems.extend(check_skip(step, &names, &is_before).into_iter().map(of));
        if let Some(event) = &step.wait_for_event {
            problems.extend(check_event(event, &names, &is_before).into_iter().map(of));
        }
        if let Some(SubGraph::Whole(inner)) = &step.graph {
            let inner = check_at(inner, depth + 1).into_iter();
            problems.extend(inner.map(|inner| of(format!("its graph: {inner}"))));
        }
        if let Some(SubGraph::Named(name)) = &step.graph {
            problems.push(of(format!("there is no graph {name:?} here")));
        }
        if before.is_some_and(|before| before.contains(step.name.as_str())) {
            problems.push(of(
                "it comes after itself: the steps go round in a circle".into()
            ));
        }
    }
    problems
}

fn problem(step: &str, message: String) -> GraphProblem {
    GraphProblem {
        step: Some(step.to_owned()),
        message,
    }
}

/// Returns the problems of a step's kind and its fields.
fn kinds(step: &StepSpec) -> Vec<String> {
    let mut problems = Vec::new();
    let kinds = [
        ("task", step.task.is_some()),
        ("wait_for_event", step.wait_for_event.is_some()),
        ("wait_for_signal", step.wait_for_signal.is_some()),
        ("sleep", step.sleep.is_some()),
        ("graph", step.graph.is_some()),
    ];
    let given: Vec<&str> = kinds
        .iter()
        .filter(|(_, is)| *is)
        .map(|(kind, _)| *kind)
        .collect();
    match given[..] {
        [_] => {}
        [] => problems.push(
            "it is nothing: give it one of task, wait_for_event, wait_for_signal, sleep and graph"
                .into(),
        ),
        _ => problems.push(format!("it is several things: {}", given.join(", "))),
    }
    let for_tasks = [
        ("timeout_ms", step.timeout_ms.is_some()),
        ("schedule_timeout_ms", step.schedule_timeout_ms.is_some()),
        ("retry", step.retry.is_some()),
        ("queue", step.queue.is_some()),
    ];
    for (field, is) in for_tasks {
        if is && step.task.is_none() {
            problems.push(format!("{field} is for tasks"));
        }
    }
    let times = [
        ("timeout_ms", step.timeout_ms),
        ("schedule_timeout_ms", step.schedule_timeout_ms),
        (
            "wait_for_event.timeout_ms",
            step.wait_for_event.as_ref().map(|event| event.timeout_ms),
        ),
        (
            "wait_for_signal.timeout_ms",
            step.wait_for_signal
                .as_ref()
                .and_then(|signal| signal.timeout_ms),
        ),
        (
            "sleep.duration_ms",
            step.sleep.as_ref().map(|sleep| sleep.duration_ms),
        ),
    ];
    for (field, time) in times {
        if time == Some(0) {
            problems.push(format!("{field} must be positive"));
        }
    }
    if step
        .retry
        .as_ref()
        .is_some_and(|retry| retry.max_attempts == 0)
    {
        problems.push("retry.max_attempts counts the first attempt, so it is 1 at least".into());
    }
    if step
        .retry
        .as_ref()
        .is_some_and(|retry| !retry.has_fit_factor())
    {
        problems.push("retry.factor is a number from 1 to 1000".into());
    }
    let names = [
        step.task.as_ref().map(|task| task_machine(task)),
        step.wait_for_signal
            .as_ref()
            .map(|signal| signal.signal.clone()),
        step.wait_for_event
            .as_ref()
            .map(|event| event.event.clone()),
        step.queue.clone(),
    ];
    if step.task.as_ref().is_some_and(String::is_empty) {
        problems.push("its task has no name: it would be task/".into());
    }
    let signal = step.wait_for_signal.as_ref();
    if let Some(signal) =
        signal.filter(|one| Name::stored(one.signal.as_str()).event_type().is_some())
    {
        let signal = &signal.signal;
        problems.push(format!("{signal:?} is not a signal: wait for the event"));
    }
    for name in names.into_iter().flatten() {
        if let Err(refusal) = Name::new(&name) {
            problems.push(refusal.to_string());
        }
    }
    problems
}

fn check_skip(
    step: &StepSpec,
    names: &HashMap<&str, usize>,
    is_before: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let Some(skip) = &step.skip_if else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if !names.contains_key(skip.step.as_str()) {
        problems.push(format!(
            "skip_if looks at {:?}, and there is no such step",
            skip.step
        ));
    } else if !is_before(&skip.step) {
        problems.push(format!(
            "skip_if looks at {:?}, which does not come before it",
            skip.step
        ));
    }
    match skip_condition(step) {
        Some(Err(refusal)) => problems.push(format!("skip_if: {refusal}")),
        Some(Ok(condition)) => {
            if let Err(refusal) = event::check(&[wait_of("skip_if", vec![condition])]) {
                problems.push(refusal.to_string());
            }
        }
        None => {}
    }
    problems
}

fn check_event(
    event: &EventSpec,
    names: &HashMap<&str, usize>,
    is_before: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut constants = Vec::new();
    for one in &event.conditions.0 {
        let left = Path::new(&one.left).map_err(|refusal| problems.push(refusal.to_string()));
        match &one.right {
            Right::Const(right) => constants.extend(left.ok().map(|left| Condition {
                left,
                op: one.op,
                right: right.clone(),
            })),
            Right::Reference(reference) => match Reference::parse(reference) {
                Err(problem) => problems.push(problem),
                Ok(Reference::Input(_)) => {}
                Ok(Reference::Output(step, _)) if !names.contains_key(step) => {
                    problems.push(format!("{reference:?} names a step that is not there"));
                }
                Ok(Reference::Output(step, _)) if !is_before(step) => {
                    problems.push(format!(
                        "{reference:?} names a step that does not come before it"
                    ));
                }
                Ok(Reference::Output(..)) => {}
            },
        }
    }
    if let Err(refusal) = event::check(&[wait_of(&event.event, constants)]) {
        problems.push(refusal.to_string());
    }
    problems
}

fn wait_of(event_type: &str, conditions: Vec<Condition>) -> EventWait {
    EventWait {
        event_type: Name::stored(event_type),
        conditions,
        lookback_ms: None,
    }
}

/// The target of a reference, and the path from there.
enum Reference<'r> {
    Input(&'r str),
    Output(&'r str, &'r str),
}

impl<'r> Reference<'r> {
    fn parse(reference: &'r str) -> Result<Self, String> {
        let bad = || {
            format!("{reference:?} is not a reference: write input.path or step.<name>.output.path")
        };
        let parsed = match reference.split_once('.') {
            Some(("input", path)) => Self::Input(path),
            Some(("step", rest)) => match rest.split_once('.').ok_or_else(bad)? {
                (step, "output") => return Ok(Self::Output(step, "")),
                (step, rest) => {
                    let path = rest.strip_prefix("output.").ok_or_else(bad)?;
                    Self::Output(step, path)
                }
            },
            _ => return Err(bad()),
        };
        match parsed {
            Self::Input("") => Err(format!("{reference:?} has no path: write input.path")),
            Self::Output(step, "") => Err(format!(
                "{reference:?} has no path: write step.{step}.output.path, or step.{step}.output for all of it"
            )),
            Self::Input(path) | Self::Output(_, path) => match Path::new(path) {
                Ok(_) => Ok(parsed),
                Err(refusal) => Err(refusal.to_string()),
            },
        }
    }
}

/// Returns the steps that come before each step, directly or indirectly. A step in a cycle comes before itself.
fn ancestors(graph: &GraphSpec) -> HashMap<&str, BTreeSet<&str>> {
    let after: HashMap<&str, &[String]> = graph
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.after.as_slice()))
        .collect();
    let mut all = HashMap::new();
    for step in &graph.steps {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut left: Vec<&str> = step.after.iter().map(String::as_str).collect();
        while let Some(name) = left.pop() {
            if seen.insert(name) {
                let before = after.get(name).copied().unwrap_or_default();
                left.extend(before.iter().map(String::as_str));
            }
        }
        all.insert(step.name.as_str(), seen);
    }
    all
}

/// Returns the machine name of a graph's runs.
pub fn machine_of(graph: &str) -> String {
    format!("graph/{graph}")
}

/// Returns the graph whose runs have that machine name. `None` if it is not the machine of a graph.
pub fn graph_of(machine: &str) -> Option<&str> {
    machine.strip_prefix("graph/")
}

/// Returns the machine name of a task.
pub fn task_machine(task: &str) -> String {
    format!("task/{task}")
}

/// Returns the policy of the child that runs a task: the attempts and time limits of its step. `None` if the step sets
/// none, and the machine's declaration applies.
pub fn policy_of(step: &StepSpec) -> Option<Policy> {
    let policy = Policy {
        retry: step.retry.clone(),
        step_timeout_ms: step.timeout_ms,
        max_deaths: None,
    };
    (!policy.is_empty()).then(|| retry::bounded(policy))
}

/// Returns the first step that has not begun and can run: all steps that it comes after are done or skipped
/// (rule 15.3).
pub fn next_step(
    graph: &GraphSpec,
    status: impl Fn(&str) -> Option<StepStatus>,
) -> Option<&StepSpec> {
    let over = |name: &String| matches!(status(name), Some(StepStatus::Done | StepStatus::Skipped));
    graph.steps.iter().find(|step| {
        let has_begun = status(&step.name).is_some_and(|status| status != StepStatus::Pending);
        !has_begun && step.after.iter().all(over)
    })
}

/// The outputs of steps, by name; null for a skipped step.
pub type Outputs = BTreeMap<String, Json>;

/// Returns the input of a step (rule 15.3): the run's input, the output of the one step before it, or the outputs of
/// several.
pub fn input_of(step: &StepSpec, input: &Json, outputs: &Outputs) -> Json {
    let of = |name: &String| outputs.get(name).cloned().unwrap_or_default();
    match step.after.as_slice() {
        [] => input.clone(),
        [one] => of(one),
        several => {
            let all: BTreeMap<&String, Json> =
                several.iter().map(|name| (name, of(name))).collect();
            Json::of(&all).unwrap_or_default()
        }
    }
}

fn skip_condition(step: &StepSpec) -> Option<Result<Condition, Refusal>> {
    let skip = step.skip_if.as_ref()?;
    Some(event::condition(&skip.field, skip.op, skip.value.clone()))
}

/// `true` if a step is skipped, according to the outputs of the steps before it.
pub fn is_skipped(step: &StepSpec, outputs: &Outputs) -> bool {
    let (Some(skip), Some(Ok(condition))) = (&step.skip_if, skip_condition(step)) else {
        return false;
    };
    let output = outputs.get(&skip.step).cloned().unwrap_or_default();
    Payload::of(&output).satisfies(&[condition])
}

/// Returns the event wait of a step, with all references resolved, once (rule 14.2), or the reference that cannot be
/// resolved.
pub fn resolve(event: &EventSpec, input: &Json, outputs: &Outputs) -> Result<EventWait, String> {
    let mut conditions = Vec::with_capacity(event.conditions.0.len());
    for MatchSpec { left, op, right } in &event.conditions.0 {
        let right = match right {
            Right::Const(value) => value.clone(),
            Right::Reference(reference) => {
                let found = match Reference::parse(reference)? {
                    Reference::Input(path) => at(input, path),
                    Reference::Output(step, path) => {
                        outputs.get(step).and_then(|output| at(output, path))
                    }
                };
                found.ok_or_else(|| format!("{reference:?} cannot be resolved: it has no value"))?
            }
        };
        conditions.push(event::condition(left, *op, right).map_err(|refusal| refusal.to_string())?);
    }
    let wait = EventWait {
        event_type: Name::new(&event.event).map_err(|refusal| refusal.to_string())?,
        conditions,
        lookback_ms: event.lookback_ms,
    };
    event::check(std::slice::from_ref(&wait)).map_err(|refusal| refusal.to_string())?;
    Ok(wait)
}

fn at(json: &Json, path: &str) -> Option<Json> {
    let parsed = Parsed::of(json);
    let parts = path.split('.').filter(|part| !part.is_empty());
    let found = parts
        .into_iter()
        .try_fold(Parsed::WHOLE, |at, part| parsed.inside(at, part))?;
    Json::parse(parsed.canonical(found)).ok()
}

/// Returns the steps that nothing comes after: their outputs are the result of the run (rule 15.4).
pub fn last_steps(graph: &GraphSpec) -> Vec<&str> {
    let before: BTreeSet<&str> = graph
        .steps
        .iter()
        .flat_map(|step| &step.after)
        .map(String::as_str)
        .collect();
    let names = graph.steps.iter().map(|step| step.name.as_str());
    names.filter(|name| !before.contains(name)).collect()
}

/// Returns the level of each step: one more than the highest level of the steps before it.
pub fn levels(graph: &GraphSpec) -> Vec<usize> {
    let mut levels: HashMap<&str, usize> = HashMap::new();
    // A checked graph has no cycle, so every pass settles at least one more step.
    for _ in 0..graph.steps.len() {
        for step in &graph.steps {
            let before = step
                .after
                .iter()
                .filter_map(|name| levels.get(name.as_str()));
            let level = before.map(|level| level + 1).max().unwrap_or_default();
            levels.insert(&step.name, level);
        }
    }
    let names = graph.steps.iter().map(|step| step.name.as_str());
    names
        .map(|name| levels.get(name).copied().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests;
