//! Strict parsing of requests: what is not understood is refused with an error that names it.

use std::error::Error;

use axum::body::{Bytes, HttpBody};
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::body::Slow;
use super::{Admission, App, Problem, unfit};
use abide::client::Address;
use abide::model::Target;

/// A JSON body. An empty body is read as `{}`.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let bytes = raw(request, app).await?;
        if bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        is_json?;
        parse(&bytes).map(Self)
    }
}

/// Refuses a body whose content type is not JSON. Pages of other sites can make a browser send other types without a
/// preflight request.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json") {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        format!(
            "unsupported content type {kind:?}: send JSON, with content-type: application/json"
        ),
    ))
}

/// Reads the body unchanged. Then the request takes its slot among the concurrent requests.
pub async fn raw(request: Request, app: &App) -> Result<Bytes, Problem> {
    let (body, ticket) = received(request, app.settings().body_bytes, "body_bytes").await?;
    if let Some(ticket) = ticket {
        ticket.take_slot()?;
    }
    Ok(body)
}

/// Reads the body unchanged, if it is not larger than `most` and there is room for it. Also returns the ticket with
/// which the request takes its slot.
pub async fn received(
    request: Request,
    most: usize,
    limit: &'static str,
) -> Result<(Bytes, Option<Admission>), Problem> {
    let ticket = request.extensions().get::<Admission>().cloned();
    let mut body = request.into_body();
    // The value of `content-length`, if given.
    let size = body.size_hint().exact();
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(size, most, limit));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unread(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > most {
            return Err(too_large(size, most, limit));
        }
        if let Some(ticket) = &ticket {
            ticket.take_bytes(data.len())?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), ticket))
}

/// The problem for a body that did not arrive completely.
fn unread(error: &axum::Error) -> Problem {
    if is(error, |cause| cause.is::<Slow>()) {
        return Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "slow_body",
            "the body did not arrive within `request_timeout_ms`: send it again, faster or in parts",
        )
        .with("limit", "request_timeout_ms");
    }
    Problem::bad_request("the request body ended early: send it again")
}

fn too_large(size: Option<u64>, most: usize, limit: &str) -> Problem {
    let body = match size {
        Some(size) => format!("a body of {size} bytes"),
        None => "a body of unknown length".to_owned(),
    };
    let detail = format!(
        "{body} is over the limit `{limit}` of {most}: make it smaller, or raise that limit of the server"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
        .over(limit, most)
        .met(size)
}

/// `true` if `such` holds for an error or one of its causes.
fn is(error: &(dyn Error + 'static), such: impl Fn(&(dyn Error + 'static)) -> bool) -> bool {
    such(error) || error.source().is_some_and(|cause| is(cause, such))
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = || serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    if first.is_some_and(|first| *first != b'{') && is_json() {
        // serde would read a list as the fields of an object in their order.
        return Err(Problem::unprocessable(
            "invalid request body: send a JSON object, like {}",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| match is_json() {
        true => Problem::unprocessable(format!(
            "invalid request body: {}",
            unfit::why::<T>(bytes, &error)
        )),
        false => Problem::bad_request(format!("the request body is not JSON: {error}")),
    })
}

/// The query parameters. An unknown or repeated parameter is refused.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        axum::extract::Query::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(params)| Self(params))
            .map_err(|rejection| {
                type Pairs = axum::extract::Query<Vec<(String, String)>>;
                let pairs = Pairs::try_from_uri(&parts.uri).ok();
                let problem = pairs.and_then(|pairs| unfit::query::<T>(&pairs));
                let problem = problem.unwrap_or_else(|| rejection.body_text());
                Problem::bad_request(format!("invalid query: {problem}"))
            })
    }
}

/// The path parameters: whole segments, percent-decoded.
pub struct PathParams<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Path::<T>::from_request_parts(parts, state)
            .await
            .map(|Path(params)| Self(params))
            .map_err(|rejection| {
                Problem::bad_request(format!("invalid path: {}", in_path(rejection)))
            })
    }
}

/// Describes the problem with a path for its author.
fn in_path(rejection: PathRejection) -> String {
    let text = rejection.body_text();
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return text;
    };
    let number = |value: &str| {
        format!(
            "{} is not a whole number, or is too large",
            unfit::quoted(value)
        )
    };
    match failed.into_kind() {
        ErrorKind::ParseErrorAtKey { key, value, .. } => format!("`{key}`: {}", number(&value)),
        ErrorKind::ParseErrorAtIndex { value, .. } | ErrorKind::ParseError { value, .. } => {
            number(&value)
        }
        ErrorKind::InvalidUtf8InPathParam { key } => {
            format!("`{key}` is not UTF-8: percent-encode the bytes of its UTF-8")
        }
        _ => text,
    }
}

/// Parses the instance in a path: an id if it consists of digits only, otherwise a key.
pub fn target(text: &str) -> Result<Target, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && text.parse::<i64>().is_err() {
        // It has the form of an id, but no id is that large.
        let detail = format!("no instance with the id {text}: no id is that large");
        return Err(
            Problem::new(StatusCode::NOT_FOUND, "no_target", detail).with("outcome", "no_target")
        );
    }
    Ok(text.target()?)
}
