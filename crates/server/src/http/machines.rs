//! Declaring machines whose code runs elsewhere.

use abide::contract::{Accepts, Contract};
use abide::graph::RetrySpec;
use abide::model::{Declared, Kind, Name};
use abide_kernel::rules::graph::graph_of;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, Millis, asked};
use super::instances::PageQuery;
use super::{App, Params, PathParams, Problem, Write};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Routes for workers.
pub fn work() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(declare))
}

/// The declaration of a machine: the signals and updates it accepts, and how its steps fail.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// The signals it accepts. If there are none, it accepts any.
    #[serde(default)]
    signals: Vec<Accepts>,
    /// The updates it accepts. Others are refused.
    #[serde(default)]
    updates: Vec<Accepts>,
    /// The first step of an instance; default `start`.
    first_step: Option<Name>,
    /// The queue of its instances; default `default`.
    queue: Option<Name>,
    /// The retry policy of a failed step; no retries if not given.
    retry: Option<RetrySpec>,
    /// How long a step may take.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 315_360_000_000_i64)]
    step_timeout_ms: Option<Millis>,
    /// The number of deaths of its worker in one step after which an instance fails; default 5, 0 for no limit.
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_deaths: Option<u32>,
    /// `true` if its instances keep a history; default `true`.
    history: Option<bool>,
}

/// A declared machine.
#[derive(Serialize, ToSchema)]
#[schema(as = Machine)]
pub struct MachineView {
    /// Its name.
    name: Name,
    /// Its version.
    version: u32,
    /// `machine` or `workflow`.
    #[schema(value_type = String)]
    kind: Kind,
    /// The first step of an instance.
    first_step: Name,
    /// The queue of its instances.
    queue: Name,
    /// `true` if its instances keep a history.
    history: bool,
    /// The retry policy of a failed step.
    retry: Option<RetrySpec>,
    /// How long a step may take.
    #[schema(value_type = Option<i64>)]
    step_timeout_ms: Option<u64>,
    /// The number of deaths of its worker in one step after which an instance fails; default 5.
    max_deaths: Option<u32>,
}

impl From<Declared> for MachineView {
    fn from(declared: Declared) -> Self {
        Self {
            name: declared.machine,
            version: declared.version,
            kind: declared.kind,
            first_step: declared.first_step,
            queue: declared.queue,
            history: declared.history,
            retry: declared.retry,
            step_timeout_ms: declared.step_timeout_ms,
            max_deaths: declared.max_deaths,
        }
    }
}

/// Declare a machine whose code runs in remote workers. It may be declared again; that applies to later starts.
#[utoipa::path(put, path = "/v1/machines/{name}/{version}", operation_id = "declare_machine", tag = "machines",
    params(
        ("name" = Name, Path, description = "The machine."),
        ("version" = u32, Path, description = "Its version.", minimum = 1, maximum = 2_147_483_647),
    ),
    request_body = MachineRequest, responses(
    (status = 200, description = "It is declared.", body = MachineView),
))]
pub async fn declare(
    PathParams((name, version)): PathParams<(String, u32)>,
    Write {
        body: request,
        abide,
    }: Write<MachineRequest>,
) -> Result<axum::Json<MachineView>, Problem> {
    let machine = Name::new(name)?;
    if graph_of(machine.as_str()).is_some() {
        return Err(Problem::unprocessable(
            "the machines of graphs are made by putting a graph to /v1/graphs/{name}",
        ));
    }
    let contract = Contract {
        signals: request.signals,
        updates: request.updates,
    };
    let (id, contracts) = match contract.is_empty() {
        true => (None, Vec::new()),
        false => (Some(contract.id()), vec![contract]),
    };
    let declared = Declared {
        kind: Kind::Machine,
        machine,
        version,
        first_step: request.first_step.map_or_else(|| Name::new("start"), Ok)?,
        queue: request.queue.map_or_else(|| Name::new("default"), Ok)?,
        history: request.history.unwrap_or(true),
        contract: id,
        retry: request.retry,
        step_timeout_ms: request.step_timeout_ms.map(|ms| ms.ms()),
        max_deaths: request.max_deaths,
    };
    abide.declare(vec![declared.clone()], contracts).await?;
    Ok(axum::Json(declared.into()))
}

/// List the declared machines, by name and version.
#[utoipa::path(get, path = "/v1/machines", operation_id = "list_machines", tag = "machines", params(PageQuery), responses(
    (status = 200, description = "A page of machines.", body = Listed<MachineView>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<MachineView>>, Problem> {
    let (limit, after) = asked("machines", query.limit, query.cursor.as_deref())?;
    let page = app.store().machines_page(after, limit).await?;
    Ok(Listed::page("machines", page, MachineView::from))
}
