//! The requests of workers over HTTP: claim, commit, heartbeat, sign off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use abide::InstanceId;
use abide::model::{Json, Name};
use abide_kernel::committer::Bulk;
use abide_kernel::model::{
    AT_ONCE, Command, CommandKind, Commit, Committed, Heartbeat, Lane, Outcome,
};
use abide_kernel::rules::contradiction;
use abide_kernel::rules::graph::graph_of;
use abide_kernel::rules::leases;
use abide_kernel::{Answer, Extension, INBOX_WHOLE_BYTES, Op, Store};
use axum::extract::State;
use futures_util::StreamExt;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{ClaimView, Graphs, waited};
use super::{App, Body, PathParams, Problem, Refused, Waiting};
use crate::metrics;
use crate::telemetry::AttemptTrace;
use crate::workers::outcome::{self, OutcomeRequest};
use crate::workers::{ClaimToken, ClaimedStep, Handed, InvalidToken, Poll};

/// The most claims of one answer.
const CLAIMS_MAX: usize = 1_000;
/// The most machines that one request names.
const MACHINES_MAX: usize = 1_000;
/// How many inboxes are read at once for one answer.
const INBOXES: usize = 8;

/// Routes for workers.
pub fn work() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim))
        .routes(routes!(commit))
        .routes(routes!(heartbeat))
        .routes(routes!(sign_off))
        .routes(routes!(reclaim))
}

/// A request for work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The worker's name: its own, and the same in every request of one process.
    worker: Name,
    /// The build of the worker's code. An instance that a build cannot run (outcome `block`) is left to workers of other
    /// builds. Different builds need different names; default: the worker's name.
    build: Option<Name>,
    /// The queue to look in.
    queue: Name,
    /// The machines that the worker has code for.
    #[schema(min_items = 1, max_items = 1_000)]
    machines: Vec<MachineVersion>,
    /// The maximum number of claims: 1 to 1,000; default 1.
    #[schema(minimum = 1)]
    limit: Option<usize>,
    /// How long to wait for work; if not given, this answers at once.
    #[schema(minimum = 0, maximum = 60_000)]
    wait_ms: Option<u64>,
    /// How long a claim lasts without a heartbeat; default 30 s, unless the server sets another.
    #[schema(minimum = 1_000, maximum = 86_400_000)]
    lease_ms: Option<u64>,
}

/// A machine in one version.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineVersion {
    /// The machine; a graph's task is `task/<name>`.
    name: Name,
    /// Its version; a graph's task has version 1.
    #[schema(minimum = 1, maximum = 2_147_483_647)]
    version: u32,
}

/// The claimed instances.
#[derive(Serialize, ToSchema)]
pub struct Claims {
    /// The claims, in the order in which they are to run; none when there was no work in time.
    claims: Vec<ClaimView>,
}

/// Claim work. Waits until there is work or the time is up.
///
/// A claim lasts as long as its lease, which begins anew with each heartbeat that names it. Then another worker gets the
/// instance. The claim is valid at every server of the same database, and survives their restarts.
#[utoipa::path(post, path = "/v1/workers/claim", operation_id = "claim", tag = "workers", request_body = ClaimRequest, responses(
    (status = 200, description = "The claims; empty if there was no work in time.", body = Claims),
    (status = 422, description = "The request is invalid.", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "Too many long polls: retry in a second.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn claim(
    State(app): State<App>,
    waits: Waiting,
    Body(request): Body<ClaimRequest>,
) -> Result<axum::Json<Claims>, Problem> {
    let waits = waits.begin(&app)?;
    let worker = request.worker.clone();
    let poll = wanted(&app, request)?;
    let (lease, waits_long) = (poll.lease, !poll.wait.is_zero());
    let nothing = || Ok(axum::Json(Claims { claims: Vec::new() }));
    let polled = app.workers().hub.poll(poll);
    let handed = if waits_long {
        tokio::select! {
            // Nothing is claimed for a client that has gone.
            biased;
            () = waits.gone() => return nothing(),
            () = app.draining().cancelled() => return nothing(),
            handed = polled => handed?,
        }
    } else {
        polled.await?
    };
    let inboxes = inboxes(app.store(), &handed).await?;
    let sealer = app.workers().seals.sealer().await?;
    let since = app.store().clock().now();
    handed
        .claims()
        .iter()
        .for_each(|claimed| app.trace_claim(claimed, since));
    let claims = handed.take().into_iter().zip(inboxes);
    let claims = claims
        .map(|(claimed, inbox)| ClaimView::new(claimed, inbox, &worker, lease, since, &sealer))
        .collect();
    Ok(axum::Json(Claims { claims }))
}

