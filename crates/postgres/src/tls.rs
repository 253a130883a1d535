//! Encrypted connections: rustls, trusting the authorities that the system trusts, or those of a file.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use abide_kernel::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Makes connections encrypted. The server's certificate is always checked, and its name too.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Trusts the authorities in a PEM file, or, without one, those that the system trusts.
    pub fn new(authorities: Option<&Path>) -> Result<Self> {
        let unusable = |why: String| Error::Broken(format!("TLS cannot be set up: {why}"));
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(file) => {
                let wrong = |error| unusable(format!("{}: {error}", file.display()));
                for certificate in CertificateDer::pem_file_iter(file).map_err(wrong)? {
                    let added = roots.add(certificate.map_err(wrong)?);
                    added.map_err(|error| unusable(format!("{}: {error}", file.display())))?;
                }
            }
            // Of the system's there are always some that rustls does not like.
            None => drop(
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
            ),
        }
        if roots.is_empty() {
            return Err(unusable(
                "no certificates of authorities were found: install the system's (the Debian package is \
                 `ca-certificates`), or name a file of them"
                    .into(),
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = ToServer;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToServer> {
        let server = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(ToServer {
            connector: self.0.clone(),
            server,
        })
    }
}

/// Makes one connection encrypted.
pub(crate) struct ToServer {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for ToServer {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            self.connector
                .connect(self.server, socket)
                .await
                .map(Encrypted)
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
