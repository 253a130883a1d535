//! Declaring machines whose code runs elsewhere.

use abide::contract::{Accepts, Contract, Parameter, TypeSpec};
use abide::graph::RetrySpec;
use abide::model::{Declared, Kind, Name};
use abide_kernel::rules::graph::graph_of;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{AnyJson, Listed, Millis, NameText, decode, encode, limited};
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
    #[schema(value_type = Vec<AcceptsRequest>)]
    signals: Vec<Accepts>,
    /// The updates it accepts. Others are refused.
    #[serde(default)]
    #[schema(value_type = Vec<AcceptsRequest>)]
    updates: Vec<Accepts>,
    /// The first step of an instance; default `start`.
    #[schema(value_type = Option<NameText>)]
    first_step: Option<Name>,
    /// The queue of its instances; default `default`.
    #[schema(value_type = Option<NameText>)]
    queue: Option<Name>,
    /// The retry policy of a failed step; no retries if not given.
    #[schema(value_type = Option<RetryRequest>)]
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

/// A signal or an update that a machine accepts.
#[derive(ToSchema)]
#[schema(as = Accepts)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::contract::Accepts` is what is read"
)]
pub struct AcceptsRequest {
    /// Its name.
    #[schema(value_type = NameText)]
    name: Name,
    /// Its parameters, in order. If left out, any arguments are accepted.
    #[schema(value_type = Option<Vec<ParameterRequest>>)]
    parameters: Option<Vec<Parameter>>,
}

/// A parameter of a signal or an update.
#[derive(ToSchema)]
#[schema(as = Parameter)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::contract::Parameter` is what is read"
)]
pub struct ParameterRequest {
    /// Its name.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// Its type: `string`, `int`, `float`, `bool`, `array`, `object`, `any`, a union of them like `int|string`, or a
    /// fragment of JSON Schema; default `any`.
    #[schema(value_type = AnyJson, required = false)]
    r#type: Option<TypeSpec>,
    /// `true` if it accepts null, and may be left out.
    nullable: Option<bool>,
    /// The default value.
    #[schema(value_type = AnyJson, required = false)]
    default: Option<Value>,
    /// `true` if it takes all remaining arguments. Only the last parameter may be variadic.
    variadic: Option<bool>,
}

/// The retry policy of a failed step.
#[derive(ToSchema)]
#[schema(as = Retry)]
#[expect(
    dead_code,
    reason = "this is the schema; `abide::graph::RetrySpec` is what is read"
)]
pub struct RetryRequest {
    /// The maximum number of attempts, including the first.
    #[schema(value_type = i64, minimum = 1, maximum = 4_294_967_295_i64)]
    max_attempts: u32,
    /// How long to wait before the second attempt.
    #[schema(value_type = i64, minimum = 0, maximum = 315_360_000_000_i64)]
    delay_ms: u64,
    /// The factor by which the delay grows each time; default 1.
    #[schema(minimum = 1, maximum = 1000)]
    factor: Option<f64>,
    /// The maximum delay.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 315_360_000_000_i64)]
    max_delay_ms: Option<u64>,
}

/// A declared machine.
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
    /// The first step of an instance.
    #[schema(value_type = NameText)]
    first_step: Name,
    /// The queue of its instances.
    #[schema(value_type = NameText)]
    queue: Name,
    /// `true` if its instances keep a history.
    history: bool,
    /// The retry policy of a failed step.
    #[schema(value_type = Option<RetryRequest>)]
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
        ("name" = NameText, Path, description = "The machine."),
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
    let limit = limited(query.limit)?;
    let after = decode("machines", query.cursor.as_deref())?;
    let page = app.store().machines_page(after, limit).await?;
    Ok(axum::Json(Listed {
        items: page.items.into_iter().map(MachineView::from).collect(),
        next_cursor: page.next.and_then(|next| encode("machines", &next)),
    }))
}
