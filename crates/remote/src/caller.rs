//! One request and its response, and the meaning of failures in between.

use std::time::Duration;

use abide_core::model::Refusal;
use abide_kernel::wire::{self, Reply, Request};
use abide_kernel::{Error, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::address::Address;
use crate::options::{Options, TOKEN, TOKEN_FILE};
use crate::tls;

/// Time after which an idle connection is closed: less than the idle timeout of servers and proxies; otherwise a
/// request could be sent on a connection that is being closed.
const IDLE: Duration = Duration::from_secs(20);
/// Maximum size of a response.
const ANSWER_BYTES: usize = 1 << 30;
/// Maximum number of characters of an invalid response that an error shows.
const SHOWN: usize = 200;

/// Sends requests to a server.
pub(crate) struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Address,
    token: Option<HeaderValue>,
    timeout: Duration,
}

/// The consequence of losing the response to a sent request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// None: the request only reads.
    Harmless,
    /// The request may have been written.
    Unknown,
}

impl Lost {
    fn error(self, why: String) -> Error {
        match self {
            Self::Harmless => Error::Unavailable(why),
            Self::Unknown => Error::Unknown(why),
        }
    }

    /// The error for a response that does not come from an abide server.
    fn broken(self, why: String) -> Error {
        match self {
            Self::Harmless => Error::Broken(why),
            Self::Unknown => Error::Unknown(why),
        }
    }
}

impl Caller {
    pub fn new(address: Address, options: &Options) -> Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(options.connect_timeout));
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let config = match address.rpc.scheme_str() {
            Some("https") => tls::trusting(options.authorities.as_deref())?,
            _ => tls::trusting_none()?,
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            client,
            address,
            token: token(options)?,
            timeout: options.timeout,
        })
    }

    /// Creates a caller for the same server with connections of its own.
    pub fn another(&self, options: &Options) -> Result<Self> {
        Self::new(self.address.clone(), options)
    }

    /// The server's address, for errors and logs.
    pub fn server(&self) -> &str {
        &self.address.shown
    }

    /// Sends a request and waits for the response; a response that reports an error is returned as an error.
    pub async fn ask(&self, request: &Request) -> Result<Reply> {
        let lost = match request {
            Request::Run(_) => Lost::Unknown,
            _ => Lost::Harmless,
        };
        let body = serde_json::to_vec(request)
            .map_err(|error| Error::Broken(format!("a request cannot be written: {error}")))?;
        let exchange = async {
            let response = self
                .send(Method::POST, &self.address.rpc, body, lost)
                .await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES)
                .collect()
                .await;
            let body = body.map_err(|error| lost.error(self.broke(&*error)))?;
            read(status, &body.to_bytes()).map_err(|what| {
                let what = format!("{} {what}{EXPECTED}", self.address.rpc);
                // A proxy may have forwarded the request.
                lost.broken(what)
            })
        };
        let answer = tokio::time::timeout(self.timeout, exchange).await;
        match answer.unwrap_or_else(|_| Err(lost.error(self.late())))? {
            Reply::Failed(failure) => Err(failure.into()),
            reply => Ok(reply),
        }
    }

    /// Opens the stream of notifications.
    pub async fn notifications(&self) -> Result<Incoming> {
        let sent = self.send(
            Method::GET,
            &self.address.notifications,
            Vec::new(),
            Lost::Harmless,
        );
        let response = tokio::time::timeout(self.timeout, sent).await;
        let response = response.unwrap_or_else(|_| Err(Error::Unavailable(self.late())))?;
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let endpoint = &self.address.notifications;
            let what = format!(
                "{endpoint} answers with {kind:?} where text/event-stream is expected{EXPECTED}"
            );
            return Err(Error::Broken(what));
        }
        Ok(response.into_body())
    }

    /// Sends a request; returns the response if its status is 200.
    async fn send(
        &self,
        method: Method,
        uri: &Uri,
        body: Vec<u8>,
        lost: Lost,
    ) -> Result<Response<Incoming>> {
        let accepts = match method {
            Method::GET => "text/event-stream",
            _ => "application/json",
        };
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(uri.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accepts);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::Broken(format!("a request cannot be made: {error}")))?;
        let sent = self.client.request(request).await;
        let response = sent.map_err(|error| match error.is_connect() {
            true => Error::Unavailable(self.broke(&error)),
            false => lost.error(self.broke(&error)),
        })?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(self.refused(status, response, lost).await),
        }
    }

    /// The error for a response whose status is not 200.
    async fn refused(&self, status: StatusCode, response: Response<Incoming>, lost: Lost) -> Error {
        let server = self.server();
        let after = response.headers().get(RETRY_AFTER).cloned();
        let body = Limited::new(response.into_body(), 1 << 16).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let problem: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let detail = detail(problem.as_ref(), &body);
        let denied = |problem: String| Error::Refused(Refusal::Denied { problem });
        match status.as_u16() {
            401 => denied(match self.token {
                Some(_) => format!(
                    "{server} does not know the token (401: {detail}): put one that it knows into {TOKEN}, or into the options"
                ),
                None => format!(
                    "{server} asks for a token (401: {detail}): put it into {TOKEN}, or into the options"
                ),
            }),
            403 => denied(format!(
                "the token has not the role for that on {server} (403: {detail}): put one with the role that it takes \
                 (read, send, work or operate) into {TOKEN}"
            )),
            413 => denied(format!(
                "the request is too large for {server} (413: {detail}): send less at once, or raise that limit of the server"
            )),
            421 => denied(format!(
                "{server} does not answer to that name (421: {detail})"
            )),
            // Only the server itself can say that nothing was written. A proxy may have forwarded the request before it
            // gave up.
            408 | 425 | 429 | 500.. => {
                let after = after.as_ref().and_then(|after| after.to_str().ok());
                let after = after
                    .map(|after| format!(", again in {after} s"))
                    .unwrap_or_default();
                let what = format!("{server} answers {status}: {detail}{after}");
                match is_unavailable(problem.as_ref()) {
                    true => Error::Unavailable(what),
                    false => lost.error(what),
                }
            }
            _ => {
                let what = format!("{} answers {status}: {detail}{EXPECTED}", self.address.rpc);
                match is_ours(problem.as_ref()) {
                    true => Error::Broken(what),
                    // A redirect or an error page of a proxy, which may have forwarded the request before.
                    false => lost.broken(what),
                }
            }
        }
    }

    fn late(&self) -> String {
        format!(
            "{} has not answered within {:?}",
            self.server(),
            self.timeout
        )
    }

    fn broke(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = format!("{}: {error}", self.server());
        let mut cause = error.source();
        while let Some(error) = cause {
            let message = error.to_string();
            if !text.ends_with(&message) {
                text.push_str(": ");
                text.push_str(&message);
            }
            cause = error.source();
        }
        text
    }
}

