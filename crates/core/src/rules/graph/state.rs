//! The state of a graph's run, which shows its steps (rule 15.4).

use std::collections::BTreeMap;

use crate::model::{GraphSpec, GraphState, Json, StepState, StepStatus};

/// Returns the state of a run that begins: none of its steps has begun.
pub fn begin(graph: GraphSpec, input: Json) -> GraphState {
    let steps = pending(&graph);
    GraphState {
        input,
        graph,
        steps,
    }
}

fn pending(graph: &GraphSpec) -> BTreeMap<String, StepState> {
    let names = graph.steps.iter().map(|step| step.name.clone());
    names
        .map(|name| (name, StepState::of(StepStatus::Pending)))
        .collect()
}

/// Marks steps as cancelled that were not over when their run failed or was cancelled. Returns `true` if there were
/// any.
pub fn cancel_rest(state: &mut GraphState) -> bool {
    let mut changed = false;
    for step in &state.graph.steps {
        let shown = state.steps.entry(step.name.clone());
        let shown = shown.or_insert(StepState::of(StepStatus::Pending));
        if matches!(shown.status, StepStatus::Pending | StepStatus::Running) {
            shown.status = StepStatus::Cancelled;
            changed = true;
        }
    }
    changed
}

/// Returns the corrected state of a run that failed or was cancelled. `None` if the stored state needs no change, or is
/// not that of a graph's run.
pub fn ended(stored: &Json) -> Option<Json> {
    let mut state: GraphState = stored.to().ok()?;
    cancel_rest(&mut state).then(|| Json::of(&state).ok())?
}

/// Returns the state of a run that is restarted (rule 11.2): its input and its graph; none of its steps has begun.
/// `None` if the stored state is not that of a graph's run.
pub fn restarted(stored: &Json) -> Option<Json> {
    let GraphState { input, graph, .. } = stored.to().ok()?;
    Json::of(&begin(graph, input)).ok()
}
