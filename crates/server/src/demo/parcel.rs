//! A sample: a parcel, as a graph. The graph is data in the store: the server advances it, and workers run its tasks.

use abide::engine::EngineBuilder;
use abide::graph::{BadGraph, input};
use abide::message::eq;
use abide::time::minutes;
use abide::{BoxError, Event, Graph};
use serde_json::{Value, json};

use super::work;

/// The event that says that the carrier has arrived: `abide publish carrier.arrived parcel=3`.
pub const ARRIVED: &str = "carrier.arrived";

/// The graph: a first task, two parallel tasks, a wait for an event, and the last task.
pub fn parcel() -> Result<Graph, BadGraph> {
    let arrived = Event::new(ARRIVED)
        .matching("parcel", eq(input("parcel")))
        .lookback(minutes(1));
    Graph::builder("parcel")
        .task("pick")
        .task("weigh")
        .after("pick")
        .task("print-label")
        .after("pick")
        .wait_for_event("carrier", arrived, minutes(5))
        .after("weigh")
        .after("print-label")
        .task("hand-over")
        .after("carrier")
        .skip_if("carrier", "timeout", eq(true))
        .build()
}

/// The code of its tasks.
pub fn tasks(engine: EngineBuilder) -> EngineBuilder {
    engine
        .task("pick", |parcel: Value| async move {
            work(300).await;
            Ok(parcel)
        })
        .task("weigh", |_: Value| async move {
            work(250).await;
            Ok(json!({"grams": 640}))
        })
        .task("print-label", |_: Value| async move {
            work(500).await;
            Ok(json!({"label": "printed"}))
        })
        .task("hand-over", |carrier: Value| async move {
            work(350).await;
            let by = carrier.get("by").and_then(Value::as_str);
            Ok::<_, BoxError>(format!("handed to {}", by.unwrap_or("the carrier")))
        })
}
