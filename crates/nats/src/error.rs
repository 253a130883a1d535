//! Errors of starting a source, classified by what you must do.

use async_nats::rustls::{self, AlertDescription};

/// An error of starting a source.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Refused: the source, the stream or the consumer must be changed first.
    #[error("{0}")]
    Refused(String),
    /// The server requires a client certificate, and got none, or one that it does not trust: use another one
    /// ([`ConnectOptions::add_client_certificate`](async_nats::ConnectOptions::add_client_certificate)).
    #[error("{0}; give one that it trusts")]
    Certificate(String),
    /// The server cannot be reached or did not respond: try again later.
    #[error("{0}; try again when the server is there")]
    Unavailable(String),
}

/// Shows the text, so that a `main` that returns the error prints it.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Error {
    pub(crate) fn refused(problem: impl Into<String>) -> Self {
        Self::Refused(problem.into())
    }

    /// The error for a connection that could not be made.
    pub(crate) fn unconnected(error: &(dyn std::error::Error + 'static)) -> Self {
        const WHAT: &str = "cannot connect to NATS";
        match refused_certificate(error) {
            Some(alert) => Self::Certificate(format!(
                "{WHAT}: the server requires a client certificate that it trusts (TLS alert {alert:?})"
            )),
            None => Self::unavailable(WHAT, error),
        }
    }

    pub(crate) fn unavailable(what: &str, error: &dyn std::error::Error) -> Self {
        let mut problem = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            // Many errors end with the text of their cause.
            let text = format!(": {error}");
            if !problem.ends_with(&text) {
                problem.push_str(&text);
            }
            cause = error.source();
        }
        Self::Unavailable(problem)
    }
}

/// The alert with which a server refused the client's certificate, or a missing one. For a missing one a server sends
/// `CertificateRequired` or, like nats-server, `BadCertificate`.
fn refused_certificate(error: &(dyn std::error::Error + 'static)) -> Option<AlertDescription> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.into_iter().find_map(|error| {
        // An I/O error is transparent: its source is the source of the inner error, not the inner error.
        let inner = error.downcast_ref::<std::io::Error>();
        let inner = inner.and_then(std::io::Error::get_ref);
        let tls = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => error.downcast_ref::<rustls::Error>(),
        };
        match tls {
            Some(rustls::Error::AlertReceived(
                alert @ (AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA),
            )) => Some(*alert),
            _ => None,
        }
    })
}
