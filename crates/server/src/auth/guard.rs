//! Authorization of requests: lets a request pass, or answers what it lacks.

use std::net::IpAddr;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Access, Role};
use crate::http::{Admission, App, Caller, Problem};

/// Lets a request pass if its token has the role that the route needs.
pub async fn guard(
    State((app, needed)): State<(App, Role)>,
    mut request: Request,
    next: Next,
) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let admitted = match uri.path() {
        "/metrics" => admitted_in_time(&app, uri, headers).await,
        _ => admitted(&app, uri, headers).await,
    };
    match admitted {
        Ok((role, caller)) => match allowed(role, needed, request.method()) {
            Ok(()) => {
                if let Some(ticket) = request.extensions().get::<Admission>() {
                    ticket.came_by(&caller, role);
                }
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(role);
                match take_slot(&request) {
                    Ok(()) => next.run(request).await,
                    Err(full) => full.into_response(),
                }
            }
            Err(problem) => problem.into_response(),
        },
        Err(refused) => refused,
    }
}

/// Takes a slot for a request without a body. A request with a body takes it when the body is complete.
fn take_slot(request: &Request) -> Result<(), Problem> {
    match request.extensions().get::<Admission>() {
        Some(ticket) if request.body().is_end_stream() => ticket.take_slot(),
        _ => Ok(()),
    }
}

/// Returns the role and the caller of a request, or the response that refuses it.
pub async fn admitted(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Role, Caller), Response> {
    let access = app.tokens().access(bearer(headers)).await;
    entered(access, uri, headers)
}

/// Like [`admitted`], for routes that must be answered even if the store is unavailable: uses the tokens as they were
/// last read.
pub async fn admitted_in_time(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Role, Caller), Response> {
    let access = app.tokens().access_within(bearer(headers), PATIENCE).await;
    entered(access, uri, headers)
}

/// How long to wait for the tokens on routes that must be answered in time.
const PATIENCE: Duration = Duration::from_millis(500);

fn entered(
    access: Result<Access, abide::Error>,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Role, Caller), Response> {
    if let Ok(Access::Open) = access
        && let Some(header) = proxied(headers)
    {
        return Err(from_proxy(header));
    }
    match access {
        Ok(Access::Open) if !is_for_loopback(uri, headers) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "misdirected_request",
            "this server requires no token, so it answers only to the names of its own machine: use localhost or \
             127.0.0.1, or create a token with `abide token create`, and it answers to every name",
        )
        .into_response()),
        Ok(Access::Open) if is_foreign(headers) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "this server requires no token, so it refuses requests from pages of other sites: create a token with `abide token create`",
        )
        .into_response()),
        Ok(Access::Open) => Ok((Role::Operate, Caller(None))),
        Ok(Access::As(name, role)) => Ok((role, Caller(Some(name)))),
        Ok(Access::Missing) => Err(unauthorized(
            "missing token: send it as `authorization: Bearer …`; `abide token create` makes one",
        )),
        Ok(Access::Unknown) => Err(unauthorized(
            "unknown token: it may have been revoked; `abide token create` makes one",
        )),
        Err(error) => Err(Problem::from(error).into_response()),
    }
}

/// Returns a problem if the role does not allow the request.
pub fn allowed(role: Role, needed: Role, method: &Method) -> Result<(), Problem> {
    if role.may(needed, method) {
        return Ok(());
    }
    let detail = format!(
        "this token has the role {}, and the request needs {}: use a token made by `abide token create --role {}`",
        role.name(),
        needed.name(),
        needed.name()
    );
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("role", needed.name()))
}

/// Returns the first header that shows that a request came through a proxy. Without this check, all clients of the
/// proxy, wherever they are, would count as local.
pub fn proxied(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        let name = name.as_str();
        matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
    })
}

/// The response to a request that came through a proxy, from a server that requires no token.
pub fn from_proxy(header: &HeaderName) -> Response {
    let detail = format!(
        "this request came through a proxy (it has the header `{header}`), and this server requires no token, so everyone who \
         reaches the proxy could do anything here; create a token with `abide token create`, and send it as `authorization: Bearer …`"
    );
    Problem::new(StatusCode::FORBIDDEN, "proxied", detail).into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// `true` if the request names this machine by a host name that cannot be given to another. Without this check, a page
/// of another site whose name resolves to loopback (DNS rebinding) would have the same origin, and could read every
/// response.
fn is_for_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    // HTTP/2 has the host in the URI, HTTP/1.1 in the header. HTTP/1.0, which no browser uses, may have none.
    let in_headers = headers.get_all(header::HOST).iter().map(|host| {
        let authority = host.to_str().ok()?.parse::<Authority>().ok()?;
        Some(authority.host().to_owned())
    });
    let mut named = in_headers.chain(uri.host().map(|host| Some(host.to_owned())));
    named.all(|host| host.is_some_and(|host| is_loopback(&host)))
}

/// `true` if a browser sends the request for a page that is not from this machine. Such a page can reach loopback too.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().ok().and_then(|text| text.parse().ok());
    let host = origin.as_ref().and_then(Uri::host);
    !host.is_some_and(is_loopback)
}

/// `true` if this is a name or an address of this machine. `localhost` and its subdomains always resolve to loopback
/// (RFC 6761).
fn is_loopback(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let number = host.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost"
        || name.ends_with(".localhost")
        || number.is_ok_and(|number| number.to_canonical().is_loopback())
}

fn unauthorized(detail: &str) -> Response {
    let mut response =
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail).into_response();
    let challenge = HeaderValue::from_static("Bearer realm=\"abide\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}