/// Checks a request for work, and converts it to a poll.
fn wanted(app: &App, request: ClaimRequest) -> Result<Poll, Problem> {
    let wait = waited(request.wait_ms)?;
    let lease = request
        .lease_ms
        .map_or(app.settings().lease, Duration::from_millis);
    if !(leases::CLAIM_MIN..=leases::CLAIM_MAX).contains(&lease) {
        let (min, max) = (leases::CLAIM_MIN.as_millis(), leases::CLAIM_MAX.as_millis());
        let detail = format!(
            "lease_ms is {}: give {min} at least, {max} at most",
            lease.as_millis()
        );
        return Err(Problem::unprocessable(detail));
    }
    if request.machines.is_empty() || request.machines.len() > MACHINES_MAX {
        let met = request.machines.len();
        let detail = format!(
            "machines names {met} of them: give those that the worker has code for, {MACHINES_MAX} at most"
        );
        return Err(Problem::unprocessable(detail));
    }
    let mut lanes = Vec::with_capacity(request.machines.len());
    for MachineVersion { name, version } in request.machines {
        if graph_of(name.as_str()).is_some() {
            let detail = format!(
                "{name} is a graph: the server advances it, and its tasks are the machines task/<name>"
            );
            return Err(Problem::unprocessable(detail));
        }
        if version == 0 || i32::try_from(version).is_err() {
            return Err(abide::model::Refusal::BadVersion { version }.into());
        }
        lanes.push(Lane {
            machine: name,
            version,
        });
    }
    lanes.sort_unstable();
    lanes.dedup();
    let limit = request.limit.unwrap_or(1);
    if limit == 0 {
        return Err(Problem::unprocessable(
            "limit is 0: ask for one claim at least",
        ));
    }
    Ok(Poll {
        worker: request.worker,
        build: request.build,
        queue: request.queue,
        lanes: lanes.into(),
        limit: limit.min(CLAIMS_MAX),
        lease,
        wait,
    })
}

/// The inboxes of what was claimed. One is read only when something is in it that the claim did not bring.
async fn inboxes(store: &Arc<dyn Store>, handed: &Handed) -> Result<Vec<Vec<Command>>, Problem> {
    let reads = handed.claims().iter().map(|claimed| {
        let is_all = u64::from(claimed.inbox.signals) == claimed.awaited.len() as u64;
        // rule 16.4: of a large inbox only what was waited for is sent along; the rest can be requested.
        let is_large = claimed.inbox.bytes > INBOX_WHOLE_BYTES;
        let brought = (is_all || is_large).then(|| claimed.awaited.clone());
        inbox(store.clone(), claimed.claim.id(), brought)
    });
    let reads: Vec<_> = reads.collect();
    let read: Vec<abide_kernel::Result<_>> = stream::iter(reads).buffered(INBOXES).collect().await;
    Ok(read.into_iter().collect::<abide_kernel::Result<_>>()?)
}

async fn inbox(
    store: Arc<dyn Store>,
    id: InstanceId,
    brought: Option<Vec<Command>>,
) -> abide_kernel::Result<Vec<Command>> {
    if let Some(brought) = brought {
        return Ok(brought);
    }
    let mut inbox = store.inbox(id).await?;
    inbox.retain(|message| message.kind == CommandKind::Signal);
    Ok(inbox)
}

/// Outcomes to commit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitRequest {
    /// The worker that the claims were given to.
    worker: Name,
    /// The outcomes of its steps. Each entry has its own result.
    outcomes: Vec<OutcomeOfClaim>,
}

