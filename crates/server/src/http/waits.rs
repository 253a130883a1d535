//! Lists open waits.

use abide::InstanceId;
use abide::client::{OpenWait, WaitsFilter};
use abide::model::{Condition, Key, Name, Target, WaitId, WaitKind};
use abide::time::Timestamp;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{Listed, asked};
use super::instances::found;
use super::{App, Params, Problem};

/// Routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which waits to list: all that meet every condition given.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitsQuery {
    /// Only waits of this kind.
    kind: Option<AwaitedKind>,
    /// Only waits for this signal, for events of this type, or for the condition with this key.
    name: Option<Name>,
    /// Only waits of this instance: an id or a key.
    #[param(value_type = Option<Target>)]
    instance: Option<String>,
    /// Only waits of instances whose key begins with this text.
    key_prefix: Option<String>,
    /// The maximum number of entries; the waits of one instance are all on one page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A kind of wait that has a name. Timers and children have none: `/v1/instances?wait_kind=` lists the instances that wait for those.
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

/// An open wait of an instance.
#[derive(Serialize, ToSchema)]
#[schema(as = OpenWait)]
pub struct OpenWaitView {
    /// The instance that waits.
    #[schema(value_type = i64)]
    instance_id: InstanceId,
    /// Its key.
    key: Option<Key>,
    /// The kind of the wait.
    kind: WaitKind,
    /// The signal, the type of the event, or the key of the condition.
    name: String,
    /// The conditions that the event must meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<Condition>>,
    /// The wait's id.
    #[schema(value_type = Option<String>)]
    wait_id: Option<WaitId>,
    /// The operation of a workflow that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<u32>,
    /// The time since when it is open.
    since: Option<Timestamp>,
    /// Its deadline.
    deadline: Option<Timestamp>,
}

impl From<OpenWait> for OpenWaitView {
    fn from(wait: OpenWait) -> Self {
        Self {
            instance_id: wait.instance,
            key: wait.key,
            kind: wait.kind,
            name: wait.name,
            conditions: (wait.kind == WaitKind::Event).then_some(wait.conditions),
            wait_id: wait.wait_id,
            operation: wait.operation,
            since: wait.since,
            deadline: wait.deadline,
        }
    }
}

/// List the open waits of instances: for signals, events and conditions; newest instances first.
#[utoipa::path(get, path = "/v1/waits", operation_id = "list_waits", tag = "instances", params(WaitsQuery), responses(
    (status = 200, description = "A page of waits.", body = Listed<OpenWaitView>),
))]
pub async fn list(
    State(app): State<App>,
    Params(query): Params<WaitsQuery>,
) -> Result<axum::Json<Listed<OpenWaitView>>, Problem> {
    let (limit, before) = asked("waits", query.limit, query.cursor.as_deref())?;
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
    Ok(Listed::page("waits", page, OpenWaitView::from))
}
