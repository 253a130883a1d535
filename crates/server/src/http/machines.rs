//! Declaring machines whose code runs elsewhere.

use abide::{Accepts, Contract, Declared, Kind, Name, Parameter, RetrySpec, TypeSpec};
use abide_kernel::rules::graph::graph_of;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{AnyJson, Listed, Millis, NameText, decode, encode, limited};
use super::instances::PageQuery;
use super::{App, Params, Place, Problem, Write};

/// What looks.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// What workers do.
pub fn work() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(declare))
}

/// What a machine takes, and how its steps fail.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// The signals it takes; any when there are none.
    #[serde(default)]
    #[schema(value_type = Vec<AcceptsRequest>)]
    signals: Vec<Accepts>,
    /// The updates it takes, and no others.
    #[serde(default)]
    #[schema(value_type = Vec<AcceptsRequest>)]
    updates: Vec<Accepts>,
    /// The step that an instance begins at; `start` unless given.
    #[schema(value_type = Option<NameText>)]
    first_step: Option<Name>,
    /// The queue that an instance waits in; `default` unless given.
    #[schema(value_type = Option<NameText>)]
    queue: Option<Name>,
    /// When a step that failed runs again; never unless given.
    #[schema(value_type = Option<RetryRequest>)]
    retry: Option<RetrySpec>,
    /// How long a step may take.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 315_360_000_000_i64)]
    step_timeout_ms: Option<Millis>,
    /// After how many deaths of its worker in one step an instance fails; 5 unless given, 0 for no limit.
    #[schema(minimum = 0, maximum = 1_000_000)]
    max_deaths: Option<u32>,
    /// Whether its instances keep a history; yes unless given.
    history: Option<bool>,
}

/// A signal or an update that a machine takes.
#[derive(ToSchema)]
#[schema(as = Accepts)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::Accepts` is what is read"
)]
pub struct AcceptsRequest {
    /// Its name.
    #[schema(value_type = NameText)]
    name: Name,
    /// What it is sent with, in order; anything is taken when it is left out.
    #[schema(value_type = Option<Vec<ParameterRequest>>)]
    parameters: Option<Vec<Parameter>>,
}

/// A parameter of a signal or an update.
#[derive(ToSchema)]
#[schema(as = Parameter)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::Parameter` is what is read"
)]
pub struct ParameterRequest {
    /// Its name.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// What values it takes: `string`, `int`, `float`, `bool`, `array`, `object`, `any`, a union of them like
    /// `int|string`, or a fragment of JSON Schema; any when it is left out.
    #[schema(value_type = AnyJson, required = false)]
    r#type: Option<TypeSpec>,
    /// Whether it also takes null, and may then be left out.
    nullable: Option<bool>,
    /// What it is when it is left out.
    #[schema(value_type = AnyJson, required = false)]
    default: Option<Value>,
    /// Whether it takes all that is left; the last one may.
    variadic: Option<bool>,
}

/// When a step that failed runs again.
#[derive(ToSchema)]
#[schema(as = Retry)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::RetrySpec` is what is read"
)]
pub struct RetryRequest {
    /// How often it is tried, the first time counted.
    #[schema(value_type = i64, minimum = 1, maximum = 4_294_967_295_i64)]
    max_attempts: u32,
    /// How long to wait before the second attempt.
    #[schema(value_type = i64, minimum = 0, maximum = 315_360_000_000_i64)]
    delay_ms: u64,
    /// By how much that grows each time; 1 unless given.
    #[schema(minimum = 1, maximum = 1000)]
    factor: Option<f64>,
    /// The longest it grows to.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 315_360_000_000_i64)]
    max_delay_ms: Option<u64>,
}

/// A machine that is declared.
#[derive(Serialize, ToSchema)]
#[schema(as = Machine)]
pub struct MachineView {
    /// Its name.
    #[schema(value_type = NameText)]
    name: Name,
    /// Its version.
    version: u32,
    /// `machine` or `workflow`.
    #[schema(value_type = String)]
    kind: Kind,
    /// The step that an instance begins at.
    #[schema(value_type = NameText)]
    first_step: Name,
    /// The queue that an instance waits in.
    #[schema(value_type = NameText)]
    queue: Name,
    /// Whether its instances keep a history.
    history: bool,
    /// When a step that failed runs again.
    #[schema(value_type = Option<RetryRequest>)]
    retry: Option<RetrySpec>,
    /// How long a step may take.
    #[schema(value_type = Option<i64>)]
    step_timeout_ms: Option<u64>,
    /// After how many deaths of its worker in one step an instance fails; 5 when it does not say.
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

/// Declare a machine whose code runs elsewhere; again is allowed, and counts for later starts.
#[utoipa::path(put, path = "/v1/machines/{name}/{version}", operation_id = "declare_machine", tag = "machines",
    params(
        ("name" = NameText, Path, description = "The machine."),
        ("version" = u32, Path, description = "Its version.", minimum = 1, maximum = 2_147_483_647),
    ),
    request_body = MachineRequest, responses(
    (status = 200, description = "It is declared.", body = MachineView),
))]
pub async fn declare(
    Place((name, version)): Place<(String, u32)>,
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

/// List the machines that are declared, by name and version.
#[utoipa::path(get, path = "/v1/machines", operation_id = "list_machines", tag = "machines", params(PageQuery), responses(
    (status = 200, description = "A page of machines.", body = Listed<MachineView>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<MachineView>>, Problem> {
    let limit = limited(query.limit)?;
    let after = decode("machines", query.cursor.as_deref())?;
    let page = app.store().machines_page(after, limit).await?;
    Ok(axum::Json(Listed {
        items: page.items.into_iter().map(MachineView::from).collect(),
        next_cursor: page.next.and_then(|next| encode("machines", &next)),
    }))
}
