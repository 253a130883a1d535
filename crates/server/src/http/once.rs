//! Writes that may arrive more than once: the idempotency key of a request, and the client that carries it out once
//! (rule 1.5).

use std::sync::{Arc, OnceLock};

use abide::Abide;
use abide::model::{Fingerprint, Json, Name, RequestId};
use abide_kernel::wire::{self, Reply, Request as WireRequest};
use abide_kernel::{Answer, Once, Op};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::extract::{is_json, parse};
use super::{App, Caller, Problem, raw};

/// The request header that contains the key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of a response that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The field of a body that may contain the key instead.
const FIELD: &str = "request_id";

/// The body of a write, and the client to carry it out with. If the request has a key, each call of that client is
/// carried out once. An empty body is read as `{}`.
pub struct Write<T> {
    /// The body.
    pub body: T,
    /// The client.
    pub abide: Abide,
}

impl<T: DeserializeOwned + 'static> FromRequest<App> for Write<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app, true).await
    }
}

/// Like [`Write`], for a body whose `request_id` has another meaning: only the header contains the key.
pub struct WriteByHeader<T>(pub Write<T>);

impl<T: DeserializeOwned + 'static> FromRequest<App> for WriteByHeader<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app, false).await.map(Self)
    }
}

async fn read<T: DeserializeOwned>(
    request: Request,
    app: &App,
    by_field: bool,
) -> Result<Write<T>, Problem> {
    let is_json = is_json(request.headers());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let caller = request.extensions().get::<Caller>().cloned();
    let slot = request.extensions().get::<Slot>().cloned();
    let by_header = key_of(request.headers())?;
    let mut bytes = raw(request, app).await?;
    if bytes.is_empty() {
        bytes = Bytes::from_static(b"{}");
    } else {
        is_json?;
    }
    let mut key = by_header;
    if by_field && let Some((field, rest)) = take_field(&bytes)? {
        if key.as_ref().is_some_and(|key| *key != field) {
            return Err(Problem::unprocessable(format!(
                "the header `{KEY}` and the field `{FIELD}` have different keys: give one of them"
            )));
        }
        (key, bytes) = (Some(field), rest);
    }
    let body = parse(&bytes)?;
    let Some(key) = key else {
        let abide = app.abide().clone();
        return Ok(Write { body, abide });
    };
    let caller = caller.unwrap_or_default().identity();
    let fingerprint = fingerprint(&method, &uri, &bytes);
    let abide = app.abide().once(RequestId::new(caller, key, fingerprint));
    if let Some(slot) = slot {
        let _ = slot.0.set(abide.clone());
    }
    Ok(Write { body, abide })
}

/// The key in a request's header: a text, with or without quotes.
pub fn key_of(headers: &HeaderMap) -> Result<Option<Name>, Problem> {
    let mut given = headers.get_all(&KEY).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    if given.next().is_some() {
        return Err(Problem::bad_request(format!(
            "the header `{KEY}` occurs more than once: send one key with a request"
        )));
    }
    let text = value
        .to_str()
        .map_err(|_| Problem::bad_request(format!("the header `{KEY}` is not plain ASCII text")))?;
    let text = text.trim();
    let quoted = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let text = quoted.unwrap_or(text);
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"')
    {
        return Err(Problem::bad_request(format!(
            "the header `{KEY}` is {text:?}: send 1 to 255 printable ASCII characters, without spaces and quotes"
        )));
    }
    let key = Name::new(text)
        .map_err(|refusal| Problem::bad_request(format!("invalid header `{KEY}`: {refusal}")))?;
    Ok(Some(key))
}

/// Takes the key out of a body. Returns the key and the body without it.
fn take_field(bytes: &Bytes) -> Result<Option<(Name, Bytes)>, Problem> {
    let quoted = format!("\"{FIELD}\"");
    let mentions = bytes
        .windows(quoted.len())
        .any(|at| at == quoted.as_bytes());
    if !mentions {
        return Ok(None);
    }
    // A body that is not an object, or has a field twice, is refused later, when it is parsed.
    let Ok(Fields(mut fields)) = serde_json::from_slice::<Fields>(bytes) else {
        return Ok(None);
    };
    let Some(at) = fields.iter().position(|(name, _)| name == FIELD) else {
        return Ok(None);
    };
    let (_, value) = fields.remove(at);
    let key: Option<String> = serde_json::from_str(value.get()).map_err(|_| {
        Problem::unprocessable(format!(
            "invalid request body: `{FIELD}` is {}: expected a text of 1 to 255 bytes",
            super::unfit::shown(value.get())
        ))
    })?;
    let rest = serde_json::to_vec(&Fields(fields))
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    match key {
        Some(key) => Ok(Some((Name::new(key)?, rest.into()))),
        None => Ok(None),
    }
}

/// The fields of an object, as they are written.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: serde::de::MapAccess<'de>>(
                self,
                mut map: M,
            ) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Visitor)
    }
}

