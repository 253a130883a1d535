//! The life of an engine: it starts, keeps its lease and the time, sweeps, stops, and dies.

mod blocked;
mod death;
mod idling;
mod retention;
mod shutdown;
mod timers;

use crate::common::{Gate, Script};
use abide::done;
use serde_json::json;

/// Waits at the gate, and ends with that name and how often it was begun before.
fn gated(name: &'static str, gate: &Gate) -> Script {
    let gate = gate.clone();
    Script::waiting(move |_, ctx| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            *ctx.state_mut() = json!(name);
            done(json!([name, ctx.attempt()]))
        })
    })
}

/// The same, without waiting.
fn quick(name: &'static str) -> Script {
    let gate = Gate::closed();
    gate.open();
    gated(name, &gate)
}
