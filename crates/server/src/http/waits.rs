//! Who waits for what.

use abide::{InstanceId, Key, Name, OpenWait, Timestamp, WaitId, WaitKind, WaitsFilter};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{
    ConditionView, KeyText, Listed, NameText, TargetText, WaitKindWord, decode, encode, limited,
};
use super::instances::found;
use super::{App, Params, Problem};

/// What looks.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which waits to list: all that meet every condition given.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitsQuery {
    /// Those for that kind of thing.
    kind: Option<AwaitedKind>,
    /// Those for that signal, for events of that type, or for the condition of that key.
    #[param(value_type = Option<NameText>)]
    name: Option<Name>,
    /// Those of that instance: an id or a key.
    #[param(value_type = Option<TargetText>)]
    instance: Option<String>,
    /// Those of instances whose key begins so.
    key_prefix: Option<String>,
    /// How many at most; an instance's waits are all on one page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The next_cursor of the page before.
    cursor: Option<String>,
}

/// What is waited for by name. Timers and children have no names: `/v1/instances?wait_kind=` lists who waits for those.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedKind {
    /// A signal.
    Signal,
    /// An event.
    Event,
    /// A condition.
    Condition,
}

/// One thing that an instance waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = OpenWait)]
pub struct OpenWaitView {
    /// Who waits.
    #[schema(value_type = i64)]
    instance_id: InstanceId,
    /// Its key.
    #[schema(value_type = Option<KeyText>)]
    key: Option<Key>,
    /// For what kind of thing.
    #[schema(value_type = WaitKindWord)]
    kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition.
    name: String,
    /// What the event must say.
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<ConditionView>>,
    /// The wait's id.
    #[schema(value_type = Option<String>)]
    wait_id: Option<WaitId>,
    /// The operation of a workflow that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<u32>,
    /// Since when.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Until when.
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline: Option<Timestamp>,
}

impl From<OpenWait> for OpenWaitView {
    fn from(wait: OpenWait) -> Self {
        let conditions = wait
            .conditions
            .into_iter()
            .map(ConditionView::from)
            .collect();
        Self {
            instance_id: wait.instance,
            key: wait.key,
            kind: wait.kind,
            name: wait.name,
            conditions: (wait.kind == WaitKind::Event).then_some(conditions),
            wait_id: wait.wait_id,
            operation: wait.operation,
            since: wait.since,
            deadline: wait.deadline,
        }
    }
}

/// List what instances wait for: signals, events and conditions; newest instances first.
#[utoipa::path(get, path = "/v1/waits", operation_id = "list_waits", tag = "instances", params(WaitsQuery), responses(
    (status = 200, description = "A page of waits.", body = Listed<OpenWaitView>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<WaitsQuery>,
) -> Result<axum::Json<Listed<OpenWaitView>>, Problem> {
    let limit = limited(query.limit)?;
    let before = decode("waits", query.cursor.as_deref())?;
    let instance = match &query.instance {
        None => None,
        Some(text) => Some(found(&app, text).await?.id),
    };
    let kind = query.kind.map(|kind| match kind {
        AwaitedKind::Signal => WaitKind::Signal,
        AwaitedKind::Event => WaitKind::Event,
        AwaitedKind::Condition => WaitKind::Condition,
    });
    let filter = WaitsFilter {
        kind,
        name: query.name.map(String::from),
        key_prefix: query.key_prefix,
        instance,
    };
    let page = app.abide().waits(&filter, before, limit).await?;
    Ok(axum::Json(Listed {
        items: page.items.into_iter().map(OpenWaitView::from).collect(),
        next_cursor: page.next.and_then(|next| encode("waits", &next)),
    }))
}
