//! TLS: the certificate and its key, read from files and read again when these change, and the handshake.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::socket::Socket;
use super::wire::Wire;

/// How often the files are checked. Certificates are renewed days before they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of a file.
const FILE_BYTES: u64 = 1 << 20;
/// First byte of the first record of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// The server's certificate, as it was last read.
pub(super) struct Tls {
    files: Files,
    config: RwLock<Arc<ServerConfig>>,
}

/// Paths of the certificate and its key.
#[derive(Clone, Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// Contents of the two files.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// Reason why there is no TLS connection.
pub(super) enum NoHandshake {
    /// The client uses HTTP without TLS.
    Plain(Socket),
    /// The handshake failed, or took too long.
    Failed,
}

impl Tls {
    /// Reads the files, and watches them until `stop` is cancelled.
    ///
    /// Errors: a file cannot be read, or the key does not belong to the certificate.
    pub async fn begin(
        cert: &Path,
        key: &Path,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, ServeError> {
        let files = Files {
            cert: cert.to_owned(),
            key: key.to_owned(),
        };
        let content = files.clone().read().await.map_err(ServeError::Tls)?;
        let config = content.configured().map_err(|why| {
            let (cert, key) = (cert.display(), key.display());
            ServeError::Tls(format!("{cert} and {key} cannot be used: {why}"))
        })?;
        let hangup = signal(SignalKind::hangup());
        let hangup = hangup.map_err(|error| ServeError::Tls(error.to_string()))?;
        let tls = Arc::new(Self {
            files,
            config: RwLock::new(config),
        });
        tokio::spawn(stop.run_until_cancelled_owned(tls.clone().watch(content, hangup)));
        Ok(tls)
    }

    /// Runs the handshake with a client, until `until` at most.
    pub async fn accept(&self, wire: Wire, until: Instant) -> Result<Socket, NoHandshake> {
        let greeted = async {
            let mut first = [0];
            match wire.stream().peek(&mut first).await {
                Ok(1) if first == [HANDSHAKE] => {}
                Ok(1) => return Err(NoHandshake::Plain(Socket::plain(wire))),
                _ => return Err(NoHandshake::Failed),
            }
            match self.acceptor().accept(wire.clone()).await {
                Ok(stream) => Ok(Socket::encrypted(wire.clone(), stream)),
                Err(error) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    Err(NoHandshake::Failed)
                }
            }
        };
        let greeted = tokio::time::timeout_at(until, greeted).await;
        greeted.unwrap_or(Err(NoHandshake::Failed))
    }

    fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        config.clone().into()
    }

    /// Checks the files at intervals, and on SIGHUP. If the new files cannot be used, the old certificate stays in use.
    async fn watch(self: Arc<Self>, mut seen: Content, mut hangup: Signal) {
        loop {
            let requested = tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
                _ = hangup.recv() => true,
            };
            let content = match self.files.clone().read().await {
                Ok(content) => content,
                Err(problem) => {
                    tracing::error!(problem, "{KEPT}");
                    continue;
                }
            };
            // A problem with the files is logged once, and again on SIGHUP.
            if content == seen && !requested {
                continue;
            }
            match content.configured() {
                Ok(config) => {
                    let current = self.config.write();
                    *current.unwrap_or_else(PoisonError::into_inner) = config;
                    tracing::info!(cert = %self.files.cert.display(), "the TLS certificate was read again");
                }
                Err(problem) => {
                    let (cert, key) = (self.files.cert.display(), self.files.key.display());
                    tracing::error!(problem, %cert, %key, "{KEPT}");
                }
            }
            seen = content;
        }
    }
}

/// Log message for files that cannot be used.
const KEPT: &str =
    "the new TLS certificate cannot be used: the old one stays in force; put the files right";

impl Files {
    /// Reads both files.
    async fn read(self) -> Result<Content, String> {
        let reading = tokio::task::spawn_blocking(move || {
            Ok(Content {
                cert: read(&self.cert)?,
                key: read(&self.key)?,
            })
        });
        let read = reading.await;
        read.unwrap_or_else(|_| Err("reading the TLS certificate panicked".to_owned()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let bad = |problem: String| format!("{} cannot be read: {problem}", path.display());
    let file = std::fs::File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| bad(error.to_string()))?;
    match bytes.len() as u64 > FILE_BYTES {
        true => Err(bad(format!("it is over the limit of {FILE_BYTES} bytes"))),
        false => Ok(bytes),
    }
}

impl Content {
    /// Makes the TLS configuration. Returns an error if the key does not belong to the certificate.
    fn configured(&self) -> Result<Arc<ServerConfig>, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.cert).collect();
        let chain = chain.map_err(|error| format!("the certificate is not PEM: {error}"))?;
        if chain.is_empty() {
            return Err("it contains no certificate; write the chain in PEM".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("it contains no key: {error}; write it in PEM"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
