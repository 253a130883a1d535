//! Statistics: the number of instances, the queues, and the live workers.

use std::collections::BTreeMap;

use abide::model::{Name, Worker, WorkerId};
use abide::store::QueueDepth;
use abide::time::Timestamp;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{App, Problem};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(stats))
        .routes(routes!(queues))
        .routes(routes!(workers))
}

/// The depth of the outbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub struct StatsView {
    /// The server's version.
    version: &'static str,
    /// For how long this server has been serving.
    uptime_ms: u64,
    /// The number of instances by status, without finished ones.
    statuses: BTreeMap<&'static str, u64>,
    /// The number of instances by kind of wait.
    waits: BTreeMap<&'static str, u64>,
    /// The number of queues that are not empty.
    queues: usize,
    /// The number of live workers.
    workers: usize,
    /// The number of blocked instances: open, and no deployed code can run them.
    blocked: u64,
    /// The number of failing instances: open, and one of their steps has failed more than three times in a row.
    failing: u64,
    /// The number of ended instances that are still stored, by status; counted up to a million.
    ended: BTreeMap<&'static str, u64>,
}

/// Count instances by status and by kind of wait, queues and workers.
#[utoipa::path(get, path = "/v1/stats", operation_id = "get_stats", tag = "stats", responses(
    (status = 200, description = "The depth of the outbox.", body = StatsView),
))]
pub async fn stats(State(app): State<App>) -> Result<axum::Json<StatsView>, Problem> {
    let depths = app.abide().depths().await?;
    let (statuses, waits) = counts(&depths);
    let tally = app.abide().tally().await?;
    let ended = tally.ended.into_iter();
    Ok(axum::Json(StatsView {
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: u64::try_from(app.uptime().as_millis()).unwrap_or(u64::MAX),
        statuses,
        waits,
        queues: by_queue(depths, Timestamp::default()).len(),
        workers: app.abide().workers().await?.len(),
        blocked: tally.blocked,
        failing: tally.failing,
        ended: ended
            .map(|(status, count)| (status.name(), count))
            .collect(),
    }))
}

/// Numbers of instances, by the name of a status or of a kind of wait.
type Counts = BTreeMap<&'static str, u64>;

/// Counts instances by status, and those that wait by kind of wait.
pub fn counts(depths: &[QueueDepth]) -> (Counts, Counts) {
    let (mut statuses, mut waits) = (Counts::new(), Counts::new());
    for depth in depths {
        *statuses.entry(depth.status.name()).or_default() += depth.count;
        // A step that runs, or will, may still know what it was woken from.
        if let Some(kind) = depth.wait_kind.filter(|_| depth.status.is_parked()) {
            *waits.entry(kind.name()).or_default() += depth.count;
        }
    }
    (statuses, waits)
}

/// A queue.
#[derive(Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    /// The queue.
    queue: Name,
    /// The number of its instances by status, without finished ones.
    statuses: BTreeMap<&'static str, u64>,
    /// The time since when its oldest claimable instance is ready.
    oldest_ready_at: Option<Timestamp>,
    /// The same, as a duration.
    oldest_ready_age_ms: Option<u64>,
}

/// The queues.
#[derive(Serialize, ToSchema)]
pub struct Queues {
    /// By name.
    items: Vec<QueueView>,
}

/// List the queues: how many instances they have, and for how long the oldest has been ready.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "stats", responses(
    (status = 200, description = "The queues.", body = Queues),
))]
pub async fn queues(State(app): State<App>) -> Result<axum::Json<Queues>, Problem> {
    let depths = app.abide().depths().await?;
    let now = app.store().clock().now();
    Ok(axum::Json(Queues {
        items: by_queue(depths, now).into_values().collect(),
    }))
}

/// The queues, by name.
pub fn by_queue(depths: Vec<QueueDepth>, now: Timestamp) -> BTreeMap<Name, QueueView> {
    let mut queues: BTreeMap<Name, QueueView> = BTreeMap::new();
    for depth in depths {
        let queue = queues
            .entry(depth.queue.clone())
            .or_insert_with(|| QueueView {
                queue: depth.queue,
                statuses: BTreeMap::new(),
                oldest_ready_at: None,
                oldest_ready_age_ms: None,
            });
        *queue.statuses.entry(depth.status.name()).or_default() += depth.count;
        if let Some(oldest) = depth.oldest {
            let oldest = queue
                .oldest_ready_at
                .map_or(oldest, |known| known.min(oldest));
            queue.oldest_ready_at = Some(oldest);
            queue.oldest_ready_age_ms = u64::try_from(now.since(oldest).as_millis()).ok();
        }
    }
    queues
}

/// A live worker.
#[derive(Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerView {
    /// Its number.
    #[schema(value_type = i64)]
    id: WorkerId,
    /// Its name.
    name: Name,
    /// The queues it serves.
    queues: Vec<Name>,
    /// The machines it has code for.
    machines: Vec<LaneView>,
    /// The end of its lease.
    lease_until: Timestamp,
    /// The time when it registered.
    started_at: Timestamp,
}

impl From<Worker> for WorkerView {
    fn from(worker: Worker) -> Self {
        let lanes = worker.lanes.into_iter();
        Self {
            id: worker.id,
            name: worker.name,
            queues: worker.queues,
            machines: lanes
                .map(|lane| LaneView {
                    name: lane.machine,
                    version: lane.version,
                })
                .collect(),
            lease_until: worker.lease_until,
            started_at: worker.started_at,
        }
    }
}

/// A machine in one version.
#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
pub struct LaneView {
    /// The machine.
    name: Name,
    /// Its version.
    version: u32,
}

/// The workers.
#[derive(Serialize, ToSchema)]
pub struct Workers {
    /// The live workers.
    items: Vec<WorkerView>,
}

/// List the live workers, with the queues and machines that they serve.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "stats", responses(
    (status = 200, description = "The workers.", body = Workers),
))]
pub async fn workers(State(app): State<App>) -> Result<axum::Json<Workers>, Problem> {
    let workers = app.abide().workers().await?.into_iter();
    Ok(axum::Json(Workers {
        items: workers.map(WorkerView::from).collect(),
    }))
}
