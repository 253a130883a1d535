//! Server-sent events: the history of one instance, or the changes on the whole server.

use abide::model::Target;
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use abide::history::HistoryEvent;
use abide::{InstanceId, Status};
use abide_kernel::Listener;
use abide_kernel::model::AT_ONCE;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::feed::{FeedItem, KINDS, Listening};
use super::history::EntryView;
use super::instances::found;
use super::{App, LongPoll, Params, Problem};

/// The routes that read.
pub fn read() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(stream))
}

/// The options of a stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// The instance whose history to stream: an id or a key. Left out: what changes on the whole server.
    #[param(value_type = Option<Target>)]
    instance: Option<String>,
    /// The kinds of events to send, with commas between them; all unless given. One that does not exist is refused.
    #[param(pattern = r"^[a-z_]+(,[a-z_]+)*$")]
    types: Option<String>,
    /// The id of the last event that was received; the header `Last-Event-ID` takes precedence.
    last_event_id: Option<String>,
}

/// The last event of a stream.
const END: &str = "end";
/// How often a comment is sent if there is nothing else to send.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Stream changes, as server-sent events.
///
/// With `instance`: its history from the beginning, or from after `Last-Event-ID`, then what happens to it: `id` is the
/// place in the history, `event` the kind, `data` the event as JSON. An `end` event follows when it has ended and all was
/// sent. Without: what changes on the whole server, `ready {queue}`, `ended {id}`, `answered {update_id}`, `cancelled {id}`,
/// `received {id}`, `due {due_at}`; and `reset` when something was missed, and everything is to be looked at again.
#[utoipa::path(get, path = "/v1/stream", operation_id = "stream", tag = "stream",
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was received.")),
    responses((status = 200, description = "Events, as they happen.", body = String, content_type = "text/event-stream")))]
pub async fn stream(
    State(app): State<App>,
    Params(query): Params<StreamQuery>,
    headers: HeaderMap,
    slot: LongPoll,
) -> Result<axum::response::Response, Problem> {
    let known = match query.instance {
        Some(_) => [&HistoryEvent::KINDS[..], &[END]].concat(),
        None => KINDS.to_vec(),
    };
    let types = types(query.types.as_deref(), &known)?;
    let last = match headers.get("last-event-id") {
        None => query.last_event_id,
        Some(id) => match id.to_str() {
            Ok("") => None,
            Ok(id) => Some(id.to_owned()),
            Err(_) => {
                return Err(Problem::bad_request(
                    "invalid Last-Event-ID: it is not an id that this server has sent",
                ));
            }
        },
    };
    let Some(text) = query.instance else {
        let listening = app.feed().listen(app.store(), last.as_deref());
        return Ok(sent(whole(app.clone(), listening, types, slot)));
    };
    let after = match last.as_deref() {
        None => 0,
        Some(last) => last.parse().map_err(|_| {
            Problem::bad_request(format!(
                "Last-Event-ID is {last:?}: the ids of an instance's events are whole numbers"
            ))
        })?,
    };
    // The subscription begins before the first read; otherwise changes in between could be missed.
    let listener = app.store().listen();
    let id = found(&app, &text).await?.id;
    Ok(sent(of_instance(InstanceStream {
        app,
        id,
        listener,
        after,
        types,
        ready: VecDeque::new(),
        ended: false,
        read_at: None,
        slot,
    })))
}

fn sent<S: Stream<Item = Result<Event, Infallible>> + Send + 'static>(
    events: S,
) -> axum::response::Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

/// The requested kinds; all if none were requested.
struct Types(Option<BTreeSet<String>>);

impl Types {
    fn has(&self, kind: &str) -> bool {
        self.0.as_ref().is_none_or(|types| types.contains(kind))
    }
}

/// Parses the requested kinds, which must be among the known ones.
fn types(types: Option<&str>, known: &[&str]) -> Result<Types, Problem> {
    let Some(types) = types else {
        return Ok(Types(None));
    };
    let each: BTreeSet<String> = types.split(',').map(str::to_owned).collect();
    match each.iter().find(|kind| !known.contains(&kind.as_str())) {
        None => Ok(Types(Some(each))),
        Some(unknown) => Err(Problem::bad_request(format!(
            "invalid `types`: {unknown:?} is not a kind of event; give one or more of {}, separated by commas",
            known.join(", ")
        ))),
    }
}