/// The outcome of a step, and its claim.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeOfClaim {
    /// The claim.
    claim: String,
    /// The outcome.
    #[schema(value_type = OutcomeRequest)]
    outcome: Json,
}

/// The results of outcomes.
#[derive(Serialize, ToSchema)]
pub struct CommitResults {
    /// The results, in the order of the request.
    results: Vec<CommitResult>,
}

/// The result of one outcome.
#[derive(Serialize, ToSchema)]
pub struct CommitResult {
    /// The claim.
    claim: String,
    /// `committed`; `stale`: the claim was lost, and nothing of the outcome was committed; `refused`: it broke a rule,
    /// nothing was committed, and the claim is as it was.
    status: CommitStatus,
    /// `true` if an outcome was committed under this claim before; then this request changed nothing.
    duplicate: bool,
    #[serde(flatten)]
    refused: Refused,
}

/// The result of one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitStatus {
    /// It is durable.
    Committed,
    /// The claim was lost.
    Stale,
    /// It broke a rule.
    Refused,
}

/// Commit the outcomes of steps. Each entry has its own result.
///
/// An outcome that is sent again, because its answer was lost, is `committed` with `duplicate: true` and changes nothing.
/// Two different outcomes for one claim in one request are both refused.
#[utoipa::path(post, path = "/v1/workers/commit", operation_id = "commit", tag = "workers", request_body = CommitRequest, responses(
    (status = 200, description = "The result of each entry, in order.", body = CommitResults),
    (status = 422, description = "The request is invalid.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn commit(
    State(app): State<App>,
    Body(request): Body<CommitRequest>,
) -> Result<axum::Json<CommitResults>, Problem> {
    app.limits().check_batch(request.outcomes.len())?;
    app.workers().hub.seen(request.worker.clone());
    let now = app.store().clock().now();
    let mut graphs = Graphs::default();
    let mut judged = Vec::with_capacity(request.outcomes.len());
    let mut commits = Vec::new();
    let tokens: Vec<&str> = request
        .outcomes
        .iter()
        .map(|one| one.claim.as_str())
        .collect();
    let decoded = app.workers().decode(&tokens).await?;
    let mut entries = Vec::with_capacity(request.outcomes.len());
    for (OutcomeOfClaim { claim, outcome }, token) in request.outcomes.into_iter().zip(decoded) {
        let read = judge(&app, &request.worker, token, &outcome, &mut graphs).await;
        entries.push((claim, read));
    }
    refuse_beside_unreadable(&mut entries);
    for (claim, read) in entries {
        let (result, entry) = match read {
            Ok((token, outcome)) => {
                let ran = StepReport {
                    outcome: outcome.last().name(),
                    failed: matches!(outcome.last(), Outcome::Fail { .. }),
                    took: now.since(token.since),
                    attempt: app.traces().is_on().then(|| token.attempt(&outcome, now)),
                    step: token.step,
                };
                commits.push(Commit {
                    claim: token.claim,
                    outcome,
                    keep: false,
                    took: ran.took,
                    error: None,
                });
                (EntryResult::from(CommitStatus::Committed), Some(ran))
            }
            Err(result) => (result, None),
        };
        judged.push((claim, result, entry));
    }
    let committed = match commits.is_empty() {
        true => Vec::new(),
        false => app.workers().commits.ask(commits).await?,
    };
    let mut committed = committed.into_iter();
    let results = judged.into_iter().map(|(claim, result, entry)| {
        let EntryResult {
            status,
            duplicate,
            refused,
        } = match entry {
            None => result,
            Some(ran) => settled(&app, committed.next(), ran),
        };
        CommitResult {
            claim,
            status,
            duplicate,
            refused,
        }
    });
    Ok(axum::Json(CommitResults {
        results: results.collect(),
    }))
}

/// An entry of a request to commit: the text of its claim, and its claim and outcome, or its result if that is already
/// known.
type Entry = (String, Result<(ClaimToken, Outcome), EntryResult>);