/// The end of an error message about an invalid response.
const EXPECTED: &str = "; expected the answer of an abide server of this release: check whether the address is that of \
                        one";

/// Parses a response; if it is invalid, returns a description of it.
fn read(status: StatusCode, body: &[u8]) -> std::result::Result<Reply, String> {
    serde_json::from_slice(body).map_err(|error| {
        format!(
            "answers {status} with an unexpected body ({error}): {}",
            start(body)
        )
    })
}

/// `true` if a problem says that nothing was written.
fn is_unavailable(problem: Option<&serde_json::Value>) -> bool {
    problem_type(problem) == Some(wire::UNAVAILABLE)
}

/// `true` if a problem comes from an abide server.
fn is_ours(problem: Option<&serde_json::Value>) -> bool {
    problem_type(problem).is_some()
}

fn problem_type(problem: Option<&serde_json::Value>) -> Option<&str> {
    let kind = problem?.get("type")?.as_str()?;
    kind.strip_prefix(wire::PROBLEMS)
}

/// The text of a refusal: the detail of the problem, or the beginning of the body.
fn detail(problem: Option<&serde_json::Value>, body: &[u8]) -> String {
    let detail = problem.and_then(|problem| {
        let text = problem.get("detail").or_else(|| problem.get("title"));
        text?.as_str()
    });
    detail.map_or_else(|| start(body), str::to_owned)
}

fn start(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let mut short: String = text.trim().chars().take(SHOWN).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    match short.is_empty() {
        true => "nothing".into(),
        false => short,
    }
}

/// The header with the token.
fn token(options: &Options) -> Result<Option<HeaderValue>> {
    let Some(token) = options.token()? else {
        return Ok(None);
    };
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        Error::Broken(format!(
            "the token has characters that cannot be sent: look at {TOKEN}, {TOKEN_FILE}, or the options"
        ))
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}
