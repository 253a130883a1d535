//! Reads graphs from JSON, and reports all problems with them (rule 15.2).

use abide_core::model::{GraphProblem, GraphSpec, StepSpec, SubGraph};
use serde_json::{Map, Value};

use crate::unfit;

/// The maximum number of problems that are reported. A graph with more is not read to its end.
pub(super) const PROBLEMS_MAX: usize = 100;

/// The kinds of steps.
const KINDS: [&str; 5] = [
    "task",
    "wait_for_event",
    "wait_for_signal",
    "sleep",
    "graph",
];

/// The fields of a step.
const FIELDS: [&str; 12] = [
    "name",
    "after",
    "skip_if",
    "task",
    "timeout_ms",
    "schedule_timeout_ms",
    "retry",
    "queue",
    "wait_for_event",
    "wait_for_signal",
    "sleep",
    "graph",
];

/// The placeholder for a name that cannot be read.
const UNREAD: &str = "unread";

/// Reads a graph as it is written, and reports what cannot be read. The returned graph contains everything that can be
/// read, so that the rest can be validated too.
pub(super) fn read(json: &str) -> (GraphSpec, Vec<GraphProblem>) {
    let mut problems = Vec::new();
    let error = match serde_json::from_str(json) {
        Ok(spec) => return (spec, problems),
        Err(error) => error,
    };
    // Read again, slowly, to find all problems.
    let spec = match serde_json::from_str(json) {
        Ok(value) => read_graph(value, &mut problems),
        Err(_) => GraphSpec {
            name: UNREAD.into(),
            steps: Vec::new(),
        },
    };
    if problems.len() >= PROBLEMS_MAX {
        problems.truncate(PROBLEMS_MAX);
        problems.push(GraphProblem {
            step: None,
            message: format!(
                "there may be more: only the first {PROBLEMS_MAX} problems are listed"
            ),
        });
    } else if problems.is_empty() {
        // It is not JSON, or a field occurs twice.
        problems.push(GraphProblem {
            step: None,
            message: error.to_string(),
        });
    }
    (spec, problems)
}

fn read_graph(value: Value, problems: &mut Vec<GraphProblem>) -> GraphSpec {
    let mut whole = |message: String| {
        problems.push(GraphProblem {
            step: None,
            message,
        });
    };
    let mut fields = match value {
        Value::Object(fields) => fields,
        other => {
            whole(format!(
                "it is {}: expected an object",
                unfit::shown(&other.to_string())
            ));
            Map::new()
        }
    };
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        Some(other) => {
            whole(format!(
                "`name` is {}: expected a string",
                unfit::shown(&other.to_string())
            ));
            UNREAD.into()
        }
        None => {
            whole("it has no name: give it one".into());
            UNREAD.into()
        }
    };
    let steps = match fields.remove("steps") {
        Some(Value::Array(steps)) => steps,
        Some(other) => {
            whole(format!(
                "`steps` is {}: expected a list",
                unfit::shown(&other.to_string())
            ));
            Vec::new()
        }
        None => Vec::new(),
    };
    for field in fields.keys().take(PROBLEMS_MAX) {
        whole(format!(
            "unknown field `{}`: expected `name` or `steps`",
            unfit::cut(field)
        ));
    }
    let mut read = Vec::new();
    for (at, step) in steps.into_iter().enumerate() {
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
        read.push(read_step(at + 1, step, problems));
    }
    GraphSpec { name, steps: read }
}

fn read_step(number: usize, value: Value, problems: &mut Vec<GraphProblem>) -> StepSpec {
    let (mut fields, mut wrong) = match value {
        Value::Object(fields) => (fields, Vec::new()),
        other => {
            let wrong = format!(
                "it is {}: expected an object",
                unfit::shown(&other.to_string())
            );
            (Map::new(), vec![wrong])
        }
    };
    let is_object = wrong.is_empty();
    let named = match fields.get("name") {
        Some(Value::String(name)) => Some(name.clone()),
        Some(other) => {
            wrong.push(format!(
                "`name` is {}: expected a string",
                unfit::shown(&other.to_string())
            ));
            None
        }
        None if is_object => {
            wrong.push("it has no name: give it one".into());
            None
        }
        None => None,
    };
    let name = named.clone().unwrap_or_else(|| format!("step {number}"));
    fields.insert("name".into(), name.clone().into());
    let mut inner_problems = Vec::new();
    let inner = match fields.get("graph") {
        Some(Value::Object(_)) => fields
            .remove("graph")
            .map(|graph| read_graph(graph, &mut inner_problems)),
        _ => None,
    };
    // All at once: removing them one by one would take quadratic time.
    let unknown: Vec<String> = {
        let fields = fields
            .keys()
            .filter(|field| !FIELDS.contains(&field.as_str()));
        fields.cloned().collect()
    };
    for (at, field) in unknown.iter().enumerate() {
        fields.remove(field);
        if at < PROBLEMS_MAX {
            wrong.push(format!(
                "unknown field `{}`: expected one of {}",
                unfit::cut(field),
                FIELDS.map(|field| format!("`{field}`")).join(", ")
            ));
        }
    }
    let is_some_kind = KINDS.iter().any(|kind| fields.contains_key(*kind));
    let mut step = loop {
        // A field that cannot be read becomes a problem and is left out, until the rest can be read.
        let written = Value::Object(fields.clone());
        match unfit::fit::<StepSpec>(&written.to_string()) {
            Ok(step) => break Some(step),
            Err(problem) => wrong.push(problem),
        }
        let field = unfit::field::<StepSpec>(&written).filter(|field| field != "name");
        if field.and_then(|field| fields.remove(&field)).is_none() {
            break None;
        }
    }
    .unwrap_or_else(|| StepSpec {
        name,
        task: Some(UNREAD.into()),
        ..StepSpec::default()
    });
    if let Some(inner) = inner {
        step.graph = Some(SubGraph::Whole(Box::new(inner)));
    }
    let kind_is_unread = is_some_kind || !is_object;
    let is_nothing = step.task.is_none()
        && step.wait_for_event.is_none()
        && step.wait_for_signal.is_none()
        && step.sleep.is_none()
        && step.graph.is_none();
    if is_nothing && kind_is_unread {
        step.task = Some(UNREAD.into());
    }
    let of = |message: String| GraphProblem {
        step: named.clone(),
        message: match &named {
            Some(_) => message,
            None => format!("step {number}: {message}"),
        },
    };
    problems.extend(wrong.into_iter().map(of));
    let inner = inner_problems.into_iter();
    problems.extend(inner.map(|inner| of(format!("its graph: {inner}"))));
    step
}
