//! Starting instances, one or many.

use abide::Abide;
use abide::model::{Instance, Key, Refusal, Started};
use abide::outbox::{StartRequest, Wanted};
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::wanted;
use super::{App, Problem, Refused, Write, unfit};

/// Routes that start instances.
pub fn operate() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start))
        .routes(routes!(start_all))
}

/// An instance that was started, or reserved.
#[derive(Serialize, ToSchema)]
#[schema(as = Started)]
pub struct StartedView {
    /// Its id.
    #[schema(value_type = i64)]
    pub id: abide::InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// The number of this run in its chain.
    pub run: u32,
}

impl From<Instance> for StartedView {
    fn from(instance: Instance) -> Self {
        Self {
            id: instance.id,
            run: instance.run.number,
            key: instance.key,
        }
    }
}

/// Start an instance of a machine or of a graph, or reserve its key.
#[utoipa::path(post, path = "/v1/instances", operation_id = "start", tag = "instances", request_body = StartRequest, responses(
    (status = 201, description = "It was started, or reserved.", body = StartedView),
    (status = 409, description = "The key, or the unique key, is taken: `id` is the holder's.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn start(
    State(app): State<App>,
    Write {
        body: request,
        abide,
    }: Write<StartRequest>,
) -> Result<(StatusCode, axum::Json<StartedView>), Problem> {
    let key = request.key.clone();
    let wanted = wanted(request, &app, &mut Default::default()).await?;
    match begin(&abide, wanted).await?? {
        // A start begins a chain, and so does a reservation.
        Started::New(id) => Ok((
            StatusCode::CREATED,
            axum::Json(StartedView { id, key, run: 1 }),
        )),
        Started::Duplicate(holder) => Err(duplicate(holder)),
    }
}

/// Starts or reserves one instance.
pub(crate) async fn begin(
    abide: &Abide,
    wanted: Wanted,
) -> Result<Result<Started, Refusal>, abide::Error> {
    let begun = match wanted {
        Wanted::Start(start) => abide.start_all([Ok(*start)]).await?,
        Wanted::Reserve(machine, key) => abide.reserve_all([(machine, key)]).await?,
    };
    begun.into_iter().next().ok_or(abide::Error::Closed)
}

/// Makes the problem for a key that is taken.
pub fn duplicate(holder: abide::InstanceId) -> Problem {
    let detail = format!(
        "the key, or the unique key, is taken by instance {holder}: wait for its end, or use another"
    );
    Problem::new(StatusCode::CONFLICT, "duplicate", detail)
        .with("outcome", "duplicate")
        .with("id", holder)
}

/// The instances to start.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The instances, each as it would be started alone.
    #[schema(value_type = Vec<StartRequest>)]
    instances: Vec<Box<RawValue>>,
}

/// The result of a batch.
#[derive(Serialize, ToSchema)]
pub struct BatchAnswer {
    /// The result of each entry, in order.
    results: Vec<BatchResult>,
}

/// The result of one entry: `id`, `duplicate_of` or `error`.
#[derive(Serialize, Default, ToSchema)]
pub struct BatchResult {
    /// The instance that was started, or reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    id: Option<abide::InstanceId>,
    /// The instance that holds the key or the unique key; nothing was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    duplicate_of: Option<abide::InstanceId>,
    #[serde(flatten)]
    refused: Refused,
}

impl From<Refused> for BatchResult {
    fn from(refused: Refused) -> Self {
        Self {
            refused,
            ..Self::default()
        }
    }
}

impl From<Result<Started, Refusal>> for BatchResult {
    fn from(started: Result<Started, Refusal>) -> Self {
        match started {
            Ok(Started::New(id)) => Self {
                id: Some(id),
                ..Self::default()
            },
            Ok(Started::Duplicate(holder)) => Self {
                duplicate_of: Some(holder),
                ..Self::default()
            },
            Err(refusal) => Refused::from(&refusal).into(),
        }
    }
}

impl From<Problem> for BatchResult {
    fn from(problem: Problem) -> Self {
        Refused::from(problem).into()
    }
}

/// Start any number of instances. Each entry has its own result.
///
/// All valid entries are started in one transaction. An entry that is refused or invalid does not affect the others.
#[utoipa::path(post, path = "/v1/instances/batch", operation_id = "start_batch", tag = "instances", request_body = BatchRequest, responses(
    (status = 200, description = "The result of each entry, in order.", body = BatchAnswer),
))]
pub async fn start_all(
    State(app): State<App>,
    Write {
        body: request,
        abide,
    }: Write<BatchRequest>,
) -> Result<axum::Json<BatchAnswer>, Problem> {
    app.limits().check_batch(request.instances.len())?;
    let mut results: Vec<BatchResult> = Vec::with_capacity(request.instances.len());
    let mut graphs = Default::default();
    // The instances to start next, and their positions in the response.
    let mut starts = Vec::new();
    for entry in &request.instances {
        let read = unfit::fit::<StartRequest>(entry.get());
        let wanted = match read {
            Ok(request) => match wanted(request, &app, &mut graphs).await {
                Ok(wanted) => wanted,
                // An error of the store applies to the whole batch.
                Err(problem) if problem.status >= 500 => return Err(problem),
                Err(problem) => {
                    results.push(problem.into());
                    continue;
                }
            },
            Err(error) => {
                results.push(Problem::unprocessable(format!("invalid entry: {error}")).into());
                continue;
            }
        };
        match wanted {
            Wanted::Start(start) => {
                starts.push((results.len(), *start));
                results.push(BatchResult::default());
            }
            reserve @ Wanted::Reserve(..) => {
                // An entry may be about a key that one before it has taken.
                flush(&abide, &mut starts, &mut results).await?;
                results.push(begin(&abide, reserve).await?.into());
            }
        }
    }
    flush(&abide, &mut starts, &mut results).await?;
    Ok(axum::Json(BatchAnswer { results }))
}

/// Starts the gathered instances, and records their results.
async fn flush(
    abide: &Abide,
    starts: &mut Vec<(usize, abide::model::Start)>,
    results: &mut [BatchResult],
) -> Result<(), Problem> {
    if starts.is_empty() {
        return Ok(());
    }
    let (indexes, starts): (Vec<usize>, Vec<abide::model::Start>) =
        std::mem::take(starts).into_iter().unzip();
    let started = abide.start_all(starts.into_iter().map(Ok)).await?;
    for (index, started) in indexes.into_iter().zip(started) {
        if let Some(result) = results.get_mut(index) {
            *result = started.into();
        }
    }
    Ok(())
}
