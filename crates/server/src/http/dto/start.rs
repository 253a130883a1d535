//! A request to start an instance.

use std::collections::HashMap;

use abide::Graph;
use abide::model::{Name, Refusal};
use abide::outbox::{StartRequest, Wanted};

use crate::http::{App, Problem};

/// The graphs that one request has looked up.
pub type Graphs = HashMap<Name, Option<Graph>>;

/// Returns the start that is wanted; each graph is looked up once.
pub async fn wanted(
    request: StartRequest,
    app: &App,
    graphs: &mut Graphs,
) -> Result<Wanted, Problem> {
    let invalid = |refusal: Refusal| Problem::unprocessable(refusal.to_string());
    request.check().map_err(invalid)?;
    let of_graph = match &request.graph {
        None => None,
        Some(name) => {
            if !graphs.contains_key(name) {
                let found = app.abide().graph(name.as_str()).await?;
                graphs.insert(name.clone(), found);
            }
            let Some(Some(graph)) = graphs.get(name) else {
                let detail =
                    format!("there is no graph {name:?} here: put it to /v1/graphs/{name} first");
                return Err(Problem::unprocessable(detail).with("reason", "unknown_graph"));
            };
            Some(graph.start_of(&request.input.clone().unwrap_or_default())?)
        }
    };
    request.wanted(of_graph).map_err(|refusal| match refusal {
        Refusal::BadRequest { .. } => invalid(refusal),
        refusal => refusal.into(),
    })
}
