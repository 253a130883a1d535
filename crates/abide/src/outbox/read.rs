//! Parses rows of the outbox: turns each into an operation of the kernel, or a refusal.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::model::{
    DocumentKind, Json, Name, OutboxRequest, Refusal, Start, StartRequest, Wanted,
};
use abide_kernel::{Op, OutboxAction, OutboxEntry, OutboxProblem, OutboxRow, Result, Store};

use crate::graph::Graph;
use crate::unfit;

/// The graphs that rows of one page name.
type Graphs = HashMap<Name, Option<Graph>>;

/// Returns the entries for these rows, in order. Each graph is looked up once.
pub(super) async fn entries(store: &dyn Store, rows: Vec<OutboxRow>) -> Result<Vec<OutboxEntry>> {
    let mut graphs = Graphs::new();
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let id = row.id;
        let action = match operation_of(store, &mut graphs, row).await? {
            Ok(op) => OutboxAction::Run(Arc::new(op)),
            Err(problem) => OutboxAction::Refuse(problem),
        };
        entries.push(OutboxEntry { id, action });
    }
    Ok(entries)
}

async fn operation_of(
    store: &dyn Store,
    graphs: &mut Graphs,
    row: OutboxRow,
) -> Result<Result<Op, OutboxProblem>> {
    let request = match unfit::fit::<OutboxRequest>(&row.request) {
        Ok(request) => request,
        Err(problem) => return Ok(Err(OutboxProblem::new("bad_request", problem))),
    };
    let of_graph = match start_of(&request) {
        Some(start) => match of_graph(store, graphs, start).await? {
            Ok(start) => start,
            Err(problem) => return Ok(Err(problem)),
        },
        None => None,
    };
    let source = match &row.role {
        Some(role) => format!("outbox:{role}"),
        None => "outbox".to_owned(),
    };
    Ok(operation(request, of_graph, source).map_err(|refusal| of_refusal(&refusal)))
}

fn of_refusal(refusal: &Refusal) -> OutboxProblem {
    OutboxProblem::new(refusal.reason(), refusal.to_string())
}

/// Returns the start that a request contains.
fn start_of(request: &OutboxRequest) -> Option<&StartRequest> {
    match request {
        OutboxRequest::Start(start) => Some(start),
        OutboxRequest::SignalWithStart(signal) => Some(&signal.start),
        _ => None,
    }
}

/// Returns the start of a graph with its input, if the request starts a graph.
async fn of_graph(
    store: &dyn Store,
    graphs: &mut Graphs,
    request: &StartRequest,
) -> Result<Result<Option<Start>, OutboxProblem>> {
    if let Err(refusal) = request.check() {
        return Ok(Err(of_refusal(&refusal)));
    }
    let Some(name) = &request.graph else {
        return Ok(Ok(None));
    };
    if !graphs.contains_key(name) {
        let found = store.document(DocumentKind::Graph, name).await?;
        let graph = found.and_then(|found| Graph::from_json(found.body.as_str(), &[]).ok());
        graphs.insert(name.clone(), graph);
    }
    let Some(Some(graph)) = graphs.get(name) else {
        let problem = format!(
            "there is no graph {:?} here; put it to /v1/graphs first, then retry the request",
            name.as_str()
        );
        return Ok(Err(OutboxProblem::new("unknown_graph", problem)));
    };
    let input = request.input.clone().unwrap_or_else(Json::null);
    let start = graph.start_of(&input);
    Ok(start
        .map(Some)
        .map_err(|error| OutboxProblem::new("bad_start", error.to_string())))
}

/// Returns the operation that carries a request out.
fn operation(
    request: OutboxRequest,
    of_graph: Option<Start>,
    source: String,
) -> Result<Op, Refusal> {
    let source = Some(source);
    Ok(match request {
        OutboxRequest::Start(start) => match start.wanted(of_graph)? {
            Wanted::Start(start) => Op::Start(vec![*start]),
            Wanted::Reserve(machine, key) => Op::Reserve(vec![(machine, key)]),
        },
        OutboxRequest::Signal(signal) => {
            let mut delivery = signal.delivery()?;
            delivery.source = source;
            Op::Deliver(vec![delivery])
        }
        OutboxRequest::SignalWithStart(signal) => {
            let mut delivery = signal.delivery(of_graph)?;
            delivery.source = source;
            Op::Deliver(vec![delivery])
        }
        OutboxRequest::Publish(event) => Op::Publish(vec![event]),
        OutboxRequest::Cancel(cancel) => {
            let mut cancel = cancel.cancel();
            cancel.source = source;
            Op::Cancel(vec![cancel])
        }
    })
}