/// Streams the changes on the whole server.
fn whole(
    app: App,
    listening: Listening,
    types: Types,
    slot: LongPoll,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let ready = VecDeque::new();
    stream::unfold(
        (app, listening, types, slot, ready),
        |mut state| async move {
            loop {
                let (app, listening, types, slot, ready) = &mut state;
                if let Some(event) = ready.pop_front() {
                    return Some((Ok(event), state));
                }
                let item = tokio::select! {
                    item = listening.next() => item?,
                    () = app.draining().cancelled() => return None,
                    () = slot.gone() => return None,
                };
                match item {
                    FeedItem::Reset => ready.push_back(
                        Event::default()
                            .event("reset")
                            .id(listening.id(None))
                            .data("null"),
                    ),
                    FeedItem::Changes(changes) => {
                        for change in changes {
                            // A reset is sent whichever kinds were requested.
                            if change.kind == "reset" || types.has(change.kind) {
                                let id = listening.id(Some(change.number));
                                ready.push_back(
                                    Event::default()
                                        .event(change.kind)
                                        .id(id)
                                        .data(change.data.to_string()),
                                );
                            }
                        }
                    }
                }
            }
        },
    )
}

/// How often to read if no notification arrives.
const FLOOR: Duration = Duration::from_secs(1);
/// Minimum time between two reads, to gather notifications.
const GATHER: Duration = Duration::from_millis(50);

/// The state of the stream of one instance.
struct InstanceStream {
    app: App,
    id: InstanceId,
    listener: Listener,
    /// The sequence number of the last history event that was read.
    after: u32,
    types: Types,
    ready: VecDeque<Event>,
    ended: bool,
    read_at: Option<Instant>,
    slot: LongPoll,
}

fn of_instance(state: InstanceStream) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold(state, |mut state| async move {
        loop {
            if let Some(event) = state.ready.pop_front() {
                return Some((Ok(event), state));
            }
            if state.ended || !state.wait().await {
                return None;
            }
            if let Err(problem) = state.refresh().await {
                // The client reconnects, and continues after the last event that it got.
                tracing::warn!(
                    problem = problem.detail,
                    "a stream ends because the store cannot be read"
                );
                return None;
            }
        }
    })
}

impl InstanceStream {
    /// Waits until there may be something new. Returns `false` if the server shuts down or the client is gone.
    async fn wait(&mut self) -> bool {
        let Some(read_at) = self.read_at else {
            return !self.app.draining().is_cancelled();
        };
        let Self {
            app,
            listener,
            slot,
            ..
        } = self;
        let notified = async {
            if listener.next().await.is_none() {
                // The store is closed: the next read reports that.
                tokio::time::sleep_until(read_at + FLOOR).await;
            }
            tokio::time::sleep_until(read_at + GATHER).await;
        };
        tokio::select! {
            () = notified => true,
            () = tokio::time::sleep_until(read_at + FLOOR) => true,
            () = app.draining().cancelled() => false,
            () = slot.gone() => false,
        }
    }

    /// Reads the new history events.
    async fn refresh(&mut self) -> Result<(), Problem> {
        self.read_at = Some(Instant::now());
        // The instance is read before its history: if it has ended, its history is complete.
        let instance = self.app.abide().get(self.id).await?;
        let page = self
            .app
            .abide()
            .history_page(self.id, self.after, AT_ONCE)
            .await?;
        for entry in &page.items {
            self.after = entry.seq;
            if self.types.has(entry.what.kind()) {
                let view = EntryView::from(entry);
                let data = serde_json::to_string(&view).unwrap_or_default();
                self.ready.push_back(
                    Event::default()
                        .event(view.kind)
                        .id(entry.seq.to_string())
                        .data(data),
                );
            }
        }
        if page.next.is_some() {
            // There is more to read at once.
            self.read_at = None;
            return Ok(());
        }
        let status = instance.map(|instance| instance.status);
        if status.is_none_or(Status::is_terminal) {
            self.ended = true;
            let data = json!({ "id": self.id, "status": status.map(Status::name) });
            self.ready
                .push_back(Event::default().event(END).data(data.to_string()));
        }
        Ok(())
    }
}
