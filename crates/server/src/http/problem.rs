//! What a caller is told when something went wrong: `application/problem+json`.

use abide::Error;
use abide_kernel::wire;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What went wrong, in the form of RFC 9457. A refusal has the fields of the ordinary answer beside these.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// A stable name of the kind of problem, as a relative URI: `/problems/<word>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong, what was expected, and what to do.
    pub detail: String,
    /// `outcome`, `reason`, `validation_errors`, `current_id`, `limit` (the name of the limit that was met) and `most` (what
    /// that allows), and the fields of the ordinary answer, where they apply.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How long a caller does well to wait when the server is full or the database is away.
const RETRY_AFTER_S: &str = "1";
/// The word for an outcome that is not known.
const UNKNOWN: &str = "unknown";

impl Problem {
    /// A problem: `word` names its kind.
    pub fn new(status: StatusCode, word: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{}{word}", wire::PROBLEMS),
            title: word.replace(['_', '-'], " "),
            status: status.as_u16(),
            detail: detail.into(),
            more: Map::new(),
        }
    }

    /// The request cannot be read.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The request can be read, and cannot be done.
    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", detail)
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// It is not known whether the request was carried out. Nothing asks the caller to send it again: it is for the caller to
    /// know whether that is safe.
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN, detail)
    }

    /// The server is full, or cannot reach its database: nothing was written. The only kind of problem that says so.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, wire::UNAVAILABLE, detail)
    }

    /// Says one thing more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    /// Says which limit was met, by its name, and what it allows.
    #[must_use]
    pub fn over(self, limit: &str, most: impl Serialize) -> Self {
        self.with("limit", limit).with("most", most)
    }

    /// Says one thing more, if there is one.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        if let Some(id) = super::request_id() {
            self.more.insert("request_id".to_owned(), Value::String(id));
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        // Whatever is sent with `retry-after` is safe to send again: nothing was written, or its key sees to it.
        let word = self.kind.strip_prefix(wire::PROBLEMS).unwrap_or_default();
        if [wire::UNAVAILABLE, "request_in_progress"].contains(&word) {
            let seconds = HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match &error {
            Error::Refused(refusal) => refused(refusal),
            Error::Unavailable(_) | Error::Closed => Self::unavailable(error.to_string()),
            Error::Unknown(_) => Self::unknown(error.to_string()),
            _ => {
                tracing::error!(%error, "a request met an error of the store");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "broken",
                    error.to_string(),
                )
            }
        }
    }
}

impl From<abide::Refusal> for Problem {
    fn from(refusal: abide::Refusal) -> Self {
        refused(&refusal)
    }
}

impl From<abide_kernel::Error> for Problem {
    fn from(error: abide_kernel::Error) -> Self {
        Error::from(error).into()
    }
}

fn refused(refusal: &abide::Refusal) -> Problem {
    let status = match refusal {
        abide::Refusal::LimitExceeded { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        abide::Refusal::TooManyWaiters { .. } => StatusCode::CONFLICT,
        abide::Refusal::KeyTaken { .. }
        | abide::Refusal::RequestReused { .. }
        | abide::Refusal::RequestRunning { .. }
        | abide::Refusal::AnswerNotKept { .. } => StatusCode::CONFLICT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let problem = Problem::new(status, refusal.reason(), refusal.to_string())
        .with("reason", refusal.reason());
    match refusal {
        abide::Refusal::LimitExceeded { limit, most, .. } => problem.over(limit, most),
        abide::Refusal::KeyTaken { holder, .. } => problem.with("id", holder),
        _ => problem,
    }
}
