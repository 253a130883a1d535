//! Sends the requests of the exporter: over HTTP unchanged, over gRPC as a unary call.
//!
//! A unary call of gRPC is a POST over HTTP/2 with five bytes before the message, and a status after the response. So
//! one client, with the TLS of the rest of the binary, serves both protocols.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Handle;

use super::target::{Protocol, Target};

/// Maximum size of a response.
const ANSWER_BYTES: usize = 4 << 20;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// Sends requests to one collector.
pub(super) struct Client {
    hyper: Hyper<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// The exporter runs on its own thread, which has no runtime.
    runtime: Handle,
    is_grpc: bool,
    timeout: Duration,
    endpoint: String,
    /// `true` if the last request failed, so that the failure is logged once.
    is_failing: AtomicBool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client for a collector. Must be called within a runtime, which then sends the requests.
    pub fn new(target: &Target) -> Result<Self, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(target.timeout));
        let is_grpc = target.protocol == Protocol::Grpc;
        let config = trusting(target)?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http();
        let connector = match is_grpc {
            true => connector.enable_http2().wrap_connector(tcp),
            false => connector.enable_http1().wrap_connector(tcp),
        };
        let hyper = Hyper::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .http2_only(is_grpc)
            .build(connector);
        Ok(Self {
            hyper,
            runtime,
            is_grpc,
            timeout: target.timeout,
            endpoint: crate::settings::hidden(&target.endpoint),
            is_failing: AtomicBool::new(false),
        })
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = match self.is_grpc {
            true => called(request)?,
            false => request,
        };
        let sent = self.hyper.request(request.map(Full::new));
        let answered = async move {
            let (head, body) = sent.await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let body = Response::from_parts(head, body.to_bytes());
            Ok::<_, HttpError>((body, trailers))
        };
        let timeout = self.timeout;
        let bounded = async move { tokio::time::timeout(timeout, answered).await };
        let answered = self.runtime.spawn(bounded).await?;
        let (response, trailers) =
            answered.map_err(|_| format!("no answer within {timeout:?}"))??;
        match self.is_grpc {
            true => returned(response, &trailers),
            false => Ok(response),
        }
    }

    /// Logs when the collector becomes unavailable, and when it is available again.
    fn note(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let problem = match answer {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(described(&**error)),
        };
        let was_failing = self.is_failing.swap(problem.is_some(), Ordering::Relaxed);
        match (problem, was_failing) {
            (Some(problem), false) => {
                tracing::warn!(endpoint = self.endpoint, problem, "traces cannot be sent");
            }
            (None, true) => tracing::info!(endpoint = self.endpoint, "traces are sent again"),
            _ => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.exchange(request).await;
        self.note(&answer);
        answer
    }
}

/// Formats an error with all its causes.
fn described(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Length of the prefix of a gRPC message: one byte for compression, four for the length.
const PREFIX: usize = 5;

/// Converts a request to a gRPC call.
fn called(request: Request<Bytes>) -> Result<Request<Bytes>, HttpError> {
    let (mut head, message) = request.into_parts();
    let encoding = head.headers.remove(header::CONTENT_ENCODING);
    let mut framed = Vec::with_capacity(PREFIX + message.len());
    framed.push(u8::from(encoding.is_some()));
    framed.extend(u32::try_from(message.len())?.to_be_bytes());
    framed.extend(&message);
    if let Some(encoding) = encoding {
        head.headers.insert("grpc-encoding", encoding);
    }
    let kind = HeaderValue::from_static("application/grpc");
    head.headers.insert(header::CONTENT_TYPE, kind);
    head.headers
        .insert(header::TE, HeaderValue::from_static("trailers"));
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Request::from_parts(head, framed.into()))
}

/// Converts the result of a gRPC call to an HTTP response. Its status is retryable if and only if the gRPC status is.
fn returned(
    mut response: Response<Bytes>,
    trailers: &HeaderMap,
) -> Result<Response<Bytes>, HttpError> {
    if response.status() != StatusCode::OK {
        return Ok(response);
    }
    // The response to a failed call may consist of headers alone.
    let header_value = |name: &str| {
        let found = trailers.get(name).or_else(|| response.headers().get(name));
        found
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let status =
        header_value("grpc-status").ok_or("the answer has no grpc-status: is this a collector?")?;
    let message = header_value("grpc-message").unwrap_or_default();
    *response.status_mut() = match status.as_str() {
        "0" => StatusCode::OK,
        // Cancelled, deadline exceeded, resources exhausted, aborted, out of range, unavailable, data loss.
        "1" | "4" | "8" | "10" | "11" | "14" | "15" => StatusCode::SERVICE_UNAVAILABLE,
        "7" => StatusCode::FORBIDDEN,
        "12" => StatusCode::NOT_IMPLEMENTED,
        "16" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    };
    let body = response.body();
    let body = match response.status().is_success() {
        true => body.slice(PREFIX.min(body.len())..),
        false => Bytes::from(message),
    };
    Ok(response.map(|_| body))
}

/// Makes a TLS configuration that trusts the authorities in the target's file, or those of the system. A collector
/// without TLS needs none.
fn trusting(target: &Target) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if target.endpoint.starts_with("https:") {
        match &target.authorities {
            Some(file) => read_roots(file, &mut roots)?,
            None => {
                // Some certificates of the system cannot be parsed by rustls; they are skipped.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(
                "no certificates of authorities were found: install the system's (the Debian package is \
                 `ca-certificates`), or name a file of them with OTEL_EXPORTER_OTLP_CERTIFICATE"
                    .to_owned(),
            );
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn read_roots(file: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_length_before_it_and_says_whether_it_is_compressed() {
        let request =
            || Request::post("http://c/m").header("content-type", "application/x-protobuf");
        let call = called(request().body(Bytes::from("abc")).unwrap()).unwrap();
        assert_eq!(call.body(), &Bytes::from_static(b"\0\0\0\0\x03abc"));
        assert_eq!(call.headers()["content-type"], "application/grpc");
        assert_eq!(call.headers()["te"], "trailers");
        let zipped = request().header("content-encoding", "gzip");
        let call = called(zipped.body(Bytes::from("z")).unwrap()).unwrap();
        assert_eq!(call.body(), &Bytes::from_static(b"\x01\0\0\0\x01z"));
        assert_eq!(call.headers()["grpc-encoding"], "gzip");
        assert!(!call.headers().contains_key("content-encoding"));
    }

    #[test]
    fn the_status_of_a_call_decides_whether_it_is_sent_again() {
        let answer = |status: &'static str| {
            let trailers = HeaderMap::from_iter([(
                "grpc-status".parse().unwrap(),
                HeaderValue::from_static(status),
            )]);
            let response = Response::new(Bytes::from_static(b"\0\0\0\0\x02ok"));
            returned(response, &trailers).unwrap()
        };
        assert_eq!(answer("0").status(), 200);
        assert_eq!(answer("0").body(), &Bytes::from_static(b"ok"));
        for (status, code) in [
            ("14", 503),
            ("8", 503),
            ("3", 400),
            ("16", 401),
            ("12", 501),
        ] {
            assert_eq!(answer(status).status(), code, "{status}");
        }
        // The status in the headers alone, and a response that is not gRPC.
        let refused = Response::builder()
            .header("grpc-status", "14")
            .body(Bytes::new());
        let refused = returned(refused.unwrap(), &HeaderMap::new()).unwrap();
        assert_eq!(refused.status(), 503);
        assert!(returned(Response::new(Bytes::new()), &HeaderMap::new()).is_err());
    }
}
