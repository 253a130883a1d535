//! The history of an instance.

use abide::history::{Entry, HistoryEvent};
use abide::model::{Json, Target};
use abide::time::Timestamp;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, asked};
use super::instances::{PageQuery, found};
use super::{App, Params, PathParams, Problem};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(history))
}

/// One event of an instance's history.
#[derive(Serialize, ToSchema)]
#[schema(as = HistoryEvent)]
pub struct EntryView {
    /// Its place: 1, 2, 3 …
    pub seq: u32,
    /// The kind of event: `started`, `step_completed`, `wait_opened` …
    pub kind: &'static str,
    /// When it was committed.
    pub at: Timestamp,
    /// Its details; null if it has none.
    pub data: Json,
}

impl From<&Entry> for EntryView {
    fn from(entry: &Entry) -> Self {
        Self {
            seq: entry.seq,
            kind: entry.what.kind(),
            at: entry.at,
            data: data(&entry.what),
        }
    }
}

/// The details of an event, without its name.
fn data(what: &HistoryEvent) -> Json {
    #[derive(Deserialize)]
    struct Tagged {
        #[serde(default)]
        data: Json,
    }
    let tagged = Json::of(what).and_then(|json| json.to::<Tagged>());
    tagged.map(|tagged| tagged.data).unwrap_or_default()
}

/// List the history events of an instance, oldest first. Empty if its machine keeps no history.
#[utoipa::path(get, path = "/v1/instances/{target}/history", operation_id = "list_history", tag = "instances",
    params(("target" = Target, Path, description = "An id or a key."), PageQuery), responses(
    (status = 200, description = "A page of events.", body = Listed<EntryView>),
))]
pub async fn history(
    State(app): State<App>,
    PathParams(text): PathParams<String>,
    Params(query): Params<PageQuery>,
) -> Result<axum::Json<Listed<EntryView>>, Problem> {
    let (limit, after) = asked("history", query.limit, query.cursor.as_deref())?;
    let id = found(&app, &text).await?.id;
    let page = app
        .abide()
        .history_page(id, after.unwrap_or(0), limit)
        .await?;
    Ok(Listed::page("history", page, |entry| {
        EntryView::from(&entry)
    }))
}
