//! Problems: the error responses, as `application/problem+json`.

use abide::Error;
use abide_kernel::wire;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A problem, in the form of RFC 9457. A refusal also has the fields of the ordinary response.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// A stable name of the kind of problem, as a relative URI: `/problems/<word>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The problem, what was expected, and what to do next.
    pub detail: String,
    /// `outcome`, `reason`, `validation_errors`, `current_id`, the fields of [`OverLimit`], and the fields of the ordinary
    /// answer, where they apply.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Seconds after which a caller should retry if the server is full or the database is unavailable.
const RETRY_AFTER_S: &str = "1";
/// The kind of problem for an unknown outcome.
const UNKNOWN: &str = "unknown";

impl Problem {
    /// Makes a problem of the kind `name`.
    pub fn new(status: StatusCode, name: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{}{name}", wire::PROBLEMS),
            title: name.replace(['_', '-'], " "),
            status: status.as_u16(),
            detail: detail.into(),
            more: Map::new(),
        }
    }

    /// The request cannot be parsed.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// The request can be parsed, but cannot be carried out.
    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", detail)
    }

    /// The resource does not exist.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// It is unknown whether the request was carried out. The response does not ask the caller to retry: only the
    /// caller knows whether that is safe.
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN, detail)
    }

    /// The server is full, or its database is unavailable: nothing was written. No other kind of problem means that.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, wire::UNAVAILABLE, detail)
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    /// Adds the name of the limit that was exceeded, and its value.
    #[must_use]
    pub fn over(self, limit: &str, most: impl Serialize) -> Self {
        self.with("limit", limit).with("most", most)
    }

    /// Adds the value that exceeded the limit, if it is known.
    #[must_use]
    pub fn met(self, met: Option<impl Serialize>) -> Self {
        self.with_some("met", met)
    }

    /// Adds a field, if it has a value.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

/// The limit that was exceeded, when that is why something was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverLimit {
    /// The name of the limit that was exceeded, as in the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The value of the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<usize>,
    /// The size or the number that exceeds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<usize>,
    /// The type of the events that have too many waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
}

impl From<&abide::model::Refusal> for OverLimit {
    fn from(refusal: &abide::model::Refusal) -> Self {
        let event_type = match refusal {
            abide::model::Refusal::TooManyWaiters { event_type, .. } => {
                Some(event_type.to_string())
            }
            _ => None,
        };
        refusal.exceeded().map_or_else(Self::default, |over| Self {
            limit: Some(over.limit.into_owned()),
            most: Some(over.most),
            met: Some(over.met),
            event_type,
        })
    }
}

/// The part of an entry's result that says why the entry was refused; empty if it was not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Refused {
    /// Why it was refused; nothing of it was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A stable code for the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The limit that was exceeded, when that is why.
    #[serde(flatten)]
    pub over: OverLimit,
}

impl From<&abide::model::Refusal> for Refused {
    fn from(refusal: &abide::model::Refusal) -> Self {
        Self {
            error: Some(refusal.to_string()),
            reason: Some(refusal.reason().to_owned()),
            over: refusal.into(),
        }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let reason = problem.more.get("reason").and_then(Value::as_str);
        Self {
            reason: Some(reason.unwrap_or("unprocessable").to_owned()),
            error: Some(problem.detail),
            over: serde_json::from_value(Value::Object(problem.more)).unwrap_or_default(),
        }
    }
}

/// Marks the response to a request for which the store's disk was full.
#[derive(Clone, Copy, Debug)]
pub struct DiskFull;

/// The error codes and texts for a full disk: of PostgreSQL, whatever the language of its messages, and of SQLite.
const NO_ROOM: [&str; 2] = ["SQLSTATE 53100", "disk is full"];

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        if let Some(id) = super::request_id() {
            self.more.insert("request_id".to_owned(), Value::String(id));
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        // Requests that are answered with `retry-after` are safe to repeat: nothing was written, or the key ensures it.
        let name = self.kind.strip_prefix(wire::PROBLEMS).unwrap_or_default();
        if [wire::UNAVAILABLE, "request_in_progress"].contains(&name) {
            let seconds = HeaderValue::from_static(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE
            && NO_ROOM.iter().any(|no| self.detail.contains(no))
        {
            response.extensions_mut().insert(DiskFull);
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
                tracing::error!(%error, "a request failed with an error of the store");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "broken",
                    error.to_string(),
                )
            }
        }
    }
}

impl From<abide::model::Refusal> for Problem {
    fn from(refusal: abide::model::Refusal) -> Self {
        refused(&refusal)
    }
}

impl From<abide_kernel::Error> for Problem {
    fn from(error: abide_kernel::Error) -> Self {
        Error::from(error).into()
    }
}

fn refused(refusal: &abide::model::Refusal) -> Problem {
    let status = match refusal {
        abide::model::Refusal::LimitExceeded { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        abide::model::Refusal::TooManyWaiters { .. } => StatusCode::CONFLICT,
        abide::model::Refusal::KeyTaken { .. }
        | abide::model::Refusal::RequestReused { .. }
        | abide::model::Refusal::RequestRunning { .. }
        | abide::model::Refusal::AnswerNotKept { .. } => StatusCode::CONFLICT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let problem = Problem::new(status, refusal.reason(), refusal.to_string())
        .with("reason", refusal.reason());
    match refusal {
        abide::model::Refusal::KeyTaken { holder, .. } => problem.with("id", holder),
        _ => match OverLimit::from(refusal) {
            OverLimit {
                limit: Some(limit),
                most,
                met,
                event_type,
            } => problem
                .over(&limit, most)
                .met(met)
                .with_some("event_type", event_type),
            _ => problem,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(problem: &Problem, fields: &[&str]) -> Value {
        let of = |field: &&str| problem.more.get(*field).cloned().unwrap_or_default();
        fields.iter().map(of).collect()
    }

    #[test]
    fn a_limit_is_reported_with_both_numbers_whatever_exceeded_it() {
        // rule 16.3
        let fields = ["reason", "limit", "most", "met", "event_type"];
        let problem = refused(&abide::model::Refusal::LimitExceeded {
            limit: "batch_entries".into(),
            most: 10,
            met: 11,
        });
        let shown = values(&problem, &fields);
        assert_eq!(
            shown,
            json!(["limit_exceeded", "batch_entries", 10, 11, null])
        );
        assert_eq!(problem.status, 413);
        let problem = refused(&abide::model::Refusal::TooManyWaiters {
            event_type: abide::model::Name::new("order").unwrap(),
            most: 3,
            met: 4,
        });
        let shown = values(&problem, &fields);
        assert_eq!(
            shown,
            json!(["limit_exceeded", "waiters_per_type", 3, 4, "order"])
        );
        assert_eq!(problem.status, 409);
        let entry = Refused::from(problem);
        assert_eq!((entry.over.most, entry.over.met), (Some(3), Some(4)));
        let other = refused(&abide::model::Refusal::BadScope);
        assert_eq!(
            values(&other, &["limit", "most", "met"]),
            json!([null, null, null])
        );
        assert_eq!(Refused::from(other).over, OverLimit::default());
    }
}