impl serde::Serialize for Fields {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Identifies a request by its method, its path with the query, and its body, whatever the formatting of the JSON.
fn fingerprint(method: &Method, uri: &Uri, body: &[u8]) -> Fingerprint {
    let at = uri.path_and_query().map_or("", |at| at.as_str());
    let text = String::from_utf8_lossy(body).into_owned();
    let content = match Json::parse(text) {
        Ok(json) => json.canonical().into_bytes(),
        Err(_) => body.to_vec(),
    };
    Fingerprint::of([method.as_str().as_bytes(), at.as_bytes(), &content])
}

/// The slot in which the extractor of a request leaves the client that carries it out.
#[derive(Clone, Default)]
struct Slot(Arc<OnceLock<Abide>>);

/// Marks responses that were given before.
pub(super) async fn mark<F: Future<Output = Response>>(
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    if request.method() == Method::GET {
        return next(request).await;
    }
    let slot = Slot::default();
    request.extensions_mut().insert(slot.clone());
    let mut response = next(request).await;
    if slot.0.get().is_some_and(Abide::is_replayed) {
        mark_replayed(&mut response);
    }
    response
}

fn mark_replayed(response: &mut Response) {
    let yes = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, yes);
}

/// Answers a request of the protocol under `/rpc` that has a key in its header. Also returns `true` if the answer was
/// given before.
pub async fn answer_once(
    app: &App,
    caller: &Caller,
    key: Name,
    body: &[u8],
    ops: Arc<[Op]>,
) -> (Reply, bool) {
    let id = RequestId::new(caller.identity(), key, Fingerprint::of([body]));
    let ops: Arc<[Op]> = Arc::from([Op::Once(vec![Once { id, ops }])]);
    match wire::answer(&**app.store(), WireRequest::Run(ops)).await {
        Reply::Answers(answers) => match answers.into_iter().next() {
            Some(Answer::Once(each)) => match each.into_iter().next() {
                Some(Ok(one)) => (Reply::Answers(one.answers), one.replayed),
                Some(Err(refusal)) => (failed(refusal), false),
                None => (Reply::Answers(Vec::new()), false),
            },
            other => (Reply::Answers(other.into_iter().collect()), false),
        },
        reply => (reply, false),
    }
}

fn failed(refusal: abide::model::Refusal) -> Reply {
    Reply::Failed(abide_kernel::Error::Refused(refusal).into())
}

/// Adds the mark to the response of such a request.
pub fn marked(mut response: Response, replayed: bool) -> Response {
    if replayed {
        mark_replayed(&mut response);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(body: &str) -> Option<(String, String)> {
        let taken = take_field(&Bytes::from(body.to_owned())).unwrap();
        taken.map(|(key, rest)| {
            let rest = String::from_utf8(rest.to_vec()).unwrap();
            (key.to_string(), rest)
        })
    }

    #[test]
    fn the_field_is_taken_from_the_top_of_a_body_and_the_rest_is_as_it_was() {
        let found =
            taken(r#"{"machine": "m", "request_id": "r-1", "state": {"b": 1.0,  "a": "\u0000"}}"#);
        let rest = r#"{"machine":"m","state":{"b": 1.0,  "a": "\u0000"}}"#;
        assert_eq!(found, Some(("r-1".into(), rest.into())));
        for other in [
            r#"{"state": {"request_id": "r"}}"#,
            r#"{"request_id": null}"#,
            r#"["request_id"]"#,
            "\"request_id\"",
            "{}",
        ] {
            assert_eq!(taken(other), None, "{other}");
        }
        for bad in [r#"{"request_id": 7}"#, r#"{"request_id": ""}"#] {
            assert!(take_field(&Bytes::from(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_one_text_with_or_without_quotes() {
        let key = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            key_of(&headers)
                .map(|key| key.map(|key| key.to_string()))
                .map_err(|problem| problem.status)
        };
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&["abc"]), Ok(Some("abc".into())));
        assert_eq!(key(&["\"abc\""]), Ok(Some("abc".into())));
        for bad in [
            &["a", "b"][..],
            &[""],
            &["\"\""],
            &["é"],
            &[&"x".repeat(256)],
        ] {
            assert_eq!(key(bad), Err(400), "{bad:?}");
        }
    }

    #[test]
    fn a_fingerprint_covers_the_method_the_path_and_the_content() {
        let of = |method: Method, uri: &str, body: &str| {
            fingerprint(&method, &uri.parse().unwrap(), body.as_bytes())
        };
        let one = of(
            Method::POST,
            "/v1/events",
            r#"{"type":"a","payload":[1,2]}"#,
        );
        let same = of(
            Method::POST,
            "/v1/events",
            "{ \"payload\": [1, 2], \"type\": \"a\" }",
        );
        assert_eq!(one, same);
        assert_ne!(
            one,
            of(Method::PUT, "/v1/events", r#"{"type":"a","payload":[1,2]}"#)
        );
        assert_ne!(
            one,
            of(Method::POST, "/v1/event", r#"{"type":"a","payload":[1,2]}"#)
        );
        assert_ne!(
            one,
            of(
                Method::POST,
                "/v1/events",
                r#"{"type":"a","payload":[2,1]}"#
            )
        );
    }
}