/// Refuses the outcomes of claims for which a request also has one that cannot be read, and with them that one: they are two
/// different outcomes for one claim (rule 1.7). Those that can be read are compared when they are committed.
fn refuse_beside_unreadable(entries: &mut [Entry]) {
    let mut found: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for (claim, read) in &*entries {
        let (readable, unreadable) = found.entry(claim).or_default();
        *readable |= read.is_ok();
        *unreadable |= read.is_err();
    }
    found.retain(|_, of| *of == (true, true));
    let both: BTreeSet<String> = found.into_keys().map(str::to_owned).collect();
    let entries = entries.iter_mut();
    for (_, read) in entries.filter(|(claim, _)| both.contains(claim)) {
        *read = Err(EntryResult::refused(&contradiction::refusal()));
    }
}

/// The result of one entry, without its claim.
struct EntryResult {
    status: CommitStatus,
    duplicate: bool,
    refused: Refused,
}

impl EntryResult {
    fn refused(why: impl Into<Refused>) -> Self {
        Self {
            refused: why.into(),
            ..CommitStatus::Refused.into()
        }
    }
}

impl From<CommitStatus> for EntryResult {
    fn from(status: CommitStatus) -> Self {
        Self {
            status,
            duplicate: false,
            refused: Refused::default(),
        }
    }
}

/// Reads one entry. Returns its result if it is refused or stale, and so cannot be committed.
async fn judge(
    app: &App,
    worker: &Name,
    token: Result<ClaimToken, InvalidToken>,
    outcome: &Json,
    graphs: &mut Graphs,
) -> Result<(ClaimToken, Outcome), EntryResult> {
    let token = token.map_err(|error| {
        EntryResult::refused(
            Problem::unprocessable(error.to_string()).with("reason", "invalid_claim"),
        )
    })?;
    if token.worker != *worker {
        return Err(CommitStatus::Stale.into());
    }
    let outcome = outcome::read(app, outcome, graphs).await;
    Ok((token, outcome.map_err(EntryResult::refused)?))
}

/// The data that a trace needs about a step whose outcome was sent.
struct StepReport {
    outcome: &'static str,
    failed: bool,
    took: Duration,
    attempt: Option<AttemptTrace>,
    step: ClaimedStep,
}

fn settled(app: &App, committed: Option<Committed>, ran: StepReport) -> EntryResult {
    let settled = match committed {
        Some(Committed::Moved(_) | Committed::Kept(..)) => {
            EntryResult::from(CommitStatus::Committed)
        }
        // It was counted when it was committed.
        Some(Committed::Repeated(_)) => {
            return EntryResult {
                duplicate: true,
                ..CommitStatus::Committed.into()
            };
        }
        Some(Committed::Refused(refusal)) => EntryResult::refused(&refusal),
        Some(Committed::Stale) | None => CommitStatus::Stale.into(),
    };
    let status = settled.status;
    if status == CommitStatus::Committed {
        let (machine, step) = (ran.step.0.as_str(), ran.step.2.as_str());
        metrics::step(machine, step, ran.took, ran.failed);
        metrics::outcome(ran.outcome);
    }
    // A refused outcome may be corrected and sent again: the attempt continues.
    if let Some(mut attempt) = ran.attempt
        && status != CommitStatus::Refused
    {
        if status == CommitStatus::Stale {
            attempt.outcome = "stale".to_owned();
        }
        app.traces().attempt(&attempt);
    }
    settled
}

/// Claims that are still held.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The worker that they were given to.
    worker: Name,
    /// All claims that it holds. The lease of a claim that is not listed expires.
    claims: Vec<String>,
}

/// The response to a heartbeat.
#[derive(Serialize, ToSchema)]
pub struct Lost {
    /// The claims that were lost: an outcome for them would be stale.
    lost: Vec<String>,
}

