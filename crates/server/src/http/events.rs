//! Publishing events, and listing those that are kept.

use abide::client::event_of;
use abide::model::{Event, Name, Published, Refusal};
use abide::outbox::PublishRequest;
use abide::store::EventFilter;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, asked};
use super::{App, Params, Problem, Refused, Write, unfit};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Routes that publish.
pub fn send() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(publish))
        .routes(routes!(publish_all))
}

/// The result of publishing an event.
#[derive(Serialize, ToSchema)]
#[schema(as = Published)]
pub struct PublishedView {
    /// Its id.
    event_id: Name,
    /// The number of waits that it matched; the event is in the inboxes of their instances.
    matched: u32,
    /// `true` if it was published before; then this request changed nothing.
    duplicate: bool,
    /// `true` if instances wait for events of its type, and it matched none of these waits.
    unmatched: bool,
}

impl From<Published> for PublishedView {
    fn from(published: Published) -> Self {
        Self {
            event_id: published.event_id,
            matched: published.matched,
            duplicate: published.duplicate,
            unmatched: published.unmatched,
        }
    }
}

/// Publish an event. When this answers, the event is in the inbox of every instance whose wait it matches, and they are woken.
#[utoipa::path(post, path = "/v1/events", operation_id = "publish", tag = "events", request_body = PublishRequest, responses(
    (status = 200, description = "It was published, or had been before.", body = PublishedView),
))]
pub async fn publish(
    Write {
        body: request,
        abide,
    }: Write<PublishRequest>,
) -> Result<axum::Json<PublishedView>, Problem> {
    let mut publication = abide.publish(request.event_type.as_str(), &request.payload);
    if let Some(id) = request.event_id {
        publication = publication.event_id(id.as_str());
    }
    Ok(axum::Json(publication.await?.into()))
}

/// Events to publish.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishBatch {
    /// The events, each as it would be published alone.
    #[schema(value_type = Vec<PublishRequest>)]
    events: Vec<Box<RawValue>>,
}

/// The result of a batch of events.
#[derive(Serialize, ToSchema)]
pub struct PublishedBatch {
    /// The result of each entry, in order.
    results: Vec<PublishResult>,
}

/// The result of one event: all of `event_id`, `matched`, `duplicate` and `unmatched`, or `error`.
#[derive(Serialize, Default, ToSchema)]
pub struct PublishResult {
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<Name>,
    /// The number of waits that it matched; the event is in the inboxes of their instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<u32>,
    /// `true` if it was published before; then this request changed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// `true` if instances wait for events of its type, and it matched none of these waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmatched: Option<bool>,
    #[serde(flatten)]
    refused: Refused,
}

impl From<Refused> for PublishResult {
    fn from(refused: Refused) -> Self {
        Self {
            refused,
            ..Self::default()
        }
    }
}

impl From<Result<Published, Refusal>> for PublishResult {
    fn from(published: Result<Published, Refusal>) -> Self {
        match published {
            Ok(published) => Self {
                event_id: Some(published.event_id),
                matched: Some(published.matched),
                duplicate: Some(published.duplicate),
                unmatched: Some(published.unmatched),
                ..Self::default()
            },
            Err(refusal) => Refused::from(&refusal).into(),
        }
    }
}

/// Publish any number of events in one transaction. Each entry has its own result.
#[utoipa::path(post, path = "/v1/events/batch", operation_id = "publish_batch", tag = "events", request_body = PublishBatch, responses(
    (status = 200, description = "The result of each entry, in order.", body = PublishedBatch),
))]
pub async fn publish_all(
    State(app): State<App>,
    Write {
        body: request,
        abide,
    }: Write<PublishBatch>,
) -> Result<axum::Json<PublishedBatch>, Problem> {
    app.limits().check_batch(request.events.len())?;
    let mut results = Vec::with_capacity(request.events.len());
    let (mut indexes, mut events) = (Vec::new(), Vec::new());
    for entry in &request.events {
        match unfit::fit::<PublishRequest>(entry.get()) {
            Ok(request) => {
                let event = event_of(request.event_type.as_str(), &request.payload);
                indexes.push(results.len());
                events.push(match request.event_id {
                    Some(id) => event.event_id(id.as_str()),
                    None => event,
                });
                results.push(PublishResult::default());
            }
            Err(error) => {
                let problem = Problem::unprocessable(format!("invalid entry: {error}"));
                results.push(Refused::from(problem).into());
            }
        }
    }
    let published = match events.is_empty() {
        true => Vec::new(),
        false => abide.publish_all(events).await?,
    };
    for (index, published) in indexes.into_iter().zip(published) {
        if let Some(result) = results.get_mut(index) {
            *result = published.into();
        }
    }
    Ok(axum::Json(PublishedBatch { results }))
}

/// Which events to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events of this type.
    #[serde(rename = "type")]
    event_type: Option<Name>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the stored events, newest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "events", params(EventsQuery), responses(
    (status = 200, description = "A page of events.", body = Listed<Event>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<EventsQuery>,
) -> Result<axum::Json<Listed<Event>>, Problem> {
    let (limit, before) = asked("events", query.limit, query.cursor.as_deref())?;
    let filter = EventFilter {
        event_type: query.event_type,
    };
    let page = app.abide().events(&filter, before, limit).await?;
    Ok(Listed::page("events", page, |event| event))
}
