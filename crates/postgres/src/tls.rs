//! Encrypted connections with rustls; the server's certificate is checked as `sslmode` requires.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use abide_kernel::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::ssl::Check;

/// Encrypts connections.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Creates an encryptor with the given check of certificates.
    pub fn new(check: &Check) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?;
        let trusting = |roots| {
            let verifier = Arc::new(AuthorityVerifier { roots, provider });
            config
                .clone()
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        };
        let config = match check {
            Check::Nothing => trusting(None),
            Check::Authority(file) => trusting(Some(read_roots(file)?)),
            Check::AuthorityAndName(Some(file)) => config.with_root_certificates(read_roots(file)?),
            Check::AuthorityAndName(None) => config.with_root_certificates(system_roots()?),
        };
        let config = config.with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

fn unusable(why: String) -> Error {
    Error::Broken(format!("TLS cannot be set up: {why}"))
}

fn read_roots(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let wrong = |error| unusable(format!("{}: {error}", file.display()));
    for certificate in CertificateDer::pem_file_iter(file).map_err(wrong)? {
        let added = roots.add(certificate.map_err(wrong)?);
        added.map_err(|error| unusable(format!("{}: {error}", file.display())))?;
    }
    match roots.is_empty() {
        true => Err(unusable(format!(
            "{}: it contains no certificate; name a PEM file of the authorities to trust",
            file.display()
        ))),
        false => Ok(roots),
    }
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Some certificates of the system are usually not accepted by rustls; they are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(unusable(
            "no certificates of authorities were found: install the system's (the Debian package is `ca-certificates`), or \
             name a file of them with `sslrootcert`"
                .into(),
        )),
        false => Ok(roots),
    }
}

/// Checks the signature of a certificate, but not the name in it; without authorities, only that the server has the
/// private key of its certificate.
#[derive(Debug)]
struct AuthorityVerifier {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            rustls::client::verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(certificate)?,
                roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A failed handshake: no common TLS version or cipher, or the certificate was refused.
#[derive(Debug)]
pub(crate) struct HandshakeFailed(pub io::Error);

impl std::fmt::Display for HandshakeFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for HandshakeFailed {}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = ToServer;
    type Error = HandshakeFailed;

    fn make_tls_connect(&mut self, host: &str) -> std::result::Result<ToServer, HandshakeFailed> {
        let server = ServerName::try_from(host.to_owned())
            .map_err(|error| HandshakeFailed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        Ok(ToServer {
            connector: self.0.clone(),
            server,
        })
    }
}

/// Encrypts one connection.
pub(crate) struct ToServer {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl TlsConnect<Socket> for ToServer {
    type Stream = Encrypted;
    type Error = HandshakeFailed;
    type Future =
        Pin<Box<dyn Future<Output = std::result::Result<Encrypted, HandshakeFailed>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.server, socket).await;
            connected.map(Encrypted).map_err(HandshakeFailed)
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