/// Renew the leases of claims that are still held.
#[utoipa::path(post, path = "/v1/workers/heartbeat", operation_id = "heartbeat", tag = "workers", request_body = HeartbeatRequest, responses(
    (status = 200, description = "The claims that were lost.", body = Lost),
    (status = 422, description = "The request is invalid.", body = Problem, content_type = "application/problem+json"),
))]
pub async fn heartbeat(
    State(app): State<App>,
    Body(request): Body<HeartbeatRequest>,
) -> Result<axum::Json<Lost>, Problem> {
    app.limits().check_batch(request.claims.len())?;
    app.workers().hub.seen(request.worker.clone());
    let (mut lost, mut texts, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let tokens: Vec<&str> = request.claims.iter().map(String::as_str).collect();
    let decoded = app.workers().decode(&tokens).await?;
    for (text, token) in request.claims.into_iter().zip(decoded) {
        match token {
            Ok(token) if token.worker == request.worker => {
                held.push(Extension {
                    claim: token.claim,
                    lease: token.lease.clamp(leases::CLAIM_MIN, leases::CLAIM_MAX),
                });
                texts.push(text);
            }
            _ => lost.push(text),
        }
    }
    if !held.is_empty() {
        let beats = app.workers().heartbeats.ask(held).await?;
        let beats = texts.into_iter().zip(beats);
        lost.extend(beats.filter_map(|(text, beat)| (beat == Heartbeat::Lost).then_some(text)));
    }
    Ok(axum::Json(Lost { lost }))
}

/// The claims that a worker gave back.
#[derive(Serialize, ToSchema)]
pub struct SignedOff {
    /// The number of instances.
    given_back: usize,
}

/// Sign off a worker that stops: its claims are given back, and it is forgotten. No attempt and no death is counted.
#[utoipa::path(delete, path = "/v1/workers/{worker}", operation_id = "sign_off", tag = "workers",
    params(("worker" = Name, Path, description = "The worker's name.")), responses(
    (status = 200, description = "The number of claims given back.", body = SignedOff),
))]
pub async fn sign_off(
    State(app): State<App>,
    PathParams(worker): PathParams<String>,
) -> Result<axum::Json<SignedOff>, Problem> {
    let name = Name::new(worker)?;
    app.workers().hub.forget(name.clone());
    let mut given_back = 0;
    let mut bulk = Bulk::new(AT_ONCE);
    loop {
        // One that cannot be given back holds up no other (rule 1.4).
        let signed = bulk.run(app.store(), |limit| Op::SignOffNamed {
            name: name.clone(),
            limit,
        });
        let Answer::Touched { count, more } = signed.await? else {
            break;
        };
        given_back += count;
        if !more {
            break;
        }
    }
    Ok(axum::Json(SignedOff { given_back }))
}

/// The claims that were taken back from a worker.
#[derive(Serialize, ToSchema)]
pub struct TakenBack {
    /// The number of instances.
    taken_back: usize,
}

/// Take back the claims of an earlier process with this worker's name. A worker with a fixed name does this when it starts.
///
/// The earlier process is considered dead: its outcomes are stale, its claims run again with `attempt` and `deaths` one
/// higher, and their histories say `reclaimed`. A worker that signed off holds nothing, so nothing happens.
#[utoipa::path(post, path = "/v1/workers/{worker}/reclaim", operation_id = "reclaim_worker", tag = "workers",
    params(("worker" = Name, Path, description = "The worker's name.")), responses(
    (status = 200, description = "The number of claims taken back.", body = TakenBack),
))]
pub async fn reclaim(
    State(app): State<App>,
    PathParams(worker): PathParams<String>,
) -> Result<axum::Json<TakenBack>, Problem> {
    let name = Name::new(worker)?;
    app.workers().hub.forget(name.clone());
    let take_back = || Op::Reclaim { limit: AT_ONCE };
    let mut ops: Arc<[Op]> = Arc::from([Op::Expire { name }, take_back()]);
    let mut taken_back = 0;
    loop {
        let answers = app.store().run(ops).await?;
        let Some(Answer::Touched { count, more }) = answers.last() else {
            break;
        };
        taken_back += count;
        if !more {
            break;
        }
        ops = Arc::from([take_back()]);
    }
    Ok(axum::Json(TakenBack { taken_back }))
}
